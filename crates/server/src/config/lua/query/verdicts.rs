//! What functions of the configuration return, and what becomes of the query or response then.

use super::super::callback::{Callback, Limit};
use super::super::objects::pool;
use super::super::options::shown;
use super::super::wrong;
use super::object;
use super::subject::{Origin, Shared, Subject};
use super::{answers, asynchronous};
use crate::counters::Counter;
use crate::pipeline::drop::DropReason;
use crate::pipeline::query::{Protocol, Query};
use crate::pipeline::rules::response::{Response, ResponseAction, ResponseOutcome};
use crate::pipeline::rules::{Action, Outcome, Selector};
use crate::pipeline::{Env, HandOverReason, respond};
use mlua::{Lua, LuaString, Value};
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use wire::codes::rcode;
use wire::message::HEADER_LENGTH;
use wire::name::NameBuf;

/// `LuaAction(function)`: the function of `dq` returns a DNSAction, and a text where the action needs one.
pub(super) struct LuaAction(pub(super) Callback);

impl Action for LuaAction {
    fn act(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> Outcome {
        let config = env.config;
        let wish = config.lua.as_ref().and_then(|state| {
            self.0.call(state, env.now, Limit::QUERY, |lua, function| {
                let object = object(lua, |objects| &objects.query)?;
                let origin = Origin::of_action(query, env);
                Subject::lend(&object.subject, query, origin, env, || {
                    let returned = function.call(&object.value)?;
                    wish(lua, &object.subject, returned)
                })
            })
        });
        if asynchronous::is_suspended(query) {
            return Outcome::HandOver(HandOverReason::Suspended);
        }
        // The manual: "If the Lua code fails, ServFail is returned."
        grant(wish.unwrap_or(Wish::Rcode(rcode::SERVFAIL)), query, env)
    }

    fn describe(&self) -> String {
        "Lua script".to_owned()
    }
}

/// What an action wants for the query.
enum Wish {
    Continue,
    Allow,
    Drop,
    Rcode(u16),
    Truncate,
}

/// By the numbers of the table `DNSAction`.
fn wish(
    lua: &Lua,
    subject: &Shared,
    (action, text): (Value, Option<LuaString>),
) -> mlua::Result<Wish> {
    let action = number(&action, "DNSAction")?;
    let octets = || match &text {
        Some(text) => Ok(text.as_bytes().to_vec()),
        None => Err(wrong(
            "this DNSAction needs a second value: return DNSAction.…, '…'",
        )),
    };
    let text = || Ok::<_, mlua::Error>(String::from_utf8_lossy(&octets()?).into_owned());
    let change =
        |change: &dyn Fn(&mut Subject) -> mlua::Result<()>| Subject::change(subject, change);
    match action {
        0 => return Ok(Wish::Drop),
        1 => return Ok(Wish::Rcode(rcode::NXDOMAIN)),
        2 => return Ok(Wish::Rcode(rcode::REFUSED)),
        3 => {
            let text = text()?;
            change(&|subject| spoof(subject, &text))?;
        }
        // An answer that the function made is sent once no further rule is tried.
        4 | 5 => {}
        6 => {
            // Without a name: the default pool.
            let name = octets().unwrap_or_default();
            let number = pool::number(lua, &String::from_utf8_lossy(&name))?;
            change(&|subject| {
                subject.pool = number;
                Ok(())
            })?;
        }
        7 => {
            let delay = milliseconds(&text()?)?;
            change(&|subject| {
                subject.extras().delay = delay;
                Ok(())
            })?;
            return Ok(Wish::Continue);
        }
        8 => return Ok(Wish::Truncate),
        9 => return Ok(Wish::Rcode(rcode::SERVFAIL)),
        // None, NoOp, SetTag.
        10 | 11 | 15 => return Ok(Wish::Continue),
        // No further rule then, as with dnsdist 1.7.3.
        12 => change(&|subject| {
            subject.edit_header(|header| header.set_rd(false));
            Ok(())
        })?,
        13 => {
            let data = octets()?;
            change(&|subject| answers::spoof_raw(subject, std::slice::from_ref(&data), None))?;
        }
        14 => {
            let data = octets()?;
            change(&|subject| packet(subject, &data))?;
        }
        other => return Err(wrong(format!("{other} is not a DNSAction"))),
    }
    Ok(Wish::Allow)
}

/// What a function returned first.
fn number(value: &Value, table: &str) -> mlua::Result<i64> {
    match value {
        Value::Integer(number) => Ok(*number),
        other => {
            let shown = shown(other);
            Err(wrong(format!(
                "it must return a {table}, but returned {shown}"
            )))
        }
    }
}

/// "spoof the response using the supplied IPv4 (A), IPv6 (AAAA) or string (CNAME) value". Several addresses stand with commas or
/// spaces between them, as dnsdist 1.7.3 takes them; without a value there is nothing to answer.
fn spoof(subject: &mut Subject, text: &str) -> mlua::Result<()> {
    let values = text.split([',', ' ']).filter(|value| !value.is_empty());
    if let Some(addresses) = values.map(address).collect::<Option<Vec<_>>>() {
        return answers::spoof_addresses(subject, &addresses);
    }
    let name: NameBuf = text.parse().map_err(|error| {
        wrong(format!(
            "'{text}' is neither an address nor a name: {error}"
        ))
    })?;
    answers::spoof_alias(subject, &name)
}

/// What dnsdist 1.7.3 takes for an address: `192.0.2.1`, `192.0.2.1:53`, and an IPv4 address as one number, `3221225985`.
fn address(value: &str) -> Option<IpAddr> {
    if let Ok(address) = value.parse::<IpAddr>() {
        return Some(address);
    }
    if let Ok(address) = value.parse::<SocketAddr>() {
        return Some(address.ip());
    }
    let is_number = value.bytes().all(|octet| octet.is_ascii_digit());
    let bits: u32 = value.parse().ok().filter(|_| is_number)?;
    Some(Ipv4Addr::from_bits(bits).into())
}

/// A whole answer, but for its ID.
fn packet(subject: &mut Subject, octets: &[u8]) -> mlua::Result<()> {
    let mut message = octets.to_vec();
    if message.len() >= HEADER_LENGTH {
        message[..2].copy_from_slice(&subject.header().id().to_be_bytes());
        // QR.
        message[2] |= 0x80;
    }
    if !subject.replace(message) {
        return Err(wrong(
            "SpoofPacket: a DNS message with the question expected",
        ));
    }
    subject.composed = true;
    Ok(())
}

fn milliseconds(text: &str) -> mlua::Result<Duration> {
    let number = text
        .parse()
        .map_err(|_| wrong(format!("Delay: milliseconds expected, got '{text}'")))?;
    Ok(Duration::from_millis(number))
}

fn grant(wish: Wish, query: &mut Query<'_>, env: &mut Env<'_>) -> Outcome {
    match wish {
        Wish::Continue => Outcome::Continue,
        // An answer is sent when the chain has ended.
        Wish::Allow => Outcome::Allow,
        Wish::Drop => Outcome::Drop(DropReason::Rule),
        Wish::Truncate if query.protocol == Protocol::Tcp => Outcome::Continue,
        Wish::Truncate => {
            env.shard.count(Counter::RuleTruncated);
            Outcome::Answer(respond::truncated(query, env))
        }
        Wish::Rcode(code) => {
            env.shard.count(match code {
                rcode::NXDOMAIN => Counter::RuleNxdomain,
                rcode::REFUSED => Counter::RuleRefused,
                _ => Counter::RuleServfail,
            });
            let length = respond::with_rcode(query, env, code);
            // Of these dnsdist 1.7.3 makes an answer by QR and RCODE alone.
            respond::edit_header(query.message, |header| header.set_ra(false));
            Outcome::Answer(length)
        }
    }
}

/// `LuaRule(function)`: matches where the function of `dq` returns true.
pub(super) struct LuaRule(pub(super) Callback);

impl Selector for LuaRule {
    fn matches(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> bool {
        let config = env.config;
        let matches = config.lua.as_ref().and_then(|state| {
            self.0.call(state, env.now, Limit::QUERY, |lua, function| {
                let object = object(lua, |objects| &objects.query)?;
                Subject::lend(&object.subject, query, Origin::query(env), env, || {
                    let returned: Value = function.call(&object.value)?;
                    is_match(&returned)
                })
            })
        });
        matches.unwrap_or(false)
    }

    fn describe(&self) -> String {
        "Lua script".to_owned()
    }
}

/// Whether a rule matches whose function has returned this. Numbers and texts are errors, as in dnsdist: Lua would take all of
/// them for true.
fn is_match(returned: &Value) -> mlua::Result<bool> {
    match returned {
        Value::Boolean(matches) => Ok(*matches),
        Value::Nil => Ok(false),
        other => Err(wrong(format!(
            "it must return true or false, but returned {}",
            shown(other)
        ))),
    }
}

/// `LuaResponseAction(function)`: the function of `dr` returns a DNSResponseAction, and a text where the action needs one.
pub(super) struct LuaResponseAction(pub(super) Callback);

impl ResponseAction for LuaResponseAction {
    fn act(&self, response: &mut Response<'_>, env: &mut Env<'_>) -> ResponseOutcome {
        let config = env.config;
        let origin = Origin {
            asked: response.asked,
            server: response.server,
            may_wait: response.may_wait && !env.is_rehearsal() && !response.view.parts.is_signed,
        };
        let outcome = config.lua.as_ref().and_then(|state| {
            self.0.call(state, env.now, Limit::QUERY, |lua, function| {
                let object = object(lua, |objects| &objects.response)?;
                let view = &mut response.view;
                Subject::lend(&object.subject, view, origin, env, || {
                    let returned = function.call(&object.value)?;
                    outcome(&object.subject, returned)
                })
            })
        });
        if asynchronous::is_suspended(&response.view) {
            // No further rule: the stage sees it, too.
            return ResponseOutcome::Allow;
        }
        outcome.unwrap_or_else(|| {
            // The manual: "If the Lua code fails, ServFail is returned."
            respond::edit_header(response.view.message, |header| {
                header.set_rcode(rcode::SERVFAIL as u8);
            });
            ResponseOutcome::Allow
        })
    }

