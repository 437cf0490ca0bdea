//! Flashes of all sizes are divided as the format demands.

use crate::common::Random;
use larder_format::checkpoint::DESIGN_PAGE_BYTES_MAX;
use larder_format::layout::*;
use larder_format::*;

const REQUEST: LayoutRequest = LayoutRequest {
    flash_bytes: 64 << 30,
    origin_bytes: 4 << 40,
    chunk_bytes: 8192,
    slot_bytes: 2 << 20,
    sector_bytes: 4096,
    fp_entries_max: None,
    mappings_max: None,
    buckets: None,
    history: None,
};

/// Chunks of four subchunks, in the paper's buckets.
const WITH_BUCKETS: LayoutRequest = LayoutRequest {
    chunk_bytes: 32 << 10,
    slot_bytes: 8 << 10,
    buckets: Some(BucketRequest { bucket_slots: 128, design_pages_max: 20_000 }),
    ..REQUEST
};

fn in_buckets(bucket_slots: u32) -> Option<BucketRequest> {
    Some(BucketRequest { bucket_slots, design_pages_max: 20 })
}

fn metadata_bytes(layout: &Layout) -> u64 {
    layout.log_offset + layout.log_bytes
}

#[test]
fn an_ordinary_flash() {
    let layout = Layout::plan(REQUEST).unwrap();
    assert_eq!(layout.check(), Ok(()));
    assert_eq!(layout.mappings_max, 4 * (64 << 30) / 8192);
    assert!(metadata_bytes(&layout) * 10 <= layout.flash_bytes);
    assert!(layout.log_bytes >= layout.checkpoint_area_bytes / 2);
    assert_eq!(layout.frame_bytes_max(), 1 << 20);
    assert_eq!(layout.slot_offset(0), Some(layout.slots_offset));
    let last = layout.slot_offset(layout.slot_count - 1).unwrap();
    assert!(last + (2 << 20) <= layout.flash_bytes && last + (4 << 20) > layout.flash_bytes);
    assert_eq!(layout.slot_offset(layout.slot_count), None);
}

#[test]
fn a_small_origin_needs_few_mappings() {
    let layout = Layout::plan(LayoutRequest { origin_bytes: (1 << 20) + 1, ..REQUEST }).unwrap();
    assert_eq!(layout.mappings_max, 129);
    assert_eq!(layout.check(), Ok(()));
}

#[test]
fn what_is_asked_for_is_given() {
    let layout =
        Layout::plan(LayoutRequest { mappings_max: Some(1_234_567), fp_entries_max: Some(7_654_321), ..REQUEST });
    let layout = layout.unwrap();
    assert_eq!((layout.mappings_max, layout.fp_entries_max), (1_234_567, 7_654_321));
}

#[test]
fn a_flash_of_eight_weus_works() {
    for chunk_bytes in [4096, 8192, 131_072] {
        let tiny = LayoutRequest { flash_bytes: 4 << 20, slot_bytes: 512 << 10, chunk_bytes, ..REQUEST };
        let layout = Layout::plan(tiny).unwrap();
        assert_eq!(layout.check(), Ok(()));
        assert_eq!((layout.slot_count, layout.slots_offset), (7, 512 << 10));
        assert!(layout.log_bytes >= 256 << 10);
        assert!(layout.mappings_max >= 128, "{chunk_bytes}: {}", layout.mappings_max);
        assert_eq!(layout.frame_bytes_max(), layout.log_bytes / 4);
    }
}

#[test]
fn a_flash_too_small_says_how_much_would_do() {
    for (slot_bytes, chunk_bytes) in [(512 << 10, 4096), (2 << 20, 8192), (4 << 20, 131_072)] {
        let too_small = LayoutRequest { flash_bytes: 1 << 20, slot_bytes, chunk_bytes, ..REQUEST };
        let Err(FormatError::FlashTooSmall { flash_bytes, needed_bytes }) = Layout::plan(too_small) else {
            panic!("1 MiB is too small")
        };
        assert_eq!((flash_bytes, needed_bytes), (1 << 20, 8 * u64::from(slot_bytes)));
        assert!(Layout::plan(LayoutRequest { flash_bytes: needed_bytes, ..too_small }).is_ok());
        assert!(Layout::plan(LayoutRequest { flash_bytes: needed_bytes - 512, ..too_small }).is_err());
    }
    let empty = Layout::plan(LayoutRequest { flash_bytes: 0, ..REQUEST });
    assert!(matches!(empty, Err(FormatError::FlashTooSmall { flash_bytes: 0, needed_bytes: 16_777_216 })));
}

