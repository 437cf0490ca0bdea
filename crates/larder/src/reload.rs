//! SIGHUP of a server with an option file: reads the file again, and applies changed options.
//!
//! Invariants: a file with any fault changes nothing. The command line goes before the file, as at
//! the start. Each reload names the options that differ and are fixed while serving; every option
//! outside the lists below is fixed.
//!
//! It leaves applying an option to the server.

use crate::{args::ServeArgs, config_file, error::Outcome, output};
use clap::{ArgMatches, CommandFactory};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
};

/// The options that may change while a cache is served.
pub const CHANGEABLE: &[&str] = &[
    "dirty-low",
    "dirty-high",
    "dirty-max",
    "destage-rate",
    "insert-queue",
    "prefetch",
    "durable-writes",
    "end-timeout",
];
/// The options that may change while an origin is served alone.
pub const CHANGEABLE_ALONE: &[&str] = &["end-timeout"];

/// An option file, and the command line that goes before it.
pub struct OptionFile {
    path: PathBuf,
    arguments: Vec<OsString>,
    matches: ArgMatches,
    /// By name, the text given for each option that is in force.
    in_force: BTreeMap<String, String>,
}

impl OptionFile {
    /// Reads the file at `path` for the first time.
    ///
    /// # Errors
    /// As [`config_file::merge`].
    pub fn read(path: PathBuf, arguments: Vec<OsString>, matches: ArgMatches) -> Outcome<(ServeArgs, OptionFile)> {
        let (args, merged) = config_file::merge(&path, &arguments, &matches)?;
        Ok((args, OptionFile { path, arguments, matches, in_force: given(&merged) }))
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the file over, whose bytes were read again.
    ///
    /// It calls `apply` if the file is good, `check` passes and an option of `changeable` differs.
    pub fn again(
        &mut self,
        bytes: Outcome<Vec<u8>>,
        changeable: &[&str],
        check: impl FnOnce(&ServeArgs) -> Outcome,
        apply: impl FnOnce(&ServeArgs),
    ) {
        let name = self.path.display().to_string();
        let read = bytes.and_then(|bytes| config_file::merge_text(&name, bytes, &self.arguments, &self.matches));
        let checked = read.and_then(|(args, merged)| check(&args).map(|()| (args, given(&merged))));
        let shown = self.path.display();
        match checked {
            Ok((args, wanted)) => {
                let (changed, fixed): (Vec<_>, Vec<_>) = wanted
                    .into_iter()
                    .filter(|(name, value)| self.in_force.get(name) != Some(value))
                    .partition(|(name, _)| changeable.contains(&name.as_str()));
                let words = changed.iter().map(|(name, value)| {
                    let before = self.in_force.get(name).map_or("none", String::as_str);
                    format!("{name} {value} (was {before})")
                });
                let words = words.collect::<Vec<_>>().join(", ");
                if !changed.is_empty() {
                    apply(&args);
                }
                let kept = match fixed.is_empty() {
                    true => String::new(),
                    false => {
                        let names: Vec<_> = fixed.iter().map(|(name, _)| name.as_str()).collect();
                        format!("; until the next start it stays as it was: {}", names.join(", "))
                    }
                };
                let words = if words.is_empty() { "nothing changes" } else { &words };
                output::note(&format!("{shown} was read again: {words}{kept}"));
                self.in_force.extend(changed);
            }
            Err(failure) => {
                let why = failure.sentence().unwrap_or_default();
                output::complain(&format!("{why}: the options in force stay, for {shown} was not taken over"));
            }
        }
    }
}

/// Returns the text given for each option of `serve`, by its long name.
fn given(matches: &ArgMatches) -> BTreeMap<String, String> {
    let cli = crate::args::Cli::command();
    let serve = cli.find_subcommand("serve").expect("the command line has `serve`");
    let matches = matches.subcommand_matches("serve").unwrap_or(matches);
    let named = serve.get_arguments().filter_map(|argument| argument.get_long().map(|long| (long, argument.get_id())));
    named
        .filter(|(long, _)| *long != "help")
        .map(|(long, id)| {
            let values = matches.try_get_raw(id.as_str()).ok().flatten().into_iter().flatten();
            let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
            (long.to_owned(), if values.is_empty() { "none".to_owned() } else { values.join(" ") })
        })
        .collect()
}
