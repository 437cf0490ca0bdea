//! Whole flashes that earlier programs left. Today's program opens each, reads every byte, and
//! brings the dirty data to the origin.
//!
//! A generation is a folder of `crates/larder-format/tests/fixtures/flashes/`. A program with other
//! features left it, and its files never change. It has a flash of each kind of store, after an
//! orderly end and after a power loss. One more has each feature that only some flashes have, and
//! each kind of feature bit of a later program, in both twins. A file is one Zstandard frame: the
//! sizes of flash and origin, 8 bytes each, then the bytes of the two.
//!
//! `LARDER_MAKE_FLASHES=N` makes generation N, and leaves those that are there as they are. The
//! content of a volume follows from [`SEED`] alone, so it needs no file.

use crate::{
    common::{Setup, World, assert_same, noise, text},
    fence::MemoryFence,
};
use larder_check::verify::{
    repair::{RepairOptions, repair},
    verify,
};
use larder_device::{ChangeMark, rng::Rng};
use larder_engine::{CreateOptions, EngineError, Tuning, WearLimit, WearStatus, config::TrimPolicy, superblock};
use larder_format::{
    DesignId, FormatError, StoreKind, crc32c,
    features::{self, FEATURES, Word},
    layout::SUPERBLOCK_OFFSETS,
    superblock::SUPERBLOCK_BYTES,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The seed of all content. Another one would make the flashes unreadable for the test.
const SEED: u64 = 0x1a2d_e200;
const CHUNK: u64 = 4096;
const FLASH_BYTES: u64 = 8 << 20;
const ORIGIN_BYTES: u64 = 2 << 20;

/// The designs that are kept, one of each kind of store.
const OF_STORES: [(&str, DesignId); 3] =
    [("nitro", DesignId::Nitro), ("d-arc", DesignId::DArc), ("austere", DesignId::Austere)];

/// The offsets in a superblock of its checksum, its feature words, and the field of a later
/// program.
const CRC_AT: usize = 16;
const COMPATIBLE_AT: usize = 48;
const INCOMPATIBLE_AT: usize = 56;
const LATER_AT: usize = 3000;
const LATER: &[u8] = b"the field of a later program";
/// The bits of later programs.
const COMPATIBLE_BIT: u64 = 1 << 61;
const INCOMPATIBLE_BIT: u64 = 1 << 29;
const READABLE_BIT: u64 = 1 << 45;
const _: () = assert!(READABLE_BIT & features::READABLE != 0 && INCOMPATIBLE_BIT & features::READABLE == 0);

/// The state of a kept flash. The name of its file ends with it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FlashState {
    Orderly,
    Crashed,
    /// A compatible bit of a later program.
    Compatible,
    /// A bit of a later program that keeps others out, or from writing.
    Incompatible,
    Readable,
    /// An orderly end beside an origin that tells its mark.
    OriginState,
    /// A crash of a cache with a state directory.
    StateDirectory,
    /// A crash of a cache that kept trims.
    KeptTrims,
    Detached,
    /// A crash of a cache with a wear budget.
    Wear,
    /// A crash of a cache whose history names records.
    ShortCheckpoints,
}

/// Each state, the name of its files, and the first generation that has it.
const STATES: [(FlashState, &str, u32); 11] = [
    (FlashState::Orderly, "orderly", 1),
    (FlashState::Crashed, "crashed", 1),
    (FlashState::Compatible, "compatible", 1),
    (FlashState::Incompatible, "incompatible", 1),
    (FlashState::Readable, "readable", 3),
    (FlashState::OriginState, "origin-state", 3),
    (FlashState::StateDirectory, "state-directory", 3),
    (FlashState::KeptTrims, "kept-trims", 3),
    (FlashState::Detached, "detached", 3),
    (FlashState::Wear, "wear", 4),
    (FlashState::ShortCheckpoints, "short-checkpoints", 5),
];

