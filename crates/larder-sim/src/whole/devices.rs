//! The drive and the origin, and the requests under way on them.
//!
//! Invariant: at most [`DESTAGE_DEPTH`] writes of destaging are under way at the origin, in the
//! order in which they came.
//!
//! It leaves the time of each request to its caller.

use std::{collections::VecDeque, ops::Range};

use hashbrown::HashMap;

use super::plan::Step;
use crate::{
    cache::ReplayCache,
    devices::Requests,
    dirty::{DirtyPages, Dirtying, TooDirty},
    host::Host,
    origin::{self, OriginModel, RequestKind},
};
use larder_ssd::{
    geometry::OutOfRange,
    time::{Drive, DriveRequest, Nanos},
};

/// Writes of destaging that are under way at the origin, at most.
pub const DESTAGE_DEPTH: usize = 8;

/// The place of a step: its task, and the chain of its stage.
pub(super) type Place = (u64, usize);

/// See the module.
pub(super) struct Devices {
    pub drive: Option<Drive>,
    pub origin: OriginModel,
    /// The advisor: if a drive is asked for its next drop, this one answers.
    pub advisor: Option<Box<Host>>,
    on_drive: HashMap<u64, Place>,
    on_origin: HashMap<u64, (Place, bool)>,
    /// Writes of destaging that wait for their turn.
    destaging: VecDeque<(Place, origin::OriginRequest)>,
    destaging_now: usize,
    /// The dirty pages, if the drive drops clean ones.
    dirty: Option<DirtyPages>,
}

impl Devices {
    /// Makes devices with no request under way. Without a drive, no request may go to it.
    pub fn new(drive: Option<Drive>, origin: OriginModel) -> Devices {
        Devices {
            dirty: drive.as_ref().and_then(|drive| DirtyPages::of(drive.ftl())),
            drive,
            origin,
            advisor: None,
            on_drive: HashMap::new(),
            on_origin: HashMap::new(),
            destaging: VecDeque::new(),
            destaging_now: 0,
        }
    }

    /// Tells the cache which data the drive would drop next.
    pub fn advise(&self, cache: &mut dyn ReplayCache) {
        if let Some(bytes) = self.advisor.as_ref().and_then(|host| host.next_eviction()) {
            cache.advise_victim(bytes);
        }
    }

    /// Makes the cache's requests to the advisor.
    pub fn advisor_follows(&mut self, asked: &Requests) {
        if let Some(host) = &mut self.advisor {
            host.carry_out(asked);
        }
    }

    /// Announces how much of the flash the cache makes dirty, and which parts for ever.
    ///
    /// The drive never drops the latter.
    ///
    /// # Errors
    /// If there are too few blocks for that.
    pub fn keep(&mut self, dirtying: &Dirtying) -> Result<(), OutOfRange> {
        let (Some(dirty), Some(drive)) = (&mut self.dirty, &mut self.drive) else { return Ok(()) };
        let too_few = |TooDirty { needed, blocks_max, .. }| {
            OutOfRange::new("blocks with dirty data", blocks_max, format!("at least {needed}"))
        };
        dirty.keep(dirtying).map_err(too_few)?.into_iter().for_each(|pages| drive.tell_dirty(pages, true));
        Ok(())
    }

    /// Takes the cache's word on dirty and clean bytes.
    pub fn told(&mut self, asked: &Requests) {
        let (Some(dirty), Some(drive)) = (&mut self.dirty, &mut self.drive) else { return };
        for told in asked.told() {
            for page in dirty.told(&told.bytes, told.is_dirty) {
                drive.tell_dirty(page..page + 1, told.is_dirty);
            }
        }
    }

    /// Returns bytes of the flash to write back, if the drive has no room for more dirty ones.
    pub fn too_dirty(&self) -> Option<Range<u64>> {
        self.dirty.as_ref()?.too_dirty()
    }

    /// Returns the time of the next event.
    pub fn next_event_at(&self) -> Option<Nanos> {
        let drive = self.drive.as_ref().and_then(Drive::next_event_at);
        drive.into_iter().chain(self.origin.next_event_at()).min()
    }

    /// Lets the next event happen, and returns its time. The drive's comes first if both have one
    /// at a moment.
    pub fn step(&mut self) -> Option<Nanos> {
        let next = self.next_event_at()?;
        match &mut self.drive {
            Some(drive) if drive.next_event_at() == Some(next) => drive.step(),
            _ => self.origin.step(),
        };
        Some(next)
    }

    /// Asks for a step now. A write of destaging waits for its turn.
    pub fn ask(&mut self, now: Nanos, place: Place, step: Step, destages: bool) {
        match step {
            Step::Drive(request) => {
                let Some(drive) = &mut self.drive else { return };
                drive.advance_to(now);
                // Pages that were never written read as nothing, and are there at once.
                let trimmed = if let DriveRequest::Trim(pages) = &request { pages.clone() } else { 0..0 };
                let number = drive.submit(request);
                // Pages that were written since the cache asked are still dirty.
                for page in self.dirty.iter().flat_map(|dirty| dirty.dirty_in(trimmed.clone())) {
                    drive.tell_dirty(page..page + 1, true);
                }
                self.on_drive.insert(number, place);
            }
            Step::Origin(request) => match destages && request.kind == RequestKind::Write {
                true => {
                    self.destaging.push_back((place, request));
                    self.destage(now);
                }
                false => self.ask_origin(now, place, request, false),
            },
        }
    }

    fn destage(&mut self, now: Nanos) {
        while self.destaging_now < DESTAGE_DEPTH
            && let Some((place, request)) = self.destaging.pop_front()
        {
            self.destaging_now += 1;
            self.ask_origin(now, place, request, true);
        }
    }

    fn ask_origin(&mut self, now: Nanos, place: Place, request: origin::OriginRequest, destages: bool) {
        self.origin.advance_to(now);
        let number = self.origin.submit(request);
        self.on_origin.insert(number, (place, destages));
    }

    /// Takes the bytes of the flash that the drive dropped by itself: pages, in the order of the
    /// drops.
    pub fn take_evicted(&mut self) -> Vec<Range<u64>> {
        let Some(drive) = &mut self.drive else { return Vec::new() };
        let page_bytes = u64::from(drive.ftl().array().geometry().page_bytes);
        let pages = std::iter::from_fn(|| drive.take_evicted());
        pages.map(|lpn| u64::from(lpn.0) * page_bytes..(u64::from(lpn.0) + 1) * page_bytes).collect()
    }

    /// Takes the place of a step that is over.
    pub fn take_over(&mut self, now: Nanos) -> Option<Place> {
        while let Some((number, _)) = self.drive.as_mut().and_then(Drive::take_over) {
            if let Some(place) = self.on_drive.remove(&number) {
                return Some(place);
            }
        }
        let (number, _) = self.origin.take_over()?;
        let (place, destages) = self.on_origin.remove(&number)?;
        if destages {
            self.destaging_now -= 1;
            self.destage(now);
        }
        Some(place)
    }
}
