//! The last look at a device's standing, and the callers that wait for one.
//!
//! It does not look.

use crate::{Completer, Standing};

/// The last look, and the callers of the present and of the next one.
#[derive(Default)]
pub(super) struct Looks {
    pub last: Standing,
    pub is_looking: bool,
    pub present: Vec<Completer<Standing>>,
    pub next: Vec<Completer<Standing>>,
}
