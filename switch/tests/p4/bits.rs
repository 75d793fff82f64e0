//! Numbers of up to 256 bits.

/// A number of a width; of none where it is just a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    pub width: Option<u32>,
    high: u128,
    low: u128,
}

impl Bits {
    /// A number that is no wider than that.
    pub fn new(number: u128, width: u32) -> Bits {
        Bits { width: Some(width), high: 0, low: number }.cut(width)
    }

    /// Just a number.
    pub fn just(number: u128) -> Bits {
        Bits { width: None, high: 0, low: number }
    }

    fn cut(self, width: u32) -> Bits {
        let mask = |bits: u32| if bits >= 128 { u128::MAX } else { (1 << bits) - 1 };
        let (high, low) = (self.high & mask(width.saturating_sub(128)), self.low & mask(width));
        Bits { width: Some(width), high, low }
    }

    fn shifted_left(self, by: u32) -> Bits {
        let (high, low) = match by {
            0 => (self.high, self.low),
            1..128 => (self.high << by | self.low >> (128 - by), self.low << by),
            _ => (self.low.checked_shl(by - 128).unwrap_or(0), 0),
        };
        Bits { high, low, ..self }
    }

    fn shifted_right(self, by: u32) -> Bits {
        let (high, low) = match by {
            0 => (self.high, self.low),
            1..128 => (self.high >> by, self.low >> by | self.high << (128 - by)),
            _ => (0, self.high.checked_shr(by - 128).unwrap_or(0)),
        };
        Bits { high, low, ..self }
    }

    /// So many bits of it from this one down to that one.
    pub fn slice(self, high: u32, low: u32) -> Bits {
        let width = self.width.expect("a slice is of something wide");
        assert!(low <= high && high < width, "[{high}:{low}] of {width} bits");
        self.shifted_right(low).cut(high - low + 1)
    }

    /// Both, the first one in front.
    pub fn concat(self, other: Bits) -> Bits {
        let (own, width) = (self.width.expect("a width"), other.width.expect("a width"));
        assert!(own + width <= 256);
        let Bits { high, low, .. } = self.shifted_left(width);
        Bits { width: Some(own + width), high: high | other.high, low: low | other.low }
    }

    /// As a number of so many bits.
    pub fn cast(self, width: u32) -> Bits {
        self.cut(width)
    }

    /// As what is assigned to something of this width, which has to be its own.
    pub fn fit(self, width: u32) -> Bits {
        assert!(self.width.is_none_or(|own| own == width), "{self:?} is not of {width} bits");
        self.cut(width)
    }

    /// Both of one width, for what is done to two numbers.
    fn both(self, other: Bits) -> (Bits, Bits, u32) {
        let width = self.width.or(other.width).unwrap_or(128);
        (self.fit(width), other.fit(width), width)
    }

    /// Which one is greater.
    pub fn compare(self, other: Bits) -> std::cmp::Ordering {
        let (one, other, _) = self.both(other);
        (one.high, one.low).cmp(&(other.high, other.low))
    }

    /// Their sum or difference, modulo their width of 128 at most.
    pub fn add(self, other: Bits, is_minus: bool) -> Bits {
        let (one, other, width) = self.both(other);
        assert!(width <= 128);
        let low = if is_minus { one.low.wrapping_sub(other.low) } else { one.low.wrapping_add(other.low) };
        Bits::new(low, width)
    }

    /// What is in one of them and not in the other.
    pub fn xor(self, other: Bits) -> Bits {
        let (one, other, _) = self.both(other);
        Bits { high: one.high ^ other.high, low: one.low ^ other.low, ..one }
    }

    /// What is in both.
    pub fn and(self, other: Bits) -> Bits {
        let (one, other, _) = self.both(other);
        Bits { high: one.high & other.high, low: one.low & other.low, ..one }
    }

    /// Moved to the left, and still as wide.
    pub fn shift(self, by: Bits) -> Bits {
        self.shifted_left(by.number() as u32).cut(self.width.expect("a width"))
    }

    /// As a number, which has to be one of 128 bits.
    pub fn number(self) -> u128 {
        assert_eq!(self.high, 0);
        self.low
    }

    /// Its bytes.
    pub fn bytes(self) -> Vec<u8> {
        let bytes = [self.high.to_be_bytes(), self.low.to_be_bytes()].concat();
        let width = self.width.expect("a width") as usize;
        assert_eq!(width % 8, 0);
        bytes[32 - width / 8..].to_vec()
    }
}
