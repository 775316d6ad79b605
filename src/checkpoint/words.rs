//! Values as JSON, which has no numbers that are not finite: they are the words `"NaN"`, `"Infinity"` and `"-Infinity"`.
//! serde_json would write `null`, which is no number when it is read.

use serde::de::value::{MapAccessDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde::ser::{self, Serialize, Serializer};
use serde_json::value::Serializer as Plain;
use serde_json::{Error, Value};

type Result<T> = std::result::Result<T, Error>;

/// A value as JSON.
pub(crate) fn to_value(value: &(impl Serialize + ?Sized)) -> Result<Value> {
    value.serialize(Words)
}

/// A value from JSON.
pub(crate) fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T> {
    // Whatever has no words is read as anywhere else, and errors are the usual ones.
    T::deserialize(value).or_else(|why| T::deserialize(Read(value)).map_err(|_| why))
}

fn word(number: f64) -> &'static str {
    match number {
        number if number.is_nan() => "NaN",
        number if number > 0.0 => "Infinity",
        _ => "-Infinity",
    }
}

fn number(word: &str) -> Option<f64> {
    [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].into_iter().find(|n| self::word(*n) == word)
}

/// Writes words where they are needed, and leaves all else to serde_json.
struct Words;

macro_rules! plainly {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        fn $name(self, $($argument: $type),*) -> Result<Value> {
            Plain.$name($($argument),*)
        }
    )*};
}

macro_rules! each {
    ($($name:ident($($argument:ident: $type:ty),*) -> $compound:ident;)*) => {$(
        fn $name(self, $($argument: $type),*) -> Result<Each<<Plain as Serializer>::$compound>> {
            Plain.$name($($argument),*).map(Each)
        }
    )*};
}

impl Serializer for Words {
    type Ok = Value;
    type Error = Error;
    type SerializeSeq = Each<<Plain as Serializer>::SerializeSeq>;
    type SerializeTuple = Each<<Plain as Serializer>::SerializeTuple>;
    type SerializeTupleStruct = Each<<Plain as Serializer>::SerializeTupleStruct>;
    type SerializeTupleVariant = Each<<Plain as Serializer>::SerializeTupleVariant>;
    type SerializeMap = Each<<Plain as Serializer>::SerializeMap>;
    type SerializeStruct = Each<<Plain as Serializer>::SerializeStruct>;
    type SerializeStructVariant = Each<<Plain as Serializer>::SerializeStructVariant>;

    plainly! {
        serialize_bool(v: bool);
        serialize_i8(v: i8);
        serialize_i16(v: i16);
        serialize_i32(v: i32);
        serialize_i64(v: i64);
        serialize_i128(v: i128);
        serialize_u8(v: u8);
        serialize_u16(v: u16);
        serialize_u32(v: u32);
        serialize_u64(v: u64);
        serialize_u128(v: u128);
        serialize_char(v: char);
        serialize_str(v: &str);
        serialize_bytes(v: &[u8]);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(name: &'static str);
        serialize_unit_variant(name: &'static str, index: u32, variant: &'static str);
    }

    each! {
        serialize_seq(len: Option<usize>) -> SerializeSeq;
        serialize_tuple(len: usize) -> SerializeTuple;
        serialize_tuple_struct(name: &'static str, len: usize) -> SerializeTupleStruct;
        serialize_tuple_variant(name: &'static str, index: u32, variant: &'static str, len: usize) -> SerializeTupleVariant;
        serialize_map(len: Option<usize>) -> SerializeMap;
        serialize_struct(name: &'static str, len: usize) -> SerializeStruct;
        serialize_struct_variant(name: &'static str, index: u32, variant: &'static str, len: usize) -> SerializeStructVariant;
    }

    fn serialize_f32(self, v: f32) -> Result<Value> {
        if v.is_finite() { Plain.serialize_f32(v) } else { Ok(word(v.into()).into()) }
    }

    fn serialize_f64(self, v: f64) -> Result<Value> {
        if v.is_finite() { Plain.serialize_f64(v) } else { Ok(word(v).into()) }
    }

    fn serialize_some<T: Serialize + ?Sized>(self, v: &T) -> Result<Value> {
        v.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        v: &T,
    ) -> Result<Value> {
        v.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        v: &T,
    ) -> Result<Value> {
        Plain.serialize_newtype_variant(name, index, variant, &to_value(v)?)
    }
}

/// What has several values.
struct Each<S>(S);

macro_rules! values {
    ($($trait:ident $name:ident;)*) => {$(
        impl<S: ser::$trait<Ok = Value, Error = Error>> ser::$trait for Each<S> {
            type Ok = Value;
            type Error = Error;
            fn $name<T: Serialize + ?Sized>(&mut self, v: &T) -> Result<()> {
                self.0.$name(&to_value(v)?)
            }
            fn end(self) -> Result<Value> {
                self.0.end()
            }
        }
    )*};
}

values! {
    SerializeSeq serialize_element;
    SerializeTuple serialize_element;
    SerializeTupleStruct serialize_field;
    SerializeTupleVariant serialize_field;
}

macro_rules! fields {
    ($($trait:ident)*) => {$(
        impl<S: ser::$trait<Ok = Value, Error = Error>> ser::$trait for Each<S> {
            type Ok = Value;
            type Error = Error;
            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, v: &T) -> Result<()> {
                self.0.serialize_field(name, &to_value(v)?)
            }
            fn end(self) -> Result<Value> {
                self.0.end()
            }
        }
    )*};
}

fields! { SerializeStruct SerializeStructVariant }

impl<S: ser::SerializeMap<Ok = Value, Error = Error>> ser::SerializeMap for Each<S> {
    type Ok = Value;
    type Error = Error;
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<()> {
        self.0.serialize_key(key)
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, v: &T) -> Result<()> {
        self.0.serialize_value(&to_value(v)?)
    }
    fn end(self) -> Result<Value> {
        self.0.end()
    }
}

/// A value in which words may stand for numbers.
#[derive(Clone, Copy)]
struct Read<'a>(&'a Value);

impl<'a> IntoDeserializer<'a, Error> for Read<'a> {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'a> Read<'a> {
    fn entries(
        fields: &'a serde_json::Map<String, Value>,
    ) -> impl Iterator<Item = (Key<'a>, Read<'a>)> {
        fields.iter().map(|(key, value)| (Key(key), Read(value)))
    }

