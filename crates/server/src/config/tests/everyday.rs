//! The everyday part of the dialect, word by word: selectors, actions under each of their names, policies, and methods of
//! objects.

use super::*;
use crate::backend::policy::PolicyTuning;
use crate::counters::Lane;

/// How the first rule's selector and action are shown.
fn shown(text: &str) -> (String, String) {
    let rule = &config(text).rules[0];
    (rule.selector.describe(), rule.action.describe())
}

#[test]
fn selectors_with_all_their_parameters() {
    for (selector, expected) in [
        ("AllRule()", "All"),
        ("NotRule(RDRule())", "!(rd==1)"),
        (
            "AndRule({TCPRule(true), DNSSECRule()})",
            "(TCP) && (DNSSEC)",
        ),
        ("TCPRule(false)", "UDP"),
        ("QNameSuffixRule({'b', 'a'})", "qname in a., b."),
        ("QNameSuffixRule('a', false)", "qname in a."),
        ("SuffixMatchNodeRule('a', true)", "qname==in-set"),
        (
            "NetmaskGroupRule('192.0.2.0/24', true, true)",
            "Src: in-group",
        ),
        (
            "NetmaskGroupRule({'192.0.2.1'}, false)",
            "Dst: 192.0.2.1/32",
        ),
        ("QTypeRule(DNSQType.AAAA)", "qtype==AAAA"),
        ("QTypeRule('AAAA')", "qtype==AAAA"),
        ("QClassRule(DNSClass.CHAOS)", "qclass==3"),
        ("OpcodeRule(DNSOpcode.Update)", "opcode==5"),
        ("RCodeRule(DNSRCode.NXDOMAIN)", "rcode==Non-Existent domain"),
        ("RegexRule('[0-9]{5,}')", "Regex: [0-9]{5,}"),
        ("RE2Rule('[0-9]{5,}')", "RE2 match: [0-9]{5,}"),
        ("TagRule('k')", "tag 'k' is set"),
        ("TagRule('k', 'v')", "tag 'k' is set to 'v'"),
        ("MaxQPSRule(5)", "Max 5 qps"),
        (
            "MaxQPSIPRule(5)",
            "IP (/32, /64) match for QPS over 5 burst 5",
        ),
        (
            "MaxQPSIPRule(5, 24, 48, 10, 300, 60, 10, 10)",
            "IP (/24, /48) match for QPS over 5 burst 10",
        ),
        ("DSTPortRule(53)", "dst port==53"),
        ("PoolAvailableRule('p')", "pool 'p' is available"),
        ("PoolOutstandingRule('p', 5)", "pool 'p' outstanding > 5"),
        ("ProbaRule(0.5)", "match with prob. 0.50"),
    ] {
        let (found, _) = shown(&format!("addAction({selector}, DropAction())"));
        assert_eq!(found, expected, "{selector}");
    }
}

/// The manual on getMatches: "if the same selector is reused for different DNSDistRuleAction objects, the counter will be
/// common to all these objects".
#[test]
fn a_selector_tells_how_often_its_rules_matched() {
    let state = state(
        "asked, other = QNameRule('a'), QNameRule('a')
         addAction(asked, NoneAction())
         addAction(AndRule({asked, other}), NoneAction())
         addResponseAction(asked, AllowResponseAction())",
        None,
    )
    .unwrap();
    let config = state.derive(None).unwrap();
    config.rules[0].matches.count(Lane::SHARED);
    config.rules[1].matches.count(Lane::SHARED);
    config.chains.response[0].matches.count(Lane::SHARED);
    for (text, expected) in [
        ("asked:getMatches()", "2\n"),
        ("getRule(0):getSelector():getMatches()", "2\n"),
        ("other:getMatches()", "0\n"),
        ("getRule(1):getSelector():getMatches()", "1\n"),
    ] {
        assert_eq!(state.command(text).text, expected, "{text}");
    }
}

#[test]
fn a_pair_for_set_rules_tells_its_parts() {
    let text = "pair = newRuleAction(QNameRule('a'), DropAction()) setRules({pair})";
    let state = state(text, None).unwrap();
    for (text, expected) in [
        ("pair:getSelector():toString()", "qname==a.\n"),
        ("pair:getSelector():getMatches()", "0\n"),
        ("pair:getAction():toString()", "drop\n"),
    ] {
        assert_eq!(state.command(text).text, expected, "{text}");
    }
}

