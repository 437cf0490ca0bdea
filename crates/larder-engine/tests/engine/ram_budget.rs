//! A RAM budget bounds the memory of the indices, and costs hits, never data.

use crate::common::{KIB, Setup, World};
use larder_device::{
    BlockDevice, IoBuf, WriteFlags, ZeroFlags,
    sim::{SimDevice, SimRuntime},
};
use larder_engine::{
    Cache, Compression, CreateOptions, Tuning, WriteMode, create,
    create::plan,
    designs::{self, EngineDesign},
};
use larder_format::StoreKind;

const CHUNK: usize = 4096;
const CHUNKS: u64 = 20_000;

fn content(lba: u64) -> Vec<u8> {
    (0..CHUNK as u64 / 8).flat_map(|i| larder_device::rng::mix64(lba << 20 | i).to_le_bytes()).collect()
}

/// AustereCache's indices exist from the beginning.
///
/// They and the memory of the region have half of the budget, for any slot size, and use most of
/// it.
#[test]
fn indices_of_buckets_have_half_of_their_budget() {
    let design = designs::named("austere").expect("it is known");
    for budget in [1u64 << 20, 3 << 20, 32 << 20] {
        for (chunk_bytes, compression) in [4096, 8192, 16384, 32768]
            .iter()
            .flat_map(|&chunk| [Compression::Off, Compression::Lz4].map(|compression| (chunk, compression)))
        {
            let runtime = SimRuntime::timed(1);
            let flash = SimDevice::new(&runtime, "flash", 64 << 30, 512);
            let origin = SimDevice::new(&runtime, "origin", 128 << 30, 512);
            let mut options = CreateOptions {
                chunk_bytes,
                compression,
                mode: WriteMode::Through,
                ram_budget_bytes: budget,
                flash_uuid: [1; 16],
                hash_key: [2; 32],
                origin_uri: "sim:origin".into(),
                ..CreateOptions::default()
            };
            design.fit(&mut options);
            runtime.block_on(async {
                let made = create(&*flash, origin.info().size_bytes, &options).await.expect("it works");
                let tuning = Tuning { prefetch_bytes_max: 0, ..Tuning::default() };
                let cache =
                    Cache::open(flash.clone(), origin.clone(), runtime.clone(), tuning).await.expect("it works");
                for lba in 0..600 {
                    let data = IoBuf::copy_of(&content(lba).repeat(chunk_bytes as usize / CHUNK)).freeze();
                    cache.write(lba * u64::from(chunk_bytes), data, WriteFlags::default()).await.expect("it works");
                    cache.wait_for_insertions().await;
                }
                let status = cache.status();
                let bytes = status.index_ram_bytes - status.dirty_list_ram_bytes;
                let slots = u64::from(made.layout.slot_count);
                let what = format!("{chunk_bytes}, {compression:?}: {bytes} bytes of {budget} for {slots} slots");
                println!("{what}, {:.1} bytes a slot", bytes as f64 / slots as f64);
                assert!((budget / 8..=budget / 2).contains(&bytes), "{what}");
            });
            runtime.kill();
        }
    }
}

#[test]
fn the_indices_stay_within_their_budget() {
    for design in designs::ENGINE_DESIGNS {
        stay_within_the_budget(design);
    }
}

