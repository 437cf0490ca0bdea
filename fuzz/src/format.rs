//! Targets: the structures on flash, each alone.
//!
//! They are superblock, segment header and record table, log frame, checkpoint header and blocks,
//! metadata slot, and the division of a flash.
//!
//! Properties: any bytes give a value or an error. A value encodes to the bytes that it came from.
//! Decoding takes memory in proportion to the bytes that are there, for any lengths in them.
//!
//! An input is raw bytes, or a list of changes to a sound structure, with or without a right
//! checksum.
//!
//! It does not read devices. It leaves them to `image`.

use super::{
    input::{Input, patch},
    memory,
};
use larder_format::{
    BlockIdentity, BucketRequest, COUNTER_MAX, CheckpointBlock, CheckpointHeader, FormatError, FrameHeader,
    HistoryRequest, Layout, LayoutRequest, MetadataSlot, SegmentHeader, StoreKind, Superblock, choose, crc32c,
    decode_frame, encode_frame,
    layout::CHUNKS_MAX,
    metadata_slot, peek_frame,
    segment::{self, decode_header, decode_table, encode_header, encode_table},
};

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("../../crates/larder-format/tests/fixtures/v1/", $name, ".bin")).as_slice()
    };
}

/// The tag, checkpoint and place of the fixtures.
const TAG: u64 = 0xa7a6_a5a4_a3a2_a1a0;
const CHECKPOINT_ID: u64 = 3;
/// Bytes that decoding may allocate per byte of a structure. `ALLOCATED_BYTES` is for every input.
const ALLOCATED_PER_BYTE: usize = 8;
const ALLOCATED_BYTES: usize = 64 << 10;

const BLOCKS: [&[u8]; 6] = [
    fixture!("block-slots-good"),
    fixture!("block-mappings-good"),
    fixture!("block-fragments-good"),
    fixture!("block-zero-ranges-good"),
    fixture!("block-fingerprints-good"),
    fixture!("block-design-pages-good"),
];

const METADATA_SLOTS: [&[u8]; 2] = [fixture!("metadata-slot-good"), fixture!("metadata-slot-full")];
/// The data slot of the first of them; the next data slot has the second.
const METADATA_SLOT: u32 = 640;

/// Returns bytes for a decoder: raw ones, or a changed fixture. The first byte chooses.
fn bytes(fixtures: &[&[u8]], crc_at: usize, crc_covers: Option<usize>, data: &[u8]) -> Vec<u8> {
    let mut input = Input(data);
    let choice = input.byte();
    if choice & 3 == 0 {
        return input.0.to_vec();
    }
    let mut bytes = fixtures[usize::from(choice >> 3) % fixtures.len()].to_vec();
    while !input.is_empty() {
        patch(&mut bytes, 256, &mut input);
    }
    if choice & 4 != 0 {
        seal(&mut bytes, crc_at, crc_covers);
    }
    bytes
}