#[test]
fn sizes_that_are_not_allowed_are_refused_with_a_sentence() {
    let refused = |request| Layout::plan(request).unwrap_err().to_string();
    for chunk_bytes in [0, 2048, 6000, 262_144] {
        let sentence = refused(LayoutRequest { chunk_bytes, ..REQUEST });
        assert!(sentence.starts_with("the chunk size must be a power of two from 4 KiB to 128 KiB"), "{sentence}");
    }
    assert_eq!(
        refused(LayoutRequest { slot_bytes: 3 << 20, ..REQUEST }),
        "the WEU size must be a power of two from 512 KiB to 4 MiB, not 3145728 bytes"
    );
    assert_eq!(
        refused(LayoutRequest { sector_bytes: 8192, ..REQUEST }),
        "the sector size must be a power of two from 512 to 4096 bytes, not 8192"
    );
    assert_eq!(refused(LayoutRequest { origin_bytes: 0, ..REQUEST }), "the origin is empty");
    let slots = LayoutRequest { slot_bytes: REQUEST.chunk_bytes, ..REQUEST };
    for (request, size) in [(REQUEST, "WEU"), (slots, "chunk"), (WITH_BUCKETS, "subchunk")] {
        let sentence = refused(LayoutRequest { flash_bytes: u64::MAX, ..request });
        assert!(sentence.ends_with(&format!("use a larger {size} size")), "{sentence}");
    }
}

#[test]
fn buckets_that_are_not_allowed_are_refused_with_a_sentence() {
    let refused = |request| Layout::plan(request).unwrap_err().to_string();
    for slot_bytes in [0, 256, 2048, 6000, 64 << 10, 2 << 20] {
        let wanted = format!("the subchunk size must be a power of two from 4K to 32K, not {slot_bytes} bytes");
        assert_eq!(refused(LayoutRequest { slot_bytes, ..WITH_BUCKETS }), wanted);
    }
    for bucket_slots in [0, 3, 129, u32::MAX] {
        let wanted = format!("a bucket of such chunks must have from 4 to 128 slots, not {bucket_slots}");
        assert_eq!(refused(LayoutRequest { buckets: in_buckets(bucket_slots), ..WITH_BUCKETS }), wanted);
    }
    // 256 subchunks are more than any bucket has.
    let smallest = LayoutRequest { chunk_bytes: 128 << 10, slot_bytes: 512, sector_bytes: 512, ..WITH_BUCKETS };
    assert!(matches!(Layout::plan(smallest), Err(FormatError::BucketSlots { least: 256, .. })));
    let pages = BucketRequest { bucket_slots: 128, design_pages_max: DESIGN_PAGES_MAX + 1 };
    assert_eq!(
        refused(LayoutRequest { buckets: Some(pages), ..WITH_BUCKETS }),
        "a checkpoint can have 16777216 pages of its design at most, not 16777217"
    );
}

/// Checks the rules of a layout with buckets, besides [`Layout::check`].
fn check_buckets(layout: &Layout) {
    let slots_end = layout.slots_offset + u64::from(layout.slot_count) * u64::from(layout.slot_bytes);
    assert_eq!(layout.store(), StoreKind::Buckets);
    assert!(layout.slot_count.is_multiple_of(layout.bucket_slots) && slots_end <= layout.flash_bytes, "{layout:?}");
    assert_eq!(layout.region_offset, metadata_bytes(layout));
    assert_eq!(
        (layout.metadata_slot_offset(0), layout.slot_offset(0)),
        (Some(layout.region_offset), Some(layout.slots_offset))
    );
    let last = layout.metadata_slot_offset(layout.slot_count - 1).expect("that of the last slot");
    assert!(last + 512 <= layout.region_offset + layout.region_bytes(), "{layout:?}");
    assert!(layout.region_offset + layout.region_bytes() <= layout.slots_offset, "{layout:?}");
    assert_eq!(layout.metadata_slot_offset(layout.slot_count), None);
    let counts = layout.checkpoint_counts_max();
    assert_eq!((counts.slots, counts.fingerprints, counts.design_pages), (0, 0, layout.design_pages_max));
    // Another bucket would not fit.
    let slots = layout.slot_count + layout.bucket_slots;
    let region_end = layout.region_offset + (u64::from(slots) * 512).next_multiple_of(4096);
    let start = region_end.next_multiple_of(u64::from(layout.slot_bytes).max(4096));
    assert!(start + u64::from(slots) * u64::from(layout.slot_bytes) > layout.flash_bytes, "{layout:?}");
}

