//! Numbers as strings of bytes (P4Runtime v1.4.1, "Bytestrings").
//!
//! A sent number is as short as possible; a received one may have leading zeros.

/// Reason for which a string of bytes is not a number of a given width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    /// The string is empty; even 0 has one byte.
    #[error("a number has no bytes")]
    Empty,
    /// The number is too great for this many bits.
    #[error("a number has more than {0} bits")]
    Wide(u32),
}

/// Returns a number without its leading zeros, but with at least one byte.
pub fn canonical(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    &bytes[zeros.min(bytes.len().saturating_sub(1))..]
}

/// Returns a number in its form for the wire.
pub fn encode(number: u128) -> Vec<u8> {
    canonical(&number.to_be_bytes()).to_vec()
}

/// Checks that a number has at most `bits` bits, and returns its form for the wire.
///
/// # Errors
/// If the string is empty, or the number has more bits.
pub fn check(bytes: &[u8], bits: u32) -> Result<Vec<u8>, NumberError> {
    if bytes.is_empty() {
        return Err(NumberError::Empty);
    }
    let bytes = canonical(bytes);
    let used = 8 * bytes.len() as u32 - bytes[0].leading_zeros();
    if used > bits { Err(NumberError::Wide(bits)) } else { Ok(bytes.to_vec()) }
}

/// Decodes a number of at most `bits` bits, 128 at most.
///
/// # Errors
/// If the string is empty, or the number has more bits.
pub fn decode(bytes: &[u8], bits: u32) -> Result<u128, NumberError> {
    let bytes = check(bytes, bits.min(u128::BITS))?;
    Ok(bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Examples of the specification.
    #[test]
    fn numbers_are_as_short_as_can_be() {
        for (bits, number, bytes, is_short) in [
            (8, 99, &[0x63][..], true),
            (16, 99, &[0, 0x63], false),
            (16, 99, &[0x63], true),
            (16, 12388, &[0x30, 0x64], true),
            (16, 12388, &[0, 0x30, 0x64], false),
            (12, 99, &[0, 0x63], false),
            (12, 99, &[0, 0, 0x63], false),
            (16, 0, &[0, 0], false),
            (16, 0, &[0], true),
        ] {
            assert_eq!(decode(bytes, bits), Ok(number), "{bytes:?}");
            assert_eq!(encode(number) == bytes, is_short, "{bytes:?}");
            assert_eq!(check(bytes, bits), Ok(encode(number)));
        }
        for (bits, bytes, why) in [
            (8, &[1, 0x63][..], NumberError::Wide(8)),
            (8, &[], NumberError::Empty),
            (16, &[1, 0, 0x63], NumberError::Wide(16)),
            (12, &[0x10, 0x63], NumberError::Wide(12)),
            (12, &[1, 0, 0x63], NumberError::Wide(12)),
            (12, &[0, 0x40, 0x63], NumberError::Wide(12)),
        ] {
            assert_eq!(decode(bytes, bits), Err(why), "{bytes:?}");
        }
    }

    #[test]
    fn what_is_wider_than_any_word_is_still_bytes() {
        let wide = [1; 24];
        assert_eq!(check(&wide, 192), Ok(wide.to_vec()));
        assert_eq!(check(&wide, 184), Err(NumberError::Wide(184)));
        assert_eq!(decode(&wide, 192), Err(NumberError::Wide(128)));
    }
}
