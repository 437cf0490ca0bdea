//! A RAM budget bounds what the indices allocate, and costs hits, never data.

use larder_device::{
    BlockDevice, IoBuf, WriteFlags,
    sim::{SimDevice, SimRuntime},
};
use larder_engine::{
    Cache, Compression, CreateOptions, Tuning, create,
    designs::{self, EngineDesign},
};

const CHUNK: usize = 4096;
const CHUNKS: u64 = 20_000;

fn content(lba: u64) -> Vec<u8> {
    (0..CHUNK as u64 / 8).flat_map(|i| larder_device::rng::mix64(lba << 20 | i).to_le_bytes()).collect()
}

#[test]
fn the_indices_stay_within_their_budget() {
    for design in designs::DESIGNS {
        stay_within_the_budget(design);
    }
}

fn stay_within_the_budget(design: &EngineDesign) {
    let runtime = SimRuntime::timed(1);
    let flash = SimDevice::new(&runtime, "flash", 128 << 20, 512);
    let origin = SimDevice::new(&runtime, "origin", CHUNKS * CHUNK as u64, 512);
    let budget = 1 << 20;
    let options = CreateOptions {
        design: design.id,
        chunk_bytes: CHUNK as u32,
        compression: Compression::Off,
        ram_budget_bytes: budget,
        flash_uuid: [1; 16],
        hash_key: [2; 32],
        origin_uri: "sim:origin".into(),
        ..CreateOptions::default()
    };
    runtime.block_on(async {
        create(&*flash, origin.info().size_bytes, &options).await.expect("it works");
        let cache =
            Cache::open(flash.clone(), origin.clone(), runtime.clone(), Tuning::default()).await.expect("it works");
        for lba in 0..CHUNKS {
            let data = IoBuf::copy_of(&content(lba)).freeze();
            cache.write(lba * CHUNK as u64, data, WriteFlags::default()).await.expect("it works");
        }
        let status = cache.status();
        let indices = status.lba_index_ram_bytes + status.fp_index_ram_bytes;
        assert_eq!(status.design, design.name);
        assert!(indices <= budget, "{}: {indices} bytes of a budget of {budget}", design.name);
        let cached = status.logical_bytes_cached / CHUNK as u64;
        let affordable = budget / design.index_bytes_max;
        assert!(cached > affordable / 2, "{}: {cached} chunks, where {affordable} are affordable", design.name);
        for lba in 0..CHUNKS {
            let read = cache.read(lba * CHUNK as u64, IoBuf::new(CHUNK)).await.expect("it works");
            assert!(read[..] == content(lba)[..], "chunk {lba}");
        }
        cache.close().await.expect("it works");
    });
    runtime.kill();
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
