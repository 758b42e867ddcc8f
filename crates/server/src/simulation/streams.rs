//! Queries over TCP, as far as there is something without sockets: what a stream brings goes through the pipeline, and the
//! answer of a backend that was asked over TCP through what makes it the client's. Connections are tested elsewhere.

use super::backend::{answer_to, identity, is_one_of_several};
use super::ground::WORKERS;
use super::races::{LegAnswer, Said};
use super::world::World;
use super::{Checked, Violation};
use crate::backend::server::Server;
use crate::config::Config;
use crate::pipeline::carried::Carried;
use crate::pipeline::query::{Found, NO_LISTENER, OwnedQuery, Protocol, Way};
use crate::pipeline::{self, Env, Verdict, respond};
use crate::random::Random;
use crate::runtime::Asked;
use std::sync::Arc;

/// Room for an answer in its stream.
const ROOM: usize = 4_096;

/// The ID that a connection to a backend gives a query: none of the client's.
const ID_ON_CONNECTION: [u8; 2] = [0x55, 0xaa];

/// A query of a stream that waits for its backend.
pub(super) struct Waits {
    serial: usize,
    asked: Asked,
}

/// What the pipeline says.
enum Decided {
    Answer(usize),
    Ask(Arc<Server>, Found, Carried),
    Dropped,
}

impl World<'_> {
    /// A query comes by a stream.
    pub(super) fn ask_by_stream(&mut self) -> Checked {
        let at = (self.configuration, self.now);
        let several = self.mix.several;
        let serial = self.clients.ask_by_stream(&mut self.random, several, at);
        let ((client, destination), message) = self.clients.by_stream(serial);
        let door = (Protocol::Tcp, Way::Stream);
        let query = OwnedQuery::copy(message, ROOM, (client, destination), door);
        let mut query = query.expect("memory");
        let config = self.instance.config.load_full();
        let (found, extras, server) = match self.decide(&mut query, &config)? {
            Decided::Answer(length) => return self.clients.answered(serial, query.bytes(length)),
            Decided::Dropped => return Ok(()),
            Decided::Ask(server, found, extras) => (found, extras, server),
        };
        let asked = Asked {
            server,
            query: query.bytes(found.length.into()).into(),
            found,
            extras,
            client,
            destination,
            way: Way::Stream,
            since: self.now,
            config,
        };
        self.streams.push(Waits { serial, asked });
        Ok(())
    }

    fn decide(
        &mut self,
        query: &mut OwnedQuery,
        config: &Arc<Config>,
    ) -> Result<Decided, Violation> {
        let mut arrival = query.as_arrival();
        arrival.listener = config
            .listener_of(arrival.destination)
            .unwrap_or(NO_LISTENER);
        let mut random = Random::from_seed(self.random.next_u32().into());
        match pipeline::run(&mut arrival, &mut self.env(config, &mut random)) {
            Verdict::Answer(length) => Ok(Decided::Answer(length)),
            Verdict::Drop(_) => Ok(Decided::Dropped),
            Verdict::HandOver(hand_over) => match hand_over.server {
                Some(server) => {
                    let server = Arc::clone(server);
                    Ok(Decided::Ask(server, hand_over.found, hand_over.extras))
                }
                None => Err(Violation::new("I1", "handed over to nobody")),
            },
            Verdict::Forward(server) => {
                let what = format!(
                    "what came by a stream goes to {} in a datagram",
                    server.name_with_address()
                );
                Err(Violation::new("I10", what))
            }
        }
    }

    /// What the asynchronous runtime gives to the pipeline.
    fn env<'e>(&'e self, config: &'e Arc<Config>, random: &'e mut Random) -> Env<'e> {
        Env {
            config,
            now: self.now,
            random,
            shard: &self.instance.shards[WORKERS],
            forwarder: None,
        }
    }

    /// A backend answers one of the queries that came by streams; whether there was one.
    pub(super) fn answer_stream(&mut self) -> Result<bool, Violation> {
        if self.streams.is_empty() {
            return Ok(false);
        }
        let place = self.random.below(self.streams.len() as u32) as usize;
        let Waits { serial, asked } = self.streams.swap_remove(place);
        let server = asked.server.options.address;
        let mut message = answer_to(&asked.query, server, true);
        message[..2].copy_from_slice(&ID_ON_CONNECTION);
        if is_one_of_several(server) {
            let answer = LegAnswer {
                serial,
                server: identity(server),
                said: Said::Good,
            };
            self.clients.heard(answer, self.now);
        }
        let mut waiting = asked.waiting(&asked.server);
        let mut random = Random::from_seed(self.random.next_u32().into());
        let length = message.len();
        let mut env = self.env(&asked.config, &mut random);
        let made = respond::response(&mut waiting, &mut message, length, &mut env);
        let length = made.map_err(|reason| {
            let what = format!("number {serial}: a good answer by TCP: {}", reason.name());
            Violation::new("I1", what)
        })?;
        self.clients
            .answered(serial, waiting.answer(&message, length))?;
        Ok(true)
    }
}
