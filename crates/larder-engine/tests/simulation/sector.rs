//! The values that one sector may read as: the contract for a single sector, and nothing else.
//!
//! The sector has *versions*: its value at the opening of the cache (the *base*), and one for each
//! write since. A pair of moments gives the known place of a version in their order. The first is
//! the first end of an operation that shows it (its own write, or a read that returned it). The
//! second is the last start of one. So version `a` is surely *before* version `b` if an operation
//! that shows `a` was over before one that shows `b` began.
//!
//! Invariants, which are the only checks:
//! - A read may return a version if no two versions are then surely before each other. (For a
//!   register that is exactly linearizability: Gibbons and Korach, "Testing shared memories",
//!   1997.)
//! - A crash may leave each version that is not surely before a durable one. The survivors are the
//!   next base: one of several values until a read, and the value of that read from then on.
//! - The loss of the flash may leave the values that the origin may hold. These are the versions
//!   not surely before a durable one there, and values that a failed write left there. Older data
//!   that the cache holds for dirty covers such a value in reads. A crash alone may show it, too,
//!   if the dirty data is not durable. Dirty data of the chunk's other sectors counts as well,
//!   because the cache may hold the whole chunk for it.
//!
//! - Data that the origin lost with a failed flush is durable on it only by an older flush, or by a
//!   FUA write. No later flush covers it.
//!
//! It does not know sectors beside it, or the durable state; the volume's model does.

use crate::trouble::Way;

/// The content of a sector, in short: see the `content` module.
pub type Value = u32;
/// A count of events: it orders beginnings and ends of operations.
pub type Moment = u64;
/// After everything.
pub const NEVER: Moment = Moment::MAX;

/// A write that is numbered uniquely in a run; 0 is no write.
pub type WriteNumber = u32;

/// One value that the sector may have, or had.
#[derive(Clone, Debug)]
struct Version {
    write: WriteNumber,
    value: Value,
    /// Further values that the base may have instead.
    others: Vec<Value>,
    /// The first end of an operation that shows this version.
    first_end: Moment,
    /// The last start of one.
    last_start: Moment,
    /// When its write began, and when it succeeded.
    begun: Moment,
    completed: Moment,
    /// The version surely came to be.
    certain: bool,
    /// Its write ended with everything durable.
    forced: bool,
    /// And durable on the origin.
    forced_on_origin: bool,
    /// It may have been written to the cache alone.
    perhaps_dirty: bool,
    /// The way of its write, once that is over.
    way: Option<Way>,
    /// It lay on the origin alone, or may have, when the origin lost its unflushed writes.
    forgotten: bool,
    /// Records of durable data were lost.
    ///
    /// Cache and origin may hold different ones of its values, each for clean.
    doubtful: bool,
    /// It is a trim that the cache may ignore or keep.
    ///
    /// Only a destage of all tells the origin. For the base: it may be one.
    advice: bool,
    /// Such a trim came over it before the origin surely had it.
    hidden: bool,
    /// It is a trim that a later life may keep.
    left: bool,
}

/// The moments up to which completed writes are durable, for the whole volume.
#[derive(Clone, Copy, Debug, Default)]
pub struct Durable {
    /// Writes that completed before this moment survive a crash.
    pub below: Moment,
    /// Writes that completed before this moment survive the loss of the flash.
    pub on_origin_below: Moment,
    /// Kept trims, and writes under one, survive it if they completed before this moment.
    pub trims_on_origin_below: Moment,
    /// Writes behind a fence survive it if they began after the first and completed before the
    /// second.
    pub past_flash: (Moment, Moment),
}

impl Version {
    fn before(&self, other: &Version) -> bool {
        self.first_end < other.last_start
    }

    fn is_durable(&self, durable: Durable) -> bool {
        self.forced || (!self.forgotten && self.completed < durable.below) || self.is_on_origin(durable)
    }

    fn is_on_origin(&self, durable: Durable) -> bool {
        self.forced_on_origin || self.was_brought_to_origin(durable)
    }

