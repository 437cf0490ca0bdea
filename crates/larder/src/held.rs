//! The flash that a server holds, for a comparison with the one that a command names.
//!
//! The server tells it on its control socket. The UUID is not enough: a copy of a flash has the
//! same.
//!
//! Invariants: a command reaches the server of the very file or device that it names, under any
//! name, and no other. The file may be gone, another one may lie over it, or the flash may have
//! failed under its server. Then the name by which the flash was served counts.
//!
//! It leaves finding the socket to `control`.

use crate::{
    client::{self, Reply},
    error::{Failure, Outcome},
    flash::{Flash, absolute, named},
    output,
};
use larder_device::file::FileId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{path::Path, time::Duration};

/// Longest time for each server's answer, while a command looks for the server of its flash.
const FIND_TIME_MAX: Duration = Duration::from_secs(3);

/// The request that asks for it.
pub const REQUEST: &str = "which";

/// The flash that a server holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldFlash {
    /// The path of the flash at its opening.
    pub flash: String,
    /// That path in the words of the command line.
    pub flash_named: String,
    /// The file or device; `None` for a server without a flash.
    pub id: Option<String>,
    /// The flash has not failed.
    pub works: bool,
    /// The file of the flash has no name any more.
    #[serde(default)]
    pub unlinked: bool,
}

impl HeldFlash {
    /// Describes a flash that this process opened.
    pub fn of(flash: &Flash) -> HeldFlash {
        HeldFlash {
            flash: absolute(&flash.path),
            flash_named: named(&flash.path),
            id: flash.id.map(|id| id.to_string()),
            works: true,
            unlinked: false,
        }
    }

    /// Returns the reply for the control socket.
    ///
    /// # Errors
    /// A sentence.
    pub fn to_json(&self) -> Reply {
        serde_json::to_value(self).map_err(|error| format!("the flash is no JSON: {error}"))
    }

    /// Returns true if a command that names `path` means it; `id` is the file or device there now.
    fn is_meant(&self, path: &Path, id: Option<FileId>) -> bool {
        let id = id.map(|id| id.to_string());
        if id.is_some() && id == self.id {
            return true;
        }
        // A device that comes back has another number; a file that is gone has none.
        let is_comparable = id.is_some() && self.id.is_some() && self.works && !self.unlinked;
        !is_comparable && (self.flash == absolute(path) || self.flash_named == named(path))
    }
}

/// The server of a flash.
pub enum Server {
    /// Its server answered this.
    Answered(Value),
    /// The server of another file or device with the same UUID.
    OfAnother(HeldFlash),
    /// No server.
    None,
}

/// Asks the server of the flash at `path`, which is this file or device.
///
/// With `None` the file cannot be examined.
///
/// # Errors
/// The server's sentence, or that it went away.
pub fn ask(flash_uuid: &[u8; 16], path: &Path, id: Option<FileId>, request: &str) -> Outcome<Server> {
    let Some(mut server) = client::Client::connect(flash_uuid)? else { return Ok(Server::None) };
    // Over one connection, which is one server's.
    let told = server.ask(REQUEST)?;
    let held: HeldFlash = serde_json::from_value(told)
        .map_err(|error| Failure::failed(format_args!("the server does not say which flash it holds: {error}")))?;
    match held.is_meant(path, id) {
        true => server.ask(request).map(Server::Answered),
        false => Ok(Server::OfAnother(held)),
    }
}

/// Finds the server that a command means with `path`, if the file there tells no UUID.
///
/// `id`: this file or device is there. A server that has this very one goes before a server of this
/// name. Returns the UUID of its flash.
pub fn find(path: &Path, id: Option<FileId>) -> Option<[u8; 16]> {
    let mut of_name = None;
    for uuid in client::known_uuids() {
        // A failure of another server does not matter here.
        let Ok(Some(mut server)) = client::Client::connect(&uuid) else { continue };
        let Ok(told) = server.ask_within(REQUEST, FIND_TIME_MAX) else { continue };
        let Some(told) = told else {
            output::note(&format!("{} does not answer, and may be the one of {}", server.name(), path.display()));
            continue;
        };
        let Ok(held) = serde_json::from_value::<HeldFlash>(told) else { continue };
        if id.is_some() && id.map(|id| id.to_string()) == held.id {
            return Some(uuid);
        }
        if held.is_meant(path, id) {
            of_name.get_or_insert(uuid);
        }
    }
    of_name
}

/// Returns the sentence for a command that names one flash while the one of `held` is served.
pub fn refused_copy(path: &Path, held: &HeldFlash) -> Failure {
    let (path, flash, at) = (path.display(), &held.flash, absolute(path));
    Failure::failed(match held.id {
        Some(_) if *flash == at => format!(
            "{path} is a copy of the flash that was there, or another file; that flash is served now: name its new place (`larder verify` and `larder dump` read a copy)"
        ),
        Some(_) => format!(
            "{path} is a copy of {flash}, or a device over it, which is served now: name that flash's present place (`larder verify` and `larder dump` read a copy)"
        ),
        None => format!(
            "the cache of {path} is served now without its flash, which was {flash}: end that `larder serve` first"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(id: Option<FileId>, works: bool) -> HeldFlash {
        let id = id.map(|id| id.to_string());
        HeldFlash { flash: "/dev/sdb".into(), flash_named: "/dev/disk/by-id/x".into(), id, works, unlinked: false }
    }

    #[test]
    fn a_flash_is_known_by_what_it_is_and_else_by_its_name() {
        let device = |device| Some(FileId::BlockDevice { device });
        let file = |inode| Some(FileId::File { device: 1, inode });
        let (served, elsewhere) = (Path::new("/dev/disk/by-id/x"), Path::new("/dev/elsewhere"));
        // (the held one, does it work, the name, the one there, is it meant)
        for (id, works, path, found, meant) in [
            (device(1), true, elsewhere, device(1), true),
            (device(1), true, served, device(2), false),
            (device(1), true, elsewhere, device(2), false),
            (file(7), true, elsewhere, file(7), true),
            (file(7), true, served, file(8), false),
            (file(1), true, served, device(1), false),
            // Gone, or plugged in again after it failed.
            (device(1), true, served, None, true),
            (device(1), true, elsewhere, None, false),
            (device(1), false, served, device(2), true),
            (device(1), false, elsewhere, device(2), false),
            // Served without its flash.
            (None, false, served, device(2), true),
            (None, false, Path::new("/dev/sdb"), None, true),
            (None, false, elsewhere, device(2), false),
        ] {
            assert_eq!(held(id, works).is_meant(path, found), meant, "{id:?} {works} {path:?} {found:?}");
        }
        // Another file was moved over it.
        let unlinked = HeldFlash { unlinked: true, ..held(file(7), true) };
        assert!(unlinked.is_meant(served, file(8)) && !unlinked.is_meant(elsewhere, file(8)));
    }

    #[test]
    fn what_is_held_reads_back() {
        for held in [held(Some(FileId::File { device: 0x801, inode: 9 }), true), held(None, false)] {
            let told = held.to_json().expect("plain values");
            assert_eq!(serde_json::from_value::<HeldFlash>(told).expect("the same"), held);
        }
    }
}
