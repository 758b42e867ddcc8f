//! Policies in Lua: a function of the pool's servers and of `dq` says who is asked.

use super::super::callback::{Callback, Limit};
use super::super::objects::object as object_in;
use super::super::objects::server::ServerObject;
use super::super::{spec, wrong};
use super::object;
use super::question::Question;
use super::subject::{Subject, with};
use crate::backend::policy::{Choice, Circle, Policy};
use crate::backend::pool::Pool;
use crate::backend::server::{Server, ServerId};
use crate::clock::Now;
use crate::config::Config;
use crate::config::spec::ServerKey;
use crate::pipeline::Env;
use crate::pipeline::query::Query;
use crate::pipeline::route::Chooser;
use crate::random::Random;
use mlua::{AnyUserData, Function, Lua, Table, Value};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use wire::name::NameBuf;

/// What newServerPolicy makes.
pub(in super::super) struct LuaPolicy {
    pub(super) name: String,
    pub(super) callback: Callback,
}

impl LuaPolicy {
    pub(in super::super) fn function(&self) -> Function {
        self.callback.function()
    }
}

impl Chooser for LuaPolicy {
    fn choose<'c>(
        &self,
        pool: &'c Pool,
        query: &Query<'_>,
        env: &Env<'c>,
    ) -> Option<&'c Arc<Server>> {
        let state = env.config.lua.as_ref()?;
        let chosen = self
            .callback
            .call(state, env.now, Limit::QUERY, |lua, function| {
                let servers = Servers::of(lua, pool, env.config.generation)?;
                let table = servers.copy(lua)?;
                let object = object(lua, |objects| &objects.query)?;
                let chosen = Subject::show(&object.subject, query, env, || {
                    function.call::<Value>((table, &object.value))
                })?;
                servers.chosen(lua, &chosen)
            });
        match chosen.flatten()? {
            Chosen::Here(place) => pool.servers.get(place),
            Chosen::Elsewhere(number) => {
                let config: &'c Config = env.config;
                config.servers.iter().find(|server| server.number == number)
            }
        }
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// Whom a function has chosen.
enum Chosen {
    /// By the place among the pool's servers.
    Here(usize),
    /// A server of another pool. The manual: `return leastOutstanding.policy(getPoolServers("numbered"), dq)`.
    Elsewhere(ServerId),
}

/// The servers of a pool, as functions see them: made once for each pool and configuration.
#[derive(Clone)]
struct Servers {
    generation: u64,
    table: Table,
    keys: Arc<[ServerKey]>,
}

/// Those of a state, by the pool's name.
type Tables = HashMap<String, Servers>;

impl Servers {
    fn of(lua: &Lua, pool: &Pool, generation: u64) -> mlua::Result<Servers> {
        let known = lua
            .app_data_ref::<Tables>()
            .and_then(|tables| tables.get(&pool.name).cloned());
        if let Some(known) = known.filter(|known| known.generation == generation) {
            return Ok(known);
        }
        let made = Servers::make(lua, pool, generation)?;
        if let Some(mut tables) = lua.app_data_mut::<Tables>() {
            tables.insert(pool.name.clone(), made.clone());
        }
        Ok(made)
    }

    fn make(lua: &Lua, pool: &Pool, generation: u64) -> mlua::Result<Servers> {
        let keys = pool.servers.iter().map(|server| key_of(lua, server));
        let keys = keys.collect::<mlua::Result<Vec<_>>>()?;
        let objects = keys.iter().map(|key| ServerObject(*key));
        Ok(Servers {
            generation,
            table: lua.create_sequence_from(objects)?,
            keys: keys.into(),
        })
    }

    /// The table for one call: functions sort it, and take out of it whom they do not want.
    fn copy(&self, lua: &Lua) -> mlua::Result<Table> {
        let table = lua.create_table_with_capacity(self.keys.len(), 0)?;
        for server in self.table.sequence_values::<Value>() {
            table.raw_push(server?)?;
        }
        Ok(table)
    }

