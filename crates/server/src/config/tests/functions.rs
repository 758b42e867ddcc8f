//! The functions one by one: what each leaves in the configuration.

use super::*;
use crate::backend::source::Source;
use crate::config::secret::Secret;

/// What `read` finds in the configuration after each text.
fn each<T: PartialEq + std::fmt::Debug>(cases: &[(&str, T)], read: impl Fn(&Config) -> T) {
    for (text, expected) in cases {
        assert_eq!(read(&config(text)), *expected, "{text}");
    }
}

#[test]
fn selectors_and_actions() {
    let cases = [
        (r#"addAction("be", AllowAction())"#, "qname in be. => allow"),
        (
            r#"addAction({"be", "nl"}, NoneAction())"#,
            "qname in be., nl. => no op",
        ),
        (
            r#"addAction(newDNSName("be"), DropAction())"#,
            "qname in be. => drop",
        ),
        (
            r#"addAction({newDNSName("be"), "192.0.2.0/24"}, DropAction())"#,
            "(Src: 192.0.2.0/24) || (qname in be.) => drop",
        ),
        (
            r#"addAction("192.0.2.1", DropAction())"#,
            "Src: 192.0.2.1/32 => drop",
        ),
        (
            // RFC 2317.
            r#"addAction("0/25.2.0.192.in-addr.arpa", DropAction())"#,
            "qname in 0/25.2.0.192.in-addr.arpa. => drop",
        ),
        (
            r#"addAction(makeRule("2001:db8::/32"), DropAction())"#,
            "Src: 2001:db8::/32 => drop",
        ),
        (
            r#"addAction(OrRule({QNameRule("a.b"), RDRule()}), DropAction())"#,
            "(qname==a.b.) || (rd==1) => drop",
        ),
        (
            r#"addAction(QTypeRule("TXT"), RCodeAction(DNSRCode.REFUSED, {aa=true}))"#,
            "qtype==TXT => set rcode 5",
        ),
        (
            r#"nmg = newNMG() nmg:addMask("192.0.2.0/24") addAction(NetmaskGroupRule(nmg, false), DropAction()) nmg:addMask("10.0.0.0/8")"#,
            "Dst: 192.0.2.0/24 => drop",
        ),
        (
            r#"smn = newSuffixMatchNode() smn:add("a.example") addAction(SuffixMatchNodeRule(smn), PoolAction("p"))"#,
            "qname in a.example. => to pool p",
        ),
        (
            r#"addAction(OpcodeRule(DNSOpcode.Notify), SetNoRecurseAction())"#,
            "opcode==4 => set rd=0",
        ),
        (
            r#"addAction(QNameSetRule({"a.example", newDNSName("b.example")}), DropAction())"#,
            "qname in DNSNameSet(2 FQDNs) => drop",
        ),
        (
            r#"set = newDNSNameSet() set:add("a") addAction(QNameSetRule(set), PoolAction("p", false))"#,
            "qname in DNSNameSet(1 FQDNs) => to pool p",
        ),
    ];
    first_rules_are(&cases);
}

#[test]
fn selectors_and_actions_of_http() {
    first_rules_are(&[
        (
            r#"addAction(HTTPPathRule("/q"), HTTPStatusAction(307, "https://a.example/", "text/html", {aa=true}))"#,
            "url path == /q => return an HTTP status of 307",
        ),
        (
            r#"addAction(OrRule({HTTPPathRegexRule("^/q"), HTTPHeaderRule("host", "^a$")}), DropAction())"#,
            "(http path ~ ^/q) || (http[host] ~ ^a$) => drop",
        ),
    ]);
}

/// Whether the first rule of each configuration is shown so.
fn first_rules_are(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        let rule = &config(text).rules[0];
        assert_eq!(
            format!("{} => {}", rule.selector.describe(), rule.action.describe()),
            *expected,
            "{text}"
        );
    }
}

/// For Lua a list ends at its first hole; who wrote one means all of it.
#[test]
fn a_list_with_a_hole_is_taken_to_its_end() {
    let cases = [
        (
            r#"addAction(AndRule({QNameRule("a"), nil, RDRule()}), DropAction())"#,
            "(qname==a.) && (rd==1) => drop",
        ),
        (
            r#"names = {"a", "b", "c"} names[2] = nil addAction(names, DropAction())"#,
            "qname in a., c. => drop",
        ),
        (
            r#"masks = {"192.0.2.1", nil, "192.0.2.3"} addAction(NetmaskGroupRule(masks), DropAction())"#,
            "Src: 192.0.2.1/32, 192.0.2.3/32 => drop",
        ),
        (
            r#"addAction(QNameSuffixRule({nil, "b"}), SpoofAction({"192.0.2.1", nil, "192.0.2.2"}))"#,
            "qname in b. => spoof in 192.0.2.1 192.0.2.2",
        ),
        (
            r#"setRules({nil, newRuleAction("b", AllowAction())})"#,
            "qname in b. => allow",
        ),
        (
            r#"addAction(AllRule(), SpoofSVCAction({nil, newSVCRecordParameters(1, ".")}))"#,
            "All => spoof SVC record",
        ),
    ];
    for (text, expected) in cases {
        let rule = &config(text).rules[0];
        let described = format!("{} => {}", rule.selector.describe(), rule.action.describe());
        assert_eq!(described, expected, "{text}");
    }
}

