//! What is wrong with a configuration, and what only deserves a remark.

use super::*;

/// A configuration and the one line that says what is wrong with it.
const ERRORS: &[(&str, &str)] = &[
    (
        "addLocl('192.0.2.1')",
        "test.conf:1: attempt to call global 'addLocl' (a nil value): neither dnsdist nor millrace has 'addLocl', and no line before this one defines it",
    ),
    (
        "\naddLuaAction('192.0.2.0/24', print)",
        "test.conf:2: attempt to call global 'addLuaAction' (a nil value): dnsdist has no 'addLuaAction' any more: addAction(selector, LuaAction(function)) takes its place",
    ),
    (
        "addAction(QTypeRule(dnsdist.ANY), TCAction())",
        "test.conf:1: attempt to index global 'dnsdist' (a nil value): dnsdist has no such table any more: its constants are DNSQType.ANY, DNSRCode.REFUSED and their like",
    ),
    (
        "setACL('192.0.2.1', '192.0.2.2')",
        "test.conf:1: setACL: at most 1 argument expected, got 2",
    ),
    (
        "addLocal('192.0.2.1', {}, {xskSocket=5})",
        "test.conf:1: addLocal: at most 2 arguments expected, got 3",
    ),
    (
        "addAction(QTypeRule('A', 'AAAA'), DropAction())",
        "test.conf:1: QTypeRule: at most 1 argument expected, got 2",
    ),
    ("\nx = = 1", "test.conf:2: unexpected symbol near '='"),
    (
        "addLocal('192.0.2.300')",
        "test.conf:1: addLocal: '192.0.2.300' is not an address: 192.0.2.1, 192.0.2.1:53, 2001:db8::1 or [2001:db8::1]:53 expected",
    ),
    (
        "addLocal()",
        "test.conf:1: addLocal: argument 1: a string expected, got nil",
    ),
    (
        "addLocal('192.0.2.1', {reusePort=5})",
        "test.conf:1: addLocal: reusePort: true or false expected, got 5",
    ),
    (
        "addLocal('192.0.2.1', {interface='no interface'})",
        "test.conf:1: addLocal: interface: 'no interface' is no name that an interface can have: eth0 expected",
    ),
    (
        "addLocal('192.0.2.1', {reusePort=true})\naddLocal('192.0.2.1', {reusePort=true, interface='eth0'})",
        "test.conf:2: 192.0.2.1:53 has interface='' on an earlier line and 'eth0' here: an address is served on one interface, or on all",
    ),
    (
        "setTCPFastOpenKey('0-1-2-3')",
        "test.conf:1: setTCPFastOpenKey: four groups of eight hexadecimal digits expected, as in /proc/sys/net/ipv4/tcp_fastopen_key: 00112233-44556677-8899aabb-ccddeeff",
    ),
    (
        "addLocal('192.0.2.1', {xdp=5})",
        "test.conf:1: addLocal: xdp: true, false or a table of interface names expected",
    ),
    (
        "millrace.addZone{file='z'}",
        "test.conf:1: millrace.addZone: name: the zone's name is missing, as in name=\"example.com.\"",
    ),
    (
        "millrace.addZone{name='a..b', file='z'}",
        "test.conf:1: millrace.addZone: name: 'a..b': empty label at octet 2: a dot may only stand between labels and at the end",
    ),
    (
        "millrace.addZone{name='a.', file='z'}\nmillrace.addZone{name='A', file='y'}",
        "test.conf:2: millrace.addZone: name: A. was added before: one zone has a name",
    ),
    (
        "millrace.addZone{name='a.', primaries={{address='192.0.2.1', source='::1'}}}",
        "test.conf:1: millrace.addZone: primaries[1]: source: an address of this host without a port expected, of the family of 192.0.2.1, got '::1'",
    ),
    (
        "millrace.addZone{name='a.', primaries={'192.0.2.1', key='k.'}}",
        "test.conf:1: millrace.addZone: primaries: 'key' is of none of its 1 entries: what belongs to one stands in braces with it, and none is nil",
    ),
    (
        "millrace.addZone{name='a.', file='z', notify={'192.0.2.1', nil, '192.0.2.2'}}",
        "test.conf:1: millrace.addZone: notify: '3' is of none of its 1 entries: what belongs to one stands in braces with it, and none is nil",
    ),
    (
        "millrace.addZone{name='a.', file='z', acl={{action='transfer', address={'192.0.2.1', deny=true}}}}",
        "test.conf:1: millrace.addZone: acl[1]: address: 'deny' is of none of its 1 entries: what belongs to one stands in braces with it, and none is nil",
    ),
    (
        "millrace.addZone{name='a.', primaries={'192.0.2.1:0'}}",
        "test.conf:1: millrace.addZone: primaries[1]: address: '192.0.2.1:0': a port from 1 to 65535 expected, or none, which means 53",
    ),
    (
        "millrace.addZone{name='a.', primaries={'192.0.2.1'}, transferTimeout=0}",
        "test.conf:1: millrace.addZone: transferTimeout: 0: more expected, nothing could be transferred in; without it, the default holds",
    ),
    (
        "millrace.addZone{name='a.', file='z', journalSize=-1}",
        "test.conf:1: millrace.addZone: journalSize: octets expected, got -1",
    ),
    (
        "millrace.addZone{name='a.', primaries={'192.0.2.1'}, maxSize=-1}",
        "test.conf:1: millrace.addZone: maxSize: octets expected, got -1",
    ),
    (
        "millrace.addZone{name='a.', file='z', acl={{action='transfer', address='192.0.2.20-192.0.2.10'}}}",
        "test.conf:1: millrace.addZone: acl[1]: address: '192.0.2.20-192.0.2.10' is no range: two addresses of one family, the lower one first, as in \"192.0.2.10-192.0.2.20\"",
    ),
    (
        "millrace.addZone{name='a.', file='z', acl={{action='transfer', address='192.0.2.1-2001:db8::1'}}}",
        "test.conf:1: millrace.addZone: acl[1]: address: '192.0.2.1-2001:db8::1' is no range: two addresses of one family, the lower one first, as in \"192.0.2.10-192.0.2.20\"",
    ),
    (
        "millrace.addZone{name='a.', file='z', acl={{action='transfer', address='192.0.2.0/33'}}}",
        "test.conf:1: millrace.addZone: acl[1]: address: '192.0.2.0/33': an address, a prefix (0-32 bits for IPv4, 0-128 for IPv6) or a range expected, as in \"192.0.2.0/24\" or \"192.0.2.10-192.0.2.20\"",
    ),
    (
        "millrace.addZone{name='a.', file='z', acl={{action='transfer', address='!192.0.2.1'}}}",
        "test.conf:1: millrace.addZone: acl[1]: address: '!192.0.2.1': a ! excludes nobody here: an entry of its own with deny=true does",
    ),
    (
        "millrace.addZone{name='a.', file='z', acl={{action='transfer', address='run/dns.sock'}}}",
        "test.conf:1: millrace.addZone: acl[1]: address: 'run/dns.sock' is neither an address nor the path of a listener, which begins with /: as in \"192.0.2.0/24\" or \"/run/millrace/dns.sock\"",
    ),
    (
        "millrace.addZone{name='a.', file='z', acl={{action='transfer', address={'/run/dns-1.sock', '/run/'}}}}",
        "test.conf:1: millrace.addZone: acl[1]: address: '/run/' is a folder: the path of a socket expected, as in /run/millrace/dns.sock",
    ),
    (
        "millrace.addZone{name='a.', file='z', acl={{action='transfer', address='::1', protocol='quic'}}}",
        "test.conf:1: millrace.addZone: acl[1]: protocol: \"udp\" or \"tcp\" expected, got 'quic'; without it an entry holds for both",
    ),
    (
        "millrace.addZone{name='a.', file='z', acl={{address='::1', deny=1}}}",
        "test.conf:1: millrace.addZone: acl[1]: deny: true or false expected, got 1",
    ),
    (
        "millrace.addZone{name='a.', file='z', acl={{deny=true, protocol='udp'}}}",
        "test.conf:1: millrace.addZone: acl[1]: address or key: one of them must say who is denied; everybody is address={\"0.0.0.0/0\", \"::/0\"}",
    ),
    (
        "millrace.addZone{name='a.', file='z', acl={{address='::1'}}}",
        "test.conf:1: millrace.addZone: acl[1]: action: it is missing: \"transfer\", \"notify\" or \"update\" expected",
    ),
    (
        "newXsk({NIC_queue_id=0})",
        "test.conf:1: newXsk: ifName is missing: the name of an interface",
    ),
    (
        "newXsk({ifName='e', NIC_queue_id=-1})",
        "test.conf:1: newXsk: NIC_queue_id: a queue of the interface, from 0 expected, got -1",
    ),
    (
        "newXsk({ifName='e', NIC_queue_id=0, frameNums=65535})",
        "test.conf:1: newXsk: frameNums: 65535 is not a power of two: 65536 is the usual one",
    ),
    (
        "TCPRule()",
        "test.conf:1: TCPRule: argument 1: true or false expected, got nil",
    ),
    (
        "NetmaskGroupRule('192.0.2.1', 1)",
        "test.conf:1: NetmaskGroupRule: argument 2: true or false expected, got 1",
    ),
    (
        "DSTPortRule('a')",
        "test.conf:1: DSTPortRule: argument 1: a number from 0 to 65535 expected, got string",
    ),
    (
        "DSTPortRule(65536)",
        "test.conf:1: DSTPortRule: argument 1: a number from 0 to 65535 expected, got 65536",
    ),
    (
        "setPayloadSizeOnSelfGeneratedAnswers(-1)",
        "test.conf:1: setPayloadSizeOnSelfGeneratedAnswers: argument 1: a number from 0 to 65535 expected, got -1",
    ),
    (
        "setMaxTCPClientThreads(0)",
        "test.conf:1: setMaxTCPClientThreads: 0: 1 to 1024 threads expected",
    ),
    (
        "setMaxTCPClientThreads(1025)",
        "test.conf:1: setMaxTCPClientThreads: 1025: 1 to 1024 threads expected",
    ),
    (
        "setMaxTCPClientThreads('ten')",
        "test.conf:1: setMaxTCPClientThreads: argument 1: a number from 0 expected, got string",
    ),
    (
        "DelayAction(-1)",
        "test.conf:1: DelayAction: argument 1: a number from 0 to 4294967295 expected, got -1",
    ),
    (
        "addAction(newNMG(), DropAction())",
        "test.conf:1: addAction: argument 1: a selector, a netmask or a name expected, got a NetmaskGroup",
    ),
    (
        "addAction(newServer('192.0.2.1'), DropAction())",
        "test.conf:1: addAction: argument 1: a selector, a netmask or a name expected, got a Server",
    ),
    (
        "setServerPolicy(race())",
        "test.conf:1: race: race(): a number of servers from 2 to 255 expected; race without brackets asks all",
    ),
    (
        "setServerPolicy(race('x'))",
        "test.conf:1: race: race(x): a number of servers from 2 to 255 expected; race without brackets asks all",
    ),
    (
        "setServerPolicy(race(2.5))",
        "test.conf:1: race: race(2.5): a number of servers from 2 to 255 expected; race without brackets asks all",
    ),
    (
        "AndRule(5)",
        "test.conf:1: AndRule: argument 1: a table expected, got number",
    ),
    (
        "HTTPHeaderRule('x', '(')",
        "test.conf:1: HTTPHeaderRule: '(' is no regular expression: unclosed group",
    ),
    (
        "group = newNMG()\ngroup:addMask('x')",
        "test.conf:2: addMask: argument 1: 'x' is no netmask: an address, or address/bits (0-32 for IPv4, 0-128 for IPv6), with ! before it to exclude",
    ),
    (
        "\nname = newDNSName('a')\nname:isPartOf()",
        "test.conf:3: isPartOf: argument 1: a name expected, got nil",
    ),
    (
        "newServer('192.0.2.1'):setAuto('down')",
        "test.conf:1: setAuto: argument 1: true or false expected, got down",
    ),
    (
        "newNetmask('!192.0.2.0/24')",
        "test.conf:1: newNetmask: '!192.0.2.0/24': a netmask of its own excludes nothing: addMask of a NetmaskGroup takes this text",
    ),
    (
        "OrRule({AllRule(), 'be'})",
        "test.conf:1: OrRule: a selector expected, got be",
    ),
    (
        "NetmaskGroupRule({['192.0.2.1']=true})",
        "test.conf:1: NetmaskGroupRule: argument 1: a list expected, got a table with the key 192.0.2.1",
    ),
    (
        "group = newNMG()\ngroup:addMasks(5)",
        "test.conf:2: addMasks: a table of netmasks expected",
    ),
    (
        "addAction(5, RCodeAction(5))",
        "test.conf:1: addAction: argument 1: a selector, a netmask or a name expected, got 5",
    ),
    (
        "addAction('a..b', DropAction())",
        "test.conf:1: addAction: argument 1: a selector, a netmask or a name expected, got a..b",
    ),
    (
        "addAction({'be', '1.2.3.0/33'}, DropAction())",
        "test.conf:1: addAction: argument 1: '1.2.3.0/33' is no netmask: an address, or address/bits (0-32 for IPv4, 0-128 for IPv6), with ! before it to exclude",
    ),
    (
        "addAction(AllRule(), 5)",
        "test.conf:1: addAction: an action expected, got 5",
    ),
    (
        "addAction(AllRule(), AllowResponseAction())",
        "test.conf:1: addAction: an action expected, got one on responses, which addResponseAction and its sisters take",
    ),
    (
        "QTypeRule('NOSUCH')",
        "test.conf:1: QTypeRule: argument 1: 'NOSUCH' is not a type: A, AAAA, TYPE65280 or a number expected",
    ),
    (
        "NetmaskGroupRule('1.2.3.0/33')",
        "test.conf:1: NetmaskGroupRule: argument 1: '1.2.3.0/33' is no netmask: an address, or address/bits (0-32 for IPv4, 0-128 for IPv6), with ! before it to exclude",
    ),
    (
        "newServer({name='x'})",
        "test.conf:1: newServer: address: an address expected, got nil",
    ),
    (
        "newServer(5)",
        "test.conf:1: newServer: an address or a table of options expected, got 5 and nil",
    ),
    (
        "newServer{address='192.0.2.1', weight=0}",
        "test.conf:1: newServer: weight: a number from 1 to 2147483647 expected, got 0",
    ),
    (
        "newServer{address='192.0.2.1', MACAddr='00:11:22:33:44'}",
        "test.conf:1: newServer: MACAddr: '00:11:22:33:44' is not an Ethernet address: 00:11:22:33:44:55 expected",
    ),
    (
        "newServer{address='192.0.2.1', dohPath='/dns-query'}",
        "test.conf:1: newServer: dohPath is not in millrace yet: it would change an answer or who gets one; take it out to go without",
    ),
    (
        "addLocal('192.0.2.1', {reusePort=true})\naddLocal('192.0.2.1', {reusePort=true, enableProxyProtocol=false})",
        "test.conf:2: 192.0.2.1:53 has enableProxyProtocol=false on one line and not on another: all lines of an address are served alike",
    ),
    (
        "newServer{address='192.0.2.1', source='192.0.2@eth0'}",
        "test.conf:1: newServer: source: '192.0.2@eth0' is neither an address (192.0.2.2) nor an interface (eth0) nor both (192.0.2.2@eth0)",
    ),
    (
        "newServer{address='192.0.2.1', source='an interface with a long name'}",
        "test.conf:1: newServer: source: 'an interface with a long name' is neither an address (192.0.2.2) nor an interface (eth0) nor both (192.0.2.2@eth0)",
    ),
    (
        "newServer{address='192.0.2.1', source='::1'}",
        "test.conf:1: newServer: source: ::1 cannot be the source of packets to 192.0.2.1: an address of the same family expected",
    ),
    (
        "newServer{address='192.0.2.1', dscp=64}",
        "test.conf:1: newServer: dscp: a code point from 0 to 63 expected, got 64",
    ),
    (
        "newServer{address='192.0.2.1', tcpConnectTimeout=0}",
        "test.conf:1: newServer: tcpConnectTimeout: at least 1 second expected, got 0: every query over TCP would fail at once",
    ),
    (
        "newServer{address='192.0.2.1', tcpSendTimeout=0}",
        "test.conf:1: newServer: tcpSendTimeout: at least 1 second expected, got 0: every query over TCP would fail at once",
    ),
    (
        "newServer{address='192.0.2.1', tcpRecvTimeout=0}",
        "test.conf:1: newServer: tcpRecvTimeout: at least 1 second expected, got 0: every query over TCP would fail at once",
    ),
    (
        "setUDPSocketBufferSizes(1073741824, 0)",
        "test.conf:1: setUDPSocketBufferSizes: 1073741824: a number of bytes up to 1073741823 expected",
    ),
    (
        "newServer{address='192.0.2.1', sockets='many'}",
        "test.conf:1: newServer: sockets: a number of sockets expected, got many",
    ),
    (
        "rmServer(0)",
        "test.conf:1: rmServer: no server 0: a number below 0, a UUID or a Server expected",
    ),
    (
        "s = newServer('192.0.2.1') rmServer(s) rmServer(s)",
        "test.conf:1: rmServer: this server was removed by rmServer",
    ),
    (
        "rmRule(0)",
        "test.conf:1: rmRule: no rule 0: a number below 0, a UUID or a name expected",
    ),
    (
        "setServerPolicy('roundrobin')",
        "test.conf:1: setServerPolicy: argument 1: a policy expected, got roundrobin",
    ),
    (
        "newPacketCache(0)",
        "test.conf:1: newPacketCache: a number of entries from 1 to 4294967296 expected, got 0",
    ),
    (
        "\n\naddDynamicBlock('192.0.2.1', 'x')",
        "test.conf:3: addDynamicBlock is not in millrace yet: it would change an answer or who gets one; take it out to go without",
    ),
    (
        "SetMinTTLResponseAction(2147483648)",
        "test.conf:1: SetMinTTLResponseAction: 2147483648: a TTL of at most 2147483647 seconds expected (RFC 2181 §8)",
    ),
    (
        "LimitTTLResponseAction(1, 2, {A=true})",
        "test.conf:1: LimitTTLResponseAction: a list expected, got a table with the key A",
    ),
    (
        "setRules({first=newRuleAction('a', DropAction())})",
        "test.conf:1: setRules: a list expected, got a table with the key first",
    ),
    (
        "newSVCRecordParameters(1, '.', {}, {''})",
        "test.conf:1: newSVCRecordParameters: an ALPN of 0 octets: 1 to 255 expected",
    ),
    (
        "newSVCRecordParameters(1, '.', {port=853, dohpath='/q'})",
        "test.conf:1: newSVCRecordParameters: dohpath: no such parameter: mandatory, alpn, noDefaultAlpn, port, ipv4hint, ech, ipv6hint or key and a number expected",
    ),
    (
        "newSVCRecordParameters(1, '.', {mandatory={'doh'}})",
        "test.conf:1: newSVCRecordParameters: mandatory: 'doh' is no key: alpn, no-default-alpn, port, ipv4hint, ech, ipv6hint, key and a number, or a number expected",
    ),
    (
        "includeDirectory('/dev/null')",
        "test.conf:1: includeDirectory: /dev/null: cannot be read: Not a directory (os error 20)",
    ),
    ("error('mine')", "test.conf:1: mine"),
    (
        "newServer('192.0.2.1').name = 'x'",
        "test.conf:1: 'name' cannot be set: there is no such attribute, or it can only be read",
    ),
    (
        "loadstring('newNMG()\\nnewCA(1)')()",
        "[string \"newNMG()...\"]:2: newCA: argument 1: an address expected, got 1",
    ),
    ("os.exit(3)", "test.conf:1: os.exit(3) was called"),
    (
        "\npcall(function() os.exit(3) end)",
        "test.conf:2: os.exit(3) was called",
    ),
    (
        "getPool(''):nosuch()",
        "test.conf:1: attempt to call method 'nosuch' (a nil value): millrace has no method 'nosuch' yet, or it is a slip of the pen",
    ),
    (
        "newServer('192.0.2.1'):nosuch()",
        "test.conf:1: attempt to call method 'nosuch' (a nil value): millrace has no method 'nosuch' yet, or it is a slip of the pen",
    ),
    (
        "xsk = newXsk({ifName='e', NIC_queue_id=0})\nxsk:nosuch()",
        "test.conf:2: attempt to call method 'nosuch' (a nil value): millrace has no method 'nosuch' yet, or it is a slip of the pen",
    ),
    (
        "newDNSName('a.b.'):nosuch()",
        "test.conf:1: attempt to call method 'nosuch' (a nil value): millrace has no method 'nosuch' yet, or it is a slip of the pen",
    ),
    (
        "newRemoteLogger('192.0.2.1:1'):nosuch()",
        "test.conf:1: attempt to call method 'nosuch' (a nil value): millrace has no method 'nosuch' yet, or it is a slip of the pen",
    ),
    (
        "addAction(AllRule(), DropAction()) getRule(0):nosuch()",
        "test.conf:1: attempt to call method 'nosuch' (a nil value): millrace has no method 'nosuch' yet, or it is a slip of the pen",
    ),
];

