//! Queries that somebody on the way does not let through are lost over sockets: his word of it, which the kernel passes on as an
//! error of the next call, ends no run. Where no connection over TCP ever stands, it is the answer to what is asked.

use crate::lab::{SERVER, end, lab, queries, start, summary};

#[test]
fn a_port_that_nobody_listens_at_is_named_behind_the_counts() {
    let Some(lab) = lab() else { return };
    let file = queries(3);
    let path = file.path().display();
    let run = |format: &str| {
        let line = format!("xdp -T -q --patience 60 -t 0.2 -Q 100 {format} -i {path} {SERVER}");
        let printed = end(start(&lab.client(), &line));
        assert!(printed.success, "{printed:?}");
        printed
    };
    let said = format!("No TCP connection to {SERVER}:53 ever stood: Connection refused");
    let text = run("").out;
    assert!(text.contains("never answered 20"), "{text}");
    assert!(text.contains(&said), "{text}");
    let own = &summary(&run("-j"))["floodgate"];
    let remark = own["remark"].as_str().unwrap_or_default();
    assert!(remark.starts_with(&said), "{own:#}");
    // The generator was not the limit.
    assert_eq!(own["limits"], serde_json::json!([]));
    let table = run("--csv");
    assert!(table.complaint.contains(&said), "{table:?}");
    assert!(
        table.out.trim_end().ends_with(",kernel sockets,0"),
        "{table:?}"
    );
}

#[test]
fn queries_that_a_router_refuses_to_forward_are_lost_and_the_run_goes_on() {
    let Some(lab) = lab() else { return };
    // RFC 5737: for documentation. The router says "communication administratively prohibited" (RFC 1812 §5.2.7.1).
    let (network, target) = ("203.0.113.0/24", "203.0.113.1");
    let (client, router) = (lab.client(), lab.server());
    let forward = || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1");
    router.run(forward).unwrap().unwrap();
    let refused = router.ip(&format!("route add prohibit {network}\n"));
    refused.unwrap();
    let routed = client.ip(&format!("route add {network} via {SERVER}\n"));
    routed.unwrap();
    let file = queries(40);
    for clients in [1, 3] {
        let line = format!(
            "sockets -s {target} -d {} -t 0.1 -q 4 -c {clients}",
            file.path().display()
        );
        let printed = end(start(&client, &line));
        assert!(printed.success, "{printed:?}");
        for line in [
            "Queries sent:         40",
            "Queries lost:         40 (100.00%)",
        ] {
            let found = printed.out.lines().any(|found| found.trim() == line);
            assert!(found, "{line}: {printed:?}");
        }
    }
}
