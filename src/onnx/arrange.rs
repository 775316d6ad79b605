//! Nodes that arrange elements anew: shapes, orders, parts, edges.

use std::ops::Range;

use super::graph::{Attribute, Dim, Graph, Value};
use super::layers::{alike, ints};
use super::shapes::axis;
use crate::error::{Error, Result};
use crate::ops::PadMode;
use crate::tensor::{Dtype, Tensor};

impl Graph {
    /// Dimensions from `start` to `end` as one.
    ///
    /// # Errors
    /// [`Error::Argument`] for dimensions that are out of range.
    pub fn flatten(&mut self, x: &Value, start: i64, end: i64) -> Result<Value> {
        let [start, end] = [axis("onnx flatten", x, start)?, axis("onnx flatten", x, end)?];
        let fixed: Option<usize> = x.shape[start..=end]
            .iter()
            .map(|dim| if let Dim::Fixed(size) = dim { Some(*size) } else { None })
            .product();
        let joined = fixed.map_or_else(
            || {
                let names: Vec<String> = x.shape[start..=end].iter().map(Dim::to_string).collect();
                Dim::Named(names.join("*"))
            },
            Dim::Fixed,
        );
        let mut shape = x.shape[..start].to_vec();
        shape.push(joined);
        shape.extend_from_slice(&x.shape[end + 1..]);
        self.replaced(x, start..end + 1, &[-1], shape)
    }

    /// Some dimensions as others, of these sizes. Where those behind are free, their sizes are found when the graph runs.
    fn replaced(
        &mut self,
        x: &Value,
        dims: Range<usize>,
        sizes: &[i64],
        shape: Vec<Dim>,
    ) -> Result<Value> {
        if x.shape[dims.end..].iter().all(|dim| matches!(dim, Dim::Fixed(_))) {
            return self.reshape(x, shape);
        }
        let mut of = |from: usize, to: usize| {
            let ends = [from, to].map(|d| Attribute::Int(d as i64));
            let [start, end] = ends;
            let count = [Dim::Fixed(to - from)];
            self.node("Shape", &[x], &[("start", start), ("end", end)], Dtype::I64, count)
        };
        let (before, behind) = (of(0, dims.start), of(dims.end, x.dim()));
        let between = self.numbers(sizes);
        let parts = [&before, &between, &behind];
        let parts = if dims.start == 0 { &parts[1..] } else { &parts[..] };
        let sizes = self.concat(parts, 0)?;
        Ok(self.node("Reshape", &[x, &sizes], &[], x.dtype, shape))
    }

    /// Another shape of the same elements. Of names that `x` does not have in the same place there may be one.
    ///
    /// # Errors
    /// [`Error::Shape`] for more.
    pub fn reshape(&mut self, x: &Value, shape: Vec<Dim>) -> Result<Value> {
        let mut free = 0;
        let numbers: Vec<i64> = shape
            .iter()
            .enumerate()
            .map(|(d, dim)| match dim {
                Dim::Fixed(size) => *size as i64,
                // As it was.
                Dim::Named(_) if x.shape.get(d) == Some(dim) => 0,
                Dim::Named(_) => {
                    free += 1;
                    -1
                }
            })
            .collect();
        if free > 1 {
            let to = Value { shape, ..x.clone() };
            let message = format!("{} to {}: more than one free size", x.text(), to.text());
            return Err(Error::shape("onnx reshape", message));
        }
        let numbers = self.numbers(&numbers);
        Ok(self.node("Reshape", &[x, &numbers], &[], x.dtype, shape))
    }

    /// Dimensions in another order.
    ///
    /// # Errors
    /// [`Error::Argument`] for what is no order of the dimensions.
    pub fn transpose(&mut self, x: &Value, perm: &[usize]) -> Result<Value> {
        let mut sorted = perm.to_vec();
        sorted.sort_unstable();
        if sorted != (0..x.dim()).collect::<Vec<_>>() {
            let message = format!("{perm:?} is no order of the dimensions of {}", x.text());
            return Err(Error::argument("onnx transpose", "perm", message));
        }
        let shape: Vec<Dim> = perm.iter().map(|&d| x.shape[d].clone()).collect();
        Ok(self.node("Transpose", &[x], &[("perm", ints(perm.iter().copied()))], x.dtype, shape))
    }