fn stay_within_the_budget(design: &EngineDesign) {
    let runtime = SimRuntime::timed(1);
    let flash = SimDevice::new(&runtime, "flash", 128 << 20, 512);
    let origin = SimDevice::new(&runtime, "origin", CHUNKS * CHUNK as u64, 512);
    let budget = 1 << 20;
    let mut options = CreateOptions {
        design: design.id,
        chunk_bytes: CHUNK as u32,
        compression: Compression::Off,
        ram_budget_bytes: budget,
        flash_uuid: [1; 16],
        hash_key: [2; 32],
        origin_uri: "sim:origin".into(),
        ..CreateOptions::default()
    };
    design.fit(&mut options);
    runtime.block_on(async {
        let made = create(&*flash, origin.info().size_bytes, &options).await.expect("it works");
        let cache =
            Cache::open(flash.clone(), origin.clone(), runtime.clone(), Tuning::default()).await.expect("it works");
        assert!(cache.status().index_ram_bytes <= budget, "{}: {} bytes", design.name, cache.status().index_ram_bytes);
        for lba in 0..CHUNKS {
            let data = IoBuf::copy_of(&content(lba)).freeze();
            cache.write(lba * CHUNK as u64, data, WriteFlags::default()).await.expect("it works");
        }
        let status = cache.status();
        let indices = status.lba_index_ram_bytes + status.fp_index_ram_bytes + status.dirty_list_ram_bytes;
        assert!(status.dirty_bytes > 0 && status.dirty_list_ram_bytes > status.dirty_bytes / CHUNK as u64 * 16);
        assert_eq!(status.index_ram_bytes, indices + status.slot_table_ram_bytes);
        assert_eq!(status.design, design.name);
        assert!(status.index_ram_bytes <= budget, "{}: {} bytes", design.name, status.index_ram_bytes);
        let cached = status.logical_bytes_cached / CHUNK as u64;
        // The budget affords a slot of one chunk with all addresses that may share it.
        let entries = budget / design.index_bytes_max(CHUNK as u32);
        let affordable = if design.kind() == StoreKind::Slots { made.layout.slot_count.into() } else { entries };
        println!("{}: {} bytes of {budget}, {cached} chunks of {affordable}", design.name, status.index_ram_bytes);
        assert!(cached > affordable / 2, "{}: {cached} chunks, where {affordable} are affordable", design.name);
        for lba in 0..CHUNKS {
            let read = cache.read(lba * CHUNK as u64, IoBuf::new(CHUNK)).await.expect("it works");
            assert!(read[..] == content(lba)[..], "chunk {lba}");
        }
        cache.close().await.expect("it works");
    });
    runtime.kill();
}

/// Fragments, and runs that are trimmed one by one: the budget bounds both.
///
/// No request is turned away.
#[test]
fn fragments_and_trimmed_runs_stay_within_their_budget() {
    for design in designs::ENGINE_DESIGNS {
        let runtime = SimRuntime::timed(1);
        // A flash that itself would hold many more.
        let flash = SimDevice::new(&runtime, "flash", 512 << 20, 512);
        let origin = SimDevice::new(&runtime, "origin", 16 * CHUNKS * CHUNK as u64, 512);
        let budget = 1 << 20;
        let mut options = CreateOptions {
            design: design.id,
            chunk_bytes: CHUNK as u32,
            ram_budget_bytes: budget,
            flash_uuid: [1; 16],
            hash_key: [2; 32],
            origin_uri: "sim:origin".into(),
            ..CreateOptions::default()
        };
        design.fit(&mut options);
        runtime.block_on(async {
            let made = create(&*flash, origin.info().size_bytes, &options).await.expect("it works");
            let cache =
                Cache::open(flash.clone(), origin.clone(), runtime.clone(), Tuning::default()).await.expect("it works");
            let mut most = (0, 0);
            for number in 0..CHUNKS {
                let at = number % (CHUNKS / 2) * 3 * CHUNK as u64;
                if number < CHUNKS / 2 {
                    let part = IoBuf::copy_of(&content(number)[..512]).freeze();
                    cache.write(at, part, WriteFlags::default()).await.expect("it works");
                } else {
                    let flags = ZeroFlags::default();
                    cache.write_zeroes(at + CHUNK as u64, CHUNK as u64, flags).await.expect("it works");
                }
                let status = cache.status();
                most = (most.0.max(status.dirty_bytes), most.1.max(status.trimmed_bytes));
                let indices = status.lba_index_ram_bytes + status.fp_index_ram_bytes + status.dirty_list_ram_bytes;
                assert!(indices <= budget, "{}: {indices} bytes of a budget of {budget}", design.name);
            }
            let affordable = budget / design.index_bytes_max(CHUNK as u32);
            let (fragments, runs) = (most.0 / CHUNK as u64, most.1 / CHUNK as u64);
            // Each takes a slot if slots have one record, and shares it with no other.
            let slots = if design.kind() == StoreKind::Slots { made.layout.slot_count.into() } else { u64::MAX };
            let least = (affordable / 8).min(slots / 2);
            assert!((least..=affordable / 4).contains(&fragments), "{}: {fragments} fragments", design.name);
            assert!((affordable / 64..=affordable / 16).contains(&runs), "{}: {runs} runs", design.name);
            cache.close().await.expect("it works");
        });
        runtime.kill();
    }
}

