//! The real program among things that others can make: folders, sockets, state, flash files. Also
//! several servers that want one socket.
//!
//! Other users are numbers without an account. Their parts need root; without root the tests skip
//! them with a word. Files of these users in `/tmp` lie under their number, and the tests remove
//! them.

use crate::support::{MIB, Scratch, Volume, begin, ends, fifo, install, larder, run, say};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::fd::AsRawFd as _,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, symlink},
        net::{UnixListener, UnixStream},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::mpsc,
    thread,
    time::Duration,
};

/// The number of unknown users.
const STRANGERS: u32 = 4_000;

/// Returns an unknown user; tests that run at once have others.
fn stranger() -> u32 {
    61_000 + std::process::id() % STRANGERS
}

fn is_root(test: &str) -> bool {
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !is_root {
        say(&format!("skipped: {test}: it takes root to be somebody else"));
    }
    is_root
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
}

fn chown(path: &Path, user: u32) {
    std::os::unix::fs::chown(path, Some(user), Some(user)).expect("another owner");
}

fn uuid(volume: &Volume) -> String {
    volume.status()["flash_uuid"].as_str().expect("a UUID").to_owned()
}

fn refused(out: &Output, words: &[&str]) {
    let complaint = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{complaint}");
    assert!(out.stdout.is_empty(), "it speaks of success: {}", String::from_utf8_lossy(&out.stdout));
    assert_eq!(complaint.trim_end().lines().count(), 1, "{complaint}");
    for word in words {
        assert!(complaint.contains(word), "no {word:?}: {complaint}");
    }
}

/// Answers each request at `socket`, also a detach, as `user`, for the flash `named`.
///
/// It behaves like a server whose flash has failed. The socket is bound before the thread changes
/// its user, so no folder above it has to let the user in.
fn impostor(socket: &Path, named: String, user: u32) {
    let listener = UnixListener::bind(socket).expect("a socket");
    let (ready, is_ready) = mpsc::channel();
    thread::spawn(move || {
        // SAFETY: plain system calls. The first changes the user of this thread alone; the C
        // library's would change that of all. The second makes that user the one that the kernel
        // reports to clients of the socket.
        let (changed, listens) =
            unsafe { (libc::syscall(libc::SYS_setresuid, user, user, user), libc::listen(listener.as_raw_fd(), 16)) };
        assert_eq!((changed, listens), (0, 0), "a thread of another user listens");
        ready.send(()).expect("the test waits");
        for stream in listener.incoming().map_while(Result::ok) {
            let mut lines = BufReader::new(&stream).lines();
            while let Some(Ok(request)) = lines.next() {
                let held = "{\"flash\":\"?\",\"flash_named\":\"FLASH\",\"id\":null,\"works\":false}";
                let answer = match request.as_str() {
                    "which" => held.replace("FLASH", &named),
                    _ => "{\"origin\":\"file:///all/is/well\"}".to_owned(),
                };
                let _ = (&stream).write_all(format!("{{\"ok\":{answer}}}\n").as_bytes());
            }
        }
    });
    is_ready.recv().expect("it listens");
}

/// Larder believes neither another user's run folder nor another user's process in its own.
#[test]
fn no_other_user_answers_for_a_cache() {
    if !is_root("no_other_user_answers_for_a_cache") {
        return;
    }
    let scratch = Scratch::new("impostor");
    let volume = Volume::create(&scratch, 16 * MIB, 16 * MIB, &[]);
    let name = uuid(&volume);
    let flash = volume.flash.to_str().expect("a plain path");
    let before = fs::read(&volume.flash).expect("the flash");
    let squat = |folder: &str, mode: u32, owner: u32| {
        let folder = scratch.path(folder);
        fs::create_dir(&folder).expect("a folder");
        impostor(&folder.join(format!("{name}.sock")), flash.to_owned(), stranger());
        chmod(&folder, mode);
        chown(&folder, owner);
        folder
    };
    let (theirs, open, ours) = (squat("theirs", 0o700, stranger()), squat("open", 0o777, 0), squat("ours", 0o755, 0));
    let their_name = stranger().to_string();
    for (folder, words) in [
        (&theirs, ["belongs to another user", &their_name, "LARDER_RUN_DIR"]),
        (&open, ["can be written by others", "777", "LARDER_RUN_DIR"]),
        // A folder with the right owner and mode, with another user's server in it.
        (&ours, ["is not believed", &their_name, "LARDER_RUN_DIR"]),
    ] {
        for command in ["status", "flush", "detach"] {
            let out = ends(larder([command, "--flash", flash]).env("LARDER_RUN_DIR", folder));
            refused(&out, &words);
        }
        let set = ends(larder(["set", "--flash", flash, "--mode", "write-through"]).env("LARDER_RUN_DIR", folder));
        refused(&set, &words);
        let serve = ends(volume.serve_command(&[]).env("LARDER_RUN_DIR", folder));
        refused(&serve, &words);
    }
    assert!(fs::read(&volume.flash).expect("the flash") == before, "the flash was changed");
}

