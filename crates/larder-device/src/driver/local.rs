//! The drivers of a thread: the running one, and those for later use.
//!
//! Invariant: a thread that is ending has no drivers any more; its calls get one each.
//!
//! It does not begin operations.

use super::shared::DriverShared;
use std::{
    cell::RefCell,
    future::Future,
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
};

/// A driver and the waker of its future, made once.
pub(super) struct Driver {
    pub shared: Arc<DriverShared>,
    waker: Waker,
}

impl Driver {
    fn new(shared: Arc<DriverShared>) -> Rc<Driver> {
        let waker = Waker::from(shared.clone());
        Rc::new(Driver { shared, waker })
    }
}

/// The drivers of this thread.
pub(super) struct Local {
    /// The running driver; those of outer `block_on` calls are on their stacks.
    pub current: RefCell<Option<Rc<Driver>>>,
    /// The drivers for later use: one, unless `block_on` was nested.
    pub idle: RefCell<Vec<Rc<Driver>>>,
}

impl Drop for Local {
    fn drop(&mut self) {
        for driver in self.idle.take() {
            driver.shared.close();
        }
    }
}

thread_local! {
    pub(super) static LOCAL: Local = const {
        Local { current: RefCell::new(None), idle: RefCell::new(Vec::new()) }
    };
}

/// Leaves a driver when its `block_on` returns or unwinds.
struct Entered {
    driver: Rc<Driver>,
    outer: Option<Rc<Driver>>,
    keep: bool,
}

impl Entered {
    fn new(driver: Option<Rc<Driver>>, keep: bool) -> Entered {
        let entered = LOCAL.try_with(|local| {
            let driver = driver.or_else(|| local.idle.borrow_mut().pop());
            let driver = driver.unwrap_or_else(|| Driver::new(DriverShared::new()));
            driver.shared.enter();
            let outer = local.current.replace(Some(driver.clone()));
            if let Some(outer) = &outer {
                outer.shared.leave();
            }
            Entered { driver, outer, keep }
        });
        // A thread that is ending has no drivers any more. This call gets one, with its I/O on the
        // background driver.
        entered.unwrap_or_else(|_| Entered { driver: Driver::new(DriverShared::new()), outer: None, keep: false })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let _ = LOCAL.try_with(|local| {
            if let Some(outer) = &self.outer {
                outer.shared.enter();
            }
            *local.current.borrow_mut() = self.outer.take();
            if self.keep {
                self.driver.shared.leave();
                local.idle.borrow_mut().push(self.driver.clone());
            }
        });
        if !self.keep {
            self.driver.shared.close();
        }
    }
}

/// Runs `future` to its end on this thread, driving its I/O and the thread's local tasks.
///
/// A future that is ready when it is first polled costs no system call and no allocation.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let entered = Entered::new(None, true);
    drive(&entered.driver, pin!(future))
}

/// Drives `shared` on this thread until `future` ends, and closes it.
pub(crate) fn drive_to_the_end<F: Future>(shared: Arc<DriverShared>, future: F) -> F::Output {
    let entered = Entered::new(Some(Driver::new(shared)), false);
    drive(&entered.driver, pin!(future))
}

#[inline]
fn drive<F: Future>(driver: &Driver, mut future: Pin<&mut F>) -> F::Output {
    let mut context = Context::from_waker(&driver.waker);
    if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
        return output;
    }
    loop {
        driver.shared.turn();
        if driver.shared.take_main_woken()
            && let Poll::Ready(output) = future.as_mut().poll(&mut context)
        {
            return output;
        }
    }
}

/// Returns the driver that runs on this thread now.
pub(super) fn current() -> Option<Rc<Driver>> {
    LOCAL.try_with(|local| local.current.borrow().clone()).ok().flatten()
}

/// Returns whether this thread is the driver's home and may submit there.
pub(super) fn is_of_this_thread(shared: &Arc<DriverShared>) -> bool {
    let is_it = |driver: &Rc<Driver>| Arc::ptr_eq(&driver.shared, shared);
    LOCAL
        .try_with(|local| local.current.borrow().as_ref().is_some_and(is_it) || local.idle.borrow().iter().any(is_it))
        .unwrap_or(false)
}
