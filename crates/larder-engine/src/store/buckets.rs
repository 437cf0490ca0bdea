//! AustereCache's store (USENIX ATC 2020, §3.1 to §3.3): subchunks in buckets, with metadata
//! slots. Each subchunk has one. A chunk takes some adjacent subchunks.
//!
//! Invariants: a record begins with its first slot and has all of its slots. Its metadata slot
//! identifies it, and dirty data does not need that.
//!
//! It does not read or write metadata slots for chunks; [`region`](crate::region) does. It reads
//! them for the frames that they name.

use super::{Store, slots::shares_all};
use crate::{
    config::CreateOptions,
    designs::{self, DesignLayout},
    named_frames::{
        PIECE_BYTES, each_piece,
        look::{HEADS_MAX, Look, Named, Naming},
        newer,
    },
    recover::ENGINE_SLOT_BYTES,
    requested::refusal::Refusal,
    room::ServedRecords,
    walk::Reader,
};
use larder_core::{
    austere::{
        AustereConfig,
        bucketed::{self, exact},
        config::{SUBCHUNK_BYTES_LEAST, SUBCHUNKS_PER_CHUNK, bucket_slots_for, subchunk_bytes},
    },
    ledger::DIRTY_SHARE_BYTES_MAX,
    limits::INDEX_SHARE,
    named::OverBuckets,
    packing::PackingRules,
};
use larder_format::{
    BucketRequest, Compression, Layout, MetadataSlot, StoreKind, Superblock,
    layout::{SECTOR_BYTES_MAX, SLOT_COUNT_MIN},
    metadata_slot::METADATA_SLOT_BYTES,
};

/// Returns whether compression saves space: a chunk of one subchunk takes all of it at any
/// compression.
fn compression_saves(options: &CreateOptions) -> bool {
    subchunk_bytes(options.chunk_bytes, true) < options.chunk_bytes
}

/// Returns the division of a flash of `slots` slots.
fn layout_of(options: &CreateOptions, slots: u64) -> DesignLayout {
    DesignLayout {
        chunk_bytes: options.chunk_bytes,
        slot_bytes: options.slot_bytes,
        bucket_slots: bucket_slots_for(slots),
        chunk_count: u64::MAX,
    }
}

impl Store for OverBuckets {
    fn kind(&self) -> StoreKind {
        StoreKind::Buckets
    }

    /// Returns the share of the budget that the indices take, however many chunks are mapped.
    fn index_bytes_max(&self, _chunk_bytes: u32) -> u64 {
        INDEX_SHARE * (exact::CHUNK_BYTES_MAX as u64 + DIRTY_SHARE_BYTES_MAX)
    }

    fn slot_tables_bytes(&self, layout: &Layout) -> u64 {
        let config = AustereConfig::of_layout(&designs::layout_of(layout, u64::MAX), layout.slot_count.into());
        // The making of an impossible design refuses it.
        bucketed::ram::ram_bytes_max(&config).unwrap_or(0)
    }

    fn slots_max(&self, options: &CreateOptions) -> u32 {
        let budget = options.ram_budget_bytes / INDEX_SHARE;
        let affords = |slots: u32| {
            let config = AustereConfig::of_layout(&layout_of(options, slots.into()), slots.into());
            let indices = bucketed::ram::ram_bytes_max(&config);
            indices.is_ok_and(|bytes| bytes + u64::from(slots) * ENGINE_SLOT_BYTES <= budget)
        };
        // A number that it affords, and one that it does not.
        let (mut least, mut most) = (SLOT_COUNT_MIN * SUBCHUNKS_PER_CHUNK, u32::MAX);
        while most - least > 1 {
            let slots = least + (most - least) / 2;
            match affords(slots) {
                true => least = slots,
                false => most = slots,
            }
        }
        least
    }

    fn buckets(&self, options: &CreateOptions, flash_bytes: u64) -> Option<BucketRequest> {
        let slots = flash_bytes / u64::from(options.slot_bytes.max(1));
        let layout = layout_of(options, slots);
        let design_pages_max = bucketed::pages_for(&AustereConfig::of_layout(&layout, slots));
        Some(BucketRequest { bucket_slots: layout.bucket_slots, design_pages_max })
    }

    fn fit(&self, options: &mut CreateOptions) {
        if !compression_saves(options) {
            options.compression = Compression::Off;
        }
        options.slot_bytes = subchunk_bytes(options.chunk_bytes, options.compression != Compression::Off);
        options.dedup = true;
        options.fp_index_percent = 100;
    }

    fn check(&self, options: &CreateOptions) -> Result<(), Refusal> {
        let is_compressed = options.compression != Compression::Off;
        if is_compressed && !compression_saves(options) {
            let why = format!(
                "keeps a chunk in whole subchunks of {SUBCHUNK_BYTES_LEAST} bytes at least, so that chunks of {} bytes would be \
                 compressed for nothing",
                options.chunk_bytes
            );
            let larger = 2 * SUBCHUNK_BYTES_LEAST;
            return Err(Refusal::new(why, format!("switch compression off, take chunks of {larger} bytes or more")));
        }
        let subchunk = subchunk_bytes(options.chunk_bytes, is_compressed);
        if options.slot_bytes != subchunk {
            let why = format!("has slots for parts of a chunk, of {subchunk} bytes here, and no WEUs");
            return Err(Refusal::new(why, "leave their size out"));
        }
        shares_all(options)
    }

    fn has_made(&self, superblock: &Superblock) -> bool {
        superblock.layout.store() == StoreKind::Buckets && superblock.dedup
    }

    fn served_by_slot(&self, layout: &Layout) -> ServedRecords {
        ServedRecords::OfBucket { slots: layout.bucket_slots }
    }

    fn reads_to_decide(&self) -> bool {
        true
    }

    fn names_frames(&self) -> bool {
        true
    }

    fn newest_in_slots<'a>(&'a self, reader: Reader<'a>, superblock: &'a Superblock, look: Look) -> Named<'a> {
        Box::pin(named_in_region(reader, superblock, look))
    }

    /// Returns a subchunk at most, because each is written by itself.
    fn sector_bytes_max(&self, layout: &Layout) -> u32 {
        layout.slot_bytes.min(SECTOR_BYTES_MAX)
    }

    /// Returns the rules by which a record has whole subchunks (section 3.2).
    fn packing(&self, layout: &Layout) -> PackingRules {
        PackingRules { slot_bytes: layout.slot_bytes, sector_bytes: layout.slot_bytes, header_bytes: 0, entry_bytes: 0 }
    }
}

/// Returns the newest frame that metadata slots name.
///
/// A hash chooses the place of a chunk, so the last writes lie anywhere; many writes reach each
/// part.
async fn named_in_region(reader: Reader<'_>, superblock: &Superblock, look: Look) -> Option<Naming> {
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
