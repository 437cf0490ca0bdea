//! [`Body`]: the part of a simulated device that operations under way and a crash reach.
//!
//! Invariant: it belongs to one runtime at a time, the last that the device was attached to.
//!
//! It does not make operations.

use super::image::Medium;
use crate::{faulty::FaultPlan, rng::Rng};
use parking_lot::Mutex;
use std::{
    any::Any,
    sync::{Arc, Weak},
};

/// See the module.
pub(super) struct Body {
    pub name: String,
    pub medium: Mutex<Medium>,
    pub plan: FaultPlan,
    /// The runtime. Its type is left open, because its file imports this one.
    home: Mutex<Weak<dyn Any + Send + Sync>>,
}

impl Body {
    /// Returns the body of a device that belongs to no runtime.
    pub fn new(name: &str, medium: Medium) -> Body {
        Body {
            name: name.to_owned(),
            medium: Mutex::new(medium),
            plan: FaultPlan::default(),
            home: Mutex::new(Weak::<()>::new()),
        }
    }

    /// Hands it to another runtime.
    pub fn move_to(&self, home: Arc<impl Send + Sync + 'static>) {
        *self.home.lock() = Arc::downgrade(&home) as Weak<dyn Any + Send + Sync>;
    }

    /// Returns the runtime that it belongs to, if that lives.
    pub fn home<R: Send + Sync + 'static>(&self) -> Option<Arc<R>> {
        self.home.lock().upgrade()?.downcast().ok()
    }

    pub fn belongs_to<R>(&self, home: &R) -> bool {
        std::ptr::addr_eq(self.home.lock().as_ptr(), home)
    }

    pub fn power_loss(&self, rng: &mut Rng) {
        self.medium.lock().power_loss(rng);
    }
}
