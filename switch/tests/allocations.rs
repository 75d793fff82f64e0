//! The packet loop allocates no memory for packets.
#![cfg(target_os = "linux")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{Node, PARTITION, completion, header, read, write};
use header::{Operation, ReplyTo};
use switch::device::Device;
use switch::dirty::{Region, Shape};
use switch::soft::Switch;
use switch::tables::Partition;

/// The system's allocator, with a counter of one thread's requests.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: the system's allocator does all of it; counting changes neither the memory that it gives nor the memory that it takes.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending is not counted any more.
        if IS_COUNTED.try_with(Cell::get).unwrap_or(false) {
            COUNT.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(place, layout) }
    }
}

#[test]
fn nothing_is_allocated_for_a_packet() {
    let (replica, client) = (Node::new(), Node::new());
    let device = Arc::new(Device::new(Shape { stages: 2, slots: 8 }, 1));
    {
        let region = Region { first: 0, slots: 8 };
        let replicas = vec![(1, 1)];
        let partition = Partition { index: 0, region, term: 1, switch: 1, active: true, primary: 1, replicas };
        let mut state = device.lock();
        state.set_partition(PARTITION, partition).unwrap();
        state.ports.set(1, replica.address()).unwrap();
    }
    let switch = Switch::bind("127.0.0.1:0".parse().unwrap(), device.clone()).unwrap();
    let at = switch.socket().local_addr().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let its = stop.clone();
    let thread = std::thread::spawn(move || {
        IS_COUNTED.set(true);
        switch.run(&its);
    });
    let round = |sequence: u64| {
        replica.send_to(at, write(1), replica.address().into());
        assert_eq!(replica.receive_header().sequence, sequence);
        replica.send_to(at, completion(sequence), ReplyTo::NOWHERE);
        client.send_to(at, read(2), client.address().into());
        let (_, reply_to) = replica.receive();
        replica.send_to(at, header(Operation::Reply, 2), reply_to);
        client.receive();
        // A stranger's packets, and a datagram that is not a packet.
        client.send_to(at, write(1), client.address().into());
        client.send_to(at, completion(sequence), ReplyTo::NOWHERE);
        client.send_bytes_to(at, &[0; 2000]);
    };
    round(1);
    let before = COUNT.load(Ordering::Relaxed);
    (2..500).for_each(round);
    assert!(before > 0, "what it takes once it takes at the beginning");
    assert_eq!(COUNT.load(Ordering::Relaxed), before);
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap();
}