    fn was_brought_to_origin(&self, durable: Durable) -> bool {
        let (from, below) = durable.past_flash;
        let told_below =
            if self.advice || self.hidden { durable.trims_on_origin_below } else { durable.on_origin_below };
        !self.doubtful
            && !self.forgotten
            && (self.completed < told_below || (!self.advice && from < self.begun && self.completed < below))
    }

    fn values(&self) -> impl Iterator<Item = Value> {
        std::iter::once(self.value).chain(self.others.iter().copied())
    }
}

/// One sector.
#[derive(Clone, Debug)]
pub struct Sector {
    base: Version,
    writes: Vec<Version>,
    /// The values that the origin may hold, besides the base.
    origin: Vec<Value>,
    /// Values that failed writes may have left on the origin under dirty data, and their ends.
    lurking: Vec<(Value, Moment)>,
    /// The first value, and the value of every write.
    ever: Vec<Value>,
}

fn keep(values: &mut Vec<Value>, value: Value) {
    if !values.contains(&value) {
        values.push(value);
    }
}

impl Sector {
    /// Returns a sector that holds `value`, on the origin, too.
    pub fn new(value: Value) -> Sector {
        Sector {
            base: Sector::base(&[value], true),
            writes: Vec::new(),
            origin: vec![value],
            lurking: Vec::new(),
            ever: vec![value],
        }
    }

    fn base(values: &[Value], on_origin: bool) -> Version {
        Version {
            write: 0,
            value: values[0],
            others: values[1..].to_vec(),
            first_end: 0,
            last_start: 0,
            begun: 0,
            completed: 0,
            certain: true,
            forced: true,
            forced_on_origin: on_origin,
            perhaps_dirty: !on_origin,
            way: None,
            forgotten: false,
            doubtful: false,
            advice: false,
            hidden: false,
            left: false,
        }
    }

    /// Notes a trim that the cache may keep: the origin may never get the versions that it lacks.
    pub fn hide(&mut self, durable: Durable) {
        for version in std::iter::once(&mut self.base).chain(&mut self.writes) {
            version.forced_on_origin |= version.is_on_origin(durable);
            version.hidden |= !version.forced_on_origin;
        }
    }

    /// Begins a write of `value` at `now`.
    ///
    /// `advice`: it is a trim that the cache may keep or ignore.
    pub fn begin(&mut self, write: WriteNumber, value: Value, now: Moment, advice: bool) {
        keep(&mut self.ever, value);
        // Such a trim that is under way may come later.
        let hidden = self.writes.iter().any(|version| version.advice && version.first_end == NEVER);
        self.writes.push(Version {
            write,
            value,
            others: Vec::new(),
            first_end: NEVER,
            last_start: now,
            begun: now,
            completed: NEVER,
            certain: false,
            forced: false,
            forced_on_origin: false,
            perhaps_dirty: true,
            way: None,
            forgotten: false,
            doubtful: false,
            advice,
            hidden,
            left: false,
        });
    }

    /// Notes that this write is a trim that a later life may keep.
    pub fn leave(&mut self, write: WriteNumber) {
        self.of_write(write).left = true;
    }

    fn of_write(&mut self, write: WriteNumber) -> &mut Version {
        self.writes.iter_mut().rfind(|version| version.write == write).expect("a write ends after it began")
    }

    /// Notes that this write returned without an error at `now`, by the way `way`.
    ///
    /// `forced`: with FUA, so that it is durable. `kept`: if the origin had lost it, the cache
    /// repeated it.
    pub fn complete(&mut self, write: WriteNumber, now: Moment, forced: bool, way: Way, kept: bool) {
        let version = self.of_write(write);
        version.first_end = version.first_end.min(now);
        version.completed = now;
        version.certain |= !version.advice;
        version.forced |= forced;
        version.forced_on_origin |= forced && way == Way::Through && !version.advice;
        version.perhaps_dirty &= way != Way::Through;
        version.forgotten &= way != Way::Back && !kept;
        version.way = Some(way);
    }