#[test]
fn an_ordinary_flash_with_buckets() {
    let layout = Layout::plan(WITH_BUCKETS).unwrap();
    assert_eq!(layout.check(), Ok(()));
    check_buckets(&layout);
    assert_eq!(layout.mappings_max, (64 << 30) / (32 << 10));
    assert_eq!((layout.design_pages_max, layout.fp_entries_max), (20_000, 0));
    assert!(metadata_bytes(&layout) * 10 <= layout.flash_bytes);
    // 8 of each 8.5 KiB behind the log are data.
    let data_bytes = u64::from(layout.slot_count) * u64::from(layout.slot_bytes);
    assert!(data_bytes > (layout.flash_bytes - layout.region_offset) / 17 * 16 - (2 << 20));
}

#[test]
fn subchunks_of_whole_chunks_are_no_slots_of_one_chunk() {
    let slots = Layout::plan(LayoutRequest { slot_bytes: 8192, ..REQUEST }).unwrap();
    let buckets = LayoutRequest { slot_bytes: 8192, buckets: in_buckets(1), ..REQUEST };
    let buckets = Layout::plan(buckets).unwrap();
    assert_eq!((slots.store(), buckets.store()), (StoreKind::Slots, StoreKind::Buckets));
    assert_eq!(Layout::plan(REQUEST).unwrap().store(), StoreKind::Weus);
    assert_eq!((slots.region_bytes(), slots.metadata_slot_offset(0)), (0, None));
    check_buckets(&buckets);
}

#[test]
fn the_smallest_flashes_with_buckets_hold_seven_chunks() {
    for (chunk_bytes, slot_bytes, bucket_slots) in
        [(4096, 4096, 1), (4096, 512, 8), (32 << 10, 8 << 10, 4), (32 << 10, 8 << 10, 128), (128 << 10, 128 << 10, 1)]
    {
        let buckets = Some(BucketRequest { bucket_slots, design_pages_max: 1 });
        let request = LayoutRequest { flash_bytes: 0, chunk_bytes, slot_bytes, buckets, sector_bytes: 512, ..REQUEST };
        let Err(FormatError::FlashTooSmall { needed_bytes, .. }) = Layout::plan(request) else {
            panic!("nothing is too small")
        };
        let layout = Layout::plan(LayoutRequest { flash_bytes: needed_bytes, ..request }).unwrap();
        check_buckets(&layout);
        assert!(layout.slot_count >= 7 * (chunk_bytes / slot_bytes), "{layout:?}");
        // The least is found to a 64th.
        let smaller = needed_bytes - needed_bytes / 32 - 2 * u64::from(slot_bytes);
        assert!(Layout::plan(LayoutRequest { flash_bytes: smaller, ..request }).is_err(), "{needed_bytes}");
    }
}

#[test]
fn the_most_pages_of_a_design_fit_on_the_largest_flash() {
    for mappings_max in [None, Some(u64::MAX)] {
        let buckets = Some(BucketRequest { bucket_slots: 128, design_pages_max: DESIGN_PAGES_MAX });
        let smallest = LayoutRequest { slot_bytes: 512, sector_bytes: 512, buckets, mappings_max, ..WITH_BUCKETS };
        let layout = Layout::plan(LayoutRequest { flash_bytes: 512 << 31, ..smallest }).unwrap();
        assert_eq!(layout.check(), Ok(()));
        check_buckets(&layout);
        let Err(FormatError::FlashTooSmall { needed_bytes, .. }) = Layout::plan(smallest) else {
            panic!("two areas of 64 GiB do not fit")
        };
        assert!(Layout::plan(LayoutRequest { flash_bytes: needed_bytes, ..smallest }).is_ok());
    }
}

