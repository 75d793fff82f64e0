//! `scatter-switch replay`.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::Trace;
use super::replay::{Failed, On};
use crate::p4rt::client::SwitchConfig;
use crate::soft::cli::{DEVICE, address, printed};

/// Upper limit of a story, and of a compiler's output, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Arguments of `scatter-switch replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// File with the story; the stories that a pipeline must pass are in switch/tests/testdata
    trace: PathBuf,

    /// Address to which packets are sent so that they pass the switch (UDP)
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    target: SocketAddr,

    /// Address at which the switch is controlled (P4Runtime)
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    p4runtime: SocketAddr,

    /// Device id of the switch at that address
    #[arg(long, value_name = "NUMBER", default_value_t = DEVICE)]
    device: u64,

    /// Compiler output of the program for the switch; a switch in software needs none
    #[arg(long, value_name = "FILE")]
    device_config: Option<PathBuf>,

    /// This machine's address as the switch sees it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    here: Ipv4Addr,
}

/// Reads a file that is given on the command line.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(format!("{} is too long", path.display())),
        false => Ok(bytes),
    }
}

/// Returns the story and the switch for it.
fn given(args: &ReplayArgs) -> Result<(Trace, On), String> {
    let text =
        String::from_utf8(read(&args.trace)?).map_err(|_| format!("{} is not a text file", args.trace.display()))?;
    let trace = text.parse().map_err(|wrong| format!("{}: {wrong}", args.trace.display()))?;
    let device_config = args.device_config.as_deref().map(read).transpose()?.unwrap_or_default();
    // Other controllers of the switch are expected to have lower election ids.
    let election = environment::unix_time().as_nanos().max(1);
    let control = SwitchConfig { endpoint: format!("http://{}", args.p4runtime), device: args.device, device_config };
    let (patience, quiet) = (Duration::from_secs(5), Duration::from_millis(200));
    Ok((trace, On { data: args.target, control, election, here: args.here, patience, quiet }))
}

/// Plays a story to its end.
pub fn replay(args: &ReplayArgs) -> ExitCode {
    let fail = |exit: u8, why: &str| {
        let _ = writeln!(io::stderr(), "scatter-switch: {}", environment::shown(why));
        ExitCode::from(exit)
    };
    let (trace, on) = match given(args) {
        Ok(given) => given,
        Err(why) => return fail(2, &why),
    };
    let played = match crate::p4rt::runtime() {
        Ok(runtime) => runtime.block_on(super::replay::replay(&trace, &on)),
        Err(error) => Err(Failed::Sockets(error)),
    };
    match played {
        Ok(packets) => {
            let mut out = io::stdout().lock();
            printed(writeln!(out, "{packets} packets, and all went as the story says").and_then(|()| out.flush()))
        }
        Err(failed) => fail(1, &failed.to_string()),
    }
}
