//! `scatter-switch control`: its arguments, its start and its end.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hyper::Uri;
use hyper::header::HeaderValue;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::run::{Setup, run};
use super::tally::Tally;
use crate::monitoring::serve;
use crate::p4rt::client::SwitchConfig;
use crate::soft::cli::{DEVICE, address};
use crate::trace::cli::read;

/// Default port at which switches are controlled.
const PORT: u16 = 9559;
/// Upper limit of peers on the command line.
const PEERS_MAX: usize = 256;

/// Arguments of `scatter-switch control`.
#[derive(Debug, Args)]
pub struct ControlArgs {
    /// P4Runtime address of the switch: http://HOST, with :PORT unless the port is 9559
    #[arg(long, value_name = "URL", value_parser = target)]
    target: String,

    /// HTTP addresses of the peers whose groups use this switch: name all members
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', value_parser = address, required = true)]
    groups: Vec<SocketAddr>,

    /// Device id of the switch at that address
    #[arg(long, value_name = "NUMBER", default_value_t = DEVICE)]
    device: u64,

    /// Election id; of several controllers, the one with the highest id writes the tables [default: the time, so the
    /// controller that was started last]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    election_id: Option<u64>,

    /// File with the peers' admin token
    #[arg(long, value_name = "FILE", env = "SCATTER_ADMIN_TOKEN_FILE")]
    token_file: Option<PathBuf>,

    /// Address for HTTP requests (/metrics); open to every host that can connect [default: off]
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    metrics: Option<SocketAddr>,

    /// Compiler output of the program for the switch; a switch in software needs none
    #[arg(long, value_name = "FILE")]
    device_config: Option<PathBuf>,
}

/// Parses `http://HOST[:PORT]`, or the same without `http://`.
fn target(text: &str) -> Result<String, String> {
    let wrong = || format!("the target must be http://HOST, or http://HOST:PORT if the port is not {PORT}");
    let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
    if scheme == "https" {
        return Err("TLS is not supported: use http://HOST".to_owned());
    }
    let uri: Uri = format!("http://{rest}").parse().map_err(|_| wrong())?;
    let is_plain = scheme == "http" && uri.path_and_query().is_none_or(|path| path == "/");
    let authority =
        uri.authority().filter(|authority| is_plain && !authority.as_str().contains('@')).ok_or_else(wrong)?;
    match authority.port_u16() {
        Some(0) => Err(wrong()),
        Some(port) => Ok(format!("http://{}:{port}", authority.host())),
        None if authority.host().len() == authority.as_str().len() => Ok(format!("http://{}:{PORT}", authority.host())),
        None => Err(wrong()),
    }
}

/// Returns the setup that the arguments describe.
fn setup(args: &ControlArgs) -> Result<Setup, String> {
    if args.groups.len() > PEERS_MAX {
        return Err(format!("--groups takes {PEERS_MAX} peers at most"));
    }
    let mut peers = args.groups.clone();
    peers.sort_unstable();
    peers.dedup();
    if let Some(nowhere) = peers.iter().find(|peer| peer.port() == 0) {
        return Err(format!("{nowhere} is not a usable peer address: port 0"));
    }
    let token = args.token_file.as_ref().map(|path| {
        let text = read(path)?;
        let token = text.trim_ascii();
        let header = HeaderValue::from_bytes(&[b"Bearer ", token].concat()).ok().filter(|_| !token.is_empty());
        let mut header = header.ok_or_else(|| format!("there is no token in {}", path.display()))?;
        header.set_sensitive(true);
        Ok::<_, String>(header)
    });
    let device_config = args.device_config.as_deref().map(read).transpose()?.unwrap_or_default();
    let switch = SwitchConfig { endpoint: args.target.clone(), device: args.device, device_config };
    let election = args.election_id.map_or_else(|| environment::unix_time().as_nanos().max(1), u128::from);
    Ok(Setup { switch, election, peers, token: token.transpose()? })
}

/// Runs the controller to its end.
pub fn control(args: &ControlArgs) -> ExitCode {
    let fail = |exit: u8, why: &str| {
        say(why);
        ExitCode::from(exit)
    };
    let setup = match setup(args) {
        Ok(setup) => setup,
        Err(why) => return fail(2, &why),
    };
    let metrics = args.metrics;
    let worked = crate::p4rt::runtime().and_then(|runtime| {
        runtime.block_on(async {
            let stop = signalled()?;
            let (tallies, tally) = watch::channel(Tally::default());
            let listener = metrics.map(TcpListener::bind).transpose()?;
            let at = listener.as_ref().map(TcpListener::local_addr).transpose()?;
            let at = at.map(|at| format!(" metrics={at}")).unwrap_or_default();
            listener.map(|listener| serve(listener, tally)).transpose()?;
            // A closed stdout is not an error.
            let _ = writeln!(io::stdout(), "ready target={} peers={}{at}", setup.switch.endpoint, setup.peers.len());
            let show = |tally| {
                tallies.send_replace(tally);
            };
            run(setup, stop, say, show).await;
            Ok(())
        })
    });
    match worked {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(1, &format!("cannot start: {error}")),
    }
}

/// Returns a future that ends with a signal: SIGTERM, SIGINT, or a SIGHUP that is not ignored.
fn signalled() -> io::Result<impl Future<Output = ()>> {
    let (mut end, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut hangup = (!environment::is_hangup_ignored()).then(|| signal(SignalKind::hangup())).transpose()?;
    Ok(async move {
        let hangup = async {
            match &mut hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! { _ = end.recv() => {}, _ = interrupt.recv() => {}, _ = hangup => {} }
    })
}

/// Prints a line for operators; it may contain text from other hosts.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "scatter-switch: {}", environment::shown(line).replace('\n', " "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        for (text, is) in [
            ("http://127.0.0.1", "http://127.0.0.1:9559"),
            ("http://switch.example:5/", "http://switch.example:5"),
            ("127.0.0.1:50051", "http://127.0.0.1:50051"),
            ("http://[::1]", "http://[::1]:9559"),
        ] {
            assert_eq!(target(text).as_deref(), Ok(is), "{text}");
        }
        for wrong in [
            "",
            "https://a",
            "ftp://a",
            "http://",
            "http://a/b",
            "http://a:0",
            "http://a:b",
            "http://a:70000",
            "http://u@a",
        ] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
    }
}