#[test]
fn the_chain_is_edited() {
    let rules = r#"for _, name in ipairs({"a", "b", "c"}) do addAction(name, DropAction(), {name=name, uuid="00000000-0000-4000-8000-00000000000"..name}) end "#;
    for (edit, expected) in [
        ("", "abc"),
        ("rmRule(1)", "ac"),
        ("rmRule('00000000-0000-4000-8000-00000000000a')", "bc"),
        ("rmRule('00000000-0000-4000-8000-00000000000A')", "bc"),
        ("rmRule('c')", "ab"),
        ("addAction('x', DropAction(), {name='b'}) rmRule('b')", "ac"),
        ("mvRuleToTop()", "cab"),
        ("mvRule(0, 3)", "bca"),
        ("mvRule(2, 0)", "cab"),
        ("mvRule(0, 2)", "bac"),
        ("clearRules()", ""),
        (
            "setRules({newRuleAction(AllRule(), AllowAction(), {name='n'})})",
            "n",
        ),
    ] {
        let config = config(&format!("{rules}{edit}"));
        let names: String = config.rules.iter().map(|rule| rule.name.as_str()).collect();
        assert_eq!(names, expected, "{edit}");
    }
}

#[test]
fn a_rule_without_a_name_is_not_found_by_nothing() {
    let rules = "addAction('a', DropAction()) addAction('b', DropAction(), {uuid=''})";
    for which in ["''", "0.5", "0/0"] {
        let wrong = error(&format!("{rules} rmRule({which})"));
        let expected = "test.conf:1: rmRule: no rule ";
        assert!(wrong.starts_with(expected), "{wrong}");
    }
    // A UUID that is nothing is none.
    assert_eq!(config(rules).rules[1].uuid.len(), 36);
}

#[test]
fn a_uuid_that_is_none_or_another_rules_is_an_error() {
    let add = |uuid: &str| format!("addAction('a', DropAction(), {{uuid='{uuid}'}}) ");
    let wrong = error(&add("u1"));
    assert!(wrong.contains("test.conf:1: addAction: uuid: "), "{wrong}");
    assert!(wrong.contains("got \"u1\""), "{wrong}");
    let (lower, upper) = (format!("{UUID}a"), format!("{UUID}A"));
    let wrong = error(&(add(&lower) + &add(&upper)));
    assert!(
        wrong.contains(&format!("\"{lower}\" is that of rule 0 already")),
        "{wrong}"
    );
    // Chains are apart.
    let other = format!("addCacheMissAction('a', DropAction(), {{uuid='{lower}'}})");
    assert_eq!(config(&(add(&lower) + &other)).rules.len(), 1);
    let rule = format!("newRuleAction(AllRule(), DropAction(), {{uuid='{lower}'}})");
    let wrong = error(&format!("setRules({{{rule}, {rule}}})"));
    assert!(wrong.contains(&lower), "{wrong}");
    let wrong = error(&(format!("setRules({{{rule}}}) ") + &add(&lower)));
    assert!(wrong.contains(&lower), "{wrong}");
    // Of a rule that is gone it is free.
    let again = format!("{} rmRule(0) {}", add(&lower), add(&lower));
    assert_eq!(config(&again).rules.len(), 1);
}

#[test]
fn what_is_true_or_false_takes_nothing_else() {
    for text in [
        "newPacketCache(10, 5, 1, 60, 2, 1)",
        "newPacketCache(10, 5, 1, 60, 2, true, 1, 'yes')",
        "newPacketCache(10):expungeByName('a', DNSQType.A, 1)",
        "newPacketCache(10):dump('/nonexistent/dump', 0)",
    ] {
        let wrong = error(text);
        assert!(wrong.contains("true or false expected, got "), "{wrong}");
    }
}

/// The manual on getSelector: "Return the DNSRule selector of this rule", which is what functions take.
#[test]
fn the_selector_of_a_rule_is_one_for_another_rule() {
    let config = config(
        r#"addAction("be", NoneAction())
           local selector = getRule(0):getSelector()
           addAction(selector, DropAction())
           addAction(AndRule({selector, NotRule(RDRule())}), DropAction())"#,
    );
    let described = config.rules.iter().map(|rule| rule.selector.describe());
    let expected = [
        "qname in be.",
        "qname in be.",
        "(qname in be.) && (!(rd==1))",
    ];
    assert_eq!(described.collect::<Vec<_>>(), expected);
}

#[test]
fn chains_on_responses() {
    let config = config(
        r#"addResponseAction(AllRule(), SetMaxTTLResponseAction(300))
           addCacheHitResponseAction("be", DropResponseAction(), {name="hit"})
           addCacheMissAction(AllRule(), AllowAction())
           addSelfAnsweredResponseAction(AllRule(), AllowResponseAction())
           addCacheInsertedResponseAction(AllRule(), LogResponseAction())
           addTimeoutResponseAction(AllRule(), AllowResponseAction(), {name="a"})
           addTimeoutResponseAction("b", DropResponseAction(), {name="b"})
           mvTimeoutResponseRuleToTop()
           assert(getTimeoutResponseRule("b"):getSelector():getMatches() == 0)
           addXFRResponseAction(AllRule(), DropResponseAction(), {name="x"})
           addXFRResponseAction(AllRule(), LogResponseAction())
           rmXFRResponseRule("x")"#,
    );
    let chains = &config.chains;
    assert_eq!(
        chains.response[0].action.describe(),
        "limit ttl (0 <= ttl <= 300)"
    );
    assert_eq!(chains.cache_hit[0].name, "hit");
    assert_eq!(
        (
            chains.cache_miss.len(),
            chains.self_answered.len(),
            chains.cache_inserted.len(),
            chains.xfr.len()
        ),
        (1, 1, 1, 1)
    );
    assert_eq!(chains.timeout[0].name, "b");
}

