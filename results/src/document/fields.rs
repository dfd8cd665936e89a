//! The fields of an object that only some readers look at.

use std::fmt;

use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// Fields of a JSON object, kept as they are written: a tree of values takes twenty times the memory, and most fields of most documents
/// are never asked for.
#[derive(Clone, Default)]
pub struct Fields {
    /// Keys and values, each right behind the one before.
    text: String,
    /// Where each key ends in the text, and its value.
    ends: Vec<(u32, u32)>,
}

impl Fields {
    /// Adds a field. The key is not there yet, and the value is JSON.
    pub(crate) fn push(&mut self, key: &str, value: &str) {
        self.text.push_str(key);
        let middle = self.text.len() as u32;
        self.text.push_str(value);
        self.ends.push((middle, self.text.len() as u32));
    }

    /// Gives back what memory it does not need.
    pub(crate) fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// Its fields, as they are written.
    fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut start = 0;
        self.ends.iter().map(move |&(middle, end)| {
            let (key, value) = (&self.text[start as usize..middle as usize], &self.text[middle as usize..end as usize]);
            start = end;
            (key, value)
        })
    }

    /// A field's value.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value> {
        let (_, value) = self.iter().find(|(there, _)| *there == key)?;
        serde_json::from_str(value).ok()
    }

    /// A field that is a whole number; faster than [`get`](Self::get).
    #[must_use]
    pub fn count(&self, key: &str) -> Option<i64> {
        let (_, value) = self.iter().find(|(there, _)| *there == key)?;
        // JSON has a negative zero, which is no whole number.
        value.parse().ok().filter(|_| value != "-0")
    }

    /// Puts a value in, in place of one that is there.
    pub fn insert(&mut self, key: &str, value: &Value) {
        let mut fields = Self::default();
        for (there, text) in self.iter().filter(|(there, _)| *there != key) {
            fields.push(there, text);
        }
        fields.push(key, &value.to_string());
        *self = fields;
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn map(&self) -> Result<Map<String, Value>, serde_json::Error> {
        self.iter().map(|(key, value)| Ok((key.to_owned(), serde_json::from_str(value)?))).collect()
    }
}

impl From<Map<String, Value>> for Fields {
    fn from(map: Map<String, Value>) -> Self {
        let mut fields = Self::default();
        for (key, value) in &map {
            fields.push(key, &value.to_string());
        }
        fields.shrink();
        fields
    }
}

impl PartialEq for Fields {
    /// Whether they have the same values, however they are written.
    fn eq(&self, other: &Self) -> bool {
        (self.text == other.text && self.ends == other.ends)
            || matches!((self.map(), other.map()), (Ok(own), Ok(other)) if own == other)
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self.iter()).finish()
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.map().map_err(S::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Map::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_those_of_the_object_however_it_is_written() {
        let value = json!({"a": {"b": [1, 2.5, null]}, "lost": -3, "text": "x\"y\n", "share": 0.5});
        let fields: Fields = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(serde_json::to_value(&fields).unwrap(), value);
        assert_eq!((fields.get("a"), fields.get("b")), (Some(value["a"].clone()), None));
        assert_eq!((fields.count("lost"), fields.count("share"), fields.count("text")), (Some(-3), None, None));
        let mut spaced = Fields::default();
        for key in ["text", "share", "lost", "a"] {
            spaced.push(key, &serde_json::to_string_pretty(&value[key]).unwrap());
        }
        assert_eq!(spaced, fields);
        spaced.insert("share", &json!(0.25));
        assert_ne!(spaced, fields);
        spaced.clear();
        assert_eq!(spaced, Fields::default());
    }
}
