//! (f) 4 KiB random reads through NBD, against `nbdkit memory`, with the same fio job.
//!
//! Larder's server runs in this process over a cache on RAM devices; `nbdkit` is a child. Both
//! listen on Unix sockets, and both were filled with data first. fio runs for a second or two on
//! one and then the other.
//!
//! If fio or nbdkit is missing, the measurement is left out and the report has a note.

use crate::{
    caches::{end, filled, only_hits, options, runtime},
    data::{DataKind, Source},
    measure::{Res, Sample, Side, compare},
    options::Options,
    report::{Aim, Row},
};
use larder_device::ram::RamDevice;
use larder_engine::Compression;
use larder_serve::nbd::{NbdServer, ServeAddress, ServerOptions};
use std::{
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

const SET_BYTES: u64 = 256 << 20;
const RATIO_AIM: f64 = 1.0;
/// The longest time until nbdkit listens.
const START_WAIT: Duration = Duration::from_secs(10);

/// A child that is killed when it is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // The child is gone already, or no child of this process any more.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the measurement.
pub fn run(bench: &Options) -> Res<Vec<Row>> {
    for tool in ["fio", "nbdkit"] {
        let there = Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !there.is_ok_and(|status| status.success()) {
            return Ok(vec![Row::without_value("f", &format!("4 KiB reads through NBD: left out, {tool} is missing"))]);
        }
    }
    // The path of a Unix socket is short; the scratch folder may lie too deep.
    let folder = std::env::temp_dir().join(format!("larder-measure-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let rows = measure(bench, &folder);
    // A leftover socket is no reason to fail.
    let _ = std::fs::remove_dir_all(&folder);
    rows
}

fn measure(bench: &Options, folder: &Path) -> Res<Vec<Row>> {
    let theirs = folder.join("nbdkit");
    let child = Command::new("nbdkit")
        .args(["--foreground", "--unix"])
        .arg(&theirs)
        .arg("memory")
        .arg(SET_BYTES.to_string())
        .stdout(Stdio::null())
        .spawn()?;
    let _nbdkit = Killed(child);
    let began = Instant::now();
    while !theirs.exists() {
        if began.elapsed() > START_WAIT {
            return Err("nbdkit does not listen".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    fio(&theirs, &["--rw=write", "--bs=1m", "--iodepth=4"])?;
    let mut rows = Vec::new();
    for (id, what, chunk, compression) in [
        ("f.off", "4 KiB chunks, no compression", 4096, Compression::Off),
        ("f.lz4", "8 KiB chunks, LZ4 2:1", 8192, Compression::Lz4),
    ] {
        let ours = folder.join(id);
        let kind = if compression == Compression::Off { DataKind::Noise } else { DataKind::Text };
        let source = Source::new(kind, chunk, 1);
        let flash = Arc::new(RamDevice::new("flash", 4 * SET_BYTES, 512));
        // The cache's volume is larger than the part that is read.
        let origin = Arc::new(RamDevice::new("origin", 4 * SET_BYTES, 512));
        let runtime = runtime(0);
        let cache = filled(flash, origin, runtime.clone(), &options(chunk, compression), (&source, SET_BYTES))?;
        let cache = Arc::new(cache);
        let server = NbdServer::bind(ServeAddress::Unix(ours.clone()), "", cache.clone(), ServerOptions::default())?;
        server.start()?;
        for depth in [1, 32] {
            let result = compare(bench.rounds() / 3, |_, side| {
                read(if side == Side::Ours { &ours } else { &theirs }, depth, bench.quick)
            })?;
            let text = format!(
                "4 KiB reads through NBD, depth {depth}, {what}: {:.0} a second against {:.0} of nbdkit memory: ratio",
                result.ours, result.base
            );
            let id = format!("{id}.{depth}");
            rows.push(match compression {
                Compression::Off => Row::aimed(&id, text, result.ratio, Aim::AtLeast(RATIO_AIM)),
                _ => Row::told(&id, text, result.ratio),
            });
        }
        server.shutdown();
        only_hits(&cache)?;
        end(&cache, &runtime)?;
    }
    Ok(rows)
}

fn read(socket: &Path, depth: u32, quick: bool) -> Res<Sample> {
    let depth = format!("--iodepth={depth}");
    let runtime = format!("--runtime={}", if quick { 1 } else { 2 });
    let rate = fio(socket, &["--rw=randread", "--bs=4k", &depth, "--time_based", &runtime])?;
    Ok(Sample { units: rate, wall: Duration::from_secs(1), cpu: Duration::from_secs(1) })
}

/// Runs one fio job, and returns its reads a second.
fn fio(socket: &Path, args: &[&str]) -> Res<f64> {
    let output = Command::new("fio")
        .args(["--name=bench", "--ioengine=nbd", "--output-format=json", "--randrepeat=1"])
        .arg(format!("--uri=nbd+unix:///?socket={}", socket.display()))
        .arg(format!("--size={SET_BYTES}"))
        .args(args)
        .stderr(Stdio::piped())
        .output()?;
    // fio may print a line before its JSON.
    let text = String::from_utf8_lossy(&output.stdout);
    let json: serde_json::Value = match text.find('{').and_then(|at| text.get(at..)) {
        Some(json) if output.status.success() => serde_json::from_str(json)?,
        _ => return Err(format!("fio failed: {}", String::from_utf8_lossy(&output.stderr).trim()).into()),
    };
    Ok(json["jobs"][0]["read"]["iops"].as_f64().ok_or("fio did not say how many reads it made")?)
}