#[test]
fn servers() {
    each(
        &[
            (
                "newServer('192.0.2.1')",
                (address("192.0.2.1:53"), String::new(), 0, 1),
            ),
            (
                "newServer('2001:db8::1')",
                (address("[2001:db8::1]:53"), String::new(), 0, 1),
            ),
            (
                "newServer('192.0.2.1:5300', 10)",
                (address("192.0.2.1:5300"), String::new(), 10, 1),
            ),
            (
                "newServer{address='192.0.2.1', name='n', qps=5, weight='7'}",
                (address("192.0.2.1:53"), "n".to_owned(), 5, 7),
            ),
            (
                "newServer({address='192.0.2.1', tls='', useClientSubnet=false})",
                (address("192.0.2.1:53"), String::new(), 0, 1),
            ),
            (
                "s = newServer('192.0.2.1') s.weight = 3 s:setQPS(8)",
                (address("192.0.2.1:53"), String::new(), 8, 3),
            ),
            (
                "newServer('192.0.2.9') newServer('192.0.2.1') rmServer(0)",
                (address("192.0.2.1:53"), String::new(), 0, 1),
            ),
        ],
        |config| {
            let options = &config.servers[0].options;
            (
                options.address,
                options.name.clone(),
                options.qps,
                options.weight,
            )
        },
    );
}

#[test]
fn pools_of_a_server_are_a_list() {
    let read = config("newServer{address='192.0.2.1', pool={'a', nil, 'b'}}");
    assert_eq!(read.servers[0].options.pools, ["a", "b"]);
    assert_eq!(
        error("newServer{address='192.0.2.1', pool={abuse=true}}"),
        "test.conf:1: newServer: pool: a list expected, got a table with the key abuse"
    );
}

#[test]
fn a_server_is_found_by_whole_numbers_and_ids() {
    config("newServer{address='192.0.2.1', id='AB'} assert(getServer(0) and getServer('ab'))");
    config("newServer('192.0.2.1') assert(not getServer(0.5) and not getServer(-0.5))");
    assert_eq!(
        error("newServer('192.0.2.1') rmServer(0.5)"),
        "test.conf:1: rmServer: no server 0.5: a number below 1, a UUID or a Server expected"
    );
}

/// For Lua everything but nil and false is true: `setDropEmptyQueries("no")` switched it on.
#[test]
fn what_is_switched_takes_true_or_false() {
    for name in [
        "setVerbose",
        "setStructuredLogging",
        "setDropEmptyQueries",
        "setServFailWhenNoServer",
        "setVerboseHealthChecks",
        "setAllowEmptyResponse",
        "truncateTC",
        "fixupCase",
        "setAddEDNSToSelfGeneratedResponses",
        "setRoundRobinFailOnNoServer",
        "setProxyProtocolApplyACLToProxiedClients",
        "setAPIWritable",
        "setQueryCount",
        "setConsoleConnectionsLogging",
        "millrace.setKeepXDP",
        "getPool(''):setECS",
        "getPool(''):setDisableZeroScope",
        "getPool(''):setZeroScope",
    ] {
        config(&format!("{name}(true) {name}(false)"));
        for (written, shown) in [("'no'", "no"), ("1", "1"), ("", "nil")] {
            let text = error(&format!("{name}({written})"));
            let wanted = format!("true or false expected, got {shown}");
            assert!(
                text.starts_with("test.conf:1: ") && text.ends_with(&wanted),
                "{text}"
            );
        }
    }
}

#[test]
fn lines_for_the_log_may_be_of_any_octets() {
    config("for _, log in ipairs({errlog, vinfolog}) do log('a\\255') log(1) end");
}

#[test]
fn the_source_of_a_server() {
    let of = |address: Option<&str>, interface: Option<&str>| Source {
        address: address.map(|text| text.parse().unwrap()),
        interface: interface.map(str::to_owned),
        ..Source::default()
    };
    each(
        &[
            ("newServer('192.0.2.1')", of(None, None)),
            ("newServer{address='192.0.2.1', source=''}", of(None, None)),
            (
                "newServer{address='192.0.2.1', source='192.0.2.2', sockets=1024}",
                of(Some("192.0.2.2"), None),
            ),
            (
                "newServer{address='192.0.2.1', source='eth0.5', sockets=0}",
                of(None, Some("eth0.5")),
            ),
            (
                "newServer{address='2001:db8::1', source='2001:db8::2@eth0'}",
                of(Some("2001:db8::2"), Some("eth0")),
            ),
            (
                "newServer{address='192.0.2.1', dscp=46, xdp=true}",
                Source {
                    dscp: 46,
                    ..Source::default()
                },
            ),
            (
                "newServer{address='192.0.2.1', dscp=63, tcpFastOpen=true, ipBindAddrNoPort=false}",
                Source {
                    dscp: 63,
                    tcp_fast_open: true,
                    late_port: false,
                    ..Source::default()
                },
            ),
        ],
        |config| config.servers[0].options.source.clone(),
    );
}

