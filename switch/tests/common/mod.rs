//! The program, with clients and replicas around it.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use header::{Header, Operation, Packet, ReplyTo};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Time limit, longer than any step takes.
pub const SOON: Duration = Duration::from_secs(20);
/// Partition of [`Soft::start`].
pub const PARTITION: u32 = 7;

pub fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_scatter-switch"))
}

/// `scatter-switch soft` at work.
pub struct Soft {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub address: SocketAddr,
    pub metrics: SocketAddr,
}

impl Soft {
    /// Starts a switch with one partition of these replicas, which are numbered from 1: the first is the primary.
    pub fn start(replicas: &[Node]) -> Soft {
        let numbers: Vec<String> = (1..=replicas.len()).map(|number| number.to_string()).collect();
        Soft::with("127.0.0.1:0", replicas, &[format!("{PARTITION},primary=1,replicas={}", numbers.join("+"))])
    }

    pub fn with(listen: &str, replicas: &[Node], partitions: &[String]) -> Soft {
        let ports = replicas.iter().zip(1..).map(|(replica, number)| format!("{number}={}", replica.address()));
        let ports: Vec<String> = ports.collect();
        Soft::begin(listen, &ports.join(","), partitions)
    }

    pub fn begin(listen: &str, ports: &str, partitions: &[String]) -> Soft {
        Soft::begin_with(program(), listen, ports, partitions)
    }

    /// Starts a switch with this program, or one that becomes it.
    pub fn begin_with(mut command: Command, listen: &str, ports: &str, partitions: &[String]) -> Soft {
        command.args(["soft", "--listen", listen, "--metrics", "127.0.0.1:0", "--ports", ports]);
        partitions.iter().for_each(|partition| _ = command.args(["--partition", partition]));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let word = |name: &str| {
            let word = line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            word.unwrap_or_else(|| panic!("no {name} in {line}"))
        };
        assert!(line.starts_with("ready ") && word("p4runtime") == "off", "{line}");
        let (address, metrics) = (word("listen").parse().unwrap(), word("metrics").parse().unwrap());
        Soft { child, stdout, address, metrics }
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Ends the process with a signal; returns its further output.
    pub fn end(mut self, signal: Signal) -> (ExitStatus, String) {
        self.signal(signal);
        let deadline = Instant::now() + Duration::from_secs(5);
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(Instant::now() < deadline, "it does not end"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        (status, rest)
    }

    /// Sends a request to the endpoint for monitoring, and returns the answer.
    pub fn ask(&self, question: &str) -> String {
        let mut stream = TcpStream::connect(self.metrics).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.write_all(question.as_bytes()).unwrap();
        let mut answer = String::new();
        // If the endpoint refuses a request before it has read all of it, the connection may be reset behind the answer.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    pub fn page(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    /// Returns the value of a metric.
    pub fn metric(&self, name: &str) -> u64 {
        let page = self.page("/metrics");
        let line = page.lines().find_map(|line| line.strip_prefix("scatter_switch_")?.strip_prefix(name));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("no {name} in {page}"))
    }

    /// Waits until a metric has this value.
    pub fn expect(&self, name: &str, value: u64) {
        let deadline = Instant::now() + SOON;
        while self.metric(name) != value {
            assert!(Instant::now() < deadline, "{name} is {}, not {value}", self.metric(name));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn expect_dropped(&self, reason: &str, value: u64) {
        self.expect(&format!("packets_dropped_total{{reason=\"{reason}\"}}"), value);
    }
}

impl Drop for Soft {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client, or a replica.
pub struct Node(UdpSocket);

impl Node {
    pub fn new() -> Node {
        Node::at("127.0.0.1:0")
    }

    pub fn at(address: &str) -> Node {
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        Node(socket)
    }

    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    pub fn send_bytes_to(&self, to: SocketAddr, bytes: &[u8]) {
        self.0.send_to(bytes, to).unwrap();
    }

    pub fn send_bytes(&self, to: &Soft, bytes: &[u8]) {
        self.send_bytes_to(to.address, bytes);
    }

    /// Sends a packet with this address for the answer.
    pub fn send_to(&self, to: SocketAddr, header: Header, reply_to: ReplyTo) {
        self.send_bytes_to(to, &encoded(header, reply_to));
    }

    /// The same, to a process.
    pub fn send_for(&self, to: &Soft, header: Header, reply_to: ReplyTo) {
        self.send_to(to.address, header, reply_to);
    }

    /// Sends a packet that wants its answer here.
    pub fn send(&self, to: &Soft, header: Header) {
        self.send_for(to, header, self.address().into());
    }

    /// Returns the next packet's header, and its address for the answer.
    pub fn receive(&self) -> (Header, ReplyTo) {
        let mut bytes = [0; 2000];
        let (length, _) = self.0.recv_from(&mut bytes).unwrap();
        let packet = Packet::decode(&bytes[..length]).unwrap();
        assert_eq!((packet.key, packet.value), (&b"key"[..], &b"value"[..]));
        (packet.header, packet.reply_to)
    }

    pub fn receive_header(&self) -> Header {
        self.receive().0
    }

    /// Asserts that no packet has come. Packets that the switch counted as forwarded before are here already.
    pub fn expect_nothing(&self) {
        self.0.set_nonblocking(true).unwrap();
        assert!(self.0.recv_from(&mut [0; 10]).is_err());
        self.0.set_nonblocking(false).unwrap();
    }

    /// Returns the number of packets that have come.
    pub fn count(&self) -> usize {
        self.0.set_nonblocking(true).unwrap();
        let count = std::iter::repeat_with(|| self.0.recv_from(&mut [0; 10])).take_while(Result::is_ok).count();
        self.0.set_nonblocking(false).unwrap();
        count
    }
}

pub fn encoded(header: Header, reply_to: ReplyTo) -> Vec<u8> {
    let packet = Packet { reply_to, value_bytes: 5, value: b"value", ..Packet::of(header, b"key") };
    let mut bytes = Vec::new();
    packet.encode(&mut bytes);
    bytes
}

pub fn header(operation: Operation, object: u32) -> Header {
    Header { operation, partition: PARTITION, object, switch: 0, term: 1, sequence: 0, committed: 0, tag: 99 }
}

pub fn read(object: u32) -> Header {
    header(Operation::Read, object)
}

pub fn write(object: u32) -> Header {
    header(Operation::WriteFirst, object)
}

/// Returns a completion, as a primary sends it.
pub fn completion(sequence: u64) -> Header {
    Header { switch: 1, sequence, ..header(Operation::Completion, 0) }
}
