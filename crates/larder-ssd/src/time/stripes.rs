//! The planes of the flash beneath the planes of a drive's geometry.
//!
//! A drive that is cut to a small cache has fewer planes than its profile, so that each has blocks
//! enough to collect in ([`DriveProfile::cut_from`]). If only those were at work, a small drive
//! would be slow for its size alone. So each stands for as many planes of the flash as it was cut
//! from. The pages of its blocks go to those in turn, as drives stripe a superblock over planes.
//! Reads and writes are then as parallel as on the whole drive. A block begins behind the end of
//! the one that was begun before it, so that sequential writes meet each plane as often.
//!
//! An erasure goes on in all planes of the flash that its block lies on. It takes an equal part of
//! a block's time in each: together as long as on a drive that is not cut. So a read that meets an
//! erasure waits for a part of it, and the tail of reads is too short by as much. A whole erasure
//! in one plane would meet reads too often: the blocks of a cut drive have fewer pages and are
//! erased as slowly.
//!
//! Invariants: on a drive that was not cut to fewer planes, each plane is itself. From its first
//! page on until it is begun again, a block's pages are each in one plane of the flash. No more of
//! those are at work than the profile has.
//!
//! It does not place pages; the translation layer has the planes of the geometry. A block does not
//! wait for its erasure before it is begun, although that may be in other planes: other blocks are
//! free.

use crate::{
    geometry::{BlockId, DriveGeometry, PlaneId, Ppa},
    profile::DriveProfile,
};

/// The stripes of a drive; see the module.
#[derive(Clone, Debug)]
pub struct BusyStripes {
    geometry: DriveGeometry,
    /// Packages of the flash, each with a bus.
    packages: u32,
    /// Planes of the flash for each of the geometry.
    per_plane: u32,
    /// The first of them for each block; empty if there is one.
    begins: Vec<u32>,
    /// The first of them for the next block of each plane of the geometry.
    next: Vec<u32>,
    /// The block that was begun last.
    last: Option<BlockId>,
}

impl BusyStripes {
    /// Makes the stripes of a drive with this geometry, and the planes that its profile was cut
    /// from.
    pub fn new(profile: &DriveProfile, geometry: DriveGeometry) -> BusyStripes {
        let per_plane = profile.cut_from.map_or(1, |whole| whole.planes() / geometry.planes()).max(1);
        let packages = profile.cut_from.filter(|_| per_plane > 1).map_or(geometry.packages, |whole| whole.packages);
        let (blocks, planes) = if per_plane > 1 { (geometry.blocks(), geometry.planes()) } else { (0, 0) };
        let (begins, next) = (vec![0; blocks as usize], vec![0; planes as usize]);
        BusyStripes { geometry, packages, per_plane, begins, next, last: None }
    }

    /// Counts the planes at work.
    pub fn planes(&self) -> u32 {
        self.geometry.planes() * self.per_plane
    }

    /// Counts the buses.
    pub fn packages(&self) -> u32 {
        self.packages
    }

    /// Notes that a page is about to be programmed; a block's first page begins the block.
    ///
    /// The call comes before the page's plane is asked for.
    pub fn writes(&mut self, ppa: Ppa) {
        let BusyStripes { geometry, per_plane, .. } = *self;
        let block = geometry.block_of(ppa);
        if per_plane == 1 || geometry.page_in_block(ppa) > 0 || self.last == Some(block) {
            return;
        }
        let next = &mut self.next[geometry.plane_of(block).0 as usize];
        self.begins[block.0 as usize] = *next;
        *next = (*next + geometry.pages_per_block) % per_plane;
        self.last = Some(block);
    }

    /// Returns the plane of a page.
    pub fn plane_of(&self, ppa: Ppa) -> PlaneId {
        let block = self.geometry.block_of(ppa);
        self.plane(block, self.begin(block), self.geometry.page_in_block(ppa))
    }

    /// Returns the planes of a block's pages, each once.
    pub fn planes_of(&self, block: BlockId) -> Vec<PlaneId> {
        let begin = self.begin(block);
        (0..self.per_plane.min(self.geometry.pages_per_block)).map(|page| self.plane(block, begin, page)).collect()
    }

    fn begin(&self, block: BlockId) -> u32 {
        self.begins.get(block.0 as usize).copied().unwrap_or(0)
    }

    fn plane(&self, block: BlockId, begin: u32, page: u32) -> PlaneId {
        let part = (begin + page) % self.per_plane;
        PlaneId(self.geometry.plane_of(block).0 + self.geometry.planes() * part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::PROFILES;

    #[test]
    fn a_drive_that_is_not_cut_has_its_own_planes() {
        for profile in PROFILES {
            let geometry = DriveGeometry { blocks_per_plane: 4, ..profile.geometry };
            let mut stripes = BusyStripes::new(profile, geometry);
            assert_eq!((stripes.planes(), stripes.packages()), (geometry.planes(), geometry.packages));
            for block in (0..geometry.blocks()).map(BlockId) {
                stripes.writes(geometry.ppa(block, 0));
                assert_eq!(stripes.plane_of(geometry.ppa(block, 3)), geometry.plane_of(block));
                assert_eq!(stripes.planes_of(block), [geometry.plane_of(block)]);
            }
        }
    }

    #[test]
    fn planes_that_are_left_stand_for_all_alike() {
        for profile in PROFILES {
            let half = profile.geometry.packages.div_ceil(2);
            for (packages, pages_per_block) in [(1, 64), (1, 256), (1, 24), (half, 16)] {
                let cut = DriveGeometry { packages, dies_per_package: 1, planes_per_die: 1, ..profile.geometry };
                let cut = DriveGeometry { pages_per_block, blocks_per_plane: 30, ..cut };
                let mut stripes = BusyStripes::new(&DriveProfile { cut_from: Some(profile.geometry), ..*profile }, cut);
                let name = format!("{} with {packages} planes, blocks of {pages_per_block}", profile.name);
                assert!(stripes.planes() <= profile.geometry.planes(), "{name}");
                assert!(stripes.planes() > profile.geometry.planes() - cut.planes(), "{name}");
                let mut pages = vec![0; stripes.planes() as usize];
                // Blocks are taken in any order: all planes of the geometry in turn, as a layer
                // does.
                for at in 0..20_000 {
                    let block = BlockId(at * 7 % cut.blocks_per_plane * cut.planes() + at % cut.planes());
                    stripes.writes(cut.ppa(block, 0));
                    let planes = stripes.planes_of(block);
                    for page in 0..pages_per_block {
                        stripes.writes(cut.ppa(block, page));
                        let plane = stripes.plane_of(cut.ppa(block, page));
                        assert_eq!(plane, planes[page as usize % planes.len()], "{name}: in turn, and where it began");
                        pages[plane.0 as usize] += 1;
                    }
                    let (least, most) = (pages.iter().min().expect("some"), pages.iter().max().expect("some"));
                    let in_a_plane = pages_per_block.div_ceil(stripes.planes() / cut.planes());
                    assert!(most - least <= 2 * in_a_plane, "{name}: from {least} to {most}");
                }
            }
        }
    }
}
