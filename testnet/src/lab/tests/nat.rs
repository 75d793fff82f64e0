//! The kinds of NAT, by the two axes of RFC 4787: mapping and filtering.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::{LabSocket, PATIENCE, SILENCE, lab, plan};
use crate::lab::Lab;

/// Three public servers, a host behind each kind of router, a second one behind two of them, and two behind one router.
const HOSTS: &str = "
hosts = [
    { name = 's1', link = 'both' },
    { name = 's2', link = 'both' },
    { name = 's3', link = 'both' },
    { name = 'none' },
    { name = 'open', nat = 'endpoint-independent' },
    { name = 'filtered', nat = 'address-and-port-filtered' },
    { name = 'filtered2', nat = 'address-and-port-filtered' },
    { name = 'symmetric', nat = 'symmetric' },
    { name = 'symmetric2', nat = 'symmetric' },
    { name = 'no-udp', nat = 'udp-blocked' },
    { name = 'no-tcp', nat = 'tcp-blocked' },
    { name = 'double', nat = 'double' },
    { name = 'six', nat = 'ipv6-only' },
    { name = 'flat1', nat = 'address-and-port-filtered', behind = 'house' },
    { name = 'flat2', nat = 'address-and-port-filtered', behind = 'house' },
    { name = 'six-behind', nat = 'double', link = 'both' },
]
latency = { model = 'constant', one_way_ms = 1.0 }
";

/// Sends to a server until it arrives, and returns the source that the server sees; `None` if nothing arrives.
fn mapped(from: &LabSocket, server: &LabSocket) -> Option<SocketAddr> {
    // The first packet may wait for a neighbour, and a busy machine takes its time.
    (0..3).find_map(|_| {
        from.send("hello", server.address).ok()?;
        server.receive(SILENCE).map(|(_, source)| source)
    })
}

/// Observed behaviour of the router in front of a host.
#[derive(Debug, PartialEq, Eq)]
struct Observed {
    /// Whether two servers see one and the same port.
    one_port: bool,
    /// Whether the port is the host's own.
    own_port: bool,
    /// Whether a datagram arrives from an address to which the host never sent.
    from_strangers: bool,
    /// Whether a datagram arrives from another port of an address to which the host sent.
    from_other_ports: bool,
}

/// Observes the router in front of a host; `None` if no datagram leaves.
fn observe(lab: &Lab, host: &str) -> Option<Observed> {
    let own = LabSocket::open(lab, host);
    let [one, two, stranger] = ["s1", "s2", "s3"].map(|server| LabSocket::open(lab, server));
    let other_port = LabSocket::open(lab, "s1");
    let (first, second) = (mapped(&own, &one)?, mapped(&own, &two)?);
    assert_eq!(first.ip(), own.address.ip(), "{host} is seen at its public address");
    one.send("answer", first).expect("a server sends");
    assert_eq!(own.receive(PATIENCE).map(|(text, _)| text).as_deref(), Some("answer"), "{host} gets answers");
    let arrives = |from: &LabSocket| {
        from.send("unsolicited", first).expect("a server sends");
        own.receive(SILENCE).is_some()
    };
    Some(Observed {
        one_port: first.port() == second.port(),
        own_port: first.port() == own.address.port(),
        from_strangers: arrives(&stranger),
        from_other_ports: arrives(&other_port),
    })
}

/// Opens a TCP connection from a host to a server, and returns whether it opens.
fn connects(lab: &Lab, from: &str, to: &str) -> bool {
    let (client, server) = (lab.namespace(from).expect("a host"), lab.namespace(to).expect("a host"));
    let listener = server.within(|| TcpListener::bind("[::]:0")).and_then(|made| made).expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    let place = lab.host(from).expect("a host");
    let address = lab
        .host(to)
        .expect("a host")
        .public
        .iter()
        .find(|address| place.local.iter().any(|own| own.is_ipv4() == address.is_ipv4()));
    let to = (*address.expect("an address of the same family"), port).into();
    client.within(|| TcpStream::connect_timeout(&to, Duration::from_millis(1_500))).expect("a way in").is_ok()
}

/// Two hosts learn each other's public address from a server, send to it at the same time, and return whether both hear the other.
fn punch(lab: &Lab, one: &str, two: &str) -> (bool, bool) {
    let server = LabSocket::open(lab, "s1");
    let (one, two) = (LabSocket::open(lab, one), LabSocket::open(lab, two));
    let (of_one, of_two) = (mapped(&one, &server), mapped(&two, &server));
    let (of_one, of_two) = (of_one.expect("a public address"), of_two.expect("a public address"));
    let mut heard = (false, false);
    for _ in 0..5 {
        one.send("punch", of_two).expect("a host sends");
        two.send("punch", of_one).expect("a host sends");
        let (by_one, by_two) = (one.receive(SILENCE), two.receive(SILENCE));
        heard = (heard.0 || by_one.is_some(), heard.1 || by_two.is_some());
        if let (Some((_, from_two)), Some((_, from_one))) = (by_one, by_two) {
            assert_eq!((from_one, from_two), (of_one, of_two), "the ports stay");
            break;
        }
    }
    heard
}

fn seen(one_port: bool, own_port: bool, unsolicited: bool) -> Option<Observed> {
    Some(Observed { one_port, own_port, from_strangers: unsolicited, from_other_ports: unsolicited })
}

