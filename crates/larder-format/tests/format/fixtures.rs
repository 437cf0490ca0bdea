//! The bytes of version 1, fixed for ever: fixtures decode to the samples, and these encode to
//! them.
//!
//! `tests/fixtures/make_v1.py` wrote them from the description of the format, with no code of the
//! crate. A fixture thus reveals an error in code that encoding and decoding share.

use crate::common::*;
use larder_format::*;

#[test]
fn superblock_bytes_are_those_of_version_1() {
    let bytes = fixture("superblock-good");
    assert_eq!(Superblock::decode(&bytes), Ok(superblock()));
    assert_eq!(superblock().encode().as_slice(), bytes);
    assert_eq!(superblock().flash_tag(), TAG);
}

#[test]
fn bad_superblocks_are_refused_for_the_right_reason() {
    const S: Structure = Structure::Superblock;
    let refused = |name: &str| Superblock::decode(&fixture(name)).expect_err(name);
    assert_eq!(refused("superblock-corrupt"), FormatError::BadChecksum(S));
    assert_eq!(refused("superblock-newer"), FormatError::NewerVersion { structure: S, version: 2, features: 0 });
    assert_eq!(refused("superblock-features-none-rest"), FormatError::ReservedNotZero(S));
    assert_eq!(refused("superblock-mode"), FormatError::Invalid { structure: S, what: "an unknown write mode" });
    assert_eq!(refused("frame-good"), FormatError::Truncated { structure: S, needed_bytes: 4096 });
    assert_eq!(refused("checkpoint-header-good"), FormatError::BadMagic(S));
    assert_eq!(FormatError::BadMagic(S).to_string(), "this is not a Larder flash: it holds no superblock");
}

#[test]
fn a_bucket_store_is_known() {
    let bytes = fixture("superblock-buckets");
    assert_eq!(Superblock::decode(&bytes), Ok(superblock_with_buckets()));
    assert_eq!(superblock_with_buckets().encode().as_slice(), bytes);
    let layout = superblock_with_buckets().layout;
    assert_eq!(layout.store(), StoreKind::Buckets);
    assert_eq!((layout.metadata_slot_offset(0), layout.slot_offset(0)), (Some(4 << 20), Some(0x76_0000)));
    assert_eq!(layout.metadata_slot_offset(6911), Some(0x76_0000 - 512));
    assert_eq!((layout.metadata_slot_offset(6912), layout.slot_offset(6912)), (None, None));

    let refused = |name: &str| Superblock::decode(&fixture(name)).expect_err(name);
    let invalid = |what| FormatError::Invalid { structure: Structure::Superblock, what };
    // The region without its feature bit, buckets without a region, and bytes between the fields.
    assert_eq!(refused("superblock-buckets-feature"), FormatError::ReservedNotZero(Structure::Superblock));
    assert_eq!(refused("superblock-buckets-none"), FormatError::WeuSize { bytes: 8192 });
    assert_eq!(refused("superblock-buckets-gap"), FormatError::ReservedNotZero(Structure::Superblock));
    assert_eq!(refused("superblock-buckets-region"), invalid("regions overlap or leave the flash"));
    assert_eq!(refused("superblock-buckets-pages"), invalid("a checkpoint could overflow its area"));
    let what = "a bucket is not whole, or a checkpoint could keep fingerprints of buckets";
    assert_eq!(refused("superblock-buckets-count"), invalid(what));
}

#[test]
fn a_detached_cache_and_its_state_directory_are_known() {
    let state_dir = DirectoryPath::new("/var/lib/larder").expect("short");
    let expected = Superblock { detached: true, state_dir, ..superblock() };
    let bytes = fixture("superblock-detached");
    assert_eq!(Superblock::decode(&bytes).as_ref(), Ok(&expected));
    assert_eq!(expected.encode()[..], bytes[..]);
    // The bit says that there is a directory, and there is none.
    assert!(Superblock::decode(&fixture("superblock-state-dir")).is_err());
}

