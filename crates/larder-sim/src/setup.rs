//! The name of a cache to replay, a design, its sizes, and its options; and the making of the
//! cache.
//!
//! Role: [`REPLAY_DESIGNS`] is the list of designs that are replayed, all of `larder-core`'s.
//! [`Setup`] is a user's request, and [`Setup::build`] makes its cache.
//!
//! A flash is divided as the engine divides it: see `setup/executed.rs` and `setup/weu.rs`. In the
//! papers' accounting each paper divides it in its own way: see `setup/equal_slots.rs` and
//! `setup/austere.rs`.
//!
//! Invariants: an option that a design does not have is refused at once, in one sentence. A size
//! that is too small is refused with the least that works. A RAM budget makes the cache smaller
//! until its index can't outgrow it.
//!
//! It does not know the spelling of options beyond their names, or count a working set.

mod austere;
mod designs;
pub mod drive;
mod equal_blocks;
mod equal_slots;
mod executed;
mod options;
mod search;
mod weu;
mod words;

use std::ops::Range;

pub use crate::executor::sizing::Granularity;
use crate::{
    cache::{ReplayCache, WritePolicy},
    dirty::{Dirtying, TooDirty},
    host::Host,
};
pub use designs::REPLAY_DESIGNS;
use designs::names_of;
pub use equal_blocks::with_equal_blocks;
use larder_core::slotted::FlashSize;
pub use larder_core::slotted::Orphans;
pub use options::{Accounting, OptionId, Options};
pub use words::{Built, FlashAmount, ReplayDesign, Setup};

impl Setup {
    /// Returns the same cache by its design's paper, if that has an accounting of its own.
    pub fn by_its_paper(self) -> Setup {
        let accounting = self.design.build_paper.map(|_| Accounting::Paper);
        Setup { options: Options { accounting, ..self.options }, ..self }
    }

    fn accounting(&self) -> Accounting {
        self.options.accounting.unwrap_or_default()
    }

    /// Makes the cache, empty. `working_set_chunks` matters if the flash is a share of it.
    ///
    /// # Errors
    /// One sentence: an option that the design does not have, or sizes with which it cannot work,
    /// with the least that it can.
    pub fn build(&self, working_set_chunks: u64) -> Result<Built, String> {
        self.check()?;
        let flash = self.flash.resolve(working_set_chunks, self.chunk_bytes)?;
        let build = match self.accounting() {
            Accounting::Engine => self.design.build,
            Accounting::Paper => self.design.build_paper.unwrap_or(self.design.build),
        };
        let built = build(self, flash)?;
        let Some(drive) = self.options.drive else { return Ok(built) };
        // For equal flashes, drives are equal: the layout's remainder does not matter.
        let (data, weu_bytes) = (built.cache.flash_data_range(), built.cache.flash_weu_bytes());
        let bytes = match drive.only_data {
            true => data.end - data.start,
            false => built.flash_bytes.max(built.cache.flash_span_bytes()),
        };
        let mut host = drive.build(bytes, weu_bytes).map_err(|sentence| match (flash, weu_bytes) {
            // A user that asks for chunks cannot see why a unit has another size.
            (FlashSize::DataChunks(_), Some(_)) if sentence.contains("weu_bytes is ") => format!(
                "{sentence}; of a flash in chunks a unit has its tables on top, and so is no whole blocks: say --flash in bytes"
            ),
            _ => sentence,
        })?;
        if drive.only_data {
            host.lay_only(data.clone());
        }
        let mut built = built;
        if host.ftl().drops_unasked() {
            self.expect_drops(&mut *built.cache, &mut host, data)?;
        }
        Ok(Built { drive: Some(Box::new(host)), ..built })
    }

    /// Prepares the cache for a drive that drops clean data by itself: it tells the dirty data.
    ///
    /// Its metadata is always dirty, for without it no data is found. Other data is dirty only in
    /// write-back.
    fn expect_drops(&self, cache: &mut dyn ReplayCache, host: &mut Host, data: Range<u64>) -> Result<(), String> {
        let (layer, design) = (self.options.drive.map_or("the layer", |drive| drive.ftl.name), self.design.name);
        if !cache.expect_drops() {
            return Err(format!(
                "{layer} drops data by itself, and {design} keeps data without addresses: write --accounting paper --orphans forget, or take another layer"
            ));
        }
        let metadata = Vec::from([0..data.start, data.end..cache.flash_span_bytes().max(data.end)]);
        let is_back = self.policy == WritePolicy::Back;
        let at_once = if is_back { self.chunk_bytes.into() } else { 0 };
        let dirtying = Dirtying { for_ever: metadata, at_once };
        host.keep(&dirtying).map_err(|TooDirty { for_ever, at_once, needed, blocks_max }| match is_back {
            true => format!(
                "in write-back the metadata of {design} ({for_ever} blocks) and a chunk (up to {at_once}) need {needed} dirty blocks, and {layer} takes {blocks_max}: give a larger --flash, or --mode write-through"
            ),
            false => format!(
                "the metadata of {design} ({for_ever} blocks) and a block of data need {needed} blocks, and {layer} can keep {blocks_max}: give it a larger --flash"
            ),
        })
    }

