//! Scenarios: one text file each, with configuration, backends, clients, and what must come of it.
//! `suite` runs all files, `run` one of them; the format is explained in tests/scenarios/README.md.

mod answering;
mod backend;
pub(crate) mod checks;
mod client;
mod expect;
mod footing;
mod ground;
mod model;
mod parse;
mod parse_backend;
mod parse_queries;
mod parse_steps;
mod repeat;
mod reply;
mod run;
pub mod suite;
pub(crate) mod words;

pub use model::Scenario;
pub use parse::read;
