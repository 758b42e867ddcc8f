//! What runs beside the workers, in the asynchronous runtime: TCP, health checks, web server, control socket, signals.
//! Nothing here is on the packet path.

use super::Event;
use super::overview::Overview;
use crate::control::metrics::Metrics;
use crate::control::web;
use crate::log;
use crate::stop::Stopper;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Threads of the runtime. TCP and health checks are waiting, not work; the cores belong to the workers.
const THREADS: usize = 2;

/// How long tasks may take to finish what they have begun.
const FINISH_WITHIN: Duration = Duration::from_secs(1);

pub(super) struct Services {
    runtime: Runtime,
    stopper: Stopper,
}

/// Sockets that were bound while there were privileges for it.
pub(super) struct Doors {
    pub(super) web: Option<TcpListener>,
}

impl Services {
    /// Starts the threads.
    pub(super) fn new() -> io::Result<Services> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("services")
            .enable_all()
            .build()?;
        Ok(Services {
            runtime,
            stopper: Stopper::default(),
        })
    }

    /// From now on signals are events, and the doors are open.
    pub(super) fn open(
        &self,
        doors: Doors,
        overview: &Arc<Overview>,
        events: &Sender<Event>,
    ) -> io::Result<()> {
        let _inside = self.runtime.enter();
        for (kind, event) in [
            (SignalKind::terminate(), stop as fn() -> Event),
            (SignalKind::interrupt(), stop),
            (SignalKind::hangup(), reload),
        ] {
            self.runtime
                .spawn(forward(signal(kind)?, events.clone(), event));
        }
        if let Some(listener) = doors.web {
            self.serve_web(listener, overview);
        }
        Ok(())
    }

    fn serve_web(&self, listener: TcpListener, overview: &Arc<Overview>) {
        let metrics = Arc::new(Metrics::new(Arc::clone(overview) as Arc<_>));
        let stop = self.stopper.watch();
        self.runtime.spawn(async move {
            if let Err(error) = web::serve(listener, metrics, stop).await {
                log::error!("web server: {error}");
            }
        });
    }

    /// STUB
    pub(super) fn check(&self, _: &[Arc<crate::backend::server::Server>]) {}
    pub(super) fn accept(&self, _: &Arc<crate::frontend::listeners::Sockets>) {}
    pub(super) fn refuse(&self, _: &Arc<crate::frontend::listeners::Sockets>) {}
    /// Begins nothing new, and waits a moment for what has begun.
    pub(super) fn close(self) {
        self.stopper.stop();
        let finished = self
            .runtime
            .block_on(async { tokio::time::timeout(FINISH_WITHIN, self.stopper.finished()).await });
        if finished.is_err() {
            log::warn!(
                "connections were cut that had not finished within {} s",
                FINISH_WITHIN.as_secs()
            );
        }
        self.runtime.shutdown_background();
    }
}

fn stop() -> Event {
    Event::Stop
}

fn reload() -> Event {
    Event::Reload(None)
}

/// Tells the control thread of each signal.
async fn forward(mut signal: Signal, events: Sender<Event>, event: fn() -> Event) {
    while signal.recv().await.is_some() {
        if events.send(event()).is_err() {
            return;
        }
    }
}
