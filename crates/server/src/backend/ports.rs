//! The pool of backend ports.
