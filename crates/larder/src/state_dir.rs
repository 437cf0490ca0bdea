//! The state directory of `--state DIR`: one file for each cache, off its flash.
//!
//! A file tells if a fence is up, and holds the data to serve the origin without its flash.
//!
//! Invariants: a file is replaced whole (written beside, flushed, renamed, the directory flushed),
//! so that a crash leaves the old one or the new one. A file that cannot be read or understood is
//! an error and never taken for "no fence". So is a file that other users could have written. No
//! file serves an origin if its flash does not know of the file, or if its cache is no more.
//!
//! A file system that hangs stops the thread that makes a note, and no other one.
//!
//! It leaves the meaning of a fence to the engine.

use crate::{
    client::{hex, is_served, unhex},
    error::{Failure, Outcome, system_reason},
    flash::{Access, absolute, named, open_flash},
    state_files::{read, records, remove, replace},
    state_record::{StateRecord, VERSION},
    state_trust::refuse_open_to_others,
    steps::Steps,
    waiting::saying_which,
};
use larder_engine::{
    FenceKeeper,
    fence::{Note, NoteAnswer, Raised},
    status::mode_name,
};
use larder_format::Superblock;
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

/// The state of one cache.
pub struct StateDir {
    file: PathBuf,
    place: String,
    record: Mutex<StateRecord>,
    /// The file that this one replaces, in another directory.
    left_behind: Mutex<Option<PathBuf>>,
    /// Each write of the file is one of these, for it may hang.
    steps: Steps,
}

/// Refuses a directory without the state of a cache that has it, or had it, in the known one.
fn refuse_elsewhere(known: &Path, dir: &Path, is_here: bool, is_elsewhere: bool) -> Outcome {
    if is_elsewhere {
        return Err(Failure::failed(format_args!(
            "the state of this cache is in {}, not in {}: name that one, or move it here with --adopt",
            known.display(),
            dir.display()
        )));
    }
    if !is_here && !known.as_os_str().is_empty() {
        return Err(Failure::failed(format_args!(
            "{} does not hold the state of this cache, which was served with --state {}: name that one, or believe the flash as it is with --adopt",
            dir.display(),
            known.display()
        )));
    }
    Ok(())
}

impl StateDir {
    /// Opens the state of the cache on `flash`, in `given` or else at its superblock's directory.
    ///
    /// It returns `None` if no state is kept, and changes nothing. It accepts a missing file only
    /// with `adopt`, for the file might have held a fence.
    ///
    /// # Errors
    /// A sentence.
    pub fn open(given: Option<&Path>, flash: &Path, superblock: &Superblock, adopt: bool) -> Outcome<Option<StateDir>> {
        let known = Path::new(superblock.state_dir.as_str());
        let Some(dir) = given.or(Some(known).filter(|known| !known.as_os_str().is_empty())) else { return Ok(None) };
        let dir = dir.canonicalize().map_err(|error| {
            Failure::failed(format_args!(
                "the state directory {} cannot be opened: {}; make it, or name the right one with --state",
                dir.display(),
                system_reason(&error)
            ))
        })?;
        refuse_open_to_others(&dir)?;
        let place = dir.to_str().filter(|text| larder_format::DirectoryPath::new(*text).is_ok()).ok_or_else(|| {
            Failure::failed(format_args!("--state {}: a path has 512 bytes of text at most", dir.display()))
        })?;
        let uuid = hex(&superblock.flash_uuid);
        let file = file_in(&dir, superblock);
        let found = read(&file)?;
        // A moved file is gone from its old place; a copied one may be older than the one there.
        let before = Some(file_in(known, superblock)).filter(|_| !known.as_os_str().is_empty() && known != dir);
        let left_behind = before.as_deref().map(read).transpose()?.flatten();
        if !adopt {
            refuse_elsewhere(known, &dir, found.is_some(), left_behind.is_some())?;
        }
        let mut newest = 0;
        for record in [&found, &left_behind].into_iter().flatten() {
            if !adopt {
                refuse_older(superblock, record, &dir)?;
            }
            newest = newest.max(record.superblock_sequence);
        }
        // The record whose fence counts holds the state of the dirty data.
        let fenced = [&found, &left_behind].into_iter().flatten().find_map(StateRecord::raised);
        let is_registered = found.as_ref().is_some_and(|found| found.registered);
        let record = StateRecord {
            version: VERSION,
            flash_uuid: uuid,
            flash: absolute(flash),
            flash_named: named(flash),
            volume: superblock.volume_name.to_string(),
            origin: superblock.origin.uri.to_string(),
            origin_bytes: superblock.origin.size_bytes,
            origin_identity: superblock.origin.identity,
            // The engine notes it before anything is written.
            mode: found.map_or_else(|| mode_name(superblock.mode).to_owned(), |found| found.mode),
            fence_dirty_bytes: fenced.as_ref().map_or(0, |fence| fence.dirty_bytes),
            fence_superblock: fenced.as_ref().map_or(0, |fence| fence.superblock_sequence),
            destaged: fenced.as_ref().is_some_and(|fence| fence.is_destaged),
            fence: fenced.map(|fence| fence.why),
            superblock_sequence: newest.max(superblock.sequence),
            registered: is_registered,
        };
        let left_behind = Mutex::new(before.filter(|_| left_behind.is_some()));
        let (record, steps) = (Mutex::new(record), Steps::default());
        Ok(Some(StateDir { file, place: place.to_owned(), record, left_behind, steps }))
    }

