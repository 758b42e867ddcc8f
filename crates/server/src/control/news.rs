//! How tasks of the asynchronous runtime hear that another configuration serves. They are told: a task that looked once a
//! second would wake a process that nobody asks anything.

use std::future::pending;
use tokio::sync::watch;

/// The end that tells.
#[derive(Default)]
pub struct Herald(watch::Sender<()>);

/// The end that hears.
#[derive(Debug, Clone)]
pub struct News(watch::Receiver<()>);

impl Herald {
    pub fn watch(&self) -> News {
        News(self.0.subscribe())
    }

    /// Another configuration serves from now on.
    pub fn tell(&self) {
        self.0.send_replace(());
    }
}

impl News {
    /// Waits until something was told since this end heard last: what came before the wait is not missed. For ever when
    /// nobody is there any more who could tell.
    pub async fn heard(&mut self) {
        if self.0.changed().await.is_err() {
            pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    /// A moment of a clock that jumps.
    const MOMENT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn what_was_told_before_the_wait_is_heard_and_only_once() {
        let herald = Herald::default();
        let mut news = herald.watch();
        assert!(timeout(MOMENT, news.heard()).await.is_err());
        herald.tell();
        herald.tell();
        assert!(timeout(MOMENT, news.heard()).await.is_ok());
        assert!(timeout(MOMENT, news.heard()).await.is_err());
        drop(herald);
        assert!(timeout(MOMENT, news.heard()).await.is_err());
    }
}
