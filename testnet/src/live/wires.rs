//! Sites with a wire each, all on one bridge, and wires that are cut one way or both.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use super::namespace::{Namespace, Site};

/// Routing table that only TCP uses.
const FILTER: u32 = 83;
/// Gateway that does not exist: packets through it are lost.
const NOBODY: Ipv4Addr = Ipv4Addr::new(10, 83, 255, 254);

/// Sites that reach each other over a bridge. All of it lies in namespaces without names: it needs no clean-up, and does not
/// conflict with another instance or another program.
///
/// A cut is made where packets leave: the sender is told a wrong hardware address of the other site, and its packets to that site
/// are lost without notice, as on a wire that is broken. Nothing is asked of the kernel beyond `ip`. TCP alone is filtered in the
/// same way: it is routed through a gateway that does not exist.
#[derive(Debug)]
pub struct Wires {
    sites: Vec<Site>,
    cut: BTreeSet<(usize, usize)>,
    filtered: BTreeSet<(usize, usize)>,
    /// Namespace of the bridge; the bridge is gone when this is dropped.
    _hub: Namespace,
}

impl Wires {
    /// Lays wires between `sites` sites. An error tells what is missing on this machine.
    pub fn lay(sites: usize) -> Result<Wires, String> {
        let new = || Namespace::new().map_err(|error| format!("no right to make network namespaces: {error}"));
        let hub = new()?;
        ip(&hub, "link add name bridge type bridge\nlink set bridge up\n")?;
        let mut wires = Wires { sites: Vec::new(), cut: BTreeSet::new(), filtered: BTreeSet::new(), _hub: hub.clone() };
        for index in 0..sites {
            let namespace = new()?;
            let (port, there, address) = (format!("port{index}"), namespace.path(), address(index));
            ip(
                &hub,
                &format!(
                    "link add name {port} type veth peer name wire address {} netns {there}\n\
                     link set {port} master bridge up\n",
                    hardware(index, false)
                ),
            )?;
            ip(
                &namespace,
                &format!(
                    "link set lo up\naddress add {address}/16 dev wire\nlink set wire up\n\
                     neigh replace {NOBODY} lladdr {} dev wire nud permanent\nrule add ipproto tcp lookup {FILTER}\n",
                    hardware(0, true)
                ),
            )?;
            wires.sites.push(Site { namespace, address });
        }
        wires.tell(&all_links(sites))?;
        Ok(wires)
    }

    /// Returns the sites, in order.
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// Cuts wires: no packet of the first site of a pair reaches the second any more.
    pub fn cut(&mut self, links: impl IntoIterator<Item = (usize, usize)>) {
        let links: Vec<_> = links.into_iter().collect();
        self.cut.extend(&links);
        self.tell(&links).expect("a wire that was laid can be cut");
    }

    /// Filters TCP alone: TCP packets of the first site of a pair to the second are lost without notice.
    pub fn filter_tcp(&mut self, links: impl IntoIterator<Item = (usize, usize)>) {
        for (from, to) in links {
            if self.filtered.insert((from, to)) {
                let line = format!("route add {} via {NOBODY} dev wire onlink table {FILTER}\n", address(to));
                ip(&self.sites[from].namespace, &line).expect("TCP can be filtered on a wire that was laid");
            }
        }
    }

    /// Lets all TCP through again.
    pub fn open_tcp(&mut self) {
        for (from, to) in std::mem::take(&mut self.filtered) {
            let line = format!("route del {} table {FILTER}\n", address(to));
            ip(&self.sites[from].namespace, &line).expect("a filter can be taken away");
        }
    }

    /// Mends all wires that were cut.
    pub fn heal(&mut self) {
        let links: Vec<_> = std::mem::take(&mut self.cut).into_iter().collect();
        self.tell(&links).expect("a wire that was laid can be mended");
    }

    /// Tells senders the hardware addresses of their receivers, which decide whether packets arrive.
    fn tell(&self, links: &[(usize, usize)]) -> Result<(), String> {
        for (from, site) in self.sites.iter().enumerate() {
            let mut lines = String::new();
            for &(_, to) in links.iter().filter(|(sender, _)| *sender == from) {
                let hardware = hardware(to, self.cut.contains(&(from, to)));
                let _ = writeln!(lines, "neigh replace {} lladdr {hardware} dev wire nud permanent", address(to));
            }
            if !lines.is_empty() {
                ip(&site.namespace, &lines)?;
            }
        }
        Ok(())
    }
}

