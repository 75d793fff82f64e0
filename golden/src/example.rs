//! Example values from a type alone, by a deserializer that needs no input: it makes each value that the type asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess,
};
use serde::de::{Visitor, value::U32Deserializer};

/// Number of elements of a list, unless the list is nested deeply.
const ELEMENTS: usize = 2;
/// Depth from which on lists are empty.
const DEPTH_MAX: usize = 48;
/// Types around a text that refuse one with spaces.
const PLAIN: &[&str] = &["PeerName"];
/// Limit of the number of examples: no type has more, so the loop would not end.
const EXAMPLES_MAX: usize = 10_000;

/// Examples of a type, made by [`examples`].
#[derive(Debug)]
pub struct Examples<T> {
    /// Values, each with a name: the variants that occur in it and in none before.
    pub values: Vec<(String, T)>,
    /// The fields of each struct in the values, in the order in which they are written.
    pub fields: BTreeMap<String, Vec<String>>,
}

/// Makes values of a type, the same every time, until each variant of each enum and both cases of each option in it have
/// occurred. Every number and text in a value differs from all other ones in it, and needs all of its width.
///
/// # Panics
/// Where the type refuses a value: it has rules of its own that this function does not know.
pub fn examples<T: DeserializeOwned>() -> Examples<T> {
    let mut maker = Maker::default();
    let mut values = Vec::new();
    loop {
        maker.counter = 0;
        maker.news.clear();
        let name = std::any::type_name::<T>();
        let value = T::deserialize(&mut maker).unwrap_or_else(|error| panic!("an example of {name}: {error}"));
        if !values.is_empty() && maker.news.is_empty() {
            break;
        }
        values.push((maker.name(), value));
        assert!(values.len() < EXAMPLES_MAX, "{name} has no end of variants");
    }
    Examples { values, fields: maker.fields }
}

/// An enum, or an option at its place: its name, and its variants, since names are not unique.
type Choice = (String, &'static [&'static str]);

/// A variant that has occurred, with the choices that came up below it.
#[derive(Default)]
struct Seen {
    below: BTreeSet<Choice>,
}

#[derive(Default)]
struct Maker {
    counter: u64,
    /// The names of the types and fields in work, from the outside in.
    path: Vec<String>,
    /// The choices around the present value.
    open: Vec<(Choice, usize)>,
    seen: BTreeMap<Choice, BTreeMap<usize, Seen>>,
    /// The cases that occur for the first time in this example, and whether each is a variant of an enum.
    news: Vec<(bool, String)>,
    fields: BTreeMap<String, Vec<String>>,
    /// Whether the next number is zero.
    zero: bool,
    /// Whether the next text has no spaces.
    plain: bool,
}

/// The cases of an option.
const OPTION: &[&str] = &["Some", "None"];

impl Maker {
    /// Returns the name of an example: its new variants, or where there are none its new cases of options.
    fn name(&self) -> String {
        let of = |variants| self.news.iter().filter(move |news| news.0 == variants).map(|news| news.1.as_str());
        let is_variant = self.news.iter().any(|news| news.0);
        let name = of(is_variant).collect::<Vec<_>>().join(" ");
        if name.is_empty() { "all".into() } else { name }
    }

    /// Returns a number that needs a width of `bytes`.
    fn number(&mut self, bytes: u32) -> u128 {
        if std::mem::take(&mut self.zero) {
            return 0;
        }
        self.counter += 1;
        // The highest byte is small, so that signed numbers are positive, and seconds do not overflow when they are
        // added up.
        let high = 1u128 << (8 * bytes - 8);
        high + u128::from(self.counter)
    }

