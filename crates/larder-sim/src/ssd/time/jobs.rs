//! From what a translation layer did to what planes have to do for it.
//!
//! Invariants: jobs come in the order of the operations; a read that only a copy inside its plane needs is one job with it.
//!
//! What it does not do: hashing, which is the controller's.

use super::lanes::{Job, Owner, Work};
use crate::ssd::{
    geometry::{Geometry, Lpn, PlaneId, Ppa},
    op::{Cause, Op, Source},
};

/// The jobs for these operations. Frames wait for the host pages of their batch; `awaited`: a request waits for that operation.
pub fn of(geometry: &Geometry, ops: &[Op], batch: Option<u64>, awaited: Option<(usize, u64)>) -> Vec<Job> {
    let plane_of = |ppa: Ppa| geometry.plane_of(geometry.block_of(ppa));
    let owner_of = |at: usize| match awaited {
        Some((which, request)) if which == at => Owner::Request(request),
        _ => Owner::Nobody,
    };
    let job = |(at, op): (usize, &Op)| match *op {
        Op::Read { .. } if is_copy_back(ops.get(at..at + 2).unwrap_or_default(), plane_of) => None,
        Op::Read { ppa, cause } => {
            let goes_first = awaited.is_some() || cause == Cause::Host;
            Some(Job { plane: plane_of(ppa), work: Work::Read, owner: owner_of(at), goes_first })
        }
        Op::Program { ppa, source, .. } => {
            let owner = match (source, batch) {
                (Source::Host(lpn, _), Some(batch)) => Owner::Frame { lpn: lpn.0, batch },
                _ => owner_of(at),
            };
            let pair = at.checked_sub(1).and_then(|before| ops.get(before..=at));
            let copies = pair.is_some_and(|pair| is_copy_back(pair, plane_of));
            let work = if copies { Work::CopyBack } else { Work::Program };
            Some(Job { plane: plane_of(ppa), work, owner, goes_first: false })
        }
        Op::Erase { block, .. } => {
            let plane = geometry.plane_of(block);
            Some(Job { plane, work: Work::Erase, owner: owner_of(at), goes_first: false })
        }
        Op::Hash { .. } | Op::Evicted { .. } => None,
    };
    ops.iter().enumerate().filter_map(job).collect()
}

/// The pages that these operations dropped.
pub fn evicted(ops: &[Op]) -> impl Iterator<Item = Lpn> {
    ops.iter().filter_map(|op| match op {
        Op::Evicted { lpn } => Some(*lpn),
        _ => None,
    })
}

/// Whether these two operations read a page and program it in the same plane.
fn is_copy_back(pair: &[Op], plane_of: impl Fn(Ppa) -> PlaneId) -> bool {
    match pair {
        [Op::Read { ppa: read, .. }, Op::Program { ppa, source: Source::Copy(from), .. }] => {
            read == from && plane_of(*read) == plane_of(*ppa)
        }
        _ => false,
    }
}