/// Returns both directions between each site of `ones` and each of `others`.
pub fn between(ones: &[usize], others: &[usize]) -> Vec<(usize, usize)> {
    let mut links = one_way(ones, others);
    links.extend(one_way(others, ones));
    links
}

/// Returns the links from each site of `ones` to each of `others`.
pub fn one_way(ones: &[usize], others: &[usize]) -> Vec<(usize, usize)> {
    ones.iter().flat_map(|one| others.iter().map(|other| (*one, *other))).collect()
}

fn all_links(sites: usize) -> Vec<(usize, usize)> {
    let all: Vec<usize> = (0..sites).collect();
    one_way(&all, &all).into_iter().filter(|(one, other)| one != other).collect()
}

fn address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 83, 0, u8::try_from(index + 1).expect("a few sites"))
}

/// Returns the hardware address of a site, or one that no site has.
fn hardware(index: usize, wrong: bool) -> String {
    format!("02:53:43:41:{:02x}:{:02x}", u8::from(wrong), index + 1)
}

/// Runs `ip` commands in a namespace, one a line.
fn ip(namespace: &Namespace, lines: &str) -> Result<(), String> {
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    namespace.put(&mut command);
    let mut child = command.spawn().map_err(|error| format!("no program `ip`: {error}"))?;
    // It may have ended already; its output tells why.
    let _ = child.stdin.take().expect("it is a pipe").write_all(lines.as_bytes());
    let output = child.wait_with_output().map_err(|error| format!("`ip` has no end: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("`ip` refuses {lines:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::time::Duration;

    use super::*;

    fn socket(site: &Site) -> UdpSocket {
        site.namespace.within(|| UdpSocket::bind((site.address, 0))).and_then(|made| made).expect("a socket")
    }

    /// Sends once from one site to another, and returns whether the packet arrived.
    fn arrives(wires: &Wires, from: usize, to: usize) -> io::Result<bool> {
        let (sender, receiver) = (socket(&wires.sites[from]), socket(&wires.sites[to]));
        receiver.set_read_timeout(Some(Duration::from_millis(300)))?;
        sender.send_to(b"x", receiver.local_addr()?)?;
        Ok(receiver.recv(&mut [0; 8]).is_ok())
    }

    #[test]
    fn cut_wires_carry_nothing_and_others_do() {
        let mut wires = match Wires::lay(3) {
            Ok(wires) => wires,
            Err(why) => return eprintln!("SKIPPED: {why}"),
        };
        let open = |wires: &Wires| {
            let links = all_links(3);
            links.into_iter().filter(|(from, to)| arrives(wires, *from, *to).expect("sockets")).collect::<Vec<_>>()
        };
        assert_eq!(open(&wires), all_links(3));
        wires.cut(one_way(&[0], &[1, 2]));
        assert_eq!(open(&wires), [(1, 0), (1, 2), (2, 0), (2, 1)]);
        wires.heal();
        wires.cut(between(&[1], &[2]));
        assert_eq!(open(&wires), [(0, 1), (0, 2), (1, 0), (2, 0)]);
        wires.heal();
        assert_eq!(open(&wires), all_links(3));
    }

    /// Connects once from one site to another.
    fn connects(wires: &Wires, from: usize, to: usize) -> io::Result<()> {
        let (sender, receiver) = (&wires.sites[from], &wires.sites[to]);
        let listener = receiver.namespace.within(|| TcpListener::bind((receiver.address, 0)))??;
        let at = listener.local_addr()?;
        sender.namespace.within(|| TcpStream::connect_timeout(&at, Duration::from_millis(300)))?.map(drop)
    }

    #[test]
    fn a_filter_swallows_tcp_and_nothing_else() {
        let mut wires = match Wires::lay(3) {
            Ok(wires) => wires,
            Err(why) => return eprintln!("SKIPPED: {why}"),
        };
        wires.filter_tcp(between(&[0], &[1]));
        for (from, to) in all_links(3) {
            assert!(arrives(&wires, from, to).expect("sockets"), "UDP passes");
            match connects(&wires, from, to) {
                Ok(()) => assert!(from == 2 || to == 2),
                Err(error) => assert!(from + to == 1 && error.kind() == io::ErrorKind::TimedOut, "{error}"),
            }
        }
        wires.open_tcp();
        for (from, to) in all_links(3) {
            connects(&wires, from, to).expect("TCP passes again");
        }
    }
}
