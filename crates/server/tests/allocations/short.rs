//! F33 off the packet path: where a query or a connection takes memory and there is none, it is lost alone, and counted.

use crate::ffi::{with_at_most, without_memory};
use crate::ground::{loaded, query};
use arc_swap::ArcSwap;
use millrace::clock::Now;
use millrace::config::Config;
use millrace::counters::{Shard, Writers};
use millrace::frontend::tcp::{Counters, Frontend, serve};
use millrace::handover;
use millrace::pipeline::drop::DropReason;
use millrace::pipeline::proxy::InFront;
use millrace::pipeline::query::{Arrival, NO_LISTENER, Protocol, Way};
use millrace::pipeline::rings::Rings;
use millrace::pipeline::{Env, Verdict, run};
use millrace::random::Random;
use millrace::runtime::Shared;
use millrace::stop::Stopper;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

const NAME: &[u8] = b"\x03www\x07example\x00";

/// Codes of answers (RFC 1035 section 4.1.1).
const SERVFAIL: u8 = 2;
const REFUSED: u8 = 5;

const PATIENCE: Duration = Duration::from_secs(60);

/// A shard of its own, and a configuration of these rules.
fn ground(rules: &str, writers: Writers) -> (Config, Shard) {
    let text = format!(
        "addLocal(\"192.0.2.1:53\")\n\
         setACL({{\"192.0.2.0/24\", \"127.0.0.0/8\"}})\n\
         setTCPRecvTimeout(60)\n\
         {rules}\n"
    );
    (
        loaded(&text, ""),
        Shard::new(0, writers, Rings::new(16, 16, writers)),
    )
}

/// A worker that is asked the same again and again, over UDP.
struct Worker {
    config: Arc<Config>,
    shard: Shard,
    random: Random,
    query: Vec<u8>,
    buffer: Box<[u8]>,
}

impl Worker {
    fn new(rules: &str) -> Worker {
        let (config, shard) = ground(rules, Writers::One);
        Worker {
            config: Arc::new(config),
            shard,
            random: Random::from_seed(7),
            query: query(NAME),
            buffer: vec![0; 1_472].into_boxed_slice(),
        }
    }

    fn ask<T>(&mut self, look: impl FnOnce(&Verdict<'_>, &Arrival<'_>, &Arc<Config>) -> T) -> T {
        let length = self.query.len();
        self.buffer[..length].copy_from_slice(&self.query);
        let mut outgrown = Vec::new();
        let mut arrival = Arrival {
            room: self.buffer.len(),
            message: &mut self.buffer,
            length,
            client: &SocketAddr::from(([192, 0, 2, 9], 4_242)),
            destination: &SocketAddr::from(([192, 0, 2, 1], 53)),
            protocol: Protocol::Udp,
            way: &Way::Socket { listener: 0 },
            listener: NO_LISTENER,
            outgrown: &mut outgrown,
            in_front: InFront::Nothing,
        };
        let mut env = Env {
            config: &self.config,
            now: Now(1_000_000_000),
            random: &mut self.random,
            shard: &self.shard,
            forwarder: None,
        };
        let verdict = run(&mut arrival, &mut env);
        look(&verdict, &arrival, &self.config)
    }
}

/// "If the Lua code fails, ServFail is returned", says the manual.
#[test]
fn f33_a_function_is_not_called_without_memory() {
    let function = "function(dq) return DNSAction.Refused, '' end";
    let mut worker = Worker::new(&format!("addAction(AllRule(), LuaAction({function}))"));
    let mut rcode = || {
        worker.ask(|verdict, arrival, _| match verdict {
            Verdict::Answer(_) => arrival.message[3] & 15,
            _ => panic!("no answer"),
        })
    };
    assert_eq!(rcode(), REFUSED);
    for _ in 0..100 {
        assert_eq!(without_memory(&mut rcode), SERVFAIL);
    }
    assert_eq!(rcode(), REFUSED);
    let state = worker.config.lua.as_ref().expect("a state");
    assert_eq!(state.counts.skipped.load(Relaxed), 100);
}

#[test]
fn f33_what_is_to_be_handed_over_is_lost_without_memory() {
    let rules = "addAction(AllRule(), DelayAction(10))\n\
                 addAction(AllRule(), RCodeAction(DNSRCode.REFUSED))";
    let mut worker = Worker::new(rules);
    let (sender, _receiver) = handover::queue();
    let mut push = || {
        worker.ask(|verdict, arrival, config| match verdict {
            Verdict::HandOver(hand_over) => sender.push(hand_over, arrival, config),
            Verdict::Drop(reason) => Err(*reason),
            _ => panic!("not handed over"),
        })
    };
    assert_eq!(push(), Ok(()));
    for _ in 0..100 {
        let lost = Err(DropReason::OutOfMemory);
        assert_eq!(without_memory(&mut push), lost);
    }
    assert_eq!(push(), Ok(()));
}

/// Tells, however the thread ends that has it.
struct Tells(Arc<Notify>);

