//! Actions on responses.

use super::remember::{describe_error, set_option};
use crate::heap;
use crate::pipeline::Env;
use crate::pipeline::extras::ExtendedError;
use crate::pipeline::query::{Protocol, Query};
use crate::pipeline::rules::response::{Response, ResponseAction, ResponseOutcome};
use crate::pipeline::zone_traffic::has_signature;
use std::time::Duration;
use wire::edit::without_types;
use wire::message::parse_response;
use wire::ttl;

/// `AllowResponseAction()`: no further rule.
pub struct AllowResponseAction;

impl ResponseAction for AllowResponseAction {
    fn act(&self, _: &mut Response<'_>, _: &mut Env<'_>) -> ResponseOutcome {
        ResponseOutcome::Allow
    }

    fn describe(&self) -> String {
        "allow".to_owned()
    }
}

/// `DropResponseAction()`.
pub struct DropResponseAction;

impl ResponseAction for DropResponseAction {
    fn act(&self, _: &mut Response<'_>, _: &mut Env<'_>) -> ResponseOutcome {
        ResponseOutcome::Drop
    }

    fn describe(&self) -> String {
        "drop".to_owned()
    }
}

/// `SetSkipCacheResponseAction()`: the cache does not keep this response.
pub struct SetSkipCacheResponseAction;

impl ResponseAction for SetSkipCacheResponseAction {
    fn act(&self, response: &mut Response<'_>, _: &mut Env<'_>) -> ResponseOutcome {
        response.view.skip_cache = true;
        ResponseOutcome::Continue
    }

    fn describe(&self) -> String {
        "skip cache".to_owned()
    }
}

/// `TCResponseAction()`: takes the records out and sets TC, so that a UDP client asks again over TCP. "truncate the response,
/// removing all records from the answer, authority and additional sections if any": no further rule then.
pub struct TCResponseAction;

impl ResponseAction for TCResponseAction {
    fn act(&self, response: &mut Response<'_>, _: &mut Env<'_>) -> ResponseOutcome {
        let view = &mut response.view;
        if view.protocol != Protocol::Udp {
            return ResponseOutcome::Continue;
        }
        view.length = wire::answer::truncate_response(view.message, view.length);
        view.find_end();
        ResponseOutcome::Allow
    }

    fn describe(&self) -> String {
        "tc=1 answer".to_owned()
    }
}

/// `LimitTTLResponseAction(min [, max [, types]])`, and with one bound `SetMinTTLResponseAction` and
/// `SetMaxTTLResponseAction`.
pub struct LimitTTLResponseAction {
    /// Seconds.
    pub minimum: u32,
    /// Seconds.
    pub maximum: u32,
    /// Only records of these types; empty: all.
    pub types: Vec<u16>,
}

impl ResponseAction for LimitTTLResponseAction {
    fn act(&self, response: &mut Response<'_>, _: &mut Env<'_>) -> ResponseOutcome {
        change_ttls(&mut response.view, |rtype, ttl| {
            let meant = self.types.is_empty() || self.types.contains(&rtype);
            if meant {
                ttl.min(self.maximum).max(self.minimum)
            } else {
                ttl
            }
        });
        ResponseOutcome::Continue
    }

    fn describe(&self) -> String {
        format!("limit ttl ({} <= ttl <= {})", self.minimum, self.maximum)
    }
}

/// `SetReducedTTLResponseAction(percentage)`: to so many hundredths of what they were.
pub struct SetReducedTTLResponseAction {
    /// 0 to 100.
    pub percentage: u8,
}

impl ResponseAction for SetReducedTTLResponseAction {
    fn act(&self, response: &mut Response<'_>, _: &mut Env<'_>) -> ResponseOutcome {
        change_ttls(&mut response.view, |_, ttl| {
            (u64::from(ttl) * u64::from(self.percentage.min(100)) / 100) as u32
        });
        ResponseOutcome::Continue
    }

    fn describe(&self) -> String {
        format!("reduce ttl to {} percent of its value", self.percentage)
    }
}

/// `SetMaxReturnedTTLResponseAction(max)`: the client sees no TTL above this; the cache keeps them as they came.
pub struct SetMaxReturnedTTLResponseAction {
    /// Seconds.
    pub maximum: u32,
}

