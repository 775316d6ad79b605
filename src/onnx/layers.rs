//! Nodes of linear layers, convolutions, norms, pools and elementwise functions.

use super::graph::{Attribute, Dim, Graph, Value};
use super::shapes::{axis, broadcast, windows};
use crate::error::{Error, Result};
use crate::ops::{ConvOptions, ConvTransposeOptions};
use crate::tensor::{Dtype, Tensor};

/// An error unless both are of one type.
pub(super) fn alike(op: &str, a: &Value, b: &Value) -> Result<()> {
    if a.dtype == b.dtype {
        return Ok(());
    }
    Err(Error::dtype(op, format!("{} and {} must be equal; cast one", a.dtype, b.dtype)))
}

/// An error unless all are of one type, which ONNX asks of these operators.
pub(super) fn of_one_type(op: &str, x: &Value, others: &[Option<&Tensor>]) -> Result<()> {
    match others.iter().flatten().find(|t| t.dtype() != x.dtype) {
        None => Ok(()),
        Some(other) => {
            let message =
                format!("{} of {} and a constant of {}", x.text(), x.dtype, other.dtype());
            Err(Error::dtype(op, message))
        }
    }
}

pub(super) fn ints(numbers: impl IntoIterator<Item = usize>) -> Attribute {
    Attribute::Ints(numbers.into_iter().map(|n| n as i64).collect())
}

/// The same padding on both sides, as ONNX lists it: all beginnings, then all ends.
pub(super) fn pads(padding: &[usize]) -> Attribute {
    ints(padding.iter().chain(padding).copied())
}

impl Graph {
    /// An elementwise operator without settings: `Relu`, `Sigmoid`, `Sqrt`.
    pub fn unary(&mut self, operator: &str, x: &Value) -> Value {
        self.unary_with(operator, x, &[])
    }

    /// [`unary`](Self::unary) with settings.
    pub fn unary_with(
        &mut self,
        operator: &str,
        x: &Value,
        attributes: &[(&str, Attribute)],
    ) -> Value {
        self.node(operator, &[x], attributes, x.dtype, x.shape.clone())
    }

    /// An elementwise operator of two values that broadcast: `Add`, `Mul`.
    ///
    /// # Errors
    /// [`Error::Shape`] where they do not, [`Error::Dtype`] for two types.
    pub fn binary(&mut self, operator: &str, a: &Value, b: &Value) -> Result<Value> {
        alike(operator, a, b)?;
        let shape = broadcast(operator, a, b)?;
        Ok(self.node(operator, &[a, b], &[], a.dtype, shape))
    }

    /// Another type.
    pub fn cast(&mut self, x: &Value, dtype: Dtype) -> Result<Value> {
        if x.dtype == dtype {
            return Ok(x.clone());
        }
        let to = Attribute::Int(super::file::number_of(dtype)?);
        Ok(self.node("Cast", &[x], &[("to", to)], dtype, x.shape.clone()))
    }

    /// A matrix product, with batches.
    ///
    /// # Errors
    /// [`Error::Shape`] where inner sizes or batches do not fit.
    pub fn matmul(&mut self, a: &Value, b: &Value) -> Result<Value> {
        let wrong = || {
            let message = format!("{} and {} do not fit", a.text(), b.text());
            Error::shape("onnx matmul", message)
        };
        alike("onnx matmul", a, b)?;
        let ([.., m, k], [.., l, n]) = (&a.shape[..], &b.shape[..]) else { return Err(wrong()) };
        if k != l {
            return Err(wrong());
        }
        let batch = |value: &Value| Value {
            shape: value.shape[..value.dim() - 2].to_vec(),
            ..value.clone()
        };
        let mut shape = broadcast("onnx matmul", &batch(a), &batch(b))?;
        shape.extend([m.clone(), n.clone()]);
        Ok(self.node("MatMul", &[a, b], &[], a.dtype, shape))
    }

