//! Whoever looks at the daemon or tells it something while it works: console, web server, mirror.

use std::fmt::{self, Display, Formatter};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::{Fault, Harm, Kind};
use crate::metrics;
use crate::soak::daemon::said;
use crate::soak::ground::Ground;
use crate::{During, Failure, Outcome};

pub(super) const KINDS: [Kind; 3] = [
    Kind {
        name: "control-console",
        draw: |random| Box::new(Console(random.one_of(&COMMANDS))),
    },
    Kind {
        name: "control-web",
        draw: |random| Box::new(Web(random.one_of(&REQUESTS))),
    },
    Kind {
        name: "control-explain",
        draw: |_| Box::new(Explain),
    },
];

const COMMANDS: [&str; 8] = [
    "showServers()",
    "showRules()",
    "topQueries(20)",
    "dumpStats()",
    "getPool(\"auth\"):getCache():printStats()",
    "getPool(\"auth\"):getCache():expungeByName(newDNSName(\"u1.cached.example.\"))",
    "getServer(1):setDown() getServer(1):setAuto()",
    "addAction(\"console.example.\", DropAction()) rmRule(3)",
];

#[derive(Debug)]
struct Console(&'static str);

impl Display for Console {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "the console's command `{}`", self.0)
    }
}

impl Fault for Console {
    fn harm(&self) -> Harm {
        Harm::None
    }

    fn begin(&mut self, ground: &mut Ground) -> Outcome<()> {
        let file = ground.daemon.file();
        let words = ["-C", &file.to_string_lossy(), "-e", self.0];
        let output = ground.daemon.run_beside(&ground.lab, &words)?;
        let text = said(&output);
        match output.status.success() && !text.contains("Error") {
            true => Ok(()),
            false => Err(Failure::new(format!("`{}`: {text}", self.0))),
        }
    }
}

/// What is sent, and the status that it gets.
const REQUESTS: [(&str, u16); 6] = [
    ("GET /metrics", 200),
    ("GET /jsonstat?command=stats", 200),
    ("GET /api/v1/servers/localhost", 200),
    ("GET /api/v1/servers/localhost/statistics", 200),
    ("GET /no-such-page", 404),
    ("NONSENSE /metrics", 405),
];

#[derive(Debug)]
struct Web((&'static str, u16));

impl Display for Web {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "the web server is asked `{}` 20 times", self.0.0)
    }
}

impl Fault for Web {
    fn harm(&self) -> Harm {
        Harm::None
    }

    fn begin(&mut self, ground: &mut Ground) -> Outcome<()> {
        let (request, expected) = self.0;
        for _ in 0..20 {
            let status = ground.lab.server().run(|| status_of(request))?;
            let status = status.during(format!("asking `{request}`"))?;
            if status != expected {
                return Err(Failure::new(format!("`{request}`: status {status}")));
            }
        }
        Ok(())
    }
}

fn status_of(request: &str) -> std::io::Result<u16> {
    let mut stream = TcpStream::connect(metrics::ADDRESS)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let key = metrics::API_KEY;
    write!(
        stream,
        "{request} HTTP/1.0\r\nHost: soak\r\nX-API-Key: {key}\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
    status.ok_or_else(|| std::io::Error::other("no status"))
}

/// Somebody asks what would happen to a query.
#[derive(Debug)]
struct Explain;

impl Display for Explain {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("millrace explain")
    }
}

impl Fault for Explain {
    fn harm(&self) -> Harm {
        Harm::None
    }

    fn begin(&mut self, ground: &mut Ground) -> Outcome<()> {
        let words = [
            "explain",
            "www.refused.example.",
            "A",
            "--from",
            "192.0.2.100",
        ];
        let output = ground.daemon.ask(&words)?;
        match output.status.success() {
            true => Ok(()),
            false => Err(Failure::new(said(&output))),
        }
    }
}