#[test]
fn any_plan_is_a_plan_that_checks() {
    let mut random = Random::new(21);
    let (mut planned, mut bucketed) = (0, 0);
    for _ in 0..6000 {
        let mut request = LayoutRequest {
            flash_bytes: random.next() >> random.below(64),
            origin_bytes: random.next() >> random.below(64),
            chunk_bytes: 4096 << random.below(6),
            slot_bytes: (512 << 10) << random.below(4),
            sector_bytes: 512 << random.below(4),
            fp_entries_max: random.coin().then(|| random.u64()),
            mappings_max: random.coin().then(|| random.u64()),
            buckets: None,
            history: None,
        };
        if random.coin() {
            let subchunks_upper = (request.chunk_bytes / request.sector_bytes).min(BUCKET_SLOTS_MAX);
            request.slot_bytes = request.chunk_bytes >> random.below(u64::from(subchunks_upper.ilog2()) + 1);
            let least = request.chunk_bytes / request.slot_bytes;
            let bucket_slots = least + random.below(u64::from(BUCKET_SLOTS_MAX - least) + 1) as u32;
            let design_pages_max = random.below(DESIGN_PAGES_MAX + 1) >> random.below(25);
            request.buckets = Some(BucketRequest { bucket_slots, design_pages_max });
        } else if random.coin() {
            if random.coin() {
                request.slot_bytes = request.chunk_bytes;
            }
            let entries_max = random.next() >> random.below(64);
            let (bytes_per_chunk, bytes_per_mapping) = (random.below(3000), random.below(100));
            request.history =
                Some(HistoryRequest { bytes_per_chunk, bytes_per_mapping, entries_max, names_records: random.coin() });
        }
        match Layout::plan(request) {
            Ok(layout) => {
                planned += 1;
                assert_eq!(layout.check(), Ok(()), "{request:?}, seed {}", random.seed);
                assert!(layout.slot_count >= 7 && layout.log_bytes >= 256 << 10, "{request:?}");
                if let Some(buckets) = request.buckets {
                    bucketed += 1;
                    check_buckets(&layout);
                    let asked = (buckets.bucket_slots, buckets.design_pages_max);
                    assert_eq!((layout.bucket_slots, layout.design_pages_max), asked, "{request:?}");
                    continue;
                }
                assert_eq!((layout.region_offset, layout.bucket_slots), (0, 0));
                let history = request.history.map_or(0, |history| {
                    let chunks = u128::from(request.flash_bytes / u64::from(request.chunk_bytes));
                    let of = |entries: u128, bytes: u64| entries.min(history.entries_max.into()) * u128::from(bytes);
                    of(chunks, history.bytes_per_chunk) + of(layout.mappings_max.into(), history.bytes_per_mapping) + 1
                });
                let has_room = u128::from(layout.design_pages_max) * DESIGN_PAGE_BYTES_MAX as u128 >= history;
                assert!(has_room || layout.design_pages_max == DESIGN_PAGES_MAX, "{request:?} {layout:?}");
                assert_eq!(layout.design_pages_max > 0, request.history.is_some());
                let by_default =
                    request.mappings_max.is_none() && request.fp_entries_max.is_none() && request.history.is_none();
                if by_default && request.flash_bytes >= 1 << 30 {
                    assert!(metadata_bytes(&layout) * 8 <= layout.flash_bytes, "{request:?} {layout:?}");
                }
            }
            Err(FormatError::FlashTooSmall { needed_bytes, .. }) => {
                assert!(needed_bytes > request.flash_bytes, "{request:?}, seed {}", random.seed);
                let enough = LayoutRequest { flash_bytes: needed_bytes, ..request };
                assert!(Layout::plan(enough).is_ok(), "{request:?}, seed {}", random.seed);
            }
            Err(FormatError::FlashTooLarge { .. }) => {}
            Err(FormatError::OriginEmpty) => assert_eq!(request.origin_bytes, 0),
            Err(other) => panic!("{other}: {request:?}"),
        }
    }
    assert!(planned - bucketed > 500 && bucketed > 500, "only {planned} were planned, {bucketed} with buckets");
}

