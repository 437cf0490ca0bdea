//! [`PendingOp`]: an operation of a [`SimDevice`](super::SimDevice) on its way, and its effect.
//!
//! Invariants: an operation takes effect at one moment, or without FUA at two, each time atom by
//! atom. It answers exactly once.
//!
//! It does not choose its moment; [`super::SimRuntime`] does.

use super::{
    body::Body,
    image::Medium,
    pages::{Change, Content},
};
use crate::{Completer, Extent, IoBuf, IoError, IoErrorKind, IoOp, IoResult, rng::Rng};
use std::{ops::Range, sync::Arc};

/// An operation that was submitted and has not completed.
pub(super) struct PendingOp {
    pub(super) device: Arc<Body>,
    pub(super) op: SimOp,
    /// The planned failure, decided at submission.
    pub(super) fate: IoResult<()>,
}

pub(super) enum SimOp {
    Read { offset: u64, buf: IoBuf, filled: Vec<Range<usize>>, misread: Option<u64>, done: Completer<IoBuf> },
    Change { what: IoOp, rest: Vec<Change>, fua: bool, split: bool, place: (u64, u64), done: Completer<()> },
    Flush { upto: u64, done: Completer<()> },
    Extents { offset: u64, len: u64, done: Completer<Vec<Extent>> },
}

impl PendingOp {
    /// Completes the operation. With `partly`, it may let some of it take effect and hand it back.
    pub(super) fn deliver(mut self, partly: bool, rng: &mut Rng) -> Option<PendingOp> {
        if partly && self.fate.is_ok() && self.do_some(rng) {
            return Some(self);
        }
        let PendingOp { device, op, mut fate } = self;
        if fate.is_ok() && device.plan.is_gone() {
            let (what, offset, len) = op.place();
            fate = Err(IoError::new(IoErrorKind::Gone, what, offset, len));
        }
        let mut medium = device.medium.lock();
        match op {
            SimOp::Read { offset, mut buf, filled, misread, done } => {
                if filled.is_empty() {
                    medium.read(offset, &mut buf);
                } else {
                    let mut bytes = vec![0; buf.len()];
                    medium.read(offset, &mut bytes);
                    filled.into_iter().for_each(|range| bytes[range.clone()].copy_from_slice(&buf[range]));
                    buf.copy_from_slice(&bytes);
                }
                drop(medium);
                if let Some(seed) = misread {
                    flip_some(&mut buf, &mut Rng::new(seed));
                }
                done.complete(fate.map(|()| buf));
            }
            SimOp::Change { rest, fua, done, .. } => {
                match &fate {
                    Ok(()) if fua => rest.iter().for_each(|change| medium.change_durably(change)),
                    Ok(()) => rest.into_iter().for_each(|change| medium.change(change)),
                    // A full device cannot have written the parts without space.
                    Err(error) if error.kind == IoErrorKind::NoSpace => {
                        let parts = rest.iter().flat_map(|change| medium.parts_with_space(change)).collect();
                        leave_behind(&mut medium, parts, rng);
                    }
                    Err(_) => leave_behind(&mut medium, rest, rng),
                }
                drop(medium);
                done.complete(fate);
            }
            SimOp::Flush { upto, done } => {
                if fate.is_ok() {
                    medium.flush(upto);
                } else {
                    medium.flush_failed(rng.chance(1, 2).then_some(upto));
                }
                drop(medium);
                done.complete(fate);
            }
            SimOp::Extents { offset, len, done } => {
                let extents = medium.extents(offset, len);
                drop(medium);
                done.complete(fate.map(|()| extents));
            }
        }
        None
    }

    /// Lets some sectors of the operation take effect now. False if it has no second moment left.
    fn do_some(&mut self, rng: &mut Rng) -> bool {
        let mut medium = self.device.medium.lock();
        let tear_bytes = medium.tear_bytes();
        let many_atoms = |change: &Change| change.atoms(tear_bytes).count() > 1;
        match &mut self.op {
            SimOp::Read { offset, buf, filled, .. } if filled.is_empty() => {
                let all = Change { offset: *offset, len: buf.len() as u64, content: Content::Zeroes };
                if !many_atoms(&all) {
                    return false;
                }
                for part in all.tear(tear_bytes, rng).0 {
                    let range = (part.offset - *offset) as usize..(part.end() - *offset) as usize;
                    medium.read(part.offset, &mut buf[range.clone()]);
                    filled.push(range);
                }
                !filled.is_empty()
            }
            // Not with FUA: a later completed write could lie between the two moments. The final
            // durable step would cover it again.
            SimOp::Change { rest, fua: false, split, .. } if !*split && rest.iter().any(many_atoms) => {
                *split = true;
                let whole = std::mem::take(rest);
                for change in whole {
                    let (now, later) = change.tear(tear_bytes, rng);
                    now.into_iter().for_each(|part| medium.change(part));
                    rest.extend(later);
                }
                true
            }
            _ => false,
        }
    }

    /// Returns the changes that the operation may still make.
    pub(super) fn changes(&self) -> &[Change] {
        match &self.op {
            SimOp::Change { rest, .. } => rest,
            _ => &[],
        }
    }

    /// Ends the operation after its process died or its device lost power.
    ///
    /// It takes effect in full, in part, or not at all.
    pub(super) fn abandon(self, rng: &mut Rng) {
        if let SimOp::Change { rest, .. } = self.op {
            leave_behind(&mut self.device.medium.lock(), rest, rng);
        }
    }
}

/// Flips between one and eight bits.
fn flip_some(bytes: &mut [u8], rng: &mut Rng) {
    for _ in 0..=rng.below(8) {
        let bit = rng.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

/// Leaves all, some or none of an interrupted change, volatile.
pub(super) fn leave_behind(medium: &mut Medium, rest: Vec<Change>, rng: &mut Rng) {
    let tear_bytes = medium.tear_bytes();
    let fate = rng.below(3);
    for change in rest {
        match fate {
            0 => {}
            1 => medium.change(change),
            _ => change.tear(tear_bytes, rng).0.into_iter().for_each(|part| medium.change(part)),
        }
    }
}

impl SimOp {
    fn place(&self) -> (IoOp, u64, u64) {
        match self {
            SimOp::Read { offset, buf, .. } => (IoOp::Read, *offset, buf.len() as u64),
            SimOp::Change { what, place, .. } => (*what, place.0, place.1),
            SimOp::Flush { .. } => (IoOp::Flush, 0, 0),
            SimOp::Extents { offset, len, .. } => (IoOp::Extents, *offset, *len),
        }
    }
}

impl std::fmt::Display for PendingOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (what, offset, len) = self.op.place();
        write!(f, "{what:?} of {len} bytes at {offset} on {}", self.device.name)
    }
}