    fn float<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value> {
        match self.0.as_str().and_then(number) {
            Some(number) => visitor.visit_f64(number),
            None => self.deserialize_any(visitor),
        }
    }
}

macro_rules! inside_newtypes {
    () => {
        fn deserialize_newtype_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            visitor: V,
        ) -> Result<V::Value> {
            visitor.visit_newtype_struct(self)
        }
    };
}

impl<'de> Deserializer<'de> for Read<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            Value::Array(values) => {
                let mut values = SeqDeserializer::new(values.iter().map(Read));
                let read = visitor.visit_seq(&mut values)?;
                values.end().map(|()| read)
            }
            Value::Object(fields) => {
                let mut entries = MapDeserializer::new(Self::entries(fields));
                let read = visitor.visit_map(&mut entries)?;
                entries.end().map(|()| read)
            }
            plain => plain.deserialize_any(visitor),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.float(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.float(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    inside_newtypes!();

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        match self.0 {
            Value::Object(fields) => {
                let entries = MapDeserializer::new(Self::entries(fields));
                visitor.visit_enum(MapAccessDeserializer::new(entries))
            }
            plain => plain.deserialize_enum(name, variants, visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// A key, which may be a number's text.
struct Key<'a>(&'a str);

impl<'a> IntoDeserializer<'a, Error> for Key<'a> {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! whole {
    ($($name:ident $visit:ident)*) => {$(
        fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            match self.0.parse() {
                Ok(number) => visitor.$visit(number),
                Err(_) => self.deserialize_any(visitor),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Key<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_borrowed_str(self.0)
    }

    whole! {
        deserialize_i8 visit_i8 deserialize_i16 visit_i16 deserialize_i32 visit_i32 deserialize_i64 visit_i64
        deserialize_u8 visit_u8 deserialize_u16 visit_u16 deserialize_u32 visit_u32 deserialize_u64 visit_u64
        deserialize_bool visit_bool
    }

    inside_newtypes!();

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_enum(self.0.into_deserializer())
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Serialize};
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Kind {
        None,
        Number(f64),
        Pair(f32, u8),
        Named { least: Option<f64> },
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct State {
        best: f64,
        maybe: Option<f64>,
        none: Option<f64>,
        of_class: BTreeMap<u32, f64>,
        kinds: Vec<Kind>,
        tuple: (f64, String, bool),
    }

    #[test]
    fn numbers_that_are_not_finite_come_back() {
        let (up, down) = (f64::INFINITY, f64::NEG_INFINITY);
        let state = State {
            best: up,
            maybe: Some(down),
            none: None,
            of_class: BTreeMap::from([(7, up), (9, 0.5)]),
            kinds: vec![
                Kind::None,
                Kind::Number(down),
                Kind::Pair(f32::INFINITY, 3),
                Kind::Named { least: Some(up) },
            ],
            tuple: (up, "NaN".into(), true),
        };
        let value = to_value(&state).unwrap();
        assert_eq!((&value["best"], &value["maybe"]), (&json!("Infinity"), &json!("-Infinity")));
        assert_eq!(from_value::<State>(&value).unwrap(), state);
        assert!(from_value::<f64>(&to_value(&f64::NAN).unwrap()).unwrap().is_nan());
    }

    #[test]
    fn all_else_is_as_serde_json_has_it() {
        let plain = (Some(1.5f32), "x", [1u8, 2], BTreeMap::from([(1i64, ())]), Kind::Pair(0.1, 2));
        assert_eq!(to_value(&plain).unwrap(), serde_json::to_value(&plain).unwrap());
        let fails = |value: Value| from_value::<(f64, u8)>(&value).unwrap_err().to_string();
        assert!(fails(json!(["Infinity"])).contains("invalid type: string"));
        assert!(fails(json!(["Infinity", 1, 2])).contains("invalid type: string"));
        assert!(fails(json!([null, 1])).contains("invalid type: null"));
        assert!(from_value::<String>(&json!("Infinity")).is_ok_and(|text| text == "Infinity"));
    }
}
