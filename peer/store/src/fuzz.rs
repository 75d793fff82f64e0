//! Access of `fuzz/` to the store: the decoders behind the checksums, which no random byte would ever pass.

use node::Change;

use crate::codec::{Reader, put_batch};
use crate::format::StoreFormat;
use crate::manifest::Manifest;

/// Returns the batches in the body of a journal's frame.
pub fn batches(body: &[u8]) -> Option<Vec<Vec<Change>>> {
    Reader::new(body).batches()
}

/// Encodes batches as the body of a journal's frame.
pub fn body(batches: &[Vec<Change>]) -> Vec<u8> {
    let mut body = Vec::new();
    batches.iter().for_each(|batch| put_batch(&mut body, batch));
    body
}

/// Returns whether this is a manifest's content between its head and its checksum. A parsed manifest is written and read
/// back.
pub fn manifest(body: &[u8]) -> bool {
    let Some(manifest) = Manifest::decode_body(body) else { return false };
    assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
    true
}

/// Returns that content of a file that is a manifest; empty where the file is none.
pub fn manifest_body(file: &[u8]) -> &[u8] {
    let body = StoreFormat::skip(file).ok().and_then(|rest| rest.split_last_chunk::<4>());
    body.map_or(&[], |(body, _)| body)
}
