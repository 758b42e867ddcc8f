//! newQPSLimiter.

use super::super::define;
use crate::clock::Now;
use crate::pipeline::rules::limiter::{Bucket, Rate};
use mlua::{Lua, UserData, UserDataMethods};

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(
        lua,
        "newQPSLimiter",
        |_, (rate, burst): (u32, Option<u32>)| {
            Ok(QpsLimiter {
                rate: Rate::new(rate, burst.unwrap_or(rate)),
                bucket: Bucket::default(),
            })
        },
    )
}

/// What newQPSLimiter returns.
struct QpsLimiter {
    rate: Rate,
    bucket: Bucket,
}

impl UserData for QpsLimiter {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("check", |_, limiter, ()| {
            Ok(limiter.bucket.take(limiter.rate, Now::read()))
        });
    }
}
