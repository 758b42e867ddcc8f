//! The configurations a to d of the issue, as they are written there.

use super::*;
use caps::Capability;

#[test]
fn configuration_a() {
    let config = config(
        r#"for i=1,8 do addLocal("192.0.2.1:53", {reusePort=true}) end
           addAction(AllRule(), RCodeAction(DNSRCode.REFUSED))"#,
    );
    let listener = Listener {
        sockets: 8,
        reuse_port: true,
        pinning: vec![Pinning::default(); 8],
        ..plain(address("192.0.2.1:53"))
    };
    assert_eq!(config.listeners, [listener]);
    assert_eq!(config.rules[0].selector.describe(), "All");
    assert_eq!(config.rules[0].action.describe(), "set rcode 5");
}

/// Of a line whose newXsk has this queue.
fn pinning(queue: u32) -> Pinning {
    Pinning {
        queue: Some(queue),
        processors: Vec::new(),
    }
}

#[test]
fn configuration_b() {
    let config = config(
        r#"for i=1,2 do
             xsk = newXsk({ifName="enp1s0", NIC_queue_id=i-1, frameNums=65536, xskMapPath="/sys/fs/bpf/dnsdist/xskmap"})
             addLocal("192.0.2.1:53", {xskSocket=xsk, reusePort=true})
           end
           addCapabilitiesToRetain("CAP_SYS_ADMIN")"#,
    );
    let listener = Listener {
        sockets: 2,
        reuse_port: true,
        xdp: Xdp::Queues(vec![queue(0), queue(1)]),
        pinning: [0, 1].map(pinning).to_vec(),
        ..plain(address("192.0.2.1:53"))
    };
    assert_eq!(config.listeners, [listener]);
    assert_eq!(config.capabilities, [Capability::CAP_SYS_ADMIN]);
}

/// What c says of its queues, before its newServer line.
const SOCKETS: &str = r#"local sockets = {}
    for i=1,2 do
      xsk = newXsk({ifName="enp1s0", NIC_queue_id=i-1, frameNums=65536, xskMapPath="/sys/fs/bpf/dnsdist/xskmap"}); table.insert(sockets, xsk)
      addLocal("192.0.2.1:53", {xskSocket=xsk, reusePort=true})
    end
    "#;

#[test]
fn configuration_c_in_its_three_forms() {
    for server in [
        r#"newServer("192.0.2.2:53", {xskSocket=sockets})"#,
        r#"newServer{address="192.0.2.2:53", xskSockets=sockets}"#,
        r#"newServer({address="192.0.2.2", xskSockets={unpack(sockets)}, MACAddr='00:11:22:33:44:55'})"#,
    ] {
        let config = config(&format!("{SOCKETS}{server}"));
        let options = &config.servers[0].options;
        assert_eq!(options.address, address("192.0.2.2:53"), "{server}");
        assert_eq!(
            options.xdp,
            Xdp::Queues(vec![queue(0), queue(1)]),
            "{server}"
        );
        let mac = server
            .contains("MACAddr")
            .then_some([0, 0x11, 0x22, 0x33, 0x44, 0x55]);
        assert_eq!(options.mac, mac);
    }
}

pub(super) const CONFIGURATION_D: &str = r#"
addLocal("192.0.2.1:53", {xdp=true})  addLocal("[2001:db8::1]:53", {xdp=true})
newServer({address="192.0.2.2:53", xdp=true, checkName="example.com.", checkInterval=1, maxCheckFailures=3, rise=2, pool="auth", order=1, weight=1})
getPool("auth"):setCache(newPacketCache(100000, {maxTTL=86400, staleTTL=60, temporaryFailureTTL=60}))
setACL({"192.0.2.0/24", "2001:db8::/32", "127.0.0.0/8"})
addAction({"example.com.", "example.net."}, PoolAction("auth"))
addAction(QNameSuffixRule("blocked.example."), RCodeAction(DNSRCode.NXDOMAIN))
addAction(AndRule({QTypeRule(DNSQType.ANY), NotRule(TCPRule(true))}), TCAction())
addAction(NetmaskGroupRule("192.0.2.66/32"), DropAction())
setServerPolicy(leastOutstanding)   -- also firstAvailable, roundrobin
setUDPTimeout(2)  setSecurityPollSuffix("")
"#;

