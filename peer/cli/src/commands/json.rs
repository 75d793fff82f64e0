//! Bytes in JSON: text where they are UTF-8, otherwise base64 with a mark beside it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// Puts bytes under `name`; where they are not UTF-8, in base64, with a mark under `name_encoding`.
pub fn put(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            object.insert(name.into(), text.into());
        }
        Err(_) => {
            object.insert(name.into(), STANDARD.encode(bytes).into());
            object.insert(format!("{name}_encoding"), "base64".into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_where_it_is_not_text() {
        let mut object = Map::new();
        put(&mut object, "a", "ü".as_bytes());
        put(&mut object, "b", &[0xff, 0]);
        assert_eq!(Value::Object(object).to_string(), r#"{"a":"ü","b":"/wA=","b_encoding":"base64"}"#);
    }
}