/// The mark of the origin of [`FlashState::OriginState`].
const MARK: ChangeMark = ChangeMark { size_bytes: ORIGIN_BYTES, epoch: 5, changes: 77 };

/// The budget of [`FlashState::Wear`].
const WEAR_BUDGET: u64 = 1 << 30;

/// The limit of a file's size, and of all files of a generation.
const FILE_BYTES_MAX: u64 = 100 << 10;
const GENERATION_BYTES_MAX: u64 = (STATES.len() as u64 + 2 * (OF_STORES.len() as u64 - 1)) * (32 << 10);

/// A step of the volume's life.
enum Act {
    /// The origin has this from the start.
    Origin(u64, Vec<u8>),
    Write(u64, Vec<u8>),
    Trim(u64, u64),
    Read(u64, u64),
    Flush,
    Destage,
    Checkpoint,
}

/// Returns the life of a volume. Its clean data is of three kinds, and its dirty data of each kind
/// that a log or a checkpoint has.
fn life() -> Vec<Act> {
    let mut rng = Rng::new(SEED);
    // Most of it compresses, which keeps the files small.
    let mut content = |len: u64| match rng.below(16) {
        0 => noise(rng.next_u64(), len as usize),
        _ => text(rng.next_u64(), len as usize),
    };
    let mut acts = Vec::new();
    (0..12).for_each(|chunk| acts.push(Act::Origin(chunk * CHUNK, content(CHUNK))));
    (0..6).for_each(|chunk| acts.push(Act::Read(chunk * CHUNK, CHUNK)));
    (16..26).for_each(|chunk| acts.push(Act::Write(chunk * CHUNK, content(CHUNK))));
    acts.extend([Act::Flush, Act::Destage]);
    // Dirty data that the checkpoint has: new, overwritten, equal, a part of a chunk, zeroes, a
    // run.
    let twice = content(CHUNK);
    let at = |chunk: u64| chunk * CHUNK;
    acts.extend([16, 17, 40, 41, 42].map(|chunk| Act::Write(at(chunk), content(CHUNK))));
    acts.extend([43, 44].map(|chunk| Act::Write(at(chunk), twice.clone())));
    acts.extend([
        Act::Write(at(45) + 1024, content(512)),
        Act::Write(at(46), vec![0; CHUNK as usize]),
        Act::Trim(at(50), 4 * CHUNK),
        Act::Flush,
        Act::Checkpoint,
    ]);
    // The same in the log behind it.
    acts.extend([17, 18, 42, 60, 61, 62].map(|chunk| Act::Write(at(chunk), content(CHUNK))));
    acts.extend([
        Act::Write(at(63), twice),
        Act::Write(at(7) + 2048, content(1024)),
        Act::Flush,
        Act::Trim(at(51), CHUNK),
        Act::Trim(at(19), 2 * CHUNK),
        Act::Write(at(65), content(CHUNK)),
        Act::Flush,
    ]);
    acts
}

/// Returns the content of the volume after its life.
fn volume() -> Vec<u8> {
    let mut volume = vec![0; ORIGIN_BYTES as usize];
    for act in life() {
        match act {
            Act::Origin(at, data) | Act::Write(at, data) => {
                volume[at as usize..at as usize + data.len()].copy_from_slice(&data);
            }
            Act::Trim(at, len) => volume[at as usize..(at + len) as usize].fill(0),
            Act::Read(..) | Act::Flush | Act::Destage | Act::Checkpoint => {}
        }
    }
    volume
}

fn setup(design: DesignId) -> Setup {
    let options = CreateOptions { design, chunk_bytes: CHUNK as u32, ..Setup::default().options };
    Setup { options, flash_bytes: FLASH_BYTES, origin_bytes: ORIGIN_BYTES, ..Setup::default() }
}

