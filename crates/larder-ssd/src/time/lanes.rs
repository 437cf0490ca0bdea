//! Planes and buses: a plane does one job at a time, a package's bus moves one page at a time.
//!
//! A program takes the bus first, and then the cells. A read takes the cells first, and then the
//! bus, while its plane's register holds the page. An erasure takes no bus; nor does a copy inside
//! a plane (copy-back: Agrawal et al., "Design Tradeoffs for SSD Performance", USENIX ATC 2008,
//! section 3.5). Reads of the host go before all other jobs that wait for the plane (CAFTL section
//! 4.3.2). Their pages go before all others that wait for the bus. A plane or a bus ends the job
//! that it has begun.
//!
//! Invariants: jobs without priority begin in the order in which they came, plane by plane. So an
//! erasure follows the copies out of its block, which are in the same planes. A page that is copied
//! to another plane is programmed when it has been read. A read comes before its program, so no two
//! planes wait for each other.
//!
//! It does not know requests, or the time: the owner of the clock hands back the steps at their
//! ends.

use std::collections::VecDeque;

use hashbrown::HashSet;

use super::{nanos::Nanos, stripes::BusyStripes};
use crate::{
    geometry::{PlaneId, Ppa},
    profile::Timing,
};

/// The work of a plane for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneWork {
    /// Reads a page, which leaves the package.
    Read,
    /// Programs a page, which comes into the package.
    Program,
    /// Reads a page and programs it in the same plane.
    CopyBack,
    /// Erases a block that lies on so many planes: this plane's part of the time.
    Erase {
        /// Those planes.
        planes: u32,
    },
}

/// The party that waits for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobOwner {
    /// No party: the drive's own affairs.
    Nobody,
    /// The request with this number, for one page.
    Request(u64),
    /// The frame of the write buffer that holds this page, handed over with that batch.
    Frame {
        /// The logical page.
        lpn: u32,
        /// The batch.
        batch: u64,
    },
}

/// A read that a program in another plane needs: a copied page is there when it has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// A unique number.
    pub number: u64,
    /// The plane of the program.
    pub to: PlaneId,
}

/// One thing for a plane to do.
#[derive(Clone, Copy, Debug)]
pub struct FlashJob {
    /// The plane.
    pub plane: PlaneId,
    /// The work.
    pub work: LaneWork,
    /// The party that waits for it.
    pub owner: JobOwner,
    /// True if the job goes before all jobs without this.
    pub goes_first: bool,
    /// The link of a read that a program needs.
    pub feeds: Option<Link>,
    /// The read that a program needs: the program and the jobs behind it wait for that.
    pub needs: Option<Link>,
    /// The page that a program fills once it is over.
    pub fills: Option<Ppa>,
}

/// A step of a job that takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LaneStep {
    /// The cells of this plane are done.
    Cells(PlaneId),
    /// The page of this plane has passed the bus.
    Bus(PlaneId),
}

#[derive(Default)]
struct Plane {
    first: VecDeque<FlashJob>,
    rest: VecDeque<FlashJob>,
    running: Option<FlashJob>,
}

#[derive(Default)]
struct Bus {
    /// Planes with a page for the host, which go before all others.
    first: VecDeque<PlaneId>,
    rest: VecDeque<PlaneId>,
    is_busy: bool,
}

/// All planes and buses of a drive.
pub struct Lanes {
    timing: Timing,
    planes: Vec<Plane>,
    buses: Vec<Bus>,
    /// Reads that programs need and that are not over.
    unread: HashSet<u64>,
    /// Time of all work that cells began, summed over planes.
    begun_ns: u128,
}

impl Lanes {
    /// Makes lanes with nothing to do.
    pub fn new(stripes: &BusyStripes, timing: Timing) -> Lanes {
        Lanes {
            timing,
            planes: (0..stripes.planes()).map(|_| Plane::default()).collect(),
            buses: (0..stripes.packages()).map(|_| Bus::default()).collect(),
            unread: HashSet::new(),
            begun_ns: 0,
        }
    }

    /// Returns the time of all work that cells began so far, in nanoseconds, summed over all
    /// planes.
    ///
    /// Work that is not over counts in full.
    pub fn begun_ns(&self) -> u128 {
        self.begun_ns
    }