fn seal(bytes: &mut [u8], crc_at: usize, crc_covers: Option<usize>) {
    let end = crc_covers.unwrap_or(bytes.len()).min(bytes.len());
    bytes[crc_at..crc_at + 4].fill(0);
    let crc = crc32c(&bytes[..end]);
    bytes[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
}

fn frugally<T>(bytes: usize, decode: impl FnOnce() -> T) -> T {
    let (value, peak) = memory::peak_of(decode);
    assert!(peak <= ALLOCATED_BYTES + ALLOCATED_PER_BYTE * bytes, "{peak} bytes were allocated for {bytes}");
    value
}

/// Checks a superblock, alone and as one of two twins.
pub fn superblock(data: &[u8]) {
    let bytes = bytes(&[fixture!("superblock-good"), fixture!("superblock-buckets")], 16, None, data);
    let decoded = frugally(bytes.len(), || Superblock::decode(&bytes));
    if let Ok(superblock) = &decoded {
        assert_eq!(superblock.encode().as_slice(), &bytes[..superblock.encode().len()], "it encodes to other bytes");
        check_layout(&superblock.layout);
        assert!(superblock.log_start.offset_in_log <= superblock.layout.log_bytes);
        assert!(superblock.sequence < COUNTER_MAX && superblock.entry_seq_next < COUNTER_MAX);
    }
    let good = fixture!("superblock-good");
    for (a, b, this) in [(bytes.as_slice(), good, 0), (good, bytes.as_slice(), 1), (&bytes, &bytes, 0)] {
        match (choose(a, b), &decoded) {
            // A damaged twin must not block the other; a newer or foreign one must.
            (Err(error), Err(FormatError::BadChecksum(_) | FormatError::BadMagic(_))) => {
                assert!(a == b, "one damaged twin: {error}");
            }
            (Ok(chosen), _) => {
                let from = [a, b][chosen.twin];
                let mut expected = Superblock::decode(from).expect("the chosen twin is whole");
                if let [Ok(first), Ok(second)] = [a, b].map(Superblock::decode) {
                    // The other twin's unknown features bind, too.
                    expected.features_read_only = first.features_read_only | second.features_read_only;
                    assert_eq!(
                        chosen.superblock.sequence,
                        first.sequence.max(second.sequence),
                        "the older twin is chosen"
                    );
                }
                assert_eq!(expected, chosen.superblock);
                assert!(decoded.is_ok() || chosen.twin != this);
            }
            (Err(_), _) => {}
        }
    }
}

fn check_layout(layout: &Layout) {
    layout.check().expect("what was decoded or planned is sound");
    let end = layout.slot_offset(layout.slot_count - 1).expect("the last slot") + u64::from(layout.slot_bytes);
    assert!(end <= layout.flash_bytes && layout.slot_offset(layout.slot_count).is_none());
    assert!(layout.checkpoint_bytes_max() <= layout.checkpoint_area_bytes);
    assert!(layout.frame_entries_max() > 0 && layout.frame_bytes_max() <= layout.log_bytes / 4);
    assert!(layout.log_offset + layout.log_bytes <= layout.slots_offset);
    assert!(layout.checkpoint_offset[1] + layout.checkpoint_area_bytes <= layout.log_offset);
    match layout.store() {
        StoreKind::Weus | StoreKind::Slots => assert!(layout.metadata_slot_offset(0).is_none()),
        StoreKind::Buckets => {
            let last = layout.metadata_slot_offset(layout.slot_count - 1).expect("that of the last slot");
            assert!(layout.log_offset + layout.log_bytes <= layout.region_offset);
            assert!(last + metadata_slot::METADATA_SLOT_BYTES as u64 <= layout.slots_offset);
            assert!(layout.slot_count.is_multiple_of(layout.bucket_slots));
            assert!(layout.chunk_bytes <= layout.bucket_slots * layout.slot_bytes, "a bucket has room for a chunk");
        }
    }
}

/// Checks the plan of a layout for any sizes.
pub fn layout(data: &[u8]) {
    let mut input = Input(data);
    let size = |input: &mut Input<'_>| {
        let shift = input.byte() % 64;
        (input.u64() >> (63 - shift)).wrapping_add(1 << shift)
    };
    let power = |input: &mut Input<'_>, from: u32| from << (input.byte() % 9) >> 1;
    let mut request = LayoutRequest {
        flash_bytes: size(&mut input),
        origin_bytes: size(&mut input),
        chunk_bytes: power(&mut input, 4 << 10),
        slot_bytes: power(&mut input, 512 << 10),
        sector_bytes: power(&mut input, 512),
        fp_entries_max: (input.byte() & 1 == 1).then(|| size(&mut input)),
        mappings_max: (input.byte() & 1 == 1).then(|| size(&mut input)),
        buckets: None,
        history: None,
    };
    if input.byte() & 1 == 1 {
        request.slot_bytes = power(&mut input, 512);
        let bucket_slots = input.byte().into();
        request.buckets = Some(BucketRequest { bucket_slots, design_pages_max: size(&mut input) });
    } else if size(&mut input) % 2 == 1 {
        let (bytes_per_chunk, bytes_per_mapping, entries_max) = (size(&mut input), size(&mut input), size(&mut input));
        let names_records = input.byte() & 1 == 1;
        request.history = Some(HistoryRequest { bytes_per_chunk, bytes_per_mapping, entries_max, names_records });
    }
    match frugally(0, || Layout::plan(request)) {
        Ok(layout) => check_layout(&layout),
        Err(FormatError::FlashTooSmall { flash_bytes, needed_bytes }) => {
            assert!(flash_bytes == request.flash_bytes && needed_bytes > flash_bytes, "{needed_bytes}");
            let enough = LayoutRequest { flash_bytes: needed_bytes, ..request };
            check_layout(&Layout::plan(enough).expect("what is said to be needed does"));
        }
        Err(_) => {}
    }
}

