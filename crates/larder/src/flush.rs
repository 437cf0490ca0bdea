//! `larder flush`: writes all dirty data to the origin; the cache's server, if any, does it.
//!
//! It does not empty the cache: dirty data stays cached, clean.

use crate::{
    args::FlushArgs,
    client,
    error::{Failure, Outcome},
    flash::Access,
    lasting::{flash_standing, refuse_unlinked_origin},
    output, size,
    volume::{Reached, StateArgs, reach, with_cache},
};
use larder_device::{Standing, driver::block_on};
use larder_engine::Cache;
use serde_json::{Value, json};

/// Runs the command.
///
/// # Errors
/// One sentence.
pub fn run(args: &FlushArgs) -> Outcome {
    let args = &args.cache;
    let done = match reach(&args.flash, args.state.as_deref(), "flush", Access::Write)? {
        Reached::Served(done) => done,
        Reached::Alone(flash) => with_cache(
            *flash,
            args.origin.as_deref(),
            &StateArgs { dir: args.state.as_deref(), origin_changed: args.origin_changed, ..StateArgs::default() },
            args.trim.into(),
            |cache| flush(cache).map_err(Failure::failed),
        )?,
    };
    if done.get("flash_unlinked") == Some(&Value::Bool(true)) {
        output::note(
            "the file of the flash has no name any more, so later writes go with its server: end the server in order, and make a new cache",
        );
    }
    let number = |key: &str| done.get(key).and_then(Value::as_u64).unwrap_or(0);
    let (written, zeroed) = (number("origin_bytes_written"), number("origin_zero_bytes"));
    let discarded = number("origin_discard_bytes");
    let but = but_for_trims(number("kept_trim_bytes"), ", which stay in the cache");
    if written + zeroed + discarded == 0 {
        return output::say(&format!("nothing was dirty: the origin is complete{but}\n"));
    }
    let others = [("zeroed", zeroed), ("discarded", discarded)];
    let others = others.iter().filter(|(_, bytes)| *bytes > 0);
    let others: String = others.map(|(verb, bytes)| format!(" and {verb} {}", size::human(*bytes))).collect();
    output::say(&format!("wrote {} to the origin{others}: it is complete{but}\n", size::human(written)))
}

/// Returns the end of a sentence on a complete origin, if the cache kept trims from it.
pub fn but_for_trims(bytes: u64, and: &str) -> String {
    match bytes {
        0 => String::new(),
        bytes => format!(", except for {} of trims{and}", size::human(bytes)),
    }
}

/// Destages everything, and returns the amount as the reply for the control socket.
///
/// # Errors
/// A sentence, if dirty data remains.
pub fn flush(cache: &Cache) -> client::Reply {
    let before = cache.status();
    let is_done = block_on(cache.destage_all());
    let after = cache.status();
    if !is_done && cache.is_ending() {
        return Err(format!(
            "the cache is being closed or detached, and the end reports the fate of its data (health: {})",
            after.health
        ));
    }
    if !is_done && after.dirty_bytes + after.trimmed_bytes == 0 {
        return Err(format!(
            "a flush of the origin {} failed since the last one: earlier writes may be lost there, though nothing is dirty now (health: {})",
            after.origin, after.health
        ));
    }
    if !is_done {
        return Err(format!(
            "not all dirty data could be written to the origin {}, {} remain: {}",
            after.origin,
            size::human(after.dirty_bytes + after.trimmed_bytes),
            cache.why_dirty(&before.counts)
        ));
    }
    refuse_unlinked_origin(cache)?;
    Ok(json!({
        "flash_unlinked": flash_standing(cache) == Standing::Unlinked,
        "origin_bytes_written": after.counts.origin_bytes_written - before.counts.origin_bytes_written,
        "origin_zero_bytes": after.counts.origin_zero_bytes - before.counts.origin_zero_bytes,
        "origin_discard_bytes": after.counts.origin_discard_bytes - before.counts.origin_discard_bytes,
        "dirty_bytes": after.dirty_bytes,
        "kept_trim_bytes": after.kept_trim_bytes,
    }))
}
