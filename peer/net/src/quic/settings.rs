//! The settings of quinn's connections and endpoints.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use libp2p::identity::Keypair;
use quinn::{ClientConfig, EndpointConfig, IdleTimeout, ServerConfig, TransportConfig, VarInt};

use super::resets::{ConnectionIds, ResetKey};
use super::tls;

/// Assumed round trip before the first one is measured: a lost first packet is repeated after three of these. The usual
/// third of a second would leave room for one repetition before a handshake is idle.
const ROUND_TRIP_GUESS: Duration = Duration::from_millis(100);
/// Upper limit of handshakes that wait to be handled. Each is a packet, and they are handled at once.
const WAITING_MAX: usize = 256;
/// Upper limits of further bytes of one such handshake, and of all of them together.
const WAITING_BYTES_MAX: u64 = 16 * 1024;
const WAITING_BYTES_MAX_ALL: u64 = 1024 * 1024;

/// Limits and times of a QUIC connection.
#[derive(Clone, Debug)]
pub struct QuicSettings {
    /// Silence that ends a connection, and a handshake without progress. The shorter value of both sides counts.
    pub idle: Duration,
    /// Longest interval between two packets.
    pub keep_alive: Duration,
    /// Upper limit of streams that the other side may have open at one time.
    pub streams_max: u32,
    /// Upper limit of bytes of one stream that were received and not yet read.
    pub stream_bytes_max: u32,
    /// The same for all streams of a connection. If it were below the sum of the bytes that the streams in use hold, one
    /// stream that is not read would keep the rest from receiving.
    pub connection_bytes_max: u32,
}

/// The configurations of both kinds of endpoints.
pub(super) struct Configs {
    pub(super) endpoint: EndpointConfig,
    pub(super) client: ClientConfig,
    pub(super) server: ServerConfig,
}

impl Configs {
    pub(super) fn new(keypair: &Keypair, settings: &QuicSettings) -> io::Result<Configs> {
        let secret = tls::secret(keypair)?;
        let transport = Arc::new(settings.transport()?);
        let (client, server) = tls::configs(&secret)?;
        let mut client = ClientConfig::new(client);
        client.transport_config(transport.clone());
        let mut server = ServerConfig::with_crypto(server);
        server
            .transport_config(transport)
            // libp2p assumes a fixed address of a connection, and this program's limits go by it.
            .migration(false)
            .max_incoming(WAITING_MAX)
            .incoming_buffer_size(WAITING_BYTES_MAX)
            .incoming_buffer_size_total(WAITING_BYTES_MAX_ALL);
        let mut endpoint = EndpointConfig::new(Arc::new(ResetKey::new(&secret)));
        endpoint.cid_generator(|| Box::new(ConnectionIds::default())).supported_versions(vec![1]);
        Ok(Configs { endpoint, client, server })
    }
}

impl QuicSettings {
    fn transport(&self) -> io::Result<TransportConfig> {
        let mut config = TransportConfig::default();
        config
            .max_idle_timeout(Some(IdleTimeout::try_from(self.idle).map_err(io::Error::other)?))
            .keep_alive_interval(Some(self.keep_alive))
            .initial_rtt(ROUND_TRIP_GUESS)
            .max_concurrent_bidi_streams(VarInt::from_u32(self.streams_max))
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .datagram_receive_buffer_size(None)
            .stream_receive_window(VarInt::from_u32(self.stream_bytes_max))
            .receive_window(VarInt::from_u32(self.connection_bytes_max))
            .send_window(u64::from(self.connection_bytes_max))
            .allow_spin(false);
        Ok(config)
    }
}
