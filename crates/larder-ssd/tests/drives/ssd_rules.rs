//! The rules of flash, and the space under the translation layers.
//!
//! No layer gets around the rules. The space has a layer's own pages beside the host's, and invalid
//! pages that become valid again.

use std::collections::HashMap;

use crate::common::{
    Rng, for_seeds,
    ssd::{Held, Shadow, content},
};
use larder_ssd::{
    array::{FlashArray, PageState, PageTotals},
    flash::CountedFlash,
    geometry::{BlockId, DriveGeometry, Lpn, Ppa},
    op::{Cause, FlashOp, Nobody, PageSource},
    space::{Relocate, Space, SpaceOptions, WriteStream},
};

const GEOMETRY: DriveGeometry = DriveGeometry {
    packages: 2,
    dies_per_package: 1,
    planes_per_die: 1,
    blocks_per_plane: 32,
    pages_per_block: 8,
    page_bytes: 4096,
    over_provisioning_percent: 50.0,
};

#[test]
#[should_panic(expected = "block 3 is fully programmed")]
fn a_page_is_programmed_once() {
    let mut array = FlashArray::new(GEOMETRY);
    for _ in 0..9 {
        array.program(BlockId(3), 0);
    }
}

#[test]
#[should_panic(expected = "block 3 has 1 valid pages")]
fn valid_pages_are_not_erased() {
    let mut array = FlashArray::new(GEOMETRY);
    let first = array.program(BlockId(3), 0);
    array.program(BlockId(3), 1);
    array.invalidate(first);
    array.erase(BlockId(3));
}

#[test]
#[should_panic(expected = "page 24 is not valid")]
fn a_page_is_invalidated_once() {
    let mut array = FlashArray::new(GEOMETRY);
    let page = array.program(BlockId(3), 0);
    array.invalidate(page);
    array.invalidate(page);
}

#[test]
#[should_panic(expected = "page 25 is not invalid")]
fn a_free_page_does_not_become_valid() {
    let mut array = FlashArray::new(GEOMETRY);
    array.program(BlockId(3), 0);
    array.revalidate(Ppa(25));
}

#[test]
fn a_block_goes_through_its_states() {
    let mut flash = CountedFlash::new(GEOMETRY);
    let mut shadow = Shadow::new(GEOMETRY);
    let block = BlockId(5);
    let host = flash.program(block, 7, PageSource::Host(Lpn(7), content(1)), Cause::Host, &mut shadow);
    flash.pad(block, Cause::MergePadding, &mut shadow);
    assert_eq!((host, flash.array().written(block), flash.array().free(block)), (Ppa(40), 2, 6));
    assert_eq!(
        (shadow.held(Ppa(40)), shadow.held(Ppa(41))),
        (Held::Host { lpn: Lpn(7), content: content(1), request: 0 }, Held::Padding)
    );
    let states = |flash: &CountedFlash| [40, 41, 42].map(|page| flash.array().state(Ppa(page)));
    assert_eq!(states(&flash), [PageState::Valid, PageState::Invalid, PageState::Free]);
    assert_eq!(flash.array().next_valid(block, 0), Some(Ppa(40)));
    assert_eq!(flash.array().next_valid(block, 1), None);

    let copy = flash.copy(host, BlockId(8), Cause::Merge, &mut shadow);
    assert_eq!((copy, flash.array().owner(copy), shadow.held(copy)), (Ppa(64), 7, shadow.held(host)));
    assert_eq!(flash.revalidate(host), (block, 1));
    assert_eq!(flash.invalidate(host), (block, 0));
    flash.erase(block, Cause::Merge, &mut shadow);
    assert_eq!(states(&flash), [PageState::Free; 3]);
    assert_eq!((flash.array().erases(block), flash.array().erases(BlockId(8))), (1, 0));
    assert_eq!(flash.array().totals(), PageTotals { valid: 1, invalid: 0, free: 511 });
    assert_eq!(flash.counts(), &shadow.counts);
    assert_eq!(
        (flash.counts().pages_programmed(), flash.counts().pages_copied(), flash.counts().blocks_erased()),
        (3, 1, 1)
    );
}

/// Pages by their owner, and the other way round.
#[derive(Default)]
struct Owned(HashMap<u32, Ppa>);

