//! `carbonServer`: statistics to Graphite and its kin, one line each, over TCP, every so many seconds.
//!
//! ```text
//!  dnsdist.ns1.main.queries 1234 1795286700
//!  namespace.host.instance.statistic value seconds-since-1970
//! ```

mod lines;

use super::metrics::Metrics;
use super::news::News;
use crate::log;
use crate::stop::Stop;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::{sleep_until, timeout};

/// One `carbonServer` line.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Export {
    pub server: SocketAddr,
    /// The second word of a name; empty: the machine's name.
    pub host: String,
    pub every: Duration,
    /// The first word of a name.
    pub namespace: String,
    /// The third word of a name.
    pub instance: String,
}

/// How long a server may take to be reached and to read.
const PATIENCE: Duration = Duration::from_secs(2);

/// Sends what the configuration of the moment asks for, until the stop is asked for. Must run within the asynchronous
/// runtime. Sleeps until something is due, or `news` tells of another configuration.
pub async fn serve(metrics: Arc<Metrics>, (mut stop, mut news): (Stop, News)) {
    let mut due: HashMap<Export, Due> = HashMap::new();
    while !stop.is_requested() {
        let config = metrics.config();
        due.retain(|export, _| config.carbon.contains(export));
        for export in &config.carbon {
            let now = Instant::now();
            let state = due.entry(export.clone()).or_insert(Due {
                at: now,
                failed: false,
            });
            if state.at <= now {
                state.at = now + export.every;
                let sent = send(export, &metrics).await;
                state.note(export, sent);
            }
        }
        // One that is replaced meanwhile is to go.
        drop(config);
        let next = due.values().map(|due| due.at).min();
        tokio::select! {
            () = stop.requested() => return,
            () = news.heard() => {}
            () = sleep_until(next.unwrap_or_else(Instant::now).into()), if next.is_some() => {}
        }
    }
}

/// When an export is sent next, and how it went last.
struct Due {
    at: Instant,
    failed: bool,
}

impl Due {
    /// One line when it fails and one when it works again.
    fn note(&mut self, export: &Export, sent: io::Result<()>) {
        let server = export.server;
        match sent {
            Err(error) if !self.failed => {
                log::warn!("statistics do not reach the Carbon server {server}: {error}");
                self.failed = true;
            }
            Ok(()) if self.failed => {
                log::notice!("statistics reach the Carbon server {server} again");
                self.failed = false;
            }
            _ => {}
        }
    }
}

async fn send(export: &Export, metrics: &Arc<Metrics>) -> io::Result<()> {
    // "the query counters are buffered and flushed each time statistics are sent to the carbon server."
    let counters = metrics.config().query_counters.clone();
    let counted = counters.map(|counters| counters.take()).unwrap_or_default();
    // It reads /proc: not where others are served.
    let (export, metrics) = (export.clone(), Arc::clone(metrics));
    let server = export.server;
    let making = spawn_blocking(move || lines::lines(&export, &metrics, &counted));
    let text = making.await.map_err(io::Error::other)?;
    let sending = async {
        let mut stream = TcpStream::connect(server).await?;
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await
    };
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    timeout(PATIENCE, sending).await.map_err(late)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::fixture::{options, server};
    use crate::config::Config;
    use crate::control::fixture::Standing;
    use crate::control::news::Herald;
    use crate::stop::Stopper;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn lines_come_again_and_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let export = Export {
            server: listener.local_addr().unwrap(),
            host: "ns1.example".to_owned(),
            every: Duration::from_secs(1),
            namespace: "dnsdist".to_owned(),
            instance: "main".to_owned(),
        };
        let standing = Arc::new(Standing::with(Config {
            carbon: vec![export],
            servers: vec![Arc::new(server(0, options("192.0.2.2:53")))],
            ..Config::default()
        }));
        let metrics = Arc::new(Metrics::new(Arc::clone(&standing) as Arc<_>));
        let stopper = Stopper::default();
        let herald = Herald::default();
        let serving = tokio::spawn(serve(metrics, (stopper.watch(), herald.watch())));
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            assert!(
                text.contains("dnsdist.ns1.example.main.queries 0 1"),
                "{text}"
            );
            let of_server = "main.servers.192_0_2_2:53.outstanding 0 1";
            assert!(text.contains(of_server), "{text}");
            let words = text.lines().map(|line| line.split(' ').count());
            assert!(words.min() == Some(3) && text.ends_with('\n'));
        }
        // Beside the one thread of this test's runtime.
        let asked_by = *standing.asked_by.lock().unwrap();
        assert!(asked_by.is_some_and(|thread| thread != std::thread::current().id()));
        stopper.stop();
        serving.await.unwrap();
    }

    /// Nothing is due before: the task sleeps until it is told.
    #[tokio::test]
    async fn an_export_of_a_later_configuration_is_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let export = Export {
            server: listener.local_addr().unwrap(),
            host: String::new(),
            every: Duration::from_secs(60),
            namespace: "dnsdist".to_owned(),
            instance: "main".to_owned(),
        };
        let standing = Arc::new(Standing::with(Config::default()));
        let metrics = Arc::new(Metrics::new(Arc::clone(&standing) as Arc<_>));
        let (stopper, herald) = (Stopper::default(), Herald::default());
        let serving = tokio::spawn(serve(metrics, (stopper.watch(), herald.watch())));
        // It runs until it sleeps.
        tokio::task::yield_now().await;
        standing.config.store(Arc::new(Config {
            carbon: vec![export],
            ..Config::default()
        }));
        herald.tell();
        let sent = timeout(Duration::from_secs(30), listener.accept());
        assert!(sent.await.is_ok());
        stopper.stop();
        serving.await.unwrap();
    }
}