#[test]
fn the_threads_beside_the_workers() {
    for (text, wanted) in [
        ("", crate::config::TcpTuning::THREADS),
        ("setMaxTCPClientThreads(1)", 1),
        ("setMaxTCPClientThreads(20)", 20),
    ] {
        assert_eq!(config(text).tuning.tcp.threads, wanted, "{text}");
    }
}

#[test]
fn the_buffers_of_udp_sockets() {
    let tuning = config("setUDPSocketBufferSizes(4194304, 0)").tuning;
    let wanted = (tuning.udp_buffers.receive, tuning.udp_buffers.send);
    assert_eq!(wanted, (4_194_304, 0));
}

#[test]
fn a_listeners_interface_and_its_fast_open() {
    let name = || Some("eth0".to_owned());
    each(
        &[
            ("addLocal('192.0.2.1', {interface=''})", (None, Xdp::Off, 0)),
            (
                "addLocal('192.0.2.1', {interface='eth0', tcpFastOpenQueueSize=5})",
                (name(), Xdp::Off, 5),
            ),
            (
                "addLocal('192.0.2.1', {interface='eth0', xdp=true})",
                (name(), Xdp::Interfaces(vec!["eth0".to_owned()]), 0),
            ),
            (
                "addLocal('192.0.2.1', {interface='bond0', xdp={'eth0'}})",
                (
                    Some("bond0".to_owned()),
                    Xdp::Interfaces(vec!["eth0".to_owned()]),
                    0,
                ),
            ),
        ],
        |config| {
            let listener = &config.listeners[0];
            let queue = listener.tcp_fast_open.queue;
            (listener.interface.clone(), listener.xdp.clone(), queue)
        },
    );
    let keyed =
        config("addLocal('192.0.2.1') setTCPFastOpenKey('03020100-07060504-0b0a0908-0f0e0d0c\\n')");
    let key: [u8; 16] = std::array::from_fn(|at| at as u8);
    assert_eq!(keyed.listeners[0].tcp_fast_open.key, Some(key));
}

/// newServer in the manual: checkName, checkType, checkClass, checkInterval, checkTimeout, maxCheckFailures, rise, mustResolve,
/// setCD, checkTCP and healthCheckMode where the file does not say.
#[test]
fn health_checks_have_dnsdists_defaults() {
    let config = config("newServer('192.0.2.1')");
    let health = &config.servers[0].options.health;
    assert_eq!(health.name, "a.root-servers.net.");
    assert_eq!((health.qtype, health.qclass), (1, 1));
    let times = (health.interval, health.timeout);
    assert_eq!(times, (Duration::from_secs(1), Duration::from_secs(1)));
    assert_eq!((health.maximum_failures, health.rise), (1, 1));
    assert!(!health.must_resolve && !health.set_cd && !health.over_tcp && !health.is_lazy);
}

#[test]
fn a_servers_word_and_its_methods() {
    each(
        &[
            ("newServer{address='192.0.2.1', healthCheckMode='UP'}", "UP"),
            ("newServer('192.0.2.1'):setDown()", "DOWN"),
            (
                "newServer('192.0.2.1') getServer(0):setUp() getServers()[1]:setAuto()",
                "down",
            ),
            (
                "s = newServer{address='192.0.2.1', id='x'} assert(not s:isUp()) getServer('x'):setUp() assert(s:isUp())",
                "UP",
            ),
        ],
        |config| config.servers[0].state.word(),
    );
}

#[test]
fn how_a_server_is_checked_is_changed_at_run_time() {
    for (lazy_at_first, edit, is_lazy, word) in [
        ("auto", "s:setLazyAuto()", true, "up"),
        ("auto", "s:setLazyAuto(false)", true, "down"),
        ("lazy", "s:setActiveAuto(true)", false, "up"),
        ("lazy", "s:setActiveAuto(false)", false, "down"),
        ("lazy", "s:setUp() s:setAuto(false)", true, "down"),
        ("lazy", "s:setDown() s:setAuto(true)", true, "up"),
        ("auto", "s:setAuto(true)", false, "up"),
        ("auto", "s:setUp()", false, "UP"),
        ("auto", "s:setDown() assert(not s:isUp())", false, "DOWN"),
    ] {
        let spec = Spec::new(Purpose::Serve, PoolNames::default());
        let state = Arc::new(LuaState::new(spec).unwrap());
        let text =
            format!("s = newServer{{address='192.0.2.1', healthCheckMode='{lazy_at_first}'}}");
        state.run("test.conf", text.as_bytes()).unwrap();
        let first = state.derive(None).unwrap();
        first.servers[0].state.set_checked(true);
        first.take_effect();
        state.run("test.conf", edit.as_bytes()).unwrap();
        let second = state.derive(Some(&first)).unwrap();
        second.take_effect();
        let server = &second.servers[0];
        assert_eq!(server.options.health.is_lazy, is_lazy, "{edit}");
        assert_eq!(server.state.word(), word, "{edit}");
    }
}

