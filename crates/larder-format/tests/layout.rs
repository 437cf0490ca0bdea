//! Flashes of all sizes are divided as the format demands.

mod common;

use common::Random;
use larder_format::layout::*;
use larder_format::*;

const REQUEST: LayoutRequest = LayoutRequest {
    flash_bytes: 64 << 30,
    origin_bytes: 4 << 40,
    chunk_bytes: 8192,
    weu_bytes: 2 << 20,
    sector_bytes: 4096,
    fp_entries_max: None,
    mappings_max: None,
};

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
    assert_eq!(layout.slot_offset(0), Some(layout.weu_offset));
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
        let tiny = LayoutRequest { flash_bytes: 4 << 20, weu_bytes: 512 << 10, chunk_bytes, ..REQUEST };
        let layout = Layout::plan(tiny).unwrap();
        assert_eq!(layout.check(), Ok(()));
        assert_eq!((layout.slot_count, layout.weu_offset), (7, 512 << 10));
        assert!(layout.log_bytes >= 256 << 10);
        assert!(layout.mappings_max >= 128, "{chunk_bytes}: {}", layout.mappings_max);
        assert_eq!(layout.frame_bytes_max(), layout.log_bytes / 4);
    }
}

#[test]
fn a_flash_too_small_says_how_much_would_do() {
    for (weu_bytes, chunk_bytes) in [(512 << 10, 4096), (2 << 20, 8192), (4 << 20, 131_072)] {
        let too_small = LayoutRequest { flash_bytes: 1 << 20, weu_bytes, chunk_bytes, ..REQUEST };
        let Err(FormatError::FlashTooSmall { flash_bytes, needed_bytes }) = Layout::plan(too_small) else {
            panic!("1 MiB is too small")
        };
        assert_eq!((flash_bytes, needed_bytes), (1 << 20, 8 * u64::from(weu_bytes)));
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
        refused(LayoutRequest { weu_bytes: 3 << 20, ..REQUEST }),
        "the WEU size must be a power of two from 512 KiB to 4 MiB, not 3145728 bytes"
    );
    assert_eq!(
        refused(LayoutRequest { sector_bytes: 8192, ..REQUEST }),
        "the sector size must be a power of two from 512 to 4096 bytes, not 8192"
    );
    assert_eq!(refused(LayoutRequest { origin_bytes: 0, ..REQUEST }), "the origin is empty");
    let sentence = refused(LayoutRequest { flash_bytes: u64::MAX, ..REQUEST });
    assert!(sentence.contains("use a larger WEU size"), "{sentence}");
}

#[test]
fn any_plan_is_a_plan_that_checks() {
    let mut random = Random::new(21);
    let mut planned = 0;
    for _ in 0..3000 {
        let request = LayoutRequest {
            flash_bytes: random.next() >> random.below(64),
            origin_bytes: random.next() >> random.below(64),
            chunk_bytes: 4096 << random.below(6),
            weu_bytes: (512 << 10) << random.below(4),
            sector_bytes: 512 << random.below(4),
            fp_entries_max: random.coin().then(|| random.u64()),
            mappings_max: random.coin().then(|| random.u64()),
        };
        match Layout::plan(request) {
            Ok(layout) => {
                planned += 1;
                assert_eq!(layout.check(), Ok(()), "{request:?}, seed {}", random.seed);
                assert!(layout.slot_count >= 7 && layout.log_bytes >= 256 << 10, "{request:?}");
                let by_default = request.mappings_max.is_none() && request.fp_entries_max.is_none();
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
    assert!(planned > 500, "only {planned} were planned");
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
        Layout { weu_offset: 0, ..good },
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
