//! `larder-lab bench prepare`: the state of a disk before a trace.
//!
//! In order: (1) the trace is read, for the blocks that it reads before it writes them (the first
//! pass of Nitro §5.2). (2) The disk is opened, alone, or made as a sparse file. (3) Unless other
//! data may be overwritten, the disk's content is read: it has to be zeroes, or the same. (4) The
//! blocks are written, by address. (5) The disk is flushed.
//!
//! Invariants: a refusal in (1) to (3) has changed nothing. Memory: about 100 bytes for each block
//! that the trace touches.
//!
//! It does not change blocks that the trace does not read.

use crate::{args::BenchPrepareArgs, trace::watch::Watch};
use larder::{
    error::{Failure, Outcome, system_reason},
    origin::{open_origin_device, shown},
    output, refuse_flash_as_origin, refuse_standing,
    size::{count, human},
    trace::out::{forget, remember},
};
use larder_device::{BlockDevice, IoBuf, IoError, WriteFlags, ZeroFlags, driver::block_on};
use std::{fs::OpenOptions, path::Path};

use super::requests::Trace;
use larder_papers::{blocks::Blocks, content::Bytes};

/// Bytes of a write, and of a request of the trace.
const RUN_BYTES_MAX: u64 = 1 << 20;
/// The unit of a new file's size.
const FILE_UNIT_BYTES: u64 = 1 << 20;

/// A block and its place.
type Placed = (u64, u64, Bytes);

/// The state that the trace wants.
struct Wanted {
    /// By address.
    blocks: Vec<Placed>,
    /// The end of its last request.
    end: u64,
}

/// Runs the command.
///
/// # Errors
/// One sentence.
pub fn run(args: &BenchPrepareArgs) -> Outcome {
    let watch = Watch::new()?;
    let wanted = Trace::open(&args.input, &watch).and_then(|trace| wanted(&trace));
    watch.finish();
    // (1)
    let wanted = wanted?;
    // (2)
    let made = make_file(&args.origin, wanted.end)?;
    let result = prepare(args, &wanted, &watch);
    if let Some(path) = made {
        if result.is_err() {
            // The failure itself is reported.
            let _ = std::fs::remove_file(path);
        }
        forget(path);
    }
    result?;
    let bytes: u64 = wanted.blocks.iter().map(|(_, len, _)| len).sum();
    let blocks = count(wanted.blocks.len() as u64);
    output::say(&format!("prepared {}: {blocks} blocks, {}\n", args.origin, human(bytes)))
}

fn wanted(trace: &Trace<'_>) -> Outcome<Wanted> {
    let mut blocks = Blocks::new(trace.block_bytes());
    let mut wanted = Wanted { blocks: Vec::new(), end: 0 };
    for request in trace.requests("looking for first reads", RUN_BYTES_MAX)? {
        let request = request?;
        wanted.end = wanted.end.max(request.offset + request.len);
        wanted.blocks.extend(blocks.first_reads(&request));
    }
    wanted.blocks.sort_unstable_by_key(|&(offset, ..)| offset);
    Ok(wanted)
}

/// Makes a file if the path has none. Returns the path of a new file.
fn make_file(origin: &str, end: u64) -> Outcome<Option<&Path>> {
    let path = Path::new(origin);
    if origin.contains("://") || path.exists() {
        return Ok(None);
    }
    let bytes = end.max(1).next_multiple_of(FILE_UNIT_BYTES);
    let failed =
        |error: std::io::Error| Failure::failed(format_args!("{origin} cannot be made: {}", system_reason(&error)));
    let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(failed)?;
    remember(path);
    file.set_len(bytes).map_err(|error| {
        let _ = std::fs::remove_file(path);
        Failure::failed(format_args!("{origin} cannot be made {} large: {}", human(bytes), system_reason(&error)))
    })?;
    Ok(Some(path))
}

