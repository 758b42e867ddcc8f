//! Console, API, metrics, control socket: never called from the packet path.
