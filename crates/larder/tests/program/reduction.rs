//! The purpose of the cache, from outside: duplicates and zeroes take no flash, compression
//! shrinks. The status says so in numbers that add up.
//!
//! The engine's own tests cover exact accounting; these allow for headers and for a unit that is
//! being filled.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::image::{Numbers, noise, text};
use crate::support::wire::Wire;
use crate::support::{MIB, Scratch, Volume, design, is_told_in, say, stands_in};
use larder_format::StoreKind;

const CHUNK: u64 = 8 << 10;
const IMAGE: u64 = 16 * MIB;
/// Headers, records and one open unit of each kind.
const SLACK: u64 = 3 * MIB / 2;
const OPTIONS: &[&str] = &["--weu", "512K", "--compress", "off"];

/// Waits until background insertion has come to rest, and returns the flash bytes in use.
fn flash_used(volume: &Volume) -> u64 {
    let end = Instant::now() + Duration::from_secs(30);
    let mut last = volume.number("flash_bytes_used");
    loop {
        thread::sleep(Duration::from_millis(300));
        let now = volume.number("flash_bytes_used");
        if now == last {
            return now;
        }
        assert!(Instant::now() < end, "insertion does not come to rest");
        last = now;
    }
}

fn write_image(wire: &mut Wire, at: u64, image: &[u8]) {
    for (number, part) in image.chunks(64 << 10).enumerate() {
        wire.write(at + number as u64 * (64 << 10), part);
    }
    wire.flush();
}

/// Returns `image` with every tenth chunk replaced.
fn changed(image: &[u8]) -> (Vec<u8>, u64) {
    let mut third = image.to_vec();
    let mut differing = 0;
    for (number, chunk) in third.chunks_mut(CHUNK as usize).enumerate().filter(|(number, _)| number % 10 == 3) {
        chunk.copy_from_slice(&noise(1_000 + number as u64, CHUNK as usize));
        differing += CHUNK;
    }
    (third, differing)
}

/// Returns true if the design can keep equal content once; otherwise says so.
fn shares(test: &str) -> bool {
    let shares = design().can_share();
    if !shares {
        say(&format!("skipped: {test}: {} keeps each chunk for itself", design().name));
    }
    shares
}

#[test]
fn two_copies_and_a_cold_third_take_what_differs() {
    if stands_in() || !shares("two_copies_and_a_cold_third_take_what_differs") {
        return;
    }
    if design().kind() == StoreKind::Buckets {
        return say("skipped: two_copies_and_a_cold_third_take_what_differs: buckets are full before the flash is");
    }
    let scratch = Scratch::new("copies");
    let image = noise(41, IMAGE as usize);
    let (third, differing) = changed(&image);
    // The third lies on the origin before there is a cache.
    let origin = scratch.path("origin");
    let mut content = vec![0; 2 * IMAGE as usize];
    content.extend_from_slice(&third);
    fs::write(&origin, content).expect("an origin");
    let volume = Volume::over(&scratch, "flash", &origin, 128 * MIB, OPTIONS);
    let server = volume.serve();
    let mut wire = Wire::connect(&server.socket);
    let empty = flash_used(&volume);

    write_image(&mut wire, 0, &image);
    let one = flash_used(&volume);
    assert!(one - empty >= IMAGE && one - empty <= IMAGE + SLACK, "one image: {empty} to {one}");

    write_image(&mut wire, IMAGE, &image);
    let two = flash_used(&volume);
    assert!(two - one <= SLACK, "a second copy: {one} to {two}");

    // Read in no order (a sequential read that comes once is not worth flash), twice.
    let chunks = IMAGE / CHUNK;
    let mut numbers = Numbers::seeded(43);
    for _ in 0..2 {
        let mut order: Vec<u64> = (0..chunks).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, numbers.below(at as u64 + 1) as usize);
        }
        for chunk in order {
            let at = (chunk * CHUNK) as usize;
            assert!(wire.read(2 * IMAGE + chunk * CHUNK, CHUNK as usize) == third[at..at + CHUNK as usize]);
        }
    }
    let three = flash_used(&volume);
    // Insertion may be dropped under overload, so there is no lower bound here: the next lines see
    // the cached part.
    assert!(three - two <= differing + SLACK, "a cold third, {differing} bytes of it new: {two} to {three}");

    let status = volume.status();
    let logical = status["logical_bytes_cached"].as_u64().expect("logical_bytes_cached");
    assert!(logical >= 2 * IMAGE + IMAGE / 2, "hardly any of the third image is cached: {status}");
    assert!(status["dedup_ratio"].as_f64().expect("dedup_ratio") > 2.0, "{status}");
    let (written, plain) = (volume.number("flash_bytes_written"), volume.number("plain_cache_bytes_written"));
    assert!(written < plain * 6 / 10, "flash bytes written {written}, by a plain cache {plain}");

    // All of it is right, still after a restart, which keeps duplicates warm.
    drop(wire);
    server.stop();
    let server = volume.serve();
    assert!(flash_used(&volume) <= three + SLACK, "a restart makes it no larger");
    let before = volume.status();
    assert_eq!(before["warm_restart"], true, "{before}");
    let mut wire = Wire::connect(&server.socket);
    for (at, expected) in [(0, &image), (IMAGE, &image), (2 * IMAGE, &third)] {
        for (number, part) in expected.chunks(1 << 20).enumerate() {
            assert!(wire.read(at + number as u64 * MIB, 1 << 20) == part, "image at {at}, MiB {number}");
        }
    }
    let misses = |status: &serde_json::Value| status["read_misses"].as_u64().expect("read_misses");
    let hits = |status: &serde_json::Value| status["read_hits"].as_u64().expect("read_hits");
    let after = volume.status();
    let (missed, hit) = (misses(&after) - misses(&before), hits(&after) - hits(&before));
    assert!(hit > 4 * missed, "after the restart {hit} hits, {missed} misses");
    server.stop();
    volume.verify();
}

