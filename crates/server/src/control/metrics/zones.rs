//! What is counted of zones: as families of `/metrics`, and under Knot's names for `millrace stats`.
//!
//! ```text
//! millrace_zones_request_protocol{protocol="udp4-xdp"} 228091218                    all zones together
//! millrace_zone_request_protocol{zone="example.com.",protocol="udp4-xdp"} 512       one with statistics=true
//! millrace_zone_serial{zone="example.com."} 2026112301                              each, up to 1,000 of them
//! mod-stats.request-protocol[udp4-xdp] = 228091218
//! [example.com.] mod-stats.request-protocol[udp4-xdp] = 512
//! ```

use super::text::{Kind, Text, Value};
use crate::config::Config;
use crate::local::ZoneStatus;
use crate::pipeline::authority::Authority;
use crate::pipeline::authority::statistics::{Block, GROUPS, Group};
use std::collections::HashSet;
use wire::name::NameBuf;

/// Up to so many zones each has rows on how it is; of more only those with counters of their own (`statistics=true`): nobody
/// wants a text of 100 MB each 15 s.
const ZONES_MAX: usize = 1_000;

/// How a zone is, as a number.
struct Gauge {
    name: &'static str,
    help: &'static str,
    /// `None`: this zone has no row.
    value: fn(&ZoneStatus) -> Option<Value>,
}

const GAUGES: &[Gauge] = &[
    Gauge {
        name: "millrace_zone_loaded",
        help: "1: the zone is served; 0: it is not loaded, or has expired, and is answered with SERVFAIL.",
        value: |zone| Some(zone.serial.is_some().into()),
    },
    Gauge {
        name: "millrace_zone_serial",
        help: "Serial of the zone that is served; no row where none is.",
        value: |zone| zone.serial.map(|serial| u64::from(serial).into()),
    },
    Gauge {
        name: "millrace_zone_expired",
        help: "1: the secondary's zone has expired; 0: it has not, or is a primary's.",
        value: |zone| Some(zone.expired.into()),
    },
    Gauge {
        name: "millrace_zone_refresh_seconds",
        help: "Seconds until a secondary asks its primaries; no row while it is frozen, and of primaries.",
        value: |zone| of_secondary(zone, zone.refresh_in),
    },
    Gauge {
        name: "millrace_zone_expire_seconds",
        help: "Seconds until a secondary's zone expires, 0 when it has; no row of zones that never came, and of primaries.",
        value: |zone| of_secondary(zone, zone.expires_in.or(zone.expired.then_some(0))),
    },
];

fn of_secondary(zone: &ZoneStatus, seconds: Option<u64>) -> Option<Value> {
    seconds.filter(|_| zone.secondary).map(Value::from)
}

/// The families millrace_zones_*, millrace_zone_*, millrace_response_rate_limit and millrace_cookies; none where no zone is
/// served.
pub fn families(text: &mut Text, config: &Config) {
    if config.local.is_empty() {
        return;
    }
    let authority = &config.authority;
    text.single(
        "millrace_zones",
        Kind::Gauge,
        "Zones that are served.",
        config.local.zones().count() as u64,
    );
    for group in GROUPS {
        total(text, group, authority);
        if own(authority).next().is_some() {
            per_zone(text, group, authority);
        }
    }
    gauges(text, &shown(config));
    limit(text, authority);
    if let Some(cookies) = &authority.cookies {
        let help = "Queries for zones with a COOKIE option.";
        let seen = cookies.seen.sum();
        text.single("millrace_cookies", Kind::Counter, help, seen);
    }
}

/// Zones with counters of their own, by name.
fn own(authority: &Authority) -> impl Iterator<Item = (String, &Block)> {
    let blocks = authority.statistics.blocks().iter();
    blocks.filter_map(|block| Some((block.zone.as_ref()?.to_string(), block)))
}

fn total(text: &mut Text, group: &Group, authority: &Authority) {
    let name = format!("millrace_zones_{}", group.name.replace('-', "_"));
    let mut rows = text.family(&name, Kind::Counter, group.help);
    for (cell, label) in group.cells() {
        let count = authority.statistics.total(cell);
        if group.is_whole || count > 0 {
            rows.row("", &[(group.label, &label)], count);
        }
    }
}

fn per_zone(text: &mut Text, group: &Group, authority: &Authority) {
    let name = format!("millrace_zone_{}", group.name.replace('-', "_"));
    let mut rows = text.family(&name, Kind::Counter, group.help);
    for (zone, block) in own(authority) {
        for (cell, label) in group.cells() {
            let count = block.sum(cell);
            if count > 0 {
                rows.row("", &[("zone", &zone), (group.label, &label)], count);
            }
        }
    }
}

