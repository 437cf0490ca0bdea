//! Hostile bytes: the pure parsers with seeded noise, and a live server with cut and bent sessions.

use crate::common::{Served, go_data, serve_ram};
use larder_device::{
    nbd::proto::{WireRequest, command, encode_option, option},
    rng::Rng,
};
use larder_serve::nbd::fuzz;
use std::io::Write;

/// Returns a good session, as one run of bytes.
fn session() -> Vec<u8> {
    let mut bytes = 3_u32.to_be_bytes().to_vec();
    encode_option(&mut bytes, option::LIST, &[]);
    encode_option(&mut bytes, option::STRUCTURED_REPLY, &[]);
    encode_option(&mut bytes, option::SET_META_CONTEXT, &crate::common::contexts("disk", &["base:allocation"]));
    encode_option(&mut bytes, option::GO, &go_data("disk", &[3]));
    for (i, command) in [command::WRITE, command::READ, command::TRIM, command::BLOCK_STATUS].into_iter().enumerate() {
        let request = WireRequest { command, cookie: i as u64, offset: 512, len: 512, flags: 0 };
        bytes.extend_from_slice(&request.encode());
        if command == command::WRITE {
            bytes.extend_from_slice(&[7; 512]);
        }
    }
    bytes
}

/// Bends some bytes of a good session, or makes noise.
fn mutant(rng: &mut Rng) -> Vec<u8> {
    if rng.chance(1, 8) {
        let mut noise = vec![0; rng.index(2000)];
        rng.fill(&mut noise);
        return noise;
    }
    let mut bytes = session();
    for _ in 0..=rng.index(4) {
        let at = rng.index(bytes.len());
        match rng.below(5) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = 0xff,
            2 => bytes.truncate(at + 1),
            3 => bytes.insert(at, rng.next_u64() as u8),
            _ => {
                let end = (at + 4).min(bytes.len());
                rng.fill(&mut bytes[at..end]);
            }
        }
    }
    bytes
}

#[test]
fn the_parsers_take_any_bytes() {
    let mut good = vec![1];
    good.extend(session());
    for end in 0..good.len() {
        fuzz::nbd_server_bytes(&good[..end]);
    }
    for seed in 0..20_000 {
        let mut rng = Rng::new(seed);
        let mut bytes = vec![rng.next_u64() as u8];
        bytes.extend(mutant(&mut rng));
        let run = std::panic::catch_unwind(|| {
            fuzz::nbd_server_bytes(&bytes);
            fuzz::nbd_requests(&bytes);
        });
        assert!(run.is_ok(), "seed {seed}");
    }
}

fn still_serves(served: &Served) {
    let mut raw = served.raw();
    raw.go(true);
    raw.request(command::FLUSH, 0, 1, 0, 0, &[]);
    assert_eq!(raw.reply().cookie, 1);
}

#[test]
fn a_session_may_end_at_any_byte() {
    let (served, _) = serve_ram(1);
    let session = session();
    for end in 0..session.len() {
        let mut raw = served.raw();
        let half = end / 2;
        raw.send(&session[..half]);
        raw.send(&session[half..end]);
        raw.0.shutdown(std::net::Shutdown::Write).expect("shut");
        assert!(raw.is_closed(), "cut at {end}");
    }
    still_serves(&served);
    crate::common::eventually("all gone", || served.server.stats().connections_now == 0);
}

#[test]
fn bent_sessions_cost_their_own_connection_only() {
    let (served, _) = serve_ram(1);
    for seed in 0..1500 {
        let mut raw = served.raw();
        // The server may close in the middle of it.
        let _ = raw.0.write_all(&mutant(&mut Rng::new(seed)));
        let _ = raw.0.shutdown(std::net::Shutdown::Write);
        assert!(raw.is_closed(), "seed {seed}");
    }
    still_serves(&served);
    crate::common::eventually("all gone", || served.server.stats().connections_now == 0);
}

#[test]
fn endless_options_end() {
    let (served, _) = serve_ram(1);
    let mut raw = served.raw();
    raw.greet(3);
    let mut bytes = Vec::new();
    (0..300).for_each(|_| encode_option(&mut bytes, option::LIST, &[]));
    let _ = raw.0.write_all(&bytes);
    assert!(raw.is_closed());
    let mut raw = served.raw();
    raw.greet(3);
    let mut huge = Vec::new();
    encode_option(&mut huge, option::INFO, &[]);
    huge[12..16].copy_from_slice(&u32::MAX.to_be_bytes());
    raw.send(&huge);
    assert!(raw.is_closed());
    assert_eq!(served.server.stats().protocol_errors, 2);
}
