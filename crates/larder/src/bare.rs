//! `larder serve` of a cache whose flash is missing: the origin alone, behind a fence.
//!
//! In order:
//! 1. The state directory says that the flash belonged to it, and that the origin is complete.
//! 2. The origin is opened and checked, and addresses are taken.
//! 3. The fence is put up.
//! 4. Clients are let in.
//!
//! Invariants: a cache in write-back is served like this only if the origin is known to have all
//! dirty data.
//!
//! It does not cache.

use crate::{
    account::Account,
    answers::{Bare, flash_gone},
    args::ServeArgs,
    asking::watched,
    client::unhex,
    control::{bind_control, end_control},
    ending::Ending,
    error::{Failure, Outcome},
    lines,
    origin::{open_origin_within, refuse_another, shown},
    output,
    reload::OptionFile,
    serving::{Alone, bind, limits, opening, with_profile},
    state_dir::StateDir,
    volume::start_runtime,
};
use larder_device::{BlockDevice, driver::block_on, uri::OpenedDevice};
use larder_engine::{
    WriteMode,
    fence::{Note, Raised},
    status::mode_name,
};
use std::{path::Path, sync::Arc};

/// Refuses an origin whose size is not the one that the cache noted.
fn refuse_another_size(noted_bytes: u64, origin: &OpenedDevice) -> Outcome {
    let found = origin.device.info().size_bytes;
    if found == noted_bytes {
        return Ok(());
    }
    Err(Failure::failed(format_args!(
        "the origin {} has {found} bytes, and had {noted_bytes}: bring back the one that belongs to the cache",
        shown(&origin.canonical_uri)
    )))
}

/// Serves until a signal.
///
/// # Errors
/// One sentence.
pub fn serve_without_flash(
    args: &ServeArgs,
    path: &Path,
    state: &Path,
    ending: &Ending,
    file: Option<OptionFile>,
) -> Outcome {
    let reading = format!("reading the state directory {}", state.display());
    let state = ending.during(reading, || StateDir::of_missing(state, path))?;
    let record = state.record();
    if record.mode == mode_name(WriteMode::Back) && !record.destaged {
        return Err(Failure::failed(format_args!(
            "{} is missing, and its cache is in write-back: the origin {} may lack dirty data of the flash; bring the flash back",
            path.display(),
            shown(&record.origin)
        )));
    }
    let timeout = args.origin_limits.origin_timeout;
    let uuid = unhex(&record.flash_uuid).ok_or_else(|| {
        Failure::failed(format_args!("the state of {} has no good UUID: {}", path.display(), record.flash_uuid))
    })?;
    let uri = args.origin.as_deref().unwrap_or(&record.origin);
    let origin = ending.during(opening(uri), || open_origin_within(uri, timeout))?;
    refuse_another(record.origin_identity, &origin)?;
    refuse_another_size(record.origin_bytes, &origin)?;
    let runtime = start_runtime(args.workers)?;
    let (device, _telling, watch) =
        watched(with_profile(origin.device, args.origin_profile, &runtime), timeout, &runtime, ending.look());
    let account = Account::of(ending.steps(), None, (&origin.canonical_uri, watch.clone()));
    account.serves(ending, "the server was beginning");
    let name = args.export.clone().unwrap_or_else(|| record.volume.clone());
    let servers = bind(&args.nbd, limits(args, 0), &name, device.clone(), ending)?;
    let mut control = bind_control(&uuid, ending)?;
    // From here on the flash may be older than the origin.
    let why = "it was served without its flash".to_owned();
    let fence = Raised { why, dirty_bytes: 0, superblock_sequence: 0, is_destaged: false };
    let raising = format!("raising the fence in {}", state.file().display());
    let raised = ending.during(raising, || state.keep(Note::Raised(fence)));
    raised.map_err(Failure::failed)?;
    lines::watch(|| Some(flash_gone()));
    output::note(&format!("degraded: {} is missing, the origin serves alone, behind a fence", path.display()));
    ending.now("the origin was being flushed");
    // Data that clients read from here on must not change any more, not even after a power cut.
    block_on(device.flush()).map_err(|error| Failure::failed(format_args!("the origin is not flushed: {error}")))?;
    let answers = Bare { record, servers: servers.clone(), origin: watch, origin_timeout: timeout };
    control.start(Arc::new(move |request: &str| answers.answer(request)))?;
    let alone = Alone { servers: &servers, name: &name, ending, account: &account };
    let served = alone.serve("then the origin is flushed", file);
    let flushed = alone.flush(&*device, &origin.canonical_uri);
    end_control(control, ending);
    drop(device);
    runtime.shutdown();
    flushed.and(served)
}