    /// Gives a plane a job. `after` gets each step that begins, and its duration.
    pub fn push(&mut self, job: FlashJob, after: &mut impl FnMut(Nanos, LaneStep)) {
        self.unread.extend(job.feeds.map(|link| link.number));
        let plane = &mut self.planes[job.plane.0 as usize];
        if job.goes_first {
            plane.first.push_back(job)
        } else {
            plane.rest.push_back(job)
        }
        if plane.running.is_none() {
            self.begin_next(job.plane, after);
        }
    }

    /// Ends a step. Returns its job, if that was the last step of it.
    pub fn step_ends(&mut self, step: LaneStep, after: &mut impl FnMut(Nanos, LaneStep)) -> Option<FlashJob> {
        match step {
            LaneStep::Cells(plane) => match self.work_of(plane)? {
                LaneWork::Read => {
                    self.ask_bus(plane, after);
                    None
                }
                LaneWork::Program | LaneWork::CopyBack | LaneWork::Erase { .. } => self.end(plane, after),
            },
            LaneStep::Bus(plane) => {
                self.bus_is_free(plane, after);
                match self.work_of(plane)? {
                    LaneWork::Program => {
                        self.cells(plane, self.timing.program_ns, after);
                        None
                    }
                    LaneWork::Read | LaneWork::CopyBack | LaneWork::Erase { .. } => self.end(plane, after),
                }
            }
        }
    }

    /// Returns the work that a plane is at.
    fn work_of(&self, plane: PlaneId) -> Option<LaneWork> {
        self.planes[plane.0 as usize].running.map(|job| job.work)
    }

    fn begin_next(&mut self, id: PlaneId, after: &mut impl FnMut(Nanos, LaneStep)) {
        let plane = &mut self.planes[id.0 as usize];
        let unread = &self.unread;
        let may_begin = |job: &&FlashJob| job.needs.is_none_or(|link| !unread.contains(&link.number));
        let next = plane.first.pop_front().or_else(|| {
            plane.rest.front().filter(may_begin)?;
            plane.rest.pop_front()
        });
        let Some(job) = next else { return };
        plane.running = Some(job);
        let Timing { read_ns, program_ns, erase_ns, .. } = self.timing;
        match job.work {
            LaneWork::Read => self.cells(id, read_ns, after),
            LaneWork::CopyBack => self.cells(id, read_ns + program_ns, after),
            LaneWork::Erase { planes } => self.cells(id, erase_ns / Nanos::from(planes), after),
            LaneWork::Program => self.ask_bus(id, after),
        }
    }

    fn cells(&mut self, plane: PlaneId, ns: Nanos, after: &mut impl FnMut(Nanos, LaneStep)) {
        self.begun_ns += u128::from(ns);
        after(ns, LaneStep::Cells(plane));
    }

    fn end(&mut self, id: PlaneId, after: &mut impl FnMut(Nanos, LaneStep)) -> Option<FlashJob> {
        let job = self.planes[id.0 as usize].running.take()?;
        self.begin_next(id, after);
        if let Some(link) = job.feeds {
            self.unread.remove(&link.number);
            if self.planes[link.to.0 as usize].running.is_none() {
                self.begin_next(link.to, after);
            }
        }
        Some(job)
    }

    fn ask_bus(&mut self, plane: PlaneId, after: &mut impl FnMut(Nanos, LaneStep)) {
        let goes_first = self.planes[plane.0 as usize].running.is_some_and(|job| job.goes_first);
        let bus = self.bus_of(plane);
        match bus.is_busy {
            true if goes_first => bus.first.push_back(plane),
            true => bus.rest.push_back(plane),
            false => {
                bus.is_busy = true;
                after(self.timing.transfer_ns, LaneStep::Bus(plane));
            }
        }
    }

    /// Planes in a row are in packages in a row.
    fn bus_of(&mut self, plane: PlaneId) -> &mut Bus {
        let package = plane.0 as usize % self.buses.len();
        &mut self.buses[package]
    }

    fn bus_is_free(&mut self, plane: PlaneId, after: &mut impl FnMut(Nanos, LaneStep)) {
        let bus = self.bus_of(plane);
        match bus.first.pop_front().or_else(|| bus.rest.pop_front()) {
            Some(next) => after(self.timing.transfer_ns, LaneStep::Bus(next)),
            None => bus.is_busy = false,
        }
    }
}
