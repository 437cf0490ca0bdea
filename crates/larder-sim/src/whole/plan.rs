//! The steps for a client's request, in order: a cache's [requests](crate::devices) to devices.
//!
//! A [`Task`] is stages, one after the other; a stage is chains, side by side; a chain is steps,
//! one after the other.
//!
//! - **A client** waits for a chain a chunk: a hit's metadata reads and then its data, or the
//!   origin after them. Chains of one step each on neighbouring bytes of the origin are one step,
//!   as the engine joins them.
//! - **A flush** waits for one chain: segment, log, and the flushes of flash and origin.
//! - **Background requests** of each chunk are *stored* up to the first that evicts or destages,
//!   and *evicted* from there on. Between two flushes or trims of all chunks, reads and writes of
//!   flash go side by side, begun in the cache's order. Writes to the origin follow, in the order
//!   of addresses, neighbours in one write. Then comes the flush or trim.
//!
//! Invariants: each request of the cache is in one step, unless it waits in the drive's buffer and
//! takes no time.
//!
//! It does not begin a step.

use std::{collections::VecDeque, ops::Range};

use super::pages::Pages;
use crate::{
    devices::{Device, DeviceAction, DeviceRequest, Requests, Waits},
    origin,
};
use larder_core::limits::JOINED_BYTES_MAX;
use larder_ssd;

/// A request to a device.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Drive(larder_ssd::time::DriveRequest),
    Origin(origin::OriginRequest),
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

/// The plan for one request of a client, of one chunk or several.
#[derive(Default)]
pub(super) struct Plan {
    /// The chains that the client waits for.
    client: Stage,
    /// The background writes.
    stores: Ordered,
    /// The background work that makes room.
    evicts: Ordered,
}

impl Plan {
    /// Adds a cache's requests for one of its chunks.
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

    /// Returns the client's stage, the stores and the evictions, once all chunks were added.
    pub fn finish(self) -> (Stage, Task, Task) {
        (self.client, self.stores.finish(), self.evicts.finish())
    }
}

/// Returns true if a background request belongs to an eviction, or to destaging.
fn makes_room(request: &DeviceRequest) -> bool {
    match (request.device, request.action) {
        (Device::Origin, _) | (Device::Flash, DeviceAction::Trim) => true,
        (Device::Flash | Device::Buffer, DeviceAction::Read) => true,
        (Device::Flash | Device::Buffer, DeviceAction::Write | DeviceAction::Flush)
        | (Device::Buffer, DeviceAction::Trim) => false,
    }
}

/// Returns the origin's request if it is all of a chain.
fn single_mut(chain: &mut Chain) -> Option<&mut origin::OriginRequest> {
    match chain.make_contiguous() {
        [Step::Origin(only)] => Some(only),
        _ => None,
    }
}

fn joins(last: &origin::OriginRequest, next: &origin::OriginRequest) -> bool {
    let is_neighbour = last.kind == next.kind && last.offset + last.len == next.offset;
    is_neighbour && next.kind != origin::RequestKind::Flush && last.len + next.len <= JOINED_BYTES_MAX as u64
}

/// The way from requests to steps.
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

    /// Writes a unit that gets no more.
    fn seal(&mut self, bytes: &Range<u64>) -> Option<Chain> {
        let request = self.pages.as_mut()?.seal(bytes)?;
        Some(Chain::from([Step::Drive(request)]))
    }
}

fn of_origin(request: &DeviceRequest) -> origin::OriginRequest {
    let kind = match request.action {
        DeviceAction::Read => origin::RequestKind::Read,
        DeviceAction::Write => origin::RequestKind::Write,
        DeviceAction::Trim => origin::RequestKind::Trim,
        DeviceAction::Flush => origin::RequestKind::Flush,
    };
    origin::OriginRequest { kind, offset: request.start, len: request.len }
}

/// Background steps, as they come.
///
/// Steps between two flushes or trims are gathered, over all chunks of a request.
#[derive(Default)]
struct Ordered {
    /// The steps before the last flush or trim.
    task: Task,
    flash: Stage,
    to_origin: Vec<origin::OriginRequest>,
}

impl Ordered {
    fn add(&mut self, steps: &mut Steps<'_>, request: &DeviceRequest) {
        match request.action {
            DeviceAction::Flush | DeviceAction::Trim => {
                self.end_group();
                if (request.device, request.action) == (Device::Flash, DeviceAction::Trim) {
                    self.task.frees += request.len;
                }
                self.task.push(vec![steps.of(request).collect()]);
            }
            DeviceAction::Read | DeviceAction::Write => match request.device {
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