#[test]
fn configuration_d() {
    let state = state(CONFIGURATION_D, None).unwrap();
    let config = state.edit(|spec| {
        assert_eq!(spec.remarks, []);
        derive(spec, None).unwrap()
    });
    let listeners = ["192.0.2.1:53", "[2001:db8::1]:53"].map(|text| Listener {
        xdp: Xdp::Auto,
        ..plain(address(text))
    });
    assert_eq!(config.listeners, listeners);
    let server = &config.servers[0].options;
    assert_eq!(
        (&server.xdp, server.health.name.as_str()),
        (&Xdp::Auto, "example.com.")
    );
    assert_eq!(
        (
            server.health.maximum_failures,
            server.health.rise,
            server.pools.as_slice()
        ),
        (3, 2, &["auth".to_owned()][..])
    );
    let auth = config
        .pool(config.pool_names.find("auth").unwrap())
        .unwrap();
    assert!(Arc::ptr_eq(&auth.servers[0], &config.servers[0]));
    assert_eq!(
        auth.cache.as_ref().unwrap().options().maximum_entries,
        100_000
    );
    assert!(config.pool(PoolId::DEFAULT).unwrap().servers.is_empty());
    assert!(config.acl.contains("192.0.2.7".parse().unwrap()));
    assert!(!config.acl.contains("10.0.0.1".parse().unwrap()));
    assert_eq!(config.tuning.udp_timeout, Duration::from_secs(2));
    let rules: Vec<_> = config
        .rules
        .iter()
        .map(|rule| (rule.selector.describe(), rule.action.describe()))
        .collect();
    let expected = [
        ("qname in example.com., example.net.", "to pool auth"),
        ("qname in blocked.example.", "set rcode 3"),
        ("(qtype==ANY) && (!(TCP))", "tc=1 answer"),
        ("Src: 192.0.2.66/32", "drop"),
    ];
    assert_eq!(
        rules,
        expected.map(|(selector, action)| (selector.to_owned(), action.to_owned()))
    );
}

/// An authoritative server is for everybody, which the dialect's default ACL is not.
#[test]
fn configuration_e() {
    let text = include_str!("../../../../../examples/e-authoritative.lua");
    let state = state(text, None).unwrap();
    let config = state.edit(|spec| {
        assert_eq!(spec.remarks, []);
        derive(spec, None).unwrap()
    });
    assert!(config.acl.contains("203.0.113.1".parse().unwrap()));
    assert!(config.acl.contains("2001:db8:ffff::1".parse().unwrap()));
    assert!(config.servers.is_empty());
    assert_eq!(&*config.authority.identity, "ns1.example.com");
    let zone = &config.zone_options[0];
    assert_eq!(
        (zone.apex.to_string().as_str(), zone.statistics),
        ("example.com.", true)
    );
    let limit = config.authority.limit.as_ref().unwrap();
    assert_eq!((limit.options.rate, limit.options.slip), (50, 2));
    assert!(limit.allowed.contains("192.0.2.9".parse().unwrap()));
}

/// Secrets are not for logs, and limits not for everything.
#[test]
fn how_zones_are_answered_from_is_checked() {
    let secret = error("millrace.setCookies{secrets={'0123'}}");
    assert!(
        secret.contains("32 hexadecimal digits") && !secret.contains("0123"),
        "{secret}"
    );
    assert!(error("millrace.setResponseRateLimit{}").contains("rate=20"));
    assert!(error("millrace.setResponseRateLimit{rate=1, v4Prefix=33}").contains("at most 32"));
    assert!(error("millrace.setResponseRateLimit{rate=1, tableSize=1}").contains("1000 to"));
    for (option, expected) in [
        ("burst=0", "1 or more expected, or no burst=, which is 9"),
        ("slip=1.5", "slip: a whole number from 0 expected, got 1.5"),
        (
            "rate=-1",
            "rate: a whole number of answers a second expected, got -1",
        ),
    ] {
        let said = error(&format!(
            "millrace.setResponseRateLimit{{rate=9, {option}}}"
        ));
        assert!(said.contains(expected), "{said}");
    }
    assert!(error("millrace.setVersion(('v'):rep(129))").contains("at most 128"));
    assert!(error("setServerID(('v'):rep(129))").contains("at most 128"));
    assert!(
        config("millrace.setResponseRateLimit{rate=0}")
            .authority
            .limit
            .is_none()
    );
    let all = config("millrace.setResponseRateLimit{rate=0, total=30}");
    let all = all.authority.limit.as_ref().unwrap().options;
    assert_eq!((all.rate, all.burst, all.total), (30, 30, 30));
    assert!(
        config("millrace.setCookies{enabled=false}")
            .authority
            .cookies
            .is_none()
    );
    let shared = "millrace.setCookies{secrets={'e5e973e5a6b2a43f48e7dc849e37bfcf'}}";
    let first = config(shared);
    let kept = |text| {
        let second = reload(text, Some(&first)).unwrap();
        Arc::ptr_eq(
            first.authority.cookies.as_ref().unwrap(),
            second.authority.cookies.as_ref().unwrap(),
        )
    };
    assert_eq!((kept(shared), kept("")), (true, false));
}
