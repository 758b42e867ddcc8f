//! Real connections on loopback.

use super::*;
use crate::backend::fixture::{options, pool, server as backend};
use crate::config::cache::CacheOptions;
use crate::config::pools::PoolNames;
use crate::config::secret::Secret;
use crate::config::spec::{Purpose, Spec};
use crate::config::web::{ApiWrites, WebOptions};
use crate::config::{Config, LuaState, Webserver};
use crate::control::fixture::{Standing, webserver};
use crate::control::news::Herald;
use crate::pipeline::acl::{Netmask, Netmasks};
use crate::pipeline::cache::PacketCache;
use crate::pipeline::rules::Rule;
use crate::pipeline::rules::actions::count::counting;
use crate::pipeline::rules::actions::limit::DropAction;
use crate::pipeline::rules::selectors::logic::AllRule;
use crate::stop::Stopper;
use std::sync::atomic::Ordering::Relaxed;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub(super) struct Server {
    standing: Arc<Standing>,
    address: SocketAddr,
    stopper: Stopper,
    herald: Herald,
    task: tokio::task::JoinHandle<()>,
}

/// Serves under this configuration, on a port of its own.
async fn start(webserver: Webserver) -> Server {
    start_with(config(webserver)).await
}

pub(super) async fn start_with(config: Config) -> Server {
    let standing = Arc::new(Standing::with(config));
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let (stopper, herald) = (Stopper::default(), Herald::default());
    let metrics = Arc::new(Metrics::new(Arc::clone(&standing) as Arc<_>));
    let commands = Arc::clone(&standing) as Arc<_>;
    let listening = Listening::default();
    listening.give(SERVICE, Some(listener));
    let task = tokio::spawn(serve(
        listening,
        metrics,
        commands,
        (stopper.watch(), herald.watch()),
    ));
    Server {
        standing,
        address,
        stopper,
        herald,
        task,
    }
}

fn config(webserver: Webserver) -> Config {
    Config {
        webserver: Some(webserver),
        ..Config::default()
    }
}

impl Server {
    /// The whole answer to a request; empty when the connection is closed without one.
    pub(super) async fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let mut answer = String::new();
        let _ = stream.write_all(request.as_bytes()).await;
        let _ = stream.read_to_string(&mut answer).await;
        answer
    }

    pub(super) async fn stop(self) {
        self.stopper.stop();
        self.stopper.finished().await;
        self.task.await.unwrap();
    }
}

const REQUEST: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[tokio::test]
async fn metrics_are_served() {
    let server = start(webserver()).await;
    let answer = server.ask(REQUEST).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert!(answer.contains("\r\nx-frame-options: deny\r\n"));
    assert!(answer.contains("\n# TYPE dnsdist_queries counter\ndnsdist_queries 0\n"));
    server.stop().await;
}

/// One with a password and a key, in plain.
fn guarded() -> Webserver {
    with_options(WebOptions {
        password: Some(Secret::Plain("secret".to_owned())),
        api_key: Some(Secret::Plain("key".to_owned())),
        ..WebOptions::default()
    })
}

fn with_options(options: WebOptions) -> Webserver {
    Webserver {
        options,
        ..webserver()
    }
}

const WITH_PASSWORD: &str = "Authorization: Basic eDpzZWNyZXQ=\r\n";
const WITH_KEY: &str = "X-API-Key: key\r\n";

impl Server {
    /// Status and body of the answer to a request with these header lines.
    pub(super) async fn request(&self, line: &str, headers: &str, body: &str) -> (u16, String) {
        let length = body.len();
        let request = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        );
        let answer = self.ask(&request).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        (status.unwrap_or(0), body.to_owned())
    }

    /// What a page of the API says.
    async fn json(&self, path: &str) -> serde_json::Value {
        let (status, body) = self.request(&format!("GET {path}"), WITH_KEY, "").await;
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }
}

