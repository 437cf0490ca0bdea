//! Setups that are built, and setups that are refused.

use super::*;
use crate::{cache::CacheRequest, lab::LabListener, measure::Meter, replay::own_content};
use larder_core::Lba;
use std::collections::BTreeSet;

const CHUNK: u32 = 4096;

fn setup(name: &str, flash: FlashAmount) -> Setup {
    let design = ReplayDesign::named(name).expect("a design");
    Setup { design, chunk_bytes: CHUNK, flash, policy: WritePolicy::Through, options: Options::default() }
}

fn refusal(setup: &Setup) -> String {
    setup.build(1000).err().unwrap_or_else(|| panic!("{} is refused", setup.label()))
}

/// The tables may differ in their order.
#[test]
fn the_designs_that_are_replayed_are_those_of_the_tables() {
    let replayed: BTreeSet<&str> = REPLAY_DESIGNS.iter().map(|design| design.name).collect();
    let of_core = larder_core::DESIGNS.iter().map(|design| design.name);
    assert_eq!(replayed, of_core.chain(["s3-fifo", "sieve", "clock2q+", "larc"]).collect());
    assert_eq!(REPLAY_DESIGNS.len(), replayed.len(), "each is there once");
}

#[test]
fn every_design_is_built_from_bytes_shares_and_chunks() {
    let accountings = REPLAY_DESIGNS.iter().flat_map(|design| [(design, false), (design, true)]);
    for (design, by_paper) in accountings {
        let bytes = 64 << 20;
        let setup = |name, flash| if by_paper { setup(name, flash).by_its_paper() } else { setup(name, flash) };
        let of_bytes = setup(design.name, FlashAmount::Bytes(bytes)).build(0).expect("bytes");
        let of_share = setup(design.name, FlashAmount::PercentOfWorkingSet(10.0)).build(163_840).expect("a share");
        let of_chunks = setup(design.name, FlashAmount::DataChunks(4000)).build(0).expect("chunks");
        assert_eq!((of_bytes.flash_bytes, of_share.flash_bytes), (bytes, bytes), "{}", design.name);
        assert_eq!(of_bytes.data_bytes, of_share.data_bytes, "{}", design.name);
        // Data and metadata share bytes; on chunks, metadata comes on top.
        assert!(of_bytes.data_bytes < bytes && of_bytes.data_bytes > bytes / 2, "{}", design.name);
        let asked = 4000 * u64::from(CHUNK);
        assert!(of_chunks.flash_bytes > of_chunks.data_bytes, "{}", design.name);
        let near = of_chunks.data_bytes as f64 / asked as f64;
        assert!((0.97..1.15).contains(&near), "{}: {near}", design.name);
        assert_eq!(of_chunks.cache.figures().mapped_chunks, 0);
    }
}

#[test]
fn an_option_goes_to_the_designs_that_have_it_and_is_refused_by_others() {
    let flash = FlashAmount::Bytes(64 << 20);
    let all = Options {
        dedup: Some(true),
        compress: Some(true),
        subchunk_bytes: Some(1024),
        lba_entries: Some(40_000),
        ram_bytes: Some(1 << 30),
        weu_bytes: Some(1 << 20),
        fp_index_percent: Some(50),
        granularity: Some(Granularity::Weu),
        orphans: Some(Orphans::Forget),
        accounting: Some(Accounting::Paper),
        drive: None,
    };
    for design in REPLAY_DESIGNS {
        let bare = setup(design.name, flash);
        for id in OptionId::ALL {
            let mut one = Options::default();
            match id {
                OptionId::Dedup => one.dedup = all.dedup,
                OptionId::Compress => one.compress = all.compress,
                OptionId::Subchunk => one.subchunk_bytes = all.subchunk_bytes,
                OptionId::LbaEntries => one.lba_entries = all.lba_entries,
                OptionId::Ram => one.ram_bytes = all.ram_bytes,
                OptionId::Weu => one.weu_bytes = all.weu_bytes,
                OptionId::FpIndex => one.fp_index_percent = all.fp_index_percent,
                OptionId::Granularity => one.granularity = all.granularity,
                OptionId::Orphans => one.orphans = all.orphans,
                OptionId::Accounting => one.accounting = all.accounting,
            }
            assert_eq!(one.given().collect::<Vec<_>>(), [id]);
            let asked = Setup { options: one, ..bare };
            let has = design.options.contains(&id) || id == OptionId::Dedup && design.dedups;
            assert_eq!(asked.check().is_ok(), has, "{}", asked.label());
            if design.paper_options.contains(&id) {
                let sentence = refusal(&asked);
                assert!(sentence.contains(id.name()) && sentence.contains("--accounting paper"), "{sentence}");
                assert!(asked.by_its_paper().check().is_ok(), "{sentence}");
            } else if !has {
                let sentence = refusal(&asked);
                assert!(sentence.contains(design.name) && sentence.contains(id.name()), "{sentence}");
                let (_, others) = sentence.split_once("or take ").expect("designs that have it");
                let by_paper = others.strip_suffix(" with --accounting paper");
                let asked = if by_paper.is_some() {
                    Setup { options: Options { accounting: all.accounting, ..one }, ..asked }
                } else {
                    asked
                };
                let others = by_paper.unwrap_or(others);
                for other in others.split(", ").map(|name| ReplayDesign::named(name).expect("a design")) {
                    assert!(Setup { design: other, ..asked }.check().is_ok(), "{sentence}");
                }
            }
        }
        let fitting = Setup { options: Options::default().or_from(&all, design), ..bare };
        assert!(fitting.build(0).is_ok(), "{}", fitting.label());
    }
    let without = Options { dedup: Some(false), compress: Some(false), ..Options::default() };
    assert!(Setup { options: without, ..setup("lru", flash) }.check().is_ok(), "it has neither anyway");
    assert!(refusal(&Setup { options: without, ..setup("d-arc", flash) }).contains("cannot do without deduplication"));
    assert!(refusal(&setup("lru", FlashAmount::PercentOfWorkingSet(0.0))).contains("no flash"));
    assert!(ReplayDesign::named("nitrous").unwrap_err().contains("d-lru"));
}

