//! The stage that tells servers with `useClientSubnet` who asks: the client's network as an EDNS option (RFC 7871).
//!
//! It comes before the cache, so that what was said for one network is not given to another. A server's answer that holds
//! for all (scope 0) is kept for the query without the option, where the cache has `parseECS`.

use super::extras::Marks;
use super::query::Query;
use super::route::{self, Picked};
use super::rules::actions::remember::set_option;
use super::{Env, Verdict, cache};
use crate::backend::exchange::Waiting;
use crate::config::Config;
use ipnet::IpNet;
use std::net::IpAddr;
use wire::codes::edns_option;
use wire::edit;
use wire::message::{EdnsParts, QueryParts, parse_query, parse_response};

/// What is said of clients, where no rule says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubnetTuning {
    /// setECSOverride: in place of what the client says itself.
    pub override_existing: bool,
    /// setECSSourcePrefixV4, in bits.
    pub v4_prefix: u8,
    /// setECSSourcePrefixV6, in bits.
    pub v6_prefix: u8,
}

impl Default for SubnetTuning {
    fn default() -> SubnetTuning {
        SubnetTuning {
            override_existing: false,
            v4_prefix: 24,
            v6_prefix: 56,
        }
    }
}

/// What rules say of one query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubnetWishes {
    /// SetDisableECSAction.
    pub disabled: bool,
    /// SetECSOverrideAction.
    pub override_existing: Option<bool>,
    /// SetECSPrefixLengthAction: for IPv4 and IPv6, in bits.
    pub prefixes: Option<(u8, u8)>,
    /// SetECSAction: for clients over IPv4 and IPv6.
    pub networks: Option<(IpNet, IpNet)>,
}

/// Puts the option into a query for a server that wants it; `picked` is that server, which has been chosen then.
///
/// Cost where no server wants it: one comparison.
///
/// # Errors
/// The verdict, when the cache has an answer for all networks.
#[inline]
pub fn add<'c>(
    query: &mut Query<'_>,
    picked: &mut Option<Picked<'c>>,
    env: &mut Env<'c>,
) -> Result<(), Verdict<'c>> {
    if env.config.uses_subnets {
        *picked = add_for_chosen(query, env)?;
    }
    Ok(())
}

#[inline(never)]
fn add_for_chosen<'c>(
    query: &mut Query<'_>,
    env: &mut Env<'c>,
) -> Result<Option<Picked<'c>>, Verdict<'c>> {
    let config: &'c Config = env.config;
    let picked = route::pick_early(query, env);
    let wanted = match picked {
        Some(picked) => picked.subnets(),
        // "If at least one server is up, the preference of the selected server is used".
        None => config
            .pool(query.pool)
            .map(|pool| pool.subnets)
            .unwrap_or_default(),
    };
    let tuning = env.config.tuning.subnets;
    let wishes = query
        .extras
        .as_ref()
        .map(|extras| extras.subnet.clone())
        .unwrap_or_default();
    let existing = has_option(query);
    // RFC 8945 §5.5: whoever does not share the key of a signed message "MUST forward the message unchanged".
    let is_kept = wishes.disabled || query.parts.is_signed;
    let overrides = wishes.override_existing.unwrap_or(tuning.override_existing);
    if !wanted.are_added || is_kept || (existing && !overrides) {
        return Ok(picked);
    }
    let for_all = !existing && !wanted.disable_zero_scope;
    if for_all && let Some(verdict) = cache::answer_for_all(query, env) {
        return Err(verdict);
    }
    let network = network(query.client().ip(), &tuning, &wishes);
    // The client does not see what a server says of this network, even where it has named one itself: RFC 7871 §7.3 would have
    // it drop a response about another network.
    if set_option(query, edns_option::ECS, &value(network)) {
        query.marks.subnet_added = true;
        query.marks.zero_scope = for_all;
    }
    Ok(picked)
}

