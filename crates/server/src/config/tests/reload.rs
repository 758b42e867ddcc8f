//! Command line and defaults; what stays the same object over a reload.

use super::examples::CONFIGURATION_D;
use super::*;
use crate::counters::Lane;

#[test]
fn the_command_line_stands_over_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x.conf");
    std::fs::write(
        &file,
        "addLocal('192.0.2.1', {xdp=true}) addACL('192.0.2.0/24') newServer('192.0.2.7')",
    )
    .unwrap();
    let overrides = Overrides {
        listeners: vec![address("127.0.0.1:5300").into()],
        acl: vec!["198.51.100.0/24".parse().unwrap()],
        servers: vec![address("192.0.2.8:53")],
    };
    let state = load(Some(&file), &overrides, Purpose::Serve, None).unwrap();
    let config = state.edit(|spec| derive(spec, None)).unwrap();
    assert_eq!(config.listeners, [plain(address("127.0.0.1:5300"))]);
    assert_eq!(config.acl.to_string(), "192.0.2.0/24, 198.51.100.0/24");
    let servers: Vec<_> = config
        .servers
        .iter()
        .map(|server| server.options.address)
        .collect();
    assert_eq!(servers, [address("192.0.2.7:53"), address("192.0.2.8:53")]);
}

#[test]
fn without_anything_the_local_host_is_served() {
    let state = load(None, &Overrides::default(), Purpose::Serve, None).unwrap();
    let config = state.edit(|spec| derive(spec, None)).unwrap();
    assert_eq!(config.listeners, [plain(address("127.0.0.1:53"))]);
}

#[test]
fn files_of_a_directory_are_included_by_name() {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("b.conf", "x = x .. 'b'"),
        ("a.conf", "x = 'a'"),
        ("c.txt", "x = nil"),
        (".d.conf", "x = nil"),
    ] {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    std::fs::create_dir(directory.path().join("folder.conf")).unwrap();
    config(&format!(
        "includeDirectory('{}') assert(x == 'ab')",
        directory.path().display()
    ));
}

/// It was read within itself until the stack was used up, which ended the process.
#[test]
fn a_file_that_includes_its_own_directory_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("own.conf");
    let include = format!("includeDirectory('{}')", directory.path().display());
    std::fs::write(&file, format!("\n{include}")).unwrap();
    let text = error(&include);
    assert!(text.contains("own.conf:2: includeDirectory: "), "{text}");
    assert!(text.contains("own.conf is being read already"), "{text}");
    // One behind the other is something else.
    std::fs::write(&file, "count = (count or 0) + 1").unwrap();
    config(&format!("{include} {include} assert(count == 2)"));
}

#[test]
fn a_file_that_loops_is_stopped() {
    let state = LuaState::new(Spec::new(Purpose::Serve, PoolNames::default())).unwrap();
    let looping = b"while true do pcall(function() while true do end end) end";
    let Err(error) = state.run_within(Duration::from_millis(20), "test.conf", looping) else {
        panic!("it ended")
    };
    assert!(
        error.to_string().starts_with("test.conf: stopped after"),
        "{error}"
    );
    let patience = Duration::from_secs(60);
    state.run_within(patience, "test.conf", b"x = 1").unwrap();
    let outcome = state.run_within(patience, "test.conf", b"\nnosuch()");
    let error = outcome.unwrap_err().to_string();
    assert!(error.starts_with("test.conf:2: "), "{error}");
}

#[test]
fn a_long_path_is_told_whole() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(format!("{}.conf", "long".repeat(20)));
    std::fs::write(&file, "\nnosuch()").unwrap();
    let Err(error) = load(Some(&file), &Overrides::default(), Purpose::Check, None) else {
        panic!("this loads")
    };
    assert!(
        error
            .to_string()
            .starts_with(&format!("{}:2: attempt to call", file.display())),
        "{error}"
    );
}

#[test]
fn a_reload_keeps_what_means_the_same() {
    let old = config(CONFIGURATION_D);
    let new = reload(CONFIGURATION_D, Some(&old)).unwrap();
    assert_eq!((old.generation, new.generation), (1, 2));
    assert!(Arc::ptr_eq(&old.servers[0], &new.servers[0]));
    assert!(
        old.rules
            .iter()
            .zip(&new.rules)
            .all(|(old, new)| Arc::ptr_eq(&old.matches, &new.matches) && old.uuid == new.uuid)
    );
    let cache = |config: &Config| {
        Arc::clone(
            config
                .pool(config.pool_names.find("auth").unwrap())
                .unwrap()
                .cache
                .as_ref()
                .unwrap(),
        )
    };
    assert!(Arc::ptr_eq(&cache(&old), &cache(&new)));
    let smaller = reload(&CONFIGURATION_D.replace("100000", "1000"), Some(&old)).unwrap();
    assert!(!Arc::ptr_eq(&cache(&old), &cache(&smaller)));
}

/// Which server of the old configuration each of the new one is.
fn kept(old: &str, new: &str) -> Vec<Option<usize>> {
    let old = config(old);
    let new = reload(new, Some(&old)).unwrap();
    new.servers
        .iter()
        .map(|server| old.servers.iter().position(|old| Arc::ptr_eq(old, server)))
        .collect()
}