/// Checks a segment: its header and its record table.
pub fn segment(data: &[u8]) {
    let mut bytes = bytes(&[fixture!("segment-good"), fixture!("segment-table-corrupt")], 12, Some(64), data);
    let Ok(header) = frugally(bytes.len(), || decode_header(&bytes)) else { return };
    assert_eq!(encode_header(&header).as_slice(), &bytes[..64], "it encodes to other bytes");
    assert!(
        u64::from(header.offset) + u64::from(header.segment_bytes) <= u64::from(larder_format::layout::WEU_BYTES_MAX)
    );
    let at = header.table_offset as usize;
    check_table(&header, bytes.get(at..).unwrap_or_default());
    // The same table under a right checksum.
    if let Some(table) = bytes.get_mut(at..at + header.table_bytes()) {
        check_table(&SegmentHeader { table_crc: crc32c(table), ..header }, table);
    }
}

fn check_table(header: &SegmentHeader, bytes: &[u8]) {
    let Ok(records) = frugally(bytes.len(), || decode_table(header, bytes)) else { return };
    let mut again = vec![0; header.table_bytes()];
    assert_eq!(encode_table(&records, &mut again), Ok(header.table_crc));
    assert!(again == bytes[..again.len()], "the table encodes to other bytes");
    for record in records {
        assert!(record.place(header.slot, header.generation).is_plausible());
        assert!(record.offset >= header.offset + segment::SEGMENT_HEADER_BYTES as u32);
        assert!(record.offset + record.stored_len <= header.offset + header.table_offset);
    }
}

/// Checks a frame of the log.
pub fn log_frame(data: &[u8]) {
    let bytes =
        bytes(&[fixture!("frame-good"), fixture!("frame-torn"), fixture!("frame-unknown-entry")], 12, None, data);
    let peeked = peek_frame(&bytes, TAG);
    let decoded = frugally(bytes.len(), || decode_frame(&bytes, TAG));
    let Ok((header, entries)) = decoded else { return };
    assert_eq!(peeked, Ok(header), "a header that was peeked at is the one that is decoded");
    assert_eq!(entries.len(), header.entry_count as usize);
    assert!(header.start.frame_seq < COUNTER_MAX && header.entry_seq_next() >= header.start.first_entry_seq);
    // The padding tells only that the sector size divides the frame.
    let sector_bytes = 1 << header.frame_bytes.trailing_zeros().min(12);
    let again = encode_frame(&header.start, &entries, sector_bytes).expect("as many as before");
    assert!(again == bytes[..header.frame_bytes as usize], "it encodes to other bytes");
    let next = larder_format::FrameStart {
        frame_seq: header.start.frame_seq + 1,
        first_entry_seq: header.entry_seq_next(),
        previous_crc: header.crc,
        ..header.start
    };
    assert!(FrameHeader { start: next, ..header }.follows(&header) && !header.follows(&header));
    for other in [
        larder_format::FrameStart { previous_crc: !next.previous_crc, ..next },
        larder_format::FrameStart { first_entry_seq: next.first_entry_seq + 1, ..next },
        larder_format::FrameStart { frame_seq: next.frame_seq + 1, ..next },
    ] {
        assert!(!FrameHeader { start: other, ..header }.follows(&header), "{other:?} follows {header:?}");
    }
}

/// Checks the header of a checkpoint, and a block of one.
pub fn checkpoint(data: &[u8]) {
    let header = bytes(&[fixture!("checkpoint-header-good"), fixture!("checkpoint-header-pages")], 12, None, data);
    if let Ok(decoded) = frugally(header.len(), || CheckpointHeader::decode(&header, TAG)) {
        assert_eq!(decoded.encode().as_slice(), &header[..decoded.encode().len()], "the header encodes to other bytes");
        assert!(decoded.checkpoint_id < COUNTER_MAX && decoded.entry_seq_next < COUNTER_MAX);
    }
    let block = bytes(&BLOCKS, 12, None, data);
    let index = BLOCKS.iter().position(|good| good[32..36] == *block.get(32..36).unwrap_or_default());
    let block_index = index.unwrap_or(0) as u32;
    let identity = BlockIdentity { flash_tag: TAG, checkpoint_id: CHECKPOINT_ID, block_index };
    if let Ok((decoded, size)) = frugally(block.len(), || CheckpointBlock::decode(&block, &identity)) {
        let again = decoded.encode(&identity).expect("as many as before");
        assert_eq!(again.len(), size);
        assert!(again == block[..size], "the block encodes to other bytes");
    }
}

