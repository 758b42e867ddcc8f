//! Metrics that the operator declares and counts.

use super::{define, spec, wrong};
use crate::control::metrics::custom::{CustomMetrics, Labels, MetricError};
use mlua::{FromLua, Lua, Table, Value};
use std::sync::Arc;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(
        lua,
        "declareMetric",
        |lua, (name, kind, description, shown): Declaration| {
            let shown = prometheus_name(shown)?;
            let declared = metrics(lua)?.declare(&name, &kind, &description, shown.as_deref());
            declared.map(|()| true).map_err(failed)
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
    )
}

/// Name, type, description, and the name in /metrics or a table that has it.
type Declaration = (String, String, String, Value);

fn metrics(lua: &Lua) -> mlua::Result<Arc<CustomMetrics>> {
    Ok(Arc::clone(&spec(lua)?.custom_metrics))
}

fn failed(error: MetricError) -> mlua::Error {
    wrong(error.to_string())
}

/// A name, or `{customName="…"}`.
fn prometheus_name(value: Value) -> mlua::Result<Option<String>> {
    match value {
        Value::Nil => Ok(None),
        Value::Table(table) => table.get("customName"),
        Value::String(text) => Ok(Some(text.to_string_lossy())),
        other => Err(wrong(format!(
            "prometheusName: a text expected, got a {}",
            other.type_name()
        ))),
    }
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
