//! The `chirp` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    chirp_app::cli::main()
}
