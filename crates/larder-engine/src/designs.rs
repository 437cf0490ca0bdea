//! The designs that the engine runs: a table of names.
//!
//! Invariants: a design is here once, under the name that its file in `larder-core` gives it.
//!
//! What it does not do: decide anything; the designs do.

use crate::{config::CreateOptions, error::EngineError};
use larder_core::{
    Design, DesignConfig,
    arc::{self, Arc},
    austere::{
        self, AustereConfig, Bucketed,
        bucketed::{self, BucketedConfig, exact},
        config::{BUCKET_SLOTS, SUBCHUNKS_PER_CHUNK},
    },
    cd_arc,
    d_arc::{self, DArc},
    d_lru::{self, DLru},
    lru::{self, Lru},
    nitro,
    slotted::{FlashSize, Placed, SizeError, Slotted, mappings_for, slots_bytes_max, spares},
};
use larder_format::{BucketRequest, Compression, DesignId, Layout, StoreKind, Superblock, layout::SLOT_COUNT_MIN};

/// What lies under a design, and how one is made.
#[derive(Clone, Copy)]
pub enum Store {
    /// A log of WEUs, filled with segments.
    Weus {
        /// Bytes of RAM for each mapping at most, one entry of the FP index and its share of the dirty list included.
        index_bytes_max: u64,
        /// An empty cache.
        make: fn(DesignConfig) -> Box<dyn Design>,
    },
    /// Slots of one chunk each.
    Slots {
        /// Whether content is shared: the design's choice.
        dedup: bool,
        /// The design, empty, for a number of data slots and a chunk size; fewer slots where it cannot number so many.
        make: fn(u64, u32) -> Box<dyn Slotted>,
    },
    /// Subchunks in buckets, of which a chunk takes some that lie together, and a metadata slot for each.
    Buckets,
}

/// How a flash is divided, as far as a design asks.
#[derive(Clone, Copy, Debug)]
pub struct DesignLayout {
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Bytes of a slot: of a WEU, a chunk or a subchunk.
    pub slot_bytes: u32,
    /// Slots of a bucket, where there are buckets.
    pub bucket_slots: u32,
    /// Chunks of the volume.
    pub chunk_count: u64,
}

impl DesignLayout {
    /// Of a flash, for a volume of so many chunks.
    pub fn of(layout: &Layout, chunk_count: u64) -> DesignLayout {
        let Layout { chunk_bytes, weu_bytes, bucket_slots, .. } = *layout;
        DesignLayout { chunk_bytes, slot_bytes: weu_bytes, bucket_slots, chunk_count }
    }

    /// The indices of AustereCache over so many slots.
    pub fn austere(&self, slots: u64) -> AustereConfig {
        AustereConfig {
            data_bytes: slots * u64::from(self.slot_bytes),
            chunk_bytes: self.chunk_bytes,
            subchunk_bytes: self.slot_bytes,
            bucket_slots: self.bucket_slots,
            // What the sketch has no room for is counted anew now and then.
            large_counts_bytes_max: Some(slots),
            ..AustereConfig::new(0, self.chunk_bytes, true)
        }
    }
}

/// A design over its store.
pub struct EngineDesign {
    /// What the superblock calls it.
    pub id: DesignId,
    /// What people call it.
    pub name: &'static str,
    /// What it is, and whose.
    pub about: &'static str,
    /// What lies under it.
    pub store: Store,
}

