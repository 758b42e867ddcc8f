//! The sub-commands of `millrace`, one file each.
