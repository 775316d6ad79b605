//! Types as a C compiler sees them: sizes, signs, and what pointers point to.

use std::collections::HashMap;

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    Void,
    Int {
        bytes: usize,
        signed: bool,
    },
    Float {
        bytes: usize,
    },
    /// Four bytes that stand for something.
    Enum,
    /// To something, or, in our tables, to whatever the library has there.
    Pointer(Option<Box<Shape>>),
    Function,
    Array(Box<Shape>, usize),
    /// Its name, and its fields in order.
    Struct(String, Vec<(String, Shape)>),
}

use Shape::{Array, Enum, Float, Function, Int, Pointer, Struct, Void};

impl Shape {
    pub fn size(&self) -> usize {
        match self {
            Void => 0,
            Int { bytes, .. } | Float { bytes } => *bytes,
            Enum => 4,
            Pointer(_) | Function => 8,
            Array(item, count) => item.size() * count,
            Struct(_, fields) => {
                let end = offsets(fields).last().map_or(0, |last| last.1 + last.2);
                end.next_multiple_of(self.alignment())
            }
        }
    }

    fn alignment(&self) -> usize {
        match self {
            Void => 1,
            Array(item, _) => item.alignment(),
            Struct(_, fields) => fields.iter().map(|field| field.1.alignment()).max().unwrap_or(1),
            other => other.size(),
        }
    }

    /// Whether something of ours can be given where a header wants this.
    pub fn accepts(&self, ours: &Shape) -> bool {
        match (ours, self) {
            (Pointer(None), Pointer(_)) => true,
            (Pointer(Some(a)), Pointer(Some(b))) => match (&**a, &**b) {
                // Bytes of any kind.
                (Void | Int { bytes: 1, .. }, Void | Int { bytes: 1, .. }) => true,
                (Void, _) => true,
                // One that says its own size may be an earlier version.
                (Struct(_, a), Struct(_, b)) if a[0].0 == "size" && b[0].0 == "size" => {
                    a.len() <= b.len() && a.iter().zip(b).all(|(a, b)| b.1.accepts(&a.1))
                }
                (a, b) => b.accepts(a),
            },
            (Int { bytes, .. }, Enum) => *bytes == 4,
            (Struct(..) | Array(..), Struct(..) | Array(..)) => self.size() == ours.size(),
            (a, b) => a == b,
        }
    }
}

/// Names, offsets and sizes of a structure's fields.
pub fn offsets(fields: &[(String, Shape)]) -> Vec<(&str, usize, usize)> {
    let mut end = 0usize;
    let place = |(name, shape): &'_ (String, Shape)| {
        let start = end.next_multiple_of(shape.alignment());
        end = start + shape.size();
        (start, shape.size(), name.len())
    };
    let places: Vec<_> = fields.iter().map(place).collect();
    fields.iter().zip(places).map(|(field, (at, size, _))| (field.0.as_str(), at, size)).collect()
}

/// What names stand for.
#[derive(Default)]
pub struct Names {
    /// Other names of types.
    pub aliases: HashMap<String, String>,
    pub enums: Vec<String>,
    pub structs: HashMap<String, Vec<(String, String)>>,
    /// What this side knows by itself.
    pub known: HashMap<String, Shape>,
}

impl Names {
    /// The type of a text.
    pub fn shape(&self, text: &str) -> Shape {
        self.shape_within(text, 0)
    }

    fn shape_within(&self, text: &str, depth: usize) -> Shape {
        let text = text.trim();
        let name = text.rsplit("::").next().unwrap_or(text);
        for way in ["*const ", "*mut "] {
            if let Some(rest) = text.strip_prefix(way) {
                // Deeper than this pointers do not matter.
                let inner = if depth < 2 { self.shape_within(rest, depth + 1) } else { Void };
                return Pointer(Some(Box::new(inner)));
            }
        }
        if text.contains("fn(") {
            return Function;
        }
        if let Some(inside) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let (item, count) = inside.rsplit_once(';').expect("an array has a length");
            let count = count.trim().trim_end_matches("usize").parse().expect("a number");
            return Array(Box::new(self.shape_within(item, depth)), count);
        }
        if let Some(shape) = self.known.get(name) {
            return shape.clone();
        }
        let int = |bytes, signed| Int { bytes, signed };
        match name {
            "" | "()" | "c_void" => Void,
            "c_char" | "i8" => int(1, true),
            "u8" | "c_uchar" => int(1, false),
            "c_int" | "i32" => int(4, true),
            "c_uint" | "u32" => int(4, false),
            "i64" | "c_longlong" | "c_long" | "isize" => int(8, true),
            "u64" | "c_ulonglong" | "c_ulong" | "usize" => int(8, false),
            "f32" => Float { bytes: 4 },
            "f64" => Float { bytes: 8 },
            name => {
                if let Some(other) = self.aliases.get(name) {
                    return self.shape_within(other, depth);
                }
                if self.enums.iter().any(|one| one == name) {
                    return Enum;
                }
                let fields = self.structs.get(name).unwrap_or_else(|| panic!("no type {name}"));
                // What lies behind pointers of pointers does not matter either.
                let of = |(field, text): &(String, String)| {
                    (field.clone(), self.shape_within(text, depth + 1))
                };
                Struct(name.to_owned(), fields.iter().map(of).collect())
            }
        }
    }
}