/// All designs.
pub const DESIGNS: &[EngineDesign] = &[
    EngineDesign {
        id: DesignId::Nitro,
        name: nitro::NAME,
        about: "Nitro (Li et al., USENIX ATC 2014): the WEU that was used least recently goes",
        store: Store::Weus {
            index_bytes_max: nitro::INDEX_BYTES_MAX,
            make: |config| Box::new(nitro::Nitro::new(config)),
        },
    },
    EngineDesign {
        id: DesignId::CdArc,
        name: cd_arc::NAME,
        about: "CacheDedup's CD-ARC (Li et al., FAST 2016, section 5.6): duplication-aware ARC over WEUs",
        store: Store::Weus {
            index_bytes_max: cd_arc::INDEX_BYTES_MAX,
            make: |config| Box::new(cd_arc::CdArc::new(config)),
        },
    },
    EngineDesign {
        id: DesignId::DLru,
        name: d_lru::NAME,
        about: "CacheDedup's D-LRU (Li et al., FAST 2016, section 4.1): addresses and data, each by last use",
        store: Store::Slots { dedup: true, make: |slots, chunk| of_slots(slots, |size| DLru::for_flash(size, chunk)) },
    },
    EngineDesign {
        id: DesignId::DArc,
        name: d_arc::NAME,
        about: "CacheDedup's D-ARC (Li et al., FAST 2016, section 4.2): duplication-aware ARC",
        store: Store::Slots { dedup: true, make: |slots, chunk| of_slots(slots, |size| DArc::for_flash(size, chunk)) },
    },
    EngineDesign {
        id: DesignId::Lru,
        name: lru::NAME,
        about: "the baseline LRU, without data reduction",
        store: Store::Slots { dedup: false, make: |slots, chunk| of_slots(slots, |size| Lru::for_flash(size, chunk)) },
    },
    EngineDesign {
        id: DesignId::Arc,
        name: arc::NAME,
        about: "the baseline ARC (Megiddo and Modha, FAST 2003), without data reduction",
        store: Store::Slots { dedup: false, make: |slots, chunk| of_slots(slots, |size| Arc::for_flash(size, chunk)) },
    },
    EngineDesign {
        id: DesignId::Austere,
        name: austere::NAME,
        about: "AustereCache (Wang et al., USENIX ATC 2020): an index of a few bits a chunk, and metadata on flash",
        store: Store::Buckets,
    },
];

/// AustereCache's indices may take so much of the RAM budget: one part of so many. The rest is for what is dirty.
const INDEX_SHARE: u64 = 2;
/// Bytes of RAM for each slot of AustereCache at most: 17 bits of the FP index, an entry of the LBA index (for each chunk there are as
/// many as subchunks) with 65 bits, two bytes of the sketch, one of its large counts, and what the engine keeps for a slot.
const BUCKET_SLOT_BYTES_MAX: u64 = 24;
/// Of fragments and trimmed runs, for each dirty chunk of AustereCache.
const EXACT_SHARE_BYTES_MAX: u64 = nitro::DIRTY_SHARE_BYTES_MAX;
/// A flash should have so many buckets at least, if they need not be too small for that.
const BUCKETS_WANTED: u64 = 64;
const BUCKET_SLOTS_MIN: u64 = 16;
/// The least subchunk: what a device writes whole.
const SUBCHUNK_BYTES_LEAST: u32 = 4096;

/// A design of so many data slots, to see what one takes.
const SAMPLE_SLOTS: u64 = 1 << 16;

/// A design of so many data slots, or of as many as its entries can be numbered for.
fn of_slots<D: Slotted + 'static>(slots: u64, make: impl Fn(FlashSize) -> Result<D, SizeError>) -> Box<dyn Slotted> {
    let mut slots = slots.max(1);
    loop {
        match make(FlashSize::DataChunks(slots)) {
            Ok(design) => return Box::new(design),
            Err(_) => slots = (slots / 2).max(1),
        }
    }
}

/// Bytes of a subchunk: of chunks that are not compressed there is nothing to divide.
fn subchunk_bytes(options: &CreateOptions) -> u32 {
    match options.compression {
        Compression::Off => options.chunk_bytes,
        _ => (options.chunk_bytes / SUBCHUNKS_PER_CHUNK).max(SUBCHUNK_BYTES_LEAST).min(options.chunk_bytes),
    }
}

