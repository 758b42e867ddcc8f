//! How servers are checked: the options of newServer and of setHealthCheckParams.

use super::objects::name::AnyName;
use super::options::Options;
use super::query::check_function;
use super::selectors::Qtype;
use super::wrong;
use crate::backend::lazy::LazyOptions;
use crate::backend::server::{HealthMode, HealthOptions};
use mlua::{Function, Lua};
use std::time::Duration;

pub(super) fn read(
    lua: &Lua,
    options: &mut Options<'_>,
    health: &mut HealthOptions,
) -> mlua::Result<()> {
    if let Some(mode) = options.get::<String>("healthCheckMode")? {
        (health.mode, health.is_lazy) = health_mode(&mode)?;
    }
    read_lazy(options, &mut health.lazy)?;
    if let Some(name) = options.get::<AnyName>("checkName")? {
        health.name = name.0.to_string();
    }
    if let Some(qtype) = options.get::<Qtype>("checkType")? {
        health.qtype = qtype.0;
    }
    health.qclass = options
        .number("checkClass", "a DNSClass")?
        .unwrap_or(health.qclass);
    read_check_limits(options, health)?;
    health.must_resolve = options.flag("mustResolve")?.unwrap_or(false);
    health.set_cd = options.flag("setCD")?.unwrap_or(false);
    health.over_tcp = options.flag("checkTCP")?.unwrap_or(false);
    health.function = options
        .get::<Function>("checkFunction")?
        .map(|function| check_function(lua, function));
    Ok(())
}

/// The options of `healthCheckMode='lazy'` and of setLazyAuto.
fn read_lazy(options: &mut Options<'_>, lazy: &mut LazyOptions) -> mlua::Result<()> {
    if let Some(interval) = options.seconds("lazyHealthCheckFailedInterval")? {
        lazy.failed_interval = interval.max(Duration::from_secs(1));
    }
    lazy.minimum_sample = options
        .number("lazyHealthCheckMinSampleCount", QUERIES)?
        .unwrap_or(lazy.minimum_sample);
    lazy.sample_size = options
        .number("lazyHealthCheckSampleSize", QUERIES)?
        .unwrap_or(lazy.sample_size);
    if lazy.sample_size == 0 {
        return Err(wrong(
            "lazyHealthCheckSampleSize: 1 or more expected, got 0",
        ));
    }
    if let Some(percent) = options.number("lazyHealthCheckThreshold", PERCENT)? {
        lazy.threshold = match percent {
            1..=100 => percent,
            other => {
                return Err(wrong(format!(
                    "lazyHealthCheckThreshold: {PERCENT} expected, got {other}"
                )));
            }
        };
    }
    if let Some(mode) = options.get::<String>("lazyHealthCheckMode")? {
        lazy.counts_servfail = counts_servfail(&mode)?;
    }
    let maximum = options.seconds("lazyHealthCheckMaxBackOff")?;
    let backs_off = options.flag("lazyHealthCheckUseExponentialBackOff")?;
    lazy.maximum_back_off = (backs_off == Some(true)).then(|| maximum.unwrap_or(MAXIMUM_BACK_OFF));
    Ok(())
}

const QUERIES: &str = "a number of queries below 65536";
const PERCENT: &str = "a number from 1 to 100";
const MAXIMUM_BACK_OFF: Duration = Duration::from_secs(3_600);

fn counts_servfail(mode: &str) -> mlua::Result<bool> {
    match mode.to_ascii_lowercase().as_str() {
        "timeoutorservfail" => Ok(true),
        "timeoutonly" => Ok(false),
        _ => Err(wrong(format!(
            "lazyHealthCheckMode: TimeoutOnly or TimeoutOrServFail expected, got {mode}"
        ))),
    }
}