#[test]
fn what_is_too_small_is_refused_with_the_least_that_works() {
    let least = |sentence: &str| -> u64 {
        // All designs say it in these words.
        let words = sentence.split_once("too small").and_then(|(_, behind)| behind.split_once("; "));
        let size = words.map(|(_, behind)| behind).unwrap_or_else(|| panic!("no size: {sentence}"));
        assert!(size.ends_with(" is the least"), "{sentence}");
        let (digits, unit) = size.split_at(size.chars().take_while(char::is_ascii_digit).count());
        let number: u64 = digits.parse().unwrap_or_else(|_| panic!("no number: {sentence}"));
        match unit.chars().next() {
            Some('K') => number << 10,
            Some('M') => number << 20,
            _ if unit.starts_with(" bytes") => number,
            _ => panic!("no unit: {sentence}"),
        }
    };
    for name in ["lru", "arc", "d-lru", "d-arc", "austere", "s3-fifo", "sieve", "clock2q+", "larc"] {
        let of = |bytes| setup(name, FlashAmount::Bytes(bytes));
        let bytes = least(&refusal(&of(100).by_its_paper()));
        assert!(of(bytes).by_its_paper().build(0).is_ok(), "{name}: {bytes} bytes");
        assert!(of(bytes - 1).by_its_paper().build(0).is_err(), "{name}: {bytes} bytes");
        // The engine names a whole number of slots that does.
        let bytes = least(&refusal(&of(100)));
        assert!(of(bytes).build(0).is_ok() && of(bytes / 2).build(0).is_err(), "{name}: {bytes} bytes");
    }
    for name in ["lru", "arc", "d-lru", "d-arc", "austere", "s3-fifo", "sieve", "clock2q+", "larc", "nitro", "cd-arc"] {
        let with_ram = |ram| Setup {
            options: Options { ram_bytes: Some(ram), ..Options::default() },
            ..setup(name, FlashAmount::Bytes(64 << 20))
        };
        for of in [|setup: Setup| setup, Setup::by_its_paper] {
            let ram = least(&refusal(&of(with_ram(10))));
            assert!(of(with_ram(ram)).build(0).is_ok(), "{name}: {ram} bytes of RAM");
            assert!(of(with_ram(ram - 1)).build(0).is_err(), "{name}: {ram} bytes of RAM");
        }
    }
    for name in ["lru", "arc", "d-lru", "d-arc", "austere", "s3-fifo", "sieve", "clock2q+", "larc", "nitro", "cd-arc"] {
        let sentence = refusal(&setup(name, FlashAmount::DataChunks(0)));
        assert!(
            sentence.contains("0 data chunks are too few") && sentence.ends_with(" the least"),
            "{name}: {sentence}"
        );
        let sentence = refusal(&setup(name, FlashAmount::Bytes(u64::MAX)));
        assert!(sentence.len() > 20, "{name}: {sentence}");
    }
    let entries = Options { lba_entries: Some(1000), ..Options::default() };
    let d_arc = Setup { options: entries, ..setup("d-arc", FlashAmount::Bytes(64 << 20)) };
    let refused = refusal(&d_arc.by_its_paper());
    assert!(refused.contains("metadata entries"), "{refused}");
    let entries = Options { lba_entries: Some(11), ..Options::default() };
    let d_arc = Setup { options: entries, ..setup("d-arc", FlashAmount::DataChunks(6)) };
    assert_eq!(
        refusal(&d_arc.by_its_paper()),
        "d-arc: 11 metadata entries are too few for its data chunks; 12 are the least"
    );
    assert!(
        refusal(&setup("nitro", FlashAmount::Bytes(1 << 20))).contains("a flash of 1M is too small; 16M is the least")
    );
}

