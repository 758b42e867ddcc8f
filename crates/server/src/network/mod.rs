//! Links, addresses, routes, neighbours; privileges.
