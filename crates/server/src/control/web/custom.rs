//! Pages of the operator's own: `registerWebHandler`.

use super::Client;
use super::admission::{is_framing, opens, unauthorized};
use super::pages::Site;
use crate::config::LuaState;
use crate::config::lua::web_handlers::{WebRequest, WebResponse};
use crate::control::credentials::{Area, Credentials};
use axum::body::{Body, to_bytes};
use axum::extract::connect_info::ConnectInfo;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue, StatusCode, Version};
use axum::response::{IntoResponse, Response};
use std::collections::HashMap;
use std::sync::Arc;

/// Octets of a request's body, on every page.
pub(super) const BODY_MAXIMUM: usize = 1 << 20;

/// What the body is when it is a form.
const FORM: &[u8] = b"application/x-www-form-urlencoded";

/// For every path that is no page of ours. Who may not come in is not told which pages there are: "An HTTP 401 response is
/// returned when a wrong or no API key is received."
pub(super) async fn page(
    State(site): State<Site>,
    ConnectInfo(Client(client)): ConnectInfo<Client>,
    request: Request,
) -> Response {
    let Some(options) = site.options() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let path = request.uri().path();
    let (area, is_there) = (Area::of(path), options.pages.contains(path));
    let credentials = Credentials::of(request.headers());
    if !opens(credentials, area, options, client.ip()).await {
        return unauthorized();
    }
    let Some(state) = site.config().lua.clone().filter(|_| is_there) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    match read(request).await {
        Some(request) => answer(state, request).await,
        None => StatusCode::PAYLOAD_TOO_LARGE.into_response(),
    }
}

/// The function waits for the state's lock, and takes its time: not where others are served.
async fn answer(state: Arc<LuaState>, request: WebRequest) -> Response {
    let made = tokio::task::spawn_blocking(move || state.answer_web(&request));
    let page = made.await.ok().flatten();
    page.and_then(written)
        .unwrap_or_else(|| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

/// `None`: no status that ends an answer, or a header that HTTP does not have. Where the body ends is not for the page to say.
fn written(page: WebResponse) -> Option<Response> {
    let mut response = Response::new(Body::from(page.body));
    let status = StatusCode::from_u16(page.status).ok();
    *response.status_mut() = status.filter(|status| !status.is_informational())?;
    for (name, value) in page.headers {
        let name: HeaderName = name.parse().ok()?;
        let value: HeaderValue = value.parse().ok()?;
        if !is_framing(&name) {
            response.headers_mut().insert(name, value);
        }
    }
    Some(response)
}

/// `None`: its body is too long, or broke off.
async fn read(request: Request) -> Option<WebRequest> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, BODY_MAXIMUM).await.ok()?;
    let headers = parts.headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.as_str().to_owned(), value)
    });
    // RFC 9110 section 8.3.1: type and subtype are the same in any case.
    let is_form = parts.headers.get(CONTENT_TYPE).is_some_and(|kind| {
        let kind = kind.as_bytes().get(..FORM.len());
        kind.is_some_and(|kind| kind.eq_ignore_ascii_case(FORM))
    });
    let form: &[u8] = if is_form { &body } else { &[] };
    let query = parts.uri.query().unwrap_or_default();
    Some(WebRequest {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        version: if parts.version == Version::HTTP_10 {
            10
        } else {
            11
        },
        headers: headers.collect(),
        query: variables(query.as_bytes()),
        form: variables(form),
        body: body.to_vec(),
    })
}

/// `a=1&b=2+3`, as the query of an address and a form are written; of names that stand again the last one counts.
fn variables(text: &[u8]) -> HashMap<String, String> {
    let pairs = text.split(|&octet| octet == b'&');
    let pairs = pairs.filter(|pair| !pair.is_empty()).map(|pair| {
        let end = pair.iter().position(|&octet| octet == b'=');
        let (name, value) = pair.split_at(end.unwrap_or(pair.len()));
        (decoded(name), decoded(value.get(1..).unwrap_or_default()))
    });
    pairs.collect()
}

/// `+` is a space, `%2B` a plus; what is no such pair of digits stands for itself.
fn decoded(text: &[u8]) -> String {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        let (octet, next) = match first {
            b'+' => (b' ', behind),
            b'%' => hexadecimal(behind).unwrap_or((first, behind)),
            other => (other, behind),
        };
        octets.push(octet);
        rest = next;
    }
    String::from_utf8_lossy(&octets).into_owned()
}

/// The octet that two digits stand for, and what is behind them.
fn hexadecimal(text: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, behind) = text.split_at_checked(2)?;
    let digit = |octet: u8| char::from(octet).to_digit(16);
    let value = digit(digits[0])? * 16 + digit(digits[1])?;
    Some((u8::try_from(value).ok()?, behind))
}

