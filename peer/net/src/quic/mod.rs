//! QUIC, for paths on which TCP is not possible.
//!
//! A transport of our own over quinn, like libp2p's but for these points:
//!
//! | libp2p's would | so here |
//! | --- | --- |
//! | need two libraries of cryptography, to make and to read certificates | peers show their own keys (`tls`), and one is enough |
//! | shake hands with any claimed address, before the limits could deny it | a stranger's address is proven first where many handshakes run, and nothing is computed before the limits were asked (`listener`) |
//! | take its last start's connections for another peer's, so that peers wait until these are idle | a restarted peer tells each peer that still sends to its last start that this is gone (`resets`) |
//! | drop the last written bytes when a connection is closed | a connection is closed when all was received, or the other side takes no more (`connection`) |
//! | leave the sockets' buffers as small as the system makes them | asks for more (`socket`) |

mod connection;
mod listener;
mod resets;
mod settings;
mod socket;
mod tls;
mod transport;

pub use settings::QuicSettings;
pub use transport::QuicTransport;
