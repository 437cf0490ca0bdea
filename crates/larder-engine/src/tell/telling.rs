//! The listener of conditions, and the conditions that it was told.
//!
//! Invariants: a condition is told once when it is raised, and once when it is over.
//!
//! It does not look for conditions.

use crate::{
    conditions::condition::Condition,
    conditions::devices::{Watches, origin_fails},
    sync::{Notify, either},
};
use larder_device::Runtime;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

/// Longest time between two looks.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Shortest time between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// A condition that was absent for this long is over.
pub const OVER_AFTER: Duration = Duration::from_secs(2);

/// The maximum of that time, for a condition that flaps.
const OVER_AFTER_MAX: Duration = Duration::from_secs(64);

/// A condition that returns within this multiple of that time flaps.
const SOON: u32 = 8;

/// Limit of the conditions kept for the next look: there are fewer names.
const KEPT_MAX: usize = 64;

/// The owner of conditions: a cache.
pub(crate) trait Conditional: Send + Sync {
    /// Returns the present conditions.
    fn conditions_now(&self) -> Vec<Condition>;
}

/// A listener to conditions. The thread of the engine's tasks calls it, so it must return at once.
pub trait ConditionListener: Send + Sync {
    /// Hears that the condition was raised.
    fn raised(&self, condition: &Condition);
    /// Hears that the condition is over; `condition` is its last state.
    fn cleared(&self, condition: &Condition);
    /// Returns the listener's own conditions, which each look includes.
    fn more(&self) -> Vec<Condition> {
        Vec::new()
    }
}

/// A listener, or none.
#[derive(Clone, Default)]
pub struct Listener(pub Option<Arc<dyn ConditionListener>>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "a listener" } else { "no listener" })
    }
}

/// The report of one condition.
struct Told {
    /// Its last state.
    condition: Condition,
    /// Its end was not reported.
    stands: bool,
    /// The time since which it is absent, or its end was reported.
    unseen_since: Option<Duration>,
    over_after: Duration,
}

/// Compares the present conditions with the reported ones, and tells the difference.
pub struct Teller {
    listener: Arc<dyn ConditionListener>,
    told: BTreeMap<&'static str, Told>,
}

impl Teller {
    /// Returns a teller without reports.
    pub fn new(listener: Arc<dyn ConditionListener>) -> Self {
        Teller { listener, told: BTreeMap::new() }
    }

    /// Compares the conditions that stand `now`.
    pub fn look(&mut self, now: Duration, standing: Vec<Condition>) {
        for told in self.told.values_mut() {
            if standing.iter().any(|condition| condition.name == told.condition.name) {
                continue;
            }
            let since = *told.unseen_since.get_or_insert(now);
            if told.stands && now.saturating_sub(since) >= told.over_after {
                told.stands = false;
                told.unseen_since = Some(now);
                self.listener.cleared(&told.condition);
            }
        }
        for condition in standing {
            match self.told.get_mut(condition.name) {
                None => {
                    self.listener.raised(&condition);
                    let told = Told { condition, stands: true, unseen_since: None, over_after: OVER_AFTER };
                    self.told.insert(told.condition.name, told);
                }
                Some(told) => {
                    let unseen_since = told.unseen_since.take();
                    if !std::mem::replace(&mut told.stands, true) {
                        let away = now.saturating_sub(unseen_since.unwrap_or_default());
                        let flaps = away < told.over_after * SOON;
                        told.over_after = if flaps { (told.over_after * 2).min(OVER_AFTER_MAX) } else { OVER_AFTER };
                        self.listener.raised(&condition);
                    }
                    told.condition = condition;
                }
            }
        }
    }
}

/// The telling of one cache, from the beginning of its opening on; or of an origin without one.
pub struct Telling {
    teller: Mutex<Teller>,
    listener: Arc<dyn ConditionListener>,
    watches: Watches,
    /// Conditions raised since the last look; each may be over by now.
    kept: Mutex<Vec<Condition>>,
    changed: Arc<Notify>,
    /// The cache, once it exists.
    cache: Mutex<Option<Weak<dyn Conditional>>>,
}

impl Telling {
    /// Begins to look, in the background, until the returned value is dropped. `None` without a
    /// listener.
    pub fn begin(listener: &Listener, watches: Watches, runtime: &Arc<dyn Runtime>) -> Option<Arc<Telling>> {
        let listener = listener.0.clone()?;
        let changed = Arc::new(Notify::default());
        let telling = Arc::new(Telling {
            teller: Mutex::new(Teller::new(listener.clone())),
            listener,
            watches,
            kept: Mutex::default(),
            changed: changed.clone(),
            cache: Mutex::default(),
        });
        runtime.spawn(Box::pin(look_again_and_again(Arc::downgrade(&telling), changed, runtime.clone())));
        Some(telling)
    }