#[test]
fn pools() {
    let config = config(
        r#"s = newServer{address="192.0.2.1", order=2, pool={"a", "b"}}
           newServer{address="192.0.2.2", order=1, pool="a"}
           s:addPool("c") s:rmPool("b")
           setPoolServerPolicy(firstAvailable, "a") setServerPolicy(roundrobin)
           assert(#getPoolServers("a") == 2 and #getPoolServers("b") == 0 and getPoolServers("nosuch") == nil) assert(table.concat(getPoolNames(), ",") == ",a,b,c")
           assert(getPoolServers("a")[1]:toString() == "192.0.2.2:53" and tostring(getPoolServers("a")[2]) == "192.0.2.1:53")
           assert(getServer(0):getName() == "192.0.2.2:53" and getServer(1).name == "192.0.2.1:53")"#,
    );
    let pool = |name| config.pool(config.pool_names.find(name).unwrap());
    let orders: Vec<_> = pool("a")
        .unwrap()
        .servers
        .iter()
        .map(|server| server.options.order)
        .collect();
    assert_eq!(orders, [1, 2]);
    assert_eq!(
        (pool("a").unwrap().policy, pool("c").unwrap().policy),
        (Policy::FirstAvailable, Policy::RoundRobin)
    );
    assert!(pool("b").is_none_or(|pool| pool.servers.is_empty()));
    assert!(!config.uses_subnets);
}

/// The manual: in ascending order, and what is below 512 or above maximumEntrySize counts for nothing.
#[test]
fn payload_ranks_of_caches() {
    let ranks = |config: &Config| {
        let pool = config.pool(PoolId::DEFAULT).unwrap();
        let cache = pool.cache.as_ref().unwrap();
        cache.options().payload_ranks.clone()
    };
    each(
        &[
            ("getPool(''):setCache(newPacketCache(10))", Vec::new()),
            (
                "getPool(''):setCache(newPacketCache(10, {payloadRanks={4096, 1232, 511, 512, 1232, 4097, 70000, -1}}))",
                vec![512, 1_232, 4_096],
            ),
            (
                "getPool(''):setCache(newPacketCache(10, {payloadRanks={512, 1400}, maximumEntrySize=1232}))",
                vec![512],
            ),
        ],
        ranks,
    );
}

/// Nothing of them is ever seen, so nothing is said of them.
#[test]
fn locks_of_caches_go_without_a_remark() {
    let text = "newPacketCache(10, {numberOfShards=20, deferrableInsertLock=false})";
    let remarks = state(text, None).unwrap().edit(|spec| spec.remarks.len());
    assert_eq!(remarks, 0);
}

/// As dnsdist 1.7.3 numbers them.
#[test]
fn servers_are_numbered_by_order() {
    let config = config(
        r#"newServer{address="192.0.2.1", name="last", order=3} newServer("192.0.2.2")
           newServer{address="192.0.2.3", order=2} newServer("192.0.2.4")
           getServer(3).order = 0
           assert(getServer(3):getNameWithAddr() == "last (192.0.2.1:53)" and getServers()[1]:getName() == "192.0.2.2:53")"#,
    );
    let addresses = config.servers.iter();
    let addresses = addresses.map(|server| server.options.address.to_string());
    let numbered: Vec<String> = addresses.collect();
    let expected = [
        "192.0.2.2:53",
        "192.0.2.4:53",
        "192.0.2.3:53",
        "192.0.2.1:53",
    ];
    assert_eq!(numbered, expected);
}

#[test]
fn a_pools_preference_for_the_clients_network() {
    let config = config("getPool('a'):setECS(true) getPool('a'):setDisableZeroScope(true)");
    let number = config.pool_names.find("a").unwrap();
    let subnets = config.pool(number).unwrap().subnets;
    assert!(config.uses_subnets && subnets.are_added && subnets.disable_zero_scope);
}

#[test]
fn caches() {
    let options = |config: &Config| {
        let options = config
            .pool(PoolId::DEFAULT)
            .unwrap()
            .cache
            .as_ref()
            .unwrap()
            .options()
            .clone();
        (
            options.maximum_ttl,
            options.minimum_ttl,
            options.stale_ttl,
            options.maximum_negative_ttl,
            options.dont_age,
        )
    };
    each(
        &[
            (
                "getPool(''):setCache(newPacketCache(10, {shuffle=true}))",
                (86_400, 0, 60, 3_600, false),
            ),
            (
                "getPool(''):setCache(newPacketCache(10))",
                (86_400, 0, 60, 3_600, false),
            ),
            (
                "getPool(''):setCache(newPacketCache(10, {maxTTL=5, minTTL=1, staleTTL=2, maxNegativeTTL=3, dontAge=true}))",
                (5, 1, 2, 3, true),
            ),
            (
                "pc = newPacketCache(10, 5, 1, 60, 2, true, 1, true, 3) getPool(''):setCache(pc)",
                (5, 1, 2, 3, true),
            ),
        ],
        options,
    );
    assert!(
        config("p = getPool('') p:setCache(newPacketCache(1)) p:unsetCache()")
            .pool(PoolId::DEFAULT)
            .unwrap()
            .cache
            .is_none()
    );
}

#[test]
fn who_may_ask() {
    let allows = |config: &Config| {
        ["127.0.0.1", "192.0.2.1", "192.0.2.66"]
            .map(|text| config.acl.contains(text.parse().unwrap()))
    };
    each(
        &[
            ("", [true, false, false]),
            ("setACL('192.0.2.0/24')", [false, true, true]),
            (
                "setACL({'192.0.2.0/24', '!192.0.2.66'})",
                [false, true, false],
            ),
            ("addACL('192.0.2.1')", [true, true, false]),
            ("rmACL('127.0.0.0/8')", [false, false, false]),
        ],
        allows,
    );
}

#[test]
fn the_web_server() {
    let config = config(
        r#"setWebserverConfig({password="p", apiKey="k", acl="192.0.2.0/24, ::1", statsRequireAuthentication=false})
           webserver("127.0.0.1:8083")"#,
    );
    let web = config.webserver.unwrap();
    let is = |secret: &Option<Secret>, text: &str| secret.as_ref().unwrap().is(text.as_bytes());
    assert_eq!(web.address, address("127.0.0.1:8083"));
    assert!(!web.options.stats_require_authentication);
    assert!(is(&web.options.password, "p") && is(&web.options.api_key, "k"));
    assert_eq!(web.acl.to_string(), "192.0.2.0/24, ::1/128");
}

#[test]
fn the_web_servers_options() {
    let options = |text: &str| {
        let config = config(&format!("webserver('127.0.0.1:8083') {text}"));
        config.webserver.unwrap().options
    };
    let set = options(
        r#"setWebserverConfig({password=hashPassword("p"), apiKey="k", hashPlaintextCredentials=true,
               customHeaders={["X-Frame-Options"]="", ["X-Custom"]="custom"}, apiRequiresAuthentication=false,
               dashboardRequiresAuthentication=false, allowCrossOriginRequests=true,
               prometheusAddInstanceLabel=true, maxConcurrentConnections=5})
           setAPIWritable(true, "/tmp")"#,
    );
    let secrets = [set.password, set.api_key].map(Option::unwrap);
    assert!(secrets.iter().all(Secret::is_slow));
    assert!(secrets[0].is(b"p") && secrets[1].is(b"k"));
    let headers: Vec<_> = set.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(headers, ["x-custom", "x-frame-options"]);
    assert!(!set.api_requires_authentication && !set.dashboard_requires_authentication);
    assert!(set.allow_cross_origin_requests && set.add_instance_label);
    assert_eq!(set.maximum_connections, 5);
    assert_eq!(set.api.directory.as_deref(), Some("/tmp".as_ref()));
    assert_eq!(options("setWebserverConfig({apiKey=''})").api_key, None);
    for (text, part) in [
        (
            "setWebserverConfig({password='$scrypt$x'})",
            "$scrypt$ must be",
        ),
        (
            "setWebserverConfig({customHeaders={['a b']='c'}})",
            "bad name",
        ),
        ("hashPassword('p', 1000)", "power of two"),
        ("setAPIWritable(true, '/nonexistent')", "a directory"),
    ] {
        let found = error(text);
        assert!(found.contains(part), "{text}: {found}");
    }
}

