//! Health checks: probes from kernel sockets, never over AF_XDP.
