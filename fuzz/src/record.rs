//! Target: a stored record, and the bytes of a whole WEU.
//!
//! It covers decoding, the overlay of a fragment, and the walk through segments.
//!
//! Properties, for any stored bytes and any lengths in them: decoding fills exactly the given
//! buffer or fails. It costs no more memory than a chunk. The codec decodes its own output, and no
//! changed byte of it passes the record's checksum.
//!
//! It does not find records. It leaves this to `image`.

use super::{
    input::{Input, patch},
    memory,
};
use larder_codec::{Codec, decode};
use larder_core::{Place, SectorMap, SlotId, types::SECTOR_BYTES};
use larder_engine::{
    record::{check, decode_chunk, overlay_fragment},
    walk,
};
use larder_format::{Compression, RecordIdentity, record_crc, segment};

/// Bytes that a run may allocate beside the chunk.
const ALLOCATED_BYTES: usize = 64 << 10;
const SLOT: u32 = 5;
const GENERATION: u32 = 2;
const OFFSET: u32 = 8256;
const TAG: u64 = 0xa7a6_a5a4_a3a2_a1a0;
/// The buffer's content before decoding, which shows unwritten bytes.
const CANARY: u8 = 0xa5;

/// Runs the fuzz target.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    if input.byte() & 1 == 0 { record(&mut input) } else { weu(&mut input) }
}

fn record(input: &mut Input<'_>) {
    let chunk_bytes = 4096_usize << (input.byte() % 6);
    let encoding = input.byte();
    let sectors = SectorMap(std::array::from_fn(|_| input.u64()));
    let compression = Compression::ALL[usize::from(encoding) % 3];
    let stored = match input.byte() {
        0..=127 => input.0.to_vec(),
        pattern => {
            // The codec's output for a chunk, changed.
            let chunk: Vec<u8> = (0..chunk_bytes).map(|at| (at / usize::from(pattern - 126) * 7 % 251) as u8).collect();
            let mut stored = encoded(compression, &chunk);
            while !input.is_empty() {
                patch(&mut stored, 64, input);
            }
            stored
        }
    };
    let identity = RecordIdentity { slot: SLOT, generation: GENERATION, offset: OFFSET };
    let place = Place {
        slot: SlotId(SLOT),
        generation: GENERATION,
        offset: OFFSET,
        stored_len: stored.len() as u32,
        crc: record_crc(identity, encoding, &stored),
        encoding,
    };
    assert!(check(&place, &stored), "a record passes its own checksum");
    for other in [
        Place { slot: SlotId(SLOT + 1), ..place },
        Place { generation: GENERATION + 1, ..place },
        Place { offset: OFFSET + 1, ..place },
        Place { encoding: encoding ^ 1, ..place },
    ] {
        assert!(!check(&other, &stored), "a record passes for another: {other:?}");
    }
    let mut chunk = vec![CANARY; chunk_bytes];
    let (is_whole, peak) = memory::peak_of(|| decode_chunk(&place, &stored, &mut chunk));
    assert!(peak <= ALLOCATED_BYTES, "{peak} bytes were allocated to decode {} into {chunk_bytes}", stored.len());
    if is_whole {
        again(compression, &chunk);
    }
    // As a fragment: the sectors that it does not hold keep their bytes.
    chunk.fill(CANARY);
    let (is_overlaid, peak) = memory::peak_of(|| overlay_fragment(&place, &sectors, &stored, &mut chunk));
    assert!(peak <= ALLOCATED_BYTES + larder_core::types::CHUNK_BYTES_MAX, "{peak} bytes were allocated");
    for (number, sector) in chunk.chunks(SECTOR_BYTES).enumerate() {
        let is_held = sectors.0[number / 64] >> (number % 64) & 1 == 1;
        assert!((is_overlaid && is_held) || sector.iter().all(|&byte| byte == CANARY), "sector {number} was written");
    }
}

fn encoded(compression: Compression, chunk: &[u8]) -> Vec<u8> {
    let codec = Codec::new([1; 32], compression, 1, true);
    codec.encode(chunk).bytes.unwrap_or_else(|| chunk.to_vec())
}

/// Encodes a decoded chunk, and decodes it again.
fn again(compression: Compression, chunk: &[u8]) {
    let codec = Codec::new([1; 32], compression, 1, true);
    let encoded = codec.encode(chunk);
    let stored = encoded.bytes.as_deref().unwrap_or(chunk);
    let mut out = vec![CANARY; chunk.len()];
    assert!(decode(encoded.encoding, stored, &mut out) && out == chunk, "what is encoded decodes to something else");
}

/// Checks a WEU that begins with a sound segment, or with the input's bytes.
fn weu(input: &mut Input<'_>) {
    let good = include_bytes!("../../crates/larder-format/tests/fixtures/v1/segment-good.bin");
    let mut weu = if input.byte() & 1 == 0 { input.0.to_vec() } else { good.repeat(3) };
    if weu.len() > good.len() {
        while !input.is_empty() {
            patch(&mut weu, 1200, input);
        }
    }
    // The fixture lies at offset 8192 of its slot; here the slot begins with it.
    for at in (0..weu.len()).step_by(good.len()) {
        if let Some(head) = weu.get_mut(at..at + 64) {
            head[56..60].copy_from_slice(&(at as u32).to_le_bytes());
            head[12..16].fill(0);
            let crc = larder_format::crc32c(head);
            head[12..16].copy_from_slice(&crc.to_le_bytes());
        }
    }
    let (found, _) = walk::segments(&weu, TAG, SLOT, GENERATION);
    let mut end = 0;
    for segment in found {
        assert_eq!(segment.header.offset, end, "segments follow each other");
        end += segment.header.segment_bytes;
        assert!(segment.header.segment_bytes as usize >= segment::SEGMENT_HEADER_BYTES);
    }
}

/// Returns first inputs.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![1, 1], vec![1, 1, 2, 40, 4], vec![1, 0]];
    for encoding in 0..3 {
        // A sound chunk; a changed one; a fragment of sectors 0 and 3.
        seeds.push(vec![0, 1, encoding, 25, 0, 0, 0, 200]);
        seeds.push(vec![0, 0, encoding, 25, 0, 0, 0, 129, 0, 3, 9]);
        let two = encoded(Compression::ALL[usize::from(encoding)], &[7; 2 * SECTOR_BYTES]);
        seeds.push([&[0, 0, encoding, 25, 0, 0, 0, 1], two.as_slice()].concat());
    }
    seeds
}