#[test]
fn carbon_servers() {
    let config = config(
        "carbonServer('192.0.2.1') carbonServer('192.0.2.2:2004', 'ns1', 10, 'dns', 'a')
         carbonServer('192.0.2.1')",
    );
    let exports = &config.carbon;
    assert_eq!(exports.len(), 2, "the same line twice is one");
    assert_eq!(exports[0].server, address("192.0.2.1:2003"));
    assert_eq!(
        (exports[0].every, exports[0].host.as_str()),
        (Duration::from_secs(30), "")
    );
    let words = [
        &exports[1].namespace,
        &exports[1].host,
        &exports[1].instance,
    ];
    assert_eq!(words, ["dns", "ns1", "a"]);
    assert!(error("carbonServer('x')").contains("carbonServer"));
}

#[test]
fn metrics_of_the_operators_own() {
    let text = "assert(declareMetric('seen', 'counter', 'Seen.', 'my_seen'))
        assert(incMetric('seen') == 1 and incMetric('seen', 5) == 6 and decMetric('seen') == 5)
        assert(incMetric('seen', {step=2, labels={kind='a'}}) == 2)
        assert(declareMetric('heat', 'gauge', 'Heat.') and setMetric('heat', 1.5) == 1.5)
        assert(getMetric('heat') == 1.5 and getMetric('seen', {labels={kind='a'}}) == 2)";
    let first = config(text);
    // A reload counts on where it counted.
    let text = "declareMetric('seen', 'counter', 'Seen.')";
    let mut second = reload(text, Some(&first)).unwrap();
    // The old one serves on until the zones of the new one are loaded.
    first.custom_metrics.add("seen", Vec::new(), 2.0).unwrap();
    second.count_traffic(1, Some(&first));
    assert_eq!(second.custom_metrics.get("seen", &Vec::new()), Ok(7.0));
    assert!(error("incMetric('none')").contains("was not declared"));
    config(
        "assert(declareMetric('queries', 'counter', '') == false)
        assert(declareMetric('server-status', 'gauge', '') == false and declareMetric('latency', 'gauge', '') == false)
        assert(declareMetric('a', 'counter', '') and declareMetric('a', 'gauge', '') == false)
        assert(declareMetric('b', 'counter', '', {name='room_b', withLabels=true}))",
    );
}