impl ResponseAction for SetMaxReturnedTTLResponseAction {
    fn act(&self, response: &mut Response<'_>, _: &mut Env<'_>) -> ResponseOutcome {
        let before = response.maximum_returned_ttl.unwrap_or(u32::MAX);
        response.maximum_returned_ttl = Some(before.min(self.maximum));
        ResponseOutcome::Continue
    }

    fn describe(&self) -> String {
        format!("set max returned ttl to {}", self.maximum)
    }
}

/// `DelayResponseAction(milliseconds)`: "UDP-only".
pub struct DelayResponseAction {
    pub delay: Duration,
}

impl ResponseAction for DelayResponseAction {
    fn act(&self, response: &mut Response<'_>, _: &mut Env<'_>) -> ResponseOutcome {
        response.view.extras().delay = self.delay;
        ResponseOutcome::Continue
    }

    fn describe(&self) -> String {
        format!("delay by {} msec", self.delay.as_millis())
    }
}

/// `SetExtendedDNSErrorResponseAction(code [, text [, clear]])`: for clients that know EDNS.
pub struct SetExtendedDNSErrorResponseAction {
    pub error: ExtendedError,
    /// In place of those that the answer has already.
    pub clear: bool,
}

impl ResponseAction for SetExtendedDNSErrorResponseAction {
    fn act(&self, response: &mut Response<'_>, _: &mut Env<'_>) -> ResponseOutcome {
        if response.client_edns {
            let extras = response.view.extras();
            extras.add_error(self.error.clone(), self.clear);
        }
        ResponseOutcome::Continue
    }

    fn describe(&self) -> String {
        describe_error(&self.error)
    }
}

/// `SetEDNSOptionResponseAction(code, data)`: for clients that know EDNS; any option with the same code is replaced. RFC 8945
/// §5.5: what is signed goes on as it is.
pub struct SetEDNSOptionResponseAction {
    pub code: u16,
    pub value: Box<[u8]>,
}

impl ResponseAction for SetEDNSOptionResponseAction {
    fn act(&self, response: &mut Response<'_>, _: &mut Env<'_>) -> ResponseOutcome {
        if response.client_edns && !has_signature(&response.view) {
            let added = response.view.marks.edns_added;
            set_option(&mut response.view, self.code, &self.value);
            response.view.marks.edns_added = added;
        }
        ResponseOutcome::Continue
    }

    fn describe(&self) -> String {
        format!("add EDNS Option (code={})", self.code)
    }
}

/// `ClearRecordTypesResponseAction(types)`: records of these types are left out. Allocates.
pub struct ClearRecordTypesResponseAction {
    pub types: Vec<u16>,
}

impl ResponseAction for ClearRecordTypesResponseAction {
    fn act(&self, response: &mut Response<'_>, _: &mut Env<'_>) -> ResponseOutcome {
        let view = &mut response.view;
        let Ok(parts) = parse_response(view.bytes()) else {
            return ResponseOutcome::Continue;
        };
        let mut left = Vec::new();
        let is_written = left.try_reserve(view.length).is_ok()
            && !heap::is_short()
            && without_types(view.bytes(), &parts, &self.types, &mut left).is_ok();
        match view.message.get_mut(..left.len()).filter(|_| is_written) {
            Some(room) => {
                room.copy_from_slice(&left);
                view.length = left.len();
            }
            // Less well compressed it may have no room, or there is no memory: then the client asks again over TCP.
            None => view.length = wire::answer::truncate_response(view.message, view.length),
        }
        view.find_end();
        ResponseOutcome::Continue
    }

    fn describe(&self) -> String {
        "clear record types".to_owned()
    }
}

/// Gives every record of the response the TTL that `change` makes of its type and TTL in seconds.
fn change_ttls(response: &mut Query<'_>, change: impl Fn(u16, u32) -> u32) {
    let message = &mut response.message[..response.length];
    if let Ok(parts) = parse_response(message) {
        // What has no records that can be read goes on as it is.
        let _ = ttl::change_each(message, &parts, change);
    }
}

/// Lowers every TTL above `maximum`, in seconds.
pub(crate) fn cap_ttls(response: &mut Query<'_>, maximum: u32) {
    change_ttls(response, |_, ttl| ttl.min(maximum));
}