#[test]
fn zeroes_take_no_flash_and_text_takes_less() {
    if stands_in() || !shares("zeroes_take_no_flash_and_text_takes_less") {
        return;
    }
    let scratch = Scratch::new("zeroes-and-text");
    // If a chunk takes whole slots, it takes three of four.
    let (options, part, ratio) = match design().kind() {
        StoreKind::Buckets => (&["--chunk", "32K", "--compress", "lz4"], 0.75, 1.3),
        _ => (&["--weu", "512K", "--compress", "lz4"], 0.7, 1.4),
    };
    let volume = Volume::create(&scratch, 128 * MIB, 64 * MIB, options);
    let server = volume.serve();
    let mut wire = Wire::connect(&server.socket);
    let empty = flash_used(&volume);
    write_image(&mut wire, 0, &vec![0; IMAGE as usize]);
    let zeroes = flash_used(&volume);
    assert!(zeroes - empty <= SLACK, "zeroes: {empty} to {zeroes}");
    if design().kind() == StoreKind::Slots {
        return say("skipped: the second half of zeroes_take_no_flash_and_text_takes_less: slots are of one chunk");
    }
    write_image(&mut wire, IMAGE, &text(47, IMAGE as usize));
    let text_used = flash_used(&volume);
    assert!((text_used - zeroes) as f64 <= part * IMAGE as f64, "text: {zeroes} to {text_used}");
    assert!(volume.status()["compression_ratio"].as_f64().expect("compression_ratio") > ratio, "{}", volume.status());
    server.stop();
}

#[test]
fn a_partial_write_in_write_back_reads_no_origin() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("fragments");
    let origin = scratch.path("origin");
    let old = noise(53, 4 << 20);
    fs::write(&origin, &old).expect("an origin");
    let volume = Volume::over(&scratch, "flash", &origin, 64 * MIB, &["--weu", "512K"]);
    let server = volume.serve();
    let mut wire = Wire::connect(&server.socket);
    let before = volume.number("origin_bytes_read");
    let new = noise(59, 512);
    for chunk in 0..256_u64 {
        wire.write(chunk * CHUNK + 512 * (chunk % 16), &new);
    }
    wire.flush();
    assert_eq!(volume.number("origin_bytes_read"), before, "a partial write waited for the origin");
    for chunk in 0..256_u64 {
        let mut expected = old[(chunk * CHUNK) as usize..((chunk + 1) * CHUNK) as usize].to_vec();
        let at = 512 * (chunk % 16) as usize;
        expected[at..at + 512].copy_from_slice(&new);
        assert!(wire.read(chunk * CHUNK, CHUNK as usize) == expected, "chunk {chunk}");
    }
    server.stop();
}

#[test]
fn status_tells_the_same_served_or_not() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("status");
    let volume = Volume::create(&scratch, 64 * MIB, 64 * MIB, &["--weu", "512K", "--mode", "write-back"]);
    let offline = volume.status();
    assert_eq!(offline["served"], false, "{offline}");
    let server = volume.serve();
    let mut wire = Wire::connect(&server.socket);
    write_image(&mut wire, 0, &noise(61, 4 << 20));
    let online = volume.status();
    assert_eq!(online["served"], true, "{online}");
    for (key, value) in [("chunk_bytes", CHUNK), ("flash_bytes", 64 * MIB), ("origin_bytes", 64 * MIB)] {
        assert_eq!(online[key], value, "{key}: {online}");
        assert_eq!(offline[key], value, "{key}: {offline}");
    }
    is_told_in("OPERATING.md", &online);
    assert_eq!(online["design"], design().name, "{online}");
    assert_eq!(online["mode"], "write-back", "{online}");
    assert!(online["writes"].as_u64().expect("writes") >= 64, "{online}");
    for key in ["lba_index_ram_bytes", "fp_index_ram_bytes", "flash_bytes_written"] {
        // With slots of one chunk, the lists of addresses hold the knowledge of contents.
        let is_here = key != "fp_index_ram_bytes" || design().kind() != StoreKind::Slots;
        assert_eq!(online[key].as_u64().expect(key) > 0, is_here, "{key}: {online}");
    }
    volume.flush();
    let flushed = volume.status();
    assert_eq!(flushed["dirty_bytes"], 0, "{flushed}");
    assert!(flushed["origin_bytes_written"].as_u64().expect("origin_bytes_written") >= 4 * MIB, "{flushed}");
    server.stop();
    assert!(fs::read(&volume.origin).expect("the origin").starts_with(&noise(61, 4 << 20)), "destaged to its place");
    assert_eq!(volume.status()["served"], false);
}
