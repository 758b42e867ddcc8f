//! `cpus=` of addLocal: which worker runs where.

use super::config;
use crate::config::processors_of;

fn of_workers<const COUNT: usize>(text: &str) -> [Vec<usize>; COUNT] {
    let config = config(text);
    std::array::from_fn(|number| processors_of(&config.listeners, number))
}

#[test]
fn each_line_of_an_address_is_a_worker() {
    let text = "for i=0,1 do addLocal('192.0.2.1', {reusePort=true, cpus={i}}) end\n\
                addLocal('192.0.2.1', {reusePort=true, cpus={2, 3}})\n\
                addLocal('192.0.2.2', {cpus={7}})";
    assert_eq!(of_workers(text), [vec![0], vec![1], vec![2, 3], vec![]]);
}

#[test]
fn over_af_xdp_the_worker_of_queue_i_has_the_ith_processor() {
    let text = "addLocal('192.0.2.1', {xdp=true, cpus={1, 0}})";
    assert_eq!(of_workers(text), [vec![1], vec![0], vec![1]]);
}

#[test]
fn a_line_with_new_xsk_pins_the_worker_of_its_queue() {
    let text = "for i=0,1 do\n\
                  local xsk = newXsk({ifName='enp1s0', NIC_queue_id=1-i, frameNums=65536})\n\
                  addLocal('192.0.2.1', {xskSocket=xsk, reusePort=true, cpus={i, 4}})\n\
                end";
    assert_eq!(of_workers(text), [vec![1, 4], vec![0, 4], vec![]]);
}

#[test]
fn without_cpus_nobody_is_pinned() {
    for text in ["addLocal('192.0.2.1', {xdp=true})", ""] {
        let [first, second] = of_workers(text);
        assert!(first.is_empty() && second.is_empty(), "{text}");
    }
}
