//! The answers of a server on its control socket: for a cache, or for an origin without its flash.
//!
//! Invariants: a cache is detached only while no client is connected, for clients would find the
//! volume gone under them.
//!
//! It leaves the socket's protocol to `control`.

use crate::{
    client,
    detach::detach,
    flush::flush,
    held::{self, HeldFlash},
    lines, set,
    state_record::StateRecord,
    status::Report,
};
use larder_device::{Standing, driver::block_on, watched::Watch};
use larder_engine::{
    Cache,
    conditions::{Condition, Severity, of_origin},
};
use larder_format::Superblock;
use larder_serve::nbd::NbdServer;
use serde_json::json;
use std::{
    io::Write,
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::*},
    },
    time::Duration,
};

/// The time that a status waits for a look at a device. A healthy one answers in far less.
const LOOK_MAX: Duration = Duration::from_millis(100);

/// The most long requests at once: fewer than the control socket has connections.
const LONG_REQUESTS_MAX: usize = 8;

fn connections_of(servers: &[NbdServer]) -> u64 {
    servers.iter().map(|server| server.stats().connections_now).sum()
}

/// The served cache that the control socket answers for.
pub struct Served {
    /// The cache.
    pub cache: Arc<Cache>,
    /// Its servers.
    pub servers: Arc<Vec<NbdServer>>,
    /// The path of its flash.
    pub flash: PathBuf,
    /// The file or device of its flash.
    pub held: HeldFlash,
    /// The superblock of its opening.
    pub superblock: Superblock,
    /// Ends the process in order.
    pub wake: UnixStream,
    /// Number of long requests under way.
    pub long: AtomicUsize,
}

/// A long request, until it is dropped.
struct Long<'a>(&'a AtomicUsize);

impl<'a> Long<'a> {
    fn begin(count: &'a AtomicUsize) -> Option<Self> {
        let one = Long(count);
        (count.fetch_add(1, AcqRel) < LONG_REQUESTS_MAX).then_some(one)
    }
}

impl Drop for Long<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, AcqRel);
    }
}

/// The origin without its flash that the control socket answers for.
pub struct Bare {
    /// The record of the cache.
    pub record: StateRecord,
    /// Its servers.
    pub servers: Arc<Vec<NbdServer>>,
    /// The log of requests to the origin.
    pub origin: Arc<Watch>,
    /// The time of a request after which the origin counts as hanging.
    pub origin_timeout: Duration,
}

/// Returns the condition of an origin that is served without its flash.
pub fn flash_gone() -> Condition {
    let what = "degraded: the flash is missing".into();
    Condition { name: "flash_gone", severity: Severity::Degraded, what }
}

impl Bare {
    fn conditions(&self, why: &str) -> Vec<Condition> {
        // A failed look is a condition.
        let _ = block_on(self.origin.look_within(LOOK_MAX));
        let fence_up = Condition { name: "fence_up", severity: Severity::Degraded, what: why.to_owned() };
        let mut conditions = vec![flash_gone(), fence_up];
        conditions.extend(of_origin(&self.origin, self.origin_timeout));
        let own = lines::own_conditions().into_iter().filter(|own| own.name != "flash_gone");
        conditions.extend(own);
        conditions
    }

    /// Answers a request.
    pub fn answer(&self, request: &str) -> client::Reply {
        let StateRecord { flash, flash_uuid, volume, origin, origin_bytes, mode, fence, .. } = &self.record;
        let why = fence.as_deref().unwrap_or("it was served without its flash");
        let missing = format!("degraded: the flash is missing, and the fence is up ({why})");
        match request {
            held::REQUEST => HeldFlash {
                flash: flash.clone(),
                flash_named: self.record.flash_named.clone(),
                id: None,
                works: false,
                unlinked: false,
            }
            .to_json(),
            "status" => Ok(json!({
                "health": missing,
                "degraded": true,
                "conditions": self.conditions(why),
                "flash": flash, "flash_uuid": flash_uuid, "volume": volume, "served": true, "mode": mode,
                "origin": origin, "origin_bytes": origin_bytes,
                "nbd_connections": connections_of(&self.servers),
            })),
            _ => Err("the flash is missing: the origin is served alone".to_owned()),
        }
    }
}

impl Served {
    fn refuse_clients(&self) -> Result<(), String> {
        match connections_of(&self.servers) {
            0 => Ok(()),
            1 => Err("a client is connected: disconnect it, then detach".to_owned()),
            connections => Err(format!("{connections} clients are connected: disconnect them, then detach")),
        }
    }

    /// Detaches and ends the process; refused while a client is connected.
    fn detach(&self) -> client::Reply {
        self.refuse_clients()?;
        // The long part goes first; the check sees clients that connected meanwhile.
        flush(&self.cache).map_err(|why| format!("the cache stays attached: {why}"))?;
        self.refuse_clients()?;
        let done = detach(&self.cache);
        if !self.cache.is_closed() {
            return done;
        }
        // Also after a failure of the last step: there is nothing left to serve.
        let done = done.map_err(|error| format!("the cache stays attached, and its server ends: {error}"));
        let ending = (&self.wake).write_all(&[0]);
        done.and_then(|done| match ending {
            Ok(()) => Ok(done),
            Err(error) => Err(format!("detached, but the server does not end: {error}")),
        })
    }

