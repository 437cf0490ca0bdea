//! The length of the metadata log by evidence outside it: the newest frame named as durable. The
//! superblock, a segment header or a metadata slot names it. A log that ends before that frame has
//! lost it.
//!
//! The name is made after the frame was durable, and frames only count up. So each name on a flash,
//! of any generation, names a frame that once existed.
//!
//! An opening looks at the likely last writes alone ([`Look::Likely`](look::Look::Likely)). It
//! reads to their end the WEUs that were open at the checkpoint or that the end of the log names.
//! It also reads the places where the next WEUs would begin. It reads pieces from all over a
//! metadata region, because hashes choose the buckets. It reads at most
//! [`HEADS_MAX`](look::HEADS_MAX) pieces of [`PIECE_BYTES`] and `LAST_USED_MAX` (`look.rs`) WEUs. A
//! check reads all.
//!
//! Invariants: it does not write. An unreadable place names no frame.
//!
//! It does not find the length of the log if neither superblock nor slots were written after its
//! last frames. It leaves the names in slots to the stores.

pub(crate) mod look;

use crate::{
    named_frames::look::Naming,
    walk::{InOrder, READS_IN_FLIGHT, Reader},
};
use larder_format::{
    Superblock,
    layout::{SECTOR_BYTES_MAX, SUPERBLOCK_OFFSETS},
};

/// Bytes of a piece: the largest sector of a device.
pub(crate) const PIECE_BYTES: usize = SECTOR_BYTES_MAX as usize;

/// Returns the frame that the superblock names.
pub(crate) fn in_superblock(superblock: &Superblock) -> Option<Naming> {
    let (frame_seq, [flash_offset, _]) = (superblock.durable_frame_now(), SUPERBLOCK_OFFSETS);
    (frame_seq > 0).then_some(Naming { frame_seq, flash_offset })
}

/// Returns the newer of two names.
pub(crate) fn newer(a: Option<Naming>, b: Option<Naming>) -> Option<Naming> {
    [a, b].into_iter().flatten().max_by_key(|naming| naming.frame_seq)
}

/// Reads pieces, several at once, and hands on the readable ones, in order.
pub(crate) async fn each_piece<T: Copy>(
    reader: Reader<'_>,
    mut pieces: impl Iterator<Item = (u64, T)>,
    see: &mut dyn FnMut(u64, T, &[u8]),
) {
    let mut reads = InOrder::new();
    loop {
        while reads.len() < READS_IN_FLIGHT
            && let Some((at, what)) = pieces.next()
        {
            reads.push(async move { (at, what, reader.read(at, PIECE_BYTES as u64).await) });
        }
        let Some((at, what, read)) = reads.next().await else { return };
        if let Ok(piece) = read {
            see(at, what, &piece);
        }
    }
}