    /// Notes that this write returned an error at `now`: by then it took effect, or it never will.
    pub fn fail(&mut self, write: WriteNumber, now: Moment, way: Way) {
        let version = self.of_write(write);
        version.first_end = version.first_end.min(now);
        version.perhaps_dirty &= way != Way::Through;
        version.forgotten &= way != Way::Back;
        version.way = Some(way);
    }

    /// Notes that this write failed at `now`, perhaps under older dirty data of its chunk.
    pub fn lurk(&mut self, write: WriteNumber, now: Moment) {
        let value = self.of_write(write).value;
        self.lurking.push((value, now));
    }

    /// Returns the values that may lurk on the origin.
    ///
    /// A write or a destage that reached the origin removes earlier ones.
    fn still_lurking(&mut self, durable: Durable) -> Vec<(Value, Moment)> {
        let lurking = std::mem::take(&mut self.lurking);
        let is_advised = self.base.advice || self.base.hidden || self.writes.iter().any(|version| version.advice);
        let told_below = if is_advised { durable.trims_on_origin_below } else { durable.on_origin_below };
        let covered = |at: Moment| {
            let later = |version: &Version| version.is_on_origin(durable) && !version.advice && at < version.begun;
            at < told_below || self.writes.iter().any(later)
        };
        lurking.into_iter().filter(|&(_, at)| !covered(at)).collect()
    }

    /// Notes that the origin lost its unflushed writes.
    ///
    /// `all`: the cache may have relied on it for all data that is not durable. Otherwise for data
    /// that did not go to the cache alone.
    pub fn origin_forgets(&mut self, durable: Durable, all: bool) {
        for version in &mut self.writes {
            version.forgotten |= !version.is_durable(durable) && (all || version.way != Some(Way::Back));
        }
    }

    /// Returns true if the origin lost a write that was over before `start`.
    pub fn lacks_since(&self, start: Moment) -> bool {
        let lacks = |version: &Version| version.forgotten && !version.forced && version.way == Some(Way::Through);
        self.writes.iter().any(|version| lacks(version) && version.completed < start)
    }

    /// Takes a read from `start` to `end` of `value`; returns false if it breaks the contract.
    pub fn read(&mut self, value: Value, start: Moment, end: Moment) -> bool {
        if self.writes.is_empty() {
            if self.base.value != value || !self.base.others.is_empty() {
                return self.settle_base(value);
            }
            return true;
        }
        let mut candidates = self.candidates(start, end).filter(|&at| self.at(at).values().any(|v| v == value));
        let Some(first) = candidates.next() else { return false };
        if candidates.next().is_some() {
            // Two versions look alike: the read tells nothing of either.
            return true;
        }
        drop(candidates);
        if first == 0 {
            self.settle_base(value);
        }
        let version = if first == 0 { &mut self.base } else { &mut self.writes[first - 1] };
        version.first_end = version.first_end.min(end);
        version.last_start = version.last_start.max(start);
        version.certain = true;
        true
    }

    fn settle_base(&mut self, value: Value) -> bool {
        let possible = self.base.values().any(|v| v == value);
        if possible && !self.base.doubtful {
            self.base.value = value;
            self.base.others.clear();
        }
        possible
    }

    /// Returns a version; number 0 is the base.
    fn at(&self, index: usize) -> &Version {
        if index == 0 { &self.base } else { &self.writes[index - 1] }
    }

    fn count(&self) -> usize {
        self.writes.len() + 1
    }

    /// Returns the versions that a read from `start` to `end` may return.
    fn candidates(&self, start: Moment, end: Moment) -> impl Iterator<Item = usize> {
        (0..self.count()).filter(move |&at| {
            let version = self.at(at);
            let (first_end, last_start) = (version.first_end.min(end), version.last_start.max(start));
            (0..self.count()).all(|other| {
                let x = self.at(other);
                other == at || !x.certain || first_end >= x.last_start || x.first_end >= last_start
            })
        })
    }

