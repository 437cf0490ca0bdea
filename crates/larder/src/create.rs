//! `larder create`: makes a cache on a flash file or device.
//!
//! In order:
//! 1. Origin and flash are opened, alone.
//! 2. Everything is checked, and nothing was changed.
//! 3. A new file is made, or an existing one grows.
//! 4. The engine writes the cache.
//!
//! After a failure in (3) or (4) a new file is removed and an old one has its old size.
//!
//! Invariants: a flash with content is overwritten only with `--force`; no file shrinks. A signal
//! that comes in (3) or (4) waits until they are over.
//!
//! It leaves the format to the engine.

use crate::{
    args::{CreateArgs, Switch},
    client,
    error::{Failure, Outcome, system_reason},
    flash::{Access, asking_flash, note_open_to_others, open_file},
    origin::{open_origin_within, shown},
    output, signals, size,
    state_dir::StateDir,
};
use larder_core::austere::config::SUBCHUNK_BYTES_LEAST;
use larder_device::{BlockDevice, IoBuf, driver::block_on, file::FileId};
use larder_engine::{
    CreateOptions, EngineError,
    create::{create, plan},
    designs,
    requested::RequestedOptions,
    status::{compression_name, mode_name},
    superblock,
};
use larder_format::{
    Compression, FormatError, StoreKind, Superblock,
    layout::{CHUNK_BYTES_MAX, SLOT_COUNT_MIN},
};
use std::{
    ffi::CString,
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Read},
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Sector of a flash file that is yet to be made, in bytes; create assumes it for any file system.
///
/// Nearly every file system has it.
const NEW_FILE_SECTOR_BYTES: u32 = 4096;
/// Unit of a file's allocated blocks, in bytes.
const STAT_BLOCK_BYTES: u64 = 512;
/// Bytes at the start of a flash that are searched for content.
const CONTENT_BYTES: u64 = 1 << 20;

/// Runs the command.
///
/// # Errors
/// One sentence; then nothing has changed.
pub fn run(args: &CreateArgs) -> Outcome {
    // (1)
    let origin = open_origin_within(&args.origin, args.origin_limits.origin_timeout)?;
    // By its identity: it may have several names.
    let there = asking_flash(&args.flash, || fs::metadata(&args.flash)).ok().and_then(|meta| FileId::of(&meta));
    if there.is_some() && there == origin.id {
        return Err(Failure::failed(format_args!(
            "{} cannot be both flash and origin: name two devices",
            args.flash.display()
        )));
    }
    let origin_bytes = origin.device.info().size_bytes;
    if origin_bytes == 0 {
        return Err(Failure::failed(format_args!("the origin {} is empty: there is nothing to cache", args.origin)));
    }
    if !args.force {
        refuse_flash_as_origin(&*origin.device, &origin.canonical_uri)?;
    }
    let flash = Target::find(args)?;
    // (2)
    let design = designs::find(args.design).map_err(Failure::failed)?;
    refuse_contradictions(args)?;
    // An option that the design lacks is wrong usage: no device has a part in it.
    let weu = args.weu.or_else(|| design.weu_wanted(flash.bytes));
    let asked = design.options(&asked(args, weu)).map_err(|error| Failure::Usage(error.to_string()))?;
    let options = CreateOptions {
        mode: args.mode.into(),
        ram_budget_bytes: args.ram,
        name: args.name.clone(),
        origin_uri: origin.canonical_uri.clone(),
        origin_identity: origin.identity,
        flash_uuid: random()?,
        hash_key: random()?,
        ..asked
    };
    check_texts(args, &options)?;
    plan(flash.bytes, flash.sector_bytes, origin_bytes, &options)
        .map_err(|error| refused_plan(args, &flash, &options, &error))?;
    let without_budget = CreateOptions { ram_budget_bytes: 0, ..options.clone() };
    let slots_without_budget = plan(flash.bytes, flash.sector_bytes, origin_bytes, &without_budget)
        .map_or(u32::MAX, |superblock| superblock.layout.slot_count);
    // (3) and (4)
    // A flash is made whole, or not at all.
    signals::finish_what_is_begun()?;
    let (made, replaced) = flash.make(|device| {
        let replaced = block_on(superblock::read(device)).ok();
        let made = block_on(create(device, origin_bytes, &options));
        Ok((made.map_err(|error| Failure::engine(&args.flash, &error))?, replaced))
    })?;
    // If it was a copy of a served flash, the state belongs to the served one.
    if let Some((replaced, _)) = replaced.filter(|(replaced, _)| !client::is_served(&replaced.flash_uuid)) {
        let stays = StateDir::retire(&replaced, Some(&args.flash));
        stays.into_iter().for_each(|stays| output::note(&stays));
    }
    note_open_to_others(&args.flash);
    output::say(&summary(args, &made, slots_without_budget))
}

