//! Targets: the texts of people and of other processes.
//!
//! They are the option file of `larder serve`, sizes and addresses, both sides of the control
//! socket, and the state file.
//!
//! Properties: parsing gives a value, or one sentence on one line. Memory is in proportion. A
//! printed value reads back. The control socket answers each line that it takes, in order, until
//! one is too long.
//!
//! It does not open the named files.

use super::{args, client, config_file, control, error, memory, size, state_record};
use larder_serve::nbd::ServeAddress;
use serde_json::Value;
use std::{
    ffi::OsString,
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
};

/// Bytes that parsing an option file may allocate per byte. `ALLOCATED_BYTES` is for every file
/// (the definition of the command line, mostly).
const ALLOCATED_PER_BYTE: usize = 1 << 10;
const ALLOCATED_BYTES: usize = 4 << 20;
/// Longest request line that gets an answer: the server reads ahead by this much.
const LINE_BYTES_MAX: usize = 1024 + 256;
/// Most bytes that a client sends without reading. They and the answers must fit the sockets'
/// buffers.
const SENT_BYTES_MAX: usize = 4096;
const SENT_LINES_MAX: usize = 100;

/// Parses bytes as the option file of `larder serve`.
pub fn option_file(data: &[u8]) {
    let line: Vec<OsString> = ["larder", "serve", "--flash=/line", "--workers=3"].map(OsString::from).to_vec();
    let (_, matches) = args::parse(line.clone()).expect("a good line").expect("no help");
    let (merged, peak) = memory::peak_of(|| config_file::merge_text("o.toml", data.to_vec(), &line, &matches));
    assert!(peak <= ALLOCATED_BYTES + ALLOCATED_PER_BYTE * data.len(), "{peak} bytes for {}", data.len());
    match merged {
        Ok((options, _)) => {
            assert_eq!(options.workers, Some(3), "the command line goes first");
            assert_eq!(options.flash.as_deref().and_then(|path| path.to_str()), Some("/line"));
            assert!(options.dirty_low <= 100 && options.dirty_max >= 1 && options.config.is_none());
        }
        Err(failure) => {
            let sentence = failure.sentence().expect("a complaint has words");
            assert!(sentence.starts_with("o.toml") && !sentence.contains('\n'), "{sentence:?}");
        }
    }
}

/// Parses bytes as a size, an address to serve at, and the address of a server.
pub fn names(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(bytes) = size::parse(&text) {
        assert!(bytes <= 1 << 62);
        let exact = size::exact(bytes);
        assert_eq!(size::parse(exact.trim_end_matches(" bytes")), Ok(bytes), "{exact} is another size");
        assert!(!size::human(bytes).is_empty() && !size::count(bytes).is_empty());
    }
    if let Ok(bytes) = size::parse_chunk(&text) {
        assert!(bytes.is_power_of_two() && (4 << 10..=128 << 10).contains(&bytes));
    }
    if let Ok(bytes) = size::parse_weu(&text) {
        assert!(bytes.is_power_of_two() && (512 << 10..=4 << 20).contains(&bytes));
    }
    match text.parse::<ServeAddress>() {
        Ok(address) => assert_eq!(address.to_string().parse(), Ok(address)),
        Err(error) => assert!(error.to_string().contains("unix:PATH or tcp:HOST:PORT")),
    }
    larder_device::nbd::fuzz::nbd_uri(&text);
    // The commands of all processes take words from their users.
    let line = ["larder", "create", "--flash=f", "--origin=o"].map(OsString::from);
    let options = ["--chunk", "--weu", "--ram", "--size", "--fp-index", "--mode", "--design"];
    // One of them, since parsing a command line takes its time.
    let option = options[data.iter().map(|&byte| usize::from(byte)).sum::<usize>() % options.len()];
    let word = OsString::from(format!("{option}={text}"));
    if let Err(failure) = args::parse(line.into_iter().chain([word])) {
        assert!(failure.sentence().is_some_and(|sentence| !sentence.is_empty() && !sentence.contains('\n')));
    }
}