    /// Returns the values that a read from `start` to `end` may return, for a message.
    pub fn allowed(&self, start: Moment, end: Moment) -> Vec<Value> {
        let mut values = Vec::new();
        self.candidates(start, end).for_each(|at| self.at(at).values().for_each(|value| keep(&mut values, value)));
        values
    }

    /// Returns true if several values are possible.
    pub fn is_open(&self) -> bool {
        !self.writes.is_empty() || !self.base.others.is_empty()
    }

    /// Returns true if the cache may hold data of this sector that the origin lacks.
    pub fn perhaps_dirty(&self, durable: Durable) -> bool {
        (0..self.count()).any(|at| {
            let version = self.at(at);
            // Equal bytes on the origin do not make a chunk clean.
            version.perhaps_dirty && !version.was_brought_to_origin(durable)
        })
    }

    /// Notes that the cache was opened in a mode without dirty data.
    ///
    /// Reads return the data of the origin.
    pub fn opened_clean(&mut self) {
        (self.base.advice, self.base.hidden) = (false, false);
        self.base.forced_on_origin = !self.base.doubtful;
        self.base.perhaps_dirty = false;
    }

    /// Ends the opening; the survivors become the next base.
    ///
    /// `flash_knows`: the flash knows the state of the origin. Otherwise it may still take destaged
    /// data for dirty.
    pub fn crash(&mut self, durable: Durable, flash_knows: bool) {
        let perhaps_dirty = (0..self.count())
            .map(|at| self.at(at))
            .any(|version| version.perhaps_dirty && !(flash_knows && version.was_brought_to_origin(durable)));
        if self.writes.is_empty() {
            self.base.forced_on_origin |= self.base.is_on_origin(durable);
            self.base.perhaps_dirty = perhaps_dirty;
            return;
        }
        let lurking = self.still_lurking(durable);
        let on_origin = self.survivors(|version| version.is_on_origin(durable));
        let is_there = |version: &Version| version.certain || !version.advice;
        let superseded = (0..self.count()).map(|at| self.at(at)).any(|it| is_there(it) && it.is_on_origin(durable));
        let mut origin = if superseded { Vec::new() } else { std::mem::take(&mut self.origin) };
        on_origin.iter().chain(lurking.iter().map(|(value, _)| value)).for_each(|&value| keep(&mut origin, value));
        let is_durable = |version: &Version| version.is_durable(durable);
        let mut survivors = self.survivors(is_durable);
        // Its cover was there when it failed.
        let shown = |at: Moment| at >= durable.below;
        lurking.iter().filter(|&&(_, at)| shown(at)).for_each(|&(value, _)| keep(&mut survivors, value));
        let doubtful = self.base.doubtful && !self.is_lost(0, is_durable);
        let is_advised = |version: &Version| version.advice || version.hidden || version.left;
        let advised = |at: usize| is_advised(self.at(at)) && !self.is_lost(at, is_durable);
        let advice = (0..self.count()).any(advised);
        // Only if the survivors are exactly the data of the origin.
        let clean = superseded && survivors.len() == 1 && on_origin == survivors && lurking.is_empty();
        self.origin = origin;
        self.base = Sector::base(&survivors, clean);
        self.base.perhaps_dirty = perhaps_dirty;
        self.base.doubtful = doubtful;
        self.base.advice = advice && !clean;
        self.writes.clear();
    }

    fn survivors(&self, durable: impl Fn(&Version) -> bool) -> Vec<Value> {
        let mut values = Vec::new();
        for at in 0..self.count() {
            if !self.is_lost(at, &durable) {
                self.at(at).values().for_each(|value| keep(&mut values, value));
            }
        }
        values
    }

    /// Returns true if a durable version is surely behind a version.
    fn is_lost(&self, at: usize, durable: impl Fn(&Version) -> bool) -> bool {
        (0..self.count()).any(|other| {
            let x = self.at(other);
            other != at && x.certain && durable(x) && self.at(at).before(x)
        })
    }

    /// Notes between lives that the origin is complete, even without the flash.
    pub fn origin_is_complete(&mut self, but_for_trims: bool) {
        if !but_for_trims || !self.base.advice {
            self.opened_clean();
        }
    }