#[cfg(test)]
mod tests {
    use super::super::tests::start_with;
    use super::*;
    use crate::config::pools::PoolNames;
    use crate::config::spec::{Purpose, Spec};

    const FILE: &str = r#"webserver('127.0.0.1:8083') setWebserverConfig({password='secret'})
        registerWebHandler('/foo', function(req, resp)
          resp.status = 202
          resp.headers = {['X-Method']=req.method}
          resp.body = req.getvars['a'] .. (req.postvars['b'] or '') .. req.headers['custom'] .. #req.body
        end)
        registerWebHandler('/broken', function(req, resp) resp.status = 'many' end)
        registerWebHandler('/early', function(req, resp) resp.status = 101 end)
        registerWebHandler('/own', function(req, resp)
          resp.headers = {['X-Frame-Options']='sameorigin', ['Content-Length']='3', ['Connection']='keep-alive'}
          resp.body = req.method
        end)
        registerWebHandler('/metrics', function(req, resp) resp.status = 500 end)"#;

    const PASSWORD: &str = "Authorization: Basic eDpzZWNyZXQ=\r\nCustom: C\r\n";

    #[tokio::test]
    async fn pages_of_the_operators_own() {
        let state = LuaState::new(Spec::new(Purpose::Serve, PoolNames::default())).unwrap();
        state.run("test.conf", FILE.as_bytes()).unwrap();
        let server = start_with(Arc::new(state).derive(None).unwrap()).await;
        let form = format!("{PASSWORD}Content-Type: Application/X-WWW-form-urlencoded\r\n");
        for (line, headers, body, expected) in [
            ("GET /foo?a=1%202", PASSWORD, "", (202, "1 2C0")),
            ("POST /foo?a=x", form.as_str(), "b=y+z", (202, "xy zC5")),
            // As curl sends what it is given.
            ("POST /foo?a=x", form.as_str(), "b=y z", (202, "xy zC5")),
            ("GET /foo?a=1", "", "", (401, "Unauthorized\n")),
            ("GET /foo", PASSWORD, "", (500, "")),
            ("GET /broken", PASSWORD, "", (500, "")),
            ("GET /early", PASSWORD, "", (500, "")),
            ("GET /foo/bar?a=1", PASSWORD, "", (404, "")),
            ("GET /foobar", PASSWORD, "", (404, "")),
        ] {
            let (status, text) = server.request(line, headers, body).await;
            assert_eq!((status, text.as_str()), expected, "{line}");
        }
        // Ours stay ours.
        assert_eq!(server.request("GET /metrics", PASSWORD, "").await.0, 200);
        server.stop().await;
    }

    /// Ours are not sent beside them, and what HTTP tells of the message is not the page's.
    #[tokio::test]
    async fn a_page_has_headers_of_its_own() {
        let state = LuaState::new(Spec::new(Purpose::Serve, PoolNames::default())).unwrap();
        state.run("test.conf", FILE.as_bytes()).unwrap();
        let server = start_with(Arc::new(state).derive(None).unwrap()).await;
        for (method, body) in [("PATCH", "PATCH"), ("HEAD", "")] {
            let request = format!("{method} /own HTTP/1.1\r\nHost: localhost\r\n{PASSWORD}\r\n");
            let answer = server.ask(&request).await;
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            let length = format!("\r\ncontent-length: {}\r\n", method.len());
            for header in [
                "\r\nx-frame-options: sameorigin\r\n",
                "\r\nconnection: close\r\n",
                &length,
            ] {
                assert!(answer.contains(header), "{header}{answer}");
            }
            assert_eq!(answer.matches("x-frame-options").count(), 1, "{answer}");
            assert_eq!(answer.matches("connection:").count(), 1, "{answer}");
            assert!(answer.ends_with(&format!("\r\n\r\n{body}")), "{answer}");
        }
        server.stop().await;
    }

    #[test]
    fn variables_are_decoded() {
        let found = variables(b"a=1%202&b=x+y%2B&a=3&&c&d==%zz%4&%61%c3%bc=\xc3\xbc");
        let expected = [
            ("a", "3"),
            ("b", "x y+"),
            ("c", ""),
            ("d", "=%zz%4"),
            ("a\u{fc}", "\u{fc}"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(found, HashMap::from(expected));
        // Longer than an address may be.
        let long = format!("a={}", "x".repeat(1 << 17));
        assert_eq!(variables(long.as_bytes())["a"].len(), 1 << 17);
    }
}