#[test]
fn actions_with_all_their_parameters() {
    for (action, expected) in [
        ("AllowAction()", "allow"),
        ("DropAction()", "drop"),
        ("NoneAction()", "no op"),
        ("ContinueAction(DropAction())", "continue after: drop"),
        ("PoolAction('p', false)", "to pool p"),
        ("QPSAction(3)", "qps limit to 3"),
        ("QPSPoolAction(3, 'p', false)", "max 3 to pool p"),
        (
            "RCodeAction(DNSRCode.REFUSED, {aa=true, ad=true, ra=true})",
            "set rcode 5",
        ),
        ("TCAction()", "tc=1 answer"),
        ("DelayAction(100)", "delay by 100 msec"),
        ("LogAction()", "log"),
        ("LogAction('', false, true, true, false, true)", "log"),
        (
            "LogAction('/tmp/everyday', true, false, false)",
            "log to /tmp/everyday",
        ),
        (
            "SpoofAction({'192.0.2.1', '2001:db8::1'}, {aa=true, ttl=5})",
            "spoof in 192.0.2.1 2001:db8::1",
        ),
        (
            "SpoofAction('192.0.2.1', '2001:db8::1', {ttl=5})",
            "spoof in 192.0.2.1 2001:db8::1",
        ),
        ("LuaAction(function() end)", "Lua script"),
        ("LuaAction('tostring')", "Lua script"),
    ] {
        let (_, found) = shown(&format!("addAction(AllRule(), {action})"));
        assert_eq!(found, expected, "{action}");
    }
}

/// The manual: before 1.6 they had no `Set`.
#[test]
fn actions_have_their_former_names_too() {
    let soa = "(true, 'a', 60, 'b', 'c', 1, 2, 3, 4, 5)";
    for (former, name, arguments, expected) in [
        (
            "DisableECSAction",
            "SetDisableECSAction",
            "()",
            "disable ECS",
        ),
        (
            "DisableValidationAction",
            "SetDisableValidationAction",
            "()",
            "set cd=1",
        ),
        (
            "ECSOverrideAction",
            "SetECSOverrideAction",
            "(true)",
            "set ECS override to 1",
        ),
        (
            "ECSPrefixLengthAction",
            "SetECSPrefixLengthAction",
            "(24, 56)",
            "set ECS prefix length to 24/56",
        ),
        (
            "MacAddrAction",
            "SetMacAddrAction",
            "(5)",
            "add EDNS MAC (code=5)",
        ),
        ("NoRecurseAction", "SetNoRecurseAction", "()", "set rd=0"),
        (
            "SetNegativeAndSOAAction",
            "NegativeAndSOAAction",
            soa,
            "NXD with SOA",
        ),
        ("SkipCacheAction", "SetSkipCacheAction", "()", "skip cache"),
        (
            "TagAction",
            "SetTagAction",
            "('k', 'v')",
            "set tag 'k' to value 'v'",
        ),
        (
            "TempFailureCacheTTLAction",
            "SetTempFailureCacheTTLAction",
            "(7)",
            "set tempfailure cache ttl to 7",
        ),
    ] {
        for name in [former, name] {
            let (_, found) = shown(&format!("addAction(AllRule(), {name}{arguments})"));
            assert_eq!(found, expected, "{name}");
        }
    }
}

#[test]
fn actions_on_responses_with_all_their_parameters() {
    for (action, expected) in [
        ("AllowResponseAction()", "allow"),
        ("DropResponseAction()", "drop"),
        ("DelayResponseAction(5)", "delay by 5 msec"),
        ("LogResponseAction()", "log"),
        ("LogResponseAction('', true, true, false, true)", "log"),
        ("LuaResponseAction(function() end)", "Lua response script"),
        ("SetSkipCacheResponseAction()", "skip cache"),
        ("SetTagResponseAction('k', 'v')", "set tag 'k' to value 'v'"),
        ("TagResponseAction('k', 'v')", "set tag 'k' to value 'v'"),
        ("UnsetTagResponseAction('k')", "unset tag 'k'"),
        ("TCResponseAction()", "tc=1 answer"),
        (
            "LimitTTLResponseAction(1, 2, {DNSQType.A})",
            "limit ttl (1 <= ttl <= 2)",
        ),
        (
            "SetMinTTLResponseAction(3)",
            "limit ttl (3 <= ttl <= 4294967295)",
        ),
        (
            "SetMaxReturnedTTLResponseAction(9)",
            "set max returned ttl to 9",
        ),
        (
            "SetReducedTTLResponseAction(50)",
            "reduce ttl to 50 percent of its value",
        ),
    ] {
        let read = config(&format!("addResponseAction(AllRule(), {action})"));
        let found = read.chains.response[0].action.describe();
        assert_eq!(found, expected, "{action}");
    }
}

