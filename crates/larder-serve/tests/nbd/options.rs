//! The handshake, as clients of many kinds do it.

use crate::common::{contexts, go_data, serve_ram};
use larder_device::nbd::proto::{info, option, option_reply as reply, transmission_flag as flag};

#[test]
fn go_tells_size_flags_and_block_sizes() {
    let (served, _) = serve_ram(8);
    let mut raw = served.raw();
    raw.greet(3);
    let replies = raw.option(option::GO, &go_data("disk", &[info::NAME, info::DESCRIPTION, info::BLOCK_SIZE]));
    assert_eq!(replies.len(), 5);
    let item = |kind: u16| {
        let found = replies.iter().find(|(t, data)| *t == reply::INFO && data[..2] == kind.to_be_bytes());
        found.expect("the information").1[2..].to_vec()
    };
    let export = item(info::EXPORT);
    assert_eq!(export[..8], (8_u64 << 20).to_be_bytes());
    let flags = u16::from_be_bytes([export[8], export[9]]);
    assert_eq!(flags & flag::READ_ONLY, 0);
    let all = flag::HAS_FLAGS
        | flag::SEND_FLUSH
        | flag::SEND_FUA
        | flag::SEND_TRIM
        | flag::SEND_WRITE_ZEROES
        | flag::SEND_DF
        | flag::CAN_MULTI_CONN
        | flag::SEND_FAST_ZERO;
    assert_eq!(flags, all);
    assert_eq!(item(info::NAME), b"disk");
    assert_eq!(item(info::DESCRIPTION), b"Larder");
    let sizes = item(info::BLOCK_SIZE);
    assert_eq!(sizes[..4], 512_u32.to_be_bytes());
    assert_eq!(sizes[8..], (32_u32 << 20).to_be_bytes());
}

#[test]
fn export_name_answers_with_and_without_padding() {
    let (served, _) = serve_ram(1);
    for (flags, bytes) in [(1, 134), (3, 10)] {
        let mut raw = served.raw();
        raw.greet(flags);
        let mut message = Vec::new();
        larder_device::nbd::proto::encode_option(&mut message, option::EXPORT_NAME, b"");
        raw.send(&message);
        assert_eq!(raw.take(bytes)[..8], (1_u64 << 20).to_be_bytes());
        raw.request(0, 0, 5, 0, 512, &[]);
        assert_eq!(raw.reply().cookie, 5);
        assert_eq!(raw.take(512), [0; 512]);
    }
    let mut raw = served.raw();
    raw.greet(3);
    let mut message = Vec::new();
    larder_device::nbd::proto::encode_option(&mut message, option::EXPORT_NAME, b"other");
    raw.send(&message);
    assert!(raw.is_closed());
}

#[test]
fn what_is_not_offered_is_refused_and_the_handshake_goes_on() {
    let (served, _) = serve_ram(1);
    let mut raw = served.raw();
    raw.greet(3);
    assert_eq!(raw.option(option::STARTTLS, &[])[0].0, reply::ERR_POLICY);
    let extended_headers = 11;
    assert_eq!(raw.option(extended_headers, &[])[0].0, reply::ERR_UNSUP);
    assert_eq!(raw.option(4711, &[1, 2, 3])[0].0, reply::ERR_UNSUP);
    assert_eq!(raw.option(option::GO, &go_data("other", &[]))[0].0, reply::ERR_UNKNOWN);
    assert_eq!(raw.option(option::GO, &[0, 0])[0].0, reply::ERR_INVALID);
    assert_eq!(raw.option(option::GO, &[0xff; 8])[0].0, reply::ERR_INVALID);
    assert_eq!(raw.option(option::LIST, &[1])[0].0, reply::ERR_INVALID);
    assert_eq!(raw.option(option::INFO, &vec![7; 100 << 10])[0].0, reply::ERR_TOO_BIG);
    let list = raw.option(option::LIST, &[]);
    assert_eq!(list[0], (reply::SERVER, b"\0\0\0\x04diskLarder".to_vec()));
    assert_eq!(raw.option(option::INFO, &go_data("", &[])).last().expect("a reply").0, reply::ACK);
    assert_eq!(raw.option(option::ABORT, &[])[0].0, reply::ACK);
    assert!(raw.is_closed());
}

#[test]
fn contexts_are_listed_chosen_and_forgotten() {
    let (served, _) = serve_ram(1);
    let mut raw = served.raw();
    raw.greet(3);
    let set = contexts("disk", &["base:allocation"]);
    assert_eq!(raw.option(option::SET_META_CONTEXT, &set)[0].0, reply::ERR_INVALID, "structured replies come first");
    raw.option(option::STRUCTURED_REPLY, &[]);
    assert_eq!(raw.option(option::LIST_META_CONTEXT, &contexts("", &[])).len(), 2);
    assert_eq!(raw.option(option::LIST_META_CONTEXT, &contexts("", &["base:"])).len(), 2);
    assert_eq!(raw.option(option::LIST_META_CONTEXT, &contexts("", &["qemu:"])).len(), 1);
    assert_eq!(raw.option(option::SET_META_CONTEXT, &contexts("", &["base:"])).len(), 1);
    assert_eq!(raw.option(option::SET_META_CONTEXT, &contexts("x", &["base:allocation"]))[0].0, reply::ERR_UNKNOWN);
    assert_eq!(raw.option(option::SET_META_CONTEXT, &set).len(), 2);
    assert_eq!(raw.option(option::SET_META_CONTEXT, &contexts("disk", &["x:y"])).len(), 1);
    raw.option(option::GO, &go_data("disk", &[]));
    raw.request(7, 0, 1, 0, 512, &[]);
    let (_, kind, _, data) = raw.chunk();
    assert_eq!((kind, &data[..4]), ((1 << 15) | 1, &22_u32.to_be_bytes()[..]), "the last choice was none");
}
