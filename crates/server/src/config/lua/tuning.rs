//! Limits and time-outs.

use super::options::{Flag, Options};
use super::{define, spec, wrong};
use crate::config::{TcpTuning, Tuning, UdpBuffers};
use mlua::{FromLua, Lua, Table};
use std::time::Duration;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    answers(lua)?;
    policies(lua)?;
    udp(lua)?;
    tcp(lua)?;
    rings(lua)
}

fn rings(lua: &Lua) -> mlua::Result<()> {
    define(
        lua,
        "setRingBuffersSize",
        // There are as many rings as threads: a number of shards has nothing to say.
        |lua, (entries, _shards): (usize, Option<u32>)| {
            if entries > RING_ENTRIES_MAX {
                return Err(wrong(format!(
                    "{entries}: at most {RING_ENTRIES_MAX} entries expected"
                )));
            }
            spec(lua)?.tuning.rings.entries = entries;
            Ok(())
        },
    )?;
    define(lua, "setRingBuffersOptions", |lua, table: Table| {
        let mut options = Options::new(lua, "setRingBuffersOptions", Some(table));
        let mut rings = spec(lua)?.tuning.rings.clone();
        for (name, field) in [
            ("recordQueries", &mut rings.records_queries),
            ("recordResponses", &mut rings.records_responses),
        ] {
            *field = options.flag(name)?.unwrap_or(*field);
        }
        rings.sampling_rate = options
            .number("samplingRate", "one of how many")?
            .unwrap_or(rings.sampling_rate);
        // Nobody waits for a lock here.
        options.skip("lockRetries");
        options.finish()?;
        spec(lua)?.tuning.rings = rings;
        Ok(())
    })?;
    define(lua, "getRingBuffersSamplingRate", |lua, ()| {
        Ok(spec(lua)?.tuning.rings.sampling_rate)
    })
}

/// Entries of all rings of recent queries together: some GB.
const RING_ENTRIES_MAX: usize = 10_000_000;

/// A function of one argument that writes one field.
fn setting<A: FromLua + 'static>(
    lua: &Lua,
    name: &'static str,
    set: fn(&mut Tuning, A),
) -> mlua::Result<()> {
    define(lua, name, move |lua, value: A| {
        set(&mut spec(lua)?.tuning, value);
        Ok(())
    })
}

/// The same for true or false, and nothing that Lua would take for one of them.
fn flag(lua: &Lua, name: &'static str, set: fn(&mut Tuning, bool)) -> mlua::Result<()> {
    define(lua, name, move |lua, Flag(value): Flag| {
        set(&mut spec(lua)?.tuning, value);
        Ok(())
    })
}

/// The same for whole seconds.
fn seconds(lua: &Lua, name: &'static str, set: fn(&mut Tuning, Duration)) -> mlua::Result<()> {
    define(lua, name, move |lua, value: u32| {
        set(&mut spec(lua)?.tuning, Duration::from_secs(value.into()));
        Ok(())
    })
}

fn answers(lua: &Lua) -> mlua::Result<()> {
    caches(lua)?;
    flag(lua, "setDropEmptyQueries", |tuning, drop| {
        tuning.drop_empty_queries = drop
    })?;
    flag(lua, "setServFailWhenNoServer", |tuning, servfail| {
        tuning.servfail_when_no_server = servfail
    })?;
    flag(lua, "setVerboseHealthChecks", |tuning, verbose| {
        tuning.verbose_health_checks = verbose
    })?;
    setting(lua, "setStaleCacheEntriesTTL", |tuning, seconds| {
        tuning.stale_cache_entries_ttl = seconds
    })?;
    flag(lua, "setAllowEmptyResponse", |tuning, allow| {
        tuning.allow_empty_responses = allow
    })?;
    flag(lua, "truncateTC", |tuning, cut| tuning.truncate_tc = cut)?;
    // Every answer has the question as its client wrote it (I2): the flag is for those who read it back.
    flag(lua, "fixupCase", |tuning, flag| tuning.fixup_case = flag)?;
    flag(lua, "setAddEDNSToSelfGeneratedResponses", |tuning, add| {
        tuning.edns_in_self_generated = add
    })?;
    // RFC 6891, section 6.2.3: "Values lower than 512 MUST be treated as equal to 512."
    setting(
        lua,
        "setPayloadSizeOnSelfGeneratedAnswers",
        |tuning, bytes: u16| tuning.payload_size_self_generated = bytes.max(512),
    )
}

