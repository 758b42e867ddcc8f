//! Actions on what backends are told by the PROXY protocol (`useProxyProtocol`).

use crate::pipeline::Env;
use crate::pipeline::proxy::values::Values;
use crate::pipeline::query::Query;
use crate::pipeline::rules::{Action, Outcome};
use std::fmt::Write;

/// `SetProxyProtocolValuesAction(values)`: in place of all that are there, received ones too.
pub struct SetProxyProtocolValuesAction {
    pub values: Values,
}

impl Action for SetProxyProtocolValuesAction {
    fn act(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
        query.extras().proxy_values = self.values.clone();
        Outcome::Continue
    }

    fn describe(&self) -> String {
        let mut text = "set Proxy-Protocol values:".to_owned();
        for value in self.values.iter() {
            let octets = String::from_utf8_lossy(value.octets);
            // Writing to a String cannot fail.
            let _ = write!(text, " {}={octets}", value.kind);
        }
        text
    }
}

/// `SetAdditionalProxyProtocolValueAction(type, value)`: behind those that are there.
pub struct SetAdditionalProxyProtocolValueAction {
    pub kind: u8,
    pub octets: Box<[u8]>,
}

impl Action for SetAdditionalProxyProtocolValueAction {
    fn act(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
        query.extras().proxy_values.add(self.kind, &self.octets);
        Outcome::Continue
    }

    fn describe(&self) -> String {
        let octets = String::from_utf8_lossy(&self.octets);
        format!("add Proxy-Protocol value of type {}: {octets}", self.kind)
    }
}