/// Returns the tuning with which a cache came to this state, and is served again.
fn tuning(state: FlashState) -> Tuning {
    let tuning = Setup::default().tuning;
    match state {
        FlashState::StateDirectory => Tuning { fence: MemoryFence::new().keeper(), ..tuning },
        FlashState::KeptTrims => Tuning { trim: TrimPolicy::Keep, ..tuning },
        FlashState::Wear => Tuning { wear: Some(WearLimit::BytesADay(WEAR_BUDGET)), ..tuning },
        _ => tuning,
    }
}

/// Returns flash and origin of a volume after a life that led to this state.
fn lived(design: DesignId, state: FlashState) -> (Vec<u8>, Vec<u8>) {
    let mut world = World::made(SEED, Setup { tuning: tuning(state), ..setup(design) });
    for act in life() {
        if let Act::Origin(at, data) = act {
            world.fill_origin(at, &data);
        }
    }
    if state == FlashState::OriginState {
        world.origin.tell_mark(MARK);
    }
    world.open();
    for act in life() {
        match act {
            Act::Origin(..) => {}
            Act::Write(at, data) => world.write(at, &data),
            Act::Trim(at, len) => world.trim(at, len),
            Act::Read(at, len) => {
                world.read(at, len as usize);
                world.wait_for_insertions();
            }
            Act::Flush => world.flush(),
            Act::Destage => assert!(world.destage_all(), "the origin takes all"),
            Act::Checkpoint => world.run(world.cache().checkpoint()).expect("a checkpoint"),
        }
    }
    match state {
        FlashState::Orderly | FlashState::OriginState => world.close(),
        FlashState::Detached => world.run(world.cache().detach()).expect("a detach"),
        _ => world.crash(),
    }
    let (mut flash, origin) = images(&world);
    match state {
        FlashState::Compatible => with_later_bit(&mut flash, COMPATIBLE_AT, COMPATIBLE_BIT),
        FlashState::Incompatible => with_later_bit(&mut flash, INCOMPATIBLE_AT, INCOMPATIBLE_BIT),
        FlashState::Readable => with_later_bit(&mut flash, INCOMPATIBLE_AT, READABLE_BIT),
        _ => {}
    }
    (flash, origin)
}

fn images(world: &World) -> (Vec<u8>, Vec<u8>) {
    (world.flash.sim.peek(0, FLASH_BYTES as usize), world.origin.sim.peek(0, ORIGIN_BYTES as usize))
}

/// Sets a bit of a later program in both twins, and the bytes of its field.
fn with_later_bit(flash: &mut [u8], word_at: usize, bit: u64) {
    change_twins(flash, word_at, |word| word | bit, LATER);
}

/// Changes a word of both twins, and the bytes of the later program's field.
fn change_twins(flash: &mut [u8], word_at: usize, change: impl Fn(u64) -> u64, field: &[u8]) {
    for offset in SUPERBLOCK_OFFSETS {
        let twin = &mut flash[offset as usize..][..SUPERBLOCK_BYTES];
        twin[LATER_AT..][..field.len()].copy_from_slice(field);
        let word = u64::from_le_bytes(twin[word_at..][..8].try_into().expect("a word"));
        twin[word_at..][..8].copy_from_slice(&change(word).to_le_bytes());
        twin[CRC_AT..][..4].fill(0);
        let crc = crc32c(twin);
        twin[CRC_AT..][..4].copy_from_slice(&crc.to_le_bytes());
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../larder-format/tests/fixtures/flashes")
}

/// A file of a generation.
struct Kept {
    path: PathBuf,
    design: DesignId,
    state: FlashState,
}

impl std::fmt::Display for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.path.display().fmt(f)
    }
}

/// Returns the files of this generation, in its folder.
///
/// Its ends are there for each kind of store. The other states are there for the first one, or for
/// the design that has them.
fn kept(generation: u32) -> Vec<Kept> {
    let folder = folder().join(generation.to_string());
    let mut files = Vec::new();
    for (state, ending, _) in STATES.into_iter().filter(|&(_, _, since)| since <= generation) {
        let designs = match state {
            FlashState::Orderly | FlashState::Crashed => &OF_STORES[..],
            FlashState::ShortCheckpoints => &[("larder", DesignId::Larder)],
            _ => &OF_STORES[..1],
        };
        for &(name, design) in designs {
            files.push(Kept { path: folder.join(format!("{name}.{ending}.zst")), design, state });
        }
    }
    files
}

