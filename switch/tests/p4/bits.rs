//! Numbers of up to 256 bits.

/// Number with a width in bits; without one if it is a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    pub width: Option<u32>,
    high: u128,
    low: u128,
}

impl Bits {
    /// Returns a number, cut to this width.
    pub fn new(number: u128, width: u32) -> Bits {
        Bits { width: Some(width), high: 0, low: number }.cut(width)
    }

    /// Returns a number without a width.
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

    /// Returns the bits from `high` down to `low`.
    pub fn slice(self, high: u32, low: u32) -> Bits {
        let width = self.width.expect("a slice is of something wide");
        assert!(low <= high && high < width, "[{high}:{low}] of {width} bits");
        self.shifted_right(low).cut(high - low + 1)
    }

    /// Returns both numbers as one, the first one in front.
    pub fn concat(self, other: Bits) -> Bits {
        let (own, width) = (self.width.expect("a width"), other.width.expect("a width"));
        assert!(own + width <= 256);
        let Bits { high, low, .. } = self.shifted_left(width);
        Bits { width: Some(own + width), high: high | other.high, low: low | other.low }
    }

    /// Casts the number to this width.
    pub fn cast(self, width: u32) -> Bits {
        self.cut(width)
    }

    /// Returns the number for an assignment to this width, which has to be its own.
    pub fn fit(self, width: u32) -> Bits {
        assert!(self.width.is_none_or(|own| own == width), "{self:?} is not of {width} bits");
        self.cut(width)
    }

    /// Returns both numbers with one width, for an operation on two numbers.
    fn both(self, other: Bits) -> (Bits, Bits, u32) {
        let width = self.width.or(other.width).unwrap_or(128);
        (self.fit(width), other.fit(width), width)
    }

    /// Compares two numbers.
    pub fn compare(self, other: Bits) -> std::cmp::Ordering {
        let (one, other, _) = self.both(other);
        (one.high, one.low).cmp(&(other.high, other.low))
    }

    /// Returns the sum or difference, modulo the width, which is at most 128.
    pub fn add(self, other: Bits, is_minus: bool) -> Bits {
        let (one, other, width) = self.both(other);
        assert!(width <= 128);
        let low = if is_minus { one.low.wrapping_sub(other.low) } else { one.low.wrapping_add(other.low) };
        Bits::new(low, width)
    }

    /// Returns the bits that are in exactly one of both.
    pub fn xor(self, other: Bits) -> Bits {
        let (one, other, _) = self.both(other);
        Bits { high: one.high ^ other.high, low: one.low ^ other.low, ..one }
    }

    /// Returns the bits that are in both.
    pub fn and(self, other: Bits) -> Bits {
        let (one, other, _) = self.both(other);
        Bits { high: one.high & other.high, low: one.low & other.low, ..one }
    }

    /// Shifts the number to the left; its width stays.
    pub fn shift(self, by: Bits) -> Bits {
        self.shifted_left(by.number() as u32).cut(self.width.expect("a width"))
    }

    /// Returns the number, which must fit into 128 bits.
    pub fn number(self) -> u128 {
        assert_eq!(self.high, 0);
        self.low
    }

    /// Returns the bytes.
    pub fn bytes(self) -> Vec<u8> {
        let bytes = [self.high.to_be_bytes(), self.low.to_be_bytes()].concat();
        let width = self.width.expect("a width") as usize;
        assert_eq!(width % 8, 0);
        bytes[32 - width / 8..].to_vec()
    }
}