/// Checks a slot of the metadata region.
pub fn metadata_slot(data: &[u8]) {
    let bytes = bytes(&METADATA_SLOTS, 12, None, data);
    // As read for the first data slot, and for the second.
    for slot in [METADATA_SLOT, METADATA_SLOT + 1] {
        let Ok(decoded) = frugally(0, || MetadataSlot::decode(&bytes, TAG, slot)) else { continue };
        assert_eq!(decoded.encode().as_slice(), &bytes[..decoded.encode().len()], "it encodes to other bytes");
        assert_eq!((decoded.flash_tag, decoded.slot), (TAG, slot));
        assert!(decoded.place().is_plausible() && decoded.place().offset == 0);
        let lbas = decoded.lbas.as_slice();
        assert!(lbas.len() <= metadata_slot::LBAS_MAX && lbas.iter().all(|&lba| lba < CHUNKS_MAX));
        assert!(decoded.lbas.oldest() < lbas.len().max(1));
    }
}

/// Returns first inputs of a structure with `count` fixtures: whole, raw, and with fields changed.
fn seeds(count: u8, raw: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![], vec![1], vec![5]];
    for fixture in 0..count {
        for (at, value) in [(8, 2), (24, 5), (40, 11), (64, 3), (72, 200), (120, 15)] {
            seeds.push(vec![fixture << 3 | 5, 2, at, value, 1, 2, 3, 4]);
            seeds.push(vec![fixture << 3 | 5, 8, at, 33]);
        }
    }
    for bytes in raw.iter().filter(|bytes| bytes.len() <= 1 << 10) {
        seeds.push([&[0], *bytes].concat());
    }
    seeds
}

/// Returns first inputs of [`superblock`].
pub fn superblock_seeds() -> Vec<Vec<u8>> {
    let mut seeds = seeds(2, &[]);
    // The first bytes of the slots of a bucket, the start of the region, and the pages of the
    // design.
    seeds.extend([(92, 64), (92, 0), (97, 127), (104, 0), (104, 5)].map(|(at, value)| vec![13, 4, at, 7, value]));
    seeds
}

/// Returns first inputs of [`layout`].
pub fn layout_seeds() -> Vec<Vec<u8>> {
    let sizes = [(36, 42, 1, 3, 1), (22, 30, 0, 1, 1), (40, 50, 2, 4, 4), (23, 20, 5, 1, 1), (62, 63, 8, 8, 8)];
    let weus = sizes.iter().map(|&(flash, origin, a, b, c)| vec![flash, 0, origin, 0, a, b, c, 0, 1, 12, 9]);
    // The subchunk, the slots of a bucket, and the most pages.
    let sizes = [(36, 42, 4, 5, 128, 14), (22, 30, 1, 1, 16, 0), (28, 40, 6, 8, 32, 3), (40, 50, 4, 4, 127, 24)];
    let buckets = sizes.iter().map(|&(flash, origin, chunk, subchunk, slots, pages)| {
        vec![flash, 0, origin, 0, chunk, 0, 1, 0, 0, 1, subchunk, slots, pages, 0]
    });
    weus.chain(buckets).collect()
}

/// Returns first inputs of [`segment`].
pub fn segment_seeds() -> Vec<Vec<u8>> {
    seeds(2, &[fixture!("segment-good")])
}

/// Returns first inputs of [`log_frame`].
pub fn log_frame_seeds() -> Vec<Vec<u8>> {
    seeds(3, &[fixture!("frame-good"), fixture!("frame-unknown-entry")])
}

/// Returns first inputs of [`metadata_slot`].
pub fn metadata_slot_seeds() -> Vec<Vec<u8>> {
    let mut seeds = seeds(2, &METADATA_SLOTS);
    // The length of the list, and its oldest.
    seeds.extend([(56, 60), (56, 61), (56, 17), (57, 59), (57, 60)].map(|(at, value)| vec![13, 0, at, value]));
    seeds
}

/// Returns first inputs of [`checkpoint`].
pub fn checkpoint_seeds() -> Vec<Vec<u8>> {
    let mut seeds = seeds(6, &[]);
    // The count of pages in a header; the number of a page, its bytes, and reserved ones.
    seeds.extend([(112, 9), (64, 33), (68, 6), (69, 15), (70, 1)].map(|(at, value)| vec![45, 0, at, value]));
    seeds
}
