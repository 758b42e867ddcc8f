//! Who may read what over HTTP: dnsdist's password (basic authentication, any user) and API key (`X-API-Key`).
//!
//! | what | who |
//! | --- | --- |
//! | statistics (`/metrics`, `/jsonstat`) | password or key; with neither configured, this machine itself |
//! | the overview (`/api/v1/servers/localhost`) | key or password: dashboards show it |
//! | the rest of `/api` | key |
//! | `/` and the operator's own pages | password; with none configured, this machine itself |

use crate::config::secret::Secret;
use crate::config::web::WebOptions;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use data_encoding::BASE64;
use std::net::IpAddr;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Area {
    Statistics,
    Overview,
    Api,
    Dashboard,
}

impl Area {
    pub fn of(path: &str) -> Area {
        match path {
            "/metrics" | "/jsonstat" => Area::Statistics,
            "/api/v1/servers/localhost" => Area::Overview,
            path if path.starts_with("/api/") => Area::Api,
            _ => Area::Dashboard,
        }
    }

    fn is_guarded(self, options: &WebOptions) -> bool {
        match self {
            Area::Statistics => options.stats_require_authentication,
            Area::Overview | Area::Api => options.api_requires_authentication,
            Area::Dashboard => options.dashboard_requires_authentication,
        }
    }

    fn takes_password(self) -> bool {
        self != Area::Api
    }

    fn takes_key(self) -> bool {
        self != Area::Dashboard
    }
}

/// What a request brings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    password: Option<Vec<u8>>,
    api_key: Option<Vec<u8>>,
}

impl Credentials {
    pub fn of(headers: &HeaderMap) -> Credentials {
        Credentials {
            password: password(headers),
            api_key: headers.get("x-api-key").map(|key| key.as_bytes().to_vec()),
        }
    }

    /// Whether they open `area` to this client. Takes milliseconds where [`Credentials::are_slow`].
    ///
    /// Without a password dnsdist answers 401 to everybody; here this machine itself may read then, for there is nothing
    /// that it could say. What changes something always takes a key.
    pub fn open(&self, area: Area, options: &WebOptions, client: IpAddr) -> bool {
        if !area.is_guarded(options) {
            return true;
        }
        let needs_none = match area {
            Area::Statistics => options.password.is_none() && options.api_key.is_none(),
            Area::Dashboard => options.password.is_none(),
            Area::Overview | Area::Api => false,
        };
        if needs_none {
            return client.to_canonical().is_loopback();
        }
        let fits = |given: &Option<Vec<u8>>, secret: &Option<Secret>| {
            let pair = given.as_ref().zip(secret.as_ref());
            pair.is_some_and(|(given, secret)| secret.is(given))
        };
        area.takes_password() && fits(&self.password, &options.password)
            || area.takes_key() && fits(&self.api_key, &options.api_key)
    }

    /// Whether a look at them hashes something: not to be done where others wait.
    pub fn are_slow(&self, options: &WebOptions) -> bool {
        let slow = |given: &Option<Vec<u8>>, secret: &Option<Secret>| {
            given.is_some() && secret.as_ref().is_some_and(Secret::is_slow)
        };
        slow(&self.password, &options.password) || slow(&self.api_key, &options.api_key)
    }
}

/// RFC 7617: `Authorization: Basic` and base64 of `user:password`.
fn password(headers: &HeaderMap) -> Option<Vec<u8>> {
    let given = headers.get(AUTHORIZATION)?.to_str().ok()?;
    // RFC 7617 section 2: "both scheme and parameter names are matched case-insensitively".
    let (scheme, text) = given.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("Basic") {
        return None;
    }
    let decoded = BASE64.decode(text.trim().as_bytes()).ok()?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    Some(decoded[colon + 1..].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn options(password: Option<&str>, api_key: Option<&str>) -> WebOptions {
        let secret = |text: &str| Secret::read(text).unwrap();
        WebOptions {
            password: password.map(secret),
            api_key: api_key.map(secret),
            ..WebOptions::default()
        }
    }

    const PATHS: [&str; 4] = [
        "/metrics",
        "/api/v1/servers/localhost",
        "/api/v1/servers/localhost/config",
        "/",
    ];

    /// Which of [`PATHS`] open, a digit each.
    fn opened(options: &WebOptions, client: &str, header: Option<(&'static str, &str)>) -> String {
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = header {
            headers.insert(name, HeaderValue::from_str(value).unwrap());
        }
        let credentials = Credentials::of(&headers);
        let client = client.parse().unwrap();
        let open = |path| credentials.open(Area::of(path), options, client);
        PATHS
            .map(|path| if open(path) { '1' } else { '0' })
            .iter()
            .collect()
    }

    #[test]
    fn a_password_is_asked_for_whatever_the_user() {
        let options = options(Some("se:cret"), None);
        let basic = |text: &str| format!("bASIC {}", BASE64.encode(text.as_bytes()));
        for (header, expected) in [
            (basic("anybody:se:cret"), "1101"),
            (basic(":se:cret"), "1101"),
            (basic("anybody:secret"), "0000"),
            (basic("anybody"), "0000"),
            ("Basic ???".to_owned(), "0000"),
            ("Bearer se:cret".to_owned(), "0000"),
        ] {
            let found = opened(&options, "127.0.0.1", Some(("authorization", &header)));
            assert_eq!(found, expected, "{header}");
        }
        assert_eq!(opened(&options, "127.0.0.1", None), "0000");
    }

    #[test]
    fn an_api_key_opens_the_api_and_statistics() {
        let options = options(Some("password"), Some("key"));
        for (key, expected) in [("key", "1110"), ("kez", "0000"), ("", "0000")] {
            let found = opened(&options, "192.0.2.1", Some(("x-api-key", key)));
            assert_eq!(found, expected, "{key}");
        }
    }

    #[test]
    fn without_a_password_this_machine_may_read() {
        let mut options = options(None, None);
        assert_eq!(opened(&options, "127.0.0.1", None), "1001");
        assert_eq!(opened(&options, "::1", None), "1001");
        assert_eq!(opened(&options, "192.0.2.1", None), "0000");
        options.stats_require_authentication = false;
        assert_eq!(opened(&options, "192.0.2.1", None), "1000");
        options.api_requires_authentication = false;
        options.dashboard_requires_authentication = false;
        assert_eq!(opened(&options, "192.0.2.1", None), "1111");
    }

    #[test]
    fn hashed_secrets_are_slow() {
        let mut options = options(None, Some("key"));
        let mut headers = HeaderMap::new();
        headers.insert("x-api-key", HeaderValue::from_static("key"));
        let credentials = Credentials::of(&headers);
        assert!(!credentials.are_slow(&options));
        options.api_key = options.api_key.map(|key| key.hashed().unwrap());
        assert!(credentials.are_slow(&options));
        assert!(!Credentials::default().are_slow(&options));
        let client = "192.0.2.1".parse().unwrap();
        assert!(credentials.open(Area::Api, &options, client));
    }
}
