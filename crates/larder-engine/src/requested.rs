//! The options that are asked of a new cache, some of which a design may fix.
//!
//! Invariants: an option that was not asked for is as the design has it. An option that was asked
//! for is taken, or refused with the designs that take all asked options.
//!
//! It does not look at devices; [`create`](mod@crate::create) does.

pub(crate) mod refusal;

use crate::{
    config::CreateOptions,
    designs::{ENGINE_DESIGNS, EngineDesign, names_of},
    error::EngineError,
    requested::refusal::Refusal,
};
use larder_format::Compression;

/// Options of a new cache that may be left to its design.
#[derive(Clone, Copy, Debug)]
pub struct RequestedOptions {
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Bytes of a WEU.
    pub slot_bytes: Option<u32>,
    /// Compression of chunks.
    pub compression: Option<Compression>,
    /// Deduplication: equal content is kept once.
    pub dedup: Option<bool>,
    /// The FP index ratio in percent.
    pub fp_index_percent: Option<u8>,
}

impl From<&CreateOptions> for RequestedOptions {
    /// Converts all options. A full FP index counts as not asked for, because a design has it by
    /// itself.
    fn from(options: &CreateOptions) -> RequestedOptions {
        RequestedOptions {
            chunk_bytes: options.chunk_bytes,
            slot_bytes: Some(options.slot_bytes),
            compression: Some(options.compression),
            dedup: Some(options.dedup),
            fp_index_percent: Some(options.fp_index_percent).filter(|&percent| percent != 100),
        }
    }
}

impl EngineDesign {
    /// Returns the options that follow from the asked ones.
    ///
    /// # Errors
    /// One sentence on the options that the design cannot have, with the designs that take all
    /// asked options, if any.
    pub fn options(&self, asked: &RequestedOptions) -> Result<CreateOptions, EngineError> {
        match self.look_at(asked) {
            Ok(options) => Ok(options),
            Err(Refusal { why, instead }) => {
                let others = names_of(ENGINE_DESIGNS.iter().filter(|design| design.look_at(asked).is_ok()));
                let or_take = if others.is_empty() { String::new() } else { format!(", or take {others}") };
                Err(self.refusal(&format!("{why}: {instead}{or_take}")))
            }
        }
    }

    /// Returns an error for options that this design cannot have.
    ///
    /// # Errors
    /// As [`EngineDesign::options`].
    pub fn check(&self, options: &CreateOptions) -> Result<(), EngineError> {
        self.options(&RequestedOptions::from(options)).map(|_| ())
    }

    fn look_at(&self, asked: &RequestedOptions) -> Result<CreateOptions, Refusal> {
        if asked.fp_index_percent.is_some() && !self.can_share() {
            return Err(Refusal::new("does not deduplicate, and has no FP index", "leave its size out"));
        }
        let mut options = CreateOptions { chunk_bytes: asked.chunk_bytes, ..CreateOptions::default() };
        // A slot may be smaller if chunks are compressed.
        options.compression = asked.compression.unwrap_or(options.compression);
        self.fit(&mut options);
        let options = CreateOptions {
            slot_bytes: asked.slot_bytes.unwrap_or(options.slot_bytes),
            compression: asked.compression.unwrap_or(options.compression),
            dedup: asked.dedup.unwrap_or(options.dedup),
            fp_index_percent: asked.fp_index_percent.unwrap_or(options.fp_index_percent),
            ..options
        };
        self.store.check(&options).map(|()| options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all askable options, in all combinations.
    fn all() -> impl Iterator<Item = RequestedOptions> {
        let chunks = [4 << 10, 8 << 10, 32 << 10];
        let weus = [None, Some(8 << 10), Some(1 << 20)];
        let compressions = [None, Some(Compression::Off), Some(Compression::Lz4), Some(Compression::Zstd)];
        let (dedups, percents) = ([None, Some(false), Some(true)], [None, Some(0), Some(50), Some(100)]);
        chunks.into_iter().flat_map(move |chunk_bytes| {
            weus.into_iter().flat_map(move |slot_bytes| {
                compressions.into_iter().flat_map(move |compression| {
                    dedups.into_iter().flat_map(move |dedup| {
                        let asked =
                            RequestedOptions { chunk_bytes, slot_bytes, compression, dedup, fp_index_percent: None };
                        percents.into_iter().map(move |fp_index_percent| RequestedOptions { fp_index_percent, ..asked })
                    })
                })
            })
        })
    }

    #[test]
    fn a_refusal_names_the_designs_that_take_what_is_asked() {
        for asked in all() {
            let take: Vec<_> = ENGINE_DESIGNS.iter().filter(|design| design.options(&asked).is_ok()).collect();
            let named = take.iter().map(|design| design.name).collect::<Vec<_>>().join(", ");
            for design in ENGINE_DESIGNS {
                match design.options(&asked) {
                    Ok(options) => {
                        assert_eq!(options.design, design.id);
                        assert!(asked.slot_bytes.is_none_or(|bytes| bytes == options.slot_bytes), "{asked:?}");
                        assert!(asked.compression.is_none_or(|asked| asked == options.compression), "{asked:?}");
                        assert!(asked.dedup.is_none_or(|dedup| dedup == options.dedup), "{asked:?}");
                        // The resulting options are themselves taken.
                        design.check(&options).expect(design.name);
                    }
                    Err(refused) => {
                        let refused = refused.to_string();
                        assert!(refused.contains(&format!("the design {} ", design.name)), "{refused}");
                        let ends = if named.is_empty() { String::new() } else { format!(", or take {named}") };
                        assert!(refused.ends_with(&ends), "{asked:?}: {refused}");
                        assert_eq!(refused.matches(", or take").count(), usize::from(!named.is_empty()), "{refused}");
                    }
                }
            }
        }
    }
}
