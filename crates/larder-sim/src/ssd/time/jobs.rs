//! From what a translation layer did to what planes have to do for it.
//!
//! Invariants: jobs come in the order of the operations; a read that only a copy inside its plane needs is one job with it,
//! and one for a copy to another plane is linked to the program.
//!
//! What it does not do: hashing, which is the controller's.

use super::lanes::{Job, Link, Owner, Work};
use crate::ssd::{
    geometry::{Geometry, Lpn, PlaneId, Ppa},
    op::{Cause, Op, Source},
};

/// The jobs for these operations. `links`: how many reads were linked to programs of other planes so far. Frames wait for the host pages of their batch; `awaited`: a request waits for that operation.
pub fn of(
    geometry: &Geometry,
    ops: &[Op],
    batch: Option<u64>,
    awaited: Option<(usize, u64)>,
    links: &mut u64,
) -> Vec<Job> {
    let plane_of = |ppa: Ppa| geometry.plane_of(geometry.block_of(ppa));
    let owner_of = |at: usize| match awaited {
        Some((which, request)) if which == at => Owner::Request(request),
        _ => Owner::Nobody,
    };
    let mut linked = None;
    let job = |(at, op): (usize, &Op)| match *op {
        Op::Read { .. } if is_copy_back(ops.get(at..at + 2).unwrap_or_default(), plane_of) => None,
        Op::Read { ppa, cause } => {
            let goes_first = awaited.is_some() || cause == Cause::Host;
            let feeds = copied_to(ops.get(at..at + 2).unwrap_or_default()).map(|to| {
                *links += 1;
                Link { number: *links, to: plane_of(to) }
            });
            linked = feeds;
            let (work, owner) = (Work::Read, owner_of(at));
            Some(Job { plane: plane_of(ppa), work, owner, goes_first, feeds, needs: None })
        }
        Op::Program { ppa, source, .. } => {
            let owner = match (source, batch) {
                (Source::Host(lpn, _), Some(batch)) => Owner::Frame { lpn: lpn.0, batch },
                _ => owner_of(at),
            };
            let pair = at.checked_sub(1).and_then(|before| ops.get(before..=at));
            let copies = pair.is_some_and(|pair| is_copy_back(pair, plane_of));
            let work = if copies { Work::CopyBack } else { Work::Program };
            let needs = linked.take();
            Some(Job { plane: plane_of(ppa), work, owner, goes_first: false, feeds: None, needs })
        }
        Op::Erase { block, .. } => {
            let plane = geometry.plane_of(block);
            let (work, owner) = (Work::Erase, owner_of(at));
            Some(Job { plane, work, owner, goes_first: false, feeds: None, needs: None })
        }
        Op::Hash { .. } | Op::Evicted { .. } => None,
    };
    ops.iter().enumerate().filter_map(job).collect()
}

/// Where these two operations, which read a page and program it, put it.
fn copied_to(pair: &[Op]) -> Option<Ppa> {
    match pair {
        [Op::Read { ppa: read, .. }, Op::Program { ppa, source: Source::Copy(from), .. }] if read == from => Some(*ppa),
        _ => None,
    }
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
    match (pair, copied_to(pair)) {
        ([Op::Read { ppa, .. }, _], Some(to)) => plane_of(*ppa) == plane_of(to),
        _ => false,
    }
}