/// Makes a generation if `LARDER_MAKE_FLASHES` has its number.
#[test]
fn a_generation_is_made_on_request() {
    let Ok(number) = std::env::var("LARDER_MAKE_FLASHES") else { return };
    let number: u32 = number.parse().expect("LARDER_MAKE_FLASHES is the number of the generation");
    let folder = folder().join(number.to_string());
    assert!(!folder.exists(), "{} is there, and never changes: take the next number", folder.display());
    fs::create_dir_all(&folder).expect("a folder");
    for Kept { path, design, state } in kept(number) {
        let (flash, origin) = lived(design, state);
        let sizes = [FLASH_BYTES, ORIGIN_BYTES].map(u64::to_le_bytes);
        let bytes = [&sizes[0][..], &sizes[1], &flash, &origin].concat();
        let packed = zstd::encode_all(&bytes[..], 19).expect("packed");
        fs::write(path, packed).expect("a file");
    }
}

/// Returns the world of a packed flash, before it is opened.
fn unpacked(kept: &Kept) -> World {
    let packed = fs::read(&kept.path).unwrap_or_else(|error| panic!("{kept}: {error}"));
    let bytes = zstd::decode_all(&packed[..]).expect("a Zstandard frame");
    let (sizes, rest) = bytes.split_at(16);
    let size = |at: usize| u64::from_le_bytes(sizes[at..at + 8].try_into().expect("8 bytes"));
    let (flash, origin) = rest.split_at(size(0) as usize);
    assert_eq!(origin.len() as u64, size(8));
    let setup = Setup { flash_bytes: size(0), origin_bytes: size(8), ..setup(kept.design) };
    let world = World::made(SEED, setup);
    world.flash.sim.poke(0, flash);
    world.origin.sim.poke(0, origin);
    world
}

/// Returns the two feature words of a flash.
fn features(flash: &[u8]) -> [u64; 2] {
    [COMPATIBLE_AT, INCOMPATIBLE_AT].map(|at| u64::from_le_bytes(flash[at..at + 8].try_into().expect("a word")))
}

/// Returns the numbers of the generations, oldest first.
fn generations() -> Vec<u32> {
    let folders = fs::read_dir(folder()).expect("the fixtures").map(|it| it.expect("a folder").file_name());
    let mut found: Vec<u32> =
        folders.map(|name| name.to_str().and_then(|name| name.parse().ok()).expect("a number")).collect();
    found.sort_unstable();
    found
}

fn check_opened(world: &mut World, what: &str) {
    let expected = volume();
    let report = world.run(verify(&*world.flash, &mut |_, _| {})).expect("a cache");
    assert!(report.clean, "{what}: {:?}", report.problems);
    let (_, origin) = images(world);
    assert!(origin != expected, "{what}: the origin lacks something");
    world.open();
    let status = world.status();
    assert!(status.dirty_bytes >= 10 * CHUNK && status.trimmed_runs > 0, "{what}: {status:?}");
    assert_same(&world.read(0, ORIGIN_BYTES as usize), &expected, what);
    // It goes on, over another end, and gives the origin all.
    world.write(65 * CHUNK, &expected[60 * CHUNK as usize..][..CHUNK as usize]);
    world.write(65 * CHUNK, &expected[65 * CHUNK as usize..][..CHUNK as usize]);
    world.close();
    world.open();
    assert_same(&world.read(0, ORIGIN_BYTES as usize), &expected, what);
    assert!(world.destage_all(), "{what}: the origin takes all");
    assert_eq!(world.status().dirty_bytes, 0, "{what}");
    world.close();
    let (_, origin) = images(world);
    assert_same(&origin, &expected, what);
    let report = world.run(verify(&*world.flash, &mut |_, _| {})).expect("a cache");
    assert!(report.clean, "{what}, at the end: {:?}", report.problems);
}

