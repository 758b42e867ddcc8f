//! How the tasks of the asynchronous runtime are told to finish, and how whoever told them knows that they have.

use tokio::sync::watch;

/// The end that tells.
pub struct Stopper(watch::Sender<bool>);

/// The end that is told. A task keeps its own as long as it has something to finish.
#[derive(Debug, Clone)]
pub struct Stop(watch::Receiver<bool>);

impl Default for Stopper {
    fn default() -> Stopper {
        Stopper(watch::Sender::new(false))
    }
}

impl Stopper {
    pub fn watch(&self) -> Stop {
        Stop(self.0.subscribe())
    }

    /// From now on nothing new is begun.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Waits until every [`Stop`] is gone: all tasks have finished.
    pub async fn finished(&self) {
        self.0.closed().await;
    }
}

impl Stop {
    /// Waits until the stop is asked for, or nobody is there any more who could ask.
    pub async fn requested(&mut self) {
        let _ = self.0.wait_for(|stop| *stop).await;
    }

    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stopper_knows_when_its_tasks_have_finished() {
        let stopper = Stopper::default();
        let mut stop = stopper.watch();
        assert!(!stop.is_requested());
        let task = tokio::spawn(async move {
            stop.requested().await;
            stop.is_requested()
        });
        stopper.stop();
        stopper.finished().await;
        assert!(task.await.unwrap());
        assert!(stopper.watch().is_requested(), "late comers are told too");
    }
}
