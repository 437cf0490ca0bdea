//! A write is decided in its turn, and changes AustereCache's LBA index after the lock of the
//! state. The index is under its bucket's lock then.

use super::*;
use crate::{CreateOptions, Tuning, cache::Cache, create, designs::layout_of};
use larder_core::{
    Lba, Lookup, NewMapping,
    austere::{Austere, AustereConfig},
};
use larder_device::{
    Runtime,
    driver::block_on,
    ram::RamDevice,
    threads::{ThreadRuntime, ThreadRuntimeOptions},
};
use std::{
    sync::{atomic::AtomicBool, mpsc},
    thread,
    time::Duration,
};

const MIB: u64 = 1 << 20;
const CHUNK: usize = 8 << 10;
/// Chunks of the volume.
pub(crate) const CHUNKS: u64 = 4096;

/// Returns content `number` of the tests, which shrinks.
pub(crate) fn chunk(number: u64) -> Vec<u8> {
    let mut chunk = vec![0; CHUNK];
    chunk[..8].copy_from_slice(&number.to_le_bytes());
    chunk
}

/// Writes content `number` as chunk `lba`.
pub(crate) fn write(cache: &Cache, lba: Lba, number: u64) {
    cache.write_at(lba.0 * CHUNK as u64, &chunk(number)).expect("written");
}

/// Reads the content of chunk `lba`.
pub(crate) fn read(cache: &Cache, lba: Lba) -> Vec<u8> {
    let mut read = vec![0; CHUNK];
    cache.read_at(lba.0 * CHUNK as u64, &mut read).expect("read");
    read
}

/// Makes an empty cache of austere, and empty indices of the same layout, for the places of keys.
pub(crate) fn austere() -> (Cache, Arc<ThreadRuntime>, Austere) {
    let flash = Arc::new(RamDevice::new("flash", 40 * MIB, 512));
    let origin = Arc::new(RamDevice::new("origin", CHUNKS * CHUNK as u64, 512));
    let mut options = CreateOptions { flash_uuid: [7; 16], hash_key: [9; 32], ..CreateOptions::default() };
    crate::designs::named("austere").expect("austere").fit(&mut options);
    block_on(create(&*flash, CHUNKS * CHUNK as u64, &options)).expect("created");
    let runtime = ThreadRuntime::new(ThreadRuntimeOptions { workers: 0, name: "austere".into() });
    let opening = Cache::open(flash, origin, runtime.clone() as Arc<dyn Runtime>, Tuning::default());
    let cache = block_on(opening).expect("opened");
    let layout = &cache.shared.geometry.layout;
    let twin = AustereConfig::of_layout(&layout_of(layout, CHUNKS), layout.slot_count.into());
    let twin = Austere::new(twin).expect("a layout");
    (cache, runtime, twin)
}

#[test]
fn a_write_waits_for_its_bucket_and_for_no_other() {
    let (cache, runtime, twin) = austere();
    let shared = &cache.shared;
    write(&cache, Lba(1), 1);

    // An address whose bucket is behind another lock: two fifths of all buckets away.
    let here = Lba(0);
    let keys = (2..CHUNKS).map(|lba| twin.key_of_lba(Lba(lba)).0);
    let (least, most) = (keys.clone().min().expect("some"), keys.max().expect("some"));
    let away = |lba: &Lba| twin.key_of_lba(*lba).0.abs_diff(twin.key_of_lba(here).0) > (most - least) * 2 / 5;
    let far = (2..CHUNKS).map(Lba).find(away).expect("there are many buckets");

    // A write of a stored content, up to the point where the lock of the state is given back.
    let mut later = {
        let mut state = shared.state.lock();
        let fingerprint = shared.codec.fingerprint(&chunk(1)).expect("a whole chunk");
        let place = state.find_duplicate(&fingerprint).expect("it was stored just now");
        let new = NewMapping::Duplicate { place };
        state.map_dirty(here, new, Some(fingerprint)).expect("the flash is well");
        state.release()
    };
    let is_done = AtomicBool::new(false);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let (cache, is_done) = (&cache, &is_done);
        scope.spawn(move || {
            for number in [2, 1] {
                write(cache, far, number);
                assert!(read(cache, far) == chunk(number), "what was written");
            }
            sender.send(()).expect("it is waited for");
            write(cache, here, 3);
            assert!(is_done.load(SeqCst), "not before what was decided before");
            assert!(read(cache, here) == chunk(3), "what was written last");
        });
        receiver.recv().expect("others went on");
        // Time enough for a write that waits for no lock; a write that waits goes on waiting.
        thread::sleep(Duration::from_millis(50));
        is_done.store(true, SeqCst);
        later.finish();
    });
    assert!(matches!(shared.state.lock().design().peek(here), Lookup::Chunk { .. }));
    drop(cache);
    runtime.shutdown();
}
