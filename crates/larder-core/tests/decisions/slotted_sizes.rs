//! The capacity of a flash under each design with equal slots, and refused sizes.

use larder_core::{
    arc::Arc,
    d_arc::DArc,
    d_lru::DLru,
    lru::Lru,
    slotted::{FlashSize, METADATA_PAGE_BYTES, SizeError, SizeErrorKind, Sizes, Slotted},
};

type ForFlash = fn(FlashSize, u32) -> Result<Sizes, SizeError>;

const SIZED: [(&str, ForFlash); 4] = [
    ("lru", |flash, chunk_bytes| Lru::for_flash(flash, chunk_bytes).map(|design| design.sizes())),
    ("arc", |flash, chunk_bytes| Arc::for_flash(flash, chunk_bytes).map(|design| design.sizes())),
    ("d-lru", |flash, chunk_bytes| DLru::for_flash(flash, chunk_bytes).map(|design| design.sizes())),
    ("d-arc", |flash, chunk_bytes| DArc::for_flash(flash, chunk_bytes).map(|design| design.sizes())),
];

#[test]
fn data_and_metadata_share_the_flash() {
    for (name, for_flash) in SIZED {
        for chunk_bytes in [512, 4096, 32 << 10, 128 << 10] {
            for flash_bytes in [1 << 20, 11_000_000_000, 123_456_789] {
                let sizes = for_flash(FlashSize::Bytes(flash_bytes), chunk_bytes).unwrap();
                let bytes = sizes.data_chunks * u64::from(chunk_bytes) + sizes.metadata_bytes;
                assert!(bytes <= flash_bytes, "{name}: {sizes:?}");
                // The metadata of one more chunk may begin a page.
                assert!(bytes + 2 * u64::from(chunk_bytes) + METADATA_PAGE_BYTES > flash_bytes, "{name}: {sizes:?}");
                assert_eq!(sizes.metadata_bytes % METADATA_PAGE_BYTES, 0);
                let on_top = for_flash(FlashSize::DataChunks(sizes.data_chunks), chunk_bytes).unwrap();
                assert_eq!(on_top, sizes, "{name}: the same chunks, with metadata on top");
            }
        }
    }
}

/// The metadata of 11 GB in chunks of 4 KiB: 129 MB for D-LRU at least (CacheDedup §5.4), or 2%
/// more.
#[test]
fn the_minimum_and_two_percent() {
    let d_lru = DLru::for_flash(FlashSize::Bytes(11_000_000_000), 4096).unwrap().sizes();
    let minimum_bytes = d_lru.data_chunks * 2 * u64::from(d_lru.entry_bytes);
    assert!((minimum_bytes as f64 / 129e6 - 1.0).abs() < 0.04, "{minimum_bytes}");
    let d_arc = DArc::for_flash(FlashSize::Bytes(11_000_000_000), 4096).unwrap().sizes();
    for (sizes, least_entries) in [(d_lru, 2), (d_arc, 3)] {
        let data_bytes = (sizes.data_chunks * 4096) as f64;
        let extra = sizes.metadata_bytes - least_entries * sizes.data_chunks * u64::from(sizes.entry_bytes);
        assert!((extra as f64 / data_bytes - 0.02).abs() < 1e-5, "{extra} of {data_bytes}");
    }
    assert!(d_lru.addresses > d_lru.data_chunks && d_arc.addresses > 2 * d_arc.data_chunks);
    let given = DLru::for_flash(FlashSize::DataChunks(5000), 4096).unwrap().sizes();
    assert_eq!((given.data_chunks, given.addresses), (5000, 5000 + 5000 * 4096 / 50 / 24));
}

#[test]
fn a_cache_too_small_is_refused_with_the_least_that_works() {
    for (name, for_flash) in SIZED {
        for chunk_bytes in [512, 4096, 128 << 10] {
            let error = for_flash(FlashSize::Bytes(0), chunk_bytes).unwrap_err();
            let SizeErrorKind::FlashBytes { given: 0, least } = error.kind else { panic!("{error}") };
            assert_eq!(error.design, name);
            assert_eq!(for_flash(FlashSize::Bytes(least), chunk_bytes).unwrap().data_chunks, 1, "{name}");
            let error = for_flash(FlashSize::Bytes(least - 1), chunk_bytes).unwrap_err();
            assert_eq!(error.kind, SizeErrorKind::FlashBytes { given: least - 1, least });
            let error = for_flash(FlashSize::DataChunks(0), chunk_bytes).unwrap_err();
            assert_eq!(error.kind, SizeErrorKind::DataChunks { given: 0, least: 1 });
            for absurd in [FlashSize::Bytes(u64::MAX), FlashSize::DataChunks(u64::MAX)] {
                let error = for_flash(absurd, 512).unwrap_err();
                assert!(matches!(error.kind, SizeErrorKind::TooMany { .. }), "{error}");
            }
        }
    }
}

#[test]
fn explicit_sizes_are_checked() {
    let errors = [
        (Lru::new(0).err(), "lru: 0 data chunks are too few; 1 is the least"),
        (Arc::new(0).err(), "arc: 0 data chunks are too few; 1 is the least"),
        (DLru::new(0, 5).err(), "d-lru: 0 data chunks are too few; 1 is the least"),
        (DLru::new(6, 5).err(), "d-lru: 5 metadata entries are too few for its data chunks; 6 are the least"),
        (DArc::new(0, 5).err(), "d-arc: 0 data chunks are too few; 1 is the least"),
    ];
    for (error, expected) in errors {
        assert_eq!(error.map(|error| error.to_string()).as_deref(), Some(expected));
    }
    for too_many in [1 << 32, u64::MAX] {
        let errors = [
            Lru::new(too_many).err(),
            Arc::new(too_many).err(),
            DLru::new(1, too_many).err(),
            DLru::new(too_many, too_many).err(),
            DArc::new(1, too_many).err(),
            DArc::new(too_many, too_many).err(),
        ];
        for error in errors {
            assert!(matches!(error.unwrap().kind, SizeErrorKind::TooMany { .. }), "{error:?}");
        }
    }
}