fn has_option(query: &Query<'_>) -> bool {
    let edns = query.parts.edns;
    edns.is_some_and(|edns| edns.option(query.message, edns_option::ECS).is_some())
}

/// The option that says who `client` is, where no rule says otherwise.
pub fn said_of(client: IpAddr, tuning: &SubnetTuning) -> Vec<u8> {
    value(network(client, tuning, &SubnetWishes::default()))
}

fn network(client: IpAddr, tuning: &SubnetTuning, wishes: &SubnetWishes) -> IpNet {
    if let Some((v4, v6)) = wishes.networks {
        return if client.is_ipv4() { v4 } else { v6 };
    }
    let (v4, v6) = wishes
        .prefixes
        .unwrap_or((tuning.v4_prefix, tuning.v6_prefix));
    let prefix = if client.is_ipv4() {
        v4.min(32)
    } else {
        v6.min(128)
    };
    IpNet::new(client, prefix).expect("a prefix within the address")
}

/// The option's octets (RFC 7871 §6). "ADDRESS … truncated to the number of bits indicated by the SOURCE PREFIX-LENGTH
/// field, padding with 0 bits to pad to the end of the last octet needed."
///
/// ```text
/// family 2 │ source prefix 1 │ scope prefix 1 = 0 │ address …
/// ```
fn value(network: IpNet) -> Vec<u8> {
    let prefix = network.prefix_len();
    let octets = usize::from(prefix).div_ceil(8);
    let mut value = Vec::with_capacity(4 + octets);
    match network.network() {
        IpAddr::V4(address) => {
            value.extend([0, 1, prefix, 0]);
            value.extend(&address.octets()[..octets]);
        }
        IpAddr::V6(address) => {
            value.extend([0, 2, prefix, 0]);
            value.extend(&address.octets()[..octets]);
        }
    }
    value
}

/// Whether the response says that it holds for all networks: "a SCOPE PREFIX-LENGTH of 0" (RFC 7871 §7.2.1).
pub(super) fn is_for_all(marks: Marks, response: &Query<'_>) -> bool {
    if !marks.zero_scope {
        return false;
    }
    let edns = parse_response(response.bytes())
        .ok()
        .and_then(|parts| parts.edns);
    edns.is_some_and(|edns| {
        let mut options = edns.options(response.message);
        options.any(|option| option.code == edns_option::ECS && option.value.get(3) == Some(&0))
    })
}

