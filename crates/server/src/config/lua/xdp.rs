//! AF_XDP beyond dnsdist's words: functions of the table `millrace`.

use super::options::{Flag, Options};
use super::{spec, wrong, zones};
use mlua::{Lua, Table};
use xsk::{AttachMode, BindMode, BusyPoll};

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    let table: Table = lua.globals().raw_get(zones::TABLE)?;
    let keep = lua.create_function(|lua, Flag(keep): Flag| {
        spec(lua)?.tuning.keep_xdp = keep;
        Ok(())
    })?;
    table.raw_set("setKeepXDP", keep)?;
    table.raw_set("setXDPMode", lua.create_function(set_mode)?)?;
    table.raw_set("setBusyPoll", lua.create_function(set_busy_poll)?)
}

/// For drivers whose native mode or zero-copy is broken.
fn set_mode(lua: &Lua, mode: String) -> mlua::Result<()> {
    let (attach, bind) = match mode.as_str() {
        "auto" => (AttachMode::Auto, BindMode::Auto),
        "copy" => (AttachMode::Auto, BindMode::Copy),
        "generic" => (AttachMode::Generic, BindMode::Copy),
        _ => {
            return Err(wrong(format!(
                "\"auto\", \"copy\" or \"generic\" expected, got '{mode}'"
            )));
        }
    };
    let tuning = &mut spec(lua)?.tuning;
    (tuning.attach_mode, tuning.bind_mode) = (attach, bind);
    Ok(())
}

/// What the kernel's own example polls with.
const USUAL: BusyPoll = BusyPoll {
    microseconds: 20,
    budget: 64,
};

/// Longer than that a worker that has nothing to do need not look busy.
const MICROSECONDS_MAX: u32 = 1_000_000;

/// Frames a poll: more than a batch of a worker's would wait in the ring only.
const BUDGET_MAX: u16 = xsk::BATCH as u16;

fn set_busy_poll(lua: &Lua, table: Option<Table>) -> mlua::Result<()> {
    let mut options = Options::new(lua, "millrace.setBusyPoll", table);
    let microseconds = options.number("microseconds", "0 to 1000000")?;
    let budget = options.number("budget", "1 to 64")?;
    options.finish()?;
    let wish = BusyPoll {
        microseconds: microseconds.unwrap_or(USUAL.microseconds),
        budget: budget.unwrap_or(USUAL.budget),
    };
    if wish.microseconds > MICROSECONDS_MAX {
        let given = wish.microseconds;
        return Err(wrong(format!(
            "microseconds: 0 to {MICROSECONDS_MAX} expected, got {given}"
        )));
    }
    if !(1..=BUDGET_MAX).contains(&wish.budget) {
        let given = wish.budget;
        return Err(wrong(format!(
            "budget: 1 to {BUDGET_MAX} expected, got {given}"
        )));
    }
    spec(lua)?.tuning.busy_poll = Some(wish).filter(|wish| wish.microseconds > 0);
    Ok(())
}
