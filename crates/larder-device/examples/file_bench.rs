//! Times random 4 KiB reads of a file at depth 1 and 32, through the driver and through a bare
//! loop.
//!
//! The driver's reads go through [`FileDevice`], the bare loop is one of io_uring. The program also
//! times a `block_on` that has nothing to wait for.
//!
//! Usage: `file_bench [FILE [SECONDS]]`. A missing file is created with 1 GiB of data.
//!
//! It does not measure an application's view; there is one thread, and no cache.

use io_uring::{IoUring, opcode, types};
use larder_device::{
    BlockDevice, IoBuf, WriteFlags,
    driver::{block_on, io_backend, spawn_local},
    file::{FileDevice, OpenOptions},
};
use std::{
    cell::Cell,
    error::Error,
    fs::File,
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};

const READ_BYTES: usize = 4096;
const FILE_BYTES: u64 = 1 << 30;
const FILL_BYTES: usize = 1 << 20;
const DEPTHS: [usize; 2] = [1, 32];
/// Rounds of each measurement; the median counts. Their order alternates, so that a noisy host
/// harms both alike.
const ROUNDS: usize = 15;

/// A small generator; both loops read in the same order.
struct Rng(u64);

impl Rng {
    fn offset(&mut self, size_bytes: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % (size_bytes / READ_BYTES as u64) * READ_BYTES as u64
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap_or_else(|| "/tmp/larder-file-bench".into());
    let seconds: f64 = args.next().map_or(Ok(0.3), |text| text.parse())?;
    let time = Duration::from_secs_f64(seconds);
    println!("backend: {}", io_backend());
    println!("block_on of a ready future: {:.1} ns", ready_ns());

    let options = OpenOptions { direct: true, create_bytes: Some(FILE_BYTES), ..OpenOptions::default() };
    let device = Rc::new(FileDevice::open(&path, options)?);
    fill(&device)?;
    println!("file: {} bytes, direct: {}", device.info().size_bytes, device.is_direct());
    for depth in DEPTHS {
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for round in 0..2 * ROUNDS {
            if (round + round / 2) % 2 == 0 {
                ours.push(read_device(&device, depth, time));
            } else {
                bare.push(read_bare(Path::new(&path), device.info().size_bytes, depth, time)?);
            }
        }
        let (ours, bare) = (median(ours), median(bare));
        println!("depth {depth:2}: device {ours:8.0}/s, bare ring {bare:8.0}/s, ratio {:.3}", ours / bare);
    }
    Ok(())
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or(0.0)
}

/// Writes the file once, so that reads find no holes.
fn fill(device: &FileDevice) -> Result<(), Box<dyn Error>> {
    let size_bytes = device.info().size_bytes;
    block_on(async {
        let first = device.extents(0, size_bytes).await?;
        if first.first().is_some_and(|extent| !extent.hole) {
            return Ok(());
        }
        let data = IoBuf::copy_of(&vec![0x5a; FILL_BYTES]).freeze();
        for at in (0..size_bytes).step_by(FILL_BYTES) {
            device.write(at, data.clone(), WriteFlags::default()).await?;
        }
        device.flush().await?;
        Ok(())
    })
}

fn ready_ns() -> f64 {
    const TIMES: u32 = 10_000_000;
    let began = Instant::now();
    for number in 0..TIMES {
        std::hint::black_box(block_on(std::future::ready(std::hint::black_box(number))));
    }
    began.elapsed().as_secs_f64() * 1e9 / f64::from(TIMES)
}

/// Returns the reads per second through the device, from `depth` tasks on one thread.
///
/// At depth 1 the main future reads alone.
fn read_device(device: &Rc<FileDevice>, depth: usize, time: Duration) -> f64 {
    let began = Instant::now();
    let count = Rc::new(Cell::new(0u64));
    let lane = |seed: u64| {
        let (device, count) = (device.clone(), count.clone());
        async move {
            let mut rng = Rng(seed);
            let mut buf = IoBuf::new(READ_BYTES);
            while began.elapsed() < time {
                buf = device.read(rng.offset(device.info().size_bytes), buf).await.expect("the file can be read");
                count.set(count.get() + 1);
            }
        }
    };
    block_on(async {
        let left = Rc::new(Cell::new(depth - 1));
        let (last, over) = larder_device::IoFuture::pending();
        let last = Rc::new(Cell::new(Some(last)));
        for number in 1..depth {
            let (lane, left, last) = (lane(number as u64 + 1), left.clone(), last.clone());
            spawn_local(async move {
                lane.await;
                left.set(left.get() - 1);
                if left.get() == 0
                    && let Some(last) = last.take()
                {
                    last.complete(Ok(()));
                }
            });
        }
        lane(1).await;
        if depth > 1 {
            over.await.expect("the lanes end");
        }
    });
    count.get() as f64 / began.elapsed().as_secs_f64()
}

/// Returns the reads per second of a plain io_uring loop.
fn read_bare(path: &Path, size_bytes: u64, depth: usize, time: Duration) -> Result<f64, Box<dyn Error>> {
    let file = File::options().read(true).custom_flags(libc::O_DIRECT).open(path)?;
    let mut ring: IoUring = IoUring::builder().setup_coop_taskrun().build(256)?;
    let mut bufs: Vec<IoBuf> = (0..depth).map(|_| IoBuf::new(READ_BYTES)).collect();
    let mut rng = Rng(1);
    let mut free: Vec<usize> = (0..depth).collect();
    let (mut count, began) = (0u64, Instant::now());
    let mut in_flight = 0;
    loop {
        let over = began.elapsed() >= time;
        while let (false, Some(lane)) = (over, free.pop()) {
            let Some(buf) = bufs.get_mut(lane) else { continue };
            let read = opcode::Read::new(types::Fd(file.as_raw_fd()), buf.as_mut_ptr(), READ_BYTES as u32);
            let entry = read.offset(rng.offset(size_bytes)).build().user_data(lane as u64);
            // SAFETY: the buffers outlive the loop, which ends with nothing in flight.
            unsafe { ring.submission().push(&entry) }?;
            in_flight += 1;
        }
        if in_flight == 0 {
            return Ok(count as f64 / began.elapsed().as_secs_f64());
        }
        ring.submit_and_wait(1)?;
        for entry in ring.completion() {
            if entry.result() != READ_BYTES as i32 {
                return Err(format!("a read returned {}", entry.result()).into());
            }
            free.push(entry.user_data() as usize);
            in_flight -= 1;
            count += 1;
        }
    }
}