    fn choose(&mut self, name: &str, variants: &'static [&'static str]) -> usize {
        let is_option = variants == OPTION;
        let place = || self.path.last().cloned().unwrap_or_default();
        // All `Result` types have one name.
        let name = if is_option || name == "Result" { format!("{name} {}", place()) } else { name.to_owned() };
        let choice: Choice = (name.clone(), variants);
        for (open, variant) in &self.open {
            if let Some(seen) = self.seen.get_mut(open).and_then(|variants| variants.get_mut(variant)) {
                seen.below.insert(choice.clone());
            }
        }
        let known = self.seen.entry(choice.clone()).or_default();
        let unseen = (0..variants.len()).find(|variant| !known.contains_key(variant));
        if let Some(variant) = unseen {
            known.insert(variant, Seen::default());
            let case = variants[variant];
            self.news.push(if is_option {
                (false, format!("{}={case}", place()))
            } else {
                (true, format!("{name}::{case}"))
            });
            return variant;
        }
        let open = |variant: &usize| {
            let below = &self.seen[&choice][variant].below;
            below.iter().any(|choice| !self.is_complete(choice, &mut BTreeSet::new()))
        };
        (0..variants.len()).find(open).unwrap_or(if is_option { 1 } else { 0 })
    }

    /// Returns whether all variants of this choice have occurred, and all below them.
    fn is_complete(&self, choice: &Choice, asked: &mut BTreeSet<Choice>) -> bool {
        if !asked.insert(choice.clone()) {
            return true;
        }
        let Some(known) = self.seen.get(choice) else { return false };
        known.len() == choice.1.len()
            && known.values().all(|seen| seen.below.iter().all(|choice| self.is_complete(choice, asked)))
    }

    /// Makes a value that contains a choice.
    fn within<T>(
        &mut self,
        name: &str,
        variants: &'static [&'static str],
        make: impl FnOnce(&mut Self, usize) -> T,
    ) -> T {
        let variant = self.choose(name, variants);
        let place = self.path.last().cloned().unwrap_or_default();
        let is_placed = variants == OPTION || name == "Result";
        let choice = (if is_placed { format!("{name} {place}") } else { name.to_owned() }, variants);
        self.open.push((choice, variant));
        let made = make(self, variant);
        self.open.pop();
        made
    }

    fn elements(&self) -> usize {
        if self.path.len() < DEPTH_MAX { ELEMENTS } else { 0 }
    }

    fn fields_of(&mut self, name: &str, fields: &'static [&'static str]) {
        let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
        // Names of structs are not unique.
        let mut called = name.to_owned();
        while self.fields.get(&called).is_some_and(|others| *others != fields) {
            called.push('\'');
        }
        self.fields.insert(called, fields);
    }
}

/// The reason for which a value cannot be made.
#[derive(Debug)]
struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// The trait of the standard library, or serde's own where serde is built without it.
impl de::StdError for Refused {}

impl de::Error for Refused {
    fn custom<T: fmt::Display>(why: T) -> Refused {
        Refused(why.to_string())
    }
}

/// The elements of a list, a tuple, a struct or a map.
struct Parts<'a> {
    maker: &'a mut Maker,
    /// The name of the whole.
    of: String,
    /// The names of the elements, where they have some.
    names: &'static [&'static str],
    next: usize,
    count: usize,
}

impl<'a> Parts<'a> {
    fn new(maker: &'a mut Maker, of: &str, count: usize) -> Parts<'a> {
        Parts { maker, of: of.to_owned(), names: &[], next: 0, count }
    }

    fn fields(maker: &'a mut Maker, of: &str, names: &'static [&'static str]) -> Parts<'a> {
        maker.fields_of(of, names);
        Parts { maker, of: of.to_owned(), names, next: 0, count: names.len() }
    }

    fn part<'de, S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Refused> {
        let name = self.names.get(self.next).map_or_else(|| self.next.to_string(), |name| (*name).to_owned());
        self.maker.path.push(format!("{}.{name}", self.of));
        let made = seed.deserialize(&mut *self.maker);
        self.maker.path.pop();
        self.next += 1;
        made
    }
}

impl<'de> SeqAccess<'de> for Parts<'_> {
    type Error = Refused;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Refused> {
        if self.next == self.count { Ok(None) } else { self.part(seed).map(Some) }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.count - self.next)
    }
}

impl<'de> MapAccess<'de> for Parts<'_> {
    type Error = Refused;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Refused> {
        if self.next == 2 * self.count { Ok(None) } else { self.part(seed).map(Some) }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Refused> {
        self.part(seed)
    }
}

/// A variant of an enum.
struct Variant<'a> {
    maker: &'a mut Maker,
    name: String,
    index: u32,
}