impl EngineDesign {
    /// Bytes of RAM for each mapping at most, for chunks of so many bytes: what a RAM budget is divided by. Of a design with slots
    /// of one chunk its own are among them, for it has no more data slots than mappings.
    pub fn index_bytes_max(&self, chunk_bytes: u32) -> u64 {
        match self.store {
            Store::Weus { index_bytes_max, .. } => index_bytes_max,
            Store::Slots { make, .. } => {
                let design = make(SAMPLE_SLOTS, chunk_bytes).ram_bytes_max().div_ceil(SAMPLE_SLOTS);
                nitro::INDEX_BYTES_MAX + slots_bytes_max() + design
            }
            // The indices take their share of the budget, whatever is mapped.
            Store::Buckets => INDEX_SHARE * (exact::CHUNK_BYTES_MAX as u64 + EXACT_SHARE_BYTES_MAX),
        }
    }

    /// An empty cache.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] for a layout that the design cannot have.
    pub fn make(&self, config: DesignConfig, layout: &DesignLayout) -> Result<Box<dyn Design>, EngineError> {
        Ok(match self.store {
            Store::Weus { make, .. } => make(config),
            Store::Slots { make, .. } => Box::new(Placed::new(config, |slots| make(slots, layout.chunk_bytes))),
            Store::Buckets => {
                let config = BucketedConfig {
                    austere: layout.austere(config.slot_count.into()),
                    chunk_count: layout.chunk_count,
                    exact_max: config.mappings_max,
                };
                Box::new(Bucketed::new(config).map_err(|error| EngineError::Invalid(error.to_string()))?)
            }
        })
    }

    /// How a flash of so many bytes is divided for it, of a volume of so many chunks.
    pub fn layout(&self, options: &CreateOptions, flash_bytes: u64, chunk_count: u64) -> DesignLayout {
        DesignLayout {
            chunk_bytes: options.chunk_bytes,
            slot_bytes: options.weu_bytes,
            bucket_slots: self.buckets(options, flash_bytes).map_or(0, |request| request.bucket_slots),
            chunk_count,
        }
    }

    /// What a flash is to be divided into for it, where that is buckets.
    pub fn buckets(&self, options: &CreateOptions, flash_bytes: u64) -> Option<BucketRequest> {
        if !matches!(self.store, Store::Buckets) {
            return None;
        }
        let slots = flash_bytes / u64::from(options.weu_bytes.max(1));
        // Small flashes have small buckets, or they would have few.
        let bucket_slots = (slots / BUCKETS_WANTED).next_power_of_two().clamp(BUCKET_SLOTS_MIN, BUCKET_SLOTS.into());
        let bucket_slots = bucket_slots as u32;
        let layout = DesignLayout {
            chunk_bytes: options.chunk_bytes,
            slot_bytes: options.weu_bytes,
            bucket_slots,
            chunk_count: u64::MAX,
        };
        Some(BucketRequest { bucket_slots, design_pages_max: bucketed::pages_for(&layout.austere(slots)) })
    }

    /// How many mappings it asks for on a flash of so many bytes; `None` for what the format gives.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] for a flash of more slots than it can have.
    pub fn mappings_wanted(&self, flash_bytes: u64, chunk_bytes: u32) -> Result<Option<u64>, EngineError> {
        let Store::Slots { make, .. } = self.store else { return Ok(None) };
        let slots = flash_bytes / u64::from(chunk_bytes);
        let sizes = make(slots, chunk_bytes).sizes();
        match sizes.data_chunks >= slots {
            // Of those that a checkpoint has room for a sixteenth is kept free (`recover::index_limits`).
            true => Ok(Some((sizes.addresses + spares(slots)).max(mappings_for(slots)) / 15 * 16 + 16)),
            false => Err(EngineError::Invalid(format!(
                "the design {} cannot have the {slots} slots of {chunk_bytes} bytes that this flash has: take larger chunks, or {}",
                self.name,
                names_of(DESIGNS.iter().filter(|design| matches!(design.store, Store::Weus { .. })))
            ))),
        }
    }

