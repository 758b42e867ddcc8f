//! Actions on what backends are told by the PROXY protocol (`useProxyProtocol`).

use crate::pipeline::Env;
use crate::pipeline::proxy::values::Values;
use crate::pipeline::query::Query;
use crate::pipeline::rules::{Action, Outcome};

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
        "set Proxy-Protocol values".to_owned()
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
        format!("add a Proxy-Protocol value of type {}", self.kind)
    }
}