#[tokio::test]
async fn other_pages_methods_and_passwords_are_refused() {
    let server = start(guarded()).await;
    for (line, headers, status) in [
        ("GET /metrics", "", 401),
        ("GET /metrics", WITH_PASSWORD, 200),
        ("GET /metrics", WITH_KEY, 200),
        ("POST /metrics", WITH_PASSWORD, 405),
        ("POST /metrics", "", 401),
        ("GET /metrics", "x-api-KEY: key\r\n", 200),
        ("GET http://localhost/metrics", WITH_PASSWORD, 200),
        ("GET /metrics", "Host: other\r\n", 400),
        ("GET /nothing", "", 401),
        ("GET /nothing", WITH_PASSWORD, 404),
        ("GET /api/v1/nothing", "", 401),
        ("GET /api/v1/nothing", WITH_PASSWORD, 401),
        ("GET /api/v1/nothing", WITH_KEY, 404),
        ("GET /", WITH_PASSWORD, 200),
        ("GET /", WITH_KEY, 401),
        ("GET /api/v1/servers/localhost", WITH_PASSWORD, 200),
        ("GET /api/v1/servers/localhost/config", WITH_PASSWORD, 401),
        ("GET /api/v1/servers/localhost/config", WITH_KEY, 200),
        ("POST /api/v1/servers/localhost", WITH_KEY, 405),
        (
            "GET /api/v1/servers/localhost/pool?name=none",
            WITH_KEY,
            404,
        ),
        ("GET /api/v1/servers/localhost/pool", WITH_KEY, 400),
        ("GET /jsonstat", WITH_PASSWORD, 404),
        ("GET /jsonstat?command=x", WITH_PASSWORD, 404),
    ] {
        let (found, _) = server.request(line, headers, "").await;
        assert_eq!(found, status, "{line} {headers}");
    }
    server.stop().await;
}

/// RFC 9110: section 9.3.7 of OPTIONS, 15.5.6 of the Allow that belongs to 405.
#[tokio::test]
async fn methods_are_told() {
    const HOST: &str = "/api/v1/servers/localhost";
    let server = start(guarded()).await;
    let acl = format!("{HOST}/config/allow-from");
    let pool = format!("{HOST}/pool?name=none");
    for (path, refused, methods) in [
        ("/metrics", "POST", "GET,HEAD,OPTIONS"),
        ("/jsonstat?command=x", "PUT", "GET,HEAD,OPTIONS"),
        (HOST, "DELETE", "GET,HEAD,OPTIONS"),
        (pool.as_str(), "POST", "GET,HEAD,OPTIONS"),
        (acl.as_str(), "PUT", "GET,HEAD,OPTIONS"),
        ("/api/v1/cache", "GET", "DELETE,OPTIONS"),
    ] {
        let allow = format!("\r\nallow: {methods}\r\n");
        for (method, status) in [("OPTIONS", 200), (refused, 405)] {
            let line = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
            let answer = server.ask(&format!("{line}{WITH_KEY}\r\n")).await;
            let expected = format!("HTTP/1.1 {status} ");
            assert!(answer.starts_with(&expected), "{line}{answer}");
            assert!(answer.contains(&allow), "{line}{answer}");
            assert!(answer.ends_with("\r\n\r\n"), "{line}{answer}");
        }
    }
    server.stop().await;
}

/// RFC 9110 section 9.3.2: "identical to GET except that the server MUST NOT send content".
#[tokio::test]
async fn head_is_answered_as_get_without_the_page() {
    let server = start(guarded()).await;
    for path in ["/jsonstat?command=dynblocklist", "/jsonstat?command=x"] {
        let ask = async |method: &str| {
            let line = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
            let answer = server.ask(&format!("{line}{WITH_KEY}\r\n")).await;
            let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
            let head = head.lines().filter(|line| !line.starts_with("date: "));
            (head.collect::<Vec<_>>().join("\n"), body.to_owned())
        };
        let (got, headed) = (ask("GET").await, ask("HEAD").await);
        assert_eq!(headed, (got.0, String::new()), "{path}");
        let length = format!("\ncontent-length: {}\n", got.1.len());
        assert!(format!("{}\n", headed.0).contains(&length), "{headed:?}");
    }
    server.stop().await;
}

/// RFC 9112: section 2.5 of HTTP/1.0, 3.2 of Host, 9.6 of what follows a request that ends its connection.
#[tokio::test]
async fn a_connection_carries_one_request() {
    let server = start(webserver()).await;
    let old = "GET /metrics HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    for (request, status) in [
        (old, "HTTP/1.0 200 "),
        (REQUEST, "HTTP/1.1 200 "),
        ("GET /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "),
    ] {
        let answer = server.ask(&request.repeat(2)).await;
        assert!(answer.starts_with(status), "{request}{answer}");
        assert_eq!(answer.matches("HTTP/1.").count(), 1, "{request}{answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
        assert!(!answer.contains("keep-alive"), "{answer}");
    }
    server.stop().await;
}

