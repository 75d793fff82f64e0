//! The proof of the peers' identities: TLS 1.3 in which both sides show their own ed25519 keys, without certificates
//! around them (RFC 7250). Each side proves by a signature over the handshake that it holds the secret half, on which a
//! peer's name rests everywhere else, too.
//!
//! No session is resumed, and no data is sent before the handshake is over. So every connection proves the identities
//! anew, and no data can be replayed.

use std::io;
use std::sync::Arc;

use libp2p::PeerId;
use libp2p::identity::Keypair;
use overlay::PeerKey;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use quinn::rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use quinn::rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature_with_raw_key};
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use quinn::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use quinn::rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use quinn::rustls::sign::CertifiedKey;
use quinn::rustls::version::TLS13;
use quinn::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, ServerConfig,
    SignatureScheme,
};

use crate::identity::peer_id_of;

/// The protocol of such a connection. Not libp2p's: its peers show certificates.
const PROTOCOL: &[u8] = b"scatter";
/// Prefix of the 32 bytes of a public ed25519 key (RFC 8410).
const PUBLIC_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// Prefix of the 32 bytes of a secret ed25519 key (RFC 8410).
const SECRET_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
/// The server name that quinn asks for at a dial; it has no meaning here.
pub(super) const NAME: &str = "peer";

/// Returns the secret half of a peer's key.
pub(super) fn secret(keypair: &Keypair) -> io::Result<[u8; 32]> {
    let keypair = keypair.clone().try_into_ed25519().map_err(io::Error::other)?;
    keypair.secret().as_ref().try_into().map_err(io::Error::other)
}

/// Builds the configurations for outgoing and for incoming connections.
pub(super) fn configs(secret: &[u8; 32]) -> io::Result<(Arc<QuicClientConfig>, Arc<QuicServerConfig>)> {
    let provider = Arc::new(ring::default_provider());
    let (key, known) = (Arc::new(shown_key(secret)?), Arc::new(AnyPeer::new(&provider)));
    let mut client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(known.clone())
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key.clone())));
    client.alpn_protocols = vec![PROTOCOL.to_vec()];
    client.resumption = Resumption::disabled();
    client.enable_sni = false;
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .with_client_cert_verifier(known)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
    server.alpn_protocols = vec![PROTOCOL.to_vec()];
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    let client = QuicClientConfig::try_from(client).map_err(io::Error::other)?;
    let server = QuicServerConfig::try_from(server).map_err(io::Error::other)?;
    Ok((Arc::new(client), Arc::new(server)))
}

/// Returns the peer at the other end of a connection whose handshake is over.
pub(super) fn peer_of(connection: &quinn::Connection) -> io::Result<PeerId> {
    let identity = connection.peer_identity().and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
    let key = identity
        .and_then(|shown| public_key(shown.first()?))
        .ok_or_else(|| io::Error::other("the peer showed no key"))?;
    Ok(peer_id_of(&key))
}

fn shown_key(secret: &[u8; 32]) -> io::Result<CertifiedKey> {
    let pkcs8 = [&SECRET_PREFIX[..], secret].concat();
    let signing = ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8)).map_err(io::Error::other)?;
    let public = signing.public_key().ok_or_else(|| io::Error::other("a key without a public half"))?;
    Ok(CertifiedKey::new(vec![CertificateDer::from(public.to_vec())], signing))
}

/// Returns the shown key, if it is an ed25519 key.
fn public_key(shown: &[u8]) -> Option<PeerKey> {
    Some(PeerKey(shown.strip_prefix(&PUBLIC_PREFIX)?.try_into().ok()?))
}

/// Verifier that accepts every ed25519 key whose holder proves that it holds it. The identity is checked afterwards: a
/// dialler of a certain peer drops a connection to another one, and hellos tell which peers belong to the network.
#[derive(Debug)]
struct AnyPeer {
    algorithms: WebPkiSupportedAlgorithms,
}

impl AnyPeer {
    fn new(provider: &CryptoProvider) -> AnyPeer {
        AnyPeer { algorithms: provider.signature_verification_algorithms }
    }

    fn check(shown: &CertificateDer<'_>, more: &[CertificateDer<'_>]) -> Result<(), Error> {
        match public_key(shown) {
            Some(_) if more.is_empty() => Ok(()),
            _ => Err(Error::InvalidCertificate(CertificateError::BadEncoding)),
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }
}

/// Fails: only TLS 1.3 is spoken, so TLS 1.2 signatures are never checked.
fn no_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::PeerIncompatible(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig))
}

impl ServerCertVerifier for AnyPeer {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        AnyPeer::check(shown, more).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for AnyPeer {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        AnyPeer::check(shown, more).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Identity;

    #[test]
    fn the_key_shown_is_the_peers_name() {
        for _ in 0..20 {
            let identity = Identity::random();
            let key = shown_key(&secret(identity.keypair()).unwrap()).unwrap();
            assert_eq!(public_key(&key.cert[0]), Some(identity.peer()));
        }
    }

    #[test]
    fn other_keys_and_certificates_are_none_of_ours() {
        let key = CertificateDer::from([&PUBLIC_PREFIX[..], &[7; 32]].concat());
        assert!(AnyPeer::check(&key, &[]).is_ok());
        assert!(AnyPeer::check(&key, std::slice::from_ref(&key)).is_err());
        for wrong in [vec![], PUBLIC_PREFIX.to_vec(), [&key[..], &[0]].concat(), key[1..].to_vec(), vec![0; 44]] {
            assert!(AnyPeer::check(&CertificateDer::from(wrong), &[]).is_err());
        }
    }
}
