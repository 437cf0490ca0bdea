//! The file of a sweep: a head that names the sweep, then a line of JSON for each finished replay.
//!
//! Invariants: a line is on the disk before the next one begins. A line cut off by a crash is
//! dropped, and its replay done again; any other foreign line is refused. One process writes at a
//! time. A new file without a replay is removed again.
//!
//! It does not know the replays of the grid.

use larder::error::{Failure, Outcome, system_reason};
use larder_sim::report::Row;
use serde_json::Value;
use std::{
    fs::{File, TryLockError},
    io::{ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// A journal, as the module describes it.
pub struct Journal {
    path: PathBuf,
    file: File,
    /// The file existed before.
    was_there: bool,
    replays: usize,
}

/// A finished replay: its key, and its row.
pub type Done = (String, Row);

impl Journal {
    /// Begins the file, or continues it. Returns its content.
    ///
    /// # Errors
    /// A sentence: it is the file of another sweep or no such file, another process writes it, or
    /// the system refuses.
    pub fn open(path: &Path, head: &Value) -> Outcome<(Journal, Vec<Done>)> {
        let shown = path.display();
        let wrong = |what: &str, error: &std::io::Error| {
            Failure::failed(format_args!("{shown} cannot be {what}: {}", system_reason(error)))
        };
        if path.is_dir() {
            return Err(Failure::failed(format_args!("{shown} is a folder: name a file")));
        }
        let was_there = path.exists();
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = file.map_err(|error| wrong("opened", &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::failed(format_args!("{shown} is being written by another sweep: let it end")));
            }
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(wrong("locked", &error)),
        }
        // The previous holder of the lock may have removed it.
        let is_named = std::fs::metadata(path).and_then(|named| Ok(named.ino() == file.metadata()?.ino()));
        if !is_named.map_err(|error| wrong("opened", &error))? {
            return Err(Failure::failed(format_args!("{shown} was being written by another sweep: try again")));
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(|error| wrong("read", &error))?;
        let (whole_bytes, done) = read(&text, head).map_err(|why| Failure::failed(format_args!("{shown}{why}")))?;
        let cut = |file: &mut File| {
            file.set_len(whole_bytes)?;
            file.seek(SeekFrom::End(0)).map(drop)
        };
        cut(&mut file).map_err(|error| wrong("written", &error))?;
        let mut journal = Journal { path: path.to_owned(), file, was_there, replays: done.len() };
        if whole_bytes == 0 {
            journal.line(head)?;
        }
        Ok((journal, done))
    }

    /// Adds a finished replay.
    ///
    /// # Errors
    /// A sentence.
    pub fn add(&mut self, key: &str, row: &Row) -> Outcome {
        self.line(&serde_json::json!({ "key": key, "row": row }))?;
        self.replays += 1;
        Ok(())
    }

    /// Returns whether there is any replay to continue from.
    pub fn has_replays(&self) -> bool {
        self.replays > 0
    }

    fn line(&mut self, value: &Value) -> Outcome {
        let line = value.to_string() + "\n";
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| {
            Failure::failed(format_args!("{} cannot be written: {}", self.path.display(), system_reason(&error)))
        })
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if self.replays > 0 {
            return;
        }
        // No caller takes an error here; and a later sweep continues a head alone as well.
        let _ = match self.was_there {
            true => self.file.set_len(0),
            false => std::fs::remove_file(&self.path),
        };
    }
}

/// Returns how much of a file is whole, and its content; or its fault, as the end of a sentence.
fn read(text: &[u8], head: &Value) -> Result<(u64, Vec<Done>), String> {
    let mut whole = 0;
    let mut done = Vec::new();
    for (at, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let is_last = whole + line.len() == text.len();
        let value = match (line.ends_with(b"\n"), serde_json::from_slice::<Value>(line)) {
            (true, Ok(value)) => value,
            (false, _) if at > 0 || is_beginning_of(line, head) => break,
            // A crash may leave an empty line, too.
            (true, Err(_)) if is_last && at > 0 => break,
            _ => return Err(format!(", line {}: expected {}", at + 1, expected(at))),
        };
        if at == 0 {
            check_head(&value, head)?;
        } else {
            let key = value.get("key").and_then(Value::as_str);
            let row = value.get("row").and_then(Value::as_object);
            match (key, row) {
                (Some(key), Some(row)) => done.push((key.to_owned(), row.clone())),
                _ => return Err(format!(", line {}: expected {}", at + 1, expected(at))),
            }
        }
        whole += line.len();
    }
    Ok((whole as u64, done))
}

fn is_beginning_of(line: &[u8], head: &Value) -> bool {
    head.to_string().as_bytes().starts_with(line)
}

fn expected(at: usize) -> &'static str {
    match at {
        0 => "the head of a sweep; this is another file, so name a new one",
        _ => "a replay of a sweep, as a JSON object with key and row",
    }
}