#[test]
fn servers_over_a_reload() {
    let (one, two) = ("newServer('192.0.2.1') ", "newServer('192.0.2.2') ");
    assert_eq!(
        kept(&[one, two].concat(), &[two, one].concat()),
        [Some(1), Some(0)]
    );
    assert_eq!(kept(one, &[one, one].concat()), [Some(0), None]);
    let named = "newServer{address='192.0.2.1', name='n'}";
    assert_eq!(
        kept(named, "newServer{address='192.0.2.1', name='m'}"),
        [None]
    );
    assert_eq!(kept(named, named), [Some(0)]);
    // Several may have one name.
    let of_name = |ends: &[u8]| -> String {
        let servers = ends.iter();
        servers
            .map(|end| format!("newServer{{address='192.0.2.{end}', name='n'}} "))
            .collect()
    };
    assert_eq!(
        kept(&of_name(&[1, 2]), &of_name(&[2, 1])),
        [Some(1), Some(0)]
    );
    assert_eq!(
        kept(
            "newServer{address='192.0.2.1', id='x'}",
            "newServer{address='192.0.2.1', id='y'}"
        ),
        [None]
    );
    // Changed options make a new server, which starts as up as the old one was, and counts on (I8).
    let old = config(named);
    old.servers[0].state.set_checked(true);
    old.servers[0].queries.count(crate::counters::Lane::SHARED);
    let new = reload(
        "newServer{address='192.0.2.1', name='n', weight=5}",
        Some(&old),
    )
    .unwrap();
    assert!(new.servers[0].state.is_up());
    assert_eq!(new.servers[0].queries.sum(), 1);
    assert_ne!(new.servers[0].number, old.servers[0].number);
    // Of several with one name, the changed one goes on with what no unchanged one is.
    let old = config(&of_name(&[1, 2]));
    old.servers[0].queries.count(crate::counters::Lane::SHARED);
    let new = reload(&of_name(&[3, 2]), Some(&old)).unwrap();
    assert_eq!(new.servers[0].queries.sum(), 1);
    assert!(Arc::ptr_eq(&new.servers[1], &old.servers[1]));
    let new = reload(&of_name(&[3, 1]), Some(&old)).unwrap();
    assert_eq!(new.servers[0].queries.sum(), 0);
    assert!(Arc::ptr_eq(&new.servers[1], &old.servers[0]));
    // A number is never given twice.
    let none = reload("", Some(&new)).unwrap();
    let again = reload(named, Some(&none)).unwrap();
    assert!(again.servers[0].number.0 > new.servers[0].number.0);
}

/// The zones of the new configuration are loaded between the two, and no first check follows.
#[test]
fn a_changed_server_is_as_well_as_it_was_found_last() {
    let unchanged = "newServer('192.0.2.2')";
    let named = "newServer{address='192.0.2.1', name='n'}";
    let old = config(&[named, unchanged].join(" "));
    for server in &old.servers {
        server.state.set_checked(true);
    }
    let changed = "newServer{address='192.0.2.1', name='n', weight=5}";
    let new = reload(&[changed, unchanged].join(" "), Some(&old)).unwrap();
    let up = || -> Vec<bool> {
        let servers = new.servers.iter();
        servers.map(|server| server.state.is_checked_up()).collect()
    };
    assert_eq!(up(), [true, true]);
    old.servers[0].state.set_checked(false);
    new.catch_up_with(&old);
    assert_eq!(up(), [false, true]);
}

#[test]
fn what_an_operator_forced_is_dropped_by_a_reload() {
    let old = config("newServer('192.0.2.1')");
    old.servers[0]
        .state
        .set_mode(crate::backend::server::HealthMode::Down);
    let new = reload("newServer('192.0.2.1')", Some(&old)).unwrap();
    assert!(Arc::ptr_eq(&old.servers[0], &new.servers[0]));
    assert_eq!(new.servers[0].state.word(), "DOWN");
    new.take_effect();
    assert_eq!(new.servers[0].state.word(), "down");
}

#[test]
fn rules_over_a_reload() {
    let kept = |old: &str, new: &str| -> Vec<Option<usize>> {
        let old = config(old);
        let new = reload(new, Some(&old)).unwrap();
        let place = |matches| {
            old.rules
                .iter()
                .position(|old| Arc::ptr_eq(&old.matches, matches))
        };
        new.rules.iter().map(|rule| place(&rule.matches)).collect()
    };
    let (a, b) = (
        "addAction('a', DropAction()) ",
        "addAction('b', DropAction()) ",
    );
    assert_eq!(kept(&[a, b].concat(), &[a, b].concat()), [Some(0), Some(1)]);
    assert_eq!(kept(&[a, b].concat(), &[b, a].concat()), [None, None]);
    let named = "addAction('a', DropAction(), {name='n'}) ";
    assert_eq!(
        kept(
            named,
            &[b, "addAction('c', AllowAction(), {name='n'})"].concat()
        ),
        [None, Some(0)]
    );
    // A name may stand twice, and rules of one name are several all the same.
    assert_eq!(
        kept(&[named, named].concat(), &[named, named, named].concat()),
        [Some(0), Some(1), None]
    );
    let given = "addAction('a', DropAction(), {uuid='00000000-0000-4000-8000-00000000000a'}) ";
    let again = "addAction('c', AllowAction(), {uuid='00000000-0000-4000-8000-00000000000a'})";
    assert_eq!(kept(given, &[b, again].concat()), [None, Some(0)]);
    // RFC 9562 section 4: letters of either case are the same UUID.
    let capital = given.replace("00a'", "00A'");
    assert_eq!(kept(given, &capital), [Some(0)]);
    // Nor does one that reads the same take it away, or share it.
    assert_eq!(kept(given, &[a, given].concat()), [None, Some(0)]);
    let other = "addAction('a', DropAction(), {uuid='00000000-0000-4000-8000-00000000000b'})";
    assert_eq!(kept(given, other), [None]);
}