    /// Loses the flash after [`Sector::crash`]; the origin remains.
    pub fn lose_flash(&mut self) {
        let mut values = if self.base.forced_on_origin { Vec::new() } else { std::mem::take(&mut self.origin) };
        self.base.values().for_each(|value| keep(&mut values, value));
        self.base = Sector::base(&values, true);
        self.origin = values;
    }

    /// Loses records of durable data after [`Sector::crash`].
    ///
    /// Every earlier value of the sector may be back; but nothing else. The cache may take an old
    /// copy for clean: reads change when that copy goes. So the sector may be anything until it is
    /// written.
    pub fn revert(&mut self) {
        let ever = self.ever.clone();
        self.base = Sector::base(&ever, false);
        self.base.doubtful = true;
        self.origin = ever;
    }
}

/// Checks of the rules: each shows a broken promise that they see, and the cases that they allow.
pub mod checks {
    use super::*;

    const NOTHING: Durable = Durable { below: 0, on_origin_below: 0, trims_on_origin_below: 0, past_flash: (0, 0) };
    const NOW: Durable = Durable { below: 100, ..NOTHING };

    /// Returns a sector of value 1 with writes `(value, start, end)`.
    fn written(writes: &[(Value, Moment, Moment)]) -> Sector {
        let mut sector = Sector::new(1);
        for &(value, start, end) in writes {
            sector.begin(value, value, start, false);
            if end != NEVER {
                sector.complete(value, end, false, Way::Back, false);
            }
        }
        sector
    }

    fn after_crash(sector: &Sector, durable: Durable) -> Vec<Value> {
        let mut sector = sector.clone();
        sector.crash(durable, false);
        sector.allowed(200, 201)
    }

    /// Reads return the newest completed write, or one that overlaps them.
    pub fn reads_are_new() {
        let sector = written(&[(2, 10, 20), (3, 30, 40)]);
        assert_eq!(sector.allowed(50, 60), [3]);
        assert_eq!(sector.allowed(35, 60), [2, 3]);
        assert_eq!(sector.allowed(15, 60), [1, 2, 3]);
        assert!(!sector.clone().read(2, 50, 60) && !sector.clone().read(4, 35, 60));
        let overlapping = written(&[(2, 10, 30), (3, 20, 40)]);
        assert_eq!(overlapping.allowed(50, 60), [2, 3]);
        assert_eq!(written(&[(2, 10, NEVER)]).allowed(50, 60), [1, 2]);
    }

    /// A later read does not take back the result of an earlier one.
    pub fn reads_go_forward() {
        let mut sector = written(&[(2, 10, NEVER)]);
        assert!(sector.read(2, 20, 30));
        assert_eq!(sector.allowed(40, 50), [2]);
        assert_eq!(sector.allowed(25, 50), [1, 2], "a read at the same time may be of before");
        let mut sector = written(&[(2, 10, 30), (3, 20, 40)]);
        assert!(sector.read(2, 50, 60) && !sector.read(3, 70, 80) && sector.read(2, 70, 80));
    }

    /// A sector of a failed write is old or new, and keeps its value.
    pub fn failed_writes_stay() {
        let mut sector = written(&[(2, 10, NEVER)]);
        sector.fail(2, 20, Way::Back);
        assert_eq!(sector.allowed(30, 40), [1, 2]);
        let mut old = sector.clone();
        assert!(old.read(1, 30, 40) && !old.read(2, 50, 60));
        assert!(sector.read(2, 30, 40) && !sector.read(1, 50, 60));
    }