/// Checks that nothing here reads or writes the flash.
fn check_refused(world: &mut World, what: &str) {
    let before = images(world);
    let refused = |result: Result<(), EngineError>| match result {
        Err(EngineError::Format(FormatError::NewerVersion { features, .. })) => assert_eq!(features, INCOMPATIBLE_BIT),
        other => panic!("{what}: {other:?}"),
    };
    refused(world.try_open());
    refused(world.run(verify(&*world.flash, &mut |_, _| {})).map(drop));
    for dry_run in [true, false] {
        let options = RepairOptions { dry_run, ..RepairOptions::default() };
        refused(world.run(repair(&*world.flash, &options, &mut |_, _| {})).map(drop));
    }
    assert!(images(world) == before, "{what}: the flash or the origin was written");
}

/// Checks that an opening is refused, and writes nothing.
fn check_unopened(world: &mut World, what: &str, is_right: impl Fn(&EngineError) -> bool) {
    let before = images(world);
    match world.try_open() {
        Err(error) if is_right(&error) => {}
        other => panic!("{what}: {other:?}"),
    }
    assert!(images(world) == before, "{what}: the flash or the origin was written");
}

/// Checks that this program reads the flash and writes nothing. All dirty data stays for the
/// program that knows the bit.
fn check_readable(world: &mut World, what: &str) {
    let is_right = |error: &EngineError| {
        matches!(error, EngineError::Format(FormatError::NewerVersion { features: READABLE_BIT, .. }))
    };
    let before = images(world);
    let report = world.run(verify(&*world.flash, &mut |_, _| {})).expect("a cache");
    assert!(report.clean, "{what}: {:?}", report.problems);
    for dry_run in [true, false] {
        let options = RepairOptions { dry_run, ..RepairOptions::default() };
        let repaired = world.run(repair(&*world.flash, &options, &mut |_, _| {}));
        assert!(repaired.is_err_and(|error| is_right(&error)), "{what}: a repair writes");
    }
    assert!(images(world) == before, "{what}: the flash or the origin was written");
    check_unopened(world, what, is_right);
    let (mut flash, _) = images(world);
    change_twins(&mut flash, INCOMPATIBLE_AT, |word| word & !READABLE_BIT, &[0; LATER.len()]);
    world.flash.sim.poke(0, &flash);
    check_opened(world, what);
}

/// Checks a flash as its state demands it.
fn check(world: &mut World, state: FlashState, what: &str) {
    let is_state = |error: &EngineError| matches!(error, EngineError::State(_));
    match state {
        FlashState::Orderly | FlashState::Crashed | FlashState::ShortCheckpoints => check_opened(world, what),
        FlashState::Compatible => {
            check_opened(world, what);
            let (flash, _) = images(world);
            for offset in SUPERBLOCK_OFFSETS {
                let twin = &flash[offset as usize..][..SUPERBLOCK_BYTES];
                let [word, _] = features(twin);
                assert!(word & COMPATIBLE_BIT != 0 && twin[LATER_AT..].starts_with(LATER), "{what}: it is kept");
            }
        }
        FlashState::Incompatible => check_refused(world, what),
        FlashState::Readable => check_readable(world, what),
        FlashState::OriginState => {
            world.origin.tell_mark(ChangeMark { changes: MARK.changes + 1, ..MARK });
            check_unopened(world, what, |error| matches!(error, EngineError::OriginChanged(_)));
            world.origin.tell_mark(MARK);
            check_opened(world, what);
        }
        FlashState::StateDirectory => {
            check_unopened(world, what, is_state);
            world.setup.tuning = tuning(state);
            check_opened(world, what);
        }
        FlashState::KeptTrims => {
            world.setup.tuning = tuning(state);
            world.open();
            let status = world.status();
            assert!(status.kept_trim_runs > 0 && status.trimmed_runs == 0, "{what}: {status:?}");
            assert_same(&world.read(0, ORIGIN_BYTES as usize), &volume(), what);
            world.close();
            // A serving that keeps none brings them to the origin.
            world.setup.tuning = Setup::default().tuning;
            check_opened(world, what);
        }
        FlashState::Wear => {
            let (superblock, _) = world.run(superblock::read(&*world.flash)).expect("a superblock");
            let told = WearStatus::of(&superblock);
            assert!(told.budget_bytes_a_day == WEAR_BUDGET && told.spent_bytes > 0, "{what}: {told:?}");
            check_opened(world, what);
            world.open();
            let wear = world.status().wear;
            assert!(wear.spent_bytes >= told.spent_bytes, "{what}: {wear:?}");
            world.close();
        }
        FlashState::Detached => {
            check_unopened(world, what, |error| matches!(error, EngineError::Detached));
            let (_, origin) = images(world);
            assert_same(&origin, &volume(), what);
            let report = world.run(verify(&*world.flash, &mut |_, _| {})).expect("a cache");
            assert!(report.clean, "{what}: {:?}", report.problems);
        }
    }
}

