//! Target: an NBD server's side of a session, as the client sees it. `larder_device::nbd::fuzz` has
//! the properties.
//!
//! It does not play the client. It leaves this to `larder_serve::nbd::fuzz`.

/// Returns first inputs: greetings, sessions that go well, and each kind of wrong answer.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![0], b"\0NBDMAGICIHAVEOPT\0\x03".to_vec(), vec![1]];
    // A greeting and one reply to GO, raw.
    let mut raw = b"\0NBDMAGICIHAVEOPT\0\x03\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x03\0\0\0\x0c\0\0".to_vec();
    raw.extend([0, 0, 0, 0, 0, 16, 0, 0, 0, 0xff]);
    seeds.push(raw.clone());
    raw.extend(b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x01\0\0\0\0");
    seeds.push(raw);
    // No further information, a megabyte, all abilities; then requests, each with replies.
    let head = [1, 0, 0];
    let sound: &[u8] = &[0, 3, 5, 1, 0, 0, 7, 3, 2, 9, 1, 1, 0, 0, 4, 0, 0, 1, 2, 0, 0];
    let wrong: [&[u8]; 6] = [
        &[0, 0, 1, 1, 5, 77],
        &[0, 7, 1, 1, 0x80, 0, 5, 90],
        &[3, 1, 1, 1, 8, 0, 28, 0],
        &[0, 1, 1, 1, 6, 1, 0, 0, 0, 0, 255, 255, 255, 255],
        &[0, 1, 1, 1, 7, 4, 1, 2, 3, 4],
        &[5, 3, 2, 0, 6, 3, 2, 3, 0, 0, 0, 0, 0, 0],
    ];
    seeds.push([&head, sound].concat());
    seeds.extend(wrong.iter().map(|rest| [&head, sound, rest].concat()));
    // Small blocks and a small limit, so that requests are split.
    seeds.push([&[1, 0, 1, 9, 12, 10], sound].concat());
    seeds
}