#[test]
fn a_layout_that_was_tampered_with_is_refused() {
    let good = Layout::plan(REQUEST).unwrap();
    let tampered = [
        Layout { chunk_bytes: 12_288, ..good },
        Layout { checkpoint_offset: [0, good.checkpoint_offset[1]], ..good },
        Layout { checkpoint_offset: [good.checkpoint_offset[1], good.checkpoint_offset[0]], ..good },
        Layout { checkpoint_area_bytes: u64::MAX - 4095, ..good },
        Layout { log_offset: good.log_offset + 512, ..good },
        Layout { log_bytes: u64::MAX - 4095, ..good },
        Layout { log_bytes: 4096, ..good },
        Layout { slots_offset: 0, ..good },
        Layout { slot_count: good.slot_count + 1, ..good },
        Layout { slot_count: u32::MAX, ..good },
        Layout { slot_count: 1, ..good },
        Layout { mappings_max: good.mappings_max + 100_000, ..good },
        Layout { mappings_max: u64::MAX, ..good },
        Layout { fp_entries_max: u64::MAX, fragments_max: u64::MAX, ..good },
        Layout { flash_bytes: 1 << 30, ..good },
    ];
    for layout in tampered {
        assert!(layout.check().is_err(), "{layout:?}");
    }
}

#[test]
fn a_layout_of_buckets_that_was_tampered_with_is_refused() {
    let good = Layout::plan(WITH_BUCKETS).unwrap();
    let tampered = [
        Layout { region_offset: 0, ..good },
        Layout { region_offset: good.region_offset + 512, ..good },
        Layout { region_offset: good.region_offset + 4096 * 16, ..good },
        Layout { region_offset: good.log_offset, ..good },
        Layout { region_offset: u64::MAX - 4095, ..good },
        Layout { bucket_slots: 0, ..good },
        Layout { bucket_slots: 3, ..good },
        Layout { bucket_slots: 127, ..good },
        Layout { bucket_slots: 256, ..good },
        Layout { slot_bytes: 2048, ..good },
        Layout { slot_bytes: 64 << 10, ..good },
        Layout { slots_offset: good.slots_offset - 4096, ..good },
        Layout { slots_offset: good.slots_offset - 8192, ..good },
        Layout { slot_count: 0, ..good },
        Layout { slot_count: good.slot_count - 1, ..good },
        Layout { slot_count: good.slot_count + 128, ..good },
        Layout { slot_count: u32::MAX - 127, ..good },
        Layout { fp_entries_max: 32, ..good },
        Layout { design_pages_max: good.design_pages_max + 1000, ..good },
        Layout { design_pages_max: u64::MAX, ..good },
    ];
    for layout in tampered {
        assert!(layout.check().is_err(), "{layout:?}");
    }
    // One bucket has the room of too few chunks. Fewer pages than there is room for are allowed.
    let chunk = Layout { bucket_slots: 4, slot_count: 24, ..good };
    assert!(chunk.check().is_err() && Layout { slot_count: 28, ..chunk }.check().is_ok());
    assert_eq!(Layout { design_pages_max: 0, ..good }.check(), Ok(()));
    // Buckets of a flash that has no region.
    let weus = Layout::plan(REQUEST).unwrap();
    let layout = Layout { bucket_slots: 128, ..weus };
    assert!(matches!(layout.check(), Err(FormatError::Invalid { .. })), "{layout:?}");
    // A history has room of its own: for each chunk, and for each mapping that there is room for.
    let slots = LayoutRequest { slot_bytes: REQUEST.chunk_bytes, ..REQUEST };
    for (request, bytes_per_chunk, bytes_per_mapping) in [(slots, 50, 0), (REQUEST, 1, 22)] {
        let history =
            Some(HistoryRequest { bytes_per_chunk, bytes_per_mapping, entries_max: u64::MAX, names_records: false });
        let without = Layout::plan(request).unwrap();
        let with = Layout::plan(LayoutRequest { history, ..request }).unwrap();
        let bytes = (8 << 20) * bytes_per_chunk + with.mappings_max * bytes_per_mapping;
        assert_eq!((without.design_pages_max, with.design_pages_max), (0, bytes / 4084 + 1));
        assert_eq!((with.check(), with.region_bytes()), (Ok(()), 0));
        let entries = |layout: &Layout| (layout.checkpoint_area_bytes / 4096, layout.mappings_max);
        assert!(entries(&with) > entries(&without) || with.mappings_max < without.mappings_max);
    }
}