fn caches(lua: &Lua) -> mlua::Result<()> {
    seconds(lua, "setCacheCleaningDelay", |tuning, delay| {
        tuning.cleaning.delay = delay
    })?;
    define(lua, "setCacheCleaningPercentage", |lua, percent: u8| {
        if percent > 100 {
            return Err(wrong(format!("{percent}: percent, 0 to 100, expected")));
        }
        spec(lua)?.tuning.cleaning.percentage = percent;
        Ok(())
    })
}

fn policies(lua: &Lua) -> mlua::Result<()> {
    flag(lua, "setRoundRobinFailOnNoServer", |tuning, fail| {
        tuning.policies.round_robin_fail_on_no_server = fail;
    })?;
    // The second name is how it was spelt first.
    for name in ["setWHashedPerturbation", "setWHashedPertubation"] {
        setting(lua, name, |tuning, number| {
            tuning.policies.hash_perturbation = Some(number)
        })?;
    }
    define(lua, "setWeightedBalancingFactor", |lua, factor| {
        spec(lua)?.tuning.policies.weighted_balancing_factor = thousandths(factor)?;
        Ok(())
    })?;
    define(lua, "setConsistentHashingBalancingFactor", |lua, factor| {
        spec(lua)?
            .tuning
            .policies
            .consistent_hashing_balancing_factor = thousandths(factor)?;
        Ok(())
    })
}

/// A balancing factor: 0 is off, and less than a server's fair share cannot be met.
fn thousandths(factor: f64) -> mlua::Result<u32> {
    if factor != 0.0 && !(1.0..=1_000_000.0).contains(&factor) {
        return Err(wrong(format!(
            "{factor}: 0, or a factor of 1 or more, expected"
        )));
    }
    Ok((factor * 1_000.0).round() as u32)
}

fn udp(lua: &Lua) -> mlua::Result<()> {
    define(lua, "setUDPTimeout", |lua, seconds: u32| {
        if seconds == 0 {
            return Err(wrong("0: no answer would be in time; 1 or more expected"));
        }
        spec(lua)?.tuning.udp_timeout = Duration::from_secs(seconds.into());
        Ok(())
    })?;
    define(
        lua,
        "setUDPSocketBufferSizes",
        |lua, sizes: (usize, usize)| {
            let (receive, send) = sizes;
            if let Some(bytes) = [receive, send].iter().find(|bytes| **bytes > BUFFER_MAX) {
                return Err(wrong(format!(
                    "{bytes}: a number of bytes up to {BUFFER_MAX} expected"
                )));
            }
            spec(lua)?.tuning.udp_buffers = UdpBuffers { receive, send };
            Ok(())
        },
    )?;
    define(lua, "setMaxUDPOutstanding", |lua, queries: u32| {
        if queries == 0 {
            return Err(wrong("0: no query could be sent; 1 or more expected"));
        }
        spec(lua)?.tuning.maximum_udp_outstanding = queries;
        Ok(())
    })
}

/// The kernel keeps twice as much, in 31 bits.
const BUFFER_MAX: usize = i32::MAX as usize / 2;

