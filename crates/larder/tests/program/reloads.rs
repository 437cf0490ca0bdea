//! SIGHUP of a server that has an option file. The server takes over options that may change while
//! it serves, and prints them; it names those that may not. A file with a mistake changes nothing.
//! The command line goes before the file. Clients notice nothing.
//!
//! The effect of an option shows in the work of the server, not in its messages.

use crate::support::{MIB, Scratch, Server, Volume, fifo, larder, wire::Wire};
use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

const CHUNK: usize = 8192;
/// The server obeys a signal within this time.
const SOON: Duration = Duration::from_secs(30);
/// Nothing is destaged at this pace.
const QUIET: &str = "dirty-low = 60\ndirty-high = 65\n";

struct Reloading {
    _scratch: Scratch,
    volume: Volume,
    file: PathBuf,
}

impl Reloading {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let volume = Volume::create(&scratch, 32 * MIB, 16 * MIB, &[]);
        Self { file: scratch.path("larder.toml"), volume, _scratch: scratch }
    }

    fn write(&self, text: &str) {
        fs::write(&self.file, text).expect("an option file");
    }

    fn serve(&self, text: &str, options: &[&str]) -> Server {
        self.write(text);
        let mut serve = self.volume.serve_command(options);
        self.volume.serve_as(serve.arg("--config").arg(&self.file))
    }

    /// Has the server read the file again, and waits for its line about that.
    fn reload(&self, server: &Server, text: &str) -> String {
        self.write(text);
        let before = server.complaints().len();
        server.signal("HUP");
        let until = Instant::now() + SOON;
        loop {
            let said = server.complaints();
            if let Some((line, _)) = said[before..].split_once('\n') {
                return line.replace(&*self.file.to_string_lossy(), "FILE");
            }
            assert!(Instant::now() < until, "nothing is said of it");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn write_some(volume: &Volume) -> Wire {
    let mut client = Wire::connect(volume.socket());
    (0..200_u64).for_each(|n| client.write(n * CHUNK as u64, &[n as u8 + 1; CHUNK]));
    client
}

fn is_soon(mut what: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + SOON;
    while !what() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    true
}

#[test]
fn what_may_change_does_and_is_told() {
    let it = Reloading::new("reloads");
    let server = it.serve(QUIET, &[]);
    let mut client = write_some(&it.volume);
    assert!(it.volume.number("dirty_bytes") > 0);
    let said = it.reload(&server, "dirty-low = 0\ndestage-rate = 1\n");
    assert_eq!(said, "FILE was read again: destage-rate 1 (was 32M), dirty-high 40 (was 65), dirty-low 0 (was 60)");
    assert!(is_soon(|| it.volume.number("destaged_chunks") > 0), "destaging begins");
    // The pause at that rate would take days; the reload ends it.
    let said = it.reload(&server, "dirty-low = 0\ndestage-rate = \"0\"\nend-timeout = 20\n");
    assert_eq!(said, "FILE was read again: destage-rate 0 (was 1), end-timeout 20 (was 60)");
    assert!(is_soon(|| it.volume.number("dirty_bytes") == 0), "and goes on without a limit");
    let commits = it.volume.number("commits");
    client.write(0, &[7; CHUNK]);
    let said = it.reload(&server, "dirty-low = 0\ndestage-rate = \"0\"\nend-timeout = 20\ndurable-writes = true\n");
    assert_eq!(said, "FILE was read again: durable-writes true (was false)");
    (0..8).for_each(|n| client.write(n * CHUNK as u64, &[8; CHUNK]));
    assert!(it.volume.number("commits") >= commits + 8, "each write is committed");
    let said = it.reload(&server, "dirty-low = 0\ndestage-rate = \"0\"\nend-timeout = 20\ndurable-writes = true\n");
    assert_eq!(said, "FILE was read again: nothing changes");
    drop(client);
    server.stop();
}

#[test]
fn what_may_not_change_is_named_and_the_command_line_goes_first() {
    let it = Reloading::new("reloads-fixed");
    let server = it.serve(&format!("{QUIET}connections = 9\n"), &["--destage-rate", "5M"]);
    let said = it.reload(
        &server,
        "nbd = \"unix:/elsewhere\"\nworkers = 3\nconnections = 7\ndestage-rate = 1\ndirty-low = 50\ndirty-high = 65\n",
    );
    assert_eq!(
        said,
        "FILE was read again: dirty-low 50 (was 60); until the next start it stays as it was: connections, workers"
    );
    server.stop();
}

#[test]
fn a_file_with_a_mistake_changes_nothing() {
    let it = Reloading::new("reloads-wrong");
    let mut server = it.serve(QUIET, &[]);
    let client = write_some(&it.volume);
    for (text, words) in [
        ("dirty-low = 0\nwings = 2\n", "FILE, line 2: no option is called wings"),
        ("dirty-low = 0\ndirty-high = \n", "FILE, line 2: this is not TOML"),
        (
            "dirty-low = 0\ndirty-high = 90\n",
            "--dirty-low 0, --dirty-high 90 and --dirty-max 70 must be in ascending order",
        ),
        ("dirty-low = 0\ndirty-max = 120\n", "FILE, line 2: dirty-max 120: 120 is not in 1..=100"),
        ("dirty-low = 0\nno-cache = true\n", "say what to serve"),
    ] {
        let said = it.reload(&server, text);
        assert!(said.starts_with("larder: ") && said.contains(words), "{text:?}: {said}");
        assert!(said.ends_with(": the options in force stay, for FILE was not taken over"), "{said}");
    }
    fs::remove_file(&it.file).expect("it is there");
    let before = server.complaints().len();
    server.signal("HUP");
    assert!(is_soon(|| server.complaints()[before..].contains("cannot be read: no such file")));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(it.volume.number("destaged_chunks"), 0, "nothing was taken over");
    assert!(server.alive());
    // A hangup asks for this even if it was to be ignored. It does not count as the first of two
    // signals that end a server at once.
    it.write(QUIET);
    server.signal("HUP");
    drop(client);
    server.stop();
}

#[test]
fn an_origin_alone_reads_its_file_again_too() {
    let scratch = Scratch::new("reloads-alone");
    let volume = Volume::bare(&scratch, "alone", &scratch.file("origin", MIB));
    let file = scratch.path("larder.toml");
    fs::write(&file, "end-timeout = 5\n").expect("a file");
    let mut serve = larder(["serve", "--no-cache", "--origin"]);
    serve.arg(&volume.origin).args(["--nbd", &format!("unix:{}", volume.socket().display())]);
    let server = volume.serve_as(serve.arg("--config").arg(&file));
    fs::write(&file, "end-timeout = 6\nprefetch = 0\n").expect("a file");
    server.signal("HUP");
    let said = "was read again: end-timeout 6 (was 5); until the next start it stays as it was: prefetch";
    assert!(is_soon(|| server.complaints().contains(said)), "{}", server.complaints());
    server.stop();
}

/// A FIFO stands for a file that hangs. The file comes back, and the next reload takes it over.
#[test]
fn an_option_file_that_hung_is_read_at_the_next_reload() {
    let it = Reloading::new("reloads-hung");
    let server = it.serve("end-timeout = 20\n", &[]);
    let hang = || {
        fs::remove_file(&it.file).expect("the file");
        fifo(&it.file);
    };
    let says = |words: &str| {
        let is_said = is_soon(|| server.complaints().contains(words));
        assert!(is_said, "no word of it: {}", server.complaints());
    };
    hang();
    server.signal("HUP");
    says("has not answered");
    fs::remove_file(&it.file).expect("the FIFO");
    let line = it.reload(&server, "end-timeout = 21\n");
    assert!(line.contains("end-timeout 21"), "{line}");
    // Readings that hang are bounded, and the last request for one is carried out once one ends.
    hang();
    for _ in 0..30 {
        server.signal("HUP");
        std::thread::sleep(Duration::from_millis(30));
    }
    says("is read again once one of 8 readings of it has ended");
    let before = server.complaints().len();
    let fifo = it.file.with_extension("fifo");
    fs::rename(&it.file, &fifo).expect("the FIFO away");
    it.write("end-timeout = 22\n");
    // The readers of the FIFO end.
    drop(fs::OpenOptions::new().write(true).open(&fifo).expect("a writer"));
    says("end-timeout 22");
    assert!(server.complaints()[before..].contains("end-timeout 22"));
    server.stop();
}

/// A FIFO stands for a file on a file system that hangs: opening it waits for ever.
#[test]
fn an_option_file_that_hangs_keeps_no_end_waiting() {
    let it = Reloading::new("reloads-hangs");
    let server = it.serve("end-timeout = 20\n", &[]);
    let mut client = write_some(&it.volume);
    fs::remove_file(&it.file).expect("the file");
    fifo(&it.file);
    server.signal("HUP");
    server.signal("HUP");
    client.write(0, &[77; CHUNK]);
    drop(client);
    let began = Instant::now();
    server.stop();
    assert!(began.elapsed() < Duration::from_secs(10), "the end waited for the option file");
    let server = it.volume.serve();
    let mut client = Wire::connect(it.volume.socket());
    assert!(client.read(0, CHUNK) == [77; CHUNK] && client.read(199 * CHUNK as u64, CHUNK) == [200; CHUNK]);
    drop(client);
    server.stop();
}
