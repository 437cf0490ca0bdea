//! One shape for the drives of several caches.
//!
//! It does not cut a drive.

use super::{drive::DriveShape, words::Setup};
use larder_ssd::geometry::DriveGeometry;

/// Gives the drives of these caches blocks of one size, and as many planes.
///
/// Each number is the least that one of the drives needs by itself. The function passes over caches
/// that cannot be built. It returns the bytes of a block if some drive had larger ones by itself.
pub fn with_equal_blocks(setups: &mut [Setup], working_set_chunks: u64) -> Option<u64> {
    let geometry = |setup: &Setup| {
        setup.options.drive?;
        Some(setup.build(working_set_chunks).ok()?.drive?.profile().geometry)
    };
    let found: Vec<DriveGeometry> = setups.iter().filter_map(geometry).collect();
    let shape = found.iter().map(DriveShape::of).reduce(DriveShape::least)?;
    if found.iter().all(|geometry| DriveShape::of(geometry) == shape) {
        return None;
    }
    for drive in setups.iter_mut().filter_map(|setup| setup.options.drive.as_mut()) {
        drive.shape = Some(shape);
    }
    let page_bytes = found.first().map_or(0, |geometry| geometry.page_bytes);
    let is_smaller = found.iter().any(|geometry| geometry.pages_per_block > shape.pages_per_block);
    is_smaller.then(|| u64::from(shape.pages_per_block) * u64::from(page_bytes))
}