#[test]
fn objects_have_their_methods() {
    for line in [
        "n = newDNSName('www.Example.com') assert(n:countLabels() == 3 and n:wirelength() == 17 and n:isPartOf(newDNSName('example.com')))",
        "n = newDNSName('www.example.com.') assert(n:chopOff() and n:toString() == 'example.com.' and n:toStringNoDot() == 'example.com')",
        "assert(newDNSName('') == newDNSName('.') and newDNSName('.'):toStringNoDot() == '' and newDNSName('.'):toString() == '.')",
        "n = newDNSName('a.www.Example.com') assert(n:makeRelative(newDNSName('example.com')):toString() == 'a.www.' and n:makeRelative(n):toString() == '.')",
        "n = newDNSName('a.be'):makeRelative(newDNSName('e')) assert(n:countLabels() == 0 and n:toString() == '.')",
        "assert(newDNSName('caf\\233.be'):toDNSString() == '\\4caf\\233\\2be\\0')",
        "assert(newDNSName('a.') == newDNSName('A') and newDNSNameFromRaw('\\1a\\0'):tostring() == 'a.')",
        "s = newDNSNameSet() s:add(newDNSName('a')) assert(s:check(newDNSName('A')) and s:size() == 1 and not s:empty())",
        "s = newDNSNameSet() s:add('b.org') s:add('a.org') assert(s:toString() == 'a.org\\nb.org\\n' and tostring(s) == s:toString())",
        "n = newNMG() n:addMasks({'192.0.2.0/24', '!192.0.2.7'}) assert(n:toString() == 'NetmaskGroup !192.0.2.7/32, 192.0.2.0/24' and tostring(n) == n:toString())",
        "assert(tostring(roundrobin) == 'ServerPolicy \"roundrobin\"' and newServerPolicy('n', function() return 1 end):toString() == 'ServerPolicy (Lua) \"n\"')",
        "c = newCA('192.0.2.1:53') assert(c:getPort() == 53 and c:tostring() == '192.0.2.1' and c:toStringWithPort() == '192.0.2.1:53')",
        "c = newCA('::ffff:192.0.2.1') assert(c:isMappedIPv4() and c:mapToIPv4():isIPv4())",
        "c = newCA('192.0.2.129') c:truncate(25) assert(c:toString() == '192.0.2.128')",
        "assert(newCAFromRaw('ABCD'):toString() == '65.66.67.68')",
        "c = newCA('1.2.3.4:53') e = c:ipencrypt('some 16-byte key') assert(e:toString() == '171.238.15.199' and e:ipdecrypt('some 16-byte key') == c)",
        "assert(not pcall(newCA('1.2.3.4').ipencrypt, newCA('1.2.3.4'), 'short') and #makeIPCipherKey('') == 16)",
        "m = newNetmask('192.0.2.0/24') assert(m:getBits() == 24 and m:match(newCA('192.0.2.9')) and m:isIpv4())",
        "m = newNetmask('192.0.2.9/24') assert(m:getNetwork():toString() == '192.0.2.9' and m:getMaskedNetwork():toString() == '192.0.2.0')",
        "m = newNetmask(newCA('2001:db8::9'), 32) assert(m:isIPv6() and m:isIpv6() and not m:isIPv4() and m:getNetwork():toString() == '2001:db8::9')",
        "n = newNMG() n:addMasks({'192.0.2.0/24'}) assert(n:match(newCA('192.0.2.9')) and n:size() == 1)",
        "s = newSuffixMatchNode() s:add({'be', 'x.nl'}) assert(s:check(newDNSName('a.x.nl')) and not s:check(newDNSName('nl')))",
        "assert(inConfigCheck() == false and type(getCurrentTime().tv_sec) == 'number')",
        "p = getPool('a') assert(not p:getECS() and not p:getDisableZeroScope()) p:setECS(true) p:setDisableZeroScope(true) assert(p:getECS() and p:getDisableZeroScope() and not getPool(''):getECS())",
        "c = newPacketCache(5) assert(not c:isFull() and c:toString() == '0/5') c:expunge(0) c:expungeByName('a') c:expungeByName({'a', newDNSName('b')}, DNSQType.A, true)",
        "s = newPacketCache(5):getStats() assert(s.entries == 0 and s.maxEntries == 5 and s.hits == 0 and s.cleanupCount == 0)",
        "assert(DNSSection.Answer == 1 and DNSAction.None == 10 and DNSClass.IN == 1 and EDNSOptionCode.ECS == 8)",
        "found = false for _, name in ipairs(getListOfNetworkInterfaces()) do found = found or name == 'lo' end assert(found)",
        "assert(getListOfAddressesOfNetworkInterface('lo')[1] == '127.0.0.1' and getListOfRangesOfNetworkInterface('lo')[1] == '127.0.0.0/8')",
        "ffi = require 'ffi' assert(ffi.abi('64bit'))",
    ] {
        config(line);
    }
}

/// The chains: what adds to one, what stands in it, the name that its other functions are made of, and which of them there are.
const CHAINS: [(&str, &str, &str, &str); 8] = [
    (
        "addAction",
        "DropAction()",
        "Rule",
        "clear get top getTopRules",
    ),
    (
        "addCacheMissAction",
        "DropAction()",
        "CacheMissRule",
        "clear get",
    ),
    (
        "addResponseAction",
        "DropResponseAction()",
        "ResponseRule",
        "clear get top getTopResponseRules",
    ),
    (
        "addCacheHitResponseAction",
        "DropResponseAction()",
        "CacheHitResponseRule",
        "clear get top getTopCacheHitResponseRules",
    ),
    (
        "addCacheInsertedResponseAction",
        "DropResponseAction()",
        "CacheInsertedResponseRule",
        "clear get top getTopCacheInsertedResponseRules",
    ),
    (
        "addSelfAnsweredResponseAction",
        "DropResponseAction()",
        "SelfAnsweredResponseRule",
        "clear get top getTopSelfAnsweredRules",
    ),
    (
        "addTimeoutResponseAction",
        "DropResponseAction()",
        "TimeoutResponseRule",
        "clear get top getTopTimeoutResponseRule",
    ),
    (
        "addXFRResponseAction",
        "DropResponseAction()",
        "XFRResponseRule",
        "",
    ),
];

