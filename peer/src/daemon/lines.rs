//! The lines on stdout, which scripts wait for.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use overlay::PeerName;

use super::Peer;
use crate::config::Format;

/// Returns the line that tells scripts that this peer serves.
pub(super) fn ready_line(format: Format, peer: &Peer, resp: Option<SocketAddr>, http: Option<SocketAddr>) -> String {
    match format {
        Format::Json => {
            // Written by hand for the order of the fields, which is documented.
            let address = |address: Option<SocketAddr>| address.map_or("null".into(), |a| json_text(&a.to_string()));
            let name = peer.name.as_ref().map_or(String::new(), json_name);
            format!(
                r#"{{"event":"ready","peer_id":{},"listen":[{}],"resp":{},"http":{}{name}}}"#,
                json_text(&peer.peer_id),
                peer.listen.iter().map(|listen| json_text(listen)).collect::<Vec<_>>().join(","),
                address(resp),
                address(http),
            )
        }
        Format::Text => {
            let address = |address: Option<SocketAddr>| address.map_or("off".into(), |address| address.to_string());
            // The addresses are last: scripts know the other fields by their places.
            let join = if peer.listen.is_empty() { String::new() } else { format!(" join={}", peer.listen.join(",")) };
            let name = peer.name.as_ref().map_or(String::new(), |name| format!(" name={name}"));
            format!("ready peer={} resp={} http={}{name}{join}", peer.peer_id, address(resp), address(http))
        }
    }
}

/// Returns a text as JSON, in quotation marks.
fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns the last field of a line, with the comma before it.
fn json_name(name: &PeerName) -> String {
    format!(r#","name":{}"#, json_text(name.as_str()))
}

/// Returns the line that tells scripts that this peer has left for good.
pub(super) fn left_line(format: Format, Peer { peer_id, name, .. }: &Peer) -> String {
    match format {
        Format::Json => {
            let name = name.as_ref().map_or(String::new(), json_name);
            format!(r#"{{"event":"left","peer_id":{}{name}}}"#, json_text(peer_id))
        }
        Format::Text => {
            let name = name.as_ref().map_or(String::new(), |name| format!(" name={name}"));
            format!("left peer={peer_id}{name}")
        }
    }
}

/// Lines for stdout.
pub(super) struct Lines {
    pub(super) ready: String,
    pub(super) left: String,
}

/// Time that a write to stdout is waited for: without a reader it never completes.
const SAY_MAX: Duration = Duration::from_millis(500);
/// Further time after which the log reports the delay. A busy machine is not that slow.
const SAY_LATE: Duration = Duration::from_secs(5);

/// Prints a line to stdout. A missing reader changes nothing.
pub(super) fn say(line: &str) {
    let line = format!("{line}\n");
    let (tell, said) = std::sync::mpsc::sync_channel(1);
    let written = std::thread::Builder::new().name("scatter-stdout".into()).spawn(move || {
        let mut out = io::stdout().lock();
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
        let _ = tell.send(());
    });
    let warn = || tracing::warn!("stdout blocks: the line that scripts wait for is delayed");
    if written.is_err() {
        warn();
    } else if said.recv_timeout(SAY_MAX).is_err() {
        let late = move || {
            if said.recv_timeout(SAY_LATE).is_err() {
                warn();
            }
        };
        // Without a thread there is no warning; the line may still come.
        let _ = std::thread::Builder::new().name("scatter-say".into()).spawn(late);
    }
}