    /// How many slots a RAM budget affords, for chunks of so many bytes; 0 sets no limit. A table entry for each slot is there from
    /// the beginning, whatever is cached.
    pub fn slots_max(&self, ram_budget_bytes: u64, chunk_bytes: u32) -> u32 {
        match self.store {
            Store::Slots { .. } if ram_budget_bytes > 0 => {
                let entries = ram_budget_bytes / self.index_bytes_max(chunk_bytes);
                let slots = u32::try_from(entries + spares(entries)).unwrap_or(u32::MAX);
                slots.max(SLOT_COUNT_MIN)
            }
            Store::Buckets if ram_budget_bytes > 0 => {
                let slots = ram_budget_bytes / INDEX_SHARE / BUCKET_SLOT_BYTES_MAX;
                u32::try_from(slots).unwrap_or(u32::MAX).max(SLOT_COUNT_MIN * SUBCHUNKS_PER_CHUNK)
            }
            Store::Slots { .. } | Store::Weus { .. } | Store::Buckets => u32::MAX,
        }
    }

    /// Changes those of the options that this design allows in one way only.
    pub fn fit(&self, options: &mut CreateOptions) {
        options.design = self.id;
        if let Store::Slots { dedup, .. } = self.store {
            options.weu_bytes = options.chunk_bytes;
            options.compression = Compression::Off;
            options.dedup = dedup;
            options.fp_index_percent = 100;
        }
        if let Store::Buckets = self.store {
            options.weu_bytes = subchunk_bytes(options);
            options.dedup = true;
            options.fp_index_percent = 100;
        }
    }

    /// Refuses options that this design cannot have.
    ///
    /// # Errors
    /// One sentence, with the designs that would do.
    pub fn check(&self, options: &CreateOptions) -> Result<(), EngineError> {
        let others = |can: &dyn Fn(&EngineDesign) -> bool| names_of(DESIGNS.iter().filter(|design| can(design)));
        let name = self.name;
        let refused = match self.store {
            Store::Weus { .. } if options.weu_bytes == options.chunk_bytes => {
                format!("the design {name} fills WEUs, and none of a single chunk")
            }
            Store::Buckets if options.weu_bytes != subchunk_bytes(options) => {
                format!(
                    "the design {name} has slots for parts of a chunk, of {} bytes here, and no WEUs",
                    subchunk_bytes(options)
                )
            }
            Store::Buckets if !options.dedup || options.fp_index_percent != 100 => format!(
                "the design {name} deduplicates, with all its fingerprints: switch that on, or take {}",
                others(&|design| !matches!(design.store, Store::Slots { dedup: true, .. } | Store::Buckets))
            ),
            Store::Slots { .. } if options.weu_bytes != options.chunk_bytes => {
                format!("the design {name} has slots of one chunk, and no WEUs")
            }
            Store::Slots { .. } if options.compression != Compression::Off => format!(
                "the design {name} stores chunks in slots of their size and does not compress: switch compression off, or take {}",
                others(&|design| !matches!(design.store, Store::Slots { .. }))
            ),
            Store::Slots { dedup: true, .. } if !options.dedup || options.fp_index_percent != 100 => format!(
                "the design {name} deduplicates, with all its fingerprints: switch that on, or take {}",
                others(&|design| !matches!(design.store, Store::Slots { dedup: true, .. } | Store::Buckets))
            ),
            Store::Slots { dedup: false, .. } if options.dedup => format!(
                "the design {name} does not deduplicate: switch deduplication off, or take {}",
                others(&|design| !matches!(design.store, Store::Slots { dedup: false, .. }))
            ),
            _ => return Ok(()),
        };
        Err(EngineError::Invalid(refused))
    }
}

