//! The caches of an experiment that replays a grid of sizes and modes.
//!
//! It does not replay them.

use larder_sim::cache::WritePolicy;

/// The sizes and modes of the caches, which a caller may narrow.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// Sizes of the flash, in percent of the working set.
    pub percents: Vec<f64>,
    /// The moments at which writes reach the origin.
    pub policies: Vec<WritePolicy>,
}

impl Default for Grid {
    fn default() -> Grid {
        Grid { percents: vec![5.0, 10.0, 20.0, 40.0, 80.0], policies: vec![WritePolicy::Through, WritePolicy::Back] }
    }
}
