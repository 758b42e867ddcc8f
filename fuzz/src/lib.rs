//! What the fuzz targets share. Each target is one file in `targets/`; `corpus/README.md` says what former crashes were.

pub mod ffi;
pub mod frames;
pub mod input;
pub mod program;
pub mod world;
