//! `scatter` around a map in memory instead of a node: everything of the outside without a network.

#[allow(dead_code, missing_docs, reason = "shared with tests that use more of it")]
mod memory;

use std::process::ExitCode;
use std::sync::Arc;

use node::Event;
use peer::config::{Config, Entry};
use peer::daemon::{Peer, Seat};

fn main() -> ExitCode {
    peer::cli::main(launch)
}

fn launch(config: &Config, seat: Seat<'_>) -> Result<Peer, String> {
    if config.entry == Entry::Known {
        return Err(peer::daemon::NO_NETWORK.into());
    }
    let (events, received) = tokio::sync::mpsc::unbounded_channel();
    // As a test of what a slow stop does.
    let stuck = std::env::var_os("STAND_IN_STUCK").is_some();
    events.send(Event::Note("a stand-in".into())).map_err(|error| error.to_string())?;
    events.send(Event::Ready).map_err(|error| error.to_string())?;
    Ok(Peer {
        peer_id: "12D3KooWAlone".into(),
        listen: config.listen.iter().map(|listen| format!("{listen}/p2p/12D3KooWAlone")).collect(),
        backend: memory::start(&seat.router, memory::Manner::Prompt),
        status: Arc::new(memory::Alone),
        events: received,
        stop: Box::new(move || {
            if stuck {
                std::mem::forget(events);
            } else {
                let _ = events.send(Event::Stopped);
            }
        }),
    })
}