/// Checks that it is the same sweep.
fn check_head(found: &Value, head: &Value) -> Result<(), String> {
    let Some(keys) = head.as_object().filter(|_| found.get("larder_sweep").is_some()) else {
        return Err(format!(", line 1: expected {}", expected(0)));
    };
    match keys.iter().find(|(key, value)| found.get(key.as_str()) != Some(value)) {
        Some((key, value)) => {
            let there = found.get(key.as_str()).map_or("none".to_owned(), Value::to_string);
            Err(format!(" is the file of another sweep: its {key} is {there} and not {value}; name a new one"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn head() -> Value {
        json!({ "larder_sweep": 1, "trace": "x" })
    }

    fn file(lines: usize) -> Vec<u8> {
        let rows = (0..lines).map(|n| json!({ "key": format!("k{n}"), "row": { "n": n } }));
        std::iter::once(head()).chain(rows).map(|value| value.to_string() + "\n").collect::<String>().into_bytes()
    }

    #[test]
    fn a_file_cut_anywhere_is_gone_on_with() {
        let text = file(3);
        for cut in 0..=text.len() {
            let (whole, done) = read(&text[..cut], &head()).unwrap_or_else(|why| panic!("cut at {cut}: {why}"));
            assert!(whole <= cut as u64 && text[..whole as usize].last().is_none_or(|byte| *byte == b'\n'));
            let lines = text[..cut].iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(done.len(), lines.saturating_sub(1), "cut at {cut}");
        }
        let torn = [&text[..], b"\0\0\0\n"].concat();
        assert_eq!(read(&torn, &head()).map(|(whole, done)| (whole, done.len())), Ok((text.len() as u64, 3)));
    }

    #[test]
    fn other_files_are_refused() {
        for (text, words) in [
            (&b"Dear diary"[..], "line 1: expected the head"),
            (b"Dear diary\n", "line 1: expected the head"),
            (b"{\"key\": \"a\"}\n", "line 1: expected the head"),
            (b"[1]\n", "line 1: expected the head"),
            (b"{\"larder_sweep\":1,\"trace\":\"y\"}\n", "its trace is \"y\" and not \"x\""),
            (b"{\"larder_sweep\":2,\"trace\":\"x\"}\n", "its larder_sweep is 2 and not 1"),
        ] {
            assert!(read(text, &head()).unwrap_err().contains(words), "{words}");
        }
        let mut text = file(2);
        let at = text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        text[at] = b'x';
        assert!(read(&text, &head()).unwrap_err().contains("line 2: expected a replay"));
    }

    #[test]
    fn what_got_no_replay_is_gone_again() {
        let path = std::env::temp_dir().join(format!("larder-journal-{}", std::process::id()));
        let done = || Journal::open(&path, &head()).expect("a file");
        drop(done());
        assert!(!path.exists(), "it was not there before");
        std::fs::write(&path, "").expect("a file");
        drop(done());
        assert_eq!(std::fs::read(&path).expect("a file"), b"", "it was empty before");
        let (mut journal, _) = done();
        journal.add("k0", &Row::new()).expect("added");
        drop(journal);
        let kept = std::fs::read(&path).expect("a file");
        let (journal, before) = done();
        assert!(journal.has_replays() && before.len() == 1);
        drop(journal);
        assert_eq!(std::fs::read(&path).expect("a file"), kept);
        std::fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn what_was_noted_is_read_to_the_last_digit() {
        // 0.37618583925185245 once came back as another number.
        let ratios =
            (1..2000u64).map(|n| n as f64 / 2003.0).chain([0.376_185_839_251_852_45, 1e-9, 123_456_789.123_456_79]);
        let rows: Vec<Row> = ratios.map(|ratio| Row::from_iter([("ratio".to_owned(), json!(ratio))])).collect();
        let lines = rows.iter().map(|row| json!({ "key": "k", "row": row }).to_string() + "\n");
        let text = head().to_string() + "\n" + &lines.collect::<String>();
        let (bytes, done) = read(text.as_bytes(), &head()).expect("ours");
        assert_eq!(bytes, text.len() as u64);
        assert!(done.into_iter().map(|(_, row)| row).eq(rows), "each is what it was");
    }
}
