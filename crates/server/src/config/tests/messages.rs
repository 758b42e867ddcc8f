//! What a file may ask of what it has said so far, and what it is told of what is not there.

use super::*;
use caps::Capability;

fn remarks(text: &str) -> Vec<(RemarkKind, String)> {
    let state = state(text, None).unwrap();
    state.edit(|spec| {
        let remarks = spec.remarks.iter();
        remarks
            .map(|remark| (remark.kind, format!("{}: {}", remark.place, remark.subject)))
            .collect()
    })
}

#[test]
fn capabilities_are_known_in_capital_and_in_small_letters() {
    let config = config(
        "addCapabilitiesToRetain('cap_sys_admin') addCapabilitiesToRetain({'CAP_NET_RAW', 'CAP_SYS_ADMIN'})",
    );
    let expected = [Capability::CAP_SYS_ADMIN, Capability::CAP_NET_RAW];
    assert_eq!(config.capabilities, expected);
}

#[test]
fn a_capability_that_is_not_there_is_told_of_and_left_out() {
    let text = "\naddCapabilitiesToRetain({'CAP_NOSUCH', 'CAP_NET_RAW'})";
    let expected = (
        RemarkKind::UnknownCapability,
        "test.conf:2: CAP_NOSUCH".to_owned(),
    );
    assert_eq!(remarks(text), [expected]);
    assert_eq!(config(text).capabilities, [Capability::CAP_NET_RAW]);
}

#[test]
fn a_folder_that_is_not_there_is_told_of_and_the_file_goes_on() {
    let text = "\nincludeDirectory('/nonexistent/folder') setACL('192.0.2.0/24')";
    let expected = (
        RemarkKind::NoFolder,
        "test.conf:2: /nonexistent/folder".to_owned(),
    );
    assert_eq!(remarks(text), [expected]);
    assert_eq!(config(text).acl.to_string(), "192.0.2.0/24");
}

#[test]
fn a_file_sees_the_listeners_that_it_has_added() {
    config(
        r#"assert(getBindCount() == 0 and getBind(0) == nil)
           for i = 1, 2 do addLocal("192.0.2.1:53", {reusePort=true}) end
           addLocal("/run/dns.sock")
           addLocal("[2001:db8::1]:53")
           assert(getBindCount() == 5)
           local all = {}
           for i = 0, getBindCount() - 1 do
             all[#all + 1] = getBind(i):getType() .. " " .. getBind(i):toString()
           end
           local text = table.concat(all, ", ")
           assert(text == "UDP 192.0.2.1:53, TCP 192.0.2.1:53, UDP [2001:db8::1]:53, TCP [2001:db8::1]:53, TCP /run/dns.sock", text)
           setLocal("192.0.2.9")
           assert(getBindCount() == 2 and getBind(0):toString() == "192.0.2.9:53" and getBind(2) == nil)"#,
    );
    let config = config(r#"addLocal("192.0.2.1:53") getBind(0).muted = true"#);
    assert_eq!(config.muted, [address("192.0.2.1:53")]);
}

#[test]
fn limits_of_tcp_clients_are_taken() {
    let config = config(
        "setTCPConnectionsMaskV4Port(3) setMaxTCPReadIOsPerQuery(9) \
         setBanDurationForExceedingMaxReadIOsPerQuery(7) setMaxTCPQueuedConnections(5)",
    );
    let tcp = &config.tuning.tcp;
    let found = (tcp.client_bits_port_v4, tcp.maximum_reads_per_query);
    assert_eq!((found, tcp.reads_ban), ((3, 9), Duration::from_secs(7)));
    assert_eq!(
        error("setTCPConnectionsMaskV4Port(17)"),
        "test.conf:1: setTCPConnectionsMaskV4Port: 17: 0 to 16 bits expected"
    );
}

#[test]
fn a_name_is_chopped_by_both_words() {
    for chop in ["chop", "chopOff"] {
        config(&format!(
            "n = newDNSName('www.example.') assert(n:{chop}() and n:toString() == 'example.') \
             assert(n:{chop}() and not n:{chop}() and n:toString() == '.')"
        ));
    }
}