#[test]
fn errors_tell_file_and_line() {
    for (text, expected) in ERRORS {
        assert_eq!(error(text), *expected);
    }
}

#[test]
fn faults_are_collected_with_their_places() {
    let text = "addLocal('192.0.2.1')\naddLocal('192.0.2.1')\n\
                addLocal('192.0.2.2', {reusePort=true, xdp=true})\n\
                addLocal('192.0.2.2', {reusePort=true, xskSocket=newXsk({ifName='e', NIC_queue_id=0})})";
    let Err(error) = reload(text, None) else {
        panic!("this loads")
    };
    assert_eq!(
        error.lines(),
        [
            "test.conf:2: 192.0.2.1:53 is served by an earlier line already: several lines for one address each need reusePort=true",
            "test.conf:4: 192.0.2.2:53 has xskSocket on one line and xdp on another: an address takes its queues either from newXsk or from xdp",
        ]
    );
    assert_eq!(error.status(), 1);
}

#[test]
fn what_only_observes_loads_and_is_remarked_once() {
    let state = state(
        "for i=1,3 do addLocal('192.0.2.1', {reusePort=true, doTCP=true}) end snmpAgent(true)\n\
         addAction(AllRule(), SNMPTrapAction('x')) newServer{address='192.0.2.1', sockets=1025, nosuch=1}",
        None,
    )
    .unwrap();
    let said: Vec<_> = state.edit(|spec| {
        spec.remarks
            .iter()
            .map(|remark| {
                (
                    remark.place.to_string(),
                    remark.kind,
                    remark.subject.clone(),
                )
            })
            .collect()
    });
    let no_effect = |line: &str, subject: &str| {
        (
            format!("test.conf:{line}"),
            RemarkKind::NoEffectYet,
            subject.to_owned(),
        )
    };
    assert_eq!(
        said,
        [
            no_effect("1", "addLocal: doTCP"),
            no_effect("1", "snmpAgent"),
            no_effect("2", "SNMPTrapAction"),
            no_effect("2", "newServer: sockets"),
            (
                "test.conf:2".to_owned(),
                RemarkKind::UnknownOption,
                "newServer: nosuch".to_owned()
            ),
        ]
    );
}