/// The program, in a place where another user may run it.
///
/// The end removes it, with that user's files in `/tmp`.
struct TheirPlace {
    folder: PathBuf,
    user: u32,
}

impl TheirPlace {
    /// Makes a place of a user of its own: `number` is another one in each test.
    fn new(number: u32) -> TheirPlace {
        let user = stranger() + number * STRANGERS;
        let folder = PathBuf::from(format!("/tmp/larder-program-{user}"));
        fs::create_dir(&folder).expect("a folder of ours");
        let place = TheirPlace { folder, user };
        chmod(&place.folder, 0o755);
        install(Path::new(env!("CARGO_BIN_EXE_larder")), &place.path("larder"));
        fs::create_dir(place.path("files")).expect("a folder");
        chown(&place.path("files"), user);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn larder(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.path("larder"));
        command.args(args).uid(self.user).gid(self.user).current_dir(self.path("files"));
        command.env_remove("XDG_RUNTIME_DIR").env_remove("LARDER_RUN_DIR");
        command
    }

    fn run_dirs(&self) -> Vec<PathBuf> {
        let begin = format!("larder-{}", self.user);
        let entries = fs::read_dir("/tmp").expect("a folder").flatten();
        entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&begin))
            .map(|entry| entry.path())
            .collect()
    }
}

