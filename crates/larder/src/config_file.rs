//! The option file of `larder serve`: TOML whose keys are the long options.
//!
//! Invariants: a value has its meaning on the command line, and goes through the same checks; the
//! command line goes before the file. A complaint about a line names file, line and key. A
//! complaint about a combination of options, on the line or in the file, names the options.
//!
//! It has no tables, and no options of other commands.

use crate::{
    args::{self, Cli, Command, ServeArgs},
    error::{Failure, Outcome, system_reason},
};
use clap::{ArgMatches, CommandFactory, parser::ValueSource};
use std::{ffi::OsString, fs::File, io::Read, path::Path};
use toml::de::{DeTable, DeValue};

/// Longest option file, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// The option that names the file; it cannot be in it.
const CONFIG_KEY: &str = "config";

/// Merges the options of `larder serve` from the command line and from the file.
///
/// `arguments` is the command line, and `matches` its parsed form. Both sources are returned as one
/// command line, too.
///
/// # Errors
/// One sentence that names the file, and the line and the key if there is one.
pub fn merge(path: &Path, arguments: &[OsString], matches: &ArgMatches) -> Outcome<(ServeArgs, ArgMatches)> {
    merge_text(&path.display().to_string(), read(path)?, arguments, matches)
}

/// Does as [`merge`], with the file's bytes.
///
/// # Errors
/// As [`merge`].
pub fn merge_text(
    name: &str,
    bytes: Vec<u8>,
    arguments: &[OsString],
    matches: &ArgMatches,
) -> Outcome<(ServeArgs, ArgMatches)> {
    let text = decode(name, bytes)?;
    let given = |key: &str| {
        let id = key.replace('-', "_");
        matches.subcommand().is_some_and(|(_, serve)| serve.value_source(&id) == Some(ValueSource::CommandLine))
    };
    let mut all = arguments.to_vec();
    all.extend(options(name, &text)?.into_iter().filter(|option| !given(&option.key)).map(|option| option.argument));
    match args::parse(all) {
        Ok(Some((Cli { command: Command::Serve(options) }, merged))) => Ok((*options, merged)),
        Err(failure) => Err(Failure::Usage(format!("{name}: {}", failure.sentence().unwrap_or_default()))),
        Ok(_) => Err(Failure::Usage(format!("{name}: an option file is for `larder serve`"))),
    }
}

/// Reads the bytes of the file. It waits as long as the file system does.
///
/// # Errors
/// A sentence.
pub fn read(path: &Path) -> Outcome<Vec<u8>> {
    let name = path.display();
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)).map_err(|error| {
        Failure::failed(format_args!("the option file {name} cannot be read: {}", system_reason(&error)))
    })?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Failure::failed(format_args!(
            "the option file {name} is too long: {FILE_BYTES_MAX} bytes are allowed"
        )));
    }
    Ok(bytes)
}

fn decode(name: &str, bytes: Vec<u8>) -> Outcome<String> {
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes().iter().take(valid).filter(|&&byte| byte == b'\n').count();
        Failure::failed(format_args!("{name}, line {line}: the option file is not UTF-8 text"))
    })
}

/// One option from the file, in the form of the command line.
struct FileOption {
    key: String,
    argument: OsString,
}

fn options(name: &str, text: &str) -> Outcome<Vec<FileOption>> {
    let line_of = |at: usize| 1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count();
    let table = DeTable::parse(text).map_err(|error| {
        let line = line_of(error.span().map_or(0, |span| span.start));
        let message = error.message().lines().next().unwrap_or_default().to_owned();
        Failure::Usage(format!("{name}, line {line}: this is not TOML: {message}"))
    })?;
    let cli = Cli::command();
    let serve = cli.find_subcommand("serve").expect("the command line has `serve`");
    let mut found: Vec<(usize, Vec<FileOption>)> = Vec::new();
    for (key, value) in table.get_ref() {
        let line = line_of(key.span().start);
        let key: &str = key.get_ref();
        let wrong = |what: String| Failure::Usage(format!("{name}, line {line}: {what}"));
        let argument = serve
            .get_arguments()
            .find(|argument| argument.get_long() == Some(key) && key != CONFIG_KEY && key != "help")
            .ok_or_else(|| wrong(format!("no option is called {key}: `larder serve --help` lists them")))?;
        let takes_value = argument.get_action().takes_values();
        let takes_many = matches!(argument.get_action(), clap::ArgAction::Append);
        let texts =
            texts(value.get_ref(), takes_value, takes_many).map_err(|wanted| wrong(format!("{key}: {wanted}")))?;
        let mut here = Vec::new();
        for text in texts {
            let argument = match takes_value {
                true => OsString::from(format!("--{key}={text}")),
                false => OsString::from(format!("--{key}")),
            };
            if let Err(error) = serve.clone().try_get_matches_from(["serve".into(), argument.clone()]) {
                let sentence = args::sentence(&error);
                return Err(wrong(sentence.trim_start_matches("--").to_owned()));
            }
            here.push(FileOption { key: key.to_owned(), argument });
        }
        found.push((line, here));
    }
    found.sort_by_key(|(line, _)| *line);
    Ok(found.into_iter().flat_map(|(_, here)| here).collect())
}

