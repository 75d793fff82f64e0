//! Whole laboratories, which need the rights to make namespaces. Without them, or without a program, a test says so and passes.

mod delays;
mod ends;
mod nat;

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use super::{Lab, LabPlan, PathMode, missing};

/// Time for which a test waits for a packet that must come.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time for which a test waits for a packet that must not come.
const SILENCE: Duration = Duration::from_millis(400);

/// Returns a plan with a name that no other process uses.
fn plan(word: &str, text: &str) -> LabPlan {
    let name = name(word);
    LabPlan::parse(&format!("name = '{name}'\n{text}")).expect("a valid plan")
}

/// Returns a name that no other process uses.
fn name(word: &str) -> String {
    format!("t{}-{word}", std::process::id())
}

/// Builds a laboratory; `None` if this machine cannot have one, which is said.
fn lab(plan: LabPlan) -> Option<Lab> {
    match missing(&plan) {
        Some(why) => {
            eprintln!("SKIPPED: {why}");
            None
        }
        None => Some(Lab::build(plan, &PathMode::Thread).expect("a laboratory")),
    }
}

/// A UDP socket in a host.
struct LabSocket {
    socket: UdpSocket,
    /// Address at which other sites see the socket, unless a router changes the port.
    address: SocketAddr,
}

impl LabSocket {
    /// Opens a socket, of the family of the host's first address.
    fn open(lab: &Lab, host: &str) -> LabSocket {
        LabSocket::open_at(lab, host, 0)
    }

    fn open_at(lab: &Lab, host: &str, port: u16) -> LabSocket {
        let place = lab.host(host).expect("a host");
        let any: IpAddr = if place.local[0].is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
        let namespace = lab.namespace(host).expect("a namespace");
        let socket = namespace.within(|| UdpSocket::bind((any, port))).and_then(|made| made).expect("a socket");
        let address = (place.public[0], socket.local_addr().expect("an address").port()).into();
        LabSocket { socket, address }
    }

    fn send(&self, text: &str, to: SocketAddr) -> io::Result<usize> {
        self.socket.send_to(text.as_bytes(), to)
    }

    /// Waits for a datagram.
    fn receive(&self, patience: Duration) -> Option<(String, SocketAddr)> {
        self.socket.set_read_timeout(Some(patience)).expect("a time limit");
        let mut bytes = [0; 256];
        let (length, from) = self.socket.recv_from(&mut bytes).ok()?;
        Some((String::from_utf8_lossy(&bytes[..length]).into_owned(), from))
    }
}
