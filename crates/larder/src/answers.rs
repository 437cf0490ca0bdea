//! What a server answers on its control socket: for a cache, and for an origin whose flash is missing.
//!
//! Invariants: a cache is detached only while no client is connected, for clients would find the volume gone under them.
//!
//! What it does not do: speak the socket's protocol; `control` does.

use crate::{control, detach::detach, flush::flush, set, state_dir::Record, status::Report};
use larder_device::driver::block_on;
use larder_engine::Cache;
use larder_format::Superblock;
use larder_serve::nbd::NbdServer;
use serde_json::json;
use std::{io::Write, os::unix::net::UnixStream, path::PathBuf, sync::Arc};

fn connections_of(servers: &[NbdServer]) -> u64 {
    servers.iter().map(|server| server.stats().connections_now).sum()
}

/// What the control socket is asked about.
pub struct Served {
    /// The cache.
    pub cache: Arc<Cache>,
    /// Its servers.
    pub servers: Arc<Vec<NbdServer>>,
    /// Where its flash is.
    pub flash: PathBuf,
    /// What it was made as.
    pub superblock: Superblock,
    /// Ends the process in order.
    pub wake: UnixStream,
}

/// What the control socket of an origin without its flash is asked about.
pub struct Bare {
    /// What is known of the cache.
    pub record: Record,
    /// Its servers.
    pub servers: Arc<Vec<NbdServer>>,
}

impl Bare {
    /// Answers a request.
    pub fn answer(&self, request: &str) -> control::Reply {
        let Record { flash, flash_uuid, volume, origin, origin_bytes, mode, fence, .. } = &self.record;
        let why = fence.as_deref().unwrap_or("it was served without its flash");
        let missing = format!("degraded: the flash is missing, and the fence is up ({why})");
        match request {
            "status" => Ok(json!({
                "health": missing,
                "degraded": true,
                "conditions": [
                    { "name": "flash_gone", "severity": "degraded", "what": "degraded: the flash is missing" },
                    { "name": "fence_up", "severity": "degraded", "what": why },
                ],
                "flash": flash, "flash_uuid": flash_uuid, "volume": volume, "served": true, "mode": mode,
                "origin": origin, "origin_bytes": origin_bytes,
                "nbd_connections": connections_of(&self.servers),
            })),
            _ => Err("the flash is missing: the origin is served alone".to_owned()),
        }
    }
}

impl Served {
    /// Detaches and ends the process. Clients that are connected would find the volume gone under them.
    fn detach(&self) -> control::Reply {
        let connections = connections_of(&self.servers);
        if connections > 0 {
            return Err(format!("{connections} clients are connected: disconnect them, then detach"));
        }
        // What takes long goes first; who connected meanwhile is seen.
        if !block_on(self.cache.destage_all()) {
            return Err("the cache stays attached: some dirty data could not be written to the origin".to_owned());
        }
        let connections = connections_of(&self.servers);
        if connections > 0 {
            return Err(format!("{connections} clients are connected: disconnect them, then detach"));
        }
        let done = detach(&self.cache)?;
        (&self.wake).write_all(&[0]).map_err(|error| format!("detached, but the server does not end: {error}"))?;
        Ok(done)
    }

    /// Answers a request.
    pub fn answer(&self, request: &str, is_ending: bool) -> control::Reply {
        match request.split_once(' ').unwrap_or((request, "")) {
            ("status", "") => {
                let connections = connections_of(&self.servers);
                let report = Report::new(&self.flash, &self.superblock, self.cache.status());
                Report { served: true, nbd_connections: connections, ..report }.to_json()
            }
            ("flush" | "set-mode" | "detach", _) if is_ending => {
                Err("the server is ending: ask again when it has".to_owned())
            }
            ("flush", "") => flush(&self.cache),
            ("set-mode", mode) => set::set_mode(&self.cache, mode),
            ("detach", "") => self.detach(),
            _ => Err("the server knows the requests status, flush, set-mode MODE and detach".to_owned()),
        }
    }
}