/// The zones that have rows on how they are; see [`ZONES_MAX`].
fn shown(config: &Config) -> Vec<ZoneStatus> {
    let blocks = config.authority.statistics.blocks().iter();
    let own: HashSet<&NameBuf> = blocks.filter_map(|block| block.zone.as_ref()).collect();
    let are_few = config.local.zones().count() <= ZONES_MAX;
    let zones = config.local.iter();
    let zones = zones.filter(|(live, _)| are_few || own.contains(&live.apex));
    zones
        .map(|(live, settings)| ZoneStatus::of(live, settings))
        .collect()
}

fn gauges(text: &mut Text, zones: &[ZoneStatus]) {
    for gauge in GAUGES {
        let mut rows = text.family(gauge.name, Kind::Gauge, gauge.help);
        for zone in zones {
            if let Some(value) = (gauge.value)(zone) {
                rows.row("", &[("zone", &zone.name)], value);
            }
        }
    }
}

fn limit(text: &mut Text, authority: &Authority) {
    let Some(limit) = &authority.limit else {
        return;
    };
    let help = "Answers from zones above millrace.setResponseRateLimit, by what became of them.";
    let mut rows = text.family("millrace_response_rate_limit", Kind::Counter, help);
    for (outcome, counter) in [
        ("dropped", &limit.counts.dropped),
        ("slipped", &limit.counts.slipped),
        ("would-have", &limit.counts.would_have),
    ] {
        rows.row("", &[("outcome", outcome)], counter.sum());
    }
}

/// The same under Knot's names. Of the large groups what is zero is left out; of single zones all that is.
pub fn statistics(config: &Config) -> Vec<(String, Value)> {
    if config.local.is_empty() {
        return Vec::new();
    }
    let authority = &config.authority;
    let zones = config.local.zones().count() as u64;
    let mut list = vec![("server.zone-count".to_owned(), zones.into())];
    for group in GROUPS {
        let cells = group.cells();
        let cells = cells.map(|(cell, name)| (authority.statistics.total(cell), name));
        let shown = cells.filter(|(count, _)| group.is_whole || *count > 0);
        list.extend(shown.map(|(count, name)| (named(group, &name), count.into())));
    }
    if let Some(limit) = &authority.limit {
        let counts = &limit.counts;
        list.push(("mod-rrl.slipped".to_owned(), counts.slipped.sum().into()));
        list.push(("mod-rrl.dropped".to_owned(), counts.dropped.sum().into()));
    }
    if let Some(cookies) = &authority.cookies {
        let presence = cookies.seen.sum().into();
        list.push(("mod-cookies.presence".to_owned(), presence));
    }
    for (zone, block) in own(authority) {
        for (group, cell, name) in cells() {
            let count = block.sum(cell);
            if count > 0 {
                list.push((format!("[{zone}] {}", named(group, &name)), count.into()));
            }
        }
    }
    list
}

fn cells() -> impl Iterator<Item = (&'static Group, usize, String)> {
    GROUPS
        .iter()
        .flat_map(|group| group.cells().map(move |(cell, name)| (group, cell, name)))
}

