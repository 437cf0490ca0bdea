//! A write is decided in its turn and changes the LBA index of AustereCache under its bucket's lock, when the state's was given back.

use super::*;
use crate::{CreateOptions, Tuning, cache::Cache, create, designs::layout_of};
use larder_core::{
    Lookup, NewMapping,
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
const CHUNKS: u64 = 4096;

#[test]
fn a_write_waits_for_its_bucket_and_for_no_other() {
    let flash = Arc::new(RamDevice::new("flash", 40 * MIB, 512));
    let origin = Arc::new(RamDevice::new("origin", CHUNKS * CHUNK as u64, 512));
    let mut options = CreateOptions { flash_uuid: [7; 16], hash_key: [9; 32], ..CreateOptions::default() };
    crate::designs::named("austere").expect("austere").fit(&mut options);
    block_on(create(&*flash, CHUNKS * CHUNK as u64, &options)).expect("created");
    let runtime = ThreadRuntime::new(ThreadRuntimeOptions { workers: 0, name: "buckets".into() });
    let opening = Cache::open(flash, origin, runtime.clone() as Arc<dyn Runtime>, Tuning::default());
    let cache = block_on(opening).expect("opened");
    let shared = &cache.shared;
    let (here, chunk) = (Lba(0), |number: u8| vec![number; CHUNK]);
    let offset = |lba: Lba| lba.0 * CHUNK as u64;
    cache.write_at(offset(Lba(1)), &chunk(1)).expect("written");

    // An address whose bucket is behind another lock: half of all buckets away.
    let layout = &shared.geometry.layout;
    let twin = AustereConfig::of_layout(&layout_of(layout, CHUNKS), layout.slot_count.into());
    let twin = Austere::new(twin).expect("a layout");
    let keys = (2..CHUNKS).map(|lba| twin.key_of_lba(Lba(lba)).0);
    let (least, most) = (keys.clone().min().expect("some"), keys.max().expect("some"));
    let away = |lba: &Lba| twin.key_of_lba(*lba).0.abs_diff(twin.key_of_lba(here).0) > (most - least) * 2 / 5;
    let far = (2..CHUNKS).map(Lba).find(away).expect("there are many buckets");

    // A write of a content that is there, as far as it is done when the lock of the state is given back.
    let mut later = Deferred::nothing();
    {
        let mut state = shared.state.lock();
        let fingerprint = shared.codec.fingerprint(&chunk(1)).expect("a whole chunk");
        let place = state.find_duplicate(&fingerprint).expect("it was stored just now");
        let new = NewMapping::Duplicate { place };
        state.map_dirty(here, new, Some(fingerprint), &mut later).expect("the flash is well");
    }
    let is_done = AtomicBool::new(false);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let (cache, is_done) = (&cache, &is_done);
        scope.spawn(move || {
            let mut read = chunk(0);
            for number in [2, 1] {
                cache.write_at(offset(far), &chunk(number)).expect("written");
                cache.read_at(offset(far), &mut read).expect("read");
                assert!(read == chunk(number), "what was written");
            }
            sender.send(()).expect("it is waited for");
            cache.write_at(offset(here), &chunk(3)).expect("written");
            assert!(is_done.load(SeqCst), "not before what was decided before");
            cache.read_at(offset(here), &mut read).expect("read");
            assert!(read == chunk(3), "what was written last");
        });
        receiver.recv().expect("others went on");
        // Time enough for a write that waits for nothing; who waits does so as long as he has to.
        thread::sleep(Duration::from_millis(50));
        is_done.store(true, SeqCst);
        later.finish();
    });
    assert!(matches!(shared.state.lock().design.peek(here), Lookup::Chunk { .. }));
    drop(cache);
    runtime.shutdown();
}