    /// A failed write's value on the origin shows when the dirty data over it is lost.
    ///
    /// It goes with the destage of that data.
    pub fn failed_writes_lurk_under_dirty_data() {
        let mut sector = Sector::new(1);
        sector.begin(2, 2, 10, false);
        sector.fail(2, 20, Way::Back);
        sector.lurk(2, 20);
        assert!(sector.read(1, 30, 40) && !sector.read(2, 50, 60));
        let lost = |durable, more: &dyn Fn(&mut Sector)| {
            let mut sector = sector.clone();
            more(&mut sector);
            sector.crash(durable, false);
            let with_flash = sector.allowed(200, 201);
            sector.lose_flash();
            (with_flash, sector.allowed(200, 201))
        };
        assert_eq!(lost(NOW, &|_| {}), (vec![1], vec![1, 2]));
        let before = Durable { below: 15, ..NOTHING };
        assert_eq!(
            lost(before, &|_| {}),
            (vec![1, 2], vec![1, 2]),
            "other sectors of the chunk are lost, which hid it"
        );
        assert_eq!(lost(Durable { on_origin_below: 70, ..NOW }, &|_| {}), (vec![1], vec![1]));
        let overwrite = |sector: &mut Sector| {
            sector.begin(3, 3, 70, false);
            sector.complete(3, 80, true, Way::Through, false);
        };
        assert_eq!(lost(NOW, &overwrite), (vec![3], vec![3]));
    }

    /// Crashes take unflushed writes, and no flushed ones.
    pub fn flushed_writes_survive() {
        let sector = written(&[(2, 10, 20), (3, 30, 40), (4, 50, NEVER)]);
        assert_eq!(after_crash(&sector, NOW), [3, 4]);
        assert_eq!(after_crash(&sector, NOTHING), [1, 2, 3, 4]);
        assert_eq!(after_crash(&sector, Durable { below: 40, ..NOTHING }), [2, 3, 4]);
        let mut forced = written(&[(2, 10, 20)]);
        forced.begin(3, 3, 30, false);
        forced.complete(3, 40, true, Way::Back, false);
        assert_eq!(after_crash(&forced, NOTHING), [3]);
        assert_eq!(after_crash(&written(&[(2, 10, 30), (3, 20, 40)]), NOW), [2, 3]);
    }

    /// The value read after a crash survives a later crash.
    pub fn no_flip() {
        let mut sector = written(&[(2, 10, 20)]);
        sector.crash(NOTHING, false);
        assert!(sector.read(1, 30, 40) && !sector.read(2, 50, 60));
        sector.crash(NOTHING, false);
        assert_eq!(sector.allowed(70, 80), [1]);
    }

    /// The loss of the flash takes data that the origin lacks, however old, and nothing else.
    pub fn origin_holds_the_rest() {
        let mut sector = written(&[(2, 10, 20)]);
        sector.crash(NOW, false);
        sector.begin(3, 3, 110, false);
        sector.complete(3, 120, false, Way::Back, false);
        let mut lost = sector.clone();
        lost.crash(NOW, false);
        lost.lose_flash();
        assert_eq!(lost.allowed(130, 140), [1, 2, 3]);
        sector.crash(Durable { on_origin_below: 130, ..NOTHING }, true);
        assert!(!sector.perhaps_dirty(NOTHING));
        sector.lose_flash();
        assert_eq!(sector.allowed(130, 140), [3]);
    }

    /// Data written and flushed behind a fence is on the origin; older data may be absent.
    pub fn writes_past_the_flash_are_on_the_origin() {
        let mut sector = written(&[(2, 10, 20)]);
        sector.crash(NOW, false);
        let mut other = sector.clone();
        sector.begin(3, 3, 50, false);
        sector.complete(3, 60, false, Way::Back, false);
        let durable = Durable { below: 70, past_flash: (40, 70), ..NOTHING };
        for sector in [&mut sector, &mut other] {
            sector.crash(durable, false);
            sector.lose_flash();
        }
        assert_eq!((sector.allowed(90, 95), other.allowed(90, 95)), (vec![3], vec![1, 2]));
    }

    /// A destaged chunk is clean, but a crash may take that back; a close does not.
    pub fn dirty_is_what_the_flash_takes_for_dirty() {
        let mut sector = written(&[(1, 10, 20)]);
        assert!(sector.perhaps_dirty(NOTHING) && sector.perhaps_dirty(NOW));
        let destaged = Durable { on_origin_below: 30, ..NOTHING };
        assert!(!sector.perhaps_dirty(destaged));
        let mut closed = sector.clone();
        closed.crash(destaged, true);
        sector.crash(destaged, false);
        assert!(sector.perhaps_dirty(NOTHING) && !closed.perhaps_dirty(NOTHING));
        sector.opened_clean();
        assert!(!sector.perhaps_dirty(NOTHING));
    }