/// Refuses a superblock that no cache of its design has.
///
/// # Errors
/// [`EngineError::Invalid`], for that, and for a design that this version cannot run.
pub fn check_superblock(superblock: &Superblock) -> Result<&'static EngineDesign, EngineError> {
    let design = find(superblock.design)?;
    let store = superblock.layout.store();
    let is_right = match design.store {
        Store::Weus { .. } => store == StoreKind::Weus,
        Store::Slots { dedup, .. } => {
            store == StoreKind::Slots && superblock.compression == Compression::Off && superblock.dedup == dedup
        }
        Store::Buckets => store == StoreKind::Buckets && superblock.dedup,
    };
    match is_right {
        true => Ok(design),
        false => Err(EngineError::Invalid(format!(
            "the superblock gives the design {} slots or options that it cannot have: it is damaged, or not ours",
            design.name
        ))),
    }
}

/// The names of all designs, for a sentence.
pub fn names() -> String {
    names_of(DESIGNS.iter())
}

fn names_of<'a>(designs: impl Iterator<Item = &'a EngineDesign>) -> String {
    designs.map(|design| design.name).collect::<Vec<_>>().join(", ")
}

/// The design of this name.
pub fn named(name: &str) -> Option<&'static EngineDesign> {
    DESIGNS.iter().find(|design| design.name == name)
}

/// The design that a superblock names.
///
/// # Errors
/// [`EngineError::Invalid`] for one that this version cannot run.
pub fn find(id: DesignId) -> Result<&'static EngineDesign, EngineError> {
    let found = DESIGNS.iter().find(|design| design.id == id);
    found.ok_or_else(|| EngineError::Invalid(format!("this version cannot run the design {id:?}; it runs {}", names())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(design: &EngineDesign) -> Superblock {
        let mut options = CreateOptions::default();
        design.fit(&mut options);
        crate::create::plan(64 << 20, 4096, 1 << 30, &options).expect("it fits")
    }

    fn kind(design: &EngineDesign) -> StoreKind {
        match design.store {
            Store::Weus { .. } => StoreKind::Weus,
            Store::Slots { .. } => StoreKind::Slots,
            Store::Buckets => StoreKind::Buckets,
        }
    }

    #[test]
    fn each_design_is_run_over_its_store_alone() {
        for design in DESIGNS {
            let right = made(design);
            assert_eq!(right.layout.store(), kind(design), "{}", design.name);
            assert_eq!(check_superblock(&right).map(|found| found.id).ok(), Some(design.id));
            for other in DESIGNS.iter().filter(|other| kind(other) != kind(design)) {
                let wrong = Superblock { layout: made(other).layout, ..right.clone() };
                let refused = check_superblock(&wrong).err().expect(design.name).to_string();
                let wanted =
                    format!("the superblock gives the design {} slots or options that it cannot have", design.name);
                assert!(refused.starts_with(&wanted) && !refused.contains('\n'), "{refused}");
            }
        }
    }

    #[test]
    fn a_layout_is_dumped_with_its_store() {
        let dump = |name| crate::dump::layout(&made(named(name).expect(name)));
        let buckets = dump("austere");
        let layout = made(named("austere").expect("it is known")).layout;
        assert_eq!((buckets.store, buckets.bucket_slots), ("buckets", layout.bucket_slots));
        assert!(buckets.design_pages_max > 0 && buckets.design_pages_max == layout.design_pages_max);
        let regions: Vec<_> = buckets.regions.iter().map(|region| (region.region, region.flash_offset)).collect();
        assert!(regions.ends_with(&[("metadata slots", layout.region_offset), ("data slots", layout.weu_offset)]));
        for (name, store) in [("nitro", "weus"), ("d-lru", "slots")] {
            assert_eq!(
                (dump(name).store, dump(name).regions.last().map(|region| region.region)),
                (store, Some("WEU slots"))
            );
        }
    }
}