/// RFC 9113 section 3.3: a client may begin with HTTP/2 unasked. Many requests would share one place.
#[tokio::test(start_paused = true)]
async fn http_2_is_refused() {
    let server = start(webserver()).await;
    let mut asked = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    // SETTINGS without any; then HEADERS that end stream 1: GET, http, the path, the authority (RFC 7541 appendix A).
    asked.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    let fields = [&b"\x82\x86\x04\x08/metrics"[..], b"\x01\x09localhost"].concat();
    asked.extend([0, 0, fields.len() as u8, 1, 5, 0, 0, 0, 1]);
    asked.extend(fields);
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&asked).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let text = String::from_utf8_lossy(&answer);
    assert!(!text.contains("dnsdist_queries"), "{text}");
    server.stop().await;
}

/// RFC 9110 sections 15.5.14 and 15.5.15, RFC 6585 section 5.
#[tokio::test]
async fn what_is_too_long_is_refused_by_name() {
    let server = start(webserver()).await;
    let line = REQUEST.replace("metrics", &"x".repeat(65_536));
    let fields = REQUEST.replace("\r\n\r\n", &"\r\nX-Field: x".repeat(100));
    let body = REQUEST.replace("\r\n\r\n", "\r\nContent-Length: 1048577\r\n\r\n");
    for (request, status) in [
        (line, "HTTP/1.1 414 "),
        (fields + "\r\n\r\n", "HTTP/1.1 431 "),
        (body, "HTTP/1.1 413 "),
    ] {
        let answer = server.ask(&request).await;
        assert!(answer.starts_with(status), "{status}: {answer}");
    }
    server.stop().await;
}

/// RFC 9110 section 15.5.2.
#[tokio::test]
async fn who_is_refused_is_told_how_to_come_in() {
    let server = start(guarded()).await;
    for path in [
        "/",
        "/metrics",
        "/nothing",
        "/api/v1/servers/localhost/config",
    ] {
        let answer = server.ask(&REQUEST.replace("/metrics", path)).await;
        assert!(answer.starts_with("HTTP/1.1 401 "), "{path}: {answer}");
        let challenge = "\r\nwww-authenticate: Basic realm=\"millrace\"\r\n";
        assert!(answer.contains(challenge), "{path}: {answer}");
    }
    server.stop().await;
}

/// As the manual's examples show it: scripts look for the text.
#[tokio::test]
async fn json_is_spaced_as_dnsdists() {
    let server = start(guarded()).await;
    server.standing.config.store(Arc::new(furnished()));
    const LINE: &str = "GET /api/v1/servers/localhost/config/allow-from";
    let (status, body) = server.request(LINE, WITH_KEY, "").await;
    let expected = r#"{"name": "allow-from", "type": "ConfigSetting", "value": ["192.0.2.0/24"]}"#;
    assert_eq!((status, body.as_str()), (200, expected));
    let line = "GET /jsonstat?command=stats";
    let (_, body) = server.request(line, WITH_PASSWORD, "").await;
    let first = r#"{"acl-drops": 0, "cache-hits": 0, "#;
    assert!(body.starts_with(first), "{body}");
    let request = format!("{line} HTTP/1.1\r\nHost: localhost\r\n{WITH_KEY}\r\n");
    let answer = server.ask(&request).await;
    let kind = "\r\ncontent-type: application/json\r\n";
    assert!(answer.contains(kind), "{answer}");
    server.stop().await;
}

/// Hashing runs beside the threads that serve: this test has one.
#[tokio::test]
async fn hashed_passwords_are_checked() {
    let hashed = |text: &str| Some(Secret::Plain(text.to_owned()).hashed().unwrap());
    let server = start(with_options(WebOptions {
        password: hashed("secret"),
        api_key: hashed("key"),
        ..WebOptions::default()
    }))
    .await;
    for (headers, status) in [
        (WITH_PASSWORD, 200),
        (WITH_KEY, 200),
        ("X-API-Key: kez\r\n", 401),
        ("", 401),
    ] {
        let (found, _) = server.request("GET /metrics", headers, "").await;
        assert_eq!(found, status, "{headers}");
    }
    server.stop().await;
}

