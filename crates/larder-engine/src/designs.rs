//! The designs that the engine runs, each with its store and the format's number for its name. They
//! are the designs of `larder-core`'s table ([`larder_core::DESIGNS`]).
//!
//! Invariants: the file names no design, and treats all alike; the stores make the differences.
//!
//! It does not decide anything; the designs do.

use crate::{
    config::CreateOptions,
    error::EngineError,
    store::{self, Store},
};
use larder_core::{Decider, DesignConfig, NamedDesign};
use larder_format::{BucketRequest, DesignId, Layout, StoreKind, Superblock};

pub use larder_core::DesignLayout;

/// Returns the division of a flash for its design, for a volume of `chunk_count` chunks.
pub fn layout_of(layout: &Layout, chunk_count: u64) -> DesignLayout {
    let Layout { chunk_bytes, slot_bytes, bucket_slots, .. } = *layout;
    DesignLayout { chunk_bytes, slot_bytes, bucket_slots, chunk_count }
}

/// A design over its store.
#[derive(Clone, Copy)]
pub struct EngineDesign {
    /// The number of the design in the superblock.
    pub id: DesignId,
    /// Its name.
    pub name: &'static str,
    /// Its description and its source.
    pub about: &'static str,
    /// The entry of the core's table.
    design: &'static NamedDesign,
    /// Its store.
    pub(crate) store: &'static dyn Store,
}

/// All designs of [`larder_core::DESIGNS`], in its order.
pub const ENGINE_DESIGNS: &[EngineDesign] = &of_table();

/// Returns each design of the table, with its number and its store. A design that a superblock
/// could not name does not compile.
const fn of_table() -> [EngineDesign; larder_core::DESIGNS.len()] {
    let table = larder_core::DESIGNS;
    let mut designs = [EngineDesign::of(&table[0]); larder_core::DESIGNS.len()];
    let mut at = 1;
    while at < table.len() {
        designs[at] = EngineDesign::of(&table[at]);
        at += 1;
    }
    designs
}

impl EngineDesign {
    const fn of(design: &'static NamedDesign) -> EngineDesign {
        let NamedDesign { name, about, ref over } = *design;
        let Some(id) = DesignId::named(name) else {
            panic!("the format has no number for a design of this name");
        };
        EngineDesign { id, name, about, design, store: store::under(over) }
    }

    /// Returns the kind of its store: WEUs, slots of one chunk, or buckets.
    pub fn kind(&self) -> StoreKind {
        self.store.kind()
    }

    /// Returns whether it can keep equal content once.
    pub fn can_share(&self) -> bool {
        self.store.can_share()
    }

    /// Returns the limit of RAM bytes for each mapping, by which a RAM budget is divided.
    ///
    /// A design with slots of one chunk counts its own bytes among them, because it has data of no
    /// more addresses than mappings.
    pub fn index_bytes_max(&self, chunk_bytes: u32) -> u64 {
        self.store.index_bytes_max(chunk_bytes)
    }

    /// Checks a layout of so many slots.
    ///
    /// # Errors
    /// As [`EngineDesign::make`].
    pub fn check_layout(&self, layout: &DesignLayout, slots: u64) -> Result<(), EngineError> {
        self.design.check(layout, slots).map_err(|error| EngineError::Invalid(error.to_string()))
    }

    /// Returns an empty cache.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] for a layout that the design cannot have.
    pub fn make(&self, config: DesignConfig, layout: &DesignLayout) -> Result<Decider, EngineError> {
        self.design.make(config, layout).map_err(|error| EngineError::Invalid(error.to_string()))
    }

    /// Returns the division of a flash of `flash_bytes` for it, for a volume of `chunk_count`
    /// chunks.
    pub fn layout(&self, options: &CreateOptions, flash_bytes: u64, chunk_count: u64) -> DesignLayout {
        DesignLayout {
            chunk_bytes: options.chunk_bytes,
            slot_bytes: options.slot_bytes,
            bucket_slots: self.buckets(options, flash_bytes).map_or(0, |request| request.bucket_slots),
            chunk_count,
        }
    }

    /// Returns the buckets to divide a flash into for it, if it has buckets.
    pub fn buckets(&self, options: &CreateOptions, flash_bytes: u64) -> Option<BucketRequest> {
        self.store.buckets(options, flash_bytes)
    }

