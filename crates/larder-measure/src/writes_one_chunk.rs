//! (n) Writes of 48 clients to one chunk, over RAM and files, against a chunk for each of them.
//!
//! Overlapping writes take effect one after the other, in the order of their requests. So one
//! client at a time writes the one chunk, and hands over to the next. The processor time a write
//! shows that the end of a write wakes only the next write, and not all waiters. The elapsed time
//! shows the cost of one hand-over.
//!
//! Each client has a thread, and some writes under way. It calls the cache, or is a client of the
//! cache's NBD server on a Unix socket. There the processor time is that of the server. Over files
//! the writes are written through: the flash takes copies, and commits that forget copies. Both
//! sides run in turns; the median of the rounds' ratios counts.
//!
//! It does not read, or destage.

use crate::{
    caches::{end, no_destaging, options, runtime},
    data::{DataKind, PIECE_BYTES, Source},
    devices::FlatRam,
    measure::{Comparison, Res, Side, compare, lanes, time},
    nbd_writers::{WriteOf, write_all},
    options::Options,
    report::{Aim, Row},
    threads::seconds_of,
};
use larder_device::{
    BlockDevice, IoResult, SharedBuf, WriteFlags,
    driver::block_on,
    file::{FileDevice, OpenOptions},
    ram::RamDevice,
};
use larder_engine::{Cache, Compression, WriteMode, create};
use larder_serve::nbd::{NbdServer, ServeAddress, ServerOptions};
use std::{path::Path, sync::Arc, thread};

const CLIENTS: usize = 48;
const DEPTH: usize = 4;
const CHUNK_BYTES: usize = 8 << 10;
/// Writes of each lane of each client in a round.
const WRITES: usize = 16;
const ROUNDS: usize = 9;
const ORIGIN_BYTES: u64 = 1 << 30;
const FLASH_BYTES: u64 = 2 << 30;
/// Sizes of the files, origin and flash. No slot is evicted.
const FILE_BYTES: [u64; 2] = [64 << 20, 1 << 30];
/// The limit for a write to the same chunk, in times of a disjoint write.
const AIM: f64 = 3.0;
const WAYS: [(&str, &str, WriteMode); 2] =
    [("back", "write-back", WriteMode::Back), ("through", "write-through", WriteMode::Through)];

/// Runs the measurement.
pub fn run(bench: &Options) -> Res<Vec<Row>> {
    let mut rows = Vec::new();
    for (id, name, mode) in WAYS {
        let compared = over_cache(mode, 0, over_ram()?, |cache, next_chunks| {
            compare(bench.scaled(ROUNDS), |_, side| {
                let chunks = next_chunks();
                time(|| {
                    seconds_of(CLIENTS, &|client| {
                        block_on(write(cache, chunks.get(client).map_or(&[], |share| share), client, side))
                    })?;
                    Ok((CLIENTS * DEPTH * WRITES) as f64)
                })
            })
        })?;
        rows.extend(cpu_rows(&format!("n.{id}"), &format!("{name}, RAM"), &compared));
    }
    // The path of a Unix socket is short; the scratch folder may lie too deep.
    let folder = std::env::temp_dir().join(format!("larder-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let of_server = run_server(bench, &folder).and_then(|mut rows| {
        rows.extend(run_files(bench, &folder)?);
        Ok(rows)
    });
    // A leftover socket is no reason to fail.
    let _ = std::fs::remove_dir_all(&folder);
    rows.extend(of_server?);
    Ok(rows)
}

fn run_server(bench: &Options, folder: &Path) -> Res<Vec<Row>> {
    let workers = thread::available_parallelism().map_or(1, |cores| cores.get());
    let mut rows = Vec::new();
    for (id, name, mode) in WAYS {
        let socket = folder.join(id);
        let (id, name) = (format!("n.nbd.{id}"), format!("{name}, RAM, NBD"));
        let compared = over_cache(mode, workers, over_ram()?, over_server(bench, &socket))?;
        rows.extend(server_rows(&id, &name, &compared));
    }
    Ok(rows)
}

/// Measures over files in the scratch folder.
fn run_files(bench: &Options, folder: &Path) -> Res<Vec<Row>> {
    let workers = thread::available_parallelism().map_or(1, |cores| cores.get());
    let paths = ["one-chunk-origin", "one-chunk-flash"].map(|name| bench.dir.join(name));
    let open = || {
        let [origin, flash] = [0, 1].map(|i| {
            let options = OpenOptions { create_bytes: Some(FILE_BYTES[i]), ..OpenOptions::default() };
            FileDevice::open(&paths[i], options).map(|device| Arc::new(device) as Arc<dyn BlockDevice>)
        });
        Ok(Devices { origin: origin?, flash: flash? })
    };
    let compared = open().and_then(|devices| {
        over_cache(WriteMode::Through, workers, devices, over_server(bench, &folder.join("files")))
    });
    // The files are gone already, or disturb nothing.
    paths.iter().for_each(|path| drop(std::fs::remove_file(path)));
    Ok(server_rows("n.nbd.files", "write-through, files, NBD", &compared?))
}

