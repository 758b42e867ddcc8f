//! Before and behind every page: who is let in, and the headers that go out.

use super::Client;
use super::custom::BODY_MAXIMUM;
use super::pages::Site;
use crate::config::web::WebOptions;
use crate::control::credentials::{Area, Credentials};
use axum::body::HttpBody;
use axum::extract::connect_info::ConnectInfo;
use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, CONNECTION, CONTENT_LENGTH, HOST, HeaderName, ORIGIN,
    TRANSFER_ENCODING, VARY, WWW_AUTHENTICATE,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;

/// Lets a request on to its page when its credentials open that.
pub(super) async fn admit(
    State(site): State<Site>,
    ConnectInfo(Client(client)): ConnectInfo<Client>,
    request: Request,
    next: Next,
) -> Response {
    let Some(options) = site.options() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let area = Area::of(request.uri().path());
    let credentials = Credentials::of(request.headers());
    if opens(credentials, area, options, client.ip()).await {
        return next.run(request).await;
    }
    unauthorized()
}

/// Hashing takes its time, and others are served meanwhile.
pub(super) async fn opens(
    credentials: Credentials,
    area: Area,
    options: WebOptions,
    client: IpAddr,
) -> bool {
    if !credentials.are_slow(&options) {
        return credentials.open(area, &options, client);
    }
    let hashed = tokio::task::spawn_blocking(move || credentials.open(area, &options, client));
    hashed.await.unwrap_or(false)
}

/// RFC 9110 section 15.5.2: "The server generating a 401 response MUST send a WWW-Authenticate header field". Of a key there is
/// no scheme to name: dnsdist names the password's on every page.
pub(super) fn unauthorized() -> Response {
    let challenge = [(WWW_AUTHENTICATE, "Basic realm=\"millrace\"")];
    (StatusCode::UNAUTHORIZED, challenge, "Unauthorized\n").into_response()
}

/// dnsdist's headers for browsers, and those of `customHeaders`, on every page.
pub(super) async fn with_headers(
    State(site): State<Site>,
    request: Request,
    next: Next,
) -> Response {
    let options = site.options().unwrap_or_default();
    let origin = request.headers().get(ORIGIN).cloned();
    let origin = origin.filter(|_| options.allow_cross_origin_requests);
    let (refused, version) = (refusal(&request), request.version());
    // A browser asks what it may ask, without credentials.
    let is_preflight = origin.is_some() && request.method() == Method::OPTIONS;
    let mut response = match refused {
        Some(status) => status.into_response(),
        None if is_preflight => StatusCode::OK.into_response(),
        None => next.run(request).await,
    };
    if version == Version::HTTP_10 {
        // Else hyper adds the keep-alive that the client asks for to our "close".
        *response.version_mut() = version;
    }
    let headers = response.headers_mut();
    complete(headers, options.headers);
    if let Some(origin) = origin {
        allow(headers, origin);
    }
    response
}

/// What no page takes.
fn refusal(request: &Request) -> Option<StatusCode> {
    // One connection of HTTP/2 carries many requests at a time, each of which may cost a hash.
    if request.version() > Version::HTTP_11 {
        return Some(StatusCode::HTTP_VERSION_NOT_SUPPORTED);
    }
    // RFC 9112 section 3.2: 400 for HTTP/1.1 without a Host field, and for any request with two.
    let hosts = request.headers().get_all(HOST).iter().count();
    if hosts > 1 || (hosts == 0 && request.version() == Version::HTTP_11) {
        return Some(StatusCode::BAD_REQUEST);
    }
    // Said before the body is read: who waits for "100 Continue" need not send it.
    let announced = request.body().size_hint().lower();
    (announced > BODY_MAXIMUM as u64).then_some(StatusCode::PAYLOAD_TOO_LARGE)
}

/// Adds what the page does not say itself: the headers of `customHeaders`, else ours; an empty one takes ours away.
fn complete(headers: &mut HeaderMap, custom: Vec<(HeaderName, HeaderValue)>) {
    let mut usual: HeaderMap = USUAL.into_iter().collect();
    for (name, value) in custom {
        usual.insert(name, value);
    }
    for (name, value) in &usual {
        if !value.is_empty() && !is_framing(name) && !headers.contains_key(name) {
            headers.insert(name.clone(), value.clone());
        }
    }
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
}

/// Whether a header tells where the message ends and whether another one follows: nobody's to choose.
pub(super) fn is_framing(name: &HeaderName) -> bool {
    [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING].contains(name)
}

fn allow(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(VARY, HeaderValue::from_static("Origin"));
    // As dnsdist has it: a page elsewhere may send the password.
    let credentials = HeaderValue::from_static("true");
    headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, credentials);
    let methods = HeaderValue::from_static("GET, PUT, DELETE");
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
    let allowed = HeaderValue::from_static("Authorization, Content-Type, X-API-Key");
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed);
}

const USUAL: [(HeaderName, HeaderValue); 5] = [
    (
        HeaderName::from_static("content-security-policy"),
        HeaderValue::from_static("default-src 'self'; style-src 'self' 'unsafe-inline'"),
    ),
    (
        HeaderName::from_static("x-content-type-options"),
        HeaderValue::from_static("nosniff"),
    ),
    (
        HeaderName::from_static("x-frame-options"),
        HeaderValue::from_static("deny"),
    ),
    (
        HeaderName::from_static("x-permitted-cross-domain-policies"),
        HeaderValue::from_static("none"),
    ),
    (
        HeaderName::from_static("x-xss-protection"),
        HeaderValue::from_static("1; mode=block"),
    ),
];