/// Addresses that share a few contents: a budget leaves fewer slots, each with all its addresses.
///
/// The design decides their number. None of them is turned away for want of a mapping.
#[test]
fn a_budget_has_room_for_all_addresses_of_the_slots_that_it_leaves() {
    for design in
        designs::ENGINE_DESIGNS.iter().filter(|design| design.kind() == StoreKind::Slots && design.can_share())
    {
        let runtime = SimRuntime::timed(1);
        let flash = SimDevice::new(&runtime, "flash", 128 << 20, 512);
        let origin = SimDevice::new(&runtime, "origin", CHUNKS * CHUNK as u64, 512);
        let (mode, ram_budget_bytes) = (WriteMode::Through, 1 << 20);
        let mut options = CreateOptions { mode, ram_budget_bytes, hash_key: [2; 32], ..CreateOptions::default() };
        design.fit(&mut options);
        options.chunk_bytes = CHUNK as u32;
        options.slot_bytes = CHUNK as u32;
        runtime.block_on(async {
            create(&*flash, origin.info().size_bytes, &options).await.expect("it works");
            let tuning = Tuning { prefetch_bytes_max: 0, ..Tuning::default() };
            let cache = Cache::open(flash.clone(), origin.clone(), runtime.clone(), tuning).await.expect("it works");
            for lba in 0..CHUNKS {
                let data = IoBuf::copy_of(&content(lba % 3)).freeze();
                cache.write(lba * CHUNK as u64, data, WriteFlags::default()).await.expect("it works");
                cache.wait_for_insertions().await;
                let counts = cache.status().counts;
                let inserted = counts.stored_records + counts.duplicate_chunks;
                assert_eq!(
                    (counts.stored_records.min(3), inserted),
                    (3.min(lba + 1), lba + 1),
                    "{}: {lba}",
                    design.name
                );
            }
            let status = cache.status();
            println!("{}: {} bytes of {ram_budget_bytes}", design.name, status.index_ram_bytes);
            assert!(status.index_ram_bytes <= ram_budget_bytes, "{}: {} bytes", design.name, status.index_ram_bytes);
            cache.close().await.expect("it works");
        });
        runtime.kill();
    }
}

#[test]
fn a_budget_too_small_for_an_index_is_refused() {
    let runtime = SimRuntime::timed(1);
    let flash = SimDevice::new(&runtime, "flash", 16 << 20, 512);
    let options = CreateOptions { ram_budget_bytes: 4096, ..CreateOptions::default() };
    let error = runtime.block_on(create(&*flash, 64 << 20, &options)).unwrap_err().to_string();
    assert!(error.contains("4096") && error.contains("1M"), "{error}");
    assert_eq!(flash.counters().writes, 0, "nothing was changed");
    runtime.kill();
}

/// A budget of the flash's size, or more, is as none: it affords more slots than there can be.
#[test]
fn a_generous_budget_leaves_the_flash_as_it_is() {
    let layout = |design: &EngineDesign, ram_budget_bytes| {
        let mut options = CreateOptions { ram_budget_bytes, ..CreateOptions::default() };
        design.fit(&mut options);
        plan(64 << 20, 4096, 256 << 20, &options).expect("it fits").layout
    };
    for design in designs::ENGINE_DESIGNS {
        let without = layout(design, 0);
        for budget in [64u64, 256, 1024, 1 << 20].map(|mebibytes| mebibytes << 20) {
            assert_eq!(layout(design, budget), without, "{} with {budget} bytes", design.name);
        }
    }
}

/// Zeroed parts of chunks have a limit of their own beside the budget.
#[test]
fn zeroed_parts_of_chunks_are_counted_and_bounded() {
    let world = World::new(1, Setup::default());
    assert_eq!(world.status().zeroed_parts_ram_bytes, 0);
    let zero = |lba: u64| world.zero(lba * 8 * KIB, 512, ZeroFlags { no_hole: true, ..ZeroFlags::default() });
    zero(0);
    let one = world.status().zeroed_parts_ram_bytes;
    assert!((72..=1024).contains(&one), "{one} bytes of one chunk");
    (1..4500).for_each(zero);
    let all = world.status().zeroed_parts_ram_bytes;
    assert!(all > one && all <= 4096 * one, "{all} bytes");
}
