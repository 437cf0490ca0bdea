//! The RAM that AustereCache's techniques save over CacheDedup's D-LRU: Figure 6 (§5.3, Exp#2).
//!
//! *Vanilla* is D-LRU, and *B+PK+S* AustereCache without compression; both are replayed. The two
//! steps between are the paper's to the letter, as far as RAM goes. *B+FK+L* has buckets whose
//! slots have the full key, and no sketch. The order of a bucket's slots is a list of their
//! numbers. *B+PK+L* has prefixes in place of the full keys. All of that is allocated before the
//! first request and never changes, so it is counted, not replayed.
//!
//! It leaves out the hit ratios of the steps between; the paper has none.

use super::schemes::{AC_D, CD_LRU_D, MIB, PERCENTS, SIZE_LABEL, Scheme, by_size, charts, over, percent_less, ram_mib};
use crate::{Comparison, Lab, PaperReport, Replayed, Span, Table};
use larder_core::{
    Fingerprint, Lba,
    austere::{Austere, AustereConfig, config::LBA_ENTRIES_PER_CHUNK},
};
use larder_sim::{report::plot::Scale, setup::FlashAmount};

/// Number of a slot in its bucket, in a list.
const LISTED_BYTES: u64 = 1;

/// Returns the index RAM of a cache with full keys in its slots, in bytes. It has room for so many
/// chunks.
fn full_keys_bytes(chunks: u64) -> u64 {
    let (lba_slots, fp_slots) = (LBA_ENTRIES_PER_CHUNK * chunks, chunks);
    let (lba, fingerprint) = (size_of::<Lba>() as u64, size_of::<Fingerprint>() as u64);
    let valid = (lba_slots + fp_slots).div_ceil(8);
    lba_slots * (lba + fingerprint + LISTED_BYTES) + fp_slots * (fingerprint + LISTED_BYTES) + valid
}

/// Returns the same with prefixes.
fn prefixes_bytes(chunks: u64, chunk_bytes: u32) -> Result<u64, String> {
    let config = AustereConfig::new(chunks * u64::from(chunk_bytes), chunk_bytes, false);
    let ram = Austere::new(config).map_err(|error| error.to_string())?.ram();
    let lists = LISTED_BYTES * (LBA_ENTRIES_PER_CHUNK + 1) * chunks;
    Ok(ram.lba_index_bytes as u64 + ram.fp_index_bytes as u64 + lists)
}

fn chunks_of(replayed: &Replayed) -> u64 {
    match replayed.setup.flash {
        FlashAmount::DataChunks(chunks) => chunks,
        FlashAmount::Bytes(_) | FlashAmount::PercentOfWorkingSet(_) => {
            replayed.measures.flash_data_bytes / u64::from(replayed.setup.chunk_bytes)
        }
    }
}

const VANILLA: &str = "Vanilla (CD-LRU-D)";
const FULL_KEYS: &str = "B+FK+L";
const PREFIXES: &str = "B+PK+L";
const SKETCH: &str = "B+PK+S (AC-D)";
const SCHEMES: [&Scheme; 2] = [&CD_LRU_D, &AC_D];

/// Makes Figure 6.
pub(super) fn fig6(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let mut tables = Vec::new();
    for at in 0..lab.workload_count() {
        let replayed = by_size(lab, at, &SCHEMES, &PERCENTS)?;
        let [vanilla, sketch] = replayed.as_slice() else { continue };
        let prefixes = sketch.iter().map(|one| prefixes_bytes(chunks_of(one), one.setup.chunk_bytes));
        let prefixes: Vec<u64> = prefixes.collect::<Result<_, String>>()?;
        let mib = |bytes: u64| Some(bytes as f64 / MIB);
        let mut table = Table::new(lab.workload(at)?.title(), "Index RAM (MiB)", SIZE_LABEL, PERCENTS);
        table.push(VANILLA, vanilla.iter().map(|one| Some(ram_mib(one))));
        table.push(FULL_KEYS, sketch.iter().map(|one| mib(full_keys_bytes(chunks_of(one)))));
        table.push(PREFIXES, prefixes.into_iter().map(mib));
        table.push(SKETCH, sketch.iter().map(|one| Some(ram_mib(one))));
        tables.push(table);
    }
    let saves = |name: &str, low, high| Comparison {
        what: format!("{name} less than Vanilla (%)"),
        published: Span::of(low, high),
        ours: over(&tables, &[], [name, VANILLA], percent_less),
    };
    let comparisons = vec![saves(FULL_KEYS, 30.6, 50.6), saves(PREFIXES, 43.9, 68.0), saves(SKETCH, 69.9, 94.9)];
    let words = lab.words(&[
        "The paper measures resident processes, ours are the bytes of the indices alone, so prefixes save more here \
         than there. Our fingerprints have 16 bytes, the paper's SHA-1 20. Buckets are allocated in full at the \
         beginning. At 100% of WSS half of their slots or more are never used. So full keys in them save little over \
         tables that grow with their contents."
,
        "B+FK+L and B+PK+L are counted from their layout, for all of it is allocated before the first request. Full \
         keys are 8 + 16 bytes in the LBA index and 16 in the FP index, and a list of slot numbers has one byte a \
         slot. With lists of so little, the step from lists to the sketch (two bytes for each slot of the LBA index) \
         costs RAM rather than saving it. In the paper that step saves much, so its lists must hold more. Its words \
         \"LRU lists with full LBAs and FPs\" say so."
,
        "The text calls the last step once B+FK+S; its list of variants has B+PK+S, which is AC-D.",
    ], &[]);
    Ok(PaperReport { charts: charts(&tables, "index RAM", Scale::Log), tables, comparisons, words })
}
