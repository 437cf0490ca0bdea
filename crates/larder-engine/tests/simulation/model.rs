//! The volume as the contract allows it: all sectors, and their durable content.
//!
//! Invariants: the clock counts events; no two have the same moment. A life begins at moment 1.
//!
//! It leaves the rules for a sector to [`crate::sector`].

use crate::{
    content::{Fill, ZERO, name, read_sector, value},
    plan::Run,
    sector::{Durable, Moment, Sector, WriteNumber},
    trouble::{Trouble, Way},
};
use larder_core::types::SECTOR_BYTES;

/// A read that the contract forbids.
pub struct Broken {
    /// The message of the violation.
    pub text: String,
}

/// The device that completed writes have surely reached.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// To the flash, as far as the cache needs one.
    Flash,
    /// To the origin, except trims that the cache keeps.
    Owed,
    /// To the origin.
    All,
}

/// The volume.
pub struct Model {
    sectors: Vec<Sector>,
    chunk_sectors: usize,
    clock: Moment,
    durable: Durable,
    pub trouble: Trouble,
    /// The cache keeps trims as far as it has room for them, and ignores others.
    pub keeps_trims: bool,
    /// The cache passes trims on, and a later life may keep those that the origin lacks then.
    pub leaves_trims: bool,
    /// The last loss on the origin by a failed flush, until a client hears of a failure.
    untold: Option<Moment>,
    /// Sectors read that could have had several values.
    pub open_reads: u64,
}

