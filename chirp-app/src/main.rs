//! The `chirp` program.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    chirp_app::cli::main()
}
