//! The row of the design: its name, and its making.
//!
//! It makes no decision.

use super::{
    bucketed::{Bucketed, BucketedConfig},
    config::AustereConfig,
};
use crate::named::{NamedDesign, Over, OverBuckets};

/// The design's name.
pub const NAME: &str = "austere";

/// The design by name.
pub const DESIGN: NamedDesign = NamedDesign {
    name: NAME,
    about: "AustereCache (Wang et al., USENIX ATC 2020): an index of hashes, ten bytes for each address that it has room for, and metadata on flash",
    over: Over::Buckets(OverBuckets {
        make: |config, layout| Ok(Box::new(Bucketed::new(BucketedConfig::of(config, layout))?)),
        check: |layout, slots| Ok(AustereConfig::of_layout(layout, slots).buckets().map(drop)?),
    }),
};