/// What setHealthCheckParams changes too.
pub(super) fn read_check_limits(
    options: &mut Options<'_>,
    health: &mut HealthOptions,
) -> mlua::Result<()> {
    if let Some(interval) = options.seconds("checkInterval")? {
        health.interval = interval.max(Duration::from_secs(1));
    }
    if let Some(milliseconds) = options.number::<u32>("checkTimeout", "milliseconds")? {
        if milliseconds == 0 {
            return Err(wrong("checkTimeout: 1 or more expected, got 0"));
        }
        health.timeout = Duration::from_millis(milliseconds.into());
    }
    health.maximum_failures = options
        .number("maxCheckFailures", "a number")?
        .unwrap_or(health.maximum_failures);
    health.rise = options.number("rise", "a number")?.unwrap_or(health.rise);
    Ok(())
}

/// The mode, and whether checks are lazy.
fn health_mode(text: &str) -> mlua::Result<(HealthMode, bool)> {
    match text.to_ascii_lowercase().as_str() {
        "auto" => Ok((HealthMode::Auto, false)),
        "up" => Ok((HealthMode::Up, false)),
        "down" => Ok((HealthMode::Down, false)),
        "lazy" => Ok((HealthMode::Auto, true)),
        _ => Err(wrong(format!(
            "healthCheckMode: auto, lazy, up or down expected, got {text}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::LuaState;
    use super::*;
    use crate::config::pools::PoolNames;
    use crate::config::spec::{Purpose, Spec};

    fn read(options: &str) -> Result<HealthOptions, String> {
        let state = LuaState::new(Spec::new(Purpose::Serve, PoolNames::default())).unwrap();
        let text = format!("newServer{{address='192.0.2.1', {options}}}");
        let run = state.run("test.conf", text.as_bytes());
        run.map_err(|error| error.to_string())?;
        Ok(state.edit(|spec| spec.servers[0].options.health.clone()))
    }

    #[test]
    fn lazy_checks_have_the_manuals_defaults() {
        let health = read("healthCheckMode='lazy'").unwrap();
        assert!(health.is_lazy && health.mode == HealthMode::Auto);
        assert_eq!(health.lazy, LazyOptions::default());
        assert!(!read("healthCheckMode='auto'").unwrap().is_lazy);
    }

    #[test]
    fn every_option_of_lazy_checks_is_read() {
        let health = read(
            "healthCheckMode='Lazy', lazyHealthCheckFailedInterval=60, lazyHealthCheckMinSampleCount=10,
             lazyHealthCheckMode='TimeoutOnly', lazyHealthCheckSampleSize=200, lazyHealthCheckThreshold=50,
             lazyHealthCheckUseExponentialBackOff=true, lazyHealthCheckMaxBackOff=600",
        );
        let expected = LazyOptions {
            sample_size: 200,
            minimum_sample: 10,
            threshold: 50,
            counts_servfail: false,
            failed_interval: Duration::from_secs(60),
            maximum_back_off: Some(Duration::from_secs(600)),
        };
        assert_eq!(health.unwrap().lazy, expected);
        let hour = read("lazyHealthCheckUseExponentialBackOff=true").unwrap();
        assert_eq!(hour.lazy.maximum_back_off, Some(Duration::from_secs(3_600)));
    }

    #[test]
    fn what_cannot_be_meant_is_said() {
        for (options, expected) in [
            (
                "healthCheckMode='slow'",
                "healthCheckMode: auto, lazy, up or down expected, got slow",
            ),
            (
                "lazyHealthCheckMode='x'",
                "lazyHealthCheckMode: TimeoutOnly or TimeoutOrServFail expected, got x",
            ),
            (
                "lazyHealthCheckThreshold=101",
                "lazyHealthCheckThreshold: a number from 1 to 100 expected, got 101",
            ),
            (
                "lazyHealthCheckSampleSize=0",
                "lazyHealthCheckSampleSize: 1 or more expected, got 0",
            ),
            ("checkFunction=1", "checkFunction: "),
            ("checkTimeout=0", "checkTimeout: 1 or more expected, got 0"),
        ] {
            let error = read(options).unwrap_err();
            assert!(error.contains(expected), "{options}: {error}");
        }
    }
}