    /// Lost records may bring back written values, and no others.
    pub fn reverting_brings_back_what_was_there() {
        let mut sector = written(&[(2, 10, 20), (3, 30, 40)]);
        sector.crash(NOW, false);
        sector.revert();
        assert_eq!(sector.allowed(50, 60), [1, 2, 3]);
        // The cache may hold one of them and the origin another, until it is written.
        assert!(!sector.read(4, 50, 60) && sector.read(1, 50, 60) && sector.read(2, 70, 80));
        sector.begin(5, 5, 90, false);
        sector.complete(5, 95, true, Way::Through, false);
        assert!(sector.read(5, 100, 110) && !sector.read(1, 120, 130));
        sector.crash(NOW, false);
        assert_eq!(sector.allowed(140, 150), [5]);
    }

    /// Equal values do not raise false alarms.
    pub fn equal_values_are_either() {
        let mut sector = Sector::new(1);
        for (number, value, start) in [(2, 5, 10), (3, 6, 20), (4, 5, 30)] {
            sector.begin(number, value, start, false);
        }
        assert!(sector.read(5, 40, 50) && sector.read(6, 60, 70) && sector.read(5, 80, 90));
    }

    /// A trim that the cache may keep shows or not, and that is final; the origin may lack it.
    pub fn trims_that_may_be_kept_stay_what_they_are() {
        let mut sector = written(&[(2, 10, 20)]);
        sector.hide(NOTHING);
        sector.begin(3, 3, 30, true);
        sector.complete(3, 40, false, Way::Back, false);
        assert_eq!(sector.allowed(50, 60), [2, 3]);
        assert!(sector.read(3, 50, 60) && !sector.read(2, 70, 80));
        assert_eq!(after_crash(&sector, NOW), [3]);
        let without_flash = |durable| {
            let mut sector = sector.clone();
            sector.crash(durable, false);
            sector.lose_flash();
            sector.allowed(200, 201)
        };
        let owed = Durable { on_origin_below: 90, ..NOW };
        assert_eq!(without_flash(owed), [1, 2, 3], "the origin may have any of them");
        assert_eq!(without_flash(Durable { trims_on_origin_below: 90, ..owed }), [3]);
        let mut next = sector.clone();
        next.crash(owed, false);
        next.crash(owed, false);
        next.lose_flash();
        assert_eq!(next.allowed(200, 201), [1, 2, 3], "in the next life, too");
    }

    /// Data lost by a failed flush becomes durable only if it is written again.
    ///
    /// Data that the cache holds becomes durable by later flushes.
    pub fn forgotten_writes_may_go() {
        let write = |way, forced| {
            let mut sector = written(&[]);
            sector.begin(2, 2, 10, false);
            sector.complete(2, 20, forced, way, false);
            sector.origin_forgets(NOTHING, false);
            sector
        };
        let all = Durable { on_origin_below: 100, ..NOW };
        let through = write(Way::Through, false);
        assert!(through.lacks_since(50) && !through.lacks_since(15));
        assert_eq!(after_crash(&through, all), [1, 2]);
        assert_eq!(after_crash(&write(Way::Through, true), all), [2]);
        assert_eq!(after_crash(&write(Way::Back, false), all), [2], "the cache writes it again");
        let mut again = through;
        again.begin(3, 3, 30, false);
        again.complete(3, 40, false, Way::Through, false);
        assert_eq!(after_crash(&again, all), [3]);
        let mut flushed = written(&[]);
        flushed.begin(2, 2, 10, false);
        flushed.complete(2, 20, false, Way::Through, false);
        flushed.origin_forgets(all, false);
        assert_eq!(after_crash(&flushed, all), [2], "it was flushed before");
    }
}