fn named(group: &Group, cell: &str) -> String {
    format!("mod-stats.{}[{cell}]", group.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::zones::ZoneSpecs;
    use crate::local::Local;
    use crate::pipeline::authority::statistics::Statistics;
    use crate::pipeline::scene::{Scene, query};
    use std::sync::Arc;
    use wire::codes::qtype;

    /// A scene with two zones that are not loaded, the second with counters of its own, and a query for each.
    fn scene() -> Scene {
        let apexes = ["example.com.", "example.org."].map(|name| name.parse::<NameBuf>().unwrap());
        let specs = ZoneSpecs::nowhere(&apexes);
        let mut scene = Scene::default();
        scene.change(|config| {
            config.local = Arc::new(Local::load(&specs, &Local::default()).0);
            let zones = config.local.zones();
            config.authority.statistics = Statistics::new(&apexes[1..], zones, 1, None);
        });
        for name in ["www.example.com.", "www.example.org."] {
            scene.ask(&query(name, qtype::A));
        }
        scene
    }

    #[test]
    fn zones_are_shown_together_and_those_that_ask_for_it_apart() {
        let scene = scene();
        let mut text = Text::default();
        families(&mut text, &scene.config);
        let text = text.finish();
        for row in [
            "millrace_zones 2",
            "millrace_zones_request_protocol{protocol=\"udp4\"} 2",
            "millrace_zones_request_protocol{protocol=\"udp6-xdp\"} 0",
            "millrace_zones_response_code{rcode=\"SERVFAIL\"} 2",
            "millrace_zones_query_type{type=\"A\"} 2",
            "millrace_zone_request_protocol{zone=\"example.org.\",protocol=\"udp4\"} 1",
            "millrace_zone_loaded{zone=\"example.com.\"} 0",
            "millrace_zone_loaded{zone=\"example.org.\"} 0",
        ] {
            assert!(text.lines().any(|line| line == row), "{row}\n{text}");
        }
        assert!(!text.contains("zone=\"example.com.\","));
        assert!(!text.contains("type=\"AAAA\"} 0\nmillrace_zones_query_type"));
    }

    fn rows(zone: ZoneStatus) -> Vec<String> {
        let mut text = Text::default();
        gauges(&mut text, &[zone]);
        let text = text.finish();
        let rows = text.lines().filter(|line| !line.starts_with('#'));
        rows.map(|row| row.replace("{zone=\"a.\"}", "")).collect()
    }

    #[test]
    fn a_zone_says_how_old_it_is() {
        let primary = ZoneStatus {
            name: "a.".to_owned(),
            serial: Some(4_294_967_295),
            ..ZoneStatus::default()
        };
        let of_primary = [
            "millrace_zone_expired 0",
            "millrace_zone_loaded 1",
            "millrace_zone_serial 4294967295",
        ];
        assert_eq!(rows(primary.clone()), of_primary);
        let secondary = ZoneStatus {
            secondary: true,
            serial: Some(7),
            refresh_in: Some(60),
            expires_in: Some(3_600),
            ..primary
        };
        let of_secondary = [
            "millrace_zone_expire_seconds 3600",
            "millrace_zone_expired 0",
            "millrace_zone_loaded 1",
            "millrace_zone_refresh_seconds 60",
            "millrace_zone_serial 7",
        ];
        assert_eq!(rows(secondary.clone()), of_secondary);
        let expired = ZoneStatus {
            serial: None,
            expires_in: None,
            expired: true,
            ..secondary
        };
        let of_expired = [
            "millrace_zone_expire_seconds 0",
            "millrace_zone_expired 1",
            "millrace_zone_loaded 0",
            "millrace_zone_refresh_seconds 60",
        ];
        assert_eq!(rows(expired), of_expired);
    }

    #[test]
    fn of_many_zones_those_with_counters_of_their_own_say_how_they_are() {
        let name = |number: usize| format!("{number}.example.").parse::<NameBuf>().unwrap();
        let apexes: Vec<NameBuf> = (0..=ZONES_MAX).map(name).collect();
        let specs = ZoneSpecs::nowhere(&apexes);
        let mut scene = Scene::default();
        scene.change(|config| {
            config.local = Arc::new(Local::load(&specs, &Local::default()).0);
            let zones = config.local.zones();
            config.authority.statistics = Statistics::new(&apexes[5..7], zones, 1, None);
        });
        let zones = shown(&scene.config);
        let mut names: Vec<&str> = zones.iter().map(|zone| zone.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["5.example.", "6.example."]);
    }

    #[test]
    fn statistics_have_knots_names() {
        let list = statistics(&scene().config);
        let value = |name: &str| {
            list.iter()
                .find(|(known, _)| known == name)
                .map(|(_, value)| *value)
        };
        assert_eq!(value("server.zone-count"), Some(Value::Whole(2)));
        assert_eq!(
            value("mod-stats.request-protocol[udp4]"),
            Some(Value::Whole(2))
        );
        assert_eq!(
            value("mod-stats.request-protocol[udp4-xdp]"),
            Some(Value::Whole(0))
        );
        assert_eq!(
            value("[example.org.] mod-stats.query-type[A]"),
            Some(Value::Whole(1))
        );
        assert_eq!(value("mod-stats.query-type[AAAA]"), None);
        assert_eq!(statistics(&Config::default()), []);
    }

    /// It tells a name that nothing is counted by from a count of zero by a list of its own.
    #[test]
    fn the_shim_knotc_knows_each_group() {
        let shim = include_str!("../../../../../packaging/knotc");
        let words: Vec<&str> = shim.split([' ', ')', '\n']).collect();
        for group in GROUPS {
            let name = format!("mod-stats.{}", group.name);
            assert!(words.contains(&name.as_str()), "{name}");
        }
    }
}
