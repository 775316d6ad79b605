//! Nodes of linear layers, convolutions, norms, pools and elementwise functions.

use super::graph::{Attribute, Dim, Graph, Value};
use super::shapes::{axis, broadcast, windows};
use crate::error::{Error, Result};
use crate::ops::{ConvOptions, PoolOptions};
use crate::tensor::{Dtype, Tensor};

/// An error unless both are of one type.
fn alike(op: &str, a: &Value, b: &Value) -> Result<()> {
    if a.dtype == b.dtype {
        return Ok(());
    }
    Err(Error::dtype(op, format!("{} and {} must be equal; cast one", a.dtype, b.dtype)))
}

/// An error unless all are of one type, which ONNX asks of these operators.
fn of_one_type(op: &str, x: &Value, others: &[Option<&Tensor>]) -> Result<()> {
    match others.iter().flatten().find(|t| t.dtype() != x.dtype) {
        None => Ok(()),
        Some(other) => {
            let message =
                format!("{} of {} and a constant of {}", x.text(), x.dtype, other.dtype());
            Err(Error::dtype(op, message))
        }
    }
}

fn ints(numbers: impl IntoIterator<Item = usize>) -> Attribute {
    Attribute::Ints(numbers.into_iter().map(|n| n as i64).collect())
}