#[test]
fn of_several_web_servers_and_consoles_the_last_is_served_and_the_others_are_remarked() {
    let text = "webserver('192.0.2.1:8083') webserver('192.0.2.1:8083')\nwebserver('192.0.2.2:8083')\n\
                controlSocket('192.0.2.1') controlSocket('[2001:db8::1]:5199')";
    let state = state(text, None).unwrap();
    let said: Vec<String> = state.edit(|spec| {
        let remarks = spec.remarks.iter();
        remarks
            .map(|remark| format!("{} {}", remark.place, remark.subject))
            .collect()
    });
    assert_eq!(
        said,
        [
            "test.conf:2 webserver: 192.0.2.1:8083, as 192.0.2.2:8083 takes its place",
            "test.conf:3 controlSocket: 192.0.2.1:5199, as [2001:db8::1]:5199 takes its place",
        ]
    );
}

#[test]
fn a_key_that_is_none_is_remarked_and_the_file_loads() {
    let state = state("setKey('c2hvcnQ=')\ncontrolSocket('127.0.0.1')", None).unwrap();
    state.edit(|spec| {
        assert_eq!(spec.console.key, None);
        let [remark] = &spec.remarks[..] else {
            panic!("{:?}", spec.remarks);
        };
        assert_eq!(remark.kind, RemarkKind::UnusableKey);
        assert_eq!(remark.place.to_string(), "test.conf:1");
        assert!(remark.subject.ends_with("this one is 5 bytes long"));
    });
}

