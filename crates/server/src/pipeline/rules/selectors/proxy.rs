//! Selectors by what a proxy, or a rule before, says of a query.

use crate::pipeline::Env;
use crate::pipeline::query::Query;
use crate::pipeline::rules::Selector;

/// `ProxyProtocolValueRule(type [, value])`: "queries that have a proxy protocol TLV value of the specified type"; with `value`:
/// one with these octets.
pub struct ProxyProtocolValueRule {
    pub kind: u8,
    pub value: Option<Box<[u8]>>,
}

impl Selector for ProxyProtocolValueRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        let Some(extras) = query.extras.as_deref() else {
            return false;
        };
        extras.proxy_values.iter().any(|value| {
            let wanted = self.value.as_deref();
            value.kind == self.kind && wanted.is_none_or(|wanted| wanted == value.octets)
        })
    }

    fn describe(&self) -> String {
        let how = match &self.value {
            None => "is present",
            Some(_) => "matches",
        };
        format!("proxy protocol value of type {} {how}", self.kind)
    }
}
