//! Switch in software beside a bare UDP forwarder, in turns: packets a second on one core, and the cost of a packet.
//!
//! The bare forwarder makes the same system calls, and sends everything to one place without reading it. Each runs in a thread of
//! its own on one core. On another core, one thread sends as many packets as it can, and receives the forwarded ones. So the
//! machine needs two cores, and its other load affects both in turns. Packets are reads with 80 bytes before a key of 16, of
//! 32,768 objects in turn, one in eight of them dirty. If other programs need the cores as well, the cost of a packet is still
//! meaningful. Figures are medians over rounds of one run: only the ratios are for quoting.

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::io::IoSlice;
    use std::net::{SocketAddr, UdpSocket};
    use std::os::fd::AsRawFd as _;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    use header::{HEADER_BYTES, Header, Operation, Packet, ReplyTo};
    use nix::sched::{CpuSet, sched_setaffinity};
    use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};
    use nix::unistd::{Pid, gettid};
    use switch::device::Device;
    use switch::dirty::{Region, Shape};
    use switch::pipeline::REGISTERS;
    use switch::soft::{Batch, Link, SendPlan, Switch, bind};
    use switch::tables::Partition;

    const ROUNDS: usize = 9;
    const ROUND: Duration = Duration::from_secs(2);
    /// Time before each round, in which the load starts.
    const WARM: Duration = Duration::from_millis(300);
    const KEY: [u8; 16] = *b"sixteen bytes..K";
    const PARTITION: u32 = 1;
    /// Datagrams that go into the system with one call, which splits them.
    const BURST: usize = 32;
    /// Number of different reads; each has an object of its own.
    const READS: usize = 1 << 15;
    /// Upper limit of packets on their way: so many have room in the buffers.
    const OPEN_MAX: usize = 1024;

    /// Figures of one round: packets a second, microseconds of one core for a packet, and the share of the core that it had.
    #[derive(Clone, Copy)]
    struct Figure {
        rate: f64,
        cost: f64,
        busy: f64,
    }

    pub fn main() {
        // `cargo bench` passes `--bench`; `cargo test --benches` only checks that the benchmark starts.
        let is_trial = !std::env::args().any(|arg| arg == "--bench");
        let (rounds, round) = if is_trial { (1, Duration::from_millis(50)) } else { (ROUNDS, ROUND) };
        let sink = Link::new(bind(loopback()).expect("a sink"));
        let sink_address = sink.socket().local_addr().expect("its address");
        let mut load = Load::new(sink);
        println!("reads of {} bytes ({HEADER_BYTES} and a key of {})", HEADER_BYTES + KEY.len(), KEY.len());
        println!("{:>12} {:>12} {:>12} {:>8}", "", "packets/s", "µs/packet", "core");
        let (mut bare, mut soft) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            bare.push(show("bare", measure(&mut load, round, Worker::bare(sink_address))));
            soft.push(show("switch", measure(&mut load, round, Worker::switch(sink_address))));
        }
        let median = |figures: &[Figure], of: fn(&Figure) -> f64| {
            let mut values: Vec<f64> = figures.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        println!("\nmedians of {rounds} rounds of {round:?}");
        for (name, figures) in [("bare", &bare), ("switch", &soft)] {
            show(
                name,
                Figure {
                    rate: median(figures, |figure| figure.rate),
                    cost: median(figures, |figure| figure.cost),
                    busy: median(figures, |figure| figure.busy),
                },
            );
        }
        let ratio = |of: fn(&Figure) -> f64| median(&soft, of) / median(&bare, of);
        println!("\nswitch : bare, packets/s {:.3}", ratio(|figure| figure.rate));
        println!("switch : bare, µs/packet {:.3}", ratio(|figure| figure.cost));
        let (bare, soft) = (median(&bare, |figure| figure.cost), median(&soft, |figure| figure.cost));
        println!("packets for each second that it had the core: bare {:.0}, switch {:.0}", 1e6 / bare, 1e6 / soft);
    }

    fn show(name: &str, figure: Figure) -> Figure {
        let Figure { rate, cost, busy } = figure;
        println!("{name:>12} {rate:>12.0} {cost:>12.3} {:>7.0}%", busy * 100.0);
        figure
    }

    fn loopback() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    /// Binds the thread to one core, if the system permits it.
    fn pin(core: usize) {
        let mut cores = CpuSet::new();
        if cores.set(core).is_ok() {
            let _ = sched_setaffinity(Pid::from_raw(0), &cores);
        }
    }

    /// One of the two forwarders, at work.
    struct Worker {
        address: SocketAddr,
        /// Name of its thread in /proc.
        thread_id: i32,
        forwarded: Box<dyn Fn() -> u64>,
        stop: Arc<AtomicBool>,
        thread: thread::JoinHandle<()>,
    }

    impl Worker {
        fn start(
            name: &str,
            address: SocketAddr,
            forwarded: Box<dyn Fn() -> u64>,
            work: impl FnOnce(&AtomicBool) + Send + 'static,
        ) -> Worker {
            let stop = Arc::new(AtomicBool::new(false));
            let (tx, rx) = mpsc::sync_channel(1);
            let its = stop.clone();
            let thread = thread::Builder::new().name(name.into()).spawn(move || {
                pin(0);
                tx.send(gettid().as_raw()).expect("somebody asks");
                work(&its);
            });
            let thread = thread.expect("a thread");
            Worker { address, thread_id: rx.recv().expect("it runs"), forwarded, stop, thread }
        }

        fn bare(sink: SocketAddr) -> Worker {
            let socket = bind(loopback()).expect("a socket");
            let address = socket.local_addr().expect("its address");
            let forwarded = Arc::new(AtomicU64::new(0));
            let its = forwarded.clone();
            Worker::start("bare", address, Box::new(move || forwarded.load(Ordering::Relaxed)), move |stop| {
                let (mut link, mut batch, mut plan) = (Link::new(socket), Batch::default(), SendPlan::default());
                while !stop.load(Ordering::Relaxed) {
                    link.receive(&mut batch).expect("datagrams");
                    plan.clear();
                    (0..batch.len()).for_each(|place| plan.push(place, sink.into()));
                    its.fetch_add(link.send(&batch, &plan).done, Ordering::Relaxed);
                }
            })
        }

        fn switch(sink: SocketAddr) -> Worker {
            let device = Arc::new(Device::new(Shape::DEFAULT, REGISTERS));
            set_tables(&device, sink);
            let switch = Switch::bind(loopback(), device.clone()).expect("a switch");
            let address = switch.socket().local_addr().expect("its address");
            Worker::start("switch", address, Box::new(move || device.lock().counters.forwarded), move |stop| {
                switch.run(stop)
            })
        }

        /// Returns the time for which the thread had a core.
        fn core_time(&self) -> Duration {
            let text = fs::read_to_string(format!("/proc/self/task/{}/schedstat", self.thread_id));
            let first = text.ok().and_then(|text| text.split(' ').next()?.parse().ok());
            Duration::from_nanos(first.unwrap_or(0))
        }

        fn end(self) {
            self.stop.store(true, Ordering::Relaxed);
            self.thread.join().expect("it ends");
        }
    }

    fn header(operation: Operation, object: u32, sequence: u64) -> Header {
        Header { operation, partition: PARTITION, object, switch: 1, term: 1, sequence, committed: 0, tag: 0 }
    }

    /// Sets one partition, in which reads may go to any of three replicas, and one object in eight is dirty.
    fn set_tables(device: &Device, sink: SocketAddr) {
        let mut state = device.lock();
        for replica in 1..=3 {
            state.ports.set(replica, sink).expect("a port");
        }
        let region = Region { first: 0, slots: Shape::DEFAULT.slots as u32 };
        let replicas = vec![(1, 1), (2, 1), (3, 1)];
        let partition = Partition { index: 0, region, term: 1, switch: 1, active: true, primary: 1, replicas };
        state.set_partition(PARTITION, partition).expect("a partition");
        state.process(&mut header(Operation::WriteFirst, object(0), 0), 0);
        state.process(&mut header(Operation::Completion, 0, 1), 0);
        for read in (0..READS).step_by(8) {
            state.process(&mut header(Operation::WriteFirst, object(read), 0), 0);
        }
    }

    /// Objects are hashes: they are spread evenly.
    fn object(read: usize) -> u32 {
        (read as u32).wrapping_mul(0x9e37_79b9)
    }

    /// Sender of reads, and receiver of the forwarded ones.
    struct Load {
        source: UdpSocket,
        sink: Link,
        /// The encoded reads, one behind the other.
        bytes: Vec<u8>,
        size: usize,
        next: usize,
        batch: Batch,
    }

    impl Load {
        fn new(sink: Link) -> Load {
            pin(1);
            let source = UdpSocket::bind(loopback()).expect("a socket");
            sink.socket().set_nonblocking(true).expect("no waiting");
            let reply_to = ReplyTo::from(source.local_addr().expect("its address"));
            let mut bytes = Vec::new();
            for read in 0..READS {
                let header = header(Operation::Read, object(read), 0);
                Packet { reply_to, ..Packet::of(header, &KEY) }.encode(&mut bytes);
            }
            Load { source, sink, size: bytes.len() / READS, bytes, next: 0, batch: Batch::default() }
        }

        /// Keeps a forwarder busy for this time.
        fn drive(&mut self, address: SocketAddr, time: Duration) {
            let address = SockaddrStorage::from(address);
            let (mut open, mut moved, end) = (0, Instant::now(), Instant::now() + time);
            while Instant::now() < end {
                if open < OPEN_MAX && self.burst(&address) {
                    open += BURST;
                }
                self.sink.receive(&mut self.batch).expect("datagrams");
                if !self.batch.is_empty() {
                    moved = Instant::now();
                }
                open = open.saturating_sub(self.batch.len());
                if open >= OPEN_MAX && moved.elapsed() > Duration::from_millis(20) {
                    // Some packets were lost.
                    open = 0;
                }
            }
        }

        fn burst(&mut self, address: &SockaddrStorage) -> bool {
            let first = self.next * self.size;
            self.next = (self.next + BURST) % READS;
            let reads = [IoSlice::new(&self.bytes[first..first + BURST * self.size])];
            let segments = [ControlMessage::UdpGsoSegments(&(self.size as u16))];
            sendmsg(self.source.as_raw_fd(), &reads, &segments, MsgFlags::empty(), Some(address)).is_ok()
        }
    }

    fn measure(load: &mut Load, time: Duration, worker: Worker) -> Figure {
        load.drive(worker.address, WARM);
        let (began, core, forwarded) = (Instant::now(), worker.core_time(), (worker.forwarded)());
        load.drive(worker.address, time);
        let (time, core) = (began.elapsed().as_secs_f64(), (worker.core_time() - core).as_secs_f64());
        let packets = ((worker.forwarded)() - forwarded) as f64;
        worker.end();
        Figure { rate: packets / time, cost: core / packets * 1e6, busy: core / time }
    }
}

fn main() {
    #[cfg(target_os = "linux")]
    linux::main();
}