/// Returns the value in the form of the command line: one text for each time that the option is
/// given.
///
/// # Errors
/// The form that is wanted instead.
fn texts(value: &DeValue, takes_value: bool, takes_many: bool) -> Result<Vec<String>, &'static str> {
    let one = |value: &DeValue| match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().replace('_', "")),
        _ => None,
    };
    match (value, takes_value, takes_many) {
        (DeValue::Boolean(true), false, _) => Ok(vec![String::new()]),
        (DeValue::Boolean(false), false, _) => Ok(Vec::new()),
        (_, false, _) => Err("write true or false"),
        (DeValue::Array(items), true, true) => {
            items.iter().map(|item| one(item.get_ref())).collect::<Option<_>>().ok_or("write a list of texts")
        }
        (value, true, false) => one(value).map(|text| vec![text]).ok_or("write a text or a whole number"),
        (value, true, true) => one(value).map(|text| vec![text]).ok_or("write a text or a list of texts"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(text: &str) -> Result<Vec<String>, String> {
        let found = options("o.toml", text).map_err(|failure| failure.sentence().unwrap_or_default())?;
        Ok(found.into_iter().map(|option| option.argument.to_string_lossy().into_owned()).collect())
    }

    #[test]
    fn keys_are_long_options() {
        let text = "# a comment\nflash = \"/f\"\nnbd = [\"unix:/a\", \"unix:/b\"]\nworkers = 4\n\
                    destage-rate = \"64M\"\nno-cache = false\nexport = 'x'\n";
        let wanted =
            ["--flash=/f", "--nbd=unix:/a", "--nbd=unix:/b", "--workers=4", "--destage-rate=64M", "--export=x"];
        assert_eq!(arguments(text).expect("a good file"), wanted);
        assert_eq!(arguments("no-cache = true").expect("a good file"), ["--no-cache"]);
        assert!(arguments("").expect("an empty file").is_empty());
    }

    #[test]
    fn complaints_name_file_line_and_key() {
        for (text, words) in [
            ("\nwings = 2", "o.toml, line 2: no option is called wings"),
            ("config = \"x\"", "o.toml, line 1: no option is called config"),
            ("help = true", "no option is called help"),
            ("workers = true", "o.toml, line 1: workers: write a text or a whole number"),
            ("nbd = [1.5]", "nbd: write a list of texts"),
            ("no-cache = 1", "no-cache: write true or false"),
            ("# c\n\ndirty-max = 120", "o.toml, line 3: dirty-max 120: 120 is not in 1..=100"),
            ("nbd = \"pigeon\"", "nbd pigeon: write unix:PATH or tcp:HOST:PORT"),
            ("[table]\nx = 1", "no option is called table"),
            ("flash = \n", "o.toml, line 1: this is not TOML"),
            ("workers = 1\nworkers = 2", "o.toml, line 2: this is not TOML: duplicate key"),
        ] {
            let sentence = arguments(text).expect_err(text);
            assert!(sentence.contains(words), "{text:?}: {sentence}");
            assert!(!sentence.contains('\n'), "{text:?}: {sentence}");
        }
    }

    #[test]
    fn the_command_line_goes_first() {
        let path = std::env::temp_dir().join(format!("larder-options-{}.toml", std::process::id()));
        std::fs::write(&path, "flash = \"/file\"\nnbd = \"unix:/file\"\nworkers = 3\n").expect("a file");
        let line: Vec<OsString> = ["larder", "serve", "--flash", "/line"].map(OsString::from).to_vec();
        let (_, matches) = args::parse(line.clone()).expect("a good line").expect("no help");
        let (merged, _) = merge(&path, &line, &matches).expect("merged");
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(merged.flash.as_deref(), Some(Path::new("/line")));
        assert_eq!((merged.workers, merged.nbd.len()), (Some(3), 1));
    }

    #[test]
    fn a_missing_file_is_named() {
        let failure = read(Path::new("/nowhere/o.toml")).expect_err("missing").sentence();
        assert_eq!(
            failure.as_deref(),
            Some("the option file /nowhere/o.toml cannot be read: no such file or directory")
        );
    }
}
