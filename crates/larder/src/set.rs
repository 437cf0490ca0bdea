//! `larder set`: changes the write mode; the cache's server, if any, does it.
//!
//! It does not change the properties that are fixed at creation.

use crate::{
    args::{ModeArg, SetArgs},
    client,
    error::{Failure, Outcome},
    flash::Access,
    lasting::refuse_unlinked_origin,
    output,
    volume::{Reached, StateArgs, reach, with_cache},
};
use clap::ValueEnum;
use larder_device::driver::block_on;
use larder_engine::{Cache, WriteMode, config::TrimPolicy, status::mode_name};
use serde_json::json;

/// Runs the command.
///
/// # Errors
/// One sentence, which says the mode from then on.
pub fn run(args: &SetArgs) -> Outcome {
    let name = mode_name(args.mode.into());
    if let Reached::Alone(flash) =
        reach(&args.flash, args.state.as_deref(), &format!("set-mode {name}"), Access::Write)?
    {
        with_cache(
            *flash,
            args.origin.as_deref(),
            &StateArgs { dir: args.state.as_deref(), origin_changed: args.origin_changed, ..StateArgs::default() },
            TrimPolicy::default(),
            |cache| set_mode(cache, name).map_err(Failure::failed),
        )?;
    }
    output::say(&format!("the mode is {name}\n"))
}

/// Sets the mode of this name, and returns the reply for the control socket.
///
/// # Errors
/// A sentence.
pub fn set_mode(cache: &Cache, name: &str) -> client::Reply {
    let mode = ModeArg::from_str(name, false)
        .map_err(|_| format!("no mode is called {name}: write write-back, write-through or write-around"))?;
    let mode = WriteMode::from(mode);
    let stays = || match cache.mode() == mode {
        true => format!("the mode is {name} from now on, and its note is missing and tried again"),
        false => "the mode stays as it was".to_owned(),
    };
    // In the other modes the origin is said to be complete.
    if mode != WriteMode::Back && mode != cache.mode() {
        refuse_unlinked_origin(cache).map_err(|why| format!("{}: {why}", stays()))?;
    }
    block_on(cache.set_mode(mode)).map_err(|error| format!("{}: {error}", stays()))?;
    Ok(json!({ "mode": mode_name(cache.mode()) }))
}