#[test]
fn an_unknown_incompatible_feature_is_a_newer_version() {
    let refused = Superblock::decode(&fixture("superblock-features"));
    let newer = FormatError::NewerVersion { structure: Structure::Superblock, version: 1, features: 6 };
    assert_eq!(refused, Err(newer));
}

#[test]
fn a_durable_frame_is_named_beside_its_sequence() {
    let bytes = fixture("superblock-durable-frame");
    assert_eq!(Superblock::decode(&bytes), Ok(naming_superblock()));
    assert_eq!(naming_superblock().encode()[..], bytes[..]);
    // The same field without its bit.
    let refused = Superblock::decode(&fixture("superblock-durable-frame-bit"));
    assert_eq!(refused, Err(FormatError::ReservedNotZero(Structure::Superblock)));
}

#[test]
fn a_wear_record_is_there_beside_its_bit_alone() {
    let (bytes, worn) = (fixture("superblock-wear"), worn_superblock());
    assert_eq!(Superblock::decode(&bytes).as_ref(), Ok(&worn));
    assert_eq!(worn.encode()[..], bytes[..]);
    let refused = Superblock::decode(&fixture("superblock-wear-bit"));
    assert_eq!(refused, Err(FormatError::ReservedNotZero(Structure::Superblock)));
    let wear = worn.wear.expect("it has one");
    assert_eq!(wear.bytes().take(3).collect::<Vec<u64>>(), [7 * 1024, 9 * 1024, 0]);
    let again = WearRecord::new(1, 2, 3, [7 * 1024, 8 * 1024 + 1, u64::MAX]);
    assert_eq!(again.bins[..4], [7, 9, u32::MAX, 0], "a part of a KiB counts as one");
}

#[test]
fn what_belongs_to_unknown_features_is_kept_refused_or_only_read() {
    let later = b"what a later program keeps here".to_vec();
    let unnoted = || Superblock { origin_state: None, ..superblock() };
    let none = Superblock { features_compat: 0, ..unnoted() };
    let compatible = Superblock { features_compat: 1 << 33 | 1 << 7, kept: later.clone(), ..unnoted() };
    let readable = Superblock { features_read_only: 1 << 32 | 1 << 63, kept: later, ..superblock() };
    for (name, expected, is_writable) in
        [("none", none, true), ("compatible", compatible, true), ("readable", readable.clone(), false)]
    {
        let bytes = fixture(&format!("superblock-features-{name}"));
        assert_eq!(Superblock::decode(&bytes).as_ref(), Ok(&expected), "{name}");
        assert_eq!(expected.encode()[..], bytes[..], "{name}");
        assert_eq!(expected.check_writable().is_ok(), is_writable, "{name}");
    }
    let refused = Superblock::decode(&fixture("superblock-features-incompatible")).expect_err("an unknown feature");
    let newer = |features| FormatError::NewerVersion { structure: Structure::Superblock, version: 1, features };
    assert_eq!(refused, newer(1 << 31));
    assert_eq!(
        refused.to_string(),
        "the superblock has incompatible feature bit 31, which this Larder does not know: use the Larder that wrote to \
         this flash last, or a newer one"
    );
    assert_eq!(readable.check_writable(), Err(newer(1 << 32 | 1 << 63)));
    let sentence = newer(1 << 32 | 1 << 63).to_string();
    assert!(sentence.contains("bits 32 and 63") && sentence.contains("may read it"), "{sentence}");
    // The last byte belongs to a feature with compatible bit 2.
    let bytes = fixture("superblock-reserved");
    assert_eq!(Superblock::decode(&bytes).expect("kept").encode()[..], bytes[..]);
}

