//! The requests of caches to their devices, over random workloads.
//!
//! The bytes are those that `Traffic` counts, and all of them lie in the layout. Reads of the flash
//! return the data written there.

use std::collections::HashMap;

use crate::common::{Rng, for_seeds};
use larder_core::{Fingerprint, Lba};
use larder_sim::{
    cache::{CacheRequest, Content, WritePolicy},
    devices::{Device, DeviceAction, Requests, Waits},
    setup::{Accounting, FlashAmount, Granularity, OptionId, Options, REPLAY_DESIGNS, Setup},
    tally::Tally,
    traffic::Traffic,
};

const CHUNK: u32 = 8192;
/// The unit of the flash's shadow.
const SECTOR: u64 = 512;

fn content(number: u64) -> Content {
    if number == 0 {
        return Content { fingerprint: Content::ZEROES, stored_bytes: 20 };
    }
    let mut bytes = [7; 16];
    bytes[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    let stored_bytes = if number.is_multiple_of(3) { CHUNK } else { 1 + (number * 977 % u64::from(CHUNK)) as u32 };
    Content { fingerprint: Fingerprint(bytes), stored_bytes }
}

/// Returns each design with its default options, and without its optional parts.
fn setups(policy: WritePolicy, flash: FlashAmount) -> Vec<Setup> {
    let mut all = Vec::new();
    for design in REPLAY_DESIGNS {
        let bare = Setup { design, chunk_bytes: CHUNK, flash, policy, options: Options::default() };
        all.push(bare);
        if design.takes(OptionId::Accounting, Accounting::Engine) {
            all.push(bare.by_its_paper());
        }
        let has = |id| design.options.contains(&id);
        if has(OptionId::Compress) {
            let raw = Options { compress: Some(false), ..Options::default() };
            all.push(Setup { options: raw, ..bare });
            if has(OptionId::Dedup) {
                all.push(Setup { options: Options { dedup: Some(false), ..raw }, ..bare });
            }
        }
        if has(OptionId::Granularity) {
            let extent = Options { granularity: Some(Granularity::Extent), ..Options::default() };
            all.push(Setup { options: extent, ..bare });
        }
    }
    all
}

/// Returns reads, writes, trims and flushes of a disk, each read with the disk's content.
fn workload(rng: &mut Rng, count: u64) -> Vec<CacheRequest> {
    let chunks = 6000 + rng.below(4000);
    let mut disk: Vec<u64> = (0..chunks).map(|_| rng.below(9000)).collect();
    (0..count)
        .map(|step| {
            let at = if rng.chance(50) { rng.skewed(chunks) } else { rng.below(chunks) };
            match rng.below(40) {
                0 => {
                    let count = (1 + rng.below(20)).min(chunks - at);
                    disk[at as usize..(at + count) as usize].fill(0);
                    CacheRequest::Trim(Lba(at), count)
                }
                1 => {
                    // The content is unknown then, but a later read tells.
                    disk[at as usize] = 20_000 + step;
                    CacheRequest::Forget(Lba(at), 1)
                }
                2 => CacheRequest::Flush,
                kind if kind < 20 => {
                    disk[at as usize] = rng.below(9000);
                    CacheRequest::Write(Lba(at), content(disk[at as usize]))
                }
                _ => CacheRequest::Read(Lba(at), content(disk[at as usize])),
            }
        })
        .collect()
}

/// The flash as its requests leave it.
#[derive(Default)]
struct Shadow {
    /// Sectors that were written since they were trimmed.
    written: HashMap<u64, ()>,
    /// Uncompressed chunks, by their first byte.
    raw: HashMap<u64, Fingerprint>,
}

impl Shadow {
    fn sectors(range: std::ops::Range<u64>) -> std::ops::Range<u64> {
        range.start / SECTOR..range.end.div_ceil(SECTOR)
    }

    fn write(&mut self, requests: &Requests, request: &larder_sim::devices::DeviceRequest) {
        for sector in Shadow::sectors(request.range()) {
            self.written.insert(sector, ());
            self.raw.remove(&(sector * SECTOR));
        }
        for chunk in requests.raw_chunks(request) {
            assert!(request.range().contains(&chunk.start) && chunk.len == CHUNK, "{chunk:?} of {request:?}");
            self.raw.insert(chunk.start, chunk.fingerprint);
        }
    }
}

/// Adds a request to sums like those of a cache.
fn add(sums: &mut Traffic, request: &larder_sim::devices::DeviceRequest) {
    let data = request.len - request.metadata_bytes;
    match (request.device, request.action) {
        (Device::Flash | Device::Buffer, DeviceAction::Read) => {
            sums.flash_data_bytes_read += data;
            sums.flash_metadata_bytes_read += request.metadata_bytes;
        }
        (Device::Flash, DeviceAction::Write) => {
            sums.flash_data_bytes_written += data;
            sums.flash_metadata_bytes_written += request.metadata_bytes;
        }
        (Device::Origin, DeviceAction::Read) => sums.origin_chunks_read += data / u64::from(CHUNK),
        (Device::Origin, DeviceAction::Write) => sums.origin_chunks_written += data / u64::from(CHUNK),
        (Device::Buffer, other) => panic!("a buffer is only read: {other:?}"),
        (_, DeviceAction::Flush) => assert_eq!(request.len, 0),
        (_, DeviceAction::Trim) => assert!(request.len > 0),
    }
}

fn asked(traffic: &Traffic) -> [u64; 6] {
    [
        traffic.flash_data_bytes_written,
        traffic.flash_metadata_bytes_written,
        traffic.flash_data_bytes_read,
        traffic.flash_metadata_bytes_read,
        traffic.origin_chunks_read,
        traffic.origin_chunks_written,
    ]
}

fn check(setup: &Setup, requests: &[CacheRequest]) {
    let label = format!("{}, {}", setup.label(), setup.policy.name());
    let mut cache = setup.build(0).unwrap_or_else(|why| panic!("{label}: {why}")).cache;
    let mut alone = setup.build(0).unwrap_or_else(|why| panic!("{label}: {why}")).cache;
    cache.gather(true);
    let span = cache.flash_span_bytes();
    let (mut tally, mut shadow, mut sums) = (Tally::default(), Shadow::default(), Traffic::default());
    let (mut gathered, mut compared) = (Requests::default(), 0);
    for request in requests {
        let hits = tally.read_hits;
        cache.replay(std::slice::from_ref(request), &mut tally);
        cache.take_requests(&mut gathered);
        if let CacheRequest::Read(lba, content) = request {
            let client = || gathered.iter().filter(|asked| asked.waits == Waits::Client);
            let data = client().find(|asked| asked.device == Device::Flash && asked.metadata_bytes == 0);
            let known = data.and_then(|data| shadow.raw.get(&data.start)).filter(|_| tally.read_hits > hits);
            if let Some(fingerprint) = known {
                assert_eq!(*fingerprint, content.fingerprint, "{label}: what chunk {} holds on the flash", lba.0);
                compared += 1;
            }
            let misses = client().filter(|asked| asked.device == Device::Origin).count();
            assert_eq!(misses, usize::from(tally.read_hits == hits), "{label}: a miss waits for the origin, once");
        }
        for asked in &gathered {
            add(&mut sums, asked);
            if asked.device == Device::Flash {
                assert!(asked.start + asked.len <= span, "{label}: {asked:?} of {span} bytes");
            }
            match (asked.device, asked.action) {
                (Device::Flash, DeviceAction::Write) => shadow.write(&gathered, asked),
                (Device::Flash, DeviceAction::Trim) => Shadow::sectors(asked.range()).for_each(|sector| {
                    shadow.written.remove(&sector);
                    shadow.raw.remove(&(sector * SECTOR));
                }),
                (Device::Flash, DeviceAction::Read) => {
                    let is_there = Shadow::sectors(asked.range()).all(|sector| shadow.written.contains_key(&sector));
                    assert!(is_there, "{label}: {asked:?} was not written, or trimmed");
                }
                _ => {}
            }
        }
    }
    assert_eq!(asked(&sums), asked(&cache.traffic()), "{label}");
    let mut untold = Tally::default();
    alone.replay(requests, &mut untold);
    assert_eq!((tally, cache.traffic()), (untold, alone.traffic()), "{label}: to be told changes nothing");
    alone.take_requests(&mut gathered);
    assert!(gathered.is_empty(), "{label}: nobody asked");
    let evicted = cache.traffic().chunks_evicted;
    assert!(tally.read_hits > 0, "{label}: a test that hits nothing");
    assert!(setup.policy == WritePolicy::Around || evicted > 0, "{label}: a test that evicts nothing");
    let has_raw = setup.options.compress == Some(false) || setup.design.name.ends_with("lru");
    assert!(!has_raw || compared > 0, "{label}: a test that compares nothing");
}

#[test]
fn caches_ask_for_the_bytes_that_they_count() {
    for_seeds(0..6, |seed| {
        let mut rng = Rng::new(seed);
        let requests = workload(&mut rng, 12_000);
        let flash = rng.one_of(&[FlashAmount::DataChunks(800), FlashAmount::Bytes(16 << 20)]);
        for policy in [WritePolicy::Back, WritePolicy::Through, WritePolicy::Around] {
            setups(policy, flash).iter().for_each(|setup| check(setup, &requests));
        }
    });
}

/// Returns a cache of uncompressed chunks of contents of their own, in write-back.
fn weus() -> Setup {
    let raw = Options { compress: Some(false), dedup: Some(false), ..Options::default() };
    let design = REPLAY_DESIGNS.iter().find(|design| design.name == "nitro").expect("a design");
    let flash = FlashAmount::Bytes(16 << 20);
    Setup { design, chunk_bytes: CHUNK, flash, policy: WritePolicy::Back, options: raw }
}

#[test]
fn what_the_drive_drops_is_destaged_and_forgotten_and_nothing_else() {
    let mut cache = weus().build(0).expect("a cache").cache;
    cache.gather(true);
    let mut asked = Requests::default();
    // The place of each chunk; the cache writes a segment when it is full.
    let mut places: HashMap<Fingerprint, u64> = HashMap::new();
    for number in 1..700 {
        cache.write(Lba(number), &content(number));
        cache.take_requests(&mut asked);
        for request in &asked {
            places.extend(asked.raw_chunks(request).iter().map(|chunk| (chunk.fingerprint, chunk.start)));
        }
    }
    let first = places[&content(1).fingerprint];
    let weu = first / (2 << 20) * (2 << 20)..(first / (2 << 20) + 1) * (2 << 20);
    let lies_there = |number: u64| places.get(&content(number).fingerprint).is_some_and(|start| weu.contains(start));
    let gone: Vec<u64> = (1..700).filter(|&number| lies_there(number)).collect();
    assert!((200..257).contains(&gone.len()), "{} chunks", gone.len());
    assert!(cache.expect_drops());
    // A drop of one byte of a WEU drops all of it.
    cache.evict_range(first..first + 1);
    cache.take_requests(&mut asked);
    let of = |device, action| asked.iter().filter(move |one| (one.device, one.action) == (device, action));
    let destaged: Vec<u64> = of(Device::Origin, DeviceAction::Write).map(|one| one.start / u64::from(CHUNK)).collect();
    assert!(destaged.iter().all(|number| gone.contains(number)), "what is clean already is not written again");
    assert_eq!(destaged.len(), of(Device::Flash, DeviceAction::Read).count(), "each was read where it lies");
    assert!(
        of(Device::Flash, DeviceAction::Trim).any(|one| one.range() == weu)
            && asked.iter().all(|one| one.waits == Waits::Nobody)
    );
    let dirty_before = destaged.len() as u64 + cache.traffic().origin_chunks_written;
    assert!(dirty_before > 0);
    // A free WEU may go again.
    cache.evict_range(weu.clone());
    for number in 1..700 {
        let is_gone = gone.contains(&number);
        assert_eq!(cache.read(Lba(number), &content(number)), !is_gone, "chunk {number}");
        // Else the insertion evicts others.
        if is_gone {
            cache.trim(Lba(number));
        }
    }
    // The last ones are in a segment that is being filled, which is in RAM alone; all else goes.
    cache.evict_range(cache.flash_data_range());
    let in_ram = |number: u64| !places.contains_key(&content(number).fingerprint);
    assert!((1..700).any(in_ram));
    assert_eq!(cache.figures().mapped_chunks, (1..700).filter(|&number| in_ram(number)).count() as u64);
}

#[test]
fn a_cache_evicts_what_its_drive_would_drop() {
    let evicted = |advice: Option<u64>| {
        let mut cache = weus().build(0).expect("a cache").cache;
        cache.gather(true);
        let data = cache.flash_data_range();
        let mut asked = Requests::default();
        for number in 1.. {
            if let Some(slot) = advice {
                let start = data.start + slot * (2 << 20);
                cache.advise_victim(start..start + (2 << 20));
            }
            cache.write(Lba(number), &content(number));
            cache.take_requests(&mut asked);
            if let Some(trim) = asked.iter().find(|one| one.action == DeviceAction::Trim && one.device == Device::Flash)
            {
                return (trim.start - data.start) / (2 << 20);
            }
        }
        unreachable!("numbers do not end");
    };
    let own = evicted(None);
    for slot in 0..3 {
        assert_eq!(evicted(Some(slot)), slot);
    }
    assert_eq!(evicted(Some(1000)), own, "there is no such WEU");
}
