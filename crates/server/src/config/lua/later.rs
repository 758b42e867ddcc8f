//! The functions of the dialect that millrace does not have yet, so that a file that uses them is understood.
//!
//! One that would change an answer, or who gets one, is an error that names it: to load the file without it would serve
//! something else than the operator wrote. One that only observes or tunes loads, and one log line says so. When a
//! function is built, its name moves from here to the file of its theme.

use super::actions::made;
use super::response_actions::ResponseActionObject;
use super::{console, define, place, spec};
use crate::config::lua::objects::unknown_is_nil;
use crate::config::place::Place;
use crate::config::spec::{Remark, RemarkKind};
use crate::pipeline::Env;
use crate::pipeline::query::Query;
use crate::pipeline::rules::response::{Response, ResponseAction, ResponseOutcome};
use crate::pipeline::rules::{Action, Outcome};
use mlua::{Lua, MultiValue, UserData, UserDataFields};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    for name in CHANGES.iter().flat_map(|names| names.split_whitespace()) {
        define(lua, name, move |_, _: MultiValue| -> mlua::Result<()> {
            Err(not_yet(name))
        })?;
    }
    for name in OBSERVES.iter().flat_map(|names| names.split_whitespace()) {
        define(lua, name, move |lua, _: MultiValue| no_effect(lua, name))?;
    }
    for name in OBSERVING_ACTIONS {
        define(lua, name, move |lua, _: MultiValue| {
            no_effect(lua, name)?;
            made(Observing(name))
        })?;
    }
    for name in OBSERVING_OBJECTS {
        define(lua, name, move |lua, _: MultiValue| {
            no_effect(lua, name).map(|()| Inert)
        })?;
    }
    response_rules(lua)
}

/// The names that are an error.
pub(super) fn changing() -> impl Iterator<Item = &'static str> {
    CHANGES.iter().flat_map(|names| names.split_whitespace())
}

/// The names that load and do nothing.
#[cfg(test)]
pub(super) fn observing() -> impl Iterator<Item = &'static str> {
    let names = OBSERVES.iter().flat_map(|names| names.split_whitespace());
    names
        .chain(OBSERVING_ACTIONS)
        .chain(OBSERVING_OBJECTS)
        .chain(OBSERVING_RESPONSE_ACTIONS)
}

fn response_rules(lua: &Lua) -> mlua::Result<()> {
    for name in OBSERVING_RESPONSE_ACTIONS {
        define(lua, name, move |lua, _: MultiValue| {
            no_effect(lua, name)?;
            Ok(ResponseActionObject {
                action: Arc::new(Observing(name)),
            })
        })?;
    }
    Ok(())
}

/// A function that would change an answer or who gets one.
#[derive(Debug)]
struct NotYet(&'static str);

impl fmt::Display for NotYet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is not in millrace yet: it would change an answer or who gets one; take it out to go without",
            self.0
        )
    }
}

impl std::error::Error for NotYet {}

fn not_yet(name: &'static str) -> mlua::Error {
    mlua::Error::external(NotYet(name))
}

/// The error of a function that names `name` and would be called while serving, `source` and `line` as Lua has them.
pub(super) fn unbuilt(name: &str, source: Option<&str>, line: Option<usize>) -> mlua::Error {
    let name = changing()
        .find(|known| *known == name)
        .unwrap_or("a function");
    let file = source.map(|source| source.strip_prefix(['@', '=']).unwrap_or("a text"));
    let place = Place::line_of(file.unwrap_or("configuration"), line);
    super::wrong(format!("{place}: {}", NotYet(name)))
}

fn no_effect(lua: &Lua, name: &str) -> mlua::Result<()> {
    if console::serving(lua).is_some() {
        console::say(lua, format!("{name} has no effect in millrace yet"));
        return Ok(());
    }
    let remark = Remark {
        place: place::caller(lua),
        kind: RemarkKind::NoEffectYet,
        subject: name.to_owned(),
    };
    spec(lua)?.remark(remark);
    Ok(())
}

/// dnsdist listens at the address of every line with `function`, we at the last one's: the operator is told which are not
/// served. Who says it to a running instance means to move it.
pub(super) fn replaced(
    lua: &Lua,
    function: &str,
    former: Option<SocketAddr>,
    address: SocketAddr,
) -> mlua::Result<()> {
    match former {
        Some(former) if former != address && console::serving(lua).is_none() => {
            let subject = format!("{function}: {former}, as {address} takes its place");
            no_effect(lua, &subject)
        }
        _ => Ok(()),
    }
}

