//! newNetworkEndpoint and newNetworkListener: datagrams to and from other processes, by UNIX sockets. Functions tell others of what
//! they have suspended, and hear what is to become of it.

use super::callback::{Callback, Limit};
use super::state::LuaState;
use super::{define, place, spec, wrong};
use crate::clock::Now;
use crate::log;
use mlua::{Function, Lua, LuaString, UserData, UserDataMethods};
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// The longest datagram that is heard, in bytes: a DNS message of the greatest length, and 1 KiB for what is said of it.
const DATAGRAM_MAX: usize = 65_535 + 1_024;

/// How often a thread looks whether it is still wanted.
const PATIENCE: Duration = Duration::from_millis(500);

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "newNetworkEndpoint", |_, path: String| {
        NetworkEndpoint::new(path)
    })?;
    define(lua, "newNetworkListener", |_, ()| {
        Ok(NetworkListener::default())
    })
}

// -------------------------------------------------------------------------------------------------------- endpoints

/// NetworkEndpoint: where others listen. A process that ends and comes back at its path is reached again.
struct NetworkEndpoint {
    path: PathBuf,
    /// Bound to nothing.
    socket: UnixDatagram,
}

impl NetworkEndpoint {
    fn new(path: String) -> mlua::Result<NetworkEndpoint> {
        let socket = unbound().map_err(|error| wrong(format!("no socket: {error}")))?;
        Ok(NetworkEndpoint {
            path: path.into(),
            socket,
        })
    }
}

/// What sends from it never waits: queries that need the state would, too.
fn unbound() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

impl UserData for NetworkEndpoint {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("isValid", |_, endpoint, ()| {
            let connected = unbound().and_then(|socket| socket.connect(&endpoint.path));
            Ok(connected.is_ok())
        });
        methods.add_method("send", |_, endpoint, payload: LuaString| {
            let payload = payload.as_bytes();
            let sent = endpoint.socket.send_to(&payload, &endpoint.path);
            Ok(sent.is_ok())
        });
    }
}

// -------------------------------------------------------------------------------------------------------- listeners

/// NetworkListener: the paths where functions hear others, once it was started.
#[derive(Clone, Default)]
struct NetworkListener(Arc<Mutex<Listened>>);

#[derive(Default)]
struct Listened {
    paths: Vec<Arc<Ear>>,
    is_started: bool,
}

impl NetworkListener {
    fn lock(&self) -> MutexGuard<'_, Listened> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, ear: Ear) -> mlua::Result<bool> {
        let mut listened = self.lock();
        if listened.is_started {
            return Err(wrong("it was started already: add its paths before"));
        }
        listened.paths.push(Arc::new(ear));
        Ok(true)
    }

    /// The paths belong to the configuration from now on, which listens there when it takes effect. False: there are none, or
    /// it was started before.
    fn start(&self, lua: &Lua) -> mlua::Result<bool> {
        let mut listened = self.lock();
        if listened.is_started || listened.paths.is_empty() {
            return Ok(false);
        }
        listened.is_started = true;
        spec(lua)?
            .ears
            .extend(listened.paths.iter().map(Arc::clone));
        Ok(true)
    }
}

impl UserData for NetworkListener {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method(
            "addUnixListeningEndpoint",
            |lua, listener, (path, id, function): (String, u16, mlua::Value)| {
                let function: Function = match function {
                    mlua::Value::Function(function) => function,
                    _ => {
                        return Err(wrong(format!(
                            "{}: addUnixListeningEndpoint: a function expected that is defined above this line",
                            place::caller(lua)
                        )));
                    }
                };
                listener.add(Ear {
                    path: path.into(),
                    id,
                    callback: Callback::new(lua, "addUnixListeningEndpoint", function),
                    is_open: AtomicBool::new(false),
                })
            },
        );
        methods.add_method("start", |lua, listener, ()| listener.start(lua));
    }
}

/// A path, and the function that hears what comes there. Its thread ends with the configurations that have it.
pub struct Ear {
    path: PathBuf,
    /// endpointID, for the function.
    id: u16,
    callback: Callback,
    is_open: AtomicBool,
}

impl Ear {
    /// Listens, if that was not begun before. To be called when the configuration takes effect; one that is only checked listens
    /// nowhere. What fails is said.
    pub fn open(self: &Arc<Ear>, state: &Arc<LuaState>) {
        if self.is_open.swap(true, Relaxed) {
            return;
        }
        let (ear, state) = (Arc::downgrade(self), Arc::downgrade(state));
        let begun = bind(&self.path).and_then(|socket| {
            let thread = std::thread::Builder::new().name("listener".to_owned());
            thread.spawn(move || hear(&socket, &ear, &state))
        });
        if let Err(error) = begun {
            log::error!("nobody is heard at {}: {error}", self.path.display());
        }
    }

