//! The network as it is at one moment: what [`super::plan`] and [`super::which_interfaces`] decide by.

use super::addresses::{self, LocalAddress};
use super::links::{self, Link, LinkKind};
use super::routes::{self, Destination, Route};
use std::collections::HashMap;
use std::io;

/// Links, addresses, and the routes that were asked for.
#[derive(Debug, Clone, Default)]
pub struct NetworkView {
    pub links: Vec<Link>,
    pub addresses: Vec<LocalAddress>,
    /// The way to each destination that was asked for, or why there is none.
    pub routes: HashMap<Destination, Result<Route, String>>,
}

impl NetworkView {
    /// Asks the kernel. Blocks for some milliseconds; for the time before threads start, or for a thread that may wait.
    ///
    /// # Errors
    /// When there is no netlink (a seccomp filter or RestrictAddressFamilies without AF_NETLINK).
    pub fn read(destinations: &[Destination]) -> io::Result<NetworkView> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?;
        runtime.block_on(async {
            let (connection, mut handle, _) = rtnetlink::new_connection()?;
            let connection = tokio::spawn(connection);
            let view = NetworkView::ask(&mut handle, destinations).await;
            connection.abort();
            view
        })
    }

    pub(super) async fn ask(
        handle: &mut rtnetlink::Handle,
        destinations: &[Destination],
    ) -> io::Result<NetworkView> {
        let links = links::read(handle).await?;
        let addresses = addresses::read(handle).await?;
        let mut routes = HashMap::new();
        for destination in destinations {
            let route = routes::ask(handle, destination).await;
            routes.insert(*destination, route.map_err(|error| error.to_string()));
        }
        Ok(NetworkView {
            links,
            addresses,
            routes,
        })
    }

    pub fn link(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }

    pub fn link_named(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// The way to `destination`, which must have been among those given to [`NetworkView::read`].
    ///
    /// # Errors
    /// Why there is none, in the kernel's words.
    pub fn way_to(&self, destination: &Destination) -> Result<Route, String> {
        self.routes
            .get(destination)
            .cloned()
            .unwrap_or_else(|| Err("the kernel was not asked for a route".to_owned()))
    }

    /// The links by which packets of `link` come and go: itself, or the members of a bond.
    pub fn receivers<'v>(&'v self, link: &'v Link) -> Vec<&'v Link> {
        if link.kind != LinkKind::Bond {
            return vec![link];
        }
        self.links
            .iter()
            .filter(|member| member.master == Some(link.index))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_of_the_loopback_interface() {
        let loopback = Destination {
            address: "127.0.0.1".parse().expect("an address"),
            source: None,
            interface: 0,
        };
        let view = NetworkView::read(&[loopback]).expect("netlink");
        let link = view
            .links
            .iter()
            .find(|link| link.kind == LinkKind::Loopback)
            .expect("a loopback interface");
        assert_eq!(view.link_named("lo"), Some(link));
        let address = LocalAddress {
            address: loopback.address,
            interface: link.index,
            prefix: 8,
        };
        assert!(view.addresses.contains(&address));
        assert_eq!(
            view.way_to(&loopback),
            Err("it is an address of this host".to_owned())
        );
    }
}
