//! A proxy before a daemon's endpoint for clients, which loses answers: the connection ends in their place.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::proxy::Proxy;
use crate::rng::Rng;

/// Proxy that loses answers.
pub struct LossyProxy {
    /// Address at which it listens.
    pub address: SocketAddr,
    losses: Arc<AnswerLosses>,
    _proxy: Proxy,
}

struct AnswerLosses {
    upstream: SocketAddr,
    /// Of this many pieces of answers one is lost; 0: none is lost.
    one_in: u32,
    lost: AtomicU32,
}

impl LossyProxy {
    /// Starts a proxy before a daemon. Of `one_in` pieces of answers one is lost, with all later ones on that connection.
    pub fn start(upstream: SocketAddr, one_in: u32, seed: u64) -> LossyProxy {
        let losses = Arc::new(AnswerLosses { upstream, one_in, lost: AtomicU32::new(0) });
        let shared = losses.clone();
        let proxy = Proxy::start(move |number, client| shared.serve(client, Rng::new(seed, &number.to_string())));
        LossyProxy { address: proxy.address, losses, _proxy: proxy }
    }

    /// Returns the number of lost answers.
    pub fn lost(&self) -> u32 {
        self.losses.lost.load(Ordering::SeqCst)
    }
}

impl AnswerLosses {
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
            if self.one_in > 0 && rng.below(u64::from(self.one_in)) == 0 {
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
