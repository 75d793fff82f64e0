//! Decoders of the frames and greetings in a stream.

use net::fuzz;

/// Cuts a stream into frames, with the same result for any cuts of the network. Framed again, they are the bytes that
/// came.
pub fn stream(bytes: &[u8]) -> bool {
    let (frames, too_long) = fuzz::frames([bytes]);
    let piece = 1 + bytes.first().map_or(0, |byte| usize::from(byte % 32));
    assert_eq!(fuzz::frames(bytes.chunks(piece)), (frames.clone(), too_long));
    let framed: Vec<u8> = frames.iter().flat_map(|frame| fuzz::framed(frame)).collect();
    assert!(bytes.starts_with(&framed));
    !too_long
}

pub fn streams() -> Vec<Vec<u8>> {
    let lengths: [&[usize]; 4] = [&[], &[0, 0, 0], &[5, 300, 1], &[5000]];
    let frames = |lengths: &[usize]| lengths.iter().flat_map(|len| fuzz::framed(&vec![7; *len])).collect();
    lengths.map(frames).into()
}

/// Decodes the greeting at the beginning of a stream.
pub fn greeting(bytes: &[u8]) -> bool {
    fuzz::greeting(bytes)
}

pub fn greetings() -> Vec<Vec<u8>> {
    fuzz::greetings()
}