/// Returns a measurement over the cache's NBD server at `socket`.
fn over_server(
    bench: &Options,
    socket: &Path,
) -> impl FnOnce(&Arc<Cache>, &mut dyn FnMut() -> Vec<Vec<SharedBuf>>) -> Res<Comparison> {
    move |cache, next_chunks| {
        let address = ServeAddress::Unix(socket.to_owned());
        let server = NbdServer::bind(address, "", cache.clone(), ServerOptions::default())?;
        server.start()?;
        let compared = compare(bench.scaled(ROUNDS), |_, side| {
            let shares: Vec<Vec<WriteOf>> = next_chunks()
                .into_iter()
                .enumerate()
                .map(|(client, share)| {
                    let places = share.into_iter().enumerate();
                    places.map(|(write, chunk)| (offset(client, write % DEPTH, side), chunk)).collect()
                })
                .collect();
            write_all(socket, &shares, DEPTH)
        });
        server.shutdown();
        compared
    }
}

fn server_rows(id: &str, name: &str, compared: &Comparison) -> Vec<Row> {
    let text = format!(
        "{}: {:.1} µs a write against {:.1} to chunks apart: times the time",
        clients(name),
        1e6 / compared.ours,
        1e6 / compared.base
    );
    let mut rows = Vec::from(cpu_rows(id, name, compared));
    rows.push(Row::aimed(&format!("{id}.time"), text, 1.0 / compared.ratio, Aim::AtMost(AIM)));
    rows
}

fn clients(name: &str) -> String {
    format!("{name}, {CLIENTS} clients write one chunk, {DEPTH} writes each at once")
}

fn cpu_rows(id: &str, name: &str, compared: &Comparison) -> [Row; 2] {
    let clients = clients(name);
    [
        Row::told(id, format!("{clients}: µs of CPU a write"), 1e6 / compared.ours_cpu),
        Row::aimed(
            &format!("{id}.ratio"),
            format!("{clients}: times the CPU of a write to chunks apart"),
            1.0 / compared.cpu_ratio,
            Aim::AtMost(AIM),
        ),
    ]
}

struct Devices {
    origin: Arc<dyn BlockDevice>,
    flash: Arc<dyn BlockDevice>,
}

fn over_ram() -> Res<Devices> {
    let origin = Arc::new(RamDevice::new("origin", ORIGIN_BYTES, 512));
    Ok(Devices { origin, flash: Arc::new(FlatRam::new(FLASH_BYTES, FLASH_BYTES)?) })
}

/// Measures over a new cache on these devices. The closure also gets the source of each client's
/// next chunks.
fn over_cache(
    mode: WriteMode,
    workers: usize,
    Devices { origin, flash }: Devices,
    measured: impl FnOnce(&Arc<Cache>, &mut dyn FnMut() -> Vec<Vec<SharedBuf>>) -> Res<Comparison>,
) -> Res<Comparison> {
    let source = Source::new(DataKind::Noise, CHUNK_BYTES, 7);
    let mut asked = options(CHUNK_BYTES, Compression::Off);
    asked.mode = mode;
    let runtime = runtime(workers);
    block_on(create(&*flash, origin.info().size_bytes, &asked))?;
    let cache = Arc::new(block_on(Cache::open(flash, origin, runtime.clone(), no_destaging()))?);
    let mut next = 0;
    let mut next_chunks = || {
        // The content is new each time, so that no write is a duplicate.
        let bytes = (CLIENTS * DEPTH * WRITES * CHUNK_BYTES).next_multiple_of(PIECE_BYTES);
        let pieces = source.pieces(next, bytes);
        next += (bytes / CHUNK_BYTES) as u64;
        let chunks: Vec<SharedBuf> = pieces
            .iter()
            .flat_map(|piece| (0..piece.len()).step_by(CHUNK_BYTES).map(|at| piece.slice(at..at + CHUNK_BYTES)))
            .collect();
        chunks.chunks(DEPTH * WRITES).take(CLIENTS).map(<[SharedBuf]>::to_vec).collect()
    };
    let compared = measured(&cache, &mut next_chunks)?;
    end(&cache, &runtime)?;
    Ok(compared)
}

/// Returns the place of a lane's writes: the first chunk for all, or a chunk of its own.
fn offset(client: usize, lane: usize, side: Side) -> u64 {
    if side == Side::Ours { 0 } else { ((client * DEPTH + lane) * CHUNK_BYTES) as u64 }
}

/// Writes a client's share to the cache.
async fn write(cache: &Arc<Cache>, share: &[SharedBuf], client: usize, side: Side) -> IoResult<()> {
    let written = lanes(DEPTH, |lane| {
        let chunks: Vec<SharedBuf> = share.iter().skip(lane as usize * WRITES).take(WRITES).cloned().collect();
        let at = offset(client, lane as usize, side);
        let cache = cache.clone();
        async move {
            for chunk in chunks {
                cache.write(at, chunk, WriteFlags::default()).await?;
            }
            Ok(1)
        }
    });
    written.await.map(|_| ())
}
