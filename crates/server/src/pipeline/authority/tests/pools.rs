//! Zones that answer for pools.

use super::*;

/// Gives zones of `scene` pools, by their names.
fn give_pools(scene: &mut Scene, pools: &[(&str, u16)]) {
    scene.change(|config| {
        let named = pools.iter().map(|(apex, pool)| {
            let apex: NameBuf = apex.parse().unwrap();
            (apex, [PoolId(*pool)])
        });
        let named: Vec<(NameBuf, [PoolId; 1])> = named.collect();
        let named = named
            .iter()
            .map(|(apex, pools)| (apex.as_name(), &pools[..]));
        config.authority.pools = ZonePools::new(named, config.local.zones());
    });
}

/// The shape of the answer from zones to a query that rules have sent to `pool`.
fn from_pool(scene: &mut Scene, pool: u16, message: &[u8]) -> Option<(u16, [u16; 3])> {
    scene.examine(message, |query, env| {
        query.pool = PoolId(pool);
        match answer(query, None, env)? {
            Verdict::Answer(length) => Some(shape(&query.message[..length])),
            other => panic!("{other:?}"),
        }
    })
}

#[test]
fn a_zone_with_a_pool_answers_for_that_pool_alone() {
    let mut scene = scene(ZONE);
    scene.change(|config| {
        let apex: NameBuf = "example.com.".parse().unwrap();
        let pools = [(apex.as_name(), &[PoolId(2)][..])];
        config.authority.pools = ZonePools::new(pools, config.local.zones());
    });
    let message = query("www.example.com.", qtype::A);
    let mut answers = |pool, message: &[u8]| {
        scene.examine(message, |query, env| {
            query.pool = PoolId(pool);
            answer(query, None, env).is_some()
        })
    };
    let chaos = chaos("id.server.", qtype::TXT);
    assert_eq!(
        [0, 1, 2].map(|pool| answers(pool, &message)),
        [false, false, true]
    );
    assert_eq!(
        [0, 1, 2].map(|pool| answers(pool, &chaos)),
        [false, false, true]
    );
    assert!(!answers(2, &query("www.example.org.", qtype::A)));
}

/// RFC 1034 §4.3.2: what serves a pool are the zones of that pool, and the nearest of them answers, by a referral where the
/// zone below is another pool's.
#[test]
fn a_zone_of_another_pool_hides_nothing_of_the_zone_above_it() {
    const PARENT: &str = "@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\n\
        alias 60 CNAME www.child\nchild 60 NS ns.child\nns.child 60 A 192.0.2.2\n";
    const CHILD: &str =
        "@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.2\nwww 60 A 192.0.2.7\n";
    let zones = [("example.com.", PARENT), ("child.example.com.", CHILD)];
    let mut scene = Scene::default();
    scene.change(|config| config.local = locals(&zones));
    let www = query("www.child.example.com.", qtype::A);
    let alias = query("alias.example.com.", qtype::A);
    let (answer, referral) = (Some((0x8500, [1, 0, 0])), Some((0x8100, [0, 1, 1])));
    assert_eq!(from_pool(&mut scene, 0, &www), answer, "no pools");

    give_pools(&mut scene, &[("child.example.com.", 2)]);
    assert_eq!(from_pool(&mut scene, 0, &www), referral);
    assert_eq!(from_pool(&mut scene, 2, &www), answer);
    let referred = Some((0x8500, [1, 1, 1]));
    assert_eq!(from_pool(&mut scene, 0, &alias), referred);
    assert_eq!(from_pool(&mut scene, 2, &alias), None);

    give_pools(&mut scene, &[("example.com.", 2)]);
    assert_eq!(from_pool(&mut scene, 0, &www), answer);
    assert_eq!(from_pool(&mut scene, 2, &www), referral);
}