fn prepare(args: &BenchPrepareArgs, wanted: &Wanted, watch: &Watch) -> Outcome {
    let opened = open_origin_device(&args.origin)?;
    let (device, name) = (&*opened.device, shown(&opened.canonical_uri));
    check_shape(device, wanted, name, &args.input)?;
    if !args.force {
        refuse_flash_as_origin(device, &opened.canonical_uri)?;
        // (3)
        for run in runs(&wanted.blocks) {
            check_ending(watch)?;
            refuse_other_data(device, run, name)?;
        }
    }
    // (4)
    let failed = |error: IoError| Failure::failed(format_args!("{name} was not prepared: {error}"));
    for run in runs(&wanted.blocks) {
        check_ending(watch)?;
        write(device, run).map_err(failed)?;
    }
    // (5)
    block_on(device.flush()).map_err(failed)?;
    refuse_standing(block_on(device.look()), name).map_err(Failure::failed)
}

fn check_ending(watch: &Watch) -> Outcome {
    if watch.is_ending() { Err(Failure::failed("ended by a signal: run it again with --force")) } else { Ok(()) }
}

fn check_shape(device: &dyn BlockDevice, wanted: &Wanted, name: &str, input: &crate::args::BenchTrace) -> Outcome {
    let info = device.info();
    if wanted.end > info.size_bytes {
        return Err(Failure::failed(format_args!(
            "{name} has {} bytes, and {} reaches to byte {}: name a larger one, or take less of the trace with --limit",
            info.size_bytes,
            input.file.trace.display(),
            wanted.end
        )));
    }
    let sector = u64::from(info.sector_bytes);
    match wanted.blocks.iter().find(|(offset, len, _)| !offset.is_multiple_of(sector) || !len.is_multiple_of(sector)) {
        None => Ok(()),
        Some((offset, len, _)) => Err(Failure::failed(format_args!(
            "{name} has sectors of {sector} bytes, and the trace a block of {len} bytes at byte {offset}: name a device with smaller sectors"
        ))),
    }
}

/// Returns runs of adjacent blocks, as many as one write takes.
fn runs(blocks: &[Placed]) -> impl Iterator<Item = &[Placed]> {
    let mut rest = blocks;
    std::iter::from_fn(move || {
        let &(start, ..) = rest.first()?;
        let goes_on = |pair: &[Placed]| {
            let [(offset, len, _), (next, next_len, _)] = pair else { return false };
            offset + len == *next && next + next_len - start <= RUN_BYTES_MAX
        };
        let (run, more) = rest.split_at(1 + rest.windows(2).take_while(|pair| goes_on(pair)).count());
        rest = more;
        Some(run)
    })
}

fn span(run: &[Placed]) -> (u64, u64) {
    let (Some(&(start, ..)), Some(&(last, len, _))) = (run.first(), run.last()) else { return (0, 0) };
    (start, last + len - start)
}

fn fill(run: &[Placed]) -> IoBuf {
    let (start, len) = span(run);
    let mut data = IoBuf::new(len as usize);
    for &(offset, len, bytes) in run {
        let from = (offset - start) as usize;
        bytes.fill(&mut data[from..from + len as usize]);
    }
    data
}

fn refuse_other_data(device: &dyn BlockDevice, run: &[Placed], name: &str) -> Outcome {
    let (start, len) = span(run);
    let found = block_on(device.read(start, IoBuf::new(len as usize)))
        .map_err(|error| Failure::failed(format_args!("{name} cannot be read: {error}")))?;
    if found.iter().all(|&byte| byte == 0) {
        return Ok(());
    }
    let wanted = fill(run);
    for &(offset, len, _) in run {
        let at = (offset - start) as usize..(offset - start + len) as usize;
        if found[at.clone()] != wanted[at.clone()] && found[at].iter().any(|&byte| byte != 0) {
            return Err(Failure::failed(format_args!(
                "{name} holds other data at byte {offset}: --force overwrites it with the content that the trace reads"
            )));
        }
    }
    Ok(())
}

fn write(device: &dyn BlockDevice, run: &[Placed]) -> Result<(), IoError> {
    let (start, len) = span(run);
    match run.iter().all(|(_, _, bytes)| *bytes == Bytes::Zero) {
        true => block_on(device.write_zeroes(start, len, ZeroFlags::default())),
        false => block_on(device.write(start, fill(run).freeze(), WriteFlags::default())),
    }
}
