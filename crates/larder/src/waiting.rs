//! Names the reason to a command that waits for a server or for a device.
//!
//! Role: while a request takes long, the command asks for the server's status now and then, over
//! another connection. It prints each condition that makes the cache do less than it should once,
//! as a line on standard error. A server that does not even tell its status gets such a line, too.
//! So does a device that is slow to open, or to read the beginning of.
//!
//! It does not end the wait. It does not watch the further requests of a command without a server.

use crate::{client::Client, output};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    sync::mpsc::{RecvTimeoutError, channel},
    time::Duration,
};

/// The wait before a command asks for the reason, and the pause between two such questions.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// The warning that may keep a request waiting: a switch of the mode waits for its note.
const UNNOTED: &str = "superblock_unnoted";

/// The longest time in which the server tells its status.
const STATUS_TIME_MAX: Duration = Duration::from_secs(2);

/// Calls `ask`, which sends a request to the flash's server.
///
/// Meanwhile it prints the reasons of a long wait.
pub fn saying_why<T>(flash_uuid: &[u8; 16], ask: impl FnOnce() -> T) -> T {
    let mut said = BTreeSet::new();
    beside(ask, || {
        let news = why(flash_uuid).into_iter().filter(|(name, _)| said.insert(name.clone()));
        news.for_each(|(_, what)| output::note(&format!("waiting: {what}")));
        true
    })
}

/// Calls `act`, which takes a moment unless its device hangs; `device` is as in "the flash PATH".
///
/// After a while it prints that the device does not answer.
pub fn saying_which<T>(device: &str, act: impl FnOnce() -> T) -> T {
    beside(act, || {
        output::note(&format!("waiting: {device} has not answered for {} s", ASK_EVERY.as_secs()));
        false
    })
}

/// Calls `act`, and beside it `look` each [`ASK_EVERY`], until `look` returns false.
///
/// Without another thread the wait is silent.
fn beside<T>(act: impl FnOnce() -> T, mut look: impl FnMut() -> bool + Send) -> T {
    std::thread::scope(|scope| {
        let (over, is_over) = channel::<()>();
        let looks = move || while is_over.recv_timeout(ASK_EVERY) == Err(RecvTimeoutError::Timeout) && look() {};
        let _ = std::thread::Builder::new().spawn_scoped(scope, looks);
        let done = act();
        drop(over);
        done
    })
}

/// Asks the flash's server for its status; returns the reasons for which a request may wait.
fn why(flash_uuid: &[u8; 16]) -> Vec<(String, String)> {
    let Ok(Some(mut server)) = Client::connect(flash_uuid) else { return Vec::new() };
    match server.ask_within("status", STATUS_TIME_MAX) {
        Ok(Some(status)) => reasons(&status).collect(),
        // A server that ends says that to the request itself.
        Err(_) => Vec::new(),
        Ok(None) => {
            let what =
                format!("{} does not answer: see whether it is stopped (`kill -CONT` has it go on)", server.name());
            vec![(String::new(), what)]
        }
    }
}

/// Returns name and sentence of each condition in a status that may keep a request waiting.
fn reasons(status: &Value) -> impl Iterator<Item = (String, String)> {
    let conditions = status.get("conditions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let text = |condition: &Value, key: &str| condition.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let keeps = conditions
        .iter()
        .filter(move |condition| text(condition, "severity") == "degraded" || text(condition, "name") == UNNOTED);
    keeps.map(move |condition| (text(condition, "name"), text(condition, "what"))).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_keeps_it_is_a_reason() {
        let status = json!({ "conditions": [
            { "name": "origin_hangs", "severity": "degraded", "what": "the origin hangs" },
            { "name": "switching_mode", "severity": "notice", "what": "the mode is being switched" },
            { "name": "superblock_repaired", "severity": "warning", "what": "a twin was damaged" },
            { "name": "superblock_unnoted", "severity": "warning", "what": "the state directory hangs" },
        ] });
        let names: Vec<String> = reasons(&status).map(|(name, _)| name).collect();
        assert_eq!(names, ["origin_hangs", "superblock_unnoted"]);
        assert_eq!(reasons(&Value::Null).count(), 0);
    }
}
