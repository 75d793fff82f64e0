//! Both sockets behave alike.

use std::net::{SocketAddr, UdpSocket};

use header::{PACKET_BYTES_MAX, ReplyTo};

use super::{BATCH, Batch, SendPlan, Sent};

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

macro_rules! of_link {
    ($module:ident) => {
        mod $module {
            use super::super::$module::{Link, bind};
            use super::*;

            /// Receives this many datagrams; returns their lengths.
            fn receive(link: &mut Link, batch: &mut Batch, count: usize) -> Vec<usize> {
                let mut lengths = Vec::new();
                while lengths.len() < count {
                    link.receive(batch).unwrap();
                    lengths.extend((0..batch.len()).map(|place| batch.get(place).len()));
                }
                lengths
            }

            #[test]
            fn datagrams_go_where_they_are_to() {
                let (here, there) = (UdpSocket::bind(loopback()).unwrap(), UdpSocket::bind(loopback()).unwrap());
                let (mut link, mut batch) = (Link::new(bind(loopback()).unwrap()), Batch::default());
                let at = link.socket().local_addr().unwrap();
                here.send_to(b"first", at).unwrap();
                receive(&mut link, &mut batch, 1);
                assert_eq!(batch.get_mut(0), (&mut b"first".to_owned()[..], here.local_addr().unwrap().into()));
                batch.get_mut(0).0[0] = b'F';
                let mut plan = SendPlan::default();
                // An IPv4 socket reaches no other family, and no socket reaches port 0.
                plan.push(0, "[::1]:9".parse::<SocketAddr>().unwrap().into());
                plan.push(0, there.local_addr().unwrap().into());
                plan.push(0, ReplyTo::NOWHERE);
                plan.push(0, "255.255.255.255:9".parse::<SocketAddr>().unwrap().into());
                plan.push(0, here.local_addr().unwrap().into());
                assert_eq!(link.send(&batch, &plan), Sent { done: 2, full: 0, failed: 3 });
                for socket in [&there, &here] {
                    let mut bytes = [0; 9];
                    assert_eq!(socket.recv_from(&mut bytes).unwrap(), (5, at));
                    assert_eq!(&bytes[..5], b"First");
                }
            }

            #[test]
            fn many_come_and_long_ones_show() {
                let here = UdpSocket::bind(loopback()).unwrap();
                let (mut link, mut batch) = (Link::new(bind(loopback()).unwrap()), Batch::default());
                let at = link.socket().local_addr().unwrap();
                let lengths: Vec<usize> = (0..BATCH + 3).collect();
                lengths.iter().for_each(|length| _ = here.send_to(&vec![7; *length], at).unwrap());
                assert_eq!(receive(&mut link, &mut batch, lengths.len()), lengths);
                here.send_to(&vec![7; 3000], at).unwrap();
                assert_eq!(receive(&mut link, &mut batch, 1), [PACKET_BYTES_MAX + 1]);
                link.receive(&mut batch).unwrap();
                assert!(batch.is_empty(), "it does not wait for ever");
                // If the figures are known, no datagram was lost, and there is room for a batch.
                assert_eq!(Link::lost(link.socket()).unwrap_or(0), 0);
                assert!(Link::room(link.socket()).is_none_or(|bytes| bytes > (BATCH * PACKET_BYTES_MAX) as u64));
            }
        }
    };
}

#[cfg(target_os = "linux")]
of_link!(many);
of_link!(single);