/// An action that looks at queries or responses and lets them go on.
struct Observing(&'static str);

impl Action for Observing {
    fn act(&self, _: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
        Outcome::Continue
    }

    fn describe(&self) -> String {
        format!("{} (no effect yet)", self.0)
    }
}

impl ResponseAction for Observing {
    fn act(&self, _: &mut Response<'_>, _: &mut Env<'_>) -> ResponseOutcome {
        ResponseOutcome::Continue
    }

    fn describe(&self) -> String {
        format!("{} (no effect yet)", self.0)
    }
}

/// What a constructor of something that observes returns: to be handed to actions that observe.
struct Inert;

impl UserData for Inert {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        unknown_is_nil(fields);
    }
}

/// By area, as in dialect.txt.
const CHANGES: &[&str] = &[
    // Listeners / frontends
    "addTLSLocal addDOHLocal addDOQLocal addDOH3Local newTLSCertificate newDOHResponseMapEntry",
    // Load-balancing policy control
    "setServerPolicyLuaFFI setServerPolicyLuaFFIPerThread
     setPoolServerPolicyLuaFFI setPoolServerPolicyLuaFFIPerThread",
    // Selectors
    "LuaFFIRule LuaFFIPerThreadRule KeyValueStoreLookupRule KeyValueStoreRangeLookupRule",
    // Actions on queries
    "LuaFFIAction LuaFFIPerThreadAction KeyValueStoreLookupAction KeyValueStoreRangeLookupAction",
    // Actions on responses
    "LuaFFIResponseAction LuaFFIPerThreadResponseAction",
    // Dynamic blocks
    "dynBlockRulesGroup addDynamicBlock addDynBlocks exceedQRate exceedQTypeRate exceedNXDOMAINs exceedServFails
     exceedRespByterate addDynBlockSMT statNodeRespRing setDynBlocksAction",
    // eBPF socket filter
    "newBPFFilter setDefaultBPFFilter newDynBPFFilter addBPFFilterDynBlocks registerDynBPFFilter
     unregisterDynBPFFilter",
    // Key-value stores
    "newCDBKVStore newLMDBKVStore KeyValueLookupKeyQName KeyValueLookupKeySourceIP KeyValueLookupKeySuffix
     KeyValueLookupKeyTag",
    // Run-time: code of the operator's that nobody would run, or values that the file would go on with
    "getObjectFromYAMLConfiguration submitToMainThread threadmessage newThread",
    // DNSCrypt
    "addDNSCryptBind",
];

/// By area, as in dialect.txt. They return nothing.
const OBSERVES: &[&str] = &[
    // Listeners / frontends
    "loadTicketsKey generateOCSPResponse loadTLSEngine loadTLSProvider setTicketsKeyAddedHook",
    // Backends and pools
    "setOutgoingTLSSessionsCacheMaxTicketsPerBackend
     setOutgoingTLSSessionsCacheCleanupDelay setOutgoingTLSSessionsCacheMaxTicketValidity",
    // Dynamic blocks: there are none
    "setDynBlocksPurgeInterval",
    // Web server, API, metrics export
    "snmpAgent sendCustomTrap",
    // Inspection
    "setRingBuffersLockRetries
     requestDoHStatesDump",
    // Logging and telemetry sinks
    "setOpenTelemetryTracing",
    // Tuning
    "setUDPMultipleMessagesVectorSize setRandomizedOutgoingSockets setRandomizedIdsOverUDP
     setOutgoingDoHWorkerThreads setDoHDownstreamCleanupInterval setDoHDownstreamMaxIdleTime
     setMaxIdleDoHConnectionsPerDownstream setMaxTLSNewSessionRatePerClient setMaxTLSResumedSessionRatePerClient
     setTCPDownstreamCleanupInterval setTCPInternalPipeBufferSize setTCPUseSinglePipe",
    // Run-time
    "enableLuaConfiguration refreshRuntimeConfiguration",
    // DNSCrypt
    "generateDNSCryptProviderKeys generateDNSCryptCertificate printDNSCryptProviderFingerprint",
];

/// Actions that copy or log queries.
const OBSERVING_ACTIONS: [&str; 4] = [
    "DnstapLogAction",
    "RemoteLogAction",
    "SNMPTrapAction",
    "SetTraceAction",
];

const OBSERVING_RESPONSE_ACTIONS: [&str; 3] = [
    "DnstapLogResponseAction",
    "RemoteLogResponseAction",
    "SNMPTrapResponseAction",
];

const OBSERVING_OBJECTS: [&str; 3] = [
    "newRemoteLogger",
    "newFrameStreamUnixLogger",
    "newFrameStreamTcpLogger",
];