/// The same padding on both sides, as ONNX lists it: all beginnings, then all ends.
fn pads(padding: &[usize]) -> Attribute {
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
        let turned = self.constant(weight);
        let shape = vec![turned.shape[1].clone(), turned.shape[0].clone()];
        let perm = Attribute::Ints(vec![1, 0]);
        let turned = self.node("Transpose", &[&turned], &[("perm", perm)], weight.dtype(), shape);
        let y = self.matmul(x, &turned)?;
        self.plus(&y, bias)
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

    /// A pool: `MaxPool` or `AveragePool` of `[N, C, ..]`.
    ///
    /// # Errors
    /// [`Error::Shape`] where the sizes do not fit, [`Error::Argument`] for a divisor of one's own, which ONNX lacks.
    pub fn pool<const D: usize>(
        &mut self,
        operator: &str,
        x: &Value,
        options: &PoolOptions<D>,
    ) -> Result<Value> {
        if options.divisor_override.is_some() {
            return Err(Error::argument(operator, "divisor_override", "ONNX has no such pool"));
        }
        if x.dim() != D + 2 {
            let message = format!("{}; must be [N, C, ..] with {} dimensions", x.text(), D + 2);
            return Err(Error::shape(operator, message));
        }
        let stride = options.stride.unwrap_or(options.kernel_size);
        let mut shape = x.shape[..2].to_vec();
        for d in 0..D {
            let window =
                [options.kernel_size[d], stride[d], options.padding[d], options.dilation[d]];
            shape.push(windows(operator, &x.shape[d + 2], window, options.ceil_mode)?);
        }
        let mut attributes = vec![
            ("kernel_shape", ints(options.kernel_size)),
            ("strides", ints(stride)),
            ("pads", pads(&options.padding)),
            ("ceil_mode", Attribute::Int(options.ceil_mode.into())),
        ];
        match operator {
            "MaxPool" => attributes.push(("dilations", ints(options.dilation))),
            _ => attributes
                .push(("count_include_pad", Attribute::Int(options.count_include_pad.into()))),
        }
        Ok(self.node(operator, &[x], &attributes, x.dtype, shape))
    }

    /// Adaptive average pooling of `[N, C, ..]`: to one place, or to sizes that divide the input's.
    ///
    /// # Errors
    /// [`Error::Shape`] for other sizes, which need windows of several sizes.
    pub fn adaptive_average<const D: usize>(
        &mut self,
        x: &Value,
        sizes: [Option<usize>; D],
    ) -> Result<Value> {
        let op = "onnx adaptive_avg_pool";
        if sizes == [Some(1); D] {
            let shape = x.shape[..2].iter().cloned().chain(vec![Dim::Fixed(1); D]);
            return Ok(self.node("GlobalAveragePool", &[x], &[], x.dtype, shape));
        }
        let mut kernel = [1; D];
        for d in 0..D {
            let own = x.fixed(op, d + 2)?;
            let wanted = sizes[d].unwrap_or(own);
            if wanted == 0 || !own.is_multiple_of(wanted) {
                let message = format!(
                    "{} to {sizes:?}: ONNX has windows of one size, so {own} must be a multiple of {wanted}",
                    x.text()
                );
                return Err(Error::shape(op, message));
            }
            kernel[d] = own / wanted;
        }
        if kernel == [1; D] {
            return Ok(x.clone());
        }
        self.pool("AveragePool", x, &PoolOptions::new(kernel))
    }

    /// Batch normalisation by running statistics.
    ///
    /// # Errors
    /// [`Error::Shape`] where the channels do not fit.
    pub fn batch_norm(
        &mut self,
        x: &Value,
        [mean, var]: [&Tensor; 2],
        [weight, bias]: [Option<&Tensor>; 2],
        eps: f64,
    ) -> Result<Value> {
        of_one_type("onnx batch_norm", x, &[Some(mean), Some(var), weight, bias])?;
        if x.fixed("onnx batch_norm", 1)? != mean.numel() {
            let message = format!("{} and {} channels do not fit", x.text(), mean.numel());
            return Err(Error::shape("onnx batch_norm", message));
        }
        let or = |t: Option<&Tensor>, number: f64| {
            t.cloned().unwrap_or_else(|| Tensor::full(mean.shape(), number, mean.dtype()))
        };
        let all = [or(weight, 1.0), or(bias, 0.0), mean.clone(), var.clone()];
        let all = all.map(|t| self.constant(&t));
        let inputs: Vec<&Value> = std::iter::once(x).chain(&all).collect();
        let attributes = [("epsilon", Attribute::Float(eps as f32))];
        Ok(self.node("BatchNormalization", &inputs, &attributes, x.dtype, x.shape.clone()))
    }

    /// Layer normalisation over the last dimensions.
    ///
    /// # Errors
    /// [`Error::Shape`] where they are others.
    pub fn layer_norm(
        &mut self,
        x: &Value,
        shape: &[usize],
        [weight, bias]: [Option<&Tensor>; 2],
        eps: f64,
    ) -> Result<Value> {
        of_one_type("onnx layer_norm", x, &[weight, bias])?;
        let first = self.normalised("onnx layer_norm", x, shape)?;
        let weight = match weight {
            Some(weight) => self.constant(weight),
            None => self.constant(&Tensor::ones(shape, x.dtype)),
        };
        let mut inputs = vec![x.clone(), weight];
        inputs.extend(bias.map(|bias| self.constant(bias)));
        let inputs: Vec<&Value> = inputs.iter().collect();
        let attributes =
            [("axis", Attribute::Int(first as i64)), ("epsilon", Attribute::Float(eps as f32))];
        Ok(self.node("LayerNormalization", &inputs, &attributes, x.dtype, x.shape.clone()))
    }

    /// Normalisation by the root of the mean square over the last dimensions.
    ///
    /// # Errors
    /// [`Error::Shape`] where they are others.
    pub fn rms_norm(
        &mut self,
        x: &Value,
        shape: &[usize],
        weight: Option<&Tensor>,
        eps: f64,
    ) -> Result<Value> {
        let first = self.normalised("onnx rms_norm", x, shape)?;
        let square = self.binary("Mul", x, x)?;
        let axes: Vec<i64> = (first as i64..x.dim() as i64).collect();
        let mean = self.mean(&square, &axes)?;
        let eps = self.number(eps, x.dtype);
        let mean = self.binary("Add", &mean, &eps)?;
        let root = self.unary("Sqrt", &mean);
        let y = self.binary("Div", x, &root)?;
        match weight {
            None => Ok(y),
            Some(weight) => {
                let weight = self.constant(weight);
                self.binary("Mul", &y, &weight)
            }
        }
    }

    /// Where the last dimensions begin.
    fn normalised(&self, op: &str, x: &Value, shape: &[usize]) -> Result<usize> {
        let fits = x.dim().checked_sub(shape.len()).filter(|&first| {
            x.shape[first..].iter().zip(shape).all(|(dim, &size)| *dim == Dim::Fixed(size))
        });
        fits.ok_or_else(|| Error::shape(op, format!("{} does not end with {shape:?}", x.text())))
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

    /// Softmax or its logarithm (`LogSoftmax`) along a dimension.
    ///
    /// # Errors
    /// [`Error::Argument`] for a dimension that is out of range.
    pub fn softmax(&mut self, operator: &str, x: &Value, dim: i64) -> Result<Value> {
        let axis = axis("onnx softmax", x, dim)? as i64;
        Ok(self.unary_with(operator, x, &[("axis", Attribute::Int(axis))]))
    }

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
        self.reshape(x, shape)
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

    /// Values beside each other along a dimension, whose sizes are known.
    ///
    /// # Errors
    /// [`Error::Argument`] for no values and for a dimension that is out of range.
    pub fn concat(&mut self, values: &[&Value], dim: i64) -> Result<Value> {
        let Some(first) = values.first() else {
            return Err(Error::argument("onnx concat", "values", "are none"));
        };
        let axis = axis("onnx concat", first, dim)?;
        let mut size = 0;
        for value in values {
            alike("onnx concat", first, value)?;
            size += value.fixed("onnx concat", axis)?;
        }
        let mut shape = first.shape.clone();
        shape[axis] = Dim::Fixed(size);
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
}