/// All of a UUID but its last digit.
const UUID: &str = "00000000-0000-4000-8000-00000000000";

#[test]
fn every_chain_has_all_its_functions() {
    for (add, action, rule, functions) in CHAINS {
        let fresh = || {
            let spec = Spec::new(Purpose::Serve, PoolNames::default());
            let state = LuaState::new(spec).unwrap();
            let text = format!(
                "for _, name in ipairs({{'a', 'b', 'c'}}) do {add}(name, {action}, {{name='n' .. name, uuid='{UUID}' .. name}}) end"
            );
            state.run("test.conf", text.as_bytes()).unwrap();
            state
        };
        // The second column.
        let names = |shown: &str| -> String {
            let lines = shown.lines().skip(1);
            lines
                .filter_map(|line| line.split_whitespace().nth(1)?.strip_prefix('n'))
                .collect()
        };
        let mut edits = vec![
            (format!("rm{rule}(1)"), "ac"),
            (format!("rm{rule}('{UUID}a')"), "bc"),
            (format!("rm{rule}('nc')"), "ab"),
            (format!("mv{rule}(0, 3)"), "bca"),
            (format!("mv{rule}(2, 1)"), "acb"),
            (format!("mv{rule}ToTop()"), "cab"),
        ];
        if functions.contains("clear") {
            edits.push((format!("clear{rule}s()"), ""));
        }
        for (edit, expected) in edits {
            let state = fresh();
            let answer = state.command(&edit);
            assert_eq!((answer.text.as_str(), answer.edited), ("", true), "{edit}");
            let shown = state.command(&format!("show{rule}s()")).text;
            assert_eq!(names(&shown), expected, "{edit}");
        }
        let state = fresh();
        for wrong in [
            format!("rm{rule}(3)"),
            format!("rm{rule}('nx')"),
            format!("mv{rule}(0, 4)"),
        ] {
            assert!(state.command(&wrong).text.starts_with("Error: "), "{wrong}");
        }
        let with_uuids = state
            .command(&format!("show{rule}s({{showUUIDs=true}})"))
            .text;
        assert!(with_uuids.contains(&format!(" {UUID}b ")), "{with_uuids}");
        if functions.contains("get") {
            for which in ["1", &format!("'{UUID}b'"), "'nb'"] {
                let text = format!("get{rule}({which}):getSelector():toString()");
                assert_eq!(state.command(&text).text, "qname in b.\n", "{text}");
            }
            assert_eq!(state.command(&format!("get{rule}(7)")).text, "");
        }
        if functions.contains(" top ") {
            assert_eq!(names(&state.command(&format!("top{rule}s(2)")).text), "ab");
            let get_top = functions.split_whitespace().last().unwrap();
            let text = format!("#{get_top}(2) .. {get_top}()[3]:getSelector():getMatches()");
            assert_eq!(state.command(&text).text, "20\n");
        }
    }
}

#[test]
fn proxies_and_who_is_told() {
    let of_proxies = |config: &Config| {
        let proxies = config.proxies.as_ref()?;
        Some((proxies.acl.to_string(), proxies.apply_acl, proxies.maximum))
    };
    let cases = [
        ("setProxyProtocolApplyACLToProxiedClients(true)", None),
        (
            r#"setProxyProtocolACL({"192.0.2.0/24", "!192.0.2.7"})"#,
            Some(("!192.0.2.7/32, 192.0.2.0/24".to_owned(), false, 512)),
        ),
        (
            r#"setProxyProtocolACL("192.0.2.7") setProxyProtocolApplyACLToProxiedClients(true) setProxyProtocolMaximumPayloadSize(7)"#,
            Some(("192.0.2.7/32".to_owned(), true, 16)),
        ),
    ];
    each(&cases, of_proxies);
    let listeners = [
        (r#"addLocal("192.0.2.1")"#, true),
        (
            r#"addLocal("192.0.2.1", {enableProxyProtocol=false})"#,
            false,
        ),
    ];
    each(&listeners, |config| config.listeners[0].proxy_protocol);
    let servers = [
        ("newServer('192.0.2.1')", false),
        (
            "newServer{address='192.0.2.1', useProxyProtocol=true, proxyProtocolAdvertiseTLS=true}",
            true,
        ),
    ];
    each(&servers, |config| config.servers[0].options.proxy_protocol);
}

#[test]
fn values_of_the_proxy_protocol_in_rules() {
    let cases = [
        (
            r#"addAction(ProxyProtocolValueRule(42), SetAdditionalProxyProtocolValueAction(1, "a"))"#,
            "proxy protocol value of type 42 is present => add a Proxy-Protocol value of type 1",
        ),
        (
            r#"addAction(ProxyProtocolValueRule(42, "x"), SetProxyProtocolValuesAction({[7]="b", [0]="a"}))"#,
            "proxy protocol value of type 42 matches => set Proxy-Protocol values",
        ),
    ];
    for (text, expected) in cases {
        let rule = &config(text).rules[0];
        let described = format!("{} => {}", rule.selector.describe(), rule.action.describe());
        assert_eq!(described, expected);
    }
}
