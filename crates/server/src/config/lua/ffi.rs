//! The one place of the Lua bridge with `unsafe`: a state that may load C.
#![allow(unsafe_code)]

use mlua::Lua;

/// A new LuaJIT state with all libraries, `require "ffi"` and C modules included: dnsdist's configurations use them.
pub(super) fn new_state() -> Lua {
    // SAFETY: mlua calls this unsafe because code in the state can then reach any memory through `ffi`. The only code
    // that runs in it is the operator's configuration, which is trusted with the whole process as dnsdist's is.
    unsafe { Lua::unsafe_new() }
}
