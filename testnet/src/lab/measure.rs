//! Measures the round trips of a laboratory, by UDP and by TCP, between all sites.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::handle::Lab;
use super::layout::HostPlace;
use super::path::take_priority;
use super::plan::NatKind;
use crate::live::Namespace;

/// Round trips before those that count: the first packets wait for neighbours and new connections.
const WARM_UP: usize = 3;
/// Pause after each round trip: the pairs are measured at the same time, and must not wait for each other.
const PAUSE: Duration = Duration::from_millis(5);
/// Time beyond the planned one after which a packet counts as lost.
const PATIENCE: Duration = Duration::from_secs(2);

/// Measured round trips of one pair of hosts with one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TripFigures {
    /// Least round trip.
    pub least: Duration,
    /// Median.
    pub median: Duration,
    /// 99th percentile.
    pub p99: Duration,
    /// Number of answers.
    pub answers: usize,
}

/// Round trips from one site to another.
#[derive(Clone, Debug)]
pub struct MeasuredTrips {
    /// Sites: of the client, and of the server.
    pub sites: (String, String),
    /// Hosts that stand for the sites; `None` if no host of the second site can be reached from one of the first.
    pub hosts: Option<(String, String)>,
    /// Planned round trip.
    pub planned: Duration,
    /// Round trips by UDP; `None` without an answer.
    pub udp: Option<TripFigures>,
    /// Round trips by TCP; `None` without a connection.
    pub tcp: Option<TripFigures>,
}

/// Two hosts, and the address at which the first reaches the second.
struct MeasuredPair {
    client: HostPlace,
    server: HostPlace,
    address: IpAddr,
    planned: Duration,
}

