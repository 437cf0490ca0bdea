//! Modelled time of replays: its options, and its figures, with one pass over the trace for each
//! row.
//!
//! Invariants: a replay without possible times is refused before any replay.
//!
//! It does not model; `larder_sim::whole` does.

use crate::args::{SimPaceArg, TimeArgs};
use larder::{
    error::{Failure, Outcome},
    output,
};
use larder_sim::{
    origin::{
        OriginModel,
        profile::{OriginProfile, PROFILES},
    },
    report::{Row, time},
    setup::{Built, Setup},
    whole::{Clients, ReplayPace, Whole, WholeError},
};

use super::replay::{Pass, refused};

/// The default of requests under way.
const OUTSTANDING: usize = 16;

/// Prints all origins.
///
/// # Errors
/// Standard output is gone.
pub fn origins() -> Outcome {
    let width = PROFILES.iter().map(|profile| profile.name.len()).max().unwrap_or(0) + 2;
    output::say(
        &PROFILES.iter().map(|profile| format!("{:<width$}{}\n", profile.name, profile.about)).collect::<String>(),
    )
}

/// Checks that the time options fit together, and that the chart's figure exists.
///
/// # Errors
/// A sentence.
pub fn check(args: &TimeArgs, metric: Option<&str>) -> Outcome {
    if args.outstanding.is_some() && args.pace == Some(SimPaceArg::Own) {
        return Err(Failure::Usage(
            "at its own pace a trace has as many requests outstanding as come: leave --outstanding away".to_owned(),
        ));
    }
    match metric.filter(|metric| metric.starts_with(time::PREFIX) && args.origin.is_none()) {
        Some(metric) => Err(Failure::Usage(format!("--metric {metric} is of time: say of which --origin PROFILE"))),
        None => Ok(()),
    }
}

/// Returns the times of requests.
pub fn pace(args: &TimeArgs) -> ReplayPace {
    match args.pace {
        Some(SimPaceArg::Own) => ReplayPace::Own,
        Some(SimPaceArg::Full) | None => {
            ReplayPace::Full(args.outstanding.map_or(OUTSTANDING, |outstanding| outstanding as usize))
        }
    }
}

/// Returns the origin's size, if time is requested, and checks that each of these caches can be
/// timed.
///
/// # Errors
/// A sentence: a drive or an origin without a model of time; a trace without times, at its own
/// pace.
pub fn origin_bytes(args: &TimeArgs, pass: &Pass<'_>, setups: &[Setup]) -> Outcome<Option<u64>> {
    let Some(profile) = args.origin else { return Ok(None) };
    let bytes = volume_bytes(pass, pace(args))?;
    for setup in setups {
        whole(pass, setup, &profile, bytes).map_err(|sentence| refused(setup, &sentence))?;
    }
    Ok(Some(bytes))
}

/// Adds time to the rows of these caches, if requested; `origin_bytes` comes from [`origin_bytes`].
///
/// # Errors
/// A sentence: a trace without times at its own pace.
pub fn add(args: &TimeArgs, pass: &Pass<'_>, setups: &[Setup], origin_bytes: Option<u64>, rows: &mut [Row]) -> Outcome {
    let (Some(profile), Some(bytes)) = (args.origin, origin_bytes) else { return Ok(()) };
    let pace = pace(args);
    for (setup, row) in setups.iter().zip(rows) {
        let mut whole = whole(pass, setup, &profile, bytes).map_err(|sentence| refused(setup, &sentence))?;
        let requests = pass.source.requests("timing").map_err(|error| pass.source.explain(&error))?;
        let clients = Clients::new(requests, setup.chunk_bytes);
        let figures = whole.run(clients, pace, pass.warmup_requests()).map_err(|error| match error {
            WholeError::Trace(error) => pass.source.explain(&error),
            WholeError::NoTimes => Failure::failed(error),
        })?;
        time::add(row, profile.name, pace, &figures);
    }
    Ok(())
}

/// Returns the origin's size: the end of the last chunk that is touched.
fn volume_bytes(pass: &Pass<'_>, pace: ReplayPace) -> Outcome<u64> {
    let explain = |error| pass.source.explain(&error);
    let mut chunks = 1;
    for request in pass.source.requests("looking for the end of the volume").map_err(explain)? {
        let request = request.map_err(explain)?;
        if pace == ReplayPace::Own && request.time_us.is_none() {
            return Err(Failure::failed(WholeError::NoTimes));
        }
        chunks = chunks.max(request.lba.saturating_add(request.chunk_count));
    }
    Ok(chunks.saturating_mul(u64::from(pass.source.chunk_bytes())))
}

fn whole(pass: &Pass<'_>, setup: &Setup, profile: &OriginProfile, bytes: u64) -> Result<Whole, String> {
    let drive = setup.options.drive.ok_or("time is asked of no drive: say which with --ssd PROFILE")?;
    let Built { cache, drive: counted, .. } = setup.build(pass.working_set_chunks())?;
    let counted = counted.ok_or("there is no drive")?;
    let about = |error| format!("a drive {} with {}: {error}", drive.profile.name, drive.ftl.name);
    let of_origin = |error| format!("an origin {}: {error}", profile.name);
    let origin = OriginModel::new(profile, bytes).map_err(of_origin)?;
    Whole::beside(cache, counted, drive.ftl, origin).map_err(about)
}