#[tokio::test]
async fn jsonstat_has_all_statistics_and_ours() {
    let server = start(guarded()).await;
    let stats = server.json("/jsonstat?command=stats").await;
    for name in ["queries", "latency-sum", "too-old-drops", "drop-acl"] {
        assert_eq!(stats[name], 0, "{name}");
    }
    for list in ["dynblocklist", "ebpfblocklist"] {
        let empty = server.json(&format!("/jsonstat?command={list}")).await;
        assert_eq!(empty, serde_json::json!({}));
    }
    server.stop().await;
}

/// A server, a pool with a cache, a rule.
fn furnished() -> Config {
    let server = Arc::new(backend(0, options("192.0.2.2:53")));
    let mut pool = Arc::into_inner(pool("", &[Arc::clone(&server)])).unwrap();
    pool.cache = Some(Arc::new(PacketCache::new(CacheOptions::new(100))));
    Config {
        servers: vec![server],
        pools: vec![Some(Arc::new(pool))],
        pool_names: PoolNames::default(),
        // Nobody is told of the first one.
        rules: vec![
            counting(&Arc::default(), None),
            Rule::new(AllRule, DropAction),
        ],
        acl: Netmasks::from_iter(["192.0.2.0/24".parse::<Netmask>().unwrap()]),
        ..config(guarded())
    }
}

/// Every field that dnsdist's manual names is there, and of its type.
#[tokio::test]
async fn the_overview_has_dnsdists_shape() {
    let server = start(guarded()).await;
    server.standing.config.store(Arc::new(furnished()));
    let all = server.json("/api/v1/servers/localhost").await;
    assert_eq!(all["daemon_type"], "dnsdist");
    assert_eq!(all["acl"], "192.0.2.0/24");
    assert_eq!(all["statistics"]["queries"], 0);
    assert!(all["statistics"]["drop-acl"].is_null(), "ours is not here");
    let rule = &all["rules"][0];
    assert_eq!(
        (&rule["action"], &rule["rule"], &rule["matches"]),
        (&"drop".into(), &"All".into(), &0.into())
    );
    assert!(rule["action-stats"].is_object());
    let backend = &all["servers"][0];
    assert_eq!(backend["address"], "192.0.2.2:53");
    assert_eq!(backend["name"], "192.0.2.2:53");
    assert_eq!(backend["state"], "UP");
    assert_eq!(backend["pools"], serde_json::json!([]));
    for number in [
        "qps",
        "dropRate",
        "latency",
        "tcpLatency",
        "healthCheckFailures",
    ] {
        assert!(backend[number].is_number(), "{number}");
    }
    let pool = &all["pools"][0];
    assert_eq!(
        (&pool["cacheSize"], &pool["serversCount"]),
        (&100.into(), &1.into())
    );
    for list in [
        "frontends",
        "response-rules",
        "dohFrontends",
        "cache-hit-response-rules",
    ] {
        assert!(all[list].is_array(), "{list}");
    }
    server.stop().await;
}

#[test]
fn a_policy_that_is_a_function_has_its_own_name() {
    let state = LuaState::new(Spec::new(Purpose::Serve, PoolNames::default())).unwrap();
    let text = "setServerPolicyLua('mine', function() return 1 end)";
    state.run("test.conf", text.as_bytes()).unwrap();
    let config = Arc::new(state).derive(None).unwrap();
    assert_eq!(super::objects::policy(&config), "mine");
}

#[tokio::test]
async fn the_smaller_pages_have_dnsdists_shapes() {
    let server = start(guarded()).await;
    server.standing.config.store(Arc::new(furnished()));
    const HOST: &str = "/api/v1/servers/localhost";
    let statistics = server.json(&format!("{HOST}/statistics")).await;
    let items = statistics.as_array().unwrap();
    assert!(items.iter().all(|item| item["type"] == "StatisticItem"));
    assert!(items.iter().all(|item| item["value"].is_number()));
    assert!(!items.iter().any(|item| item["name"] == "drop-acl"));
    let settings = server.json(&format!("{HOST}/config")).await;
    let policy = settings.as_array().unwrap().iter();
    let policy = policy.clone().find(|item| item["name"] == "server-policy");
    assert_eq!(policy.unwrap()["value"], "leastOutstanding");
    let acl = server.json(&format!("{HOST}/config/allow-from")).await;
    let expected = serde_json::json!({"name": "allow-from", "type": "ConfigSetting", "value": ["192.0.2.0/24"]});
    assert_eq!(acl, expected);
    let pool = server.json(&format!("{HOST}/pool?name=")).await;
    assert_eq!(pool["stats"]["name"], "");
    assert_eq!(pool["servers"][0]["id"], 0);
    let rings = server.json(&format!("{HOST}/rings?maxQueries=5")).await;
    assert_eq!(rings, serde_json::json!({"queries": [], "responses": []}));
    server.stop().await;
}