/// Takes bytes as a client's lines to the control socket, and as a server's answer.
pub fn control_socket(data: &[u8]) {
    reply(data);
    let lines = data.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let end = lines.map(|(at, _)| at + 1).nth(SENT_LINES_MAX).unwrap_or(data.len()).min(SENT_BYTES_MAX);
    let sent = &data[..end];
    let Ok((ours, theirs)) = UnixStream::pair() else { return };
    if (&ours).write_all(sent).and_then(|()| ours.shutdown(Shutdown::Write)).is_err() {
        return;
    }
    let handler = |request: &str| match request.len() % 2 {
        0 => Ok(Value::from(request)),
        _ => Err(request.to_owned()),
    };
    control::serve(&theirs, &handler);
    drop(theirs);
    let mut answers = Vec::new();
    // If the server hung up on a long line, the end is an error.
    let _ = (&ours).read_to_end(&mut answers);
    let answers = String::from_utf8(answers).expect("answers are text");
    let mut answers = answers.lines();
    // A last line without an end is none.
    let complete = sent.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    for line in complete {
        let Some(answer) = answers.next() else {
            assert!(line.len() > 1024, "a line of {} bytes is not answered", line.len());
            break;
        };
        assert!(line.len() <= LINE_BYTES_MAX, "a line of {} bytes is answered", line.len());
        let request = String::from_utf8_lossy(line).trim().to_owned();
        let expected = handler(&request);
        assert_eq!(client::parse_reply(answer), Some(expected), "{answer}");
    }
    assert_eq!(answers.next(), None, "more answers than lines");
}

fn reply(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (reply, peak) = memory::peak_of(|| client::parse_reply(text));
    assert!(peak <= ALLOCATED_BYTES + ALLOCATED_PER_BYTE * data.len(), "{peak} bytes for {}", data.len());
    if let Some(Err(sentence)) = reply {
        assert!(data.len() >= sentence.len());
    }
}

/// Parses bytes as the state file of a cache.
pub fn state_file(data: &[u8]) {
    let (parsed, peak) = memory::peak_of(|| state_record::parse(data));
    assert!(peak <= ALLOCATED_BYTES + ALLOCATED_PER_BYTE * data.len(), "{peak} bytes for {}", data.len());
    match parsed {
        Ok(record) => {
            let text = serde_json::to_vec_pretty(&record).expect("plain values");
            assert_eq!(state_record::parse(&text), Ok(record), "a state file reads back as something else");
        }
        Err(what) => {
            let sentence = error::Failure::failed(&what).sentence().expect("a complaint has words");
            assert!(!sentence.is_empty() && !sentence.contains('\n'), "{what:?}");
        }
    }
}

/// Returns first inputs of [`state_file`].
pub fn state_file_seeds() -> Vec<Vec<u8>> {
    let good = r#"{"version":1,"flash_uuid":"07","flash":"/ssd/cache","volume":"disk","origin":"file:///disk","origin_bytes":1073741824,"mode":"write-through","fence":"the device is gone"}"#;
    let texts =
        [good.to_owned(), good.replace("\"the device is gone\"", "null"), good.replace(":1,", ":2,"), "{}".into()];
    let mut seeds: Vec<Vec<u8>> = texts.into_iter().map(String::into_bytes).collect();
    seeds.push(b"{\"fence\":".repeat(300));
    seeds
}

/// Returns first inputs of [`option_file`].
pub fn option_file_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "",
        "flash = \"/f\"\nnbd = [\"unix:/a\", \"tcp:[::1]:0\"]\nworkers = 4\ndestage-rate = \"64M\"\nexport = 'x'\n",
        "no-cache = true # c\ndirty-low = 1_0\ndirty-max = \"7\\u0030\"\nrequest-max = \"1M\"\n",
        "[table]\nx = 1\n",
        "connections = 0x10\ninsert-queue = 1e3\nprefetch = \"\"\"\n8M\"\"\"\n",
        "origin-profile = \"hdd-7200\"\nflash-profile.x = 1979-05-27T07:32:00Z\n",
        "\"nbd\" = [[\"unix:/a\"], {a = 1}]\nhelp = true\nconfig = 'x'\nworkers = -1",
    ];
    let mut seeds: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    seeds.push([b"nbd = ".to_vec(), vec![b'['; 2000]].concat());
    seeds.push(vec![b'a', 0xff, b'\n']);
    seeds
}

/// Returns first inputs of [`names`].
pub fn names_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "8K",
        "2MiB",
        "4611686018427387904",
        "16E",
        "0",
        "unix:/run/a b",
        "tcp:[::1]:0",
        "tcp:host:70000",
        "nbd://Host:99/disk%20one",
        "nbd://[::1]/a/b",
        "nbd+unix:///d?a=b&socket=/nowhere/a%2520b",
        "nbd://h/%zz",
        "nbd://[[h]/",
        "75%",
        "write-back",
        "nitro",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Returns first inputs of [`control_socket`].
pub fn control_socket_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "status\nflush\nset-mode write-back\n",
        "{\"ok\": {\"reads\": 7}}\n",
        "{\"error\": \"a sentence\"}",
        "{\"ok\": 1, \"error\": 2}",
        "\n\r\n \u{e9}\u{0}\u{1b}[2J\n",
    ];
    let mut seeds: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    seeds.push([vec![b'x'; 1500], b"\nstatus\n".to_vec()].concat());
    seeds.push([vec![b'x'; 1100], b"\nstatus\n".to_vec()].concat());
    seeds.push(b"[".repeat(500));
    seeds
}
