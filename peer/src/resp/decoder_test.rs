//! Tests of the decoder against a simple reference, against malicious input, and against Redis's own texts.

use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits { request_bytes_max: 4096, arguments_max: 8 };

/// Decoded output, as values that outlive the decoder.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Out {
    Request(Vec<Vec<u8>>),
    Excess(Excess),
    Error(ProtocolError),
}

fn drain(decoder: &mut Decoder, stranger: bool, out: &mut Vec<Out>) -> bool {
    loop {
        match decoder.next(stranger) {
            Ok(None) => return true,
            Ok(Some(Item::Request(arguments))) => {
                assert!(!arguments.is_empty());
                out.push(Out::Request(arguments.iter().map(<[u8]>::to_vec).collect()));
            }
            Ok(Some(Item::Excess(excess))) => out.push(Out::Excess(excess)),
            Err(error) => {
                out.push(Out::Error(error));
                return false;
            }
        }
    }
}

/// Feeds pieces, as a connection does, and checks on the way that nothing piles up.
fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, stranger: bool) -> Vec<Out> {
    let mut decoder = Decoder::new(LIMITS);
    let mut out = Vec::new();
    for piece in pieces {
        decoder.buffer().extend_from_slice(piece);
        if !drain(&mut decoder, stranger, &mut out) {
            break;
        }
        let most = LIMITS.request_bytes_max.max(LINE_BYTES_MAX) + 2;
        assert!(decoder.buffered() <= most, "{} bytes are buffered", decoder.buffered());
        assert!(decoder.arguments.len() <= LIMITS.arguments_max);
    }
    out
}

fn whole(bytes: &[u8]) -> Vec<Out> {
    decode([bytes], false)
}

fn error_of(bytes: &[u8], stranger: bool) -> String {
    match decode([bytes], stranger).pop() {
        Some(Out::Error(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

fn request(words: &[&[u8]]) -> Out {
    Out::Request(words.iter().map(|word| word.to_vec()).collect())
}

fn encode(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

#[test]
fn requests_of_both_kinds() {
    assert_eq!(
        whole(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\nPING\r\n\r\n  \r\n*0\r\n*-1\r\nset a \"b c\"\n*1\r\n$0\r\n\r\n"),
        [request(&[b"GET", b"a"]), request(&[b"PING"]), request(&[b"set", b"a", b"b c"]), request(&[b""])]
    );
}

#[test]
fn errors_as_redis_words_them() {
    let long = vec![b'1'; LINE_BYTES_MAX + 1];
    for (bytes, stranger, expected) in [
        (&b"*x\r\n"[..], false, "Protocol error: invalid multibulk length"),
        (b"*1000000000\r\n", false, "Protocol error: invalid multibulk length"),
        (b"*99999999999999999999\r\n", false, "Protocol error: invalid multibulk length"),
        (b"*\r\n", false, "Protocol error: invalid multibulk length"),
        (b"*11\r\n", true, "Protocol error: unauthenticated multibulk length"),
        (b"*1\r\n$-1\r\n", false, "Protocol error: invalid bulk length"),
        (b"*1\r\n$x\r\n", false, "Protocol error: invalid bulk length"),
        (b"*1\r\n$536870913\r\n", false, "Protocol error: invalid bulk length"),
        (b"*1\r\n$16385\r\n", true, "Protocol error: unauthenticated bulk length"),
        (b"*1\r\nPING\r\n", false, "Protocol error: expected '$', got 'P'"),
        (b"*1\r\n\r\n", false, "Protocol error: expected '$', got ' '"),
        (b"set a \"b\r\n", false, "Protocol error: unbalanced quotes in request"),
        (&long, false, "Protocol error: too big inline request"),
        (&[b"*", &long[..]].concat(), false, "Protocol error: too big mbulk count string"),
        (&[b"*1\r\n$", &long[..]].concat(), false, "Protocol error: too big bulk count string"),
    ] {
        assert_eq!(error_of(bytes, stranger), expected);
    }
}

#[test]
fn what_is_declared_takes_no_memory() {
    let mut decoder = Decoder::new(LIMITS);
    decoder.buffer().extend_from_slice(b"*1000000\r\n$500000000\r\nabc");
    assert_eq!(decoder.next(false), Ok(None));
    assert!(decoder.buffer.capacity() < 4096 && decoder.arguments.capacity() == 0);
    assert_eq!(decoder.buffered(), 0, "it is read past, not stored");
}

#[test]
fn a_request_over_a_limit_leaves_the_connection_in_step() {
    let long = vec![b'x'; 100_000];
    let bytes = [
        encode(&[b"SET".to_vec(), b"a".to_vec(), long.clone(), b"EX".to_vec(), b"1".to_vec()]),
        encode(&[b"PING".to_vec()]),
        encode(&vec![b"a".to_vec(); 9]),
        encode(&vec![vec![b'y'; 1000]; 5]),
        b"PING\r\n".to_vec(),
    ]
    .concat();
    let expected = [
        Out::Excess(Excess::Bytes),
        request(&[b"PING"]),
        Out::Excess(Excess::Arguments),
        Out::Excess(Excess::Bytes),
        request(&[b"PING"]),
    ];
    assert_eq!(whole(&bytes), expected);
    assert_eq!(decode(bytes.chunks(7), false), expected);
}

#[test]
fn a_large_buffer_is_given_back() {
    let mut decoder = Decoder::new(Limits { request_bytes_max: 1 << 20, arguments_max: 8 });
    decoder.buffer().extend_from_slice(&encode(&[vec![b'x'; 1 << 19]]));
    assert!(matches!(decoder.next(false), Ok(Some(Item::Request(_)))));
    assert_eq!(decoder.next(false), Ok(None));
    assert_eq!(decoder.buffer.capacity(), 0);
}

/// Returns a word that is likely to contain bytes of the protocol.
fn word() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => any::<u8>(),
        1 => proptest::sample::select(b"\r\n*$-10 \"'\\".to_vec()),
    ];
    proptest::collection::vec(byte, 0..40)
}

/// Returns bytes that are nearly requests.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..20),
        proptest::sample::select(vec![
            b"*1\r\n".to_vec(),
            b"*3\r\n".to_vec(),
            b"$3\r\nabc\r\n".to_vec(),
            b"$0\r\n\r\n".to_vec(),
            b"*".to_vec(),
            b"$".to_vec(),
            b"\r\n".to_vec(),
            b"PING\r\n".to_vec(),
            b"*9\r\n".to_vec(),
            b"$5000\r\n".to_vec(),
            b"-1\r\n".to_vec(),
            b"\"a".to_vec(),
        ]),
    ];
    proptest::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

/// Cuts bytes at random places.
fn cut<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    places.extend([0, bytes.len()]);
    places.sort_unstable();
    places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        requests in proptest::collection::vec(proptest::collection::vec(word(), 1..8), 0..10),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let bytes: Vec<u8> = requests.iter().flat_map(|words| encode(words)).collect();
        let expected: Vec<Out> = requests.into_iter().map(Out::Request).collect();
        prop_assert_eq!(decode(cut(&bytes, &cuts), false), expected);
    }

    #[test]
    fn how_it_is_cut_changes_nothing(
        bytes in noise(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
        stranger: bool,
    ) {
        let expected = decode([&bytes[..]], stranger);
        prop_assert_eq!(decode(cut(&bytes, &cuts), stranger), expected.clone());
        prop_assert_eq!(decode(bytes.chunks(1), stranger), expected);
    }
}
