//! The division of a flash for caches over WEUs.
//!
//! A size in bytes is divided as in the engine, one in data chunks to the chunk. A flash that is
//! too small is refused with the least size that works, which then does.

use larder_core::{DesignConfig, Lba, nitro::Nitro, slotted::FlashSize};
use larder_format::{Layout, LayoutRequest, layout::ENTRIES_MIN};
use larder_sim::{
    cache::{ReplayCache, WritePolicy},
    executor::{
        Executor, ExecutorOptions,
        sizing::{Granularity, SECTOR_BYTES, WeuSizing},
    },
    replay::own_content,
};

const MIB: u64 = 1 << 20;

fn sizing(flash: FlashSize) -> WeuSizing {
    WeuSizing::new(flash, 8 << 10, WritePolicy::Through)
}

fn raw(flash: FlashSize, granularity: Granularity) -> WeuSizing {
    WeuSizing { compress: false, granularity, ..sizing(flash) }
}

fn cache(options: ExecutorOptions) -> Executor {
    Executor::new(|config: DesignConfig| Box::new(Nitro::new(config)), options).expect("what fits makes a cache")
}

/// Returns the number of chunks that hit again after `count` different ones were read once.
fn kept(options: ExecutorOptions, count: u64) -> u64 {
    let mut cache = cache(options);
    let content = |lba| own_content(Lba(lba), options.chunk_bytes);
    (0..count).for_each(|lba| {
        cache.read(Lba(lba), &content(lba));
    });
    cache.figures().live_chunks
}

#[test]
fn bytes_are_divided_as_the_engine_divides_them() {
    for (flash_mib, origin_mib) in [(16, None), (100, None), (2048, None), (100, Some(30)), (100, Some(100_000))] {
        let origin_bytes = origin_mib.map(|mib: u64| mib * MIB);
        let options = WeuSizing { origin_bytes, ..sizing(FlashSize::Bytes(flash_mib * MIB)) }.options().expect("fits");
        let layout = Layout::plan(LayoutRequest {
            flash_bytes: flash_mib * MIB,
            origin_bytes: origin_bytes.unwrap_or(1 << 50),
            chunk_bytes: 8 << 10,
            slot_bytes: 2 << 20,
            sector_bytes: SECTOR_BYTES,
            fp_entries_max: None,
            mappings_max: None,
            buckets: None,
            history: None,
        })
        .expect("a layout");
        // The result of the engine's `index_limits`.
        let is_whole = origin_bytes.is_some_and(|bytes| layout.mappings_max >= bytes / (8 << 10));
        let mappings = if is_whole { layout.mappings_max } else { layout.mappings_max - layout.mappings_max / 16 };
        assert_eq!((options.slot_count, options.log_bytes), (layout.slot_count, layout.log_bytes));
        assert_eq!((options.mappings_max, options.fp_entries_max), (mappings, layout.fp_entries_max));
        assert_eq!((options.rules.slot_bytes, options.zero_ranges_max), (2 << 20, layout.zero_ranges_max));
    }
}

#[test]
fn data_chunks_fit_to_the_chunk_and_metadata_comes_on_top() {
    // A WEU of 2 MiB has 64 chunks of 32 KiB: 16 of them have 1024. Around them are a sector with
    // the header and one with the table.
    let asked = WeuSizing { chunk_bytes: 32 << 10, compress: false, ..sizing(FlashSize::DataChunks(1024)) };
    let options = asked.options().expect("fits");
    assert_eq!((options.slot_count, options.rules.slot_bytes), (16, (2 << 20) + 2 * 4096));
    assert_eq!((options.mappings_max, options.fp_entries_max), (4096, 2048));
    assert_eq!(kept(options, 1024), 1024, "so many data chunks");
    assert_eq!(kept(options, 1025), 1025 - 64, "one more, and a WEU goes");
    // The largest WEU has no bits for more: it gives up chunks, and there are more WEUs.
    let large = WeuSizing { weu_bytes: 4 << 20, chunk_bytes: 4096, ..asked };
    let options = WeuSizing { flash: FlashSize::DataChunks(10_000), ..large }.options().expect("fits");
    assert_eq!((options.rules.slot_bytes, options.slot_count), (4 << 20, 10));
    assert!(kept(options, 10_000) == 10_000);
    let options = WeuSizing { lba_entries: Some(1500), ..asked }.options().expect("fits");
    assert_eq!(options.mappings_max, 1500);
}

#[test]
fn extents_are_the_data_area_of_weus_in_slots_of_a_chunk() {
    let weus = raw(FlashSize::Bytes(100 * MIB), Granularity::Weu).options().expect("fits");
    let extents = raw(FlashSize::Bytes(100 * MIB), Granularity::Extent).options().expect("fits");
    assert_eq!(extents.slot_count, weus.slot_count * 256);
    assert_eq!((extents.mappings_max, extents.log_bytes), (weus.mappings_max, weus.log_bytes));
    let extents = raw(FlashSize::DataChunks(700), Granularity::Extent).options().expect("fits");
    assert_eq!((extents.slot_count, extents.rules.slot_bytes), (700, 8 << 10));
    // The least recent chunk goes, and no other.
    assert_eq!((kept(extents, 700), kept(extents, 701), kept(extents, 2000)), (700, 700, 700));
}

