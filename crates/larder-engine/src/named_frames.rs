//! The length of the metadata log by evidence outside it: the newest frame named as durable. The
//! superblock, a segment header or a metadata slot names it. A log that ends before that frame has
//! lost it.
//!
//! The name is made after the frame was durable, and frames only count up. So each name on a flash,
//! of any generation, names a frame that once existed.
//!
//! An opening looks at the likely last writes alone ([`Look::Likely`]). It reads to their end the
//! WEUs that were open at the checkpoint or that the end of the log names. It also reads the places
//! where the next WEUs would begin. It reads pieces from all over a metadata region, because hashes
//! choose the buckets. It reads at most [`HEADS_MAX`] pieces of [`PIECE_BYTES`] and `LAST_USED_MAX`
//! (`look.rs`) WEUs. A check reads all.
//!
//! Invariants: it does not write. An unreadable place names no frame.
//!
//! It does not find the length of the log if neither superblock nor slots were written after its
//! last frames.

pub(crate) mod look;

use crate::{
    named_frames::look::{HEADS_MAX, Look, Naming},
    walk::{InOrder, READS_IN_FLIGHT, Reader},
};
use larder_device::IoBuf;
use larder_format::{
    MetadataSlot, SegmentHeader, Superblock,
    layout::{SECTOR_BYTES_MAX, SUPERBLOCK_OFFSETS},
    metadata_slot::METADATA_SLOT_BYTES,
    segment::decode_header,
};

/// Bytes of a piece: the largest sector of a device.
const PIECE_BYTES: usize = SECTOR_BYTES_MAX as usize;

/// Returns the frame that the superblock names.
pub(crate) fn in_superblock(superblock: &Superblock) -> Option<Naming> {
    let (frame_seq, [flash_offset, _]) = (superblock.durable_frame_now(), SUPERBLOCK_OFFSETS);
    (frame_seq > 0).then_some(Naming { frame_seq, flash_offset })
}

/// Returns the newer of two names.
pub(crate) fn newer(a: Option<Naming>, b: Option<Naming>) -> Option<Naming> {
    [a, b].into_iter().flatten().max_by_key(|naming| naming.frame_seq)
}

/// Returns the newest frame that headers of segments name.
pub(crate) async fn in_segments(reader: Reader<'_>, superblock: &Superblock, look: Look) -> Option<Naming> {
    let mut segments = Segments { reader, superblock, piece: None };
    let mut newest = None;
    match look {
        Look::All => {
            for slot in 0..superblock.layout.slot_count {
                newest = newer(newest, segments.of_slot(slot, None).await);
            }
        }
        Look::Likely(likely) => {
            for slot in likely.whole {
                newest = newer(newest, segments.of_slot(slot, None).await);
            }
            let heads: Vec<_> = likely
                .heads
                .into_iter()
                .filter_map(|head| Some((superblock.layout.slot_offset(head.0)?, head)))
                .collect();
            let mut begun = Vec::new();
            each_piece(reader, heads.into_iter(), &mut |at, (slot, generation), piece| {
                if let Some(header) = header_in(piece, superblock, slot, 0) {
                    newest = newer(newest, naming(&header, at));
                    begun.extend((header.generation == generation).then_some((slot, generation)));
                }
            })
            .await;
            for (slot, generation) in begun {
                newest = newer(newest, segments.of_slot(slot, Some(generation)).await);
            }
        }
    }
    newest
}

/// Reads pieces, several at once, and hands on the readable ones, in order.
async fn each_piece<T: Copy>(
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

/// Returns the frame that a header at this place names.
fn naming(header: &SegmentHeader, flash_offset: u64) -> Option<Naming> {
    header.durable_frame_seq.map(|frame_seq| Naming { frame_seq, flash_offset })
}

/// Returns the header of a segment of this flash and slot, at `offset` in the slot.
fn header_in(bytes: &[u8], superblock: &Superblock, slot: u32, offset: u32) -> Option<SegmentHeader> {
    let header = decode_header(bytes).ok()?;
    header.check_home(superblock.flash_tag(), slot, header.generation, offset).ok()?;
    Some(header)
}

/// Headers of segments, read one after the other.
struct Segments<'a> {
    reader: Reader<'a>,
    superblock: &'a Superblock,
    /// The last piece read, and its offset.
    piece: Option<(u64, IoBuf)>,
}

impl Segments<'_> {
    /// Returns the newest frame that the segments of a slot name.
    ///
    /// It reads the segments of `generation`, or of the generation at the slot's start.
    async fn of_slot(&mut self, slot: u32, mut generation: Option<u32>) -> Option<Naming> {
        let start = self.superblock.layout.slot_offset(slot)?;
        let (mut offset, mut newest) = (0, None);
        while offset < self.superblock.layout.slot_bytes {
            let at = start + u64::from(offset);
            let superblock = self.superblock;
            let Some(header) = self.bytes(at).await.and_then(|bytes| header_in(bytes, superblock, slot, offset)) else {
                break;
            };
            if *generation.get_or_insert(header.generation) != header.generation || header.segment_bytes == 0 {
                break;
            }
            newest = newer(newest, naming(&header, at));
            offset += header.segment_bytes;
        }
        newest
    }

    /// Returns the bytes from `at` to the end of their piece.
    async fn bytes(&mut self, at: u64) -> Option<&[u8]> {
        let from = at - at % PIECE_BYTES as u64;
        if self.piece.as_ref().is_none_or(|(start, _)| *start != from) {
            self.piece = Some((from, self.reader.read(from, PIECE_BYTES as u64).await.ok()?));
        }
        self.piece.as_ref().and_then(|(_, piece)| piece.get((at - from) as usize..))
    }
}

/// Returns the newest frame that metadata slots name.
///
/// A hash chooses the place of a chunk, so the last writes lie anywhere; many writes reach each
/// part.
pub(crate) async fn in_region(reader: Reader<'_>, superblock: &Superblock, look: Look) -> Option<Naming> {
    let layout = &superblock.layout;
    let pieces = layout.region_bytes() / PIECE_BYTES as u64;
    let step = match look {
        Look::All => 1,
        Look::Likely(_) => pieces.div_ceil(HEADS_MAX as u64).max(1),
    };
    let offset = |piece: u64| layout.region_offset + piece * PIECE_BYTES as u64;
    let offsets = (0..pieces).step_by(step as usize).map(|piece| (offset(piece), ()));
    let mut newest = None;
    each_piece(reader, offsets, &mut |at, (), piece| {
        for (at, bytes) in (at..).step_by(METADATA_SLOT_BYTES).zip(piece.chunks(METADATA_SLOT_BYTES)) {
            let number = (at - layout.region_offset) / METADATA_SLOT_BYTES as u64;
            let found = MetadataSlot::decode(bytes, superblock.flash_tag(), number as u32);
            let frame_seq = found.map_or(0, |slot| slot.durable_frame_seq);
            newest = newer(newest, (frame_seq > 0).then_some(Naming { frame_seq, flash_offset: at }));
        }
    })
    .await;
    newest
}