#[test]
fn every_policy_serves_all_pools_or_one() {
    for (name, policy) in Policy::ALL {
        let server = "newServer{address='192.0.2.1', pool={'', 'p'}}";
        for (set, expected) in [
            (format!("setServerPolicy({name})"), [policy, policy]),
            (
                format!("setServerPolicy(roundrobin) setPoolServerPolicy({name}, 'p')"),
                [Policy::RoundRobin, policy],
            ),
        ] {
            let read = config(&format!("{server} {set}"));
            let other = read.pool_names.find("p").unwrap();
            let pools = [PoolId::DEFAULT, other].map(|pool| read.pool(pool));
            let found = pools.map(|pool| pool.unwrap().policy);
            assert_eq!(found, expected, "{set}");
        }
    }
}

/// What asked several servers at once asks the one that the function names.
#[test]
fn a_function_takes_the_place_of_a_policy() {
    for set in [
        "setServerPolicy(race) setServerPolicyLua('mine', choose)",
        "setServerPolicy(hedge) setServerPolicy(newServerPolicy('mine', choose))",
        "setServerPolicy(race) setPoolServerPolicyLua('mine', choose, '')",
        "setPoolServerPolicy(race, '') setPoolServerPolicyLua('mine', choose, '')",
        "setPoolServerPolicy(hedge, '') setPoolServerPolicy(newServerPolicy('mine', choose), '')",
    ] {
        let read = config(&format!(
            "function choose() return 1 end newServer('192.0.2.1') {set}"
        ));
        let pool = read.pool(PoolId::DEFAULT).unwrap();
        assert_eq!(pool.chooser.as_ref().unwrap().name(), "mine", "{set}");
        assert!(!pool.policy.asks_several(), "{set}");
    }
}

#[test]
fn policies_are_tuned() {
    let read = config(
        "setWeightedBalancingFactor(1.5) setConsistentHashingBalancingFactor(1.25)
         setWHashedPerturbation(7) setRoundRobinFailOnNoServer(true)",
    );
    let expected = PolicyTuning {
        round_robin_fail_on_no_server: true,
        weighted_balancing_factor: 1_500,
        consistent_hashing_balancing_factor: 1_250,
        hash_perturbation: Some(7),
    };
    assert_eq!(read.tuning.policies, expected);
    let read = config("setWHashedPertubation(8)");
    assert_eq!(read.tuning.policies.hash_perturbation, Some(8));
    for name in [
        "setWeightedBalancingFactor",
        "setConsistentHashingBalancingFactor",
    ] {
        assert_eq!(
            error(&format!("{name}(0.5)")),
            format!("test.conf:1: {name}: 0.5: 0, or a factor of 1 or more, expected")
        );
    }
}

#[test]
fn a_server_waits_as_long_as_it_says_or_all_do() {
    for (options, expected) in [
        ("", None),
        ("udpTimeout=5", Some(5)),
        // To wait for no answer loses every query.
        ("udpTimeout=0", None),
    ] {
        let read = config(&format!(
            "setUDPTimeout(3) newServer{{address='192.0.2.1', {options}}}"
        ));
        let timeout = read.servers[0].options.udp_timeout;
        assert_eq!(timeout, expected.map(Duration::from_secs), "{options}");
        assert_eq!(read.tuning.udp_timeout, Duration::from_secs(3));
    }
    assert_eq!(
        error("setUDPTimeout(0)"),
        "test.conf:1: setUDPTimeout: 0: no answer would be in time; 1 or more expected"
    );
}

#[test]
fn checks_of_a_server_are_changed() {
    let read = config(
        "s = newServer('192.0.2.1') s:setHealthCheckParams() s:setHealthCheckParams({})
         s:setHealthCheckParams({checkInterval=5, checkTimeout=250, maxCheckFailures=3, rise=2})
         assert(s:getHealthCheckMode() == 'active') s:setLazyAuto()
         assert(s:getHealthCheckMode() == 'lazy') s:setDown()
         assert(s:getHealthCheckMode() == 'lazy' and s.upStatus == false)
         assert(s:getLatency() == 0 and s:getQueries() == 0 and s:getDrops() == 0)",
    );
    let health = &read.servers[0].options.health;
    let times = (health.interval, health.timeout);
    let expected = (Duration::from_secs(5), Duration::from_millis(250));
    assert_eq!(times, expected);
    assert_eq!((health.maximum_failures, health.rise), (3, 2));
}

