//! JSON in which no object has a key twice: which of the two counts is each reader's own guess.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Any JSON value without a key that stands twice; its columns of rounds are skipped, since their own types check them.
pub(crate) struct Unique;

/// The key of columns: most of a document, in objects that no other reader than their types makes.
const COLUMNS: &str = "rounds";

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Unique;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_str<E>(self, _: &str) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_unit<E>(self) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Unique, A::Error> {
        while access.next_element::<Unique>()?.is_some() {}
        Ok(Unique)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Unique, A::Error> {
        let mut keys = std::collections::BTreeSet::new();
        while let Some(key) = access.next_key::<String>()? {
            if keys.contains(&key) {
                return Err(A::Error::custom(format!("duplicate key {key:?}")));
            }
            if key == COLUMNS {
                access.next_value::<IgnoredAny>()?;
            } else {
                access.next_value::<Unique>()?;
            }
            keys.insert(key);
        }
        Ok(Unique)
    }
}

/// Reads a map of which no key stands twice.
///
/// # Errors
/// Returns the errors of the values, and a key that does.
pub(crate) fn map<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, V>, D::Error> {
    struct Values<V>(PhantomData<V>);

    impl<'de, V: Deserialize<'de>> Visitor<'de> for Values<V> {
        type Value = BTreeMap<String, V>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
            let mut all = BTreeMap::new();
            while let Some(key) = access.next_key::<String>()? {
                let value = access.next_value()?;
                if all.contains_key(&key) {
                    return Err(A::Error::custom(format!("duplicate key {key:?}")));
                }
                all.insert(key, value);
            }
            Ok(all)
        }
    }

    deserializer.deserialize_map(Values(PhantomData))
}