    /// Returns it with each write of the file among these steps.
    pub fn among(self, steps: &Steps) -> StateDir {
        StateDir { steps: steps.clone(), ..self }
    }

    /// Marks the records of other caches as outdated: they serve no more until their cache is
    /// served again.
    ///
    /// It marks the caches that were served under the same name, for their flash is gone. It also
    /// marks those of the same origin, for this cache may keep writes from it. Their fences stay.
    /// The device behind a name does not count: the kernel gives its names anew.
    fn outdate_others(&self) -> Result<(), String> {
        let mine = self.record();
        let has_my_origin = |other: &StateRecord| match mine.origin_identity != 0 && other.origin_identity != 0 {
            true => other.origin_identity == mine.origin_identity,
            false => other.origin == mine.origin,
        };
        let is_outdated = |other: &StateRecord| {
            other.registered
                && other.flash_uuid != mine.flash_uuid
                && (other.flash_named == mine.flash_named || has_my_origin(other))
                && !unhex(&other.flash_uuid).is_some_and(|uuid| is_served(&uuid))
        };
        for (file, record) in records(Path::new(&self.place))? {
            // A file that cannot be read serves no origin.
            let Some(record) = record.ok().filter(is_outdated) else { continue };
            replace(&file, &StateRecord { registered: false, ..record })?;
        }
        Ok(())
    }

    /// Returns the state of the cache that was served from `flash`, which is missing now.
    ///
    /// # Errors
    /// A sentence: none, or several.
    pub fn of_missing(dir: &Path, flash: &Path) -> Outcome<StateDir> {
        let shown = dir.display();
        refuse_open_to_others(dir)?;
        let (wanted, named) = (absolute(flash), named(flash));
        let mut found = Vec::new();
        for (file, record) in records(dir).map_err(Failure::failed)? {
            let record = record?;
            if record.registered && (record.flash == wanted || record.flash_named == named) {
                found.push((file, record));
            }
        }
        match <[_; 1]>::try_from(found) {
            Ok([(file, record)]) => Ok(StateDir {
                file,
                place: shown.to_string(),
                record: Mutex::new(record),
                left_behind: Mutex::default(),
                steps: Steps::default(),
            }),
            Err(found) if found.is_empty() => Err(Failure::failed(format_args!(
                "{} is missing, and {shown} knows no cache that was served from there",
                flash.display()
            ))),
            Err(found) => Err(Failure::failed(format_args!(
                "{} is missing, and {} caches were served from there: remove the files of those that are no more: {}",
                flash.display(),
                found.len(),
                found.iter().map(|(file, _)| file.display().to_string()).collect::<Vec<_>>().join(", ")
            ))),
        }
    }

    /// Returns the UUID of the flash that was last served from there, if the directory tells.
    pub fn uuid_of(dir: &Path, flash: &Path) -> Option<[u8; 16]> {
        unhex(&StateDir::of_missing(dir, flash).ok()?.record().flash_uuid)
    }

