//! Who may read what over HTTP: dnsdist's password (basic authentication, any user) and API key (`X-API-Key`).

use crate::config::Webserver;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use data_encoding::BASE64;
use std::net::IpAddr;

/// Whether the statistics may be read with these headers from this address.
///
/// Without a password dnsdist answers 401 to everybody; here this machine itself may read then, for there is nothing that
/// it could say.
pub fn may_read_statistics(webserver: &Webserver, client: IpAddr, headers: &HeaderMap) -> bool {
    if !webserver.stats_require_authentication {
        return true;
    }
    if webserver.password.is_none() && webserver.api_key.is_none() {
        return client.to_canonical().is_loopback();
    }
    has_password(webserver, headers) || has_api_key(webserver, headers)
}

/// RFC 7617: `Authorization: Basic` and base64 of `user:password`.
fn has_password(webserver: &Webserver, headers: &HeaderMap) -> bool {
    let Some(expected) = &webserver.password else {
        return false;
    };
    let given = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    // RFC 7617 section 2: "both scheme and parameter names are matched case-insensitively".
    let encoded = given.and_then(|value| value.split_once(' '));
    let encoded = encoded.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("Basic"));
    let decoded = encoded.and_then(|(_, text)| BASE64.decode(text.trim().as_bytes()).ok());
    let Some(decoded) = decoded else { return false };
    let colon = decoded.iter().position(|&byte| byte == b':');
    colon.is_some_and(|colon| same(&decoded[colon + 1..], expected.as_bytes()))
}

fn has_api_key(webserver: &Webserver, headers: &HeaderMap) -> bool {
    let (Some(expected), Some(given)) = (&webserver.api_key, headers.get("x-api-key")) else {
        return false;
    };
    same(given.as_bytes(), expected.as_bytes())
}

/// Compares in a time that tells nothing but the lengths.
fn same(given: &[u8], expected: &[u8]) -> bool {
    let pairs = given.iter().zip(expected);
    let difference = pairs.fold(0, |difference, (one, other)| difference | (one ^ other));
    given.len() == expected.len() && difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::fixture;
    use axum::http::HeaderValue;

    fn webserver(password: Option<&str>, api_key: Option<&str>) -> Webserver {
        Webserver {
            password: password.map(str::to_owned),
            api_key: api_key.map(str::to_owned),
            ..fixture::webserver()
        }
    }

    fn allowed(webserver: &Webserver, client: &str, header: Option<(&'static str, &str)>) -> bool {
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = header {
            headers.insert(name, HeaderValue::from_str(value).unwrap());
        }
        may_read_statistics(webserver, client.parse().unwrap(), &headers)
    }

    #[test]
    fn a_password_is_asked_for_whatever_the_user() {
        let webserver = webserver(Some("se:cret"), None);
        let basic = |text: &str| format!("bASIC {}", BASE64.encode(text.as_bytes()));
        for (header, expected) in [
            (basic("anybody:se:cret"), true),
            (basic(":se:cret"), true),
            (basic("anybody:secret"), false),
            (basic("anybody"), false),
            ("Basic ???".to_owned(), false),
            ("Bearer se:cret".to_owned(), false),
        ] {
            let found = allowed(&webserver, "127.0.0.1", Some(("authorization", &header)));
            assert_eq!(found, expected, "{header}");
        }
        assert!(!allowed(&webserver, "127.0.0.1", None));
    }

    #[test]
    fn an_api_key_does_as_well() {
        let webserver = webserver(Some("password"), Some("key"));
        assert!(allowed(&webserver, "192.0.2.1", Some(("x-api-key", "key"))));
        assert!(!allowed(
            &webserver,
            "192.0.2.1",
            Some(("x-api-key", "kez"))
        ));
        assert!(!allowed(&webserver, "192.0.2.1", Some(("x-api-key", ""))));
    }

    #[test]
    fn without_a_password_this_machine_may_read() {
        let mut webserver = webserver(None, None);
        assert!(allowed(&webserver, "127.0.0.1", None));
        assert!(allowed(&webserver, "::1", None));
        assert!(!allowed(&webserver, "192.0.2.1", None));
        webserver.stats_require_authentication = false;
        assert!(allowed(&webserver, "192.0.2.1", None));
    }
}