impl Model {
    /// Returns a volume of zeroes.
    pub fn new(sectors: usize, chunk_sectors: usize) -> Model {
        Model {
            sectors: vec![Sector::new(ZERO); sectors],
            chunk_sectors,
            clock: 0,
            durable: Durable::default(),
            trouble: Trouble::default(),
            keeps_trims: false,
            leaves_trims: false,
            untold: None,
            open_reads: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.sectors.len()
    }

    /// Returns the moment of an event that happens now.
    pub fn now(&mut self) -> Moment {
        self.clock += 1;
        self.clock
    }

    /// Begins a write. `trim`: it is a TRIM.
    pub fn begin(&mut self, write: WriteNumber, run: Run, fill: Fill, trim: bool) -> Moment {
        let (now, durable) = (self.now(), self.durable);
        let is_advice = trim && self.keeps_trims;
        for (index, at) in (run.at..run.end()).enumerate() {
            let sector = &mut self.sectors[at];
            if is_advice {
                sector.hide(durable);
            }
            sector.begin(write, value(fill, write, index, at), now, is_advice);
            if trim && self.leaves_trims {
                sector.leave(write);
            }
        }
        now
    }

    /// Notes that a write succeeded, by this way.
    ///
    /// `fua`: it is durable. `kept`: the origin's losses were known at its acknowledgement, so the
    /// next flush covers it.
    pub fn complete(&mut self, write: WriteNumber, run: Run, fua: bool, way: Way, kept: bool) {
        let now = self.now();
        for sector in &mut self.sectors[run.at..run.end()] {
            sector.complete(write, now, fua, way, kept);
        }
    }

    /// Notes that a write failed.
    pub fn fail(&mut self, write: WriteNumber, run: Run, way: Way) {
        let now = self.now();
        self.sectors[run.at..run.end()].iter_mut().for_each(|sector| sector.fail(write, now, way));
        // It may have gone past the flash, under the cache's copy of the chunk.
        let dirty: Vec<usize> = (run.at..run.end()).filter(|&at| self.perhaps_dirty(Run { at, count: 1 })).collect();
        dirty.into_iter().for_each(|at| self.sectors[at].lurk(write, now));
    }

    /// Judges a read that began at `start` and is over.
    pub fn read(&mut self, run: Run, start: Moment, bytes: &[u8]) -> Result<(), Broken> {
        let end = self.now();
        for (at, bytes) in (run.at..run.end()).zip(bytes.chunks_exact(SECTOR_BYTES)) {
            let sector = &mut self.sectors[at];
            let found = read_sector(bytes);
            self.open_reads += u64::from(sector.is_open());
            if found.is_none_or(|found| !sector.read(found, start, end)) {
                let allowed: Vec<String> = sector.allowed(start, end).into_iter().map(name).collect();
                let found = match found {
                    Some(value) => name(value),
                    None => format!("what nobody wrote (it begins with {:02x?})", &bytes[..16]),
                };
                let text = format!("sector {at} gives {found}, allowed {{{}}}", allowed.join(", "));
                return Err(Broken { text });
            }
        }
        Ok(())
    }

    /// Notes that all writes that completed before `start` are durable so far.
    pub fn durable_before(&mut self, start: Moment, reach: Reach) -> Result<(), Broken> {
        let durable = &mut self.durable;
        durable.below = durable.below.max(start);
        if reach != Reach::Flash {
            durable.on_origin_below = durable.on_origin_below.max(start);
        }
        if reach == Reach::All || (reach == Reach::Owed && !self.keeps_trims) {
            durable.trims_on_origin_below = durable.trims_on_origin_below.max(start);
        }
        self.nothing_is_kept_back(start)
    }

    /// Notes that all writes that completed before `start` are durable, past the flash.
    ///
    /// A fence has been up since `fenced`: writes that began later are on the origin.
    pub fn durable_past_flash(&mut self, start: Moment, fenced: Moment) -> Result<(), Broken> {
        self.durable.below = self.durable.below.max(start);
        self.durable.past_flash = (fenced, self.durable.past_flash.1.max(start));
        self.nothing_is_kept_back(start)
    }

    /// Notes that the origin lost its unflushed writes in a failed flush.
    ///
    /// `all`: the cache relies on the origin alone. `must_tell`: clients write to the origin, and
    /// must be told.
    pub fn origin_forgets(&mut self, all: bool, must_tell: bool) {
        let durable = self.durable;
        self.sectors.iter_mut().for_each(|sector| sector.origin_forgets(durable, all));
        let now = self.now();
        if must_tell {
            self.untold = Some(now);
        }
    }

    /// Notes that a client was told of a failure.
    pub fn told(&mut self) {
        self.untold = None;
    }

    /// Checks that no loss before `start` is untold when a flush succeeds.
    fn nothing_is_kept_back(&self, start: Moment) -> Result<(), Broken> {
        let deceived = self.untold.is_some_and(|at| at < start);
        match self.sectors.iter().position(|sector| deceived && sector.lacks_since(start)) {
            None => Ok(()),
            Some(at) => {
                Err(Broken { text: format!("the origin forgot sector {at} when a flush failed, and nobody is told") })
            }
        }
    }

    /// Returns true if the cache may hold data of a run's chunks that the origin lacks.
    pub fn perhaps_dirty(&self, run: Run) -> bool {
        let first = run.at / self.chunk_sectors * self.chunk_sectors;
        let end = run.end().next_multiple_of(self.chunk_sectors).min(self.sectors.len());
        self.sectors[first..end].iter().any(|sector| sector.perhaps_dirty(self.durable))
    }

    /// Notes that the cache was opened, in a mode without dirty data.
    pub fn opened_clean(&mut self) {
        self.sectors.iter_mut().for_each(Sector::opened_clean);
    }

    /// Ends a life in which the cache was open.
    pub fn life_ends(&mut self, closed: bool) {
        let durable = self.durable;
        // A failed flash keeps its old state.
        let flash_knows = closed && !self.trouble.flash_may_fail();
        self.sectors.iter_mut().for_each(|sector| sector.crash(durable, flash_knows));
        if self.trouble.log_may_lack_a_frame() {
            self.revert();
        }
        self.durable = Durable::default();
        self.untold = None;
        self.clock = 0;
        self.trouble.life_ends();
    }

    /// Ends an opening that failed. Its caller was told, and no client relies on its flushes.
    pub fn opening_ends(&mut self) {
        self.untold = None;
        self.trouble.life_ends();
    }

    /// Loses, between lives, the data that is on the flash alone.
    pub fn lose_flash(&mut self) {
        self.sectors.iter_mut().for_each(Sector::lose_flash);
    }

    /// Notes between lives that the origin is complete.
    ///
    /// `but_for_trims`: it may lack those that the cache kept.
    pub fn origin_is_complete(&mut self, but_for_trims: bool) {
        self.sectors.iter_mut().for_each(|sector| sector.origin_is_complete(but_for_trims));
    }

    /// Notes between lives that the content of the metadata may be lost.
    pub fn revert(&mut self) {
        self.sectors.iter_mut().for_each(Sector::revert);
    }
}
