//! /metrics of the server under test: fetched inside its namespace, read, compared.

use std::fmt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::namespace::Namespace;
use crate::{During, Failure, Outcome};

/// Where every configuration of the lab has its web server.
pub const ADDRESS: &str = "127.0.0.1:8083";
/// The key that dnsdist asks for; ours accepts it too.
pub const API_KEY: &str = "lab";

/// One reading of all rows.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    rows: Vec<Row>,
}

/// `name{label="value",…} number`
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The family.
    pub name: String,
    /// Its labels, in order.
    pub labels: Vec<(String, String)>,
    /// Its value.
    pub value: f64,
}

impl Metrics {
    /// Fetches and reads them.
    pub fn of(server: &Namespace) -> Outcome<Self> {
        let text = server
            .run(fetch)?
            .during(format!("fetching http://{ADDRESS}/metrics"))?;
        Self::read(&text)
    }

    /// The same of a server in this process's own namespace.
    pub fn here() -> Outcome<Self> {
        let text = fetch().during(format!("fetching http://{ADDRESS}/metrics"))?;
        Self::read(&text)
    }

    /// Reads the text form of Prometheus.
    pub fn read(text: &str) -> Outcome<Self> {
        let lines = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let row = |line| {
            row_of(line).ok_or_else(|| Failure::new(format!("/metrics holds the line `{line}`")))
        };
        Ok(Self {
            rows: lines.map(row).collect::<Outcome<_>>()?,
        })
    }

    /// All rows, in the server's order.
    pub fn all(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter()
    }

    /// The rows of a family that have all these labels.
    pub fn rows<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(String, String)],
    ) -> impl Iterator<Item = &'a Row> + 'a {
        let fits = move |row: &&Row| {
            row.name == name && labels.iter().all(|label| row.labels.contains(label))
        };
        self.rows.iter().filter(fits)
    }

    /// Their sum, or `None` where there is no such row.
    pub fn sum(&self, name: &str, labels: &[(String, String)]) -> Option<f64> {
        self.rows(name, labels)
            .map(|row| row.value)
            .reduce(|one, other| one + other)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<String> = self
            .labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{value}\""))
            .collect();
        match labels.is_empty() {
            true => write!(formatter, "{} {}", self.name, self.value),
            false => write!(
                formatter,
                "{}{{{}}} {}",
                self.name,
                labels.join(","),
                self.value
            ),
        }
    }
}

fn fetch() -> std::io::Result<String> {
    let mut stream = TcpStream::connect(ADDRESS)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    // HTTP/1.0: the answer ends with the connection, and is never sent in chunks.
    write!(
        stream,
        "GET /metrics HTTP/1.0\r\nHost: lab\r\nX-API-Key: {API_KEY}\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(body.to_owned()),
        _ => Err(std::io::Error::other(
            answer.lines().next().unwrap_or("nothing came").to_owned(),
        )),
    }
}

fn row_of(line: &str) -> Option<Row> {
    let (series, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let Some((name, labels)) = series.split_once('{') else {
        return Some(Row {
            name: series.to_owned(),
            labels: Vec::new(),
            value,
        });
    };
    Some(Row {
        name: name.to_owned(),
        labels: labels_of(labels.strip_suffix('}')?)?,
        value,
    })
}

/// Reads `name="value",name="value"`; commas inside the quotes belong to the value.
pub fn labels_of(text: &str) -> Option<Vec<(String, String)>> {
    let mut labels = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, behind) = rest.split_once("=\"")?;
        let (value, behind) = behind.split_once('"')?;
        labels.push((name.to_owned(), value.to_owned()));
        rest = behind.strip_prefix(',').unwrap_or(behind);
    }
    Some(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP dnsdist_queries Number\n# TYPE dnsdist_queries counter\ndnsdist_queries 4\n\
        dnsdist_server_queries{server=\"auth\",address=\"198.51.100.2:53\"} 2\n\
        dnsdist_server_queries{server=\"b,c\",address=\"198.51.100.3:53\"} 3\n";

    #[test]
    fn rows_are_found_by_some_of_their_labels_and_added_up() {
        let metrics = Metrics::read(TEXT).expect("good text");
        assert_eq!(metrics.sum("dnsdist_queries", &[]), Some(4.0));
        assert_eq!(metrics.sum("dnsdist_server_queries", &[]), Some(5.0));
        let label = [("server".to_owned(), "b,c".to_owned())];
        assert_eq!(metrics.sum("dnsdist_server_queries", &label), Some(3.0));
        assert_eq!(metrics.sum("no_such_row", &[]), None);
    }

    #[test]
    fn a_line_that_is_no_row_is_a_failure() {
        assert!(Metrics::read("dnsdist_queries four\n").is_err());
    }
}