impl Relocate for Owned {
    fn moved(&mut self, owner: u32, from: Ppa, to: Ppa) {
        assert_eq!(self.0.insert(owner, to), Some(from), "owner {owner} was there");
    }
}

/// The first owner number that is the layer's own.
const OWN: u32 = 1 << 31;

#[test]
fn a_space_holds_pages_of_the_host_and_of_the_layer() {
    for_seeds(1..6, |seed| {
        let options = SpaceOptions { internal_pages_max: 20, wear_spread_max: Some(5), ..SpaceOptions::default() };
        let mut space = Space::new(GEOMETRY, options).expect("room");
        let (mut owned, mut shadow, mut rng) = (Owned::default(), Shadow::new(GEOMETRY), Rng::new(seed));
        let mut contents = HashMap::new();
        for step in 0..30_000u64 {
            let is_own = rng.chance(10);
            let lpn = rng.below(u64::from(GEOMETRY.logical_pages())) as u32;
            let owner = if is_own { OWN + rng.below(20) as u32 } else { lpn };
            let old = owned.0.get(&owner).copied();
            if rng.chance(20)
                && let Some(old) = old
            {
                // The page is invalid and valid again, with nothing written.
                space.invalidate(old);
                space.revalidate(old);
                continue;
            }
            let (stream, source, cause) = match is_own {
                true => (WriteStream::Internal, PageSource::Internal, Cause::Journal),
                false => (WriteStream::Host, PageSource::Host(Lpn(lpn), content(step)), Cause::Host),
            };
            let new = space.append(stream, owner, source, cause, &mut owned, &mut shadow);
            if let Some(old) = owned.0.insert(owner, new) {
                space.invalidate(old);
            }
            contents.insert(owner, content(step));
            if step % 1000 == 0 {
                space.check();
            }
        }
        space.check();
        assert_eq!(space.array().totals().valid, owned.0.len() as u64);
        for (owner, ppa) in &owned.0 {
            assert_eq!(space.array().owner(*ppa), *owner);
            match shadow.held(*ppa) {
                Held::Host { lpn, content, .. } => assert_eq!((lpn.0, content), (*owner, contents[owner])),
                held => assert!(matches!(held, Held::Internal(_)) && *owner >= OWN, "{owner}: {held:?}"),
            }
        }
        let counts = space.flash().counts();
        assert_eq!(counts.programs, shadow.counts.programs);
        assert!(counts.programs[Cause::Collection as usize] > 0 && counts.programs[Cause::WearLevelling as usize] > 0);
    });
}

/// Pages that are not separate share a block.
#[test]
fn collected_pages_lie_apart_or_not() {
    for separate_collected in [true, false] {
        let options = SpaceOptions { separate_collected, wear_spread_max: None, ..SpaceOptions::default() };
        let mut space = Space::new(GEOMETRY, options).expect("room");
        let (mut owned, mut rng) = (Owned::default(), Rng::new(9));
        let logical = u64::from(GEOMETRY.logical_pages());
        // The stream of each block's pages: 1 host, 2 collection.
        let mut streams = vec![0u8; GEOMETRY.blocks() as usize];
        let mut is_mixed = false;
        for _ in 0..5_000 {
            let lpn = rng.below(logical) as u32;
            let mut hear = |op: &FlashOp| match *op {
                FlashOp::Program { ppa, cause, .. } => {
                    let block = GEOMETRY.block_of(ppa).0 as usize;
                    streams[block] |= if cause == Cause::Host { 1 } else { 2 };
                    is_mixed |= streams[block] == 3;
                }
                FlashOp::Erase { block, .. } => streams[block.0 as usize] = 0,
                _ => {}
            };
            let new = space.append(
                WriteStream::Host,
                lpn,
                PageSource::Host(Lpn(lpn), None),
                Cause::Host,
                &mut owned,
                &mut hear,
            );
            if let Some(old) = owned.0.insert(lpn, new) {
                space.invalidate(old);
            }
        }
        assert_eq!(is_mixed, !separate_collected);
        assert!(space.flash().counts().programs[Cause::Collection as usize] > 1000);
        space.flash_mut().read(owned.0[&0], Cause::Host, &mut Nobody);
        assert_eq!(space.flash().counts().pages_read(), space.flash().counts().pages_copied() + 1);
    }
}
