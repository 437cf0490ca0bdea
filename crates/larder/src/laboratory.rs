//! The commands of the laboratory, which is a program of its own: `larder-lab`.
//!
//! Invariants: `larder-lab` gets the arguments as they are and takes the place of this process. So
//! the command has the laboratory's signals, streams and exit code. Only the one beside this
//! program is run: another could be of another version.
//!
//! It does not know the commands' options.

use crate::error::{Failure, Outcome, system_reason};
use std::{ffi::OsString, os::unix::process::CommandExt, process::Command};

/// The laboratory's program.
const PROGRAM: &str = "larder-lab";
/// Its commands.
const COMMANDS: [&str; 3] = ["bench", "paper", "sim"];
/// Its commands on traces; `record` is of this program.
const ON_TRACES: [&str; 3] = ["convert", "generate", "info"];

/// Has `larder-lab` run `arguments` in place of this process; returns if they are no command of it.
///
/// # Errors
/// A sentence: `larder-lab` does not lie beside this program, or cannot be run.
pub fn take_over(arguments: &[OsString]) -> Outcome {
    let Some(command) = command_of(arguments) else { return Ok(()) };
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(PROGRAM));
    let Some(program) = beside.filter(|path| path.is_file()) else {
        return Err(Failure::failed(format_args!(
            "{PROGRAM} has the command {command}, and does not lie beside this program: run `{PROGRAM} {command}` where it is"
        )));
    };
    let error = Command::new(&program).args(arguments.iter().skip(1)).exec();
    Err(Failure::failed(format_args!("{} cannot be run: {}", program.display(), system_reason(&error))))
}

/// Returns the command, if the laboratory has it: `sim`, or `trace info`.
fn command_of(arguments: &[OsString]) -> Option<String> {
    let mut words = arguments.iter().skip(1).filter_map(|word| word.to_str());
    let first = words.next()?;
    if COMMANDS.contains(&first) {
        return Some(first.to_owned());
    }
    let second = words.next().filter(|word| first == "trace" && ON_TRACES.contains(word))?;
    Some(format!("{first} {second}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_the_laboratory_are_known_by_their_first_words() {
        let of = |line: &str| command_of(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        for (line, command) in [
            ("larder-lab sim run --trace t", Some("sim")),
            ("larder-lab paper --help", Some("paper")),
            ("larder-lab bench", Some("bench")),
            ("larder-lab trace info t --json", Some("trace info")),
            ("larder-lab trace convert", Some("trace convert")),
            ("larder trace record -o info", None),
            ("larder trace", None),
            ("larder status --flash sim", None),
            ("larder --help sim", None),
            ("larder", None),
        ] {
            assert_eq!(of(line).as_deref(), command, "{line}");
        }
    }
}
