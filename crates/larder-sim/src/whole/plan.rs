//! What has to happen for a request of a client, in which order: from what a cache [asked](crate::devices) to steps on its devices.
//!
//! A [`Task`] is stages, one after the other; a stage is chains, side by side; a chain is steps, one after the other.
//!
//! - What **a client** waits for is a chain a chunk: a hit's metadata reads and then its data, or the origin after them. Chains of one
//!   step each on neighbouring bytes of the origin are one step, as the engine joins them.
//! - What **a flush** waits for is one chain: segment, log, and the flushes of flash and origin.
//! - What **nobody** waits for is, of each chunk, *stored* up to the first that evicts or destages, and what follows that is *evicted*.
//!   Between two flushes or trims of all chunks, what is read from flash and written to it goes side by side, and so in the order in
//!   which the cache asked; then what goes to the origin does, in the order of addresses, neighbours in one write; then the flush or trim.
//!
//! Invariants: each request of the cache is in one step, but for what waits in the drive's buffer and takes no time.
//!
//! What it does not do: begin anything.

use std::{collections::VecDeque, ops::Range};

use super::pages::Pages;
use crate::{
    devices::{Action, Device, DeviceRequest, Requests, Waits},
    origin, ssd,
};

/// The longest write that neighbours are joined to, in bytes, as in the engine's destaging.
const JOINED_BYTES_MAX: u64 = 1 << 20;

/// Something that a device is asked.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Drive(ssd::time::Request),
    Origin(origin::Request),
}

/// Steps, one after the other.
pub(super) type Chain = VecDeque<Step>;
/// Chains, side by side.
pub(super) type Stage = Vec<Chain>;

/// Stages, one after the other.
#[derive(Debug, Default)]
pub(super) struct Task {
    pub stages: VecDeque<Stage>,
    /// Bytes of the flash that it frees for something else.
    pub frees: u64,
}

impl Task {
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    fn push(&mut self, stage: Stage) {
        let stage: Stage = stage.into_iter().filter(|chain| !chain.is_empty()).collect();
        if !stage.is_empty() {
            self.stages.push_back(stage);
        }
    }
}

/// What came of one request of a client, of one chunk or several.
#[derive(Default)]
pub(super) struct Plan {
    /// What is answered only after it.
    client: Stage,
    /// What is written for nobody in particular.
    stores: Ordered,
    /// What makes room, for nobody in particular.
    evicts: Ordered,
}

impl Plan {
    /// Adds what a cache asked for one chunk of it.
    pub fn add(&mut self, requests: &Requests, pages: Option<&mut Pages>) {
        let mut steps = Steps { requests, pages };
        let mut chain = Chain::new();
        let mut evicts = false;
        for request in requests {
            if request.waits != Waits::Nobody {
                steps.of(request).for_each(|step| chain.push_back(step));
                continue;
            }
            evicts |= makes_room(request);
            let ordered = if evicts { &mut self.evicts } else { &mut self.stores };
            ordered.add(&mut steps, request);
        }
        self.stores.flash.extend(requests.sealed().iter().filter_map(|bytes| steps.seal(bytes)));
        if let Some(last) = self.client.last_mut().and_then(single_mut)
            && let [Step::Origin(next)] = chain.make_contiguous()
            && joins(last, next)
        {
            last.len += next.len;
        } else if !chain.is_empty() {
            self.client.push(chain);
        }
    }

    /// What the client waits for, what is stored, and what is evicted, once all chunks were added.
    pub fn finish(self) -> (Stage, Task, Task) {
        (self.client, self.stores.finish(), self.evicts.finish())
    }
}

/// Whether a request that nobody waits for belongs to an eviction, or to destaging.
fn makes_room(request: &DeviceRequest) -> bool {
    match (request.device, request.action) {
        (Device::Origin, _) | (Device::Flash, Action::Trim) => true,
        (Device::Flash | Device::Buffer, Action::Read) => true,
        (Device::Flash | Device::Buffer, Action::Write | Action::Flush) | (Device::Buffer, Action::Trim) => false,
    }
}

/// The origin's request that is all of a chain.
fn single_mut(chain: &mut Chain) -> Option<&mut origin::Request> {
    match chain.make_contiguous() {
        [Step::Origin(only)] => Some(only),
        _ => None,
    }
}

fn joins(last: &origin::Request, next: &origin::Request) -> bool {
    let is_neighbour = last.kind == next.kind && last.offset + last.len == next.offset;
    is_neighbour && next.kind != origin::Kind::Flush && last.len + next.len <= JOINED_BYTES_MAX
}

/// From requests to steps.
struct Steps<'a> {
    requests: &'a Requests,
    /// `None`: the flash takes no time.
    pages: Option<&'a mut Pages>,
}

impl Steps<'_> {
    fn of(&mut self, request: &DeviceRequest) -> impl Iterator<Item = Step> + use<> {
        let (mut drive, mut origin) = (Vec::new(), None);
        match (request.device, &mut self.pages) {
            (Device::Flash, Some(pages)) => drive = pages.of(self.requests, request),
            (Device::Flash, None) | (Device::Buffer, _) => {}
            (Device::Origin, _) => origin = Some(of_origin(request)),
        }
        drive.into_iter().map(Step::Drive).chain(origin.map(Step::Origin))
    }

    /// A unit that gets no more is written.
    fn seal(&mut self, bytes: &Range<u64>) -> Option<Chain> {
        let request = self.pages.as_mut()?.seal(bytes)?;
        Some(Chain::from([Step::Drive(request)]))
    }
}

fn of_origin(request: &DeviceRequest) -> origin::Request {
    let kind = match request.action {
        Action::Read => origin::Kind::Read,
        Action::Write => origin::Kind::Write,
        Action::Trim => origin::Kind::Trim,
        Action::Flush => origin::Kind::Flush,
    };
    origin::Request { kind, offset: request.start, len: request.len }
}

/// Steps that nobody waits for, as they come: what goes between two flushes or trims is gathered, over all chunks of a request.
#[derive(Default)]
struct Ordered {
    /// What is before the last flush or trim.
    task: Task,
    flash: Stage,
    to_origin: Vec<origin::Request>,
}

impl Ordered {
    fn add(&mut self, steps: &mut Steps<'_>, request: &DeviceRequest) {
        match request.action {
            Action::Flush | Action::Trim => {
                self.end_group();
                if (request.device, request.action) == (Device::Flash, Action::Trim) {
                    self.task.frees += request.len;
                }
                self.task.push(vec![steps.of(request).collect()]);
            }
            Action::Read | Action::Write => match request.device {
                Device::Origin => self.to_origin.push(of_origin(request)),
                Device::Flash | Device::Buffer => self.flash.push(steps.of(request).collect()),
            },
        }
    }

    fn end_group(&mut self) {
        self.task.push(std::mem::take(&mut self.flash));
        self.to_origin.sort_by_key(|request| request.offset);
        let mut stage = Stage::new();
        for request in self.to_origin.drain(..) {
            match stage.last_mut().and_then(single_mut) {
                Some(last) if joins(last, &request) => last.len += request.len,
                _ => stage.push(Chain::from([Step::Origin(request)])),
            }
        }
        self.task.push(stage);
    }

    fn finish(mut self) -> Task {
        self.end_group();
        self.task
    }
}
