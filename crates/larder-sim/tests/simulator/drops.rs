//! Drives that drop data by themselves.
//!
//! A cache's metadata stays, in every mode. In write-back dirty data finds room, or the cache is
//! refused before it begins. This holds for any amount that one request makes dirty, and for blocks
//! of any size beside a chunk.

use crate::common::{Rng, for_seeds};
use larder_core::{Fingerprint, Lba};
use larder_sim::{
    cache::{CacheRequest, Content, WritePolicy},
    devices::Requests,
    lab::LabListener,
    measure::Meter,
    origin::{OriginModel, profile::OriginProfile},
    setup::{
        Accounting, Built, FlashAmount, OptionId, Options, Orphans, REPLAY_DESIGNS, ReplayDesign, Setup,
        drive::DriveSetup,
    },
    tally::Tally,
    whole::{ClientRequest, ReplayPace, Whole},
};
use larder_ssd::{kinds::FtlKind, profile::DriveProfile};
use larder_trace::Op;

const LAYERS: [&str; 3] = ["flashtier", "flashtier-merge", "flashtier-lru"];
const MIB: u64 = 1 << 20;

fn content(number: u64, chunk_bytes: u32) -> Content {
    let mut bytes = [7; 16];
    bytes[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    Content { fingerprint: Fingerprint(bytes), stored_bytes: 1 + (number * 977 % u64::from(chunk_bytes)) as u32 }
}

/// Returns requests of up to `most` chunks each, most of them writes, over `bytes` of a volume.
fn clients(rng: &mut Rng, count: u64, most: u64, chunk_bytes: u32, bytes: u64) -> Vec<ClientRequest> {
    let chunks = (bytes / u64::from(chunk_bytes)).max(2);
    let mut made = 0;
    (0..count)
        .map(|number| {
            let first = if rng.chance(50) { rng.skewed(chunks) } else { rng.below(chunks) };
            let run = first..(first + 1 + rng.below(most)).min(chunks);
            let (op, asked) = match rng.below(40) {
                0 => (Op::Trim, Vec::from([CacheRequest::Trim(Lba(run.start), run.end - run.start)])),
                1 => (Op::Flush, Vec::from([CacheRequest::Flush])),
                2..10 => {
                    let read = |lba: u64| CacheRequest::Read(Lba(lba), content(lba, chunk_bytes));
                    (Op::Read, run.map(read).collect())
                }
                _ => {
                    made += 1;
                    let write = |lba: u64| CacheRequest::Write(Lba(lba), content(lba + made * 7919, chunk_bytes));
                    (Op::Write, run.map(write).collect())
                }
            };
            ClientRequest { at: Some(number * 500_000), op, chunks: asked }
        })
        .collect()
}

fn setup(design: &'static ReplayDesign, profile: &str, layer: &str, chunk_bytes: u32, flash_bytes: u64) -> Setup {
    let orphans = design.paper_options.contains(&OptionId::Orphans).then_some(Orphans::Forget);
    let drive =
        DriveSetup::new(DriveProfile::named(profile).expect("a profile"), FtlKind::named(layer).expect("a layer"));
    let accounting = orphans.map(|_| Accounting::Paper);
    let options = Options { drive: Some(drive), orphans, accounting, ..Options::default() };
    let flash = FlashAmount::Bytes(flash_bytes);
    Setup { design, chunk_bytes, flash, policy: WritePolicy::Back, options }
}

/// Makes the cache and its drive with a clock.
fn clocked(setup: &Setup) -> Result<Whole, String> {
    let Built { cache, drive, .. } = setup.build(0)?;
    let origin = OriginProfile::named("nvme-ssd").expect("it is one");
    let origin = OriginModel::new(&origin, 1 << 38).expect("it is sound");
    let layer = setup.options.drive.expect("a drive").ftl;
    Whole::beside(cache, drive.expect("a drive"), layer, origin).map_err(|why| why.to_string())
}

/// An unchanged profile's drive has too little room for all slots of a chunk, and drops some. It
/// never drops metadata that the cache needs to find its data.
#[test]
fn a_drive_as_it_comes_drops_data_and_no_metadata_in_any_mode() {
    // Each comes twice, for a selective design stores contents that come again.
    let requests: Vec<ClientRequest> = clients(&mut Rng::new(9), 9000, 4, 8192, 64 * MIB)
        .into_iter()
        .flat_map(|client| [client.clone(), client])
        .collect();
    for (design, layer) in REPLAY_DESIGNS.iter().flat_map(|design| LAYERS.map(|layer| (design, layer))) {
        for policy in [WritePolicy::Back, WritePolicy::Through, WritePolicy::Around] {
            let setup = Setup { policy, ..setup(design, "caftl", layer, 8192, 16 * MIB) };
            let label = format!("{} on {layer} in {}", design.name, policy.name());
            let Built { mut cache, drive, .. } = setup.build(0).unwrap_or_else(|why| panic!("{label}: {why}"));
            let (mut host, data) = (drive.expect("a drive"), cache.flash_data_range());
            cache.gather(true);
            let (mut asked, mut tally) = (Requests::default(), Tally::default());
            for request in requests.iter().flat_map(|client| &client.chunks) {
                cache.replay(std::slice::from_ref(request), &mut tally);
                cache.take_requests(&mut asked);
                host.carry_out(&asked);
                loop {
                    for bytes in host.take_evicted() {
                        let is_data = data.start <= bytes.start && bytes.end <= data.end;
                        assert!(is_data, "{label}: {bytes:?} was dropped, and data is in {data:?}");
                        cache.evict_range(bytes);
                        cache.take_requests(&mut asked);
                        host.carry_out(&asked);
                    }
                    let Some(bytes) = host.too_dirty() else { break };
                    cache.clean_range(bytes);
                    cache.take_requests(&mut asked);
                    host.carry_out(&asked);
                }
            }
            let (dropped, physical) = (host.drive_counts().pages_evicted, host.profile().geometry.physical_bytes());
            println!("{label}: {dropped} pages dropped by {physical} bytes of flash");
            // Few chunks enter a write-around cache that is mostly written to. A cache of few WEUs
            // always has a free one.
            let is_full = policy != WritePolicy::Around && cache.flash_weu_bytes().is_none();
            assert!(dropped > 0 || !is_full, "{label}: nothing was dropped");
            host.ftl().check();
        }
    }
}

/// A drive of few blocks does for a cache that makes nothing dirty, with a clock as without.
#[test]
fn where_nothing_gets_dirty_few_blocks_do() {
    let requests = clients(&mut Rng::new(5), 300, 4, 8192, 8 * MIB);
    let lru = ReplayDesign::named("lru").expect("a design");
    let of = |policy| {
        let mut setup = Setup { policy, ..setup(lru, "nitro-mlc", "flashtier-merge", 8192, 150 << 10) };
        let numbers = [("pages_per_block", 4.0), ("over_provisioning_percent", 0.0)];
        setup.options.drive = setup.options.drive.map(|drive| drive.with_all(&numbers).expect("numbers"));
        // So few blocks have no room for the engine's log.
        let mut whole = clocked(&setup.by_its_paper())?;
        Ok::<_, String>(whole.run(requests.iter().cloned().map(Ok), ReplayPace::Full(8), 0).expect("a sound trace"))
    };
    assert!(of(WritePolicy::Through).expect("it does").reads.count() > 0);
    let why = of(WritePolicy::Back).map(|_| ()).expect_err("refused");
    assert!(why.starts_with("in write-back the metadata of lru (") && why.contains("dirty blocks, and"), "{why}");
}

#[test]
fn with_a_clock_a_request_of_many_chunks_finds_room() {
    let totals = std::cell::Cell::new((0, 0));
    for_seeds(0..2, |seed| {
        let mut rng = Rng::new(seed);
        let requests = clients(&mut rng, 500, 160, 8192, 64 * MIB);
        let pace = if seed % 2 == 0 { ReplayPace::Full(8) } else { ReplayPace::Own };
        for (design, layer) in REPLAY_DESIGNS.iter().flat_map(|design| LAYERS.map(|layer| (design, layer))) {
            for profile in ["caftl", "tlc-nvme"] {
                let setup = setup(design, profile, layer, 8192, 16 * MIB);
                let label = format!("{} on {layer} of {profile}", design.name);
                let mut whole = clocked(&setup).unwrap_or_else(|why| panic!("{label}: {why}"));
                let figures = whole.run(requests.iter().cloned().map(Ok), pace, 0).expect("a sound trace");
                let of = |op| requests.iter().filter(|request| request.op == op).count() as u64;
                let answered = [figures.reads.count(), figures.writes.count(), figures.flushes.count()];
                assert_eq!(answered, [of(Op::Read), of(Op::Write), of(Op::Flush)], "{label}");
                let drive = whole.drive().expect("a drive");
                assert_eq!(drive.in_flight(), 0, "{label}");
                drive.ftl().check();
                let (dropped, destaged) = totals.get();
                let now = drive.ftl().counts().pages_evicted;
                totals.set((dropped + now, destaged + whole.cache().traffic().origin_chunks_written));
            }
        }
    });
    let (dropped, destaged) = totals.get();
    println!("{dropped} pages dropped, {destaged} chunks destaged");
    assert!(dropped > 10_000 && destaged > 10_000, "{dropped} pages dropped, {destaged} chunks destaged");
}

/// A chunk of 128 KiB is many blocks of a drive that is cut to the size of a small cache.
#[test]
fn blocks_smaller_than_a_chunk_find_room_or_are_refused() {
    let totals = std::cell::Cell::new((0, 0, 0));
    for_seeds(0..40, |seed| {
        let mut rng = Rng::new(seed);
        let flash = 2 * MIB + rng.below(40 * MIB);
        let chunk_bytes = [16 << 10, 64 << 10, 128 << 10][rng.below(3) as usize];
        let design = &REPLAY_DESIGNS[rng.below(REPLAY_DESIGNS.len() as u64) as usize];
        let layer = LAYERS[rng.below(3) as usize];
        let mut setup = setup(design, "caftl", layer, chunk_bytes, flash);
        let pages = [1, 2, 4, 8, 64][rng.below(5) as usize];
        setup.options.drive = setup.options.drive.map(|drive| {
            let numbers = [("pages_per_block", f64::from(pages)), ("over_provisioning_percent", 0.0)];
            drive.with_all(&numbers).expect("numbers")
        });
        let label =
            format!("{} of {flash} bytes in chunks of {chunk_bytes} on {layer}, {pages} pages a block", design.name);
        let (refused, run, dropped) = totals.get();
        let built = match setup.build(0) {
            Ok(built) => built,
            Err(why) => {
                println!("{label}: {why}");
                totals.set((refused + 1, run, dropped));
                return;
            }
        };
        let mut meter = Meter::new(built, chunk_bytes, 0);
        clients(&mut rng, 2000, 16, chunk_bytes, 3 * flash).iter().for_each(|client| meter.take(&client.chunks));
        let evicted = meter.finish().drive.expect("a drive").counts.pages_evicted;
        println!("{label}: {evicted} pages dropped");
        totals.set((refused, run + 1, dropped + evicted));
    });
    let (refused, run, dropped) = totals.get();
    println!("{run} replayed with {dropped} pages dropped, {refused} refused");
    assert!(run > 20 && dropped > 1000, "{run} replayed with {dropped} pages dropped, {refused} refused");
}
