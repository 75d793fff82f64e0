//! External programs that produce files: run to their end, with errors in their own words.

use std::process::{Command, Stdio};

/// Runs a program to its end.
///
/// # Errors
/// The program could not be started, or ended with a failure; the error has its last lines.
pub fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let end = said.lines().rev().take(5).collect::<Vec<_>>();
    Err(format!("{name} failed: {}", end.into_iter().rev().collect::<Vec<_>>().join("; ")))
}

/// Returns the Cargo of the test run as a command, without the variables that Cargo sets for a test of its package. Build scripts
/// would see these variables, too: some would run again, and all that depends on them would be built anew, here and the next time
/// without a test.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for name in std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(name);
        }
    }
    cargo
}