impl<'de, 'a> EnumAccess<'de> for Variant<'a> {
    type Error = Refused;
    type Variant = Variant<'a>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Variant<'a>), Refused> {
        Ok((seed.deserialize(U32Deserializer::new(self.index))?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = Refused;

    fn unit_variant(self) -> Result<(), Refused> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Refused> {
        Parts::new(self.maker, &self.name, 1).part(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_seq(Parts::new(self.maker, &self.name, len))
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_seq(Parts::fields(self.maker, &self.name, fields))
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
            visitor.$visit(self.number(<$type>::BITS / 8) as $type)
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Maker {
    type Error = Refused;

    numbers! {
        deserialize_i8 visit_i8 i8;
        deserialize_i16 visit_i16 i16;
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
        deserialize_i128 visit_i128 i128;
        deserialize_u8 visit_u8 u8;
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
        deserialize_u128 visit_u128 u128;
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Refused> {
        Err(Refused("a type that asks what is there".into()))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.counter += 1;
        visitor.visit_bool(self.counter.is_multiple_of(2))
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_f32(self.number(2) as f32 + 0.5)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_f64(self.number(4) as f64 + 0.5)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_char('x')
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.counter += 1;
        let space = if self.plain { '-' } else { ' ' };
        visitor.visit_string(format!("text{space}{}", self.counter))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.counter += 1;
        visitor.visit_bytes(format!("bytes {}", self.counter).as_bytes())
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.counter += 1;
        visitor.visit_byte_buf(format!("bytes {}", self.counter).into_bytes())
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.within("Option", OPTION, |maker, variant| match variant {
            0 => visitor.visit_some(maker),
            _ => visitor.visit_none(),
        })
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Refused> {
        self.plain = PLAIN.contains(&name);
        let made = visitor.visit_newtype_struct(&mut *self);
        self.plain = false;
        made
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let (of, count) = (self.path.last().cloned().unwrap_or_default(), self.elements());
        visitor.visit_seq(Parts::new(self, &of, count))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Refused> {
        let of = self.path.last().cloned().unwrap_or_default();
        visitor.visit_seq(Parts::new(self, &of, len))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_seq(Parts::new(self, name, len))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let of = self.path.last().cloned().unwrap_or_default();
        // An interval map holds point zero, and no two neighbouring values are equal.
        let is_interval_map = of == "Entries.starts";
        self.zero = is_interval_map;
        let count = if is_interval_map { 1 } else { self.elements() };
        visitor.visit_map(Parts::new(self, &of, count))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_seq(Parts::fields(self, name, fields))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.within(name, variants, |maker, variant| {
            let index = variant as u32;
            visitor.visit_enum(Variant { maker, name: format!("{name}::{}", variants[variant]), index })
        })
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Refused> {
        Err(Refused("fields come in order".into()))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Refused> {
        Err(Refused("nothing is ignored".into()))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    enum Outer {
        Empty,
        One(Inner),
        Both { inner: Inner, count: u64 },
        Deep(Vec<Deep>),
    }

    #[derive(Debug, PartialEq, Deserialize)]
    enum Inner {
        A,
        B(Option<u32>),
        C,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    enum Deep {
        X,
        Y,
        Z,
        Again(Option<Box<Deep>>),
    }

    #[test]
    fn every_variant_occurs_and_every_time_the_same() {
        let found = examples::<Outer>();
        let all = format!("{:?}", found.values);
        for part in ["Empty", "One(", "Both", "Deep(", "A", "B(Some(", "B(None)", "C", "X", "Y", "Z", "Again(None)"] {
            assert!(all.contains(part), "{part} is missing in {all}");
        }
        assert_eq!(all, format!("{:?}", examples::<Outer>().values));
        assert_eq!(found.fields["Outer::Both"], ["inner", "count"]);
        let mut names: Vec<_> = found.values.iter().map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), found.values.len());
    }

    #[test]
    fn numbers_need_their_width() {
        let of = examples::<(u8, u16, u32, u64, i64)>().values.remove(0).1;
        assert!(of.1 > u8::MAX.into() && of.2 > u16::MAX.into() && of.3 > u32::MAX.into() && of.4 > i32::MAX.into());
    }
}