    /// Registers the cache: from now on the looks are at its conditions.
    pub(crate) fn of_cache(&self, cache: Weak<dyn Conditional>) {
        *self.cache.lock() = Some(cache);
        self.changed.notify();
    }

    /// Notes a change; `condition` was raised, and may be over before the next look.
    pub(crate) fn note(&self, condition: Option<Condition>) {
        if let Some(condition) = condition {
            let mut kept = self.kept.lock();
            if kept.len() < KEPT_MAX && kept.iter().all(|other| other.name != condition.name) {
                kept.push(condition);
            }
        }
        self.changed.notify();
    }

    /// Tells the conditions that stand now. The owner of the telling looks a last time at its end.
    pub fn look(&self, now: Duration) {
        let cache = self.cache.lock().as_ref().and_then(Weak::upgrade);
        let mut standing = match &cache {
            Some(cache) => cache.conditions_now(),
            None => self.watches.conditions(),
        };
        standing.extend(self.listener.more());
        let origin = &self.watches.origin;
        let unseen = origin.take_unseen().filter(|_| origin.error().is_none());
        let over = unseen.map(|error| origin_fails(&error, false));
        for condition in std::mem::take(&mut *self.kept.lock()).into_iter().chain(over) {
            if standing.iter().all(|other| other.name != condition.name) {
                standing.push(condition);
            }
        }
        self.teller.lock().look(now, standing);
    }
}

/// Holds the cache only during a look, so that a closed cache is freed.
async fn look_again_and_again(telling: Weak<Telling>, changed: Arc<Notify>, runtime: Arc<dyn Runtime>) {
    loop {
        let change = changed.listen();
        let Some(alive) = telling.upgrade() else { return };
        alive.look(runtime.now());
        drop(alive);
        if runtime.delay(LOOK_PAUSE).await.is_err() {
            return;
        }
        either(change, runtime.delay(LOOK_EVERY)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::condition::Severity;

    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl ConditionListener for Heard {
        fn raised(&self, condition: &Condition) {
            self.0.lock().push(format!("+{}", condition.name));
        }
        fn cleared(&self, condition: &Condition) {
            self.0.lock().push(format!("-{}", condition.name));
        }
    }

    impl Heard {
        fn take(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock())
        }
    }

    fn condition(name: &'static str) -> Condition {
        Condition { name, severity: Severity::Warning, what: name.into() }
    }

    #[test]
    fn each_change_is_told_once() {
        let heard = Arc::new(Heard::default());
        let mut teller = Teller::new(heard.clone());
        let second = Duration::from_secs(1);
        teller.look(second, vec![condition("a")]);
        teller.look(2 * second, vec![condition("a"), condition("b")]);
        assert_eq!(heard.take(), ["+a", "+b"]);
        teller.look(3 * second, vec![condition("b")]);
        assert!(heard.take().is_empty(), "not at once: it may come back");
        teller.look(4 * second, vec![condition("a"), condition("b")]);
        assert!(heard.take().is_empty(), "it came back");
        teller.look(5 * second, vec![]);
        teller.look(5 * second + OVER_AFTER, vec![]);
        teller.look(60 * second, vec![]);
        assert_eq!(heard.take(), ["-a", "-b"]);
        teller.look(120 * second, vec![condition("a")]);
        assert_eq!(heard.take(), ["+a"]);
    }

    #[test]
    fn what_flaps_is_told_less_and_less_often() {
        let heard = Arc::new(Heard::default());
        let mut teller = Teller::new(heard.clone());
        let looks = 3600 * 4;
        for look in 0..looks {
            // Three seconds on, three seconds off, for an hour.
            let stands = (look / 12) % 2 == 0;
            teller.look(Duration::from_millis(250 * look), if stands { vec![condition("a")] } else { vec![] });
        }
        let told = heard.take();
        assert!(told.len() <= 4, "{told:?}");
        // A long calm: from then on reports are as quick as at first.
        let calm = Duration::from_millis(250 * looks) + OVER_AFTER_MAX;
        teller.look(calm, vec![]);
        teller.look(calm + OVER_AFTER_MAX * (SOON + 1), vec![condition("a")]);
        teller.look(calm + OVER_AFTER_MAX * (SOON + 2), vec![]);
        teller.look(calm + OVER_AFTER_MAX * (SOON + 2) + OVER_AFTER, vec![]);
        assert_eq!(heard.take().last().map(String::as_str), Some("-a"));
    }
}