    /// Forgets the state of the cache of `superblock`, which is no more: it may serve no origin.
    ///
    /// If the flash was found at `flash` but served from another place, it may be a copy. Then the
    /// cache itself keeps its file if its flash is at its place, and its fence if that place cannot
    /// be read. A file that is not believed may belong to the cache itself, and stays. Without
    /// `flash` the file belongs to this cache, believed or not.
    ///
    /// Returns a sentence for a file that stays though it should not: the cache is no more in any
    /// case.
    pub fn retire(superblock: &Superblock, flash: Option<&Path>) -> Option<String> {
        let file = file_of(superblock)?;
        let shown = file.display();
        let retired = saying_which("the state directory", || retire(&file, superblock, flash));
        retired.err().map(|why| format!("{why}: remove {shown} if no other copy of that flash is in use"))
    }

    /// Returns the file that holds the state.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the record.
    pub fn record(&self) -> StateRecord {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes a note durable. The caller waits as long as the directory hangs.
    ///
    /// # Errors
    /// A sentence: the last note stays.
    pub fn keep(&self, note: Note) -> Result<(), String> {
        match note {
            Note::Raised(_) if self.record().fence.is_some() => Ok(()),
            Note::Raised(fence) => self.change(|record| {
                record.fence = Some(fence.why);
                record.fence_dirty_bytes = fence.dirty_bytes;
                record.fence_superblock = fence.superblock_sequence;
                record.destaged = fence.is_destaged;
            }),
            Note::Destaged => self.change(|record| record.destaged = true),
            Note::Lowered => self.change(|record| {
                record.fence = None;
                record.fence_dirty_bytes = 0;
                record.fence_superblock = 0;
                record.destaged = false;
            }),
            // It comes once the superblock names the directory, and with each switch.
            Note::Mode(mode, sequence) => {
                self.change(|record| {
                    record.mode = mode_name(mode).to_owned();
                    record.superblock_sequence = record.superblock_sequence.max(sequence);
                    record.registered = true;
                })?;
                let left_behind = self.left_behind.lock().unwrap_or_else(PoisonError::into_inner).take();
                left_behind.map_or(Ok(()), |file| remove(&file))
            }
            Note::Newest(sequence) if self.record().superblock_sequence >= sequence => Ok(()),
            Note::Newest(sequence) => self.change(|record| {
                record.superblock_sequence = record.superblock_sequence.max(sequence);
            }),
        }
    }

    fn change(&self, change: impl FnOnce(&mut StateRecord)) -> Result<(), String> {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = record.clone();
        change(&mut next);
        next.version = VERSION;
        let _step = self.steps.begin(format!("writing the state file {}", self.file.display()));
        replace(&self.file, &next)?;
        *record = next;
        Ok(())
    }
}

impl FenceKeeper for StateDir {
    fn place(&self) -> String {
        self.place.clone()
    }

    fn prepare(&self) -> Result<(), String> {
        self.change(|_| {})?;
        self.outdate_others()
    }

    fn raised(&self) -> Result<Option<Raised>, String> {
        Ok(self.record().raised())
    }

    fn newest_superblock(&self) -> u64 {
        self.record().superblock_sequence
    }

