//! A proxy before a daemon's endpoint for clients: a listener with a thread for each connection.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Proxy that takes connections until it is dropped.
pub struct Proxy {
    /// Address at which it listens.
    pub address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl Proxy {
    /// Starts a proxy on loopback. `serve` handles a client's connection, with the number of earlier connections, until either side
    /// ends it.
    pub fn start(serve: impl Fn(usize, TcpStream) -> io::Result<()> + Send + Sync + 'static) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
        let address = listener.local_addr().expect("a bound socket has an address");
        let is_over = Arc::new(AtomicBool::new(false));
        let (ends, serve) = (is_over.clone(), Arc::new(serve));
        std::thread::spawn(move || {
            for (number, client) in listener.incoming().map_while(Result::ok).enumerate() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                let serve = serve.clone();
                std::thread::spawn(move || serve(number, client));
            }
        });
        Proxy { address, is_over }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread, which waits for the next client.
        let _ = TcpStream::connect(self.address);
    }
}
