//! Pages of the operator's own: `registerWebHandler`.

use super::Client;
use super::admission::{opens, unauthorized};
use super::pages::Site;
use crate::config::LuaState;
use crate::config::lua::web_handlers::{WebRequest, WebResponse};
use crate::control::credentials::{Area, Credentials};
use axum::body::{Body, to_bytes};
use axum::extract::connect_info::ConnectInfo;
use axum::extract::{Query, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri, Version};
use axum::response::{IntoResponse, Response};
use std::collections::HashMap;
use std::sync::Arc;

/// Octets of a request's body.
const BODY_MAXIMUM: usize = 1 << 20;

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

/// `None`: no status or header that HTTP has.
fn written(page: WebResponse) -> Option<Response> {
    let mut response = Response::new(Body::from(page.body));
    *response.status_mut() = StatusCode::from_u16(page.status).ok()?;
    for (name, value) in page.headers {
        let name: HeaderName = name.parse().ok()?;
        let value: HeaderValue = value.parse().ok()?;
        response.headers_mut().insert(name, value);
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
    let is_form = parts.headers.get(CONTENT_TYPE).is_some_and(|kind| {
        kind.as_bytes()
            .starts_with(b"application/x-www-form-urlencoded")
    });
    let form = is_form.then(|| String::from_utf8_lossy(&body));
    Some(WebRequest {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        version: if parts.version == Version::HTTP_10 {
            10
        } else {
            11
        },
        headers: headers.collect(),
        query: variables(&parts.uri),
        form: form.map(|form| of_form(&form)).unwrap_or_default(),
        body: body.to_vec(),
    })
}

fn variables(uri: &Uri) -> HashMap<String, String> {
    Query::try_from_uri(uri).map_or_else(|_| HashMap::new(), |Query(found)| found)
}

/// A form is written as the query of an address is.
fn of_form(form: &str) -> HashMap<String, String> {
    let uri = Uri::try_from(format!("/?{form}"));
    uri.map_or_else(|_| HashMap::new(), |uri| variables(&uri))
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
        registerWebHandler('/metrics', function(req, resp) resp.status = 500 end)"#;

    const PASSWORD: &str = "Authorization: Basic eDpzZWNyZXQ=\r\nCustom: C\r\n";

    #[tokio::test]
    async fn pages_of_the_operators_own() {
        let state = LuaState::new(Spec::new(Purpose::Serve, PoolNames::default())).unwrap();
        state.run("test.conf", FILE.as_bytes()).unwrap();
        let server = start_with(Arc::new(state).derive(None).unwrap()).await;
        let form = format!("{PASSWORD}Content-Type: application/x-www-form-urlencoded\r\n");
        for (line, headers, body, expected) in [
            ("GET /foo?a=1%202", PASSWORD, "", (202, "1 2C0")),
            ("POST /foo?a=x", form.as_str(), "b=y+z", (202, "xy zC5")),
            ("GET /foo?a=1", "", "", (401, "Unauthorized\n")),
            ("GET /foo", PASSWORD, "", (500, "")),
            ("GET /broken", PASSWORD, "", (500, "")),
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
}