#[test]
fn the_newest_valid_twin_is_chosen_and_the_other_repaired() {
    let good = superblock();
    let newer = Superblock { sequence: 8, clean_shutdown: true, ..superblock() };
    let (a, b, corrupt) = (good.encode(), newer.encode(), fixture("superblock-corrupt"));
    let chosen = |superblock: &Superblock, twin, repair| Ok(Chosen { superblock: superblock.clone(), twin, repair });
    assert_eq!(choose(&a, &a), chosen(&good, 0, None));
    assert_eq!(choose(&a, &b), chosen(&newer, 1, Some(0)));
    assert_eq!(choose(&b, &a), chosen(&newer, 0, Some(1)));
    assert_eq!(choose(&corrupt, &a), chosen(&good, 1, Some(0)));
    assert_eq!(choose(&a, &corrupt), chosen(&good, 0, Some(1)));
    assert_eq!(choose(&a, &[]), chosen(&good, 0, Some(1)));

    let corrupt_error = Err(FormatError::BadChecksum(Structure::Superblock));
    assert_eq!(choose(&corrupt, &[0; 4096]), corrupt_error);
    assert_eq!(choose(&[0; 4096], &corrupt), corrupt_error);
    assert_eq!(choose(&[0; 4096], &[0; 4096]), Err(FormatError::BadMagic(Structure::Superblock)));
    let foreign = Superblock { flash_uuid: [1; 16], ..superblock() }.encode();
    assert_eq!(choose(&a, &foreign), Err(FormatError::Foreign(Structure::Superblock)));
    let from_the_future = fixture("superblock-newer");
    for twins in [(&a[..], &from_the_future[..]), (&from_the_future, &a), (&from_the_future, &corrupt)] {
        assert!(matches!(choose(twins.0, twins.1), Err(FormatError::NewerVersion { version: 2, .. })));
    }
}

#[test]
fn segment_bytes_are_those_of_version_1() {
    let bytes = fixture("segment-good");
    assert_eq!(segment(), bytes);
    let header = segment::decode_header(&bytes).expect("good");
    assert_eq!(header, segment_header());
    assert_eq!(header.check_home(TAG, 5, 2, 8192), Ok(()));
    for (tag, slot, generation, offset) in [(1, 5, 2, 8192), (TAG, 6, 2, 8192), (TAG, 5, 1, 8192), (TAG, 5, 2, 0)] {
        let foreign = Err(FormatError::Foreign(Structure::SegmentHeader));
        assert_eq!(header.check_home(tag, slot, generation, offset), foreign);
    }
    let table = segment::decode_table(&header, &bytes[header.table_offset as usize..]).expect("good");
    assert_eq!(table, records());
    for record in table {
        let at = (record.offset - header.offset) as usize;
        let payload = &bytes[at..at + record.stored_len as usize];
        let place = record.place(5, 2);
        assert_eq!(record_crc(place.identity(), record.encoding.code(), payload), record.crc);
    }
}

#[test]
fn headers_and_slots_that_name_frames_are_known() {
    let bytes = fixture("segment-header-naming");
    assert_eq!(segment::decode_header(&bytes), Ok(naming_header()));
    assert_eq!(segment::encode_header(&naming_header())[..], bytes[..]);
    let bytes = fixture("metadata-slot-naming");
    assert_eq!(MetadataSlot::decode(&bytes, TAG, 640), Ok(naming_slot()));
    assert_eq!(naming_slot().encode()[..], bytes[..]);
    let bytes = fixture("superblock-noting");
    assert_eq!(Superblock::decode(&bytes), Ok(noting_superblock()));
    assert_eq!(noting_superblock().encode()[..], bytes[..]);
    // Fields without their bit, and an unknown version.
    let refused = Superblock::decode(&fixture("superblock-noting-bit"));
    assert_eq!(refused, Err(FormatError::ReservedNotZero(Structure::Superblock)));
    let newer = FormatError::NewerVersion { structure: Structure::SegmentHeader, version: 3, features: 0 };
    assert_eq!(segment::decode_header(&fixture("segment-header-newer")), Err(newer));
    let high = SegmentHeader { durable_frame_seq: Some(COUNTER_MAX), ..naming_header() };
    assert!(matches!(segment::decode_header(&segment::encode_header(&high)), Err(FormatError::Invalid { .. })));
}

#[test]
fn bad_segments_are_refused() {
    let refused = segment::decode_header(&fixture("segment-header-corrupt"));
    assert_eq!(refused, Err(FormatError::BadChecksum(Structure::SegmentHeader)));
    let bytes = fixture("segment-table-corrupt");
    let header = segment::decode_header(&bytes).expect("its header is good");
    let refused = segment::decode_table(&header, &bytes[header.table_offset as usize..]);
    assert_eq!(refused, Err(FormatError::BadChecksum(Structure::RecordTable)));
}