    /// By what a function returned: since 2.1 a number counted from 1, before a Server; nil is nobody.
    fn chosen(&self, lua: &Lua, chosen: &Value) -> mlua::Result<Option<Chosen>> {
        let number = match chosen {
            Value::Nil => return Ok(None),
            Value::Integer(number) => *number,
            Value::Number(number) => *number as i64,
            server => {
                let server: ServerObject =
                    object_in(server, "the number of a server in the table, or a Server")?;
                return match self.keys.iter().position(|key| *key == server.0) {
                    Some(place) => Ok(Some(Chosen::Here(place))),
                    None => elsewhere(lua, server.0),
                };
            }
        };
        let place = number.checked_sub(1);
        let place = place.and_then(|place| usize::try_from(place).ok());
        match place.filter(|place| *place < self.keys.len()) {
            Some(place) => Ok(Some(Chosen::Here(place))),
            None => Err(wrong(format!(
                "{number} is no server: there are {}, counted from 1",
                self.keys.len()
            ))),
        }
    }
}

/// A server outside the pool; nobody when it is removed.
fn elsewhere(lua: &Lua, key: ServerKey) -> mlua::Result<Option<Chosen>> {
    let spec = spec(lua)?;
    let entry = spec.servers.iter().find(|entry| entry.key == key);
    let live = entry.and_then(|entry| entry.live.as_ref());
    Ok(live.map(|live| Chosen::Elsewhere(live.number)))
}

fn key_of(lua: &Lua, server: &Arc<Server>) -> mlua::Result<ServerKey> {
    let spec = spec(lua)?;
    let entry = spec.servers.iter().find(|entry| {
        let live = entry.live.as_ref();
        live.is_some_and(|live| live.number == server.number)
    });
    entry
        .map(|entry| entry.key)
        .ok_or_else(|| wrong("a server of this pool was removed meanwhile"))
}

/// What built-in policies remember between the calls that functions make.
struct BuiltIn {
    random: Random,
    position: Arc<AtomicU64>,
}

pub(super) fn register(lua: &Lua) {
    lua.set_app_data(Tables::new());
    if let Ok(random) = Random::from_kernel() {
        lua.set_app_data(BuiltIn {
            random,
            position: Arc::default(),
        });
    }
}

/// `leastOutstanding.policy(servers, dq)`: the Server that the built-in policy chooses.
pub(in super::super) fn run_built_in(
    lua: &Lua,
    policy: Policy,
    servers: Vec<ServerObject>,
    dq: &AnyUserData,
) -> mlua::Result<Option<ServerObject>> {
    let question = dq.borrow::<Question>()?;
    let (name, tags) = with(lua, &*question, |subject| {
        let tags = subject.extras.as_ref().map(|extras| extras.tags.clone());
        Ok((NameBuf::from(subject.name()), tags))
    })?;
    let (live, tuning) = {
        let spec = spec(lua)?;
        let live: Vec<_> = servers
            .into_iter()
            .filter_map(|server| {
                let mut entries = spec.servers.iter();
                let entry = entries.find(|entry| entry.key == server.0)?;
                Some((server, Arc::clone(entry.live.as_ref()?)))
            })
            .collect();
        (live, spec.tuning.policies.clone())
    };
    let mut built_in = lua
        .app_data_mut::<BuiltIn>()
        .ok_or_else(|| wrong("the kernel gave no random numbers"))?;
    let members: Vec<_> = live.iter().map(|(_, server)| Arc::clone(server)).collect();
    let pool = Pool {
        name: String::new(),
        circle: Circle::new(policy, &members, &tuning),
        servers: members,
        cache: None,
        policy,
        chooser: None,
        position: Arc::clone(&built_in.position),
        hedging: Arc::default(),
        subnets: Default::default(),
    };
    let mut choice = Choice {
        now: Now::read(),
        random: &mut built_in.random,
        tuning: &tuning,
        name: name.as_name(),
        tags: tags.as_ref(),
        is_counted: true,
    };
    let chosen = policy.choose(&pool, &mut choice);
    let place = chosen.and_then(|chosen| {
        pool.servers
            .iter()
            .position(|server| Arc::ptr_eq(server, chosen))
    });
    Ok(place.map(|place| live[place].0))
}