#[test]
fn a_weu_that_is_too_large_for_the_flash_is_named_with_its_range() {
    let with_weu = |weu: u32, flash: u64| Setup {
        options: Options { weu_bytes: Some(weu), ..Options::default() },
        ..setup("nitro", FlashAmount::Bytes(flash))
    };
    let sentence = refusal(&with_weu(4 << 20, 8 << 20));
    assert_eq!(
        sentence,
        "weu is 4M, but has to be 512K to 1M here: with it a flash of 8M is too small; 32M is the least"
    );
    assert!(with_weu(1 << 20, 8 << 20).build(0).is_ok() && with_weu(2 << 20, 8 << 20).build(0).is_err());
    // If no WEU fits, the refusal names the flash.
    let sentence = refusal(&with_weu(4 << 20, 1 << 20));
    assert!(sentence.starts_with("a flash of 1M is too small; "), "{sentence}");
}

#[test]
fn a_ram_budget_is_kept_to_whatever_is_asked_of_the_cache() {
    for name in ["lru", "arc", "d-lru", "d-arc", "austere", "s3-fifo", "sieve", "clock2q+", "larc"] {
        for (ram, by_paper) in [(20_000, true), (100_000, true), (1_000_000, true), (1 << 20, false)] {
            let options = Options { ram_bytes: Some(ram), ..Options::default() };
            let flash = FlashAmount::Bytes(1 << 30);
            let setup = Setup { options, policy: WritePolicy::Back, ..setup(name, flash) };
            let setup = if by_paper { setup.by_its_paper() } else { setup };
            let built = setup.build(0).expect("built");
            assert!(built.data_bytes < 1 << 30, "{name} is smaller");
            let chunks = built.data_bytes / u64::from(CHUNK);
            let mut meter = Meter::new(built, CHUNK, 0);
            for step in 0..20 * chunks + 1000 {
                let mixed = larder_core::types::mix(step);
                let (lba, content) = (Lba(mixed % (3 * chunks)), own_content(Lba(mixed >> 32), CHUNK));
                let request = match mixed >> 20 & 7 {
                    0 => CacheRequest::Trim(lba, 1),
                    1..3 => CacheRequest::Read(lba, content),
                    _ => CacheRequest::Write(lba, content),
                };
                meter.take(&[request]);
            }
            let told = meter.finish().figures.index_ram_bytes;
            assert!(told <= ram, "{name}: {told} of {ram} bytes");
            assert!(told > ram / 5, "{name}: {told} of {ram} bytes");
        }
    }
}

/// As many contents as possible have more references than a counter of the sketch holds.
#[test]
fn large_counts_of_austere_take_what_the_budget_leaves_and_no_more() {
    for ram in [50_000, 1 << 20] {
        let options = Options { ram_bytes: Some(ram), ..Options::default() };
        let setup = Setup { options, ..setup("austere", FlashAmount::Bytes(1 << 30)) };
        let built = setup.by_its_paper().build(0).expect("built");
        let entries = 4 * built.data_bytes / u64::from(CHUNK);
        let mut meter = Meter::new(built, CHUNK, 0);
        let before = meter.cache().figures().index_ram_bytes;
        assert!(before > ram * 9 / 10, "{before} of {ram} bytes: nothing is set aside");
        for step in 0..6 * entries {
            let lba = larder_core::types::mix(step) % entries;
            meter.take(&[CacheRequest::Write(Lba(lba), own_content(Lba(lba / 14), CHUNK))]);
        }
        let told = meter.finish().figures.index_ram_bytes;
        println!("{ram}: {before} bytes at first, then {told}");
        assert!(told > before && told <= ram, "some counts are large: {before} and then {told} of {ram} bytes");
    }
}