#[test]
fn frame_bytes_are_those_of_version_1() {
    let bytes = fixture("frame-good");
    let header = FrameHeader { start: FRAME_START, entry_count: 8, frame_bytes: 1024, crc: frame_crc(&bytes) };
    assert_eq!(peek_frame(&bytes[..64], TAG), Ok(header));
    assert_eq!(decode_frame(&bytes, TAG), Ok((header, log_entries())));
    assert_eq!(encode_frame(&FRAME_START, &log_entries(), 512), Ok(bytes));
}

#[test]
fn trims_are_kept_apart_from_zeroes() {
    let bytes = fixture("superblock-kept-trims");
    let expected = Superblock { kept_trims: true, ..superblock() };
    assert_eq!(Superblock::decode(&bytes).as_ref(), Ok(&expected));
    assert_eq!(expected.encode()[..], bytes[..]);
    let bytes = fixture("frame-kept-trim");
    assert_eq!(decode_frame(&bytes, TAG).map(|(_, entries)| entries), Ok(vec![advisory_trim()]));
    assert_eq!(encode_frame(&FRAME_START, &[advisory_trim()], 512), Ok(bytes));
    let bytes = fixture("block-zero-ranges-kept");
    let block = CheckpointBlock::ZeroRanges(vec![zero_range(false, true)]);
    assert_eq!(CheckpointBlock::decode(&bytes, &block_identity(3)), Ok((block.clone(), 4096)));
    assert_eq!(block.encode(&block_identity(3)), Ok(bytes));
    // A trim gives its range up: no trim keeps it allocated.
    let what = "a trim that keeps its range allocated";
    let refused = decode_frame(&fixture("frame-kept-trim-no-hole"), TAG).map(|_| ());
    assert_eq!(refused, Err(FormatError::Invalid { structure: Structure::LogFrame, what }));
    let refused = CheckpointBlock::decode(&fixture("block-zero-ranges-kept-no-hole"), &block_identity(3)).map(|_| ());
    assert_eq!(refused, Err(FormatError::Invalid { structure: Structure::CheckpointBlock, what }));
}

#[test]
fn bad_frames_are_refused() {
    const S: Structure = Structure::LogFrame;
    let refused = |name: &str| decode_frame(&fixture(name), TAG).expect_err(name);
    assert_eq!(refused("frame-torn"), FormatError::BadChecksum(S));
    assert_eq!(refused("frame-newer"), FormatError::NewerVersion { structure: S, version: 2, features: 0 });
    let unknown = FormatError::Invalid { structure: S, what: "an entry of an unknown kind" };
    assert_eq!(refused("frame-unknown-entry"), unknown);
    assert_eq!(refused("segment-good"), FormatError::BadMagic(S));
    assert_eq!(decode_frame(&fixture("frame-good"), 1), Err(FormatError::Foreign(S)));
}

#[test]
fn checkpoint_bytes_are_those_of_version_1() {
    for (name, header) in
        [("checkpoint-header-good", checkpoint_header()), ("checkpoint-header-pages", checkpoint_header_with_pages())]
    {
        let bytes = fixture(name);
        assert_eq!(CheckpointHeader::decode(&bytes, TAG), Ok(header), "{name}");
        assert_eq!(header.encode().as_slice(), bytes, "{name}");
    }
    for ((name, block), index) in blocks().into_iter().zip(0..) {
        let bytes = fixture(name);
        let size = if block.kind() == BlockKind::DesignPages { 12288 } else { 4096 };
        assert_eq!(CheckpointBlock::decode(&bytes, &block_identity(index)), Ok((block.clone(), size)), "{name}");
        assert_eq!(block.encode(&block_identity(index)), Ok(bytes), "{name}");
    }
}

