//! The switch with a foreign client: `p4runtime-shell`, a Python package.
//!
//! The package is installed into a virtual environment below the build's directory, once. If that fails (no Python, no network),
//! the test tries nothing and reports it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::common::*;

const PACKAGE: &str = "p4runtime-shell==0.0.6";
/// Time limit, with a download.
const PATIENCE: Duration = Duration::from_secs(240);

/// Runs a program to its end. Its output is the error, unless it succeeded.
async fn run(program: &Path, arguments: &[&str], patience: Duration) -> Result<(), String> {
    let mut command = Command::new(program);
    // All hosts that are contacted are on this machine, so a proxy must not be used.
    command.args(arguments).env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(patience, output).await.map_err(|_| format!("{program:?} takes too long"))?;
    let output = output.map_err(|error| format!("{program:?}: {error}"))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(()) } else { Err(said(&output.stdout) + &said(&output.stderr)) }
}

/// Returns a Python that has the package.
async fn python() -> Result<PathBuf, String> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("p4runtime-shell");
    let (python, is_done) = (directory.join("bin/python"), directory.join(PACKAGE));
    if !is_done.exists() {
        let _ = fs::remove_dir_all(&directory);
        let place = directory.to_str().ok_or("a directory whose name is not text")?;
        run(Path::new("python3"), &["-m", "venv", place], PATIENCE).await?;
        let install =
            ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", "grpcio", PACKAGE];
        run(&python, &install, PATIENCE).await?;
        fs::write(&is_done, "").map_err(|error| error.to_string())?;
    }
    Ok(python)
}

#[tokio::test]
async fn a_client_of_others_is_content() {
    let python = match python().await {
        Ok(python) => python,
        Err(why) => {
            eprintln!("SKIPPED: {PACKAGE} cannot be had here: {why}");
            return;
        }
    };
    let switch = Switch::start().await;
    let address = switch.address.to_string();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = here.join("tests/p4runtime/shell.py");
    let p4info = here.join("p4/harmonia.p4info.txtpb");
    let program = here.join("p4/harmonia.p4");
    let paths = [&script, &p4info, &program].map(|path| path.to_str().expect("text"));
    let [script, p4info, program] = paths;
    let said = run(&python, &[script, &address, p4info, program], Duration::from_secs(60)).await;
    assert_eq!(said, Ok(()));
    switch.stop().await;
}
