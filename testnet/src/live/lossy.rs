//! A proxy before a daemon's endpoint for clients, which loses answers: the connection ends in their place.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::rng::Rng;

/// Proxy that takes connections until it is dropped.
pub struct Lossy {
    /// Address at which it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: SocketAddr,
    /// Of this many pieces of answers one is lost; 0: none is lost.
    one_in: AtomicU32,
    lost: AtomicU32,
    over: AtomicBool,
}

impl Lossy {
    /// Starts a proxy before a daemon. Of `one_in` pieces of answers one is lost, with all later ones on that connection.
    pub fn start(upstream: SocketAddr, one_in: u32, seed: u64) -> Lossy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (one_in, lost, over) = (AtomicU32::new(one_in), AtomicU32::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { upstream, one_in, lost, over });
        let lossy = Lossy { address, shared: shared.clone() };
        std::thread::spawn(move || {
            for (number, client) in listener.incoming().map_while(Result::ok).enumerate() {
                if shared.over.load(Ordering::SeqCst) {
                    return;
                }
                let shared = shared.clone();
                // Ends with either side's connection.
                std::thread::spawn(move || shared.serve(client, Rng::new(seed, &number.to_string())));
            }
        });
        lossy
    }

    /// Returns the number of lost answers.
    pub fn lost(&self) -> u32 {
        self.shared.lost.load(Ordering::SeqCst)
    }
}

impl Drop for Lossy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // Wakes the thread, which waits for the next client.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn serve(&self, client: TcpStream, mut rng: Rng) -> io::Result<()> {
        let peer = TcpStream::connect(self.upstream)?;
        client.set_nodelay(true)?;
        peer.set_nodelay(true)?;
        let (mut from_client, mut to_peer) = (client.try_clone()?, peer.try_clone()?);
        std::thread::spawn(move || {
            let _ = io::copy(&mut from_client, &mut to_peer);
            let _ = to_peer.shutdown(Shutdown::Write);
        });
        let (mut from_peer, mut to_client) = (peer, client);
        let mut buffer = vec![0; 64 << 10];
        let ended = loop {
            let length = match from_peer.read(&mut buffer) {
                Ok(0) => break Ok(()),
                Ok(length) => length,
                Err(error) => break Err(error),
            };
            let one_in = self.one_in.load(Ordering::SeqCst);
            if one_in > 0 && rng.below(u64::from(one_in)) == 0 {
                self.lost.fetch_add(1, Ordering::SeqCst);
                break Ok(());
            }
            if let Err(error) = to_client.write_all(&buffer[..length]) {
                break Err(error);
            }
        };
        let _ = to_client.shutdown(Shutdown::Both);
        let _ = from_peer.shutdown(Shutdown::Both);
        ended
    }
}