#[test]
fn each_kind_maps_and_filters_as_named() {
    let Some(lab) = lab(plan("nat", HOSTS)) else { return };
    let expected = [
        ("none", seen(true, true, true)),
        ("open", seen(true, true, true)),
        ("filtered", seen(true, true, false)),
        ("symmetric", seen(false, false, false)),
        ("double", seen(true, true, false)),
        ("no-tcp", seen(true, true, false)),
        ("no-udp", None),
        ("flat1", seen(true, true, false)),
    ];
    let observed = std::thread::scope(|scope| {
        let lab = &lab;
        let threads = expected.each_ref().map(|(host, _)| (*host, scope.spawn(move || observe(lab, host))));
        threads.map(|(host, thread)| (host, thread.join().expect("an observation")))
    });
    println!("{observed:#?}");
    assert_eq!(observed, expected);
}

#[test]
fn two_filtered_sides_punch_and_a_symmetric_one_does_not() {
    let Some(lab) = lab(plan("punch", HOSTS)) else { return };
    assert_eq!(punch(&lab, "filtered", "filtered2"), (true, true));
    assert_eq!(punch(&lab, "double", "filtered"), (true, true));
    assert_eq!(punch(&lab, "symmetric", "filtered"), (false, false));
    assert_eq!(punch(&lab, "symmetric", "symmetric2"), (false, false));
    assert!(punch(&lab, "symmetric", "open").1, "an open side hears a symmetric one");
}

#[test]
fn a_protocol_that_is_blocked_does_not_pass() {
    let Some(lab) = lab(plan("blocked", HOSTS)) else { return };
    for (from, to, passes) in [
        ("no-udp", "s1", true),
        ("no-tcp", "s1", false),
        ("filtered", "s1", true),
        ("double", "s2", true),
        ("s1", "open", true),
        ("s1", "filtered", false),
    ] {
        assert_eq!(connects(&lab, from, to), passes, "TCP from {from} to {to}");
    }
}

#[test]
fn hosts_behind_one_router_share_its_address_and_reach_each_other() {
    let Some(lab) = lab(plan("house", HOSTS)) else { return };
    let server = LabSocket::open(&lab, "s1");
    let (one, two) = (LabSocket::open_at(&lab, "flat1", 7_000), LabSocket::open_at(&lab, "flat2", 7_000));
    let (of_one, of_two) = (mapped(&one, &server).expect("seen"), mapped(&two, &server).expect("seen"));
    assert_eq!((of_one.ip(), of_one.port()), (of_two.ip(), 7_000));
    assert_ne!(of_two.port(), 7_000, "the port is taken");
    let inside = lab.host("flat2").expect("a host").local[0];
    one.send("neighbour", (inside, 7_000).into()).expect("a host sends");
    assert_eq!(two.receive(PATIENCE).expect("behind one router").0, "neighbour");
    assert!(lab.cut("flat1", "flat2").expect_err("no path").contains("share a wire"));
}

#[test]
fn a_router_forgets_a_mapping_without_packets() {
    let text = "latency = { model = 'constant', one_way_ms = 1 }
        hosts = [{ name = 's' }, { name = 'a', nat = 'address-and-port-filtered', mapping_s = 3 }]";
    let Some(lab) = lab(plan("forget", text)) else { return };
    let (own, server) = (LabSocket::open(&lab, "a"), LabSocket::open(&lab, "s"));
    let public = mapped(&own, &server).expect("seen");
    std::thread::sleep(Duration::from_secs(8));
    server.send("too late", public).expect("a server sends");
    assert_eq!(own.receive(SILENCE), None);
    let again = mapped(&own, &server).expect("seen again");
    server.send("in time", again).expect("a server sends");
    assert_eq!(own.receive(PATIENCE).expect("an answer").0, "in time");
}

#[test]
fn a_host_with_ipv6_alone_has_no_ipv4() {
    let Some(lab) = lab(plan("six", HOSTS)) else { return };
    let six = LabSocket::open(&lab, "six");
    let place = |host: &str| lab.host(host).expect("a host").clone();
    assert!(place("six").local.iter().all(|address| address.is_ipv6()));
    let namespace = lab.namespace("six").expect("a host");
    let v4 = namespace.within(|| std::net::UdpSocket::bind("0.0.0.0:0")).and_then(|made| made).expect("a socket");
    let refused = v4.send_to(b"x", (place("s1").public[0], 9)).expect_err("no way");
    assert_eq!(refused.kind(), std::io::ErrorKind::NetworkUnreachable);
    for host in ["six", "six-behind"] {
        // A server on both families hears either.
        let namespace = lab.namespace("s1").expect("a host");
        let server = namespace.within(|| std::net::UdpSocket::bind("[::]:0")).and_then(|made| made).expect("a socket");
        let own = lab.namespace(host).expect("a host");
        let socket = own.within(|| std::net::UdpSocket::bind("[::]:0")).and_then(|made| made).expect("a socket");
        server.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        let to = (place("s1").public[1], server.local_addr().expect("an address").port());
        socket.send_to(b"six", to).expect("a host sends");
        let mut bytes = [0; 8];
        let (_, from) = server.recv_from(&mut bytes).expect("IPv6 arrives");
        assert!(place(host).public.contains(&from.ip()), "{from}: IPv6 has no NAT");
        server.send_to(b"back", from).expect("a server sends");
        assert_eq!(socket.recv(&mut bytes).expect("an answer"), 4);
    }
    drop(six);
    assert!(connects(&lab, "six", "s2"));
    assert!(!connects(&lab, "s2", "six-behind"), "a router filters IPv6, too");
}