    /// Returns the bytes of a WEU that it wants on such a flash; `None` for the default.
    pub fn weu_wanted(&self, flash_bytes: u64) -> Option<u32> {
        self.store.weu_wanted(flash_bytes)
    }

    /// Returns the mappings that the design wants on `flash_bytes`, or `None` for the format's
    /// default.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] for a flash of more slots than it can have.
    pub fn mappings_wanted(&self, flash_bytes: u64, chunk_bytes: u32) -> Result<Option<u64>, EngineError> {
        self.store.mappings_wanted(flash_bytes, chunk_bytes).map_err(|why| self.refusal(&why))
    }

    /// Returns the slots that the RAM budget affords; 0 sets no limit.
    ///
    /// A table entry for each slot may be there from the beginning, even without cached chunks.
    pub fn slots_max(&self, options: &CreateOptions) -> u32 {
        match options.ram_budget_bytes {
            0 => u32::MAX,
            _ => self.store.slots_max(options),
        }
    }

    /// Sets the options that this design fixes. [`options`](EngineDesign::options) judges options
    /// that were asked for.
    pub fn fit(&self, options: &mut CreateOptions) {
        options.design = self.id;
        self.store.fit(options);
    }

    pub(crate) fn refusal(&self, why: &str) -> EngineError {
        EngineError::Invalid(format!("the design {} {why}", self.name))
    }
}

/// Returns an error for a superblock that no cache of its design has.
///
/// # Errors
/// [`EngineError::Invalid`], for that, and for a design that this version cannot run.
pub fn check_superblock(superblock: &Superblock) -> Result<&'static EngineDesign, EngineError> {
    let design = find(superblock.design)?;
    match design.store.has_made(superblock) {
        true => Ok(design),
        false => Err(EngineError::Invalid(format!(
            "the superblock gives the design {} slots or options that it cannot have: it is damaged, or not ours",
            design.name
        ))),
    }
}

/// Returns the names of all designs, for a sentence.
pub fn names() -> String {
    names_of(ENGINE_DESIGNS.iter())
}

/// Returns the names of the designs with such a store, for a sentence.
pub(crate) fn names_where(is_right: impl Fn(&dyn Store) -> bool) -> String {
    names_of(ENGINE_DESIGNS.iter().filter(|design| is_right(design.store)))
}

pub(crate) fn names_of<'a>(designs: impl Iterator<Item = &'a EngineDesign>) -> String {
    designs.map(|design| design.name).collect::<Vec<_>>().join(", ")
}

/// Returns the design of this name.
pub fn named(name: &str) -> Option<&'static EngineDesign> {
    ENGINE_DESIGNS.iter().find(|design| design.name == name)
}

/// Returns the design that a superblock names.
///
/// # Errors
/// [`EngineError::Invalid`] for a design that this version cannot run.
pub fn find(id: DesignId) -> Result<&'static EngineDesign, EngineError> {
    let found = ENGINE_DESIGNS.iter().find(|design| design.id == id);
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

    #[test]
    fn each_design_of_the_table_has_a_number_of_its_own() {
        let of_core: Vec<_> = larder_core::DESIGNS.iter().map(|design| (design.name, design.about)).collect();
        let of_engine: Vec<_> = ENGINE_DESIGNS.iter().map(|design| (design.name, design.about)).collect();
        assert_eq!(of_engine, of_core);
        for design in ENGINE_DESIGNS {
            assert_eq!(design.id.name(), design.name);
            assert_eq!(find(design.id).map(|found| found.name).ok(), Some(design.name));
        }
    }

    #[test]
    fn each_design_is_run_over_its_store_alone() {
        for design in ENGINE_DESIGNS {
            let right = made(design);
            assert_eq!(right.layout.store(), design.kind(), "{}", design.name);
            assert_eq!(check_superblock(&right).map(|found| found.id).ok(), Some(design.id));
            for other in ENGINE_DESIGNS.iter().filter(|other| other.kind() != design.kind()) {
                let wrong = Superblock { layout: made(other).layout, ..right.clone() };
                let refused = check_superblock(&wrong).err().expect(design.name).to_string();
                let wanted =
                    format!("the superblock gives the design {} slots or options that it cannot have", design.name);
                assert!(refused.starts_with(&wanted) && !refused.contains('\n'), "{refused}");
            }
        }
    }
}
