//! All decoders of bytes from outside or from a disk: one [`Target`] each.
//!
//! `tests/mutations.rs` tries each with thousands of damaged encodings whenever the tests run. A real fuzzer goes on
//! from there: see `fuzz_targets/decoders.rs`.
#![forbid(unsafe_code)]

mod disk;
mod frames;
pub mod mutate;
mod packets;
mod resp;
mod samples;
mod settings;
mod stored;
mod stream;

/// A decoder.
#[derive(Clone, Copy)]
pub struct Target {
    /// The name of the decoder.
    pub name: &'static str,
    /// Decodes bytes and checks the result; returns whether the bytes were accepted. Must not panic on any bytes.
    pub run: fn(&[u8]) -> bool,
    /// Returns encodings that are accepted, of every kind.
    pub corpus: fn() -> Vec<Vec<u8>>,
}

/// All decoders.
pub const TARGETS: [Target; 12] = [
    Target { name: "frame", run: frames::frame, corpus: frames::corpus },
    Target { name: "record", run: stored::record, corpus: stored::records },
    Target { name: "meta", run: stored::meta, corpus: stored::metas },
    Target { name: "stream", run: stream::stream, corpus: stream::streams },
    Target { name: "greeting", run: stream::greeting, corpus: stream::greetings },
    Target { name: "resp", run: resp::resp, corpus: resp::corpus },
    Target { name: "journal", run: disk::journal, corpus: disk::journals },
    Target { name: "manifest", run: disk::manifest, corpus: disk::manifests },
    Target { name: "store", run: disk::store, corpus: disk::stores },
    Target { name: "peer_state", run: settings::peer_state, corpus: settings::peer_states },
    Target { name: "packet", run: packets::packet, corpus: packets::packets },
    Target { name: "settings", run: settings::settings, corpus: settings::settings_files },
];
