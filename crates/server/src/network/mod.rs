//! What the kernel knows of the network, asked by netlink and followed while serving: links, addresses, routes,
//! neighbours; and the privileges that setting up AF_XDP takes.
//!
//! ```text
//!  NetworkView::read ──▶ plan ──▶ devices, queues, destinations   (at start and at each reload; pure from the view on)
//!  keeping ──▶ attach, open, apply, …                             (what a new plan changes, step by step)
//!  follow ──▶ Due, Paths ──▶ Server::xsk                          (while serving: routes and neighbours that move)
//! ```
//!
//! Reading and following need no capability; what does, after start, the [`helper`] does.

pub mod activation;
pub mod addresses;
pub mod attached;
pub mod changes;
pub mod devices;
pub mod due;
pub mod events;
#[cfg(test)]
mod fixtures;
pub mod follow;
pub mod helper;
pub mod holders;
pub mod interfaces;
pub mod interrupts;
pub mod keeping;
pub mod links;
pub mod neighbourhood;
pub mod neighbours;
mod netlink;
pub mod paths;
pub mod plan;
pub mod privileges;
pub mod routes;
pub mod status;
pub mod steering;
pub mod view;

pub use changes::{Change, Changes};
pub use devices::{Device, Devices, Open};
pub use follow::{Follower, Notice};
pub use interfaces::{InterfaceQueues, Interfaces, Why, which_interfaces};
pub use plan::{Plan, PlannedDevice, plan};
pub use routes::{Destination, Route};
pub use view::NetworkView;
