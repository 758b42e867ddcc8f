//! Metrics that the operator declares and counts, and where statistics are sent.

use super::{define, spec, wrong};
use crate::config::addresses;
use crate::control::carbon::Export;
use crate::control::metrics::custom::{CustomMetrics, Labels, MetricError, Shown};
use crate::log;
use mlua::{FromLua, Lua, Table, Value};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(
        lua,
        "declareMetric",
        |lua, (name, kind, description, shown): Declaration| {
            let declared = metrics(lua)?.declare(&name, &kind, &description, shown_as(shown)?);
            // The manual: "Returns true if declaration was successful".
            if let Err(error) = &declared {
                log::error!("declareMetric: {error}");
            }
            Ok(declared.is_ok())
        },
    )?;
    define(lua, "incMetric", |lua, (name, step): (String, Step)| {
        let added = metrics(lua)?.add(&name, step.labels, step.step);
        added.map_err(failed)
    })?;
    define(lua, "decMetric", |lua, (name, step): (String, Step)| {
        let added = metrics(lua)?.add(&name, step.labels, -step.step);
        added.map_err(failed)
    })?;
    define(
        lua,
        "setMetric",
        |lua, (name, value, options): (String, f64, Option<Table>)| {
            let labels = labels(options.as_ref())?;
            metrics(lua)?.set(&name, labels, value).map_err(failed)
        },
    )?;
    define(
        lua,
        "getMetric",
        |lua, (name, options): (String, Option<Table>)| {
            let labels = labels(options.as_ref())?;
            metrics(lua)?.get(&name, &labels).map_err(failed)
        },
    )?;
    define(lua, "carbonServer", carbon_server)
}

type Carbon = (
    String,
    Option<String>,
    Option<u32>,
    Option<String>,
    Option<String>,
);

/// `carbonServer(serverIP [, ourname [, interval [, namespace [, instance]]]])`.
fn carbon_server(
    lua: &Lua,
    (server, host, every, namespace, instance): Carbon,
) -> mlua::Result<()> {
    let word = |given: Option<String>, usual: &str| match given {
        Some(word) if !word.is_empty() => word,
        _ => usual.to_owned(),
    };
    let every = every
        .filter(|seconds| *seconds > 0)
        .unwrap_or(CARBON_INTERVAL);
    let export = Export {
        server: addresses::with_port(&server, CARBON_PORT).map_err(wrong)?,
        host: word(host, ""),
        every: Duration::from_secs(every.into()),
        namespace: word(namespace, "dnsdist"),
        instance: word(instance, "main"),
    };
    let mut spec = spec(lua)?;
    if !spec.carbon.contains(&export) {
        spec.carbon.push(export);
    }
    Ok(())
}

/// Carbon's port for lines of text.
const CARBON_PORT: u16 = 2003;

/// Seconds; dnsdist's default.
const CARBON_INTERVAL: u32 = 30;

/// Name, type, description, and the name in /metrics or a table that has it.
type Declaration = (String, String, String, Value);

fn metrics(lua: &Lua) -> mlua::Result<Arc<CustomMetrics>> {
    Ok(Arc::clone(&spec(lua)?.custom_metrics))
}

fn failed(error: MetricError) -> mlua::Error {
    wrong(error.to_string())
}

/// A name, or `{name="…", withLabels=true}`; `customName` is `name`, as manuals before 2.0 had it.
fn shown_as(value: Value) -> mlua::Result<Shown> {
    let (name, with_labels) = match value {
        Value::Nil => (None, None),
        Value::Table(table) => {
            let name: Option<String> = table.get("name")?;
            let name = name.map_or_else(|| table.get("customName"), |name| Ok(Some(name)))?;
            (name, table.get("withLabels")?)
        }
        Value::String(text) => (Some(text.to_string_lossy()), None),
        other => {
            return Err(wrong(format!(
                "prometheusName: a text expected, got a {}",
                other.type_name()
            )));
        }
    };
    Ok(Shown {
        name: name.unwrap_or_default(),
        with_labels: with_labels.unwrap_or_default(),
    })
}

/// What `incMetric` and `decMetric` take behind the name: a number, or `{step=…, labels={…}}`.
struct Step {
    step: f64,
    labels: Labels,
}

impl FromLua for Step {
    fn from_lua(value: Value, lua: &Lua) -> mlua::Result<Step> {
        let (step, labels) = match value {
            Value::Nil => (None, Labels::new()),
            Value::Table(table) => (table.get("step")?, labels(Some(&table))?),
            number => (Some(f64::from_lua(number, lua)?), Labels::new()),
        };
        Ok(Step {
            step: step.unwrap_or(1.0),
            labels,
        })
    }
}

/// The `labels` of a table of options, by name.
fn labels(options: Option<&Table>) -> mlua::Result<Labels> {
    let table = options.map(|options| options.get::<Option<Table>>("labels"));
    let Some(table) = table.transpose()?.flatten() else {
        return Ok(Labels::new());
    };
    let mut labels = table
        .pairs::<String, String>()
        .collect::<mlua::Result<Labels>>()?;
    labels.sort();
    Ok(labels)
}