    /// Values beside each other along a dimension.
    ///
    /// # Errors
    /// [`Error::Argument`] for no values and for a dimension that is out of range, [`Error::Shape`] where other dimensions
    /// differ.
    pub fn concat(&mut self, values: &[&Value], dim: i64) -> Result<Value> {
        let op = "onnx concat";
        let Some(first) = values.first() else {
            return Err(Error::argument(op, "values", "are none"));
        };
        let axis = axis(op, first, dim)?;
        for value in values {
            alike(op, first, value)?;
            let fits = |d: usize| {
                let fixed = |v: &Value| matches!(v.shape[d], Dim::Fixed(_));
                d == axis || first.shape[d] == value.shape[d] || !fixed(first) || !fixed(value)
            };
            if value.dim() != first.dim() || !(0..first.dim()).all(fits) {
                let message = format!(
                    "{} and {} do not lie beside each other along {dim}",
                    first.text(),
                    value.text()
                );
                return Err(Error::shape(op, message));
            }
        }
        let mut shape = first.shape.clone();
        shape[axis] = values[1..]
            .iter()
            .fold(first.shape[axis].clone(), |sum, value| sum.plus(&value.shape[axis]));
        let axis = ("axis", Attribute::Int(axis as i64));
        Ok(self.node("Concat", values, &[axis], first.dtype, shape))
    }

    /// Equal parts along a dimension whose size is known.
    ///
    /// # Errors
    /// [`Error::Shape`] where they cannot be equal.
    pub fn split(&mut self, x: &Value, parts: usize, dim: i64) -> Result<Vec<Value>> {
        let axis = axis("onnx split", x, dim)?;
        let size = x.fixed("onnx split", axis)?;
        if parts == 0 || !size.is_multiple_of(parts) {
            let message = format!("{} in {parts} equal parts along {dim}", x.text());
            return Err(Error::shape("onnx split", message));
        }
        let names: Vec<String> = (0..parts).map(|_| self.unique("split")).collect();
        let outputs: Vec<&str> = names.iter().map(String::as_str).collect();
        let sizes = self.numbers(&vec![(size / parts) as i64; parts]);
        self.add("Split", &[x, &sizes], &outputs, &[("axis", Attribute::Int(axis as i64))]);
        let mut shape = x.shape.clone();
        shape[axis] = Dim::Fixed(size / parts);
        let part = |name| Value { name, dtype: x.dtype, shape: shape.clone() };
        Ok(names.into_iter().map(part).collect())
    }

    /// What is at one place along a dimension, which goes away; negative ones count from the end.
    ///
    /// # Errors
    /// [`Error::Argument`] for a dimension or a place that is out of range.
    pub fn select(&mut self, x: &Value, dim: i64, index: i64) -> Result<Value> {
        let op = "onnx select";
        let axis = axis(op, x, dim)?;
        if let Dim::Fixed(size) = x.shape[axis]
            && !(-(size as i64)..size as i64).contains(&index)
        {
            let message = format!("{index} is out of range for dimension {dim} of {}", x.text());
            return Err(Error::argument(op, "index", message));
        }
        let place = self.fresh("constant", Tensor::full([], index, Dtype::I64));
        let mut shape = x.shape.clone();
        shape.remove(axis);
        let axis = [("axis", Attribute::Int(axis as i64))];
        Ok(self.node("Gather", &[x, &place], &axis, x.dtype, shape))
    }

    /// What is at these places along a dimension, in this order.
    pub(crate) fn picked(&mut self, x: &Value, dim: usize, places: &[i64]) -> Value {
        let indices = self.numbers(places);
        let mut shape = x.shape.clone();
        shape[dim] = Dim::Fixed(places.len());
        let axis = [("axis", Attribute::Int(dim as i64))];
        self.node("Gather", &[x, &indices], &axis, x.dtype, shape)
    }

    /// Another dimension of size 1 at each of these places of the result, the first of them first.
    pub fn unsqueeze(&mut self, x: &Value, dims: &[usize]) -> Value {
        let mut shape = x.shape.clone();
        dims.iter().for_each(|&d| shape.insert(d, Dim::Fixed(1)));
        let axes = self.numbers(&dims.iter().map(|&d| d as i64).collect::<Vec<_>>());
        self.node("Unsqueeze", &[x, &axes], &[], x.dtype, shape)
    }

    /// A dimension of size 1 taken away.
    ///
    /// # Errors
    /// [`Error::Argument`] for a dimension that is out of range.
    pub fn squeeze(&mut self, x: &Value, dim: i64) -> Result<Value> {
        let axis = axis("onnx squeeze", x, dim)?;
        let mut shape = x.shape.clone();
        shape.remove(axis);
        let axes = self.numbers(&[axis as i64]);
        Ok(self.node("Squeeze", &[x, &axes], &[], x.dtype, shape))
    }

    /// `x`, whose first dimension has size 1, once for each element of `like` along its first.
    pub(crate) fn for_each(&mut self, x: &Value, like: &Value) -> Result<Value> {
        let ends = [("start", Attribute::Int(0)), ("end", Attribute::Int(1))];
        let count = self.node("Shape", &[like], &ends, Dtype::I64, [Dim::Fixed(1)]);
        let ones = self.numbers(&vec![1; x.dim() - 1]);
        let sizes = self.concat(&[&count, &ones], 0)?;
        let mut shape = x.shape.clone();
        shape[0] = like.shape[0].clone();
        Ok(self.node("Expand", &[x, &sizes], &[], x.dtype, shape))
    }

