//! The program `larder`.
//!
//! What it does not do: anything; the library of its name does.

use std::process::ExitCode;

fn main() -> ExitCode {
    larder::main()
}
