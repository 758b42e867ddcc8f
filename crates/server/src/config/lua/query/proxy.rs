//! What `dq` and `dr` know of the PROXY protocol's values.

use super::super::proxy::{octets, of_table};
use super::subject::{Live, with};
use mlua::{LuaString, Table, UserDataMethods};

pub(super) fn add_methods<T: Live + 'static, M: UserDataMethods<T>>(methods: &mut M) {
    methods.add_method("getProxyProtocolValues", |lua, object, ()| {
        let values = with(lua, object, |subject| {
            let extras = subject.extras.as_ref();
            Ok(extras.map(|extras| extras.proxy_values.clone()))
        })?;
        let table = lua.create_table()?;
        for value in values.iter().flat_map(|values| values.iter()) {
            // Of a type that has several, the last one.
            table.raw_set(value.kind, lua.create_string(value.octets)?)?;
        }
        Ok(table)
    });
    methods.add_method(
        "addProxyProtocolValue",
        |lua, object, (kind, value): (u8, LuaString)| {
            let octets = octets(&value)?;
            with(lua, object, |subject| {
                subject.extras().proxy_values.add(kind, &octets);
                Ok(())
            })
        },
    );
    methods.add_method("setProxyProtocolValues", |lua, object, table: Table| {
        let values = of_table(&table)?;
        with(lua, object, |subject| {
            subject.extras().proxy_values = values.clone();
            Ok(())
        })
    });
}