    /// Does a long request, unless too many are under way.
    ///
    /// The origin may keep them waiting, and a request for the status would find no connection
    /// left.
    fn at_length(&self, act: impl FnOnce() -> client::Reply) -> client::Reply {
        let _one = Long::begin(&self.long).ok_or_else(|| {
            format!("{LONG_REQUESTS_MAX} requests are under way already (health: {})", self.cache.status().health)
        })?;
        act()
    }

    /// Returns the standing of a device now, or the last known one if it hangs or fails.
    fn looked(&self, watch: &Arc<Watch>) -> Standing {
        block_on(watch.look_within(LOOK_MAX)).unwrap_or_else(|_| watch.standing())
    }

    /// Answers a request.
    pub fn answer(&self, request: &str, is_ending: bool) -> client::Reply {
        match request.split_once(' ').unwrap_or((request, "")) {
            (held::REQUEST, "") => {
                let unlinked = self.looked(self.cache.flash_watch()) == Standing::Unlinked;
                HeldFlash { works: !self.cache.status().degraded, unlinked, ..self.held.clone() }.to_json()
            }
            ("status", "") => {
                let connections = connections_of(&self.servers);
                self.looked(self.cache.flash_watch());
                self.looked(self.cache.origin_watch());
                let mut status = self.cache.status();
                status.add_conditions(lines::own_conditions());
                let report = Report::new(&self.flash, &self.superblock, status);
                Report { served: true, nbd_connections: connections, ..report }.to_json()
            }
            ("flush" | "set-mode" | "detach", _) if is_ending => {
                Err("the server is ending: ask again when it has".to_owned())
            }
            ("flush", "") => self.at_length(|| flush(&self.cache)),
            ("set-mode", mode) => self.at_length(|| set::set_mode(&self.cache, mode)),
            ("detach", "") => self.at_length(|| self.detach()),
            _ => Err("the server knows the requests which, status, flush, set-mode MODE and detach".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_device::{
        BlockDevice, IoErrorKind, IoOp, Runtime,
        driver::block_on,
        faulty::{FOR_EVER, Faulty},
        ram::RamDevice,
        threads::{ThreadRuntime, ThreadRuntimeOptions},
    };
    use larder_engine::{CreateOptions, Tuning, create, superblock};
    use std::io::Read;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_server_ends_where_a_detach_closed_its_cache_and_then_failed() {
        let flash = Arc::new(Faulty::new(RamDevice::new("flash", 16 * MIB, 512)));
        let origin: Arc<dyn BlockDevice> = Arc::new(RamDevice::new("origin", 8 * MIB, 512));
        block_on(create(&*flash, 8 * MIB, &CreateOptions { slot_bytes: 512 << 10, ..CreateOptions::default() }))
            .unwrap();
        let runtime = ThreadRuntime::new(ThreadRuntimeOptions { workers: 0, name: "detach".into() });
        let open = || {
            block_on(Cache::open(flash.clone(), origin.clone(), runtime.clone() as Arc<dyn Runtime>, Tuning::default()))
        };
        let (wake, mut woken) = UnixStream::pair().unwrap();
        let (superblock, _) = block_on(superblock::read(&*flash)).unwrap();
        let cache = Arc::new(open().unwrap());
        let held = HeldFlash {
            flash: "/flash".into(),
            flash_named: "/flash".into(),
            id: Some("device 7:0".into()),
            works: true,
            unlinked: false,
        };
        let served = Served {
            cache: cache.clone(),
            servers: Arc::default(),
            flash: "flash".into(),
            held: held.clone(),
            superblock,
            wake,
            long: AtomicUsize::new(0),
        };
        let which = || serde_json::from_value::<HeldFlash>(served.answer(held::REQUEST, true).expect("an answer"));
        assert_eq!(which().expect("what is held"), held);
        cache.write_at(0, &[7; 8192]).unwrap();
        flash.plan().fail_range(IoOp::Write, 0..4096, IoErrorKind::Io, FOR_EVER);
        let refusal = served.answer("detach", false).unwrap_err();
        assert!(refusal.starts_with("the cache stays attached, and its server ends: "), "{refusal}");
        woken.read_exact(&mut [0]).expect("the server is told to end");
        assert!(cache.is_closed() && !cache.superblock().detached);
        drop((served, cache));
        flash.plan().clear();
        let cache = open().expect("it is a cache as before");
        let mut found = [0; 8192];
        cache.read_at(0, &mut found).unwrap();
        assert_eq!(found, [7; 8192]);
        cache.close_blocking().unwrap();
        drop(cache);
        runtime.shutdown();
    }
}