/// Each rule was held against the one before it, since that which counts stands in front.
#[test]
fn rules_and_query_counters_live_on_where_queries_are_counted() {
    let text = "setQueryCount(true) addAction('a', DropAction()) addAction('b', DropAction())";
    let old = config(text);
    old.query_counters.as_ref().unwrap().count("a.example");
    let kept = |new: &Config| {
        let pairs = new.listed_rules().iter().zip(old.listed_rules());
        let kept = pairs.filter(|(new, old)| Arc::ptr_eq(&new.matches, &old.matches));
        kept.count()
    };
    let new = reload(text, Some(&old)).unwrap();
    assert_eq!(kept(&new), 2);
    assert_eq!(new.query_counters.as_ref().unwrap().look(9).names, 1);
    let uncounted = reload(&text.replace("true", "false"), Some(&old)).unwrap();
    assert_eq!((kept(&uncounted), uncounted.rules.len()), (2, 2));
}

#[test]
fn pools_that_shared_a_cache_and_do_not_any_more() {
    let shared = "c = newPacketCache(10) getPool('a'):setCache(c) getPool('b'):setCache(c)";
    let separate =
        "getPool('a'):setCache(newPacketCache(10)) getPool('b'):setCache(newPacketCache(10))";
    let caches = |config: &Config| {
        ["a", "b"].map(|name| {
            Arc::clone(
                config
                    .pool(config.pool_names.find(name).unwrap())
                    .unwrap()
                    .cache
                    .as_ref()
                    .unwrap(),
            )
        })
    };
    let old = config(shared);
    let [old_a, old_b] = caches(&old);
    assert!(Arc::ptr_eq(&old_a, &old_b));
    let [new_a, new_b] = caches(&reload(separate, Some(&old)).unwrap());
    assert!(Arc::ptr_eq(&new_a, &old_a) && !Arc::ptr_eq(&new_b, &old_a));
    let [a, b] = caches(&reload(shared, Some(&config(separate))).unwrap());
    assert!(Arc::ptr_eq(&a, &b));
}

#[test]
fn an_edit_at_run_time_finds_its_objects() {
    let state = state(CONFIGURATION_D, None).unwrap();
    let old = state.edit(|spec| derive(spec, None)).unwrap();
    state
        .run(
            "=console",
            b"mvRuleToTop() newServer('192.0.2.3') getServer(0):addPool('other')",
        )
        .unwrap();
    let new = state.edit(|spec| derive(spec, Some(&old))).unwrap();
    assert!(Arc::ptr_eq(&old.rules[3].matches, &new.rules[0].matches));
    assert_eq!(new.servers.len(), 2);
    assert!(new.pool(new.pool_names.find("other").unwrap()).is_some());
}

#[test]
fn an_edit_takes_nothing_from_a_rule_that_reads_the_same() {
    let state = state("addAction('a.example', DropAction())", None).unwrap();
    let first = state.derive(None).unwrap();
    first.rules[0].matches.count(Lane::SHARED);
    let answer = state.command("addAction('a.example', DropAction()) mvRuleToTop()");
    assert_eq!((answer.text.as_str(), answer.edited), ("", true));
    let second = state.derive(Some(&first)).unwrap();
    assert_ne!(second.rules[0].uuid, first.rules[0].uuid);
    assert_eq!(second.rules[1].uuid, first.rules[0].uuid);
    let matches = second.rules.iter().map(|rule| rule.matches.sum());
    assert_eq!(matches.collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_server_that_an_edit_leaves_alone_stays_the_same() {
    let state = state("newServer('192.0.2.1') newServer('192.0.2.2')", None).unwrap();
    let first = state.derive(None).unwrap();
    state.command("getServer(0):setDown() getServer(1).weight = 5 newServer('192.0.2.1')");
    let second = state.derive(Some(&first)).unwrap();
    assert!(Arc::ptr_eq(&first.servers[0], &second.servers[0]));
    assert_eq!(second.servers[1].options.weight, 5);
    let numbers: Vec<_> = second
        .servers
        .iter()
        .map(|server| server.number.0)
        .collect();
    assert_eq!(numbers, [0, 2, 3]);
}
