//! registerWebHandler: pages of the operator's own, made by functions of the configuration.

use super::callback::{Callback, Limit};
use super::state::LuaState;
use super::{define, spec, wrong};
use crate::clock::Now;
use mlua::{Function, Lua, Table};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A request, as the function gets it: dnsdist's WebRequest.
#[derive(Debug, Default)]
pub struct WebRequest {
    pub method: String,
    pub path: String,
    /// 10 and 11 for HTTP/1.0 and 1.1.
    pub version: u8,
    /// Their names in small letters.
    pub headers: BTreeMap<String, String>,
    pub query: HashMap<String, String>,
    pub form: HashMap<String, String>,
    pub body: Vec<u8>,
}

/// What the function made: dnsdist's WebResponse.
#[derive(Debug, PartialEq, Eq)]
pub struct WebResponse {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

/// The functions, by their paths.
#[derive(Default)]
struct Handlers(HashMap<String, Arc<Callback>>);

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    lua.set_app_data(Handlers::default());
    define(
        lua,
        "registerWebHandler",
        |lua, (path, function): (String, Function)| {
            if !path.starts_with('/') {
                return Err(wrong(format!("'{path}': a path like /page expected")));
            }
            let callback = Arc::new(Callback::new(lua, "registerWebHandler", function));
            let mut handlers = lua
                .app_data_mut::<Handlers>()
                .ok_or_else(|| wrong("the state has lost its pages"))?;
            handlers.0.insert(path.clone(), callback);
            drop(handlers);
            spec(lua)?.web.options.pages.insert(path);
            Ok(())
        },
    )
}

impl LuaState {
    /// Has the function of the request's path answer. `None`: there is none, or it failed, which was said.
    pub fn answer_web(&self, request: &WebRequest) -> Option<WebResponse> {
        let find = |lua: &Lua| {
            let handlers = lua.app_data_ref::<Handlers>()?;
            handlers.0.get(&request.path).map(Arc::clone)
        };
        let callback = self.with(find)?;
        callback.call(self, Now::read(), Limit::CONTROL, |lua, function| {
            let answer = lua.create_table()?;
            answer.raw_set("status", 200)?;
            answer.raw_set("body", "")?;
            answer.raw_set("headers", lua.create_table()?)?;
            function.call::<()>((shown(lua, request)?, &answer))?;
            read(&answer)
        })
    }
}

fn shown(lua: &Lua, request: &WebRequest) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("method", request.method.as_str())?;
    table.raw_set("path", request.path.as_str())?;
    table.raw_set("version", request.version)?;
    table.raw_set("headers", request.headers.clone())?;
    table.raw_set("getvars", request.query.clone())?;
    table.raw_set("postvars", request.form.clone())?;
    table.raw_set("body", lua.create_string(&request.body)?)?;
    Ok(table)
}

fn read(answer: &Table) -> mlua::Result<WebResponse> {
    let body: mlua::LuaString = answer.raw_get("body")?;
    Ok(WebResponse {
        status: answer.raw_get("status")?,
        headers: answer.raw_get("headers")?,
        body: body.as_bytes().to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::pools::PoolNames;
    use crate::config::spec::{Purpose, Spec};

    /// The manual's example, with more of the request looked at.
    const EXAMPLE: &str = r#"
        registerWebHandler('/foo', function(req, resp)
          local get, headers = req.getvars, req.headers
          if req.path ~= '/foo' or req.version ~= 11 or req.method ~= 'GET' or get['param'] ~= '42'
             or headers['custom'] ~= 'foobar' or req.postvars['x'] ~= nil or req.body ~= '' then
            resp.status = 500
            return
          end
          resp.status = 200
          resp.body = 'It works!'
          resp.headers = { ['Foo']='Bar' }
        end)
        registerWebHandler('/bad', function() error('no') end)"#;

    fn request(path: &str) -> WebRequest {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        WebRequest {
            method: "GET".to_owned(),
            path: path.to_owned(),
            version: 11,
            headers: BTreeMap::from([pair("custom", "foobar")]),
            query: HashMap::from([pair("param", "42")]),
            ..WebRequest::default()
        }
    }

    #[test]
    fn a_page_is_made_by_its_function() {
        let state = LuaState::new(Spec::new(Purpose::Serve, PoolNames::default())).unwrap();
        state.run("test.conf", EXAMPLE.as_bytes()).unwrap();
        let expected = WebResponse {
            status: 200,
            headers: BTreeMap::from([("Foo".to_owned(), "Bar".to_owned())]),
            body: b"It works!".to_vec(),
        };
        assert_eq!(state.answer_web(&request("/foo")), Some(expected));
        let other = WebRequest {
            version: 10,
            ..request("/foo")
        };
        assert_eq!(state.answer_web(&other).map(|page| page.status), Some(500));
        assert_eq!(state.answer_web(&request("/bad")), None);
        assert_eq!(state.answer_web(&request("/foobar")), None);
        let pages = state.edit(|spec| spec.web.options.pages.clone());
        assert_eq!(pages.into_iter().collect::<Vec<_>>(), ["/bad", "/foo"]);
    }
}