impl Drop for Tells {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// Serves on this thread, with at most so many bytes at once, until a client on another one is done.
fn serving<T: Send + 'static>(
    runtime: &Runtime,
    most: usize,
    client: impl FnOnce() -> T + Send + 'static,
) -> T {
    let done = Arc::new(Notify::new());
    let tells = Tells(Arc::clone(&done));
    let client = std::thread::spawn(move || {
        let _tells = tells;
        client()
    });
    with_at_most(most, || runtime.block_on(done.notified()));
    client.join().expect("a client that is content")
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    let patience = stream.set_read_timeout(Some(PATIENCE));
    patience.expect("a time-out");
    stream
}

/// A query for `name` behind its length.
fn framed(name: &[u8]) -> Vec<u8> {
    let query = query(name);
    let length = (query.len() as u16).to_be_bytes();
    [&length[..], &query].concat()
}

/// The answer's code; `None`: the connection has ended.
fn rcode(stream: &mut TcpStream) -> Option<u8> {
    stream.write_all(&framed(NAME)).ok()?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut answer = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut answer).ok()?;
    Some(answer[3] & 15)
}

/// A listener on loopback, served wherever a test says so ([`serving`]).
struct Door {
    runtime: Runtime,
    address: SocketAddr,
    shard: Arc<Shard>,
    counters: Arc<Counters>,
    /// Dropped, it would be a stop.
    _stopper: Stopper,
}

impl Door {
    fn new(rules: &str) -> Door {
        let (config, shard) = ground(rules, Writers::Many);
        let shard = Arc::new(shard);
        let config = Arc::new(ArcSwap::from_pointee(config));
        let shared = Arc::new(Shared::new(config, Arc::clone(&shard)));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let counters = Arc::new(Counters::default());
        let stopper = Stopper::default();
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let frontend = Arc::new(Frontend::new(shared));
        let serves = serve(listener, frontend, Arc::clone(&counters), stopper.watch());
        runtime.spawn(serves);
        Door {
            runtime,
            address,
            shard,
            counters,
            _stopper: stopper,
        }
    }

    /// Queries lost for want of memory.
    fn lost(&self) -> u64 {
        self.shard.drops(DropReason::OutOfMemory)
    }
}

#[test]
fn f33_a_tcp_client_loses_its_connection_and_the_next_one_is_served() {
    let door = Door::new("addAction(AllRule(), RCodeAction(DNSRCode.REFUSED))");
    let (runtime, address) = (&door.runtime, door.address);
    let mut stream = serving(runtime, usize::MAX, move || {
        let mut stream = connect(address);
        assert_eq!(rcode(&mut stream), Some(REFUSED));
        stream
    });
    // Nothing at all: who has a connection loses it.
    serving(runtime, 0, move || assert_eq!(rcode(&mut stream), None));
    assert_eq!(door.lost(), 1);
    // What tokio's accept takes, and no more: nobody gets a connection.
    serving(runtime, 1_024, move || {
        assert_eq!(rcode(&mut connect(address)), None);
    });
    assert_eq!(door.lost(), 2);
    assert_eq!(door.counters.figures().refused, 1);
    serving(runtime, usize::MAX, move || {
        assert_eq!(rcode(&mut connect(address)), Some(REFUSED));
    });
    assert_eq!(door.lost(), 2);
}

/// Two answers become ready at once and are gathered for one write: there is memory for each, and not for both.
#[test]
fn f33_every_answer_is_counted_that_is_lost_with_its_connection() {
    let door = Door::new(
        "addAction(\"short.example.\", SpoofRawAction(string.rep(\"x\", 15000)))\n\
         addAction(\"long.example.\", SpoofRawAction(string.rep(\"x\", 60000)))",
    );
    let (runtime, address) = (&door.runtime, door.address);
    let mut stream = serving(runtime, usize::MAX, move || connect(address));
    // A query's buffer has room for the longest message.
    serving(runtime, 70_000, move || {
        let names: [&[u8]; 2] = [b"\x05short\x07example\x00", b"\x04long\x07example\x00"];
        let both: Vec<u8> = names.into_iter().flat_map(framed).collect();
        stream.write_all(&both).expect("to send");
        let mut answers = Vec::new();
        stream.read_to_end(&mut answers).expect("the end");
        assert_eq!(answers.len(), 0);
    });
    assert_eq!(door.lost(), 2);
}

/// What a proxy's connection begins with is no header, and there is no memory to have the pipeline say so.
#[test]
fn f33_a_proxy_that_is_not_heard_is_counted() {
    let door = Door::new("setProxyProtocolACL({\"127.0.0.0/8\"})");
    let (runtime, address) = (&door.runtime, door.address);
    let mut stream = serving(runtime, usize::MAX, move || {
        let stream = connect(address);
        // Connections are taken one after the other: that one is served now.
        assert_eq!(rcode(&mut connect(address)), None);
        stream
    });
    assert_eq!(door.lost(), 0);
    serving(runtime, 1_024, move || assert_eq!(rcode(&mut stream), None));
    assert_eq!(door.lost(), 1);
}