    fn describe(&self) -> String {
        "Lua response script".to_owned()
    }
}

/// By the numbers of the table `DNSResponseAction`.
fn outcome(
    subject: &Shared,
    (action, text): (Value, Option<LuaString>),
) -> mlua::Result<ResponseOutcome> {
    match number(&action, "DNSResponseAction")? {
        // Allow, HeaderModify.
        0 | 3 => Ok(ResponseOutcome::Allow),
        1 => {
            let text = text.map(|text| text.to_string_lossy()).unwrap_or_default();
            let delay = milliseconds(&text)?;
            Subject::change(subject, &|subject| {
                subject.extras().delay = delay;
                Ok(())
            })?;
            Ok(ResponseOutcome::Continue)
        }
        2 => Ok(ResponseOutcome::Drop),
        4 => {
            Subject::change(subject, &|subject| {
                subject.edit_header(|header| header.set_rcode(rcode::SERVFAIL as u8));
                Ok(())
            })?;
            Ok(ResponseOutcome::Allow)
        }
        6 => truncate(subject),
        // None, and what is none of these: many files return DNSAction.None, 10, and dnsdist 1.7.3 goes on to the next rule.
        _ => Ok(ResponseOutcome::Continue),
    }
}

/// "truncate the response, removing all records from the answer, authority and additional sections if any", as
/// TCResponseAction does: over TCP nothing is cut.
fn truncate(subject: &Shared) -> mlua::Result<ResponseOutcome> {
    let cut = Cell::new(false);
    Subject::change(subject, &|subject| {
        cut.set(subject.protocol == Protocol::Udp);
        if cut.get() {
            subject.truncate();
        }
        Ok(())
    })?;
    Ok(match cut.get() {
        true => ResponseOutcome::Allow,
        false => ResponseOutcome::Continue,
    })
}
