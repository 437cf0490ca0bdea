//! The jobs of planes for the operations of a translation layer.
//!
//! Invariants: jobs come in the order of the operations. A read that only a copy inside its plane
//! needs is one job with it. A read for a copy to another plane is linked to the program.
//!
//! It leaves hashing to the controller.

use super::{
    lanes::{FlashJob, JobOwner, LaneWork, Link},
    stripes::BusyStripes,
};
use crate::{
    geometry::{BlockId, Lpn, Ppa},
    op::{Cause, FlashOp, PageSource},
};

/// Calls `each` with the jobs for these operations.
///
/// `links` counts the reads that were linked to programs of other planes so far. Frames wait for
/// the host pages of their batch; a request waits for the operation `awaited`.
pub fn of(
    stripes: &mut BusyStripes,
    ops: &[FlashOp],
    batch: Option<u64>,
    awaited: Option<(usize, u64)>,
    links: &mut u64,
    each: &mut impl FnMut(FlashJob),
) {
    let owner_of = |at: usize| match awaited {
        Some((which, request)) if which == at => JobOwner::Request(request),
        _ => JobOwner::Nobody,
    };
    let mut linked = None;
    for (at, op) in ops.iter().enumerate() {
        let (with_next, with_last) = (ops.get(at..at + 2), at.checked_sub(1).and_then(|last| ops.get(last..=at)));
        if let Some(ppa) = programmed(op).or_else(|| with_next.and_then(copied_to)) {
            stripes.writes(ppa);
        }
        let is_copied_back = |pair: Option<&[FlashOp]>| pair.is_some_and(|pair| is_copy_back(pair, stripes));
        match *op {
            FlashOp::Read { .. } if is_copied_back(with_next) => {}
            FlashOp::Read { ppa, cause } => {
                let goes_first = awaited.is_some() || cause == Cause::Host;
                linked = with_next.and_then(copied_to).map(|to| {
                    *links += 1;
                    Link { number: *links, to: stripes.plane_of(to) }
                });
                let (plane, owner) = (stripes.plane_of(ppa), owner_of(at));
                each(FlashJob {
                    plane,
                    work: LaneWork::Read,
                    owner,
                    goes_first,
                    feeds: linked,
                    needs: None,
                    fills: None,
                });
            }
            FlashOp::Program { ppa, source, .. } => {
                let owner = match (source, batch) {
                    (PageSource::Host(lpn, _), Some(batch)) => JobOwner::Frame { lpn: lpn.0, batch },
                    _ => owner_of(at),
                };
                let work = if is_copied_back(with_last) { LaneWork::CopyBack } else { LaneWork::Program };
                let (plane, needs) = (stripes.plane_of(ppa), linked.take());
                each(FlashJob { plane, work, owner, goes_first: false, feeds: None, needs, fills: Some(ppa) });
            }
            FlashOp::Erase { block, .. } => erasure(stripes, block).for_each(&mut *each),
            FlashOp::Hash { .. } | FlashOp::Evicted { .. } => {}
        }
    }
}

/// Returns the page that this operation programs.
fn programmed(op: &FlashOp) -> Option<Ppa> {
    if let FlashOp::Program { ppa, .. } = op { Some(*ppa) } else { None }
}

/// Lists the erasures of a block in each plane that it lies on; no request waits for them.
fn erasure(stripes: &BusyStripes, block: BlockId) -> impl Iterator<Item = FlashJob> + use<> {
    let planes = stripes.planes_of(block);
    let work = LaneWork::Erase { planes: planes.len() as u32 };
    let job = move |plane| FlashJob {
        plane,
        work,
        owner: JobOwner::Nobody,
        goes_first: false,
        feeds: None,
        needs: None,
        fills: None,
    };
    planes.into_iter().map(job)
}

/// Returns the destination of a copy, if these two operations are one.
fn copied_to(pair: &[FlashOp]) -> Option<Ppa> {
    match pair {
        [FlashOp::Read { ppa: read, .. }, FlashOp::Program { ppa, source: PageSource::Copy(from), .. }]
            if read == from =>
        {
            Some(*ppa)
        }
        _ => None,
    }
}

/// Lists the pages that these operations dropped.
pub fn evicted(ops: &[FlashOp]) -> impl Iterator<Item = Lpn> {
    ops.iter().filter_map(|op| match op {
        FlashOp::Evicted { lpn } => Some(*lpn),
        _ => None,
    })
}

/// Returns true if these two operations read a page and program it in the same plane.
fn is_copy_back(pair: &[FlashOp], stripes: &BusyStripes) -> bool {
    match (pair, copied_to(pair)) {
        ([FlashOp::Read { ppa, .. }, _], Some(to)) => stripes.plane_of(*ppa) == stripes.plane_of(to),
        _ => false,
    }
}
