//! The making of a cache's decisions from the row of a design.
//!
//! It does not list the designs.

use crate::{
    Decider,
    design::DesignConfig,
    named::{DesignLayout, LayoutError, NamedDesign, Over},
    slotted::Placed,
};

impl NamedDesign {
    /// Checks that it can be made for a layout of so many slots, without its tables.
    ///
    /// # Errors
    /// As [`NamedDesign::make`].
    pub fn check(&self, layout: &DesignLayout, slots: u64) -> Result<(), LayoutError> {
        match self.over {
            Over::Buckets(buckets) => (buckets.check)(layout, slots),
            Over::Weus(_) | Over::Slots(_) => Ok(()),
        }
    }

    /// Makes an empty cache.
    ///
    /// # Errors
    /// A sentence, for a layout that the design cannot have.
    pub fn make(&self, config: DesignConfig, layout: &DesignLayout) -> Result<Decider, LayoutError> {
        Ok(Decider::new(match self.over {
            Over::Weus(weus) => (weus.make)(config),
            Over::Slots(slots) => {
                Box::new(Placed::new(config, |data_slots| (slots.make)(data_slots, layout.chunk_bytes)))
            }
            Over::Buckets(buckets) => (buckets.make)(config, layout)?,
        }))
    }
}
