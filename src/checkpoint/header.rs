//! The header of a safetensors file: JSON, in an order that depends on nothing but what it says, and read
//! so that what it says twice is an error.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use ::safetensors::tensor::{Metadata, TensorInfo};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::json;

/// The key of what is about the file.
pub(super) const METADATA: &str = "__metadata__";

/// A header's text, padded so that the tensors begin at a multiple of 8.
pub(super) fn written(
    metadata: &BTreeMap<String, String>,
    tensors: &[(&str, TensorInfo)],
) -> String {
    let mut text = format!("{{\"{METADATA}\":{}", json!(metadata));
    for (name, info) in tensors {
        let (dtype, shape, (from, to)) = (info.dtype, &info.shape, info.data_offsets);
        text += &format!(
            ",{}:{{\"dtype\":{},\"shape\":{},\"data_offsets\":[{from},{to}]}}",
            json!(name),
            json!(dtype),
            json!(shape)
        );
    }
    text.push('}');
    text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(8) - text.len()));
    text
}

/// What a header says.
///
/// # Errors
/// What is wrong.
pub(super) fn parsed(text: &[u8]) -> Result<Metadata, String> {
    let header: Header = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    let mut tensors: Vec<(String, TensorInfo)> = header.tensors.into_iter().collect();
    tensors.sort_by_key(|(_, info)| info.data_offsets);
    // Into whichever table the crate has, with its `std` or without.
    let metadata = header.metadata.map(|values| values.into_iter().collect());
    Metadata::new(metadata, tensors).map_err(|e| e.to_string())
}

#[derive(Default)]
struct Header {
    metadata: Option<BTreeMap<String, String>>,
    tensors: BTreeMap<String, TensorInfo>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tensors;
        impl<'de> Visitor<'de> for Tensors {
            type Value = Header;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of tensors")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header::default();
                while let Some(name) = map.next_key::<String>()? {
                    let twice = match name == METADATA {
                        true => {
                            let Unique(values) = map.next_value()?;
                            header.metadata.replace(values.into_iter().collect()).is_some()
                        }
                        false => header.tensors.insert(name.clone(), map.next_value()?).is_some(),
                    };
                    if twice {
                        return Err(A::Error::custom(format!("it has `{name}` twice")));
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(Tensors)
    }
}

/// A map of which no key may be there twice.
struct Unique<T>(BTreeMap<String, T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Unique<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Unique<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unique<T>, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    if entries.insert(name.clone(), map.next_value()?).is_some() {
                        return Err(A::Error::custom(format!("it has `{name}` twice")));
                    }
                }
                Ok(Unique(entries))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_twice_is_named() {
        let tensor =
            |dtype: &str| format!(r#""x":{{"dtype":"{dtype}","shape":[],"data_offsets":[0,4]}}"#);
        let (a, b) = (tensor("F32"), tensor("I32"));
        let fails = |text: String, name: &str| {
            let why = parsed(text.as_bytes()).expect_err("an error");
            assert!(why.contains(&format!("`{name}` twice")), "{why}");
        };
        assert!(parsed(format!("{{{a}}}").as_bytes()).is_ok());
        fails(format!("{{{a},{b}}}"), "x");
        fails(format!("{{{a},{a}}}"), "x");
        fails(format!(r#"{{"__metadata__":{{"a":"1","a":"1"}},{a}}}"#), "a");
        fails(format!(r#"{{"__metadata__":{{}},{a},"__metadata__":{{}}}}"#), "__metadata__");
    }

    #[test]
    fn a_header_depends_on_what_it_says_alone() {
        let metadata = ["c", "a", "b"].map(|key| (key.to_owned(), "\"1\"".to_owned())).into();
        let dtype = ::safetensors::Dtype::BF16;
        let info = TensorInfo { dtype, shape: vec![2, 3], data_offsets: (0, 12) };
        let text = written(&metadata, &[("tä\"st", info)]);
        assert!(text.starts_with(r#"{"__metadata__":{"a":"\"1\"","b""#), "{text}");
        assert_eq!(text.len() % 8, 0);
        let back = parsed(text.as_bytes()).unwrap();
        assert_eq!(back.info("tä\"st").unwrap().shape, [2, 3]);
        assert_eq!(back.metadata().as_ref().unwrap()["c"], "\"1\"");
    }
}
