//! The designs that the engine runs: a table of names.
//!
//! Invariants: a design is here once, under the name that its file in `larder-core` gives it.
//!
//! What it does not do: decide anything; the designs do.

use crate::{config::CreateOptions, error::EngineError};
use larder_core::{
    Design, DesignConfig,
    arc::{self, Arc},
    cd_arc,
    d_arc::{self, DArc},
    d_lru::{self, DLru},
    lru::{self, Lru},
    nitro,
    slotted::{FlashSize, Placed, SizeError, Slotted, mappings_for, slots_bytes_max, spares},
};
use larder_format::{Compression, DesignId, StoreKind, Superblock, layout::SLOT_COUNT_MIN};

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
];

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
        }
    }

    /// An empty cache, for chunks of so many bytes.
    pub fn make(&self, config: DesignConfig, chunk_bytes: u32) -> Box<dyn Design> {
        match self.store {
            Store::Weus { make, .. } => make(config),
            Store::Slots { make, .. } => Box::new(Placed::new(config, |slots| make(slots, chunk_bytes))),
        }
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
            Store::Slots { .. } | Store::Weus { .. } => u32::MAX,
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
            Store::Slots { .. } if options.weu_bytes != options.chunk_bytes => {
                format!("the design {name} has slots of one chunk, and no WEUs")
            }
            Store::Slots { .. } if options.compression != Compression::Off => format!(
                "the design {name} stores chunks in slots of their size and does not compress: switch compression off, or take {}",
                others(&|design| matches!(design.store, Store::Weus { .. }))
            ),
            Store::Slots { dedup: true, .. } if !options.dedup || options.fp_index_percent != 100 => format!(
                "the design {name} deduplicates, with all its fingerprints: switch that on, or take {}",
                others(&|design| !matches!(design.store, Store::Slots { dedup: true, .. }))
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
    use larder_format::{BucketRequest, Layout, LayoutRequest};

    /// A flash with a metadata region whose slots are as large as `made` has them, or as its chunks are.
    fn with_buckets(made: &Superblock) -> Superblock {
        let chunk_bytes = made.layout.chunk_bytes;
        let request = LayoutRequest {
            flash_bytes: made.layout.flash_bytes,
            origin_bytes: made.origin.size_bytes,
            chunk_bytes,
            weu_bytes: chunk_bytes,
            sector_bytes: made.layout.sector_bytes,
            fp_entries_max: None,
            mappings_max: None,
            buckets: Some(BucketRequest { bucket_slots: 128, design_pages_max: 8 }),
        };
        let superblock = Superblock { layout: Layout::plan(request).expect("it fits"), ..made.clone() };
        assert_eq!(superblock.check(), Ok(()));
        superblock
    }

    #[test]
    fn no_design_is_run_over_buckets() {
        for design in DESIGNS {
            let mut options = CreateOptions::default();
            design.fit(&mut options);
            let made = crate::create::plan(64 << 20, 4096, 1 << 30, &options).expect("it fits");
            assert_eq!(check_superblock(&made).map(|found| found.id).ok(), Some(design.id));
            let refused = check_superblock(&with_buckets(&made)).err().expect(design.name).to_string();
            let wanted =
                format!("the superblock gives the design {} slots or options that it cannot have", design.name);
            assert!(refused.starts_with(&wanted) && !refused.contains('\n'), "{refused}");
        }
    }

    #[test]
    fn the_design_that_buckets_are_for_is_not_run_yet() {
        let made = crate::create::plan(64 << 20, 4096, 1 << 30, &CreateOptions::default()).expect("it fits");
        let superblock = Superblock { design: DesignId::Austere, ..with_buckets(&made) };
        let refused = check_superblock(&superblock).err().expect("there is no such design").to_string();
        assert!(refused.starts_with("this version cannot run the design Austere; it runs nitro, "), "{refused}");
        let dumped = crate::dump::layout(&superblock);
        let layout = &superblock.layout;
        assert_eq!((dumped.store, dumped.bucket_slots, dumped.design_pages_max), ("buckets", 128, 8));
        let regions: Vec<_> = dumped.regions.iter().map(|region| (region.region, region.flash_offset)).collect();
        assert!(regions.ends_with(&[("metadata slots", layout.region_offset), ("data slots", layout.weu_offset)]));
        assert_eq!(crate::dump::layout(&made).store, "weus");
        assert_eq!(crate::dump::layout(&made).regions.last().map(|region| region.region), Some("WEU slots"));
    }
}