    /// `x weight^T + bias`, as [`Tensor::linear`].
    ///
    /// # Errors
    /// [`Error::Shape`] where the sizes do not fit.
    pub fn linear(&mut self, x: &Value, weight: &Tensor, bias: Option<&Tensor>) -> Result<Value> {
        let weight = self.constant(weight);
        let bias = bias.map(|bias| self.constant(bias));
        self.affine(x, &weight, bias.as_ref())
    }

    /// [`linear`](Self::linear) of values.
    pub(crate) fn affine(
        &mut self,
        x: &Value,
        weight: &Value,
        bias: Option<&Value>,
    ) -> Result<Value> {
        let turned = self.transpose(weight, &[1, 0])?;
        let y = self.matmul(x, &turned)?;
        match bias {
            None => Ok(y),
            Some(bias) => self.binary("Add", &y, bias),
        }
    }

    /// A constant added, if there is one.
    pub(crate) fn plus(&mut self, x: &Value, bias: Option<&Tensor>) -> Result<Value> {
        match bias {
            None => Ok(x.clone()),
            Some(bias) => {
                let bias = self.constant(bias);
                self.binary("Add", x, &bias)
            }
        }
    }

    /// A convolution of `[N, C, ..]`, as [`Tensor::conv2d`].
    ///
    /// # Errors
    /// [`Error::Shape`] where the sizes do not fit.
    pub fn conv<const D: usize>(
        &mut self,
        x: &Value,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &ConvOptions<D>,
    ) -> Result<Value> {
        let op = "onnx conv";
        of_one_type(op, x, &[Some(weight), bias])?;
        let channels = x.fixed(op, 1)?;
        if x.dim() != D + 2 || weight.shape()[1] * options.groups != channels {
            let message = format!(
                "input {}, weight {:?} and groups {} do not fit: [N, C, ..] and [O, C / groups, ..]",
                x.text(),
                weight.shape(),
                options.groups
            );
            return Err(Error::shape(op, message));
        }
        let mut shape = vec![x.shape[0].clone(), Dim::Fixed(weight.shape()[0])];
        for d in 0..D {
            let window =
                [weight.shape()[d + 2], options.stride[d], options.padding[d], options.dilation[d]];
            shape.push(windows(op, &x.shape[d + 2], window, false)?);
        }
        let attributes = [
            ("kernel_shape", ints(weight.shape()[2..].iter().copied())),
            ("strides", ints(options.stride)),
            ("pads", pads(&options.padding)),
            ("dilations", ints(options.dilation)),
            ("group", Attribute::Int(options.groups as i64)),
        ];
        let mut inputs = vec![x.clone(), self.constant(weight)];
        inputs.extend(bias.map(|bias| self.constant(bias)));
        let inputs: Vec<&Value> = inputs.iter().collect();
        Ok(self.node("Conv", &inputs, &attributes, x.dtype, shape))
    }

    /// A transposed convolution of `[N, C, ..]`, as [`Tensor::conv_transpose2d`].
    ///
    /// # Errors
    /// [`Error::Shape`] where the sizes do not fit.
    pub fn conv_transpose<const D: usize>(
        &mut self,
        x: &Value,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &ConvTransposeOptions<D>,
    ) -> Result<Value> {
        let op = "onnx conv_transpose";
        of_one_type(op, x, &[Some(weight), bias])?;
        if x.dim() != D + 2 || x.fixed(op, 1)? != weight.shape()[0] {
            let message = format!(
                "input {} and weight {:?} do not fit: [N, C, ..] and [C, O / groups, ..]",
                x.text(),
                weight.shape()
            );
            return Err(Error::shape(op, message));
        }
        let o = options;
        let mut shape = vec![x.shape[0].clone(), Dim::Fixed(weight.shape()[1] * o.groups)];
        for d in 0..D {
            let span = o.dilation[d] * (weight.shape()[d + 2] - 1) + 1 + o.output_padding[d];
            shape.push(match &x.shape[d + 2] {
                Dim::Fixed(size) => {
                    let whole = (size.saturating_sub(1)) * o.stride[d] + span;
                    let left = whole.checked_sub(2 * o.padding[d]).filter(|&left| left > 0);
                    Dim::Fixed(left.ok_or_else(|| {
                        let message =
                            format!("padding {:?} leaves nothing of {}", o.padding, x.text());
                        Error::shape(op, message)
                    })?)
                }
                Dim::Named(name) => {
                    Dim::Named(format!("spread({name}, {span}, {}, {})", o.stride[d], o.padding[d]))
                }
            });
        }
        let attributes = [
            ("kernel_shape", ints(weight.shape()[2..].iter().copied())),
            ("strides", ints(o.stride)),
            ("pads", pads(&o.padding)),
            ("output_padding", ints(o.output_padding)),
            ("dilations", ints(o.dilation)),
            ("group", Attribute::Int(o.groups as i64)),
        ];
        let mut inputs = vec![x.clone(), self.constant(weight)];
        inputs.extend(bias.map(|bias| self.constant(bias)));
        let inputs: Vec<&Value> = inputs.iter().collect();
        Ok(self.node("ConvTranspose", &inputs, &attributes, x.dtype, shape))
    }