    fn note(self: Arc<Self>, note: Note, answer: NoteAnswer) {
        // A thread of its own: a directory that hangs takes no worker from requests. Without a
        // thread the answer is dropped, which refuses the note.
        let _ = thread::Builder::new().name("state".into()).spawn(move || answer(self.keep(note)));
    }
}

/// Refuses a flash that is older than the one that was last served.
///
/// The copy of a flash that was moved or restored from a backup has its UUID.
fn refuse_older(superblock: &Superblock, record: &StateRecord, dir: &Path) -> Outcome {
    // The content of a flash behind such a fence is dropped, from whichever time it is.
    let is_dropped = record.raised().is_some_and(|fence| fence.is_destaged);
    if superblock.sequence >= record.superblock_sequence || is_dropped {
        return Ok(());
    }
    Err(Failure::failed(format_args!(
        "this flash is an older copy (superblock {}, and {} knows superblock {} of {}): name the flash that was served last, or believe this copy with --adopt",
        superblock.sequence,
        dir.display(),
        record.superblock_sequence,
        record.flash
    )))
}

/// Retires a state file, as [`StateDir::retire`].
fn retire(file: &Path, superblock: &Superblock, flash: Option<&Path>) -> Result<(), String> {
    let is_elsewhere = |record: &StateRecord| {
        flash.is_some_and(|flash| record.flash != absolute(flash) && record.flash_named != named(flash))
    };
    let record = match read(file) {
        Ok(Some(record)) => record,
        Ok(None) => return Ok(()),
        Err(_) if flash.is_none() => return remove(file),
        Err(fault) => {
            let fault = fault.sentence().unwrap_or_default();
            return Err(format!("{fault}; it stays, for it may be that of another copy"));
        }
    };
    if !is_elsewhere(&record) {
        return remove(file);
    }
    let there = open_flash(Path::new(&record.flash), Access::Peek);
    match there.is_ok_and(|there| there.superblock.flash_uuid == superblock.flash_uuid) {
        true => Ok(()),
        // It was moved, or its device is away.
        false => replace(file, &StateRecord { registered: false, ..record }),
    }
}

/// Returns the file of a flash in a directory.
fn file_in(dir: &Path, superblock: &Superblock) -> PathBuf {
    dir.join(format!("{}.json", hex(&superblock.flash_uuid)))
}

/// Returns the file of a flash in the directory that its superblock names.
fn file_of(superblock: &Superblock) -> Option<PathBuf> {
    let dir = Some(superblock.state_dir.as_str()).filter(|dir| !dir.is_empty())?;
    Some(file_in(Path::new(dir), superblock))
}

/// Refuses to repair a flash that may be an older copy, unless `adopt`. A repair would make it as
/// new as the flash.
///
/// # Errors
/// As [`kept_of`]; with `adopt` only for a directory or file that is not believed.
pub fn refuse_older_copy(given: Option<&Path>, superblock: &Superblock, adopt: bool) -> Outcome {
    if superblock.detached {
        return Ok(());
    }
    if !adopt {
        return kept_of(given, superblock).map(drop);
    }
    let known = file_of(superblock);
    let Some(dir) = given.or(known.as_deref().and_then(Path::parent)) else { return Ok(()) };
    refuse_open_to_others(dir)?;
    read(&file_in(dir, superblock)).map(drop)
}

/// Notes a repair of a flash, which made its superblock newer: a fence around it still is one.
///
/// An older copy that no fence is around gets no note.
///
/// # Errors
/// A sentence.
pub fn note_repair(given: Option<&Path>, before: &Superblock, after: u64) -> Result<(), String> {
    let Some(known) = file_of(before) else { return Ok(()) };
    let file = given.map_or(known, |dir| file_in(dir, before));
    let record = read(&file).map_err(|failure| failure.sentence().unwrap_or_default())?;
    let Some(record) = record else { return Ok(()) };
    let newest = |noted: u64, is_of_this: bool| if is_of_this { noted.max(after) } else { noted };
    let fence_superblock = newest(record.fence_superblock, record.fence_superblock >= before.sequence);
    let superblock_sequence = newest(record.superblock_sequence, record.superblock_sequence <= before.sequence);
    if (fence_superblock, superblock_sequence) == (record.fence_superblock, record.superblock_sequence) {
        return Ok(());
    }
    replace(&file, &StateRecord { superblock_sequence, fence_superblock, ..record })
}

/// Returns the record of the cache of `superblock`, if one is kept, and changes nothing.
///
/// It looks in `given`, or else in the superblock's directory.
///
/// # Errors
/// A sentence, if [`StateDir::open`] would refuse it without `adopt`.
pub fn kept_of(given: Option<&Path>, superblock: &Superblock) -> Outcome<Option<StateRecord>> {
    let known = Some(Path::new(superblock.state_dir.as_str())).filter(|known| !known.as_os_str().is_empty());
    let Some(dir) = given.or(known) else { return Ok(None) };
    let shown = dir.display();
    let failed = |what: &str| Err(Failure::failed(format_args!("the state directory {shown} {what}")));
    let at = match dir.canonicalize() {
        Ok(at) => at,
        Err(error) => return failed(&format!("cannot be opened: {}; name it with --state", system_reason(&error))),
    };
    refuse_open_to_others(&at)?;
    let found = read(&file_in(&at, superblock))?;
    let Some(elsewhere) = known else { return Ok(found) };
    if elsewhere != at && read(&file_in(elsewhere, superblock))?.is_some() {
        return failed(&format!(
            "is not the one that holds the state of this cache, {} is: name that one, or move it here with --adopt",
            elsewhere.display()
        ));
    }
    match found {
        Some(found) => refuse_older(superblock, &found, &at).map(|()| Some(found)),
        None => failed(&format!(
            "does not hold the state of this cache, which was served with --state {}: name that one, or believe the flash as it is with --adopt",
            elsewhere.display()
        )),
    }
}
