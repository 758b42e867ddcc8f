//! Listeners that answer nobody over UDP: ClientState.muted.

use super::Env;
use super::query::{Protocol, Query};
use super::rules::actions::response::DropResponseAction;
use super::rules::response::ResponseRule;
use super::rules::{Chains, Selector};
use crate::config::Config;
use std::net::SocketAddr;

/// "queries received on this frontend will be normally processed and sent to a backend if needed, but no response will be ever
/// be sent to the client over UDP": a rule before all others sees to it, so that nobody else pays for it.
pub fn mute(chains: &mut Chains) {
    for chain in [
        &mut chains.response,
        &mut chains.cache_hit,
        &mut chains.self_answered,
    ] {
        chain.insert(0, ResponseRule::new(MutedRule, DropResponseAction));
    }
}

/// Whether the client who sent to `destination` is answered.
pub fn is_muted(config: &Config, destination: SocketAddr, protocol: Protocol) -> bool {
    protocol == Protocol::Udp
        && !config.muted.is_empty()
        && config.listener_of(&destination).is_some_and(|place| {
            let listener = &config.listeners[usize::from(place)];
            config.muted.contains(&listener.address)
        })
}

struct MutedRule;

impl Selector for MutedRule {
    fn matches(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> bool {
        is_muted(env.config, *query.destination(), query.protocol)
    }

    fn describe(&self) -> String {
        "muted".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use crate::config::LuaState;
    use crate::config::pools::PoolNames;
    use crate::config::spec::{Purpose, Spec};
    use crate::pipeline::drop::DropReason;
    use crate::pipeline::query::Protocol;
    use crate::pipeline::scene::{Reply, Scene, query};
    use std::sync::Arc;
    use wire::codes::qtype;

    fn scene(muted: &str) -> Scene {
        let state = LuaState::new(Spec::new(Purpose::Serve, PoolNames::default())).unwrap();
        let text =
            b"setACL('0.0.0.0/0') addLocal('192.0.2.1') addAction(AllRule(), RCodeAction(5))";
        state.run("test.conf", text).unwrap();
        state.edit(|spec| spec.muted.insert(muted.parse().unwrap()));
        let mut scene = Scene::default();
        scene.config = Arc::new(Arc::new(state).derive(None).unwrap());
        scene
    }

    #[test]
    fn a_muted_listener_answers_over_tcp_alone() {
        let asked = query("a.", qtype::A);
        let empty = [0x12, 0x34, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let (mut muted, mut other) = (scene("192.0.2.1:53"), scene("192.0.2.2:53"));
        for message in [&asked[..], &empty] {
            let reply = muted.ask(message);
            assert_eq!(reply, Reply::Drop(DropReason::ResponseRule));
            assert!(matches!(other.ask(message), Reply::Answer(_)));
        }
        muted.protocol = Protocol::Tcp;
        assert!(matches!(muted.ask(&asked), Reply::Answer(_)));
    }
}