    /// The mean over dimensions, which stay with size 1.
    ///
    /// # Errors
    /// [`Error::Argument`] for one that is out of range.
    pub fn mean(&mut self, x: &Value, dims: &[i64]) -> Result<Value> {
        let mut shape = x.shape.clone();
        for &dim in dims {
            shape[axis("onnx mean", x, dim)?] = Dim::Fixed(1);
        }
        let axes = self.numbers(dims);
        let keep = ("keepdims", Attribute::Int(1));
        Ok(self.node("ReduceMean", &[x, &axes], &[keep], x.dtype, shape))
    }

    /// The largest along a dimension, which stays with size 1.
    pub(super) fn max_along(&mut self, x: &Value, dim: i64) -> Result<Value> {
        let d = axis("onnx max", x, dim)?;
        let mut shape = x.shape.clone();
        shape[d] = Dim::Fixed(1);
        let axes = self.numbers(&[d as i64]);
        let keep = ("keepdims", Attribute::Int(1));
        Ok(self.node("ReduceMax", &[x, &axes], &[keep], x.dtype, shape))
    }

    /// Softmax or its logarithm (`LogSoftmax`) along a dimension.
    ///
    /// # Errors
    /// [`Error::Argument`] for a dimension that is out of range.
    pub fn softmax(&mut self, operator: &str, x: &Value, dim: i64) -> Result<Value> {
        let axis = axis("onnx softmax", x, dim)? as i64;
        Ok(self.unary_with(operator, x, &[("axis", Attribute::Int(axis))]))
    }

    /// GELU, exact or by the hyperbolic tangent.
    pub fn gelu(&mut self, x: &Value, tanh: bool) -> Value {
        let way = if tanh { "tanh" } else { "none" };
        self.unary_with("Gelu", x, &[("approximate", Attribute::Text(way.to_owned()))])
    }

    /// x sigmoid(x).
    ///
    /// # Errors
    /// As [`binary`](Self::binary).
    pub fn silu(&mut self, x: &Value) -> Result<Value> {
        let gate = self.unary("Sigmoid", x);
        self.binary("Mul", x, &gate)
    }

    /// Between two numbers.
    pub fn clip(&mut self, x: &Value, min: f64, max: f64) -> Value {
        let [min, max] = [min, max].map(|number| self.number(number, x.dtype));
        self.node("Clip", &[x, &min, &max], &[], x.dtype, x.shape.clone())
    }

    /// Rows of a table: `[rows, width]` and `[..]` give `[.., width]`.
    ///
    /// # Errors
    /// [`Error::Dtype`] for indices that are no i32 or i64.
    pub fn embedding(&mut self, table: &Tensor, indices: &Value) -> Result<Value> {
        if !matches!(indices.dtype, Dtype::I32 | Dtype::I64) {
            let message = format!("indices {} of {}; must be i64", indices.text(), indices.dtype);
            return Err(Error::dtype("onnx embedding", message));
        }
        let table = self.constant(table);
        let shape = indices.shape.iter().chain(&table.shape[1..]).cloned().collect::<Vec<_>>();
        let axis = [("axis", Attribute::Int(0))];
        Ok(self.node("Gather", &[&table, indices], &axis, table.dtype, shape))
    }
}