#[tokio::test]
async fn the_acl_is_changed_where_the_api_may_write() {
    const LINE: &str = "PUT /api/v1/servers/localhost/config/allow-from";
    const BODY: &str = r#"{"value": ["192.0.2.0/24", "!192.0.2.1"]}"#;
    let server = start(guarded()).await;
    assert_eq!(server.request(LINE, WITH_KEY, BODY).await.0, 405);
    let directory = tempfile::tempdir().unwrap();
    let mut writable = guarded();
    writable.options.api = ApiWrites {
        allowed: true,
        directory: Some(directory.path().to_owned()),
    };
    server.standing.config.store(Arc::new(config(writable)));
    assert_eq!(server.request(LINE, "", BODY).await.0, 401);
    for body in ["{", r#"{"value": ["x"]}"#, r#"{"value": "::1"}"#] {
        assert_eq!(server.request(LINE, WITH_KEY, body).await.0, 400, "{body}");
    }
    assert!(server.standing.acl_set.lock().unwrap().is_empty());
    let (status, body) = server.request(LINE, WITH_KEY, BODY).await;
    assert_eq!(status, 200, "{body}");
    assert!(body.contains(r#""!192.0.2.1/32""#), "{body}");
    assert_eq!(server.standing.acl_set.lock().unwrap().len(), 2);
    let written = std::fs::read_to_string(directory.path().join("acl.conf")).unwrap();
    let line = written.lines().nth(1);
    assert_eq!(line, Some(r#"setACL({"192.0.2.0/24", "!192.0.2.1/32"})"#));
    server.stop().await;
}

/// Neither the file nor the ACL, whichever of them cannot be changed.
#[tokio::test]
async fn an_acl_is_changed_as_a_whole_or_not() {
    const LINE: &str = "PUT /api/v1/servers/localhost/config/allow-from";
    const BODY: &str = r#"{"value": ["203.0.113.0/24"]}"#;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("acl.conf");
    let mut writable = furnished();
    writable.webserver.as_mut().unwrap().options.api = ApiWrites {
        allowed: true,
        directory: Some(directory.path().to_owned()),
    };
    let former: Vec<Netmask> = writable.acl.iter().collect();
    let server = start_with(writable).await;
    // The ACL is not taken: there is no file, and then the former one.
    server.standing.keeps_acl.store(true, Relaxed);
    let (status, body) = server.request(LINE, WITH_KEY, BODY).await;
    assert_eq!((status, body.as_str()), (500, "a reload is under way\n"));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    std::fs::write(&file, "-- former").unwrap();
    assert_eq!(server.request(LINE, WITH_KEY, BODY).await.0, 500);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "-- former");
    // The file cannot be: the former ACL serves.
    server.standing.keeps_acl.store(false, Relaxed);
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let (status, body) = server.request(LINE, WITH_KEY, BODY).await;
    let path = file.display().to_string();
    assert!(status == 500 && body.starts_with(&path), "{body}");
    assert_eq!(*server.standing.acl_set.lock().unwrap(), former);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    std::fs::remove_dir(&file).unwrap();
    assert_eq!(server.request(LINE, WITH_KEY, BODY).await.0, 200);
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(written.ends_with("setACL({\"203.0.113.0/24\"})\n"));
    server.stop().await;
}

/// They read /proc: the runtime of this test has one thread, and others wait for it.
#[tokio::test]
async fn statistics_are_read_beside_the_threads_that_serve() {
    const HOST: &str = "/api/v1/servers/localhost";
    let server = start(guarded()).await;
    let serving = std::thread::current().id();
    let statistics = format!("{HOST}/statistics");
    let rings = format!("{HOST}/rings");
    for path in [
        "/metrics",
        "/jsonstat?command=stats",
        HOST,
        statistics.as_str(),
        rings.as_str(),
    ] {
        *server.standing.asked_by.lock().unwrap() = None;
        let line = format!("GET {path}");
        assert_eq!(server.request(&line, WITH_KEY, "").await.0, 200, "{path}");
        let asked_by = *server.standing.asked_by.lock().unwrap();
        assert!(asked_by.is_some_and(|thread| thread != serving), "{path}");
    }
    server.stop().await;
}

/// They write the same file: one after the other.
#[tokio::test]
async fn changes_of_the_acl_wait_for_each_other() {
    const LINE: &str = "PUT /api/v1/servers/localhost/config/allow-from";
    let directory = tempfile::tempdir().unwrap();
    let mut writable = guarded();
    writable.options.api = ApiWrites {
        allowed: true,
        directory: Some(directory.path().to_owned()),
    };
    let server = start(writable).await;
    let line = LINE.replace("PUT", "OPTIONS");
    let request = format!("{line} HTTP/1.1\r\nHost: localhost\r\n{WITH_KEY}\r\n");
    let answer = server.ask(&request).await;
    let allow = "\r\nallow: GET,HEAD,PUT,OPTIONS\r\n";
    assert!(answer.contains(allow), "{answer}");
    let put = async |masks: usize| {
        let masks: Vec<_> = (0..masks).map(|last| format!("192.0.2.{last}")).collect();
        let body = serde_json::json!({ "value": masks }).to_string();
        server.request(LINE, WITH_KEY, &body).await.0
    };
    for _ in 0..20 {
        let statuses = tokio::join!(put(1), put(50), put(100), put(150));
        assert_eq!(statuses, (200, 200, 200, 200));
        let written = std::fs::read_to_string(directory.path().join("acl.conf")).unwrap();
        let last = server.standing.acl_set.lock().unwrap().len();
        assert_eq!(written.matches("/32").count(), last, "{written}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_caches_entries_are_taken_out_by_name() {
    let server = start(guarded()).await;
    server.standing.config.store(Arc::new(furnished()));
    for (query, status) in [
        ("pool=&name=a.example", 200),
        ("pool=&name=a.example&type=AAAA&suffix=1", 200),
        ("pool=&name=a.example&type=%2328", 200),
        ("pool=&name=a.example&type=nonsense", 400),
        ("pool=&name=a..example", 400),
        ("pool=", 400),
        ("pool=none&name=a.example", 404),
    ] {
        let line = format!("DELETE /api/v1/cache?{query}");
        let (found, body) = server.request(&line, WITH_KEY, "").await;
        assert_eq!(found, status, "{query}: {body}");
        assert!(
            status != 200 || body == r#"{"count": "0", "status": "purged"}"#,
            "{body}"
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn headers_are_the_operators() {
    let mut open = webserver();
    open.options.headers = vec![
        ("x-frame-options".parse().unwrap(), "".parse().unwrap()),
        ("x-custom".parse().unwrap(), "custom".parse().unwrap()),
    ];
    let server = start(open.clone()).await;
    let answer = server.ask(REQUEST).await;
    assert!(answer.contains("\r\nx-custom: custom\r\n"), "{answer}");
    assert!(!answer.contains("x-frame-options"), "{answer}");
    let foreign = REQUEST.replace("\r\n\r\n", "\r\nOrigin: http://a.example\r\n\r\n");
    assert!(!server.ask(&foreign).await.contains("access-control"));
    open.options.allow_cross_origin_requests = true;
    server.standing.config.store(Arc::new(config(open)));
    let answer = server.ask(&foreign).await;
    assert!(answer.contains("\r\naccess-control-allow-origin: http://a.example\r\n"));
    let asked = server.ask(&foreign.replace("GET", "OPTIONS")).await;
    assert!(asked.starts_with("HTTP/1.1 200"), "{asked}");
    server.stop().await;
}

/// A second connection waits until the first one ends.
#[tokio::test]
async fn there_are_as_many_connections_as_configured() {
    let server = start(with_options(WebOptions {
        maximum_connections: 1,
        ..WebOptions::default()
    }))
    .await;
    let mut first = TcpStream::connect(server.address).await.unwrap();
    first.write_all(b"GET /met").await.unwrap();
    // The rest of the first request goes out only after the second has had its chance.
    let mut second = TcpStream::connect(server.address).await.unwrap();
    second.write_all(REQUEST.as_bytes()).await.unwrap();
    let mut buffer = [0; 1];
    let early = tokio::time::timeout(Duration::from_millis(100), second.read(&mut buffer));
    assert!(early.await.is_err(), "there is one place");
    first.write_all(&REQUEST.as_bytes()[8..]).await.unwrap();
    let mut answer = String::new();
    first.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    second.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("dnsdist_queries"), "{answer}");
    server.stop().await;
}

/// Who waits need not wait for the end of another connection, which may be far.
#[tokio::test]
async fn a_reload_that_makes_more_places_is_heard_while_all_are_taken() {
    let with = |maximum_connections| {
        with_options(WebOptions {
            maximum_connections,
            ..WebOptions::default()
        })
    };
    let server = start(with(1)).await;
    let mut first = TcpStream::connect(server.address).await.unwrap();
    first.write_all(&REQUEST.as_bytes()[..8]).await.unwrap();
    let mut second = TcpStream::connect(server.address).await.unwrap();
    second.write_all(REQUEST.as_bytes()).await.unwrap();
    let mut buffer = [0; 1];
    let early = timeout(Duration::from_millis(100), second.read(&mut buffer));
    assert!(early.await.is_err(), "there is one place");
    server.standing.config.store(Arc::new(config(with(2))));
    let mut answer = String::new();
    second.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("dnsdist_queries"), "{answer}");
    // It has not ended meanwhile.
    first.write_all(&REQUEST.as_bytes()[8..]).await.unwrap();
    answer.clear();
    first.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn clients_outside_the_acl_are_not_heard() {
    let server = start(Webserver {
        acl: Netmasks::from_iter(["192.0.2.0/24".parse::<Netmask>().unwrap()]),
        ..webserver()
    })
    .await;
    assert_eq!(server.ask(REQUEST).await, "");
    server.stop().await;
}

#[tokio::test]
async fn an_address_in_use_is_an_error_that_names_it() {
    let first = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = first.local_addr().unwrap();
    let error = bind(address).unwrap_err().to_string();
    let expected = format!("web server: cannot listen on {address}: ");
    assert!(error.starts_with(&expected), "{error}");
}

/// A client that never ends its request is cut off, and its place is free again.
#[tokio::test(start_paused = true)]
async fn slow_clients_are_cut_off() {
    let server = start(webserver()).await;
    let began = tokio::time::Instant::now();
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest).await;
    assert!(began.elapsed() >= LIFETIME, "{:?}", began.elapsed());
    server.stop().await;
}

/// Waits until somebody listens there, or nobody does any more, for a minute at most.
async fn until_listening(address: SocketAddr, wanted: bool) {
    let so = async {
        while TcpStream::connect(address).await.is_ok() != wanted {
            // tidy: a port that nobody listens on gives nothing to await
            sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = timeout(Duration::from_secs(60), so).await;
    assert!(
        waited.is_ok(),
        "{address}: not in a minute, somebody listening: {wanted}"
    );
}

/// A reload may move it, and take it away.
#[tokio::test]
async fn the_server_follows_its_configuration() {
    let mut server = start(webserver()).await;
    assert!(server.ask(REQUEST).await.starts_with("HTTP/1.1 200 OK"));
    // An address that other tests take no ports of.
    let free = std::net::TcpListener::bind("127.0.0.77:0").unwrap();
    let (address, former) = (free.local_addr().unwrap(), server.address);
    drop(free);
    server.standing.config.store(Arc::new(config(Webserver {
        address,
        ..webserver()
    })));
    server.herald.tell();
    until_listening(address, true).await;
    server.address = address;
    assert!(server.ask(REQUEST).await.starts_with("HTTP/1.1 200 OK"));
    assert!(TcpStream::connect(former).await.is_err());
    server.standing.config.store(Arc::default());
    server.herald.tell();
    until_listening(address, false).await;
    server.stop().await;
}

#[tokio::test]
async fn an_address_that_was_in_use_is_tried_again_by_a_reload() {
    let server = start(webserver()).await;
    assert!(server.ask(REQUEST).await.starts_with("HTTP/1.1 200 OK"));
    let taken = std::net::TcpListener::bind("127.0.0.78:0").unwrap();
    let (address, former) = (taken.local_addr().unwrap(), server.address);
    let moved = Webserver {
        address,
        ..webserver()
    };
    let moved = Arc::new(config(moved));
    server.standing.config.store(Arc::clone(&moved));
    server.herald.tell();
    until_listening(former, false).await;
    drop(taken);
    server.standing.config.store(moved);
    server.herald.tell();
    until_listening(address, true).await;
    server.stop().await;
}
