//! checkFunction: a function that makes what a check asks: `name, type, class = f(name, type, class, header)`.

use super::super::callback::{Callback, Limit};
use super::super::objects::name::{AnyName, DnsName};
use super::super::state::LuaState;
use super::super::wrong;
use super::header::OwnHeader;
use crate::backend::health::{Asked, CheckFunction, Shape};
use crate::clock::Now;
use mlua::{Function, Lua};
use std::sync::Arc;

pub(in super::super) fn check_function(lua: &Lua, function: Function) -> CheckFunction {
    let callback = Callback::new(lua, "checkFunction", function);
    CheckFunction(Arc::new(LuaCheck(callback)))
}

struct LuaCheck(Callback);

impl Shape for LuaCheck {
    fn shape(&self, asked: &Asked, state: &LuaState) -> Option<Asked> {
        self.0
            .call(state, Now::read(), Limit::QUERY, |_, function| {
                let header = OwnHeader::new(asked.header);
                let arguments = (
                    DnsName(asked.name.clone()),
                    asked.qtype,
                    asked.qclass,
                    header.clone(),
                );
                let (name, qtype, qclass): (AnyName, u16, u16) = function.call(arguments)?;
                if header.get().qr() {
                    return Err(wrong("setQR(true): a check is a query"));
                }
                Ok(Asked {
                    name: name.0,
                    qtype,
                    qclass,
                    header: header.get(),
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::pools::PoolNames;
    use crate::config::spec::{Purpose, Spec};
    use wire::message::Header;

    fn shaped(text: &str) -> Option<Asked> {
        let state = LuaState::new(Spec::new(Purpose::Serve, PoolNames::default())).unwrap();
        state.run("test.conf", text.as_bytes()).unwrap();
        let function = state.edit(|spec| spec.servers[0].options.health.function.clone());
        let mut header = Header::default();
        header.set_id(77);
        header.set_rd(true);
        let asked = Asked {
            name: "a.root-servers.net.".parse().unwrap(),
            qtype: 1,
            qclass: 1,
            header,
        };
        function.unwrap().0.shape(&asked, &state)
    }

    /// The manual's example.
    #[test]
    fn name_type_class_and_header_are_the_functions_to_change() {
        let asked = shaped(
            r#"function check(qname, qtype, qclass, dh)
                 assert(qname == newDNSName("a.root-servers.net.") and qtype == DNSQType.A and qclass == 1)
                 assert(dh:getRD() and not dh:getCD() and dh:getID() == 77)
                 dh:setCD(true)
                 return newDNSName("powerdns.com."), DNSQType.AAAA, qclass
               end
               newServer({address="192.0.2.1", checkFunction=check})"#,
        );
        let asked = asked.unwrap();
        assert_eq!(asked.name.to_string(), "powerdns.com.");
        assert_eq!((asked.qtype, asked.qclass), (28, 1));
        assert!(asked.header.cd() && asked.header.rd() && asked.header.id() == 77);
    }

    #[test]
    fn a_function_that_fails_asks_nothing() {
        for body in [
            "error('no')",
            "return 1",
            "dh:setQR(true) return n, t, c",
            "while true do end",
        ] {
            let text = format!(
                "newServer({{address='192.0.2.1', checkFunction=function(n, t, c, dh) {body} end}})"
            );
            assert_eq!(shaped(&text), None, "{body}");
        }
    }
}