    fn tell(&self, state: &LuaState, message: &[u8], from: &Path) {
        let now = Now::read();
        self.callback
            .call(state, now, Limit::CONTROL, |lua, function| {
                let message = lua.create_string(message)?;
                function.call::<()>((self.id, message, from.to_string_lossy()))
            });
    }
}

/// A socket that was there before belongs to a process that has ended, or to the configuration before this one.
fn bind(path: &Path) -> io::Result<UnixDatagram> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let socket = UnixDatagram::bind(path)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn hear(socket: &UnixDatagram, ear: &Weak<Ear>, state: &Weak<LuaState>) {
    let mut buffer = vec![0; DATAGRAM_MAX];
    loop {
        let received = socket.recv_from(&mut buffer);
        let Some((ear, state)) = ear.upgrade().zip(state.upgrade()) else {
            return;
        };
        match received {
            Ok((length, from)) => {
                let from = from.as_pathname().unwrap_or(Path::new(""));
                ear.tell(&state, &buffer[..length], from);
            }
            Err(error) if is_passing(&error) => {}
            Err(error) => {
                return log::error!("nobody is heard at {}: {error}", ear.path.display());
            }
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::pools::PoolNames;
    use crate::config::spec::{Purpose, Spec};
    use std::time::Instant;

    fn state(text: &str) -> LuaState {
        let state = LuaState::new(Spec::new(Purpose::Serve, PoolNames::default())).unwrap();
        let ran = state.run("test.conf", text.as_bytes());
        ran.unwrap_or_else(|error| panic!("{error}"));
        state
    }

    fn path(name: &str) -> String {
        let name = format!("millrace-{}-{name}.socket", std::process::id());
        std::env::temp_dir().join(name).display().to_string()
    }

    fn until(state: &LuaState, condition: &str) {
        let text = format!("if not ({condition}) then error('not yet') end");
        let began = Instant::now();
        while state.run("test", text.as_bytes()).is_err() {
            assert!(began.elapsed().as_secs() < 60, "{condition}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_is_sent_is_heard_once_the_configuration_takes_effect() {
        let path = path("heard");
        let text = format!(
            r#"heard = {{}}
               listener = newNetworkListener()
               assert(not listener:start())
               assert(listener:addUnixListeningEndpoint("{path}", 7, function(id, message, from)
                 assert(id == 7 and from == "")
                 table.insert(heard, message)
               end))
               assert(listener:start() and not listener:start())
               assert(not pcall(listener.addUnixListeningEndpoint, listener, "x", 1, print))
               endpoint = newNetworkEndpoint("{path}")
               assert(not endpoint:isValid() and not endpoint:send("nobody"))"#
        );
        let state = Arc::new(state(&text));
        let config = state.derive(None).unwrap();
        assert!(fs::symlink_metadata(&path).is_err());
        for _ in 0..2 {
            config.open_actions();
        }
        let send = br#"assert(endpoint:isValid() and endpoint:send("a\0b"))"#;
        state.run("test", send).unwrap();
        until(&state, r#"heard[1] == "a\0b" and #heard == 1"#);
        // A reload takes the path over; what listened there before hears nothing more.
        let next = Arc::new(self::state(
            &text.replace("assert(not endpoint", "print(not endpoint"),
        ));
        let following = next.derive(Some(&config)).unwrap();
        following.open_actions();
        state.run("test", send).unwrap();
        until(&next, "#heard == 1");
        state.run("test", b"assert(#heard == 1)").unwrap();
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_cannot_be_is_an_error_or_false() {
        state(
            r#"local listener = newNetworkListener()
               local ok, why = pcall(listener.addUnixListeningEndpoint, listener, "x", 0, nil)
               assert(not ok and tostring(why):find("a function expected"), why)
               assert(not pcall(listener.addUnixListeningEndpoint, listener, "x", 65536, print))
               local far = newNetworkEndpoint("/" .. string.rep("x", 200))
               assert(not far:isValid() and not far:send("a"))"#,
        );
    }

    /// A file that is no socket is somebody's.
    #[test]
    fn only_a_socket_gives_way() {
        let path = path("file");
        fs::write(&path, "text").unwrap();
        assert!(bind(Path::new(&path)).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
        fs::remove_file(&path).unwrap();
    }
}