impl Drop for TheirPlace {
    fn drop(&mut self) {
        for folder in self.run_dirs().iter().chain([&self.folder]) {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// A flash that its user may not read is named as that, and not as one to write.
#[test]
fn a_flash_that_cannot_be_read_is_named_so() {
    if !is_root("a_flash_that_cannot_be_read_is_named_so") {
        return;
    }
    let scratch = Scratch::new("unreadable");
    let volume = Volume::create(&scratch, 16 * MIB, 16 * MIB, &[]);
    let place = TheirPlace::new(2);
    let flash = place.path("files/flash");
    fs::copy(&volume.flash, &flash).expect("a copy");
    chown(&flash, place.user);
    chmod(&flash, 0o200);
    let named = flash.to_str().expect("a plain path");
    for command in ["status", "verify", "dump"] {
        let out = ends(&mut place.larder(&[command, "--flash", named]));
        refused(&out, &[named, "cannot be read", "make it readable"]);
    }
    chmod(&flash, 0o400);
    let out = ends(&mut place.larder(&["flush", "--flash", named]));
    refused(&out, &[named, "cannot be written", "make it writable"]);
}

/// A name in `/tmp` that another user has taken keeps no server from starting.
///
/// Commands find the server all the same.
#[test]
fn a_squatted_run_folder_keeps_no_server_from_starting() {
    if !is_root("a_squatted_run_folder_keeps_no_server_from_starting") {
        return;
    }
    let place = TheirPlace::new(0);
    let squatted = PathBuf::from(format!("/tmp/larder-{}", place.user));
    fs::create_dir(&squatted).expect("squatted by root");
    chmod(&squatted, 0o777);
    run(&mut place.larder(&["create", "--flash", "flash", "--size", "16M", "--origin", {
        let origin = place.path("files/origin");
        fs::File::create(&origin).and_then(|file| file.set_len(16 * MIB)).expect("an origin");
        chown(&origin, place.user);
        "origin"
    }]));
    let mut serving = begin(&mut place.larder(&["serve", "--flash", "flash", "--nbd", "unix:s"]));
    let served = || {
        let out = ends(&mut place.larder(&["status", "--json", "--flash", "flash"]));
        String::from_utf8_lossy(&out.stdout).contains("\"served\": true")
    };
    let is_found = (0..400).any(|_| {
        thread::sleep(Duration::from_millis(50));
        serving.is_over() || served()
    });
    assert!(is_found && !serving.is_over(), "{}", String::from_utf8_lossy(&serving.ends("serve").stderr));
    assert_eq!(fs::read_dir(&squatted).expect("there").count(), 0, "nothing is put there");
    let folders = place.run_dirs();
    assert_eq!(folders.len(), 2, "{folders:?}");
    // The refusal of a cache that another user serves names that user.
    for command in ["status", "flush", "detach"] {
        let out = ends(larder([command, "--flash"]).arg(place.path("files/flash")));
        refused(&out, &["is in use", "another user", &place.user.to_string(), "run the command as that user"]);
    }
    serving.signal("TERM");
    assert!(serving.ends("serve").status.success());
}

/// Content of an origin that only its owner may read lies in a file of the same kind.
///
/// Only the owner may read and lock that file.
#[test]
fn a_flash_file_is_for_its_owner_alone() {
    let scratch = Scratch::new("modes");
    let volume = Volume::create(&scratch, 16 * MIB, 16 * MIB, &[]);
    assert_eq!(fs::metadata(&volume.flash).expect("made").mode() & 0o777, 0o600);
    let server = volume.serve();
    assert!(!server.complaints().contains("other users"), "{}", server.complaints());
    server.stop();
    // A flash file that an older program made.
    chmod(&volume.flash, 0o644);
    let server = volume.serve();
    let said = server.complaints();
    assert!(said.contains("other users may open") && said.contains("chmod 600"), "{said}");
    server.stop();
}

#[test]
fn a_state_folder_that_others_may_write_is_refused() {
    let scratch = Scratch::new("states");
    let volume = Volume::create(&scratch, 16 * MIB, 16 * MIB, &["--mode", "write-through"]);
    let state = scratch.path("state");
    fs::create_dir(&state).expect("a folder");
    let dir = state.to_str().expect("a plain path");
    for mode in [0o770, 0o702, 0o1777] {
        chmod(&state, mode);
        refused(&ends(&mut volume.serve_command(&["--state", dir])), &[dir, "written by others", "chmod"]);
        assert_eq!(fs::read_dir(&state).expect("there").count(), 0);
    }
    chmod(&state, 0o755);
    volume.serve_with(&["--state", dir]).stop();
    let file = fs::read_dir(&state).expect("there").flatten().next().expect("a state file").path();
    assert_eq!(fs::metadata(&file).expect("there").mode() & 0o777, 0o600);
    // Larder follows neither the state file nor the new one beside it, if it is a link.
    let other = scratch.path("other");
    fs::write(&other, "mine").expect("written");
    symlink(&other, file.with_extension("new")).expect("a link");
    volume.serve_with(&["--state", dir]).stop();
    assert_eq!(fs::read(&other).expect("there"), b"mine");
    let kept = scratch.path("kept");
    fs::rename(&file, &kept).expect("moved");
    symlink(&kept, &file).expect("a link");
    refused(&ends(&mut volume.serve_command(&["--state", dir])), &["state file", "is no file"]);
    // A mode that was opened later counts for commands that only look, too.
    fs::remove_file(&file).expect("a link");
    fs::rename(&kept, &file).expect("moved back");
    chmod(&state, 0o777);
    let missing = scratch.path("away");
    fs::rename(&volume.flash, &missing).expect("moved");
    let status = ends(larder(["status", "--state", dir, "--flash"]).arg(&volume.flash));
    refused(&status, &[dir, "written by others"]);
}

/// Another user's words in a state file could deny a fence.
#[test]
fn a_state_file_that_others_could_have_written_is_refused_by_each_command_that_reads_it() {
    let scratch = Scratch::new("state-files");
    let volume = Volume::create(&scratch, 16 * MIB, 16 * MIB, &["--mode", "write-through"]);
    let state = scratch.path("state");
    fs::create_dir(&state).expect("a folder");
    chmod(&state, 0o755);
    let dir = state.to_str().expect("a plain path");
    volume.serve_with(&["--state", dir]).stop();
    let file = fs::read_dir(&state).expect("there").flatten().next().expect("a state file").path();
    let name = file.to_str().expect("a plain path");
    let flash = volume.flash.to_str().expect("a plain path");
    let away = scratch.path("away");
    let refused_by_all = |words: &[&str]| {
        let words = [&["the state file", name], words].concat();
        let before = fs::read(flash).expect("the flash");
        // Commands that end come first, for a server that believes the file would not.
        for command in [&["flush"][..], &["set", "--mode", "write-around"], &["detach"], &["verify", "--repair"]] {
            refused(&ends(larder(command).args(["--flash", flash])), &words);
        }
        // A new cache over a copy leaves the file, for it is that of the cache itself.
        let copy = scratch.path("copy");
        fs::copy(flash, &copy).expect("a copy");
        let mut create = larder(["create", "--force", "--flash"]);
        let origin = scratch.file("other-origin", 16 * MIB);
        let out = ends(create.arg(&copy).arg("--origin").arg(&origin));
        let told = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && told.contains(name) && told.contains("it stays"), "{told}");
        assert!(fs::symlink_metadata(&file).is_ok(), "the state file is gone");
        fs::remove_file(&copy).expect("the copy");
        for options in [&["--state", dir][..], &["--state", dir, "--adopt"]] {
            refused(&ends(&mut volume.serve_command(options)), &words);
        }
        let status = run(&mut larder(["status", "--json", "--flash", flash]));
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        let first = &status["conditions"][0];
        assert_eq!((first["name"].as_str(), first["severity"].as_str()), (Some("state_unknown"), Some("degraded")));
        let said = first["what"].as_str().expect("a sentence");
        assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
        // The same without the flash, which only the state file describes then.
        fs::rename(flash, &away).expect("moved");
        refused(&ends(larder(["status", "--state", dir, "--flash", flash]).args(["--json"])), &words);
        refused(&ends(&mut volume.serve_command(&["--state", dir])), &words);
        fs::rename(&away, flash).expect("moved back");
        assert!(fs::read(flash).expect("the flash") == before, "a refusal changes nothing");
    };
    for mode in [0o620, 0o602, 0o666] {
        chmod(&file, mode);
        refused_by_all(&["can be written by others", &format!("mode {mode:o}"), "chmod go-w"]);
    }
    chmod(&file, 0o644);
    if is_root("a_state_file_that_others_could_have_written") {
        chown(&file, stranger());
        refused_by_all(&["belongs to another user", &stranger().to_string(), "chown"]);
        chown(&file, 0);
    }
    // Nothing else is a state file: no FIFO, folder, link or socket.
    let kept = scratch.path("kept");
    fs::rename(&file, &kept).expect("moved");
    fifo(&file);
    refused_by_all(&["is no file"]);
    fs::remove_file(&file).expect("a FIFO");
    fs::create_dir(&file).expect("a folder");
    refused_by_all(&["is no file"]);
    fs::remove_dir(&file).expect("a folder");
    symlink(&kept, &file).expect("a link");
    refused_by_all(&["is no file"]);
    fs::remove_file(&file).expect("a link");
    drop(UnixListener::bind(&file).expect("a socket"));
    refused_by_all(&["is no file"]);
    fs::remove_file(&file).expect("a socket");
    fs::rename(&kept, &file).expect("moved back");
    volume.serve().stop();
}

/// Servers of different caches want one stale socket: one of them prints that it is ready.
///
/// Clients reach that one.
#[test]
fn of_servers_that_race_for_one_socket_one_is_ready() {
    const SERVERS: usize = 3;
    let scratch = Scratch::new("race");
    let volumes: Vec<Volume> = (0..SERVERS)
        .map(|i| {
            let origin = scratch.file(&format!("origin{i}"), 16 * MIB);
            Volume::over(&scratch, &format!("flash{i}"), &origin, 16 * MIB, &[])
        })
        .collect();
    let socket = scratch.path("one.sock");
    let address = format!("unix:{}", socket.display());
    for round in 0..3 {
        // A killed server left this socket.
        drop(UnixListener::bind(scratch.path("stale")).expect("a socket"));
        fs::rename(scratch.path("stale"), &socket).expect("moved");
        let mut servers: Vec<_> = volumes
            .iter()
            .map(|volume| begin(larder(["serve", "--nbd", &address, "--flash"]).arg(&volume.flash)))
            .collect();
        let mut ended = Vec::new();
        for _ in 0..1200 {
            while let Some(at) = servers.iter_mut().position(|server| server.is_over()) {
                ended.push(servers.remove(at).ends("serve"));
            }
            if servers.len() <= 1 {
                break;
            }
            thread::sleep(Duration::from_millis(25));
        }
        assert_eq!((servers.len(), ended.len()), (1, SERVERS - 1), "round {round}");
        ended.iter().for_each(|out| refused(out, &["another server listens"]));
        let last = servers.remove(0);
        let is_reached = (0..400).any(|_| {
            thread::sleep(Duration::from_millis(25));
            UnixStream::connect(&socket).is_ok()
        });
        assert!(is_reached, "round {round}");
        last.signal("TERM");
        let out = last.ends("serve");
        assert!(out.status.success() && String::from_utf8_lossy(&out.stdout).contains("ready: "), "{out:?}");
    }
}
