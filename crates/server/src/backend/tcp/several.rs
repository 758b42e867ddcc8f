//! The policies `race` and `hedge` over TCP: tasks of their own, whose first good answer is the client's.
//!
//! A leg that has lost goes on until its answer or time-out, as over UDP: the server has the query, and the connection stays
//! good for the next one.

use super::{Failure, Question, Reply, ask_one};
use crate::backend::exchange::is_error;
use crate::backend::policy::Policy;
use crate::backend::pool::Pool;
use crate::backend::server::Server;
use crate::backend::several::{Contenders, late_after, second};
use crate::heap;
use crate::pipeline::drop::DropReason;
use crate::runtime::{Asked, Shared};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use wire::message::Header;

type Ended = Result<Reply, Failure>;

/// The legs of one query.
struct Legs<'q> {
    shared: &'q Arc<Shared>,
    question: &'q Question,
    out: usize,
    sender: mpsc::UnboundedSender<Ended>,
    ended: mpsc::UnboundedReceiver<Ended>,
}

impl<'q> Legs<'q> {
    fn new(shared: &'q Arc<Shared>, question: &'q Question) -> Legs<'q> {
        let (sender, ended) = mpsc::unbounded_channel();
        Legs {
            shared,
            question,
            out: 0,
            sender,
            ended,
        }
    }

    fn start(&mut self, server: &Arc<Server>) {
        let is_extra = self.out > 0;
        self.out += 1;
        let (shared, server) = (Arc::clone(self.shared), Arc::clone(server));
        let (question, sender) = (self.question.clone(), self.sender.clone());
        tokio::spawn(async move {
            let ended = ask_one(&shared, &server, &question, is_extra).await;
            if let Err(mpsc::error::SendError(Ok(_))) = sender.send(ended) {
                shared.shard.count_drop(DropReason::ResponseLost);
            }
        });
    }

    /// `None` cannot be: this holds a sender itself.
    async fn next(&mut self) -> Option<Ended> {
        let ended = self.ended.recv().await;
        self.out -= 1;
        ended
    }
}

impl Drop for Legs<'_> {
    fn drop(&mut self) {
        self.ended.close();
        // What came while the winner was taken.
        while let Ok(ended) = self.ended.try_recv() {
            if ended.is_ok() {
                self.shared.shard.count_drop(DropReason::ResponseLost);
            }
        }
    }
}

/// The first good answer; else the last error that came; else the last failure.
pub(super) async fn ask(
    shared: &Arc<Shared>,
    asked: &Asked,
    pool: &Pool,
    question: &Question,
) -> Result<Reply, Failure> {
    let mut legs = Legs::new(shared, question);
    let mut due = None;
    match pool.policy {
        Policy::Race { width } => {
            let contenders = Contenders::of(pool, width, true);
            contenders.iter().for_each(|server| legs.start(server));
        }
        _ => {
            pool.hedging.earn();
            let patience = asked.server.slowest_tcp.get();
            due = patience.map(|patience| Instant::now() + late_after(patience));
        }
    }
    if legs.out == 0 {
        legs.start(&asked.server);
    }
    let mut best = Err(Failure::Connection);
    while legs.out > 0 {
        let ended = tokio::select! {
            ended = legs.next() => ended,
            () = moment(due) => {
                due = None;
                hedge(asked, pool, &mut legs);
                continue;
            }
        };
        match ended {
            Some(Ok(reply)) if !is_error(rcode(&reply)) => return Ok(reply),
            Some(Ok(reply)) => {
                if legs.out > 0 {
                    shared.shard.count_drop(DropReason::ResponseHeld);
                }
                best = Ok(reply);
            }
            Some(Err(failure)) if best.is_err() => best = Err(failure),
            Some(Err(_)) | None => {}
        }
    }
    best
}

fn hedge(asked: &Asked, pool: &Pool, legs: &mut Legs<'_>) {
    if !heap::is_short()
        && pool.hedging.spend()
        && let Some(server) = second(pool, asked.server.number, &asked.config.tuning, true)
    {
        legs.start(server);
    }
}

async fn moment(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn rcode(reply: &Reply) -> u16 {
    Header::read(&reply.message).map_or(0, |header| header.rcode().into())
}
