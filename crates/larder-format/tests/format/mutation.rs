//! Decoding any bytes gives a value or an error, never a panic.
//!
//! It gives a value only if the value is the whole truth: encoded again, it gives the bytes that it
//! came from.

use crate::common::*;
use larder_format::*;

/// Decodes, then encodes again; `None` when decoding refused.
type Again = Box<dyn Fn(&[u8]) -> Option<Vec<u8>>>;

/// A structure under test.
struct Subject {
    name: String,
    bytes: Vec<u8>,
    /// The offset of its checksum; the bytes under it.
    crc_offset: usize,
    crc_covers: usize,
    again: Again,
}

fn subjects() -> Vec<Subject> {
    let subject = |name: &str, bytes: Vec<u8>, crc_offset, again: Again| Subject {
        name: name.to_string(),
        crc_covers: bytes.len(),
        bytes,
        crc_offset,
        again,
    };
    let mut subjects = vec![
        subject(
            "superblock",
            superblock().encode().to_vec(),
            16,
            Box::new(|bytes| Superblock::decode(bytes).ok().map(|superblock| superblock.encode().to_vec())),
        ),
        subject(
            "superblock of a bucket store",
            superblock_with_buckets().encode().to_vec(),
            16,
            Box::new(|bytes| Superblock::decode(bytes).ok().map(|superblock| superblock.encode().to_vec())),
        ),
        subject(
            "superblock without checkpoint",
            Superblock { checkpoint: None, ..superblock() }.encode().to_vec(),
            16,
            Box::new(|bytes| Superblock::decode(bytes).ok().map(|superblock| superblock.encode().to_vec())),
        ),
        subject(
            "segment header",
            segment::encode_header(&segment_header()).to_vec(),
            12,
            Box::new(|bytes| segment::decode_header(bytes).ok().map(|header| segment::encode_header(&header).to_vec())),
        ),
        subject(
            "frame",
            encode_frame(&FRAME_START, &log_entries(), 512).expect("it fits"),
            12,
            Box::new(|bytes| {
                let (header, entries) = decode_frame(bytes, TAG).ok()?;
                // Padding says nothing of the sector size but that it divides the frame.
                let sector_bytes = 1 << header.frame_bytes.trailing_zeros().min(12);
                let frame = encode_frame(&header.start, &entries, sector_bytes).expect("as many as before");
                assert_eq!(frame.len(), header.frame_bytes as usize);
                Some(frame)
            }),
        ),
        subject(
            "checkpoint header",
            checkpoint_header().encode().to_vec(),
            12,
            Box::new(|bytes| CheckpointHeader::decode(bytes, TAG).ok().map(|header| header.encode().to_vec())),
        ),
        subject(
            "checkpoint header with pages",
            checkpoint_header_with_pages().encode().to_vec(),
            12,
            Box::new(|bytes| CheckpointHeader::decode(bytes, TAG).ok().map(|header| header.encode().to_vec())),
        ),
    ];
    for (name, slot) in metadata_slots() {
        let number = slot.slot;
        let again = move |bytes: &[u8]| Some(MetadataSlot::decode(bytes, TAG, number).ok()?.encode().to_vec());
        subjects.push(subject(name, slot.encode().to_vec(), 12, Box::new(again)));
    }
    for ((name, block), index) in blocks().into_iter().zip(0..) {
        let bytes = block.encode(&block_identity(index)).expect("it fits");
        let again = move |bytes: &[u8]| {
            let (block, _) = CheckpointBlock::decode(bytes, &block_identity(index)).ok()?;
            Some(block.encode(&block_identity(index)).expect("as many as before"))
        };
        subjects.push(subject(name, bytes, 12, Box::new(again)));
    }
    subjects
}

impl Subject {
    /// Makes the checksum right again, so that decoding goes on behind it.
    fn seal(&self, bytes: &mut [u8]) {
        let field = self.crc_offset..self.crc_offset + 4;
        bytes[field.clone()].fill(0);
        let crc = crc32c(&bytes[..self.crc_covers]);
        bytes[field].copy_from_slice(&crc.to_le_bytes());
    }

    /// Decodes sealed bytes: refused, or a value that encodes to them again.
    fn check_sealed(&self, bytes: &[u8], what: &str) {
        if let Some(again) = (self.again)(bytes) {
            assert!(again == bytes, "{}: {what} decoded to something else", self.name);
        }
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    for subject in subjects() {
        assert_eq!((subject.again)(&subject.bytes).as_deref(), Some(&subject.bytes[..]), "{}", subject.name);
        for bit in 0..subject.bytes.len() * 8 {
            let mut bytes = subject.bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!((subject.again)(&bytes).is_none(), "{}: bit {bit} flipped", subject.name);
        }
    }
}

#[test]
fn every_truncation_is_refused() {
    for subject in subjects() {
        for len in 0..subject.bytes.len() {
            assert!((subject.again)(&subject.bytes[..len]).is_none(), "{}: cut to {len}", subject.name);
        }
    }
}

#[test]
fn every_bit_flipped_under_a_right_checksum_means_what_it_says() {
    for subject in subjects() {
        for bit in 0..subject.bytes.len() * 8 {
            let mut bytes = subject.bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            subject.seal(&mut bytes);
            // A version is not encoded again: a higher one is refused, and version 0, too.
            subject.check_sealed(&bytes, &format!("bit {bit} flipped"));
        }
    }
}

#[test]
fn random_fields_under_a_right_checksum_mean_what_they_say() {
    let mut random = Random::new(2);
    for subject in subjects() {
        for round in 0..20_000 {
            let mut bytes = subject.bytes.clone();
            for _ in 0..1 + random.below(4) {
                // The fields that matter most are near the front.
                let reach = if random.coin() { 64 } else { bytes.len().min(1400) as u64 };
                let at = 8 + random.below(reach.min(bytes.len() as u64) - 8) as usize;
                let value = random.u64().to_le_bytes();
                let len = (random.pick(&[1, 2, 4, 8])).min(bytes.len() - at);
                bytes[at..at + len].copy_from_slice(&value[..len]);
            }
            subject.seal(&mut bytes);
            subject.check_sealed(&bytes, &format!("round {round}, seed {}", random.seed));
        }
    }
}

#[test]
fn random_bytes_are_refused() {
    let mut random = Random::new(3);
    for subject in subjects() {
        for _ in 0..200 {
            let mut bytes: Vec<u8> = (0..subject.bytes.len()).map(|_| random.next() as u8).collect();
            assert!((subject.again)(&bytes).is_none(), "{}", subject.name);
            bytes[..8].copy_from_slice(&subject.bytes[..8]);
            subject.seal(&mut bytes);
            subject.check_sealed(&bytes, "random bytes");
        }
    }
}

#[test]
fn a_record_table_with_a_flipped_bit_is_refused_or_means_what_it_says() {
    let bytes = segment();
    let table = &bytes[1064..1064 + 128];
    let header = segment_header();
    for len in 0..table.len() {
        assert!(segment::decode_table(&header, &table[..len]).is_err(), "cut to {len}");
    }
    for bit in 0..table.len() * 8 {
        let mut flipped = table.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(segment::decode_table(&header, &flipped).is_err(), "bit {bit}");
        let resealed = SegmentHeader { table_crc: crc32c(&flipped), ..header };
        if let Ok(records) = segment::decode_table(&resealed, &flipped) {
            let mut again = vec![0; 128];
            assert_eq!(segment::encode_table(&records, &mut again), Ok(resealed.table_crc));
            assert_eq!(again, flipped, "bit {bit}");
        }
    }
}