#[test]
fn bad_checkpoints_are_refused() {
    let refused = |name: &str| CheckpointHeader::decode(&fixture(name), TAG).expect_err(name);
    assert_eq!(refused("checkpoint-header-corrupt"), FormatError::BadChecksum(Structure::CheckpointHeader));
    assert!(matches!(refused("checkpoint-header-size"), FormatError::Invalid { .. }));
    let short = CheckpointHeader { block_count: 4, ..checkpoint_header() };
    assert!(matches!(CheckpointHeader::decode(&short.encode(), TAG), Err(FormatError::Invalid { .. })));
    let foreign = CheckpointHeader::decode(&fixture("checkpoint-header-good"), 1);
    assert_eq!(foreign, Err(FormatError::Foreign(Structure::CheckpointHeader)));

    const S: Structure = Structure::CheckpointBlock;
    let refused = |name: &str, index| CheckpointBlock::decode(&fixture(name), &block_identity(index)).expect_err(name);
    assert_eq!(refused("block-mappings-corrupt", 1), FormatError::BadChecksum(S));
    assert_eq!(refused("block-mappings-stale", 1), FormatError::Foreign(S));
    assert_eq!(refused("block-mappings-good", 2), FormatError::Foreign(S));
    let overfull = FormatError::Invalid { structure: S, what: "a page of more bytes than it has" };
    assert_eq!(refused("block-design-pages-used", 5), overfull);
    assert_eq!(refused("block-design-pages-reserved", 5), FormatError::ReservedNotZero(S));
}

#[test]
fn metadata_slot_bytes_are_those_of_version_1() {
    for (name, slot) in metadata_slots() {
        let bytes = fixture(name);
        assert_eq!(MetadataSlot::decode(&bytes, TAG, slot.slot).as_ref(), Ok(&slot), "{name}");
        assert_eq!(slot.encode().as_slice(), bytes, "{name}");
        let place = FlashPlace { slot: slot.slot, offset: 0, stored_len: 19_000, ..PLACE };
        assert_eq!(slot.place(), place);
    }
}

#[test]
fn bad_metadata_slots_are_refused_for_the_right_reason() {
    const S: Structure = Structure::MetadataSlot;
    let refused = |name: &str| MetadataSlot::decode(&fixture(name), TAG, 640).expect_err(name);
    let invalid = |what| FormatError::Invalid { structure: S, what };
    assert_eq!(refused("metadata-slot-corrupt"), FormatError::BadChecksum(S));
    assert_eq!(refused("metadata-slot-count"), invalid("more addresses than it has room for"));
    assert_eq!(refused("metadata-slot-oldest"), invalid("its oldest address is not in its list"));
    assert_eq!(refused("metadata-slot-lba"), invalid("an address that no origin has"));
    assert_eq!(refused("metadata-slot-reserved"), FormatError::ReservedNotZero(S));
    assert_eq!(refused("metadata-slot-unlisted"), FormatError::ReservedNotZero(S));
    assert_eq!(refused("metadata-slot-full"), FormatError::Foreign(S));
    assert_eq!(refused("frame-good"), FormatError::BadMagic(S));
    let foreign = MetadataSlot::decode(&fixture("metadata-slot-good"), 1, 640);
    assert_eq!(foreign, Err(FormatError::Foreign(S)));
    assert_eq!(FormatError::BadChecksum(S).to_string(), "the metadata slot is corrupt: its checksum does not match");
}

#[test]
fn the_checksum_is_crc32c() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    assert_eq!(crc32c(b""), 0);
}

#[test]
fn a_record_checksum_is_the_crc_of_its_identity_and_of_its_payloads_crc() {
    let mut random = Random::new(1);
    for len in (0..300).chain([4096, 8192, 131_072]) {
        let payload = payload(len, len);
        let identity = RecordIdentity { slot: random.u32(), generation: random.u32(), offset: random.u32() };
        let encoding = random.next() as u8;
        let mut words = Vec::new();
        for word in [identity.slot, identity.generation, identity.offset, encoding.into(), crc32c(&payload)] {
            words.extend(word.to_le_bytes());
        }
        assert_eq!(record_crc(identity, encoding, &payload), crc32c(&words), "length {len}");
    }
}
