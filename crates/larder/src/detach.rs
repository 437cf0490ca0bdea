//! `larder detach`: writes everything to the origin and ends the cache for ever.
//!
//! Invariants: a served cache is detached by its server, and only while no client is connected.
//!
//! It does not erase the flash.

use crate::{
    args::DetachArgs,
    client,
    error::{Failure, Outcome},
    flash::Access,
    flush::but_for_trims,
    lasting::refuse_unlinked_origin,
    origin::shown,
    output,
    state_dir::StateDir,
    volume::{OpenedCache, Reached, StateArgs, open_cache, reach},
};
use larder_device::driver::block_on;
use larder_engine::{Cache, Tuning};
use serde_json::{Value, json};

/// Runs the command.
///
/// # Errors
/// One sentence; then the cache is as it was.
pub fn run(args: &DetachArgs) -> Outcome {
    let args = &args.cache;
    let done = match reach(&args.flash, args.state.as_deref(), "detach", Access::Write)? {
        Reached::Served(done) => done,
        Reached::Alone(flash) => {
            // No client waits for the origin: destage at full speed.
            let tuning = Tuning {
                destage_rate_bytes_per_s: 0,
                accept_grown_origin: true,
                trim: args.trim.into(),
                ..Tuning::default()
            };
            let state =
                StateArgs { dir: args.state.as_deref(), origin_changed: args.origin_changed, ..StateArgs::default() };
            let OpenedCache { cache, runtime } = open_cache(*flash, args.origin.as_deref(), &state, tuning)?;
            let done = detach(&cache);
            if done.is_err() {
                // The sentence gives the reason for which it stays attached.
                let _ = cache.close_blocking();
            }
            drop(cache);
            runtime.shutdown();
            done.map_err(Failure::failed)?
        }
    };
    let origin = done.get("origin").and_then(Value::as_str).unwrap_or_default();
    let kept = done.get("kept_trim_bytes").and_then(Value::as_u64).unwrap_or(0);
    let but = but_for_trims(kept, " that it was not told of: it has old data there");
    output::say(&format!("detached: the origin {} is complete{but}\n", shown(origin)))
}

/// Detaches, and returns the reply for the control socket.
///
/// # Errors
/// A sentence.
pub fn detach(cache: &Cache) -> client::Reply {
    let origin = cache.status().origin;
    refuse_unlinked_origin(cache).map_err(|why| format!("the cache stays attached: {why}"))?;
    block_on(cache.detach()).map_err(|error| error.to_string())?;
    // Another cache may come to the same place.
    let stays = StateDir::retire(&cache.superblock(), None);
    stays.into_iter().for_each(|stays| output::note(&stays));
    Ok(json!({ "origin": origin, "kept_trim_bytes": cache.status().kept_trim_bytes }))
}