    /// Checks that the design has the given options.
    ///
    /// # Errors
    /// A sentence for the first option that it lacks, with the designs that have it.
    pub fn check(&self) -> Result<(), String> {
        let ReplayDesign { name, options, paper_options, dedups, .. } = self.design;
        let accounting = self.accounting();
        let has = |design: &ReplayDesign, id| design.takes(id, accounting);
        if !has(self.design, OptionId::Dedup) {
            match (self.options.dedup, dedups) {
                (Some(true), false) => {
                    let others = names_of(|design| design.dedups || has(design, OptionId::Dedup));
                    return Err(format!("{name} has no deduplication: leave out --dedup on, or take {others}"));
                }
                (Some(false), true) => {
                    let others = names_of(|design| !design.dedups || has(design, OptionId::Dedup));
                    return Err(format!(
                        "{name} cannot do without deduplication: leave out --dedup off, or take {others}"
                    ));
                }
                (Some(_), _) | (None, _) => {}
            }
        }
        if !has(self.design, OptionId::Compress) && self.options.compress == Some(true) {
            let others = names_of(|design| has(design, OptionId::Compress));
            return Err(format!("{name} has no compression: leave out --compress on, or take {others}"));
        }
        // Turning off a missing option is possible for any design.
        let is_moot = |id| {
            matches!(id, OptionId::Dedup | OptionId::Compress)
                || id == OptionId::Accounting && accounting == Accounting::Engine
        };
        match self.options.given().find(|id| !has(self.design, *id) && !is_moot(*id)) {
            Some(id) if paper_options.contains(&id) => Err(format!(
                "{name} has the option --{} only as its paper counts: leave it out, or write --accounting paper, too",
                id.name()
            )),
            Some(id) => {
                let (others, option) = (names_of(|design| has(design, id)), id.name());
                let others = match others.is_empty() {
                    true => names_of(|design| design.takes(id, Accounting::Paper)) + " with --accounting paper",
                    false => others,
                };
                let own: Vec<&str> = options.iter().map(|id| id.name()).collect();
                Err(format!(
                    "{name} has no option --{option}; it has {}: leave it out, or take {others}",
                    own.join(", ")
                ))
            }
            None => Ok(()),
        }
    }

    /// Returns its label: design, options and translation layer, as in `nitro:dedup=off:ftl=page`.
    pub fn label(&self) -> String {
        let mut label = self.design.name.to_owned();
        let Options {
            dedup,
            compress,
            subchunk_bytes,
            lba_entries,
            ram_bytes,
            weu_bytes,
            fp_index_percent,
            granularity,
            orphans,
            accounting,
            drive,
        } = self.options;
        let on_off = |value: bool| if value { "on" } else { "off" }.to_owned();
        let pairs = [
            (OptionId::Dedup, dedup.map(on_off)),
            (OptionId::Compress, compress.map(on_off)),
            (OptionId::Subchunk, subchunk_bytes.map(|bytes| size(bytes.into()))),
            (OptionId::LbaEntries, lba_entries.map(|entries| entries.to_string())),
            (OptionId::Ram, ram_bytes.map(size)),
            (OptionId::Weu, weu_bytes.map(|bytes| size(bytes.into()))),
            (OptionId::FpIndex, fp_index_percent.map(|percent| percent.to_string())),
            (OptionId::Granularity, granularity.map(|granularity| granularity.name().to_owned())),
            (OptionId::Orphans, orphans.map(|orphans| orphans.name().to_owned())),
            (OptionId::Accounting, accounting.map(|accounting| accounting.name().to_owned())),
        ];
        for (id, value) in pairs {
            if let Some(value) = value {
                label.push_str(&format!(":{}={value}", id.name()));
            }
        }
        if let Some(drive) = drive {
            label.push_str(&format!(":ftl={}", drive.ftl.name));
        }
        label
    }
}

/// Writes a size as an option would: `8K`, or `6000`.
fn size(bytes: u64) -> String {
    let suffixes = ["", "K", "M", "G", "T"];
    let power = (bytes.trailing_zeros() as usize / 10).min(suffixes.len() - 1);
    match suffixes.get(power) {
        Some(suffix) if bytes > 0 => format!("{}{suffix}", bytes >> (10 * power)),
        _ => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests;