/// Takes out of the query that waited what this stage has put in: the cache keeps the answer for what is left. An OPT record
/// with options that rules have put there was there before.
pub(super) fn take_out(waiting: &mut Waiting) -> Option<QueryParts> {
    // Of a long query only the front is there, and its answer is for no cache.
    let is_whole = |edns: &EdnsParts| usize::from(edns.end) <= waiting.query_length;
    let edns = waiting.parts.edns.filter(is_whole)?;
    let places = (waiting.parts.question_end, waiting.query_length);
    let (mut length, edns) =
        edit::remove_options(&mut waiting.query, places, edns, edns_option::ECS);
    if waiting.marks.edns_added && edns.options(&waiting.query).next().is_none() {
        let places = (waiting.parts.question_end, length);
        length = edit::remove_opt(&mut waiting.query, places, edns);
    }
    waiting.query_length = length;
    parse_query(&waiting.query[..length]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::fixture;
    use crate::backend::policy::Policy;
    use crate::backend::pool::Pool;
    use crate::backend::server::HealthMode;
    use crate::pipeline::scene::{Scene, query, query_with_edns};
    use std::sync::Arc;
    use wire::codes::qtype;

    fn scene() -> Scene {
        let mut scene = Scene::default();
        let mut options = fixture::options("192.0.2.53:53");
        options.use_client_subnet = true;
        let server = Arc::new(fixture::server(1, options));
        scene.change(|config| {
            config.pools = vec![Some(fixture::pool("", &[server]))];
            config.uses_subnets = true;
        });
        scene
    }

    /// The server that is chosen then, if one is; nothing is cached.
    fn picked_by<'c>(query: &mut Query<'_>, env: &mut Env<'c>) -> Option<Picked<'c>> {
        let mut picked = None;
        assert!(add(query, &mut picked, env).is_ok());
        picked
    }

    /// The option that the server gets, and the marks.
    fn added(scene: &mut Scene, message: &[u8], wishes: SubnetWishes) -> (Option<Vec<u8>>, Marks) {
        scene.examine(message, |query, env| {
            query.extras().subnet = wishes;
            let picked = picked_by(query, env);
            assert!(picked.is_some());
            let parts = parse_query(query.bytes()).expect("a query still");
            assert_eq!(parts, query.parts);
            let option = parts.edns.and_then(|edns| edns.option(query.message, 8));
            (option.map(<[u8]>::to_vec), query.marks)
        })
    }

    #[test]
    fn the_clients_network_is_said() {
        let mut scene = scene();
        let plain = query("a.", qtype::A);
        let (option, marks) = added(&mut scene, &plain, SubnetWishes::default());
        assert_eq!(option.unwrap(), [0, 1, 24, 0, 192, 0, 2]);
        assert!(marks.edns_added && marks.subnet_added);
        scene.client = "[2001:db8:1:2ff::9]:1".parse().unwrap();
        let edns = query_with_edns("a.", qtype::A, Some(1_232));
        let (option, marks) = added(&mut scene, &edns, SubnetWishes::default());
        assert_eq!(
            option.unwrap(),
            [0, 2, 56, 0, 0x20, 0x01, 0x0d, 0xb8, 0, 1, 2]
        );
        assert!(!marks.edns_added && marks.subnet_added);
    }

    #[test]
    fn where_no_server_is_up_the_pool_says_whether_the_network_is_said() {
        for wanted in [true, false] {
            let server = fixture::server(1, fixture::options("192.0.2.53:53"));
            server.state.set_mode(HealthMode::Down);
            let mut pool = Pool::clone(&fixture::pool("", &[Arc::new(server)]));
            pool.subnets.are_added = wanted;
            let mut scene = Scene::default();
            scene.change(|config| {
                config.pools = vec![Some(Arc::new(pool))];
                config.uses_subnets = true;
            });
            let marks = scene.examine(&query("a.", qtype::A), |query, env| {
                let picked = picked_by(query, env);
                assert!(picked.is_none());
                query.marks
            });
            assert_eq!((marks.subnet_added, marks.zero_scope), (wanted, wanted));
        }
    }

    /// Several servers get the same query: one that is not to know of the client would be told.
    #[test]
    fn several_servers_are_told_what_all_of_them_want() {
        for (policy, others, expected) in [
            (Policy::LeastOutstanding, false, true),
            (Policy::Race { width: 0 }, false, false),
            (Policy::Hedge, false, false),
            (Policy::Race { width: 2 }, true, true),
        ] {
            let servers = [(1, true), (2, others)].map(|(number, wants)| {
                let mut options = fixture::options("192.0.2.53:53");
                options.use_client_subnet = wants;
                Arc::new(fixture::server(number, options))
            });
            let mut pool = Pool::clone(&fixture::pool("", &servers));
            pool.policy = policy;
            let mut scene = Scene::default();
            scene.change(|config| {
                config.pools = vec![Some(Arc::new(pool))];
                config.uses_subnets = true;
            });
            let plain = query("a.", qtype::A);
            let (option, _) = added(&mut scene, &plain, SubnetWishes::default());
            assert_eq!(option.is_some(), expected, "{policy:?}");
        }
    }

    /// The server has to be known before the cache is asked, but what the cache answers does not use up its `qps`.
    #[test]
    fn a_server_is_counted_when_it_is_asked() {
        let mut options = fixture::options("192.0.2.53:53");
        (options.use_client_subnet, options.qps) = (true, 1);
        let server = Arc::new(fixture::server(1, options));
        let mut pool = Pool::clone(&fixture::pool("", &[Arc::clone(&server)]));
        pool.policy = Policy::FirstAvailable;
        let mut scene = Scene::default();
        scene.change(|config| {
            config.pools = vec![Some(Arc::new(pool))];
            config.uses_subnets = true;
        });
        let now = scene.now;
        scene.examine(&query("a.", qtype::A), |query, env| {
            let picked = picked_by(query, env);
            assert!(picked.is_some() && server.would_be_within_rate(now));
            route::choose(query, picked, env);
            assert!(!server.would_be_within_rate(now));
        });
    }

    #[test]
    fn rules_say_otherwise() {
        let mut scene = scene();
        let plain = query("a.", qtype::A);
        let mut with = |wishes| added(&mut scene, &plain, wishes).0;
        let disabled = SubnetWishes {
            disabled: true,
            ..SubnetWishes::default()
        };
        assert_eq!(with(disabled), None);
        let prefixes = SubnetWishes {
            prefixes: Some((20, 32)),
            ..SubnetWishes::default()
        };
        assert_eq!(with(prefixes).unwrap(), [0, 1, 20, 0, 192, 0, 0]);
        let network: IpNet = "198.51.100.0/22".parse().unwrap();
        let networks = SubnetWishes {
            networks: Some((network, network)),
            ..SubnetWishes::default()
        };
        assert_eq!(with(networks).unwrap(), [0, 1, 22, 0, 198, 51, 100]);
    }

    #[test]
    fn what_the_client_says_stays_unless_it_is_overridden() {
        let mut scene = scene();
        let mut message = query_with_edns("a.", qtype::A, Some(1_232));
        let own = [0, 1, 16, 0, 10, 1];
        let at = message.len() - 1;
        message[at] = 4 + own.len() as u8;
        message.extend([0, 8, 0, own.len() as u8]);
        message.extend(own);
        let (option, marks) = added(&mut scene, &message, SubnetWishes::default());
        assert_eq!((option.unwrap(), marks), (own.to_vec(), Marks::default()));
        let wishes = SubnetWishes {
            override_existing: Some(true),
            ..SubnetWishes::default()
        };
        let (option, marks) = added(&mut scene, &message, wishes);
        assert_eq!(option.unwrap(), [0, 1, 24, 0, 192, 0, 2]);
        let taken_out = Marks {
            subnet_added: true,
            ..Marks::default()
        };
        assert_eq!(marks, taken_out, "the answer is about another network");
    }

    #[test]
    fn a_signed_query_goes_on_as_it_came() {
        let mut signed = query("a.", qtype::A);
        signed[11] = 1;
        signed.extend([0, 0, qtype::TSIG as u8, 0, 255, 0, 0, 0, 0, 0, 0]);
        let (option, marks) = added(&mut scene(), &signed, SubnetWishes::default());
        assert_eq!((option, marks), (None, Marks::default()));
    }

    /// The option that a rule has put into the query makes its answer another one.
    #[test]
    fn an_answer_for_all_is_kept_for_the_query_as_rules_have_left_it() {
        let plain = query("a.", qtype::A);
        let edns = query_with_edns("a.", qtype::A, Some(1_232));
        let option: &[u8] = b"abc";
        for (message, option) in [
            (&plain, None),
            (&plain, Some(option)),
            (&edns, None),
            (&edns, Some(option)),
        ] {
            scene().examine(message, |query, env| {
                if let Some(value) = option {
                    assert!(set_option(query, 65_001, value));
                }
                let asked = query.bytes().to_vec();
                picked_by(query, env);
                assert!(query.marks.zero_scope);
                let mut waiting = Waiting::new();
                waiting.query[..query.length].copy_from_slice(query.bytes());
                waiting.query_length = query.length;
                (waiting.parts, waiting.marks) = (query.parts, query.marks);
                assert!(take_out(&mut waiting).is_some());
                assert_eq!(waiting.message(), asked);
            });
        }
    }
}
