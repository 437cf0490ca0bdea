//! [`Body`]: the part of a simulated device that operations under way and a crash reach.
//!
//! Invariant: it belongs to one runtime at a time, the last that the device was attached to.
//!
//! It does not make operations.

use super::image::Medium;
use crate::{faulty::FaultPlan, rng::Rng};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// The mark of a runtime; each has one of its own.
#[derive(Default)]
pub(super) struct Home;

/// See the module.
pub(super) struct Body {
    pub name: String,
    pub medium: Mutex<Medium>,
    pub plan: FaultPlan,
    home: Mutex<Weak<Home>>,
}

impl Body {
    /// Returns the body of a device that belongs to no runtime.
    pub fn new(name: &str, medium: Medium) -> Body {
        Body {
            name: name.to_owned(),
            medium: Mutex::new(medium),
            plan: FaultPlan::default(),
            home: Mutex::new(Weak::new()),
        }
    }

    /// Hands it to another runtime.
    pub fn move_to(&self, home: &Arc<Home>) {
        *self.home.lock() = Arc::downgrade(home);
    }

    pub fn belongs_to(&self, home: &Arc<Home>) -> bool {
        std::ptr::eq(self.home.lock().as_ptr(), Arc::as_ptr(home))
    }

    pub fn power_loss(&self, rng: &mut Rng) {
        self.medium.lock().power_loss(rng);
    }
}