    /// The elements of `x` in the shape of `like`.
    pub(super) fn shaped_like(&mut self, x: &Value, like: &Value) -> Value {
        let sizes = self.node("Shape", &[like], &[], Dtype::I64, [Dim::Fixed(like.dim())]);
        self.node("Reshape", &[x, &sizes], &[], x.dtype, like.shape.clone())
    }

    /// A dimension as several, of which one may be -1, as [`Tensor::unflatten`].
    ///
    /// # Errors
    /// [`Error::Argument`] for a dimension that is out of range and for sizes that do not fit.
    pub fn unflatten(&mut self, x: &Value, dim: i64, sizes: &[i64]) -> Result<Value> {
        let op = "onnx unflatten";
        let axis = axis(op, x, dim)?;
        let known: i64 = sizes.iter().filter(|&&size| size != -1).product();
        let free = sizes.iter().filter(|&&size| size == -1).count();
        let fits = match x.shape[axis] {
            Dim::Fixed(size) if free == 1 && known > 0 => size as i64 % known == 0,
            Dim::Fixed(size) => size as i64 == known,
            Dim::Named(_) => free == 1 && known > 0,
        };
        if free > 1 || !fits || sizes.iter().any(|&size| size < -1) {
            let message = format!("{sizes:?} for dimension {dim} of {}", x.text());
            return Err(Error::argument(op, "sizes", message));
        }
        let split = sizes.iter().map(|&size| match (size, &x.shape[axis]) {
            (-1, Dim::Fixed(all)) => Dim::Fixed(all / known as usize),
            (-1, Dim::Named(name)) if known == 1 => Dim::from(name.as_str()),
            (-1, Dim::Named(name)) => Dim::Named(format!("{name}/{known}")),
            (size, _) => Dim::Fixed(size as usize),
        });
        let shape = x.shape[..axis].iter().cloned().chain(split).collect::<Vec<_>>();
        let shape = shape.into_iter().chain(x.shape[axis + 1..].iter().cloned()).collect();
        self.replaced(x, axis..axis + 1, sizes, shape)
    }

    /// Elements before and behind each of the last dimensions, the last dimension first, as [`Tensor::pad`]; negative
    /// numbers cut off.
    ///
    /// # Errors
    /// [`Error::Argument`] for more sides than there are dimensions, for padding by the input's own elements that it has
    /// not enough of, and for cutting off beside that, which ONNX has not.
    pub fn pad(&mut self, x: &Value, sides: &[i64], mode: PadMode) -> Result<Value> {
        let op = "onnx pad";
        let (name, number) = match mode {
            PadMode::Constant(number) => ("constant", Some(number.to_f64())),
            PadMode::Reflect => ("reflect", None),
            PadMode::Replicate => ("edge", None),
            PadMode::Circular => ("wrap", None),
        };
        let wrong = |why: &str| {
            let message = format!("{sides:?} for {}: {why}", x.text());
            Err(Error::argument(op, "padding", message))
        };
        let n = sides.len() / 2;
        if sides.len() % 2 == 1 || n > x.dim() {
            return wrong("must be two numbers for each of the last dimensions");
        }
        if number.is_none() && !(n + 1..=n + 2).contains(&x.dim()) {
            return wrong("must be all dimensions but those of batch and channels");
        }
        if number.is_none() && sides.iter().any(|&side| side < 0) {
            return wrong("ONNX cuts off only where it pads by a number");
        }
        let mut pads = vec![0; 2 * x.dim()];
        let mut shape = x.shape.clone();
        for (i, side) in sides.chunks(2).enumerate() {
            let d = x.dim() - 1 - i;
            (pads[d], pads[x.dim() + d]) = (side[0], side[1]);
            if let Dim::Fixed(size) = x.shape[d] {
                let most = match mode {
                    PadMode::Reflect => size as i64 - 1,
                    PadMode::Circular => size as i64,
                    _ => i64::MAX,
                };
                if side[0].max(side[1]) > most || size as i64 + side[0] + side[1] < 0 {
                    return wrong("there are not so many elements");
                }
            }
            shape[d] = x.shape[d].offset(side[0] + side[1]);
        }
        let pads = self.numbers(&pads);
        let mut inputs = vec![x.clone(), pads];
        inputs.extend(number.map(|number| self.number(number, x.dtype)));
        let inputs: Vec<&Value> = inputs.iter().collect();
        let mode = [("mode", Attribute::Text(name.to_owned()))];
        Ok(self.node("Pad", &inputs, &mode, x.dtype, shape))
    }
}