/// The 65 options of newServer in the reference.
const SERVER_OPTIONS: &str = "address name pool order weight qps udpTimeout checkName checkType checkInterval checkTimeout
    maxCheckFailures rise mustResolve healthCheckMode source sockets useClientSubnet useProxyProtocol tcpOnly tls subjectName
    validateCertificates id retries tcpConnectTimeout tcpSendTimeout tcpRecvTimeout tcpFastOpen checkFunction checkClass
    checkTCP setCD disableZeroScope reconnectOnUp maxInFlight caStore ciphers ciphersTLS13 subjectAddr dohPath
    addXForwardedHeaders autoUpgrade autoUpgradeInterval autoUpgradeKeep autoUpgradePool autoUpgradeDoHKey
    maxConcurrentTCPConnections lazyHealthCheckFailedInterval lazyHealthCheckMinSampleCount lazyHealthCheckMode
    lazyHealthCheckSampleSize lazyHealthCheckThreshold lazyHealthCheckUseExponentialBackOff lazyHealthCheckMaxBackOff
    lazyHealthCheckWhenUpgraded proxyProtocolAdvertiseTLS xskSockets MACAddr ipBindAddrNoPort releaseBuffers
    enableRenegotiation ktls keyLogFile dscp";

#[test]
fn every_option_of_newserver_is_known() {
    let options: Vec<_> = SERVER_OPTIONS.split_whitespace().collect();
    assert_eq!(options.len(), 65);
    for option in options {
        let known = ["true", "1", "'auto'", "{}"].into_iter().any(|value| {
            let text = format!("newServer{{address='192.0.2.1', {option}={value}}}");
            match state(&text, None) {
                Ok(state) => !state.edit(|spec| {
                    spec.remarks
                        .iter()
                        .any(|remark| remark.kind == RemarkKind::UnknownOption)
                }),
                Err(error) => error.to_string().contains(&format!("newServer: {option}")),
            }
        });
        assert!(known, "{option}");
    }
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in ".{0,200}") {
        let _ = reload(&text, None);
    }

    #[test]
    fn no_arguments_make_a_function_panic(
        name in proptest::sample::select(crate::config::lua::tests::dialect().collect::<Vec<_>>()),
        arguments in proptest::collection::vec(proptest::sample::select(ARGUMENTS.to_vec()), 0..4),
    ) {
        let _ = reload(&format!("{name}({})", arguments.join(", ")), None);
    }
}

const ARGUMENTS: [&str; 14] = [
    "nil",
    "0",
    "-1",
    "1e300",
    "0/0",
    "true",
    "''",
    "'192.0.2.1'",
    "'a.example'",
    "{}",
    "{1, 'x', {}}",
    "AllRule()",
    "newServer('192.0.2.1')",
    "function() end",
];