fn tcp(lua: &Lua) -> mlua::Result<()> {
    define(lua, "setMaxTCPClientThreads", |lua, threads: usize| {
        let most = TcpTuning::THREADS_MAX;
        if !(1..=most).contains(&threads) {
            return Err(wrong(format!("{threads}: 1 to {most} threads expected")));
        }
        spec(lua)?.tuning.tcp.threads = threads;
        Ok(())
    })?;
    seconds(lua, "setTCPRecvTimeout", |tuning, timeout| {
        tuning.tcp.receive_timeout = timeout
    })?;
    seconds(lua, "setTCPSendTimeout", |tuning, timeout| {
        tuning.tcp.send_timeout = timeout
    })?;
    seconds(lua, "setMaxTCPConnectionDuration", |tuning, time| {
        tuning.tcp.maximum_connection_duration = time
    })?;
    setting(lua, "setMaxTCPQueriesPerConnection", |tuning, queries| {
        tuning.tcp.maximum_queries_per_connection = queries;
    })?;
    setting(
        lua,
        "setMaxTCPConnectionsPerClient",
        |tuning, connections| {
            tuning.tcp.maximum_connections_per_client = connections;
        },
    )?;
    tcp_reads(lua)?;
    // A connection is served as soon as it is accepted, so none is ever queued for a thread: those before wait in the kernel
    // (tcpListenQueueSize).
    define(lua, "setMaxTCPQueuedConnections", |_, _: u64| Ok(()))?;
    tcp_rates(lua)?;
    tcp_to_backends(lua)
}

fn tcp_reads(lua: &Lua) -> mlua::Result<()> {
    setting(lua, "setMaxTCPReadIOsPerQuery", |tuning, reads| {
        tuning.tcp.maximum_reads_per_query = reads;
    })?;
    seconds(
        lua,
        "setBanDurationForExceedingMaxReadIOsPerQuery",
        |tuning, time| tuning.tcp.reads_ban = time,
    )
}

fn tcp_rates(lua: &Lua) -> mlua::Result<()> {
    setting(lua, "setMaxTCPConnectionRatePerClient", |tuning, rate| {
        tuning.tcp.maximum_connection_rate_per_client = rate;
    })?;
    define(lua, "setTCPConnectionRateInterval", |lua, minutes: u32| {
        let seconds = u64::from(minutes.max(1)) * 60;
        spec(lua)?.tuning.tcp.connection_rate_interval = Duration::from_secs(seconds);
        Ok(())
    })?;
    seconds(
        lua,
        "setBanDurationForExceedingTCPTLSRate",
        |tuning, time| tuning.tcp.rate_ban = time,
    )?;
    define(lua, "setTCPConnectionsMaskV4", |lua, bits: u8| {
        spec(lua)?.tuning.tcp.client_bits_v4 = bits_of_address(bits, 32)?;
        Ok(())
    })?;
    define(lua, "setTCPConnectionsMaskV6", |lua, bits: u8| {
        spec(lua)?.tuning.tcp.client_bits_v6 = bits_of_address(bits, 128)?;
        Ok(())
    })?;
    define(lua, "setTCPConnectionsMaskV4Port", |lua, bits: u8| {
        spec(lua)?.tuning.tcp.client_bits_port_v4 = bits_of_address(bits, 16)?;
        Ok(())
    })?;
    define(
        lua,
        "setTCPConnectionsOverloadThreshold",
        |lua, percent: u8| {
            if percent > 100 {
                return Err(wrong(format!("{percent}: percent, 0 to 100, expected")));
            }
            spec(lua)?.tuning.tcp.overload_threshold = percent;
            Ok(())
        },
    )
}

fn bits_of_address(bits: u8, maximum: u8) -> mlua::Result<u8> {
    match bits <= maximum {
        true => Ok(bits),
        false => Err(wrong(format!("{bits}: 0 to {maximum} bits expected"))),
    }
}

fn tcp_to_backends(lua: &Lua) -> mlua::Result<()> {
    setting(
        lua,
        "setMaxCachedTCPConnectionsPerDownstream",
        |tuning, connections| {
            tuning.tcp.maximum_cached_connections = connections;
        },
    )?;
    seconds(lua, "setTCPDownstreamMaxIdleTime", |tuning, time| {
        tuning.tcp.downstream_idle_timeout = time
    })
}