#[test]
fn flashes_of_each_generation_are_read_in_full_or_refused_as_they_are() {
    for generation in generations() {
        let mut bytes = 0;
        for kept in kept(generation) {
            check(&mut unpacked(&kept), kept.state, &kept.to_string());
            let len = fs::metadata(&kept.path).expect("a file").len();
            assert!(len <= FILE_BYTES_MAX, "{kept} has {len} bytes");
            bytes += len;
        }
        assert!(bytes <= GENERATION_BYTES_MAX, "generation {generation} has {bytes} bytes");
    }
}

#[test]
fn the_newest_generation_has_the_features_of_todays_flashes() {
    let newest = *generations().last().expect("a generation");
    for kept in kept(newest) {
        let (today, _) = lived(kept.design, kept.state);
        let (old, _) = images(&unpacked(&kept));
        assert_eq!(features(&today), features(&old), "{kept}: a new feature needs a generation, see docs/TESTING.md");
    }
}

/// A feature that only some flashes have needs a state here, and a flash in that state.
#[test]
fn each_feature_is_on_a_flash_of_the_newest_generation() {
    let newest = *generations().last().expect("a generation");
    let (mut compatible, mut incompatible) = (0, 0);
    for kept in kept(newest) {
        let (flash, _) = images(&unpacked(&kept));
        for offset in SUPERBLOCK_OFFSETS {
            let [of_readers, of_all] = features(&flash[offset as usize..][..SUPERBLOCK_BYTES]);
            compatible |= of_readers;
            incompatible |= of_all;
        }
    }
    for row in FEATURES {
        let on_flashes = if row.word == Word::Compatible { compatible } else { incompatible };
        assert!(on_flashes & row.bit != 0, "no flash has the feature {:?}: see docs/TESTING.md", row.name);
    }
    let unknown = [
        (compatible & !features::COMPATIBLE_KNOWN, COMPATIBLE_BIT),
        (incompatible & !features::INCOMPATIBLE_KNOWN, INCOMPATIBLE_BIT | READABLE_BIT),
    ];
    unknown.iter().for_each(|(found, expected)| assert_eq!(found, expected, "the bits of later programs"));
}

#[test]
fn each_kind_of_store_is_kept() {
    for kind in [StoreKind::Weus, StoreKind::Slots, StoreKind::Buckets] {
        let is_kept = |&(_, design): &(&str, DesignId)| {
            larder_engine::designs::find(design).is_ok_and(|design| design.kind() == kind)
        };
        assert_eq!(OF_STORES.iter().filter(|it| is_kept(it)).count(), 1, "{kind:?}");
    }
}
