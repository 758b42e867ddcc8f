//! Server.

use super::super::options::{Flag, Options};
use super::super::{health, servers, spec, wrong};
use super::object;
use crate::backend::server::{HealthMode, Server};
use crate::config::lua::objects::unknown_is_nil;
use crate::config::spec::{ServerKey, ServerSpec, Spec};
use mlua::{FromLua, Lua, MetaMethod, Table, UserData, UserDataFields, UserDataMethods, Value};
use std::sync::Arc;

/// What newServer and getServer return: the name of an entry of the Spec.
#[derive(Clone, Copy)]
pub(in super::super) struct ServerObject(pub(in super::super) ServerKey);

impl FromLua for ServerObject {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<ServerObject> {
        object(&value, "a Server")
    }
}

impl ServerObject {
    pub(in super::super) fn is_one(value: &Value) -> bool {
        matches!(value, Value::UserData(object) if object.is::<ServerObject>())
    }

    /// What `look` makes of what is written of the server.
    fn read<R>(self, lua: &Lua, look: impl FnOnce(&ServerSpec) -> R) -> mlua::Result<R> {
        let spec = spec(lua)?;
        let found = spec.servers.iter().find(|server| server.key == self.0);
        found.map(look).ok_or_else(removed)
    }

    /// The same, to write there.
    fn written<R>(self, lua: &Lua, look: impl FnOnce(&mut ServerSpec) -> R) -> mlua::Result<R> {
        let mut spec = spec(lua)?;
        entry(&mut spec, self.0).map(look)
    }

    /// What `look` makes of the server that serves; `idle` before the configuration serves.
    fn live<R>(self, lua: &Lua, idle: R, look: impl FnOnce(&Server) -> R) -> mlua::Result<R> {
        let live: Option<Arc<Server>> = self.read(lua, |server| server.live.clone())?;
        Ok(live.as_deref().map_or(idle, look))
    }
}

fn entry(spec: &mut Spec, key: ServerKey) -> mlua::Result<&mut ServerSpec> {
    let found = spec.servers.iter_mut().find(|server| server.key == key);
    found.ok_or_else(removed)
}

pub(in super::super) fn removed() -> mlua::Error {
    wrong("this server was removed by rmServer")
}

impl UserData for ServerObject {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        unknown_is_nil(fields);
        fields.add_field_method_get("name", |lua, server| server.read(lua, name));
        fields.add_field_method_get("upStatus", |lua, server| {
            server.live(lua, false, |server| server.state.is_checked_up())
        });
        fields.add_field_method_get("order", |lua, server| {
            server.read(lua, |server| server.options.order)
        });
        fields.add_field_method_set("order", |lua, server, order| {
            server.written(lua, |server| server.options.order = order)
        });
        fields.add_field_method_get("weight", |lua, server| {
            server.read(lua, |server| server.options.weight)
        });
        fields.add_field_method_set("weight", |lua, server, weight: i64| {
            let weight = servers::weight(weight)?;
            server.written(lua, |server| server.options.weight = weight)
        });
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("toString", |lua, server, ()| server.read(lua, name));
        methods.add_meta_method(MetaMethod::ToString, |lua, server, ()| {
            server.read(lua, name)
        });
        facts(methods);
        pools(methods);
        states(methods);
    }
}

fn name(server: &ServerSpec) -> String {
    server.options.name_or_address()
}

fn facts<M: UserDataMethods<ServerObject>>(methods: &mut M) {
    methods.add_method("getName", |lua, server, ()| server.read(lua, name));
    methods.add_method("getNameWithAddr", |lua, server, ()| {
        server.read(lua, |server| server.options.name_with_address())
    });
    methods.add_method("getLatency", |lua, server, ()| {
        server.live(lua, 0, Server::latency)
    });
    methods.add_method("getQueries", |lua, server, ()| {
        server.live(lua, 0, |server| server.queries.sum())
    });
    methods.add_method("getDrops", |lua, server, ()| {
        server.live(lua, 0, |server| server.timeouts.sum())
    });
    methods.add_method("getOutstanding", |lua, server, ()| {
        server.live(lua, 0, |server| server.outstanding.get())
    });
    methods.add_method_mut("setQPS", |lua, server, qps: u32| {
        server.written(lua, |server| server.options.qps = qps)
    });
}

fn pools<M: UserDataMethods<ServerObject>>(methods: &mut M) {
    methods.add_method("addPool", |lua, server, pool: String| {
        super::pool::make(lua, &pool)?;
        server.written(lua, |server| {
            if !server.options.pools.contains(&pool) {
                server.options.pools.push(pool);
            }
        })
    });
    methods.add_method("rmPool", |lua, server, pool: String| {
        if !spec(lua)?.pools.contains_key(&pool) {
            return Err(wrong(format!("rmPool: there is no pool '{pool}'")));
        }
        server.written(lua, |server| {
            server.options.pools.retain(|name| *name != pool)
        })
    });
}

fn states<M: UserDataMethods<ServerObject>>(methods: &mut M) {
    methods.add_method("isUp", |lua, server, ()| {
        // What was never checked is up only where that was said.
        let is_forced = server.read(lua, |server| server.options.health.mode == HealthMode::Up)?;
        server.live(lua, is_forced, |server| server.state.is_up())
    });
    methods.add_method("getHealthCheckMode", |lua, server, ()| {
        let is_lazy = server.read(lua, |server| server.options.health.is_lazy)?;
        Ok(if is_lazy { "lazy" } else { "active" })
    });
    methods.add_method("setUp", |lua, server, ()| {
        set_mode(*server, lua, HealthMode::Up, None)
    });
    methods.add_method("setDown", |lua, server, ()| {
        set_mode(*server, lua, HealthMode::Down, None)
    });
    methods.add_method("setAuto", |lua, server, up| {
        set_mode(*server, lua, HealthMode::Auto, up)
    });
    for (auto, is_lazy) in [("setActiveAuto", false), ("setLazyAuto", true)] {
        methods.add_method(auto, move |lua, server, up| {
            server.written(lua, |server| server.options.health.is_lazy = is_lazy)?;
            set_mode(*server, lua, HealthMode::Auto, up)
        });
    }
    methods.add_method(
        "setHealthCheckParams",
        |lua, server, table: Option<Table>| {
            let mut options = Options::new(lua, "setHealthCheckParams", table);
            let mut health = server.read(lua, |server| server.options.health.clone())?;
            health::read_check_limits(&mut options, &mut health)?;
            options.finish()?;
            server.written(lua, |server| server.options.health = health)
        },
    );
}

/// Takes effect at once where the server serves already.
fn set_mode(
    server: ServerObject,
    lua: &Lua,
    mode: HealthMode,
    up: Option<Flag>,
) -> mlua::Result<()> {
    server.written(lua, |server| server.options.health.mode = mode)?;
    server.live(lua, (), |server| {
        server.state.set_mode(mode);
        if let Some(Flag(up)) = up {
            server.state.set_checked(up);
        }
    })
}
