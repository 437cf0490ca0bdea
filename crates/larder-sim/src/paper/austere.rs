//! AustereCache's experiments on the FIU traces (§5.3 and §5.4), Figures 5 to 10.
//!
//! Caches have room for a share of the working set in whole chunks, metadata on top, and an LBA index of four times as many
//! entries, CacheDedup's as well as AustereCache's (§5.2). Chunks are of 32 KiB, subchunks of 8 KiB.
//!
//! Ours, since the paper does not say: the sizes between 12.5% and 100%, and write-through.
//!
//! What it does not do: the experiments on throughput (§5.5), which are about devices.

mod designs;

use larder_trace::Unknown;

use super::{Experiment, How, Lab, Replayed, StandIn, profile};
use crate::{
    cache::WritePolicy,
    setup::{Design, FlashAmount, Options, Setup},
};

const PAPER: &str = "AustereCache (ATC '20)";
/// Bytes of a chunk.
const CHUNK_BYTES: u32 = 32 << 10;
/// Slots of a bucket: caches are of whole ones, so that all designs have the same room.
const BUCKET_CHUNKS: u64 = 128;
/// The least that designs in WEUs need, too.
const CACHE_BUCKETS_MIN: u64 = 2;
/// Entries of the LBA index for each chunk that the flash holds.
const LBA_ENTRIES_PER_CHUNK: u64 = 4;

const WEBVM: StandIn = StandIn {
    name: "WebVM",
    about: "profile webvm@austere",
    scale: 0.12,
    records: |scale| profile("webvm@austere", scale),
};
const HOMES: StandIn = StandIn {
    name: "Homes",
    about: "profile homes@austere",
    scale: 0.05,
    records: |scale| profile("homes@austere", scale),
};
const MAIL: StandIn = StandIn {
    name: "Mail",
    about: "profile mail@austere",
    scale: 0.006,
    records: |scale| profile("mail@austere", scale),
};

/// The paper's experiments.
pub(super) static EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "austere-fig7",
    paper: PAPER,
    figure: "Figure 7 (Exp#3)",
    about: "read hit ratio of each design, by cache size",
    stand_ins: &[WEBVM, HOMES, MAIL],
    run: designs::fig7,
}];

/// A scheme of the paper: its name, and the design that it is.
struct Scheme {
    name: &'static str,
    design: &'static str,
    compress: Option<bool>,
}

const CD_LRU_D: Scheme = Scheme { name: "CD-LRU-D", design: "d-lru", compress: None };
const CD_ARC_D: Scheme = Scheme { name: "CD-ARC-D", design: "d-arc", compress: None };
const AC_D: Scheme = Scheme { name: "AC-D", design: "austere", compress: Some(false) };
const CD_ARC_DC: Scheme = Scheme { name: "CD-ARC-DC", design: "cd-arc", compress: None };
const AC_DC: Scheme = Scheme { name: "AC-DC", design: "austere", compress: None };

impl Scheme {
    /// A cache with room for so many chunks of data.
    fn setup(&self, chunks: u64, chunk_bytes: u32) -> Result<Setup, String> {
        let lba_entries = Some(LBA_ENTRIES_PER_CHUNK * chunks);
        Ok(Setup {
            design: Design::named(self.design)?,
            chunk_bytes,
            flash: FlashAmount::DataChunks(chunks),
            policy: WritePolicy::Through,
            options: Options { lba_entries, compress: self.compress, ..Options::default() },
        })
    }
}

/// Chunks of 32 KiB; what was never read is zeroes (§5.1).
fn how() -> How {
    How::new(CHUNK_BYTES, Unknown::Zero)
}

/// So many percent of a working set, in whole buckets.
fn cache_chunks(working_set_chunks: u64, percent: f64) -> u64 {
    let chunks = working_set_chunks as f64 * percent / 100.0;
    ((chunks / BUCKET_CHUNKS as f64).round() as u64).max(CACHE_BUCKETS_MIN) * BUCKET_CHUNKS
}

/// Replays a trace through each scheme at each size, and takes one figure of each: a line of figures a scheme.
fn by_size(
    lab: &mut Lab<'_>,
    at: usize,
    schemes: &[&Scheme],
    percents: &[f64],
    figure: fn(&Replayed) -> f64,
) -> Result<Vec<Vec<f64>>, String> {
    let working_set = lab.survey(at, &how())?.working_set_chunks;
    let setup = |scheme: &&Scheme, percent: &f64| scheme.setup(cache_chunks(working_set, *percent), CHUNK_BYTES);
    let setups = schemes.iter().flat_map(|scheme| percents.iter().map(move |percent| setup(scheme, percent)));
    let setups: Vec<Setup> = setups.collect::<Result<_, String>>()?;
    let replayed = lab.replay(at, &how(), 0, &setups)?;
    let figures: Vec<f64> = replayed.iter().map(figure).collect();
    Ok(figures.chunks(percents.len()).map(<[f64]>::to_vec).collect())
}
