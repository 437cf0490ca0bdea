//! The program `larder`: all of it is in the library of its name.

use std::process::ExitCode;

fn main() -> ExitCode {
    larder::main()
}
