//! What operators type into a running instance, and what they read of it: compared with dnsdist 1.7.3.

use super::*;

/// An ACL says one thing of a network, the last that was said; who takes a network out need not know what that was.
#[test]
fn an_acl_has_each_network_once() {
    asked(
        "setACL({'192.0.2.0/24', '!192.0.2.7', '192.0.2.0/24', '192.0.2.7'})",
        &[
            ("showACL()", "192.0.2.0/24\n192.0.2.7/32\n"),
            (
                "addACL('192.0.2.9/24') showACL()",
                "192.0.2.7/32\n192.0.2.0/24\n",
            ),
            (
                "addACL('!192.0.2.7') showACL()",
                "192.0.2.0/24\n!192.0.2.7/32\n",
            ),
            ("rmACL('192.0.2.7') showACL()", "192.0.2.0/24\n"),
            ("rmACL('!192.0.2.0/24') showACL()", ""),
        ],
    );
    asked(
        "setConsoleACL({'192.0.2.0/24', '192.0.2.0/24'}) addConsoleACL('192.0.2.0/24')",
        &[("showConsoleACL()", "192.0.2.0/24\n")],
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("acl");
    std::fs::write(&path, "192.0.2.0/24\n!192.0.2.0/24\n").unwrap();
    asked(
        &format!("setACLFromFile('{}')", path.display()),
        &[("showACL()", "!192.0.2.0/24\n")],
    );
}

#[test]
fn a_pool_that_is_not_there_is_no_pool_to_leave() {
    asked(
        "newServer{address='192.0.2.1', pool='a'} getPool('b')",
        &[
            (
                "getServer(0):rmPool('c')",
                "Error: rmPool: there is no pool 'c'\n",
            ),
            ("getServer(0):rmPool('b')", ""),
            ("getServer(0):rmPool('a')", ""),
        ],
    );
}

#[test]
fn help_says_where_there_is_none() {
    asked(
        "",
        &[
            ("help('nonsense')", "Nothing found for nonsense\n"),
            (
                "help('rmACL')",
                "rmACL(netmask): take a netmask out that was added by itself\n",
            ),
        ],
    );
}

/// dnsdist: "Are you looking for addResponseAction()?", and the other way round.
#[test]
fn an_action_in_the_wrong_chain_is_told_where_it_belongs() {
    for (line, expected) in [
        (
            "addResponseAction('a', DropAction())",
            "addResponseAction: an action on responses expected, got one on queries, which addAction takes",
        ),
        (
            "addAction('a', DropResponseAction())",
            "addAction: an action expected, got one on responses, which addResponseAction and its sisters take",
        ),
    ] {
        assert_eq!(
            error(line),
            format!("test.conf:1: {line_error}", line_error = expected)
        );
    }
}

#[test]
fn a_uuid_is_found_however_it_is_written() {
    let rule = "addAction('a', DropAction(), {uuid='{6BA7B810-9dad-11d1-80b4-00c04fd430c8}'})";
    asked(
        rule,
        &[(
            "showRules({showUUIDs=true, truncateRuleWidth=3})",
            "#   Name                           UUID                                   Cr. Order   Matches Rule                                                     Action\n\
             0                                  6ba7b810-9dad-11d1-80b4-00c04fd430c8           0         0 qna                                                      drop\n",
        )],
    );
    for written in [
        "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "6BA7B8109DAD11D180B400C04FD430C8",
        "{6ba7b810-9dad-11d1-80b4-00c04fd430c8}",
    ] {
        asked(
            rule,
            &[
                (&format!("rmRule('{written}')"), ""),
                ("getRule(0) == nil", "true\n"),
            ],
        );
        asked(
            "newServer{address='192.0.2.1', name='one', id='6BA7B8109dad11d180b400c04fd430c8'}",
            &[(&format!("getServer('{written}').name"), "one\n")],
        );
    }
    let twice = "addAction('b', DropAction(), {uuid='6ba7b8109dad11d180b400c04fd430c8'})";
    assert!(error(&format!("{rule} {twice}")).contains("is that of rule 0 already"));
}

#[test]
fn what_is_not_there_has_no_methods() {
    let nothing = "Error: console:1: attempt to index a nil value: getServer, getPool(name):getCache and their like return nil for \
                   what is not there\n";
    asked(
        "newServer{address='192.0.2.1', name='one'}",
        &[
            ("getServer('one'):setDown()", nothing),
            ("getPool(''):getCache():printStats()", nothing),
        ],
    );
}
