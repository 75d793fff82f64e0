//! QUIC, for where TCP cannot be had.
//!
//! A transport of our own over quinn, like libp2p's but for these:
//!
//! | libp2p's would | so here |
//! | --- | --- |
//! | need two libraries of cryptography, to make and to read certificates | peers show their own keys (`tls`), and one is enough |
//! | shake hands with whoever claims an address, before anybody could say no | a stranger's address is proven first where many want in, and nothing is computed before the limits were asked (`listener`) |
//! | take its last start's connections for somebody else's, so that peers wait until these are idle | a restarted peer tells whoever still talks to its last start that this is gone (`resets`) |
//! | throw away what was written last when a connection is closed | a connection is closed when all was received, or nobody takes it (`connection`) |
//! | leave the sockets' buffers as small as the system makes them | asks for more (`socket`) |

mod connection;
mod listener;
mod resets;
mod settings;
mod socket;
mod tls;
mod transport;

pub use settings::Settings;
pub use transport::Transport;