/// The flash for a new cache.
struct Target {
    path: PathBuf,
    /// Its size, in the end.
    bytes: u64,
    sector_bytes: u32,
    /// Its size before, if it was there.
    found_bytes: Option<u64>,
    /// Held from here on, so that no other process takes it.
    device: Option<Box<dyn BlockDevice>>,
}

impl Target {
    fn find(args: &CreateArgs) -> Outcome<Target> {
        let (path, shown) = (args.flash.clone(), args.flash.display());
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let bytes = args.size.ok_or_else(|| {
                    Failure::failed(format_args!("{shown} does not exist: say with --size how large to make it"))
                })?;
                let sector_bytes = NEW_FILE_SECTOR_BYTES;
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                check_room(&path, folder.unwrap_or(Path::new(".")), bytes, 0)?;
                return Ok(Target { path, bytes, sector_bytes, found_bytes: None, device: None });
            }
            Err(error) => {
                return Err(Failure::failed(format_args!("{shown} cannot be opened: {}", system_reason(&error))));
            }
        };
        let is_file = metadata.is_file();
        if !is_file && !metadata.file_type().is_block_device() {
            return Err(Failure::failed(format_args!("{shown} is neither a file nor a block device: name one")));
        }
        let device = open_file(&path, Access::Write)?;
        let info = device.info();
        let found_bytes = if is_file { metadata.len() } else { info.size_bytes };
        let bytes = args.size.unwrap_or(info.size_bytes);
        if bytes < info.size_bytes {
            return Err(Failure::failed(format_args!(
                "--size {}: {shown} has {} and does not shrink; leave --size out, or remove the file",
                size::exact(bytes),
                size::exact(found_bytes)
            )));
        }
        if bytes > info.size_bytes && !is_file {
            return Err(Failure::failed(format_args!(
                "--size {}: the block device {shown} has {}; leave --size out",
                size::exact(bytes),
                size::exact(found_bytes)
            )));
        }
        if bytes == 0 {
            return Err(Failure::failed(format_args!("{shown} is empty: say with --size how large to make it")));
        }
        if !args.force {
            refuse_content(&path, &device)?;
        }
        if is_file {
            check_room(&path, &path, bytes, metadata.blocks() * STAT_BLOCK_BYTES)?;
        }
        let sector_bytes = info.physical_sector_bytes.clamp(info.sector_bytes, NEW_FILE_SECTOR_BYTES);
        Ok(Target { path, bytes, sector_bytes, found_bytes: Some(found_bytes), device: Some(Box::new(device)) })
    }

    /// Makes the file as large as it shall be, if it is a file, and then the cache; undoes it on
    /// failure.
    fn make<T>(self, format: impl FnOnce(&dyn BlockDevice) -> Outcome<T>) -> Outcome<T> {
        let failed = |what: &str, error: &std::io::Error| {
            Failure::failed(format_args!("{} cannot be {what}: {}", self.path.display(), system_reason(error)))
        };
        match (self.found_bytes, self.device) {
            (Some(found_bytes), Some(device))
                if device.info().size_bytes == self.bytes || self.bytes == found_bytes =>
            {
                format(&*device)
            }
            (Some(found_bytes), device) => {
                let file = OpenOptions::new().write(true).open(&self.path).map_err(|error| failed("opened", &error))?;
                file.set_len(self.bytes).map_err(|error| failed("enlarged", &error))?;
                // The size is taken when a device is opened.
                drop(device);
                let result = open_file(&self.path, Access::Write).and_then(|device| format(&device));
                if result.is_err() {
                    // The sentence names the failure itself.
                    let _ = file.set_len(found_bytes);
                }
                result
            }
            (None, _) => {
                // It will hold private content, and a lock for its server alone.
                let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path);
                let file = file.map_err(|error| failed("made", &error))?;
                let sized = file.set_len(self.bytes).map_err(|error| {
                    Failure::failed(format_args!(
                        "{} cannot be made {} large: {}",
                        self.path.display(),
                        size::exact(self.bytes),
                        system_reason(&error)
                    ))
                });
                let result =
                    sized.and_then(|()| open_file(&self.path, Access::Write)).and_then(|device| format(&device));
                if result.is_err() {
                    let _ = fs::remove_file(&self.path);
                }
                result
            }
        }
    }
}

