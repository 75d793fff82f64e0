//! Frames with changed fields. An encoder notes where each field ends, so a change hits a number, a flag, a key or a list
//! as such, and most results are still frames.

use group::message::{CommitteeMessage, LogMessage, Message};
use node::wire::{self, Frame, Stamp};
use overlay::PeerKey;
use overlay::rng::Rng;
use postcard::ser_flavors::Flavor;

/// Numbers that are often wrong.
const NUMBERS: [u128; 14] = [
    0,
    1,
    2,
    3,
    16,
    0x7f,
    0xffff,
    1 << 20,
    u32::MAX as u128,
    (1 << 48) - 2,
    (1 << 48) - 3,
    u64::MAX as u128 / 2,
    u64::MAX as u128,
    u128::MAX,
];

/// A frame's encoding, field by field.
#[derive(Clone, Debug, Default)]
pub struct Fields(pub Vec<Vec<u8>>);

struct Noting(Vec<Vec<u8>>);

impl Flavor for Noting {
    type Output = Vec<Vec<u8>>;

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(vec![byte]);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.push(bytes.to_vec());
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Vec<Vec<u8>>> {
        Ok(self.0)
    }
}

impl Fields {
    /// Returns the fields of a frame; each of these keys is one.
    pub fn of(frame: &Frame, keys: &[PeerKey]) -> Fields {
        let bytes = postcard::serialize_with_flavor(frame, Noting(Vec::new())).expect("it was decoded");
        let (mut fields, mut at) = (Vec::with_capacity(bytes.len()), 0);
        while at < bytes.len() {
            let key = keys.iter().find(|key| {
                let here = bytes.get(at..at + 32);
                here.is_some_and(|here| here.iter().zip(key.0).all(|(one, byte)| **one == [byte]))
            });
            match key {
                Some(key) => {
                    fields.push(key.0.to_vec());
                    at += 32;
                }
                None => {
                    fields.push(bytes[at].clone());
                    at += 1;
                }
            }
        }
        Fields(fields)
    }

    /// Returns the frame; `None` if the fields are none.
    pub fn frame(&self) -> Option<Frame> {
        let mut bytes = wire::encode(&Stamp::default(), &Frame::Started, None).to_vec();
        bytes.pop(); // The frame, which is a single byte.
        self.0.iter().for_each(|field| bytes.extend(field));
        wire::decode(&bytes, None).ok().map(|(_, frame)| frame)
    }

    /// Puts the frame in another peer's name.
    pub fn rename(&mut self, from: PeerKey, to: PeerKey) {
        self.0.iter_mut().filter(|field| **field == from.0).for_each(|field| *field = to.0.to_vec());
    }
}

fn number(field: &[u8]) -> Option<u128> {
    let mut number = 0_u128;
    for (place, byte) in field.iter().enumerate() {
        number |= u128::from(byte & 0x7f).checked_shl(7 * place as u32)?;
    }
    (field.len() <= 19 && field.last()? & 0x80 == 0).then_some(number)
}

fn field(mut number: u128) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// Makes one change; returns `None` if the result is no frame. `like` are other frames; those of the same kind lend
/// fields.
pub fn changed(fields: &Fields, like: &[&Fields], keys: &[PeerKey], rng: &mut Rng) -> Option<Fields> {
    let mut lie = fields.clone();
    for _ in 0..=rng.below(3) {
        change(&mut lie, like, keys, rng);
    }
    lie.frame().is_some().then_some(lie)
}

fn change(lie: &mut Fields, like: &[&Fields], keys: &[PeerKey], rng: &mut Rng) {
    let below = |rng: &mut Rng, end: usize| rng.below(end as u64) as usize;
    let at = below(rng, lie.0.len());
    if lie.0[at].len() == 32 {
        lie.0[at] = keys[below(rng, keys.len())].0.to_vec();
        return;
    }
    match rng.below(10) {
        0..=4 => {
            let Some(now) = number(&lie.0[at]) else { return };
            let other = number(&lie.0[below(rng, lie.0.len())]).unwrap_or(0);
            let next = match rng.below(7) {
                0 => now.wrapping_add(1),
                1 => now.wrapping_sub(1),
                2 => now.wrapping_add(u128::from(rng.below(1 << 10))),
                3 => now.wrapping_mul(2),
                4 => other,
                5 => now ^ 1 << rng.below(64),
                _ => NUMBERS[below(rng, NUMBERS.len())],
            };
            lie.0[at] = field(next);
        }
        5 | 6 => {
            // A list with one element less, or with one element twice.
            let Some(count) = number(&lie.0[at]).filter(|count| (1..1 << 16).contains(count)) else { return };
            let more = rng.below(2) == 0;
            for length in 0..48.min(lie.0.len() - at) {
                let mut other = lie.clone();
                other.0[at] = field(if more { count + 1 } else { count - 1 });
                if more {
                    let twice = lie.0[at + 1..at + 1 + length.min(lie.0.len() - at - 1)].to_vec();
                    other.0.splice(at + 1..at + 1, twice);
                } else {
                    other.0.drain(at + 1..(at + 1 + length).min(other.0.len()));
                }
                if other.frame().is_some() {
                    *lie = other;
                    return;
                }
            }
        }
        7 => {
            let other = below(rng, lie.0.len());
            lie.0.swap(at, other);
        }
        _ => {
            // The beginning of one frame, and the rest of another of its kind.
            if !like.is_empty() {
                let other = like[below(rng, like.len())];
                let end = at + 1 + below(rng, 40);
                let end = if rng.below(2) == 0 { other.0.len() } else { end };
                if let Some(lent) = other.0.get(at..end.min(other.0.len())) {
                    let until = if end >= other.0.len() { lie.0.len() } else { end.min(lie.0.len()) };
                    lie.0.splice(at..until, lent.to_vec());
                }
            }
        }
    }
}

/// Returns the kind of a frame: frames of one kind have the same fields.
pub fn kind(frame: &Frame) -> String {
    let word = |text: String| text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned();
    match frame {
        Frame::Group { message: Message::Log(message), .. } => word(match message {
            LogMessage::Promise { .. } => "Promised".into(),
            message => format!("{message:?}"),
        }),
        Frame::Group { message: Message::Committee(message), .. } => {
            let name = match message {
                CommitteeMessage::Promise { .. } => "CommitteePromise".into(),
                CommitteeMessage::Accept { .. } => "CommitteeAccept".into(),
                message => format!("Committee{message:?}"),
            };
            word(name)
        }
        Frame::Group { message, .. } => word(match message {
            Message::State(_) => "State".into(),
            Message::Copied(_) => "Copied".into(),
            Message::Envelope(envelope) => format!("Envelope{}", word(format!("{:?}", envelope.message))),
            Message::Client(_) => "Client".into(),
            message => format!("{message:?}"),
        }),
        frame => word(format!("{frame:?}")),
    }
}