#[test]
fn extents_write_their_bytes_and_log_entries_in_whole_frames() {
    let options = raw(FlashSize::DataChunks(700), Granularity::Extent).options().expect("fits");
    let mut cache = cache(options);
    (0..1024).for_each(|lba| {
        cache.read(Lba(lba), &own_content(Lba(lba), 8 << 10));
    });
    let traffic = cache.traffic();
    // The last one is written when the next one comes.
    assert_eq!(traffic.flash_data_bytes_written, 1023 * (8 << 10));
    // 1023 mappings and 324 freed slots: five frames of 256 entries and a header each, none yet for
    // the rest.
    assert_eq!(traffic.flash_metadata_bytes_written, 5 * (256 * 64 + 4096));
    let before = cache.traffic().flash_metadata_bytes_written;
    cache.write(Lba(1000), &own_content(Lba(1000), 8 << 10));
    assert!(cache.traffic().flash_metadata_bytes_written > before, "before the origin is written, that is durable");
}

#[test]
fn the_fp_index_has_a_ratio_of_its_entries() {
    for flash in [FlashSize::Bytes(100 * MIB), FlashSize::DataChunks(5000)] {
        let full = sizing(flash).options().expect("fits").fp_entries_max;
        for percent in [0, 1, 25, 50, 75, 100] {
            let options = WeuSizing { fp_index_percent: percent, ..sizing(flash) }.options().expect("fits");
            assert_eq!(options.fp_entries_max, full * u64::from(percent) / 100);
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_with_what_does() {
    let refused = |sizing: WeuSizing| sizing.options().expect_err("refused");
    // The least of each refusal is accepted.
    let error = refused(sizing(FlashSize::Bytes(15 * MIB)));
    assert!(error.contains("a flash of 15M is too small; 16M is the least"), "{error}");
    assert!(sizing(FlashSize::Bytes(16 * MIB)).options().is_ok());
    let error = refused(sizing(FlashSize::DataChunks(512)));
    assert!(error.contains("513 are the least"), "{error}");
    cache(sizing(FlashSize::DataChunks(513)).options().expect("the least"));
    let error = refused(raw(FlashSize::DataChunks(2), Granularity::Extent));
    assert!(error.contains("3 are the least"), "{error}");
    cache(raw(FlashSize::DataChunks(3), Granularity::Extent).options().expect("the least"));
    let entries = |lba_entries| WeuSizing { lba_entries: Some(lba_entries), ..sizing(FlashSize::DataChunks(5000)) };
    let error = refused(entries(7));
    let least: u64 = error.split_whitespace().rev().nth(3).and_then(|word| word.parse().ok()).expect("a number");
    assert!(least >= ENTRIES_MIN && entries(least - 1).options().is_err(), "{error}");
    cache(entries(least).options().expect("the least"));
    let of_bytes = |lba_entries| WeuSizing { lba_entries: Some(lba_entries), ..sizing(FlashSize::Bytes(16 * MIB)) };
    let error = refused(of_bytes(1 << 24));
    assert!(error.contains("is the least"), "{error}");
    let error = refused(of_bytes(80_000));
    let most: u64 = error.split_whitespace().rev().nth(3).and_then(|word| word.parse().ok()).expect("a number");
    assert!(error.contains("are the most") && of_bytes(most).options().is_ok(), "{error}");
    let error = refused(WeuSizing { granularity: Granularity::Extent, ..sizing(FlashSize::DataChunks(5000)) });
    assert!(error.contains("not compressed"), "{error}");
    let error = refused(WeuSizing { fp_index_percent: 101, ..sizing(FlashSize::DataChunks(5000)) });
    assert!(error.contains("0 to 100"), "{error}");
    for (chunk_bytes, weu_bytes) in [(0, 2 << 20), (5000, 2 << 20), (256 << 10, 2 << 20), (8192, 0), (8192, 8 << 20)] {
        for flash in [FlashSize::Bytes(100 * MIB), FlashSize::DataChunks(5000)] {
            let error = refused(WeuSizing { chunk_bytes, weu_bytes, ..sizing(flash) });
            assert!(error.contains("size must be a power of two"), "{error}");
        }
    }
    for absurd in
        [FlashSize::Bytes(0), FlashSize::Bytes(u64::MAX), FlashSize::DataChunks(0), FlashSize::DataChunks(u64::MAX)]
    {
        refused(sizing(absurd));
        refused(raw(absurd, Granularity::Extent));
    }
    refused(WeuSizing { lba_entries: Some(u64::MAX), ..sizing(FlashSize::DataChunks(5000)) });
}