/// Refuses a file that the file system under `place` has no room for.
///
/// Such a file is sparse at first, and would fail when it fills.
fn check_room(path: &Path, place: &Path, bytes: u64, allocated_bytes: u64) -> Outcome {
    let Ok(name) = CString::new(place.as_os_str().as_encoded_bytes()) else { return Ok(()) };
    // SAFETY: all zeroes is a valid `statvfs`.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the name is a C string, and `stat` outlives the call.
    if unsafe { libc::statvfs(name.as_ptr(), &raw mut stat) } != 0 || stat.f_blocks == 0 {
        // Making the file will give the reason; and some file systems do not know their size.
        return Ok(());
    }
    let room = stat.f_bavail.saturating_mul(stat.f_frsize).saturating_add(allocated_bytes);
    match bytes > room {
        false => Ok(()),
        true => Err(Failure::failed(format_args!(
            "{}: the file system has no room for a flash of {}, only for {}: make room, or choose a smaller --size",
            path.display(),
            size::human(bytes),
            size::human(room)
        ))),
    }
}

/// Refuses an origin that is a cache's flash: writes to the origin would ruin that cache.
///
/// # Errors
/// The sentence that says so.
pub fn refuse_flash_as_origin(device: &dyn BlockDevice, uri: &str) -> Outcome {
    match block_on(superblock::read(device)) {
        Ok(_) | Err(EngineError::Format(FormatError::NewerVersion { .. })) => Err(Failure::failed(format_args!(
            "the origin {} is the flash of a Larder cache: name the device that has the data (--force takes this one)",
            shown(uri)
        ))),
        Err(_) => Ok(()),
    }
}

fn refuse_content(path: &Path, device: &dyn BlockDevice) -> Outcome {
    let shown = path.display();
    match block_on(superblock::read(device)) {
        Ok((superblock, _)) => {
            return Err(Failure::failed(format_args!(
                "{shown} already holds a Larder cache (design {}, origin {}): see `larder status --flash {shown}`, end it with `larder detach --flash {shown}`, or overwrite it with --force",
                designs::find(superblock.design).map_or("of another version", |design| design.name),
                self::shown(superblock.origin.uri.as_str())
            )));
        }
        Err(EngineError::Format(error @ FormatError::NewerVersion { .. })) => {
            return Err(Failure::failed(format_args!(
                "{shown} already holds the cache of a newer Larder ({error}), and --force overwrites it"
            )));
        }
        // For any other error, the check of the content decides.
        Err(_) => {}
    }
    let bytes = CONTENT_BYTES.min(device.info().size_bytes);
    let content = block_on(device.read(0, IoBuf::new(bytes as usize)))
        .map_err(|error| Failure::failed(format_args!("{shown} cannot be read: {error}")))?;
    if content.iter().any(|&byte| byte != 0) {
        return Err(Failure::failed(format_args!("{shown} holds other data: --force overwrites it")));
    }
    Ok(())
}

/// Returns the options that may be left to the design, with the size of a WEU.
fn asked(args: &CreateArgs, weu: Option<u32>) -> RequestedOptions {
    RequestedOptions {
        chunk_bytes: args.chunk,
        slot_bytes: weu,
        compression: args.compress.map(Into::into),
        dedup: args.dedup.map(|dedup| dedup == Switch::On),
        fp_index_percent: args.fp_index,
    }
}

/// Refuses options that contradict each other with any design.
fn refuse_contradictions(args: &CreateArgs) -> Outcome {
    match (args.dedup, args.fp_index) {
        (Some(Switch::Off), Some(percent)) if percent > 0 => Err(Failure::Usage(format!(
            "--dedup off --fp-index {percent}: without deduplication there is no FP index; leave one of the two out"
        ))),
        (Some(Switch::On), Some(0)) => Err(Failure::Usage(
            "--dedup on --fp-index 0: an FP index of 0 percent turns deduplication off; leave one of the two out"
                .into(),
        )),
        _ => Ok(()),
    }
}

