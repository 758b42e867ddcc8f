//! Messages changed where they lie: records put behind an answer, options and whole OPT records put in and taken out
//! (RFC 6891), records of some types left out, addresses in another order.
//!
//! What lies behind a change moves, and so do the places that compression pointers name (RFC 1035 §4.1.4): pointers of
//! the records behind it are corrected. Nothing here is for the path of a configuration that does not ask for it.

mod names;
mod options;
mod records;
mod rename;
mod shuffle;

pub use names::names_in_rdata;
pub use options::{option_room, remove_opt, remove_options, set_option};
pub use records::{NewRecord, append_record, without_types};
pub use rename::rename;
pub use shuffle::shuffle_addresses;
