//! Embedding the cache over a flash file and an origin file, each made if it is missing.
//!
//! Run it with `cargo run --example files -- NEW_FLASH ORIGIN`: it overwrites the flash. It does
//! not serve clients; `Cache` is a `BlockDevice` for any front end.

use larder_device::{
    BlockDevice,
    driver::block_on,
    file::{FileDevice, OpenOptions},
    threads::{ThreadRuntime, ThreadRuntimeOptions},
};
use larder_engine::{Cache, CreateOptions, Tuning, create};
use std::{env, error::Error, fs::File, io::Read, sync::Arc};

/// Returns random bytes for the cache's identity and for the key of its fingerprints.
fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn main() -> Result<(), Box<dyn Error>> {
    let paths: Vec<String> = env::args().skip(1).collect();
    let [flash, origin] = &paths[..] else { return Err("usage: files NEW_FLASH ORIGIN".into()) };
    let sized =
        |gib: u64| OpenOptions { direct: true, exclusive: true, create_bytes: Some(gib << 30), ..Default::default() };
    let flash = Arc::new(FileDevice::open(flash, sized(1))?);
    let origin = Arc::new(FileDevice::open(origin, sized(8))?);

    // Once for each flash: its content is overwritten.
    let options = CreateOptions { flash_uuid: random()?, hash_key: random()?, ..CreateOptions::default() };
    block_on(create(&*flash, origin.info().size_bytes, &options))?;

    // Each time: it recovers after a clean end and a crash alike.
    let runtime = ThreadRuntime::new(ThreadRuntimeOptions::default());
    let cache = block_on(Cache::open(flash, origin, runtime.clone(), Tuning::default()))?;
    cache.write_at(4096, &[7; 4096])?;
    cache.flush_blocking()?;
    let mut back = [0; 4096];
    cache.read_at(4096, &mut back)?;
    assert_eq!(back, [7; 4096], "a read returns the newest completed write");
    println!("{} bytes are dirty", cache.status().dirty_bytes);
    cache.close_blocking()?;
    runtime.shutdown();
    Ok(())
}