fn check_texts(args: &CreateArgs, options: &CreateOptions) -> Outcome {
    if larder_format::VolumeName::new(args.name.clone()).is_err() {
        return Err(Failure::Usage(format!("--name {}: a name has 64 bytes at most, and no zero byte", args.name)));
    }
    if larder_format::OriginUri::new(options.origin_uri.clone()).is_err() {
        return Err(Failure::failed(format_args!("the origin's name is too long: 1024 bytes are allowed")));
    }
    Ok(())
}

fn refused_plan(args: &CreateArgs, flash: &Target, options: &CreateOptions, error: &EngineError) -> Failure {
    let design = designs::find(options.design).ok();
    let slot = design.map_or("slot", |design| design.kind().slot_name());
    // Seven chunks, and if slots are in buckets, whole buckets.
    let bucket = design.map_or(0, |design| design.layout(options, flash.bytes, 1).bucket_slots).max(1);
    let chunk_slots = (options.chunk_bytes / options.slot_bytes.max(1)).max(1);
    let count = match (SLOT_COUNT_MIN * chunk_slots).next_multiple_of(bucket) {
        SLOT_COUNT_MIN => "seven".to_owned(),
        count => count.to_string(),
    };
    let named = match args.size {
        Some(bytes) => format!("--size {}", size::exact(bytes)),
        None => args.flash.display().to_string(),
    };
    Failure::failed(match error {
        EngineError::Format(FormatError::FlashTooSmall { needed_bytes, .. }) => format!(
            "{named}: a flash of {} is too small; {} is the least, for the description and {count} {slot}s of {}",
            size::exact(flash.bytes),
            size::exact(*needed_bytes),
            size::exact(options.slot_bytes.into())
        ),
        EngineError::Format(FormatError::FlashTooLarge { flash_bytes_max, .. }) => format!(
            "{named}: with {slot}s of {} a flash has {} at most; use a larger {slot}",
            size::exact(options.slot_bytes.into()),
            size::exact(*flash_bytes_max)
        ),
        error => format!("{}: {error}", args.flash.display()),
    })
}

/// Returns random bytes from the system.
fn random<const N: usize>() -> Outcome<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| Failure::failed(format_args!("/dev/urandom cannot be read: {}", system_reason(&error))))?;
    Ok(bytes)
}

fn summary(args: &CreateArgs, made: &Superblock, slots_without_budget: u32) -> String {
    let layout = &made.layout;
    let dedup = if made.dedup && made.fp_index_percent > 0 { "deduplicated" } else { "not deduplicated" };
    let used = u64::from(layout.slot_count) * u64::from(layout.slot_bytes);
    let unused = layout.flash_bytes - layout.slots_offset - used;
    // Metadata slots have room for as many as the flash could have.
    let hole = match layout.store() {
        StoreKind::Buckets => layout.slots_offset - layout.region_offset - layout.region_bytes(),
        _ => 0,
    };
    // The remainder is less than the needs of one slot, or of one bucket if they are whole.
    let step = u64::from(layout.slot_bytes) * u64::from(layout.bucket_slots.max(1));
    let mut notes = String::new();
    if layout.slot_count < slots_without_budget && unused >= step {
        let more = match layout.chunk_bytes < CHUNK_BYTES_MAX {
            true => "a larger budget, or larger chunks, use more",
            false => "a larger budget uses more",
        };
        notes += &format!(
            "the RAM budget of {} affords no more slots: {} of the flash stay unused; {more}\n",
            size::exact(made.ram_budget_bytes),
            size::human(unused + hole),
        );
    }
    if args.compress.is_none() && made.compression == Compression::Off && layout.store() == StoreKind::Buckets {
        notes += &format!(
            "chunks of {} are not compressed: this design keeps them in subchunks of {} at least, so that it would save nothing; larger chunks are\n",
            size::exact(layout.chunk_bytes.into()),
            size::exact(SUBCHUNK_BYTES_LEAST.into()),
        );
    }
    format!(
        "made a cache of {} on {} for {} ({}): {} slots of {}, chunks of {}, {}, {dedup}, compression {}\n{notes}",
        size::human(layout.flash_bytes),
        args.flash.display(),
        shown(made.origin.uri.as_str()),
        size::human(made.origin.size_bytes),
        layout.slot_count,
        size::exact(layout.slot_bytes.into()),
        size::exact(layout.chunk_bytes.into()),
        mode_name(made.mode),
        compression_name(made.compression),
    )
}
