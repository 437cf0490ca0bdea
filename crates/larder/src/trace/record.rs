//! `larder trace record`: serves an origin over NBD, and records its requests, until a signal ends
//! it.
//!
//! In order: (1) the origin is opened, alone, and the trace is made under a temporary name. (2)
//! Addresses are taken. (3) Clients are let in, and `ready: URI` is printed. (4) A signal comes.
//! (5) Requests finish. (6) The origin is flushed; meanwhile the trace is ended and takes its name,
//! also if the origin fails. A second signal ends the process at once, and leaves the temporary
//! file.
//!
//! Invariants: standard output carries the `ready` line alone. Serving does not depend on the
//! trace: if that cannot be written, requests pass, and the exit code is 1.
//!
//! It does not cache.

use crate::{
    account::Account,
    args::RecordArgs,
    asking::watched,
    ending::Ending,
    error::{Failure, Outcome},
    origin::{open_origin_within, shown},
    output,
    serving::{Alone, bind, opening, server_options},
    size::count,
    volume::start_runtime,
};
use larder_device::Runtime;
use std::{path::PathBuf, sync::Arc, time::Duration};

use super::{log::TraceLog, out::OutFile, recorder::Recorder};

/// Runs the command until a signal.
///
/// # Errors
/// One sentence.
pub fn run(args: &RecordArgs) -> Outcome {
    let ending = Ending::listen(Duration::from_secs(args.end_timeout.into()), false)?;
    let timeout = args.origin_limits.origin_timeout;
    let origin = ending.during(opening(&args.origin), || open_origin_within(&args.origin, timeout))?;
    let is_origin = |path: PathBuf| path.to_str() == Some(shown(&origin.canonical_uri));
    if args.output.output.canonicalize().is_ok_and(is_origin) {
        return Err(Failure::failed(format_args!(
            "{} is the origin itself: name another file for the trace",
            args.output.output.display()
        )));
    }
    let path = args.output.output.clone();
    let making = format!("making the trace {}", path.display());
    let out = ending.during(making, || OutFile::of(&args.output))?;
    let runtime = start_runtime(None)?;
    let log = Arc::new(TraceLog::begin(out, &args.tag, ending.steps())?);
    let (device, _telling, watch) = watched(origin.device, timeout, &runtime, ending.look());
    let account = Account::of(ending.steps(), None, (&origin.canonical_uri, watch));
    let recorder = Recorder::new(device.clone(), runtime.clone() as Arc<dyn Runtime>, log.clone(), args.chunk);
    let servers = bind(&args.nbd, server_options(args.nbd.len()), &args.export, Arc::new(recorder), &ending)?;
    output::note(&format!("recording {} in {}", shown(&origin.canonical_uri), path.display()));
    let alone = Alone { servers: &servers, name: &args.export, ending: &ending, account: &account };
    let served = alone.serve("then the trace is ended", None);
    // It begins before the trace is ended, which may hang, and so may the origin.
    let flushing = device.flush();
    ending.now("the trace was being ended");
    let recorded = log.finish();
    ending.now("the origin was being flushed");
    if let Ok(recorded) = &recorded {
        output::note(&format!(
            "{}: {} requests, {} lines",
            path.display(),
            count(recorded.requests),
            count(recorded.records)
        ));
        if recorded.unknown_blocks > 0 {
            let blocks = count(recorded.unknown_blocks);
            output::note(&format!("note: {blocks} blocks have no fingerprint, for they could not be read back whole"));
        }
    }
    let flushed = alone.flushed(flushing, &*device, &args.origin);
    drop(servers);
    drop(device);
    runtime.shutdown();
    flushed?;
    recorded?;
    served
}