#[test]
fn objects_have_the_rest_of_their_methods() {
    for line in [
        "s = newSuffixMatchNode() s:add('be') s:add({newDNSName('x.nl')}) s:remove('be') assert(not s:check('a.be') and s:check('X.NL'))",
        "s = newSuffixMatchNode() s:add({'nl', 'x.nl'}) assert(s:getBestMatch(newDNSName('a.x.nl')) == newDNSName('x.nl') and s:getBestMatch('be') == nil)",
        "s = newDNSNameSet() s:add('a') assert(s:delete(newDNSName('a')) == 1 and s:delete('a') == 0 and s:empty()) s:add('b') s:clear() assert(s:size() == 0)",
        "n = newNMG() n:addMask('192.0.2.0/24') n:addNMG(newNMG({'10.0.0.0/8'})) assert(n:size() == 2 and n:match(newCA('10.1.2.3'))) n:clear() assert(n:size() == 0)",
        "n = newDNSName('.') assert(not n:chopOff() and n:countLabels() == 0 and n:wirelength() == 1 and n:toDNSString() == '\\0')",
        "assert(newDNSName('a.be'):isPartOf(newDNSName('.')) and not newDNSName('be'):isPartOf(newDNSName('a.be')))",
        "assert(newCA('192.0.2.1'):getRaw() == '\\192\\0\\2\\1' and newCA('2001:db8::1'):isIPv6() and newCAFromRaw('ABCD', 53):getPort() == 53)",
        "assert(newQPSLimiter(5):check() and newQPSLimiter(5, 1):check() and not newQPSLimiter(0):check())",
        "p = getPool('a') p:setZeroScope(false) assert(not p:getZeroScope() and p:getDisableZeroScope())",
        "assert(leastOutstanding.name == 'leastOutstanding' and not leastOutstanding.isLua and not leastOutstanding.isFFI and newServerPolicy('n', function() end).isLua)",
        "c = newPacketCache(5) assert(c:purgeExpired(0) == 0 and #c:getAddressListByDomain('a') == 0 and #c:getDomainListByAddress(newCA('192.0.2.1')) == 0)",
        "t = TimedIPSetRule() t:add(newCA('192.0.2.1'), 60) t:cleanup() assert(tostring(t:slice()) == 'Src: 1 ips') t:clear() assert(tostring(t:slice()) == 'Src: 0 ips')",
        "setVerbose(true) assert(getVerbose()) setVerbose(false) assert(not getVerbose())",
        "setServerID('ns1') assert(getServerID() == 'ns1') setSecurityPollInterval(60)",
    ] {
        config(line);
    }
}

#[test]
fn actions_are_got_by_number_and_name() {
    asked(
        "addAction('a', DropAction(), {name='n'}) addCacheMissAction('a', PoolAction('p'))",
        &[
            ("getAction(0)", "drop\n"),
            ("getAction('n'):toString()", "drop\n"),
            ("getAction(1) == nil", "true\n"),
            ("getAction('m') == nil", "true\n"),
            ("getCacheMissAction(0)", "to pool p\n"),
            ("getRule(0):getAction()", "drop\n"),
            ("getRule(0)", "qname in a. => drop\n"),
        ],
    );
}

#[test]
fn functions_of_the_file_show_lines_on_the_console() {
    asked(
        "function hello(name) show('hello ' .. name) end hello('nobody')",
        &[("hello('a')", "hello a\n"), ("show(5) return 6", "5\n6\n")],
    );
}

/// The manual: "Before 1.6.0 this function used to move the last rule to the first position".
#[test]
fn the_last_rule_is_moved_to_the_top_under_both_names() {
    for (add, action, former, get) in [
        ("addAction", "DropAction()", "topRule", "getRule"),
        (
            "addResponseAction",
            "DropResponseAction()",
            "topResponseRule",
            "getResponseRule",
        ),
        (
            "addCacheHitResponseAction",
            "DropResponseAction()",
            "topCacheHitResponseRule",
            "getCacheHitResponseRule",
        ),
        (
            "addSelfAnsweredResponseAction",
            "DropResponseAction()",
            "topSelfAnsweredResponseRule",
            "getSelfAnsweredResponseRule",
        ),
    ] {
        let first = format!("{get}(0):getSelector():toString()");
        asked(
            &format!("{add}('a', {action}) {add}('b', {action}) {former}()"),
            &[(first.as_str(), "qname in b.\n")],
        );
    }
}

#[test]
fn a_chain_is_set() {
    asked(
        "setCacheMissRules({newRuleAction('a', DropAction(), {name='n'})})",
        &[("getCacheMissRule('n')", "qname in a. => drop\n")],
    );
}

#[test]
fn who_may_come_to_the_console_is_shown() {
    asked(
        "setConsoleACL({'192.0.2.0/24'}) addConsoleACL('2001:db8::1')",
        &[("showConsoleACL()", "192.0.2.0/24\n2001:db8::1/128\n")],
    );
}

#[test]
fn who_may_ask_stands_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("acl");
    std::fs::write(&path, "# ours\n\n192.0.2.0/24\n2001:db8::/32\n").unwrap();
    asked(
        &format!("setACLFromFile('{}')", path.display()),
        &[("showACL()", "192.0.2.0/24\n2001:db8::/32\n")],
    );
}