/// If the number of addresses is given, a sufficient budget is not spent on unused counts.
#[test]
fn a_budget_that_holds_the_indices_of_austere_takes_no_flash_away() {
    let with_ram = |ram_bytes| {
        let options = Options { ram_bytes, lba_entries: Some(100_000), ..Options::default() };
        let setup = Setup { options, ..setup("austere", FlashAmount::Bytes(128 << 20)) };
        let built = setup.by_its_paper().build(0).expect("built");
        (built.data_bytes, built.cache.figures().index_ram_bytes)
    };
    let (data_bytes, index_bytes) = with_ram(None);
    assert_eq!(with_ram(Some(index_bytes)), (data_bytes, index_bytes));
    assert!(with_ram(Some(index_bytes - 1)).0 < data_bytes);
}

#[test]
fn designs_in_weus_keep_to_a_ram_budget_too() {
    const RAMS: [u64; 3] = [500_000, 1 << 20, 3 << 20];
    for (name, ram) in ["nitro", "cd-arc"].into_iter().flat_map(|name| RAMS.map(|ram| (name, ram))) {
        for policy in [WritePolicy::Back, WritePolicy::Through] {
            let options = Options { ram_bytes: Some(ram), ..Options::default() };
            let setup = Setup { options, policy, ..setup(name, FlashAmount::Bytes(256 << 20)) };
            let mut meter = Meter::new(setup.build(0).expect("built"), CHUNK, 0);
            for step in 0..150_000 {
                let mixed = larder_core::types::mix(step);
                // A quarter of the contents are shared.
                let number = if mixed >> 40 & 3 == 0 { mixed >> 32 & 0x3ff } else { mixed >> 32 };
                let (lba, content) = (Lba(mixed % 100_000), own_content(Lba(number), CHUNK));
                let request = match mixed >> 20 & 15 {
                    0 => CacheRequest::Trim(lba, 1),
                    1..6 => CacheRequest::Read(lba, content),
                    _ => CacheRequest::Write(lba, content),
                };
                meter.take(&[request]);
                if step % 50_000 == 0 {
                    let told = meter.cache().figures().index_ram_bytes;
                    assert!(told <= ram, "{name}, {policy:?}, step {step}: {told} of {ram} bytes");
                }
            }
            let told = meter.finish().figures.index_ram_bytes;
            assert!(told <= ram && told > ram / 5, "{name}, {policy:?}: {told} of {ram} bytes");
        }
    }
}

#[test]
fn labels_say_what_was_asked_for() {
    let mut nitro = setup("nitro", FlashAmount::DataChunks(5000));
    assert_eq!((nitro.label().as_str(), nitro.flash.to_string().as_str()), ("nitro", "5000c"));
    nitro.options.dedup = Some(false);
    nitro.options.granularity = Some(Granularity::Extent);
    assert_eq!(nitro.label(), "nitro:dedup=off:granularity=extent");
    assert_eq!(FlashAmount::PercentOfWorkingSet(12.5).to_string(), "12.5%");
    let mut d_lru = setup("d-lru", FlashAmount::DataChunks(5000));
    d_lru.options.orphans = Some(Orphans::Forget);
    assert_eq!(d_lru.by_its_paper().label(), "d-lru:orphans=forget:accounting=paper");
}

/// The figure has one meaning for all designs; `docs/LAB.md` has it.
#[test]
fn designs_that_remember_what_they_replaced_have_ghost_hits() {
    for design in REPLAY_DESIGNS {
        let built = setup(design.name, FlashAmount::DataChunks(4000)).build(0).expect("chunks");
        let mut meter = Meter::new(built, CHUNK, 0);
        let read = |lba| CacheRequest::Read(Lba(lba), own_content(Lba(lba), CHUNK));
        // Some are used twice, so that ARC keeps ghosts of the others.
        let requests: Vec<CacheRequest> = (0..1000).chain(0..1000).chain(1000..7000).map(read).collect();
        meter.take(&requests);
        let ghosts = |meter: &Meter| meter.cache().traffic().ghost_hits;
        // The ghosts of LARC are the chunks that it refused at first: a thousand come again.
        let refused = if design.name == "larc" { 1000 } else { 0 };
        assert_eq!(ghosts(&meter), refused, "{}: nothing that was replaced was asked for", design.name);
        let misses = meter.cache().traffic().origin_chunks_read;
        // The last replaced addresses come first.
        meter.take(&(0..7000).rev().map(read).collect::<Vec<_>>());
        let misses = meter.cache().traffic().origin_chunks_read - misses;
        let has_ghosts =
            ["arc", "d-lru", "d-arc", "cd-arc", "s3-fifo", "sieve", "clock2q+", "larc"].contains(&design.name);
        let found = ghosts(&meter) - refused;
        assert_eq!(found > 0, has_ghosts, "{}", design.name);
        assert!(found <= misses, "{}: a ghost hit is a miss", design.name);
    }
}
