//! Panics of a run: caught and kept as text, unprinted, because a failing run is replayed often.
//!
//! It does not touch panics of other threads, or outside a run.

use std::{cell::RefCell, panic};

thread_local! {
    /// `Some` while a run is executed on this thread.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps panics of runs from now on. Once a process.
pub fn install() {
    let default = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let kept = LAST.with_borrow_mut(|last| match last {
            // The first one: others may follow from it.
            Some(text) if text.is_empty() => {
                *text = info.to_string();
                true
            }
            other => other.is_some(),
        });
        if !kept {
            default(info);
        }
    }));
}

/// Executes a run, and keeps its panics.
pub fn during<T>(run: impl FnOnce() -> T) -> T {
    let before = LAST.replace(Some(String::new()));
    let result = run();
    LAST.set(before);
    result
}

/// Returns the text of the panic that was kept.
pub fn take() -> String {
    LAST.with_borrow_mut(|last| last.as_mut().map(std::mem::take).unwrap_or_default())
}
