//! Embedding the cache behind a front end of one's own: a flash of 64 MiB before a volume of 1 GiB.
//! Both are in memory, and used through the blocking interface.
//!
//! Run it with `cargo run --example embed`. It does not keep anything; `larder_device::file` opens
//! real devices.

use larder_device::{
    driver::block_on,
    ram::RamDevice,
    threads::{ThreadRuntime, ThreadRuntimeOptions},
};
use larder_engine::{Cache, CreateOptions, Tuning, create};
use std::{error::Error, sync::Arc};

const CHUNK_BYTES: usize = 8 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let flash = Arc::new(RamDevice::new("flash", 64 << 20, 512));
    let origin = Arc::new(RamDevice::new("origin", 1 << 30, 512));
    let runtime = ThreadRuntime::new(ThreadRuntimeOptions::default());

    // Once for each flash. A real embedder draws the identity and the key at random.
    let options = CreateOptions {
        name: "example".into(),
        origin_uri: "ram:".into(),
        flash_uuid: *b"embedding-a-flsh",
        hash_key: [42; 32],
        ..CreateOptions::default()
    };
    block_on(create(&*flash, 1 << 30, &options))?;

    // Once for each use.
    let cache = block_on(Cache::open(flash.clone(), origin.clone(), runtime.clone(), Tuning::default()))?;
    let page = vec![b'x'; CHUNK_BYTES];
    for copy in 0..100 {
        cache.write_at(copy * CHUNK_BYTES as u64, &page)?;
    }
    // A part of a chunk, without a read of the origin.
    cache.write_at(512 << 20, b"Larder! ".repeat(64).as_slice())?;
    cache.trim(0, CHUNK_BYTES as u64)?;
    cache.flush_blocking()?;

    let mut back = vec![0; CHUNK_BYTES];
    cache.read_at(CHUNK_BYTES as u64, &mut back)?;
    assert_eq!(back, page);
    cache.read_at(0, &mut back)?;
    assert!(back.iter().all(|&byte| byte == 0), "a trimmed range reads as zeroes");

    let status = cache.status();
    println!("{} of logical data in {} of flash", status.logical_bytes_cached, status.counts.stored_bytes);
    println!("deduplication {:.1}, hit ratio {:.2}", status.dedup_ratio, status.read_hit_ratio);
    cache.close_blocking()?;
    Ok(())
}