/// Measures the round trips between all ordered pairs of sites, and within each site, `samples` times each.
///
/// # Errors
/// The namespaces of the laboratory cannot be entered.
pub fn measure(lab: &Lab, samples: usize) -> Result<Vec<MeasuredTrips>, String> {
    let sites = lab.plan().sites();
    let pairs: Vec<_> = sites.iter().flat_map(|from| sites.iter().map(move |to| (*from, *to))).collect();
    std::thread::scope(|scope| {
        let run = |(from, to)| move || measure_pair(lab, from, to, samples);
        let threads: Vec<_> = pairs.into_iter().map(|pair| scope.spawn(run(pair))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a measurement failed".to_owned())?).collect()
    })
}

/// Chooses hosts for two sites: a server that can be reached, and a client on another wire that has an address of the same family,
/// without a router in front of it if possible.
fn choose(lab: &Lab, from: &str, to: &str) -> Option<MeasuredPair> {
    let delays = lab.layout().delays(lab.plan());
    let hosts = || lab.layout().hosts.iter();
    let servers = hosts().filter(|host| host.site == to && host.nat.is_open());
    let pairs = servers.flat_map(|server| hosts().filter(|host| host.site == from).map(move |client| (client, server)));
    let pairs = pairs.filter(|(client, server)| client.wire != server.wire).filter_map(|(client, server)| {
        let has = |family: &&IpAddr| client.local.iter().any(|own| own.is_ipv4() == family.is_ipv4());
        let address = *server.public.iter().find(has)?;
        let planned = delays[client.wire][server.wire] + delays[server.wire][client.wire];
        Some(MeasuredPair { client: client.clone(), server: server.clone(), address, planned })
    });
    pairs.min_by_key(|pair| (pair.client.nat != NatKind::None, pair.server.nat != NatKind::None))
}

fn measure_pair(lab: &Lab, from: &str, to: &str, samples: usize) -> Result<MeasuredTrips, String> {
    let sites = (from.to_owned(), to.to_owned());
    let Some(pair) = choose(lab, from, to) else {
        return Ok(MeasuredTrips { sites, hosts: None, planned: Duration::ZERO, udp: None, tcp: None });
    };
    let namespaces = (lab.namespace(&pair.client.name)?, lab.namespace(&pair.server.name)?);
    let (udp, tcp) = std::thread::scope(|scope| {
        let udp = scope.spawn(|| measure_udp(&namespaces, &pair, samples));
        let tcp = scope.spawn(|| measure_tcp(&namespaces, &pair, samples));
        (udp.join(), tcp.join())
    });
    // A refusal of either protocol is a result: the plan may block it.
    let figures = |trips: std::thread::Result<io::Result<Vec<Duration>>>| figures(trips.ok()?.ok()?);
    let hosts = Some((pair.client.name, pair.server.name));
    Ok(MeasuredTrips { sites, hosts, planned: pair.planned, udp: figures(udp), tcp: figures(tcp) })
}

fn figures(mut trips: Vec<Duration>) -> Option<TripFigures> {
    trips.sort();
    let at = |per_cent: usize| trips.get((trips.len() * per_cent / 100).min(trips.len().checked_sub(1)?)).copied();
    Some(TripFigures { least: at(0)?, median: at(50)?, p99: at(99)?, answers: trips.len() })
}

/// Sends numbers, and measures the times until they come back.
fn trips(samples: usize, mut there_and_back: impl FnMut([u8; 8]) -> io::Result<bool>) -> io::Result<Vec<Duration>> {
    take_priority();
    let mut all = Vec::new();
    for number in 0..samples + WARM_UP {
        let start = Instant::now();
        let is_back = there_and_back((number as u64).to_be_bytes())?;
        let trip = start.elapsed();
        if is_back && number >= WARM_UP {
            all.push(trip);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(all)
}

fn measure_udp(
    (client, server): &(Namespace, Namespace),
    pair: &MeasuredPair,
    samples: usize,
) -> io::Result<Vec<Duration>> {
    let any = if pair.address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let echo = server.within(|| UdpSocket::bind(any))??;
    let socket = client.within(|| UdpSocket::bind(any))??;
    socket.connect((pair.address, echo.local_addr()?.port()))?;
    socket.set_read_timeout(Some(pair.planned + PATIENCE))?;
    echo.set_read_timeout(Some(Duration::from_millis(100)))?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let thread = std::thread::spawn(move || {
        take_priority();
        let mut bytes = [0; 64];
        while !stopped.load(Ordering::Relaxed) {
            if let Ok((length, from)) = echo.recv_from(&mut bytes) {
                let _ = echo.send_to(&bytes[..length], from);
            }
        }
    });
    let all = trips(samples, |number| {
        socket.send(&number)?;
        let mut answer = [0; 64];
        loop {
            match socket.recv(&mut answer) {
                // An answer that was given up may come late.
                Ok(length) if answer[..length] != number => {}
                Ok(_) => return Ok(true),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
    });
    stop.store(true, Ordering::Relaxed);
    let _ = thread.join();
    all
}

fn measure_tcp(
    (client, server): &(Namespace, Namespace),
    pair: &MeasuredPair,
    samples: usize,
) -> io::Result<Vec<Duration>> {
    let any = if pair.address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let listener = server.within(|| TcpListener::bind(any))??;
    let to = (pair.address, listener.local_addr()?.port()).into();
    // Twice the time of one packet that is lost.
    let mut stream = client.within(|| TcpStream::connect_timeout(&to, pair.planned + 2 * PATIENCE))??;
    let (mut echo, _) = listener.accept()?;
    for end in [&stream, &echo] {
        end.set_nodelay(true)?;
        end.set_read_timeout(Some(pair.planned + 5 * PATIENCE))?;
    }
    std::thread::spawn(move || {
        take_priority();
        let mut bytes = [0; 8];
        while echo.read_exact(&mut bytes).and_then(|()| echo.write_all(&bytes)).is_ok() {}
    });
    trips(samples, |number| {
        stream.write_all(&number)?;
        let mut answer = [0; 8];
        stream.read_exact(&mut answer)?;
        Ok(answer == number)
    })
}

impl MeasuredTrips {
    /// Returns the heading above the lines of measured trips.
    pub fn heading() -> String {
        format!(
            "{:<12} {:<12} {:>10} {:>10} {:>10} {:>10} {:>10}   {}",
            "from", "to", "planned", "UDP median", "UDP p99", "TCP median", "TCP p99", "hosts (times in ms)"
        )
    }
}

impl fmt::Display for MeasuredTrips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| format!("{:.2}", time.as_secs_f64() * 1e3);
        let (from, to) = &self.sites;
        write!(f, "{from:<12} {to:<12} ")?;
        let Some((client, server)) = &self.hosts else {
            return write!(f, "no two hosts on wires of their own that reach each other");
        };
        write!(f, "{:>10}", ms(self.planned))?;
        for figures in [self.udp, self.tcp] {
            match figures {
                Some(figures) => write!(f, " {:>10} {:>10}", ms(figures.median), ms(figures.p99))?,
                None => write!(f, " {:>10} {:>10}", "-", "-")?,
            }
        }
        write!(f, "   {client} to {server}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_the_sorted_trips() {
        let trips = (1..=200).rev().map(Duration::from_millis).collect();
        let all = figures(trips).expect("there are trips");
        let ms = [all.least, all.median, all.p99].map(|time| time.as_millis());
        assert_eq!((ms, all.answers), ([1, 101, 199], 200));
        assert_eq!(figures(Vec::new()), None);
    }
}
