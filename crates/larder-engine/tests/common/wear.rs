//! The wear budget of a cache that is about to be used up.

use larder_device::BlockDevice;
use larder_engine::{WearStatus, superblock};
use larder_format::WearRecord;

/// The least budget is so many times its reserve.
const RESERVE_SHARE: u64 = 4;

/// Gives the cache on `flash` the least wear budget, with `left` bytes left beside its reserve.
pub async fn use_up_wear(flash: &dyn BlockDevice, left: u64) {
    let (mut superblock, _) = superblock::read(flash).await.unwrap_or_else(|error| panic!("superblock: {error}"));
    superblock.wear = Some(Box::new(WearRecord::new(0, 0, 0, [])));
    let reserve = WearStatus::of(&superblock).reserve_bytes;
    let spent = ((RESERVE_SHARE - 1) * reserve).saturating_sub(left);
    superblock.wear = Some(Box::new(WearRecord::new(RESERVE_SHARE * reserve, 0, 0, [spent])));
    superblock.advance();
    superblock::write(flash, &superblock, None).await.unwrap_or_else(|error| panic!("superblock: {error}"));
}
