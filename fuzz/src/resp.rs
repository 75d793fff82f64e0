//! Decoder of clients' requests.

use peer::resp::decoder::{Decoder, Excess, Item, Limits, ProtocolError};

const LIMITS: Limits = Limits { request_bytes_max: 4096, arguments_max: 8 };

#[derive(Debug, PartialEq, Eq)]
enum Out {
    Request(Vec<Vec<u8>>),
    Excess(Excess),
    Error(ProtocolError),
}

/// Decodes requests, with the same result for any cuts of the network. Written as arrays, they read back the same.
pub fn resp(bytes: &[u8]) -> bool {
    let mut accepted = true;
    for stranger in [false, true] {
        let out = decode([bytes], stranger);
        let piece = 1 + bytes.first().map_or(0, |byte| usize::from(byte % 16));
        assert_eq!(decode(bytes.chunks(piece), stranger), out);
        accepted &= stranger || !out.iter().any(|out| matches!(out, Out::Error(_)));
        for request in &out {
            let Out::Request(words) = request else { continue };
            let array = array(words);
            // Written out, an inline command may be over the limit.
            if !stranger && array.len() <= LIMITS.request_bytes_max {
                assert_eq!(decode([&array[..]], false), [Out::Request(words.clone())]);
            }
        }
    }
    accepted
}

pub fn corpus() -> Vec<Vec<u8>> {
    let words = |words: &[&str]| array(&words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>());
    vec![
        words(&["PING"]),
        [words(&["SET", "k", "v", "PX", "100"]), words(&["GET", "k"]), words(&["INCR", ""])].concat(),
        b"PING\r\nSET a \"b \\x41\\n\" 'c'\r\n\r\nGET a\n".to_vec(),
        array(&[b"SET".to_vec(), b"k".to_vec(), vec![b'x'; 5000]]),
        array(&vec![b"a".to_vec(); 9]),
        [b"*0\r\n*-1\r\n".to_vec(), words(&["PING"])].concat(),
    ]
}

fn array(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, stranger: bool) -> Vec<Out> {
    let (mut decoder, mut out) = (Decoder::new(LIMITS), Vec::new());
    for piece in pieces {
        decoder.buffer().extend_from_slice(piece);
        loop {
            match decoder.next(stranger) {
                Ok(None) => break,
                Ok(Some(Item::Request(words))) => out.push(Out::Request(words.iter().map(<[u8]>::to_vec).collect())),
                Ok(Some(Item::Excess(excess))) => out.push(Out::Excess(excess)),
                Err(error) => {
                    out.push(Out::Error(error));
                    return out;
                }
            }
        }
    }
    out
}
