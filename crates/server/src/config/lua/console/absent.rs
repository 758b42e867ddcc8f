//! What looks at things that there are none of: encrypted listeners, DNSCrypt, dynamic blocks. Such a function answers as dnsdist's
//! does where none is configured: with the head of an empty list, an empty table, 0, nil or nothing.

use super::super::define;
use super::say_row;
use mlua::{Lua, MultiValue, Value};

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    for (name, heads) in LISTS {
        define(lua, name, move |lua, _: MultiValue| {
            heads.iter().for_each(|head| say_row(lua, head));
            Ok(())
        })?;
    }
    for name in TABLES {
        define(lua, name, |lua, _: MultiValue| lua.create_table())?;
    }
    for name in COUNTS {
        define(lua, name, |_, _: MultiValue| Ok(0))?;
    }
    for name in OBJECTS {
        define(lua, name, |_, _: MultiValue| Ok(Value::Nil))?;
    }
    for name in DEEDS {
        define(lua, name, |_, _: MultiValue| Ok(()))?;
    }
    Ok(())
}

/// What is shown line by line, under these lines.
const LISTS: [(&str, &[&str]); 9] = [
    ("showDynBlocks", &[DYNAMIC_BLOCKS]),
    ("showTLSContexts", &[CONTEXTS]),
    ("showTLSFrontends", &[CONTEXTS]),
    ("showTLSErrorCounters", &[TLS_ERRORS]),
    ("showDOHFrontends", &[HTTPS]),
    ("showDOHResponseCodes", RESPONSE_CODES),
    ("showDOH3Frontends", &["#   Address"]),
    ("showDOQFrontends", &["#   Address"]),
    (
        "showDNSCryptBinds",
        &["#   Address              Provider Name"],
    ),
];

const DYNAMIC_BLOCKS: &str = "What                      \
    Seconds   Blocks Warning    Action               Reason";

const CONTEXTS: &str = "#   Address              # ticket keys  Rotation delay Next rotation";

const TLS_ERRORS: &str = "#   Address              \
    DH key too small        Inappropriate fallback  No shared cipher        \
    Unknown cipher type     Unknown exchange type   Unknown protocol        \
    Unsupported EC          Unsupported protocol";

const HTTPS: &str = "#   Address              HTTP            HTTP/1          HTTP/2          \
    GET             POST            Bad             Errors          Redirects       Valid           \
    # ticket keys   Rotation delay  Next rotation";

const RESPONSE_CODES: &[&str] = &["", "- HTTP/1:", "", CODES, "", "- HTTP/2:", "", CODES, ""];

const CODES: &str = "#   Address              200             400             403             \
    500             502             Others";

const TABLES: [&str; 2] = ["getDynamicBlocks", "getDynamicBlocksSMT"];

/// How many there are.
const COUNTS: [&str; 6] = [
    "getDNSCryptBindCount",
    "getDOHFrontendCount",
    "getDOH3FrontendCount",
    "getDOQFrontendCount",
    "getTLSFrontendCount",
    "getOutgoingTLSSessionCacheSize",
];

/// One of them.
const OBJECTS: [&str; 6] = [
    "getDNSCryptBind",
    "getDOHFrontend",
    "getDOH3Frontend",
    "getDOQFrontend",
    "getTLSFrontend",
    "getTLSContext",
];

/// Something done to all of them.
const DEEDS: [&str; 2] = ["clearDynBlocks", "reloadAllCertificates"];

#[cfg(test)]
mod tests {
    use crate::config::LuaState;
    use crate::config::pools::PoolNames;
    use crate::config::spec::{Purpose, Spec};

    #[test]
    fn of_none_is_told_as_of_an_empty_list() {
        let state = LuaState::new(Spec::new(Purpose::Serve, PoolNames::default())).unwrap();
        for (command, expected) in [
            (
                "showDynBlocks()",
                "What                      Seconds   Blocks Warning    Action               Reason\n",
            ),
            (
                "showDNSCryptBinds()",
                "#   Address              Provider Name\n",
            ),
            ("getDynamicBlocks()", "{}\n"),
            ("next(getDynamicBlocksSMT()) == nil", "true\n"),
            ("getTLSFrontendCount() + getDOHFrontendCount()", "0\n"),
            ("type(getTLSContext(0))", "nil\n"),
            ("reloadAllCertificates() clearDynBlocks()", ""),
        ] {
            let answer = state.command(command);
            let found = (answer.text.as_str(), answer.edited);
            assert_eq!(found, (expected, false), "{command}");
        }
    }

    /// They may stand in a file, and leave no remark: nothing of what they are for is missing.
    #[test]
    fn in_a_file_they_are_silent() {
        let state = LuaState::new(Spec::new(Purpose::Check, PoolNames::default())).unwrap();
        let file = b"clearDynBlocks() showTLSContexts() showDOHResponseCodes()";
        state.run("test.conf", file).unwrap();
        assert!(state.edit(|spec| spec.remarks.is_empty()));
    }
}
