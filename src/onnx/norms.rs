//! Nodes of norms.

use super::graph::{Attribute, Dim, Graph, Value};
use super::layers::{ints, of_one_type};
use crate::error::{Error, Result};
use crate::tensor::{Dtype, Tensor};

impl Graph {
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
        let [weight, bias] = self.affine_or_idle([weight, bias], &[mean.numel()], x.dtype);
        let all = [weight, bias, self.constant(mean), self.constant(var)];
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

    /// Weight and bias, or what changes nothing.
    fn affine_or_idle(
        &mut self,
        affine: [Option<&Tensor>; 2],
        shape: &[usize],
        dtype: Dtype,
    ) -> [Value; 2] {
        let mut of = |t: Option<&Tensor>, number: f64| match t {
            Some(t) => self.constant(t),
            None => self.fresh("constant", Tensor::full(shape, number, dtype)),
        };
        [of(affine[0], 1.0), of(affine[1], 0.0)]
    }

    /// Instance normalisation of `[N, C, ..]`: each channel of each sample by itself.
    ///
    /// # Errors
    /// [`Error::Shape`] where the sizes do not fit.
    pub fn instance_norm(
        &mut self,
        x: &Value,
        affine: [Option<&Tensor>; 2],
        eps: f64,
    ) -> Result<Value> {
        let op = "onnx instance_norm";
        of_one_type(op, x, &affine)?;
        let channels = x.fixed(op, 1)?;
        if x.dim() < 3 || affine.iter().flatten().any(|t| t.numel() != channels) {
            let sizes = affine.map(|t| t.map(Tensor::numel));
            let message =
                format!("{} must be [N, C, ..], weight and bias {sizes:?}: [C]", x.text());
            return Err(Error::shape(op, message));
        }
        let [weight, bias] = self.affine_or_idle(affine, &[channels], x.dtype);
        let eps = [("epsilon", Attribute::Float(eps as f32))];
        let inputs = [x, &weight, &bias];
        Ok(self.node("InstanceNormalization", &inputs, &eps, x.dtype, x.shape.clone()))
    }

    /// Group normalisation of `[N, C, ..]`: each group of channels of each sample by itself.
    ///
    /// # Errors
    /// [`Error::Shape`] where the sizes do not fit.
    pub fn group_norm(
        &mut self,
        x: &Value,
        groups: usize,
        affine: [Option<&Tensor>; 2],
        eps: f64,
    ) -> Result<Value> {
        let op = "onnx group_norm";
        of_one_type(op, x, &affine)?;
        let channels = x.fixed(op, 1)?;
        let fits = affine.iter().flatten().all(|t| t.numel() == channels);
        if groups == 0 || !channels.is_multiple_of(groups) || !fits {
            let sizes = affine.map(|t| t.map(Tensor::numel));
            let message = format!("{} of {groups} groups, weight and bias {sizes:?}", x.text());
            return Err(Error::shape(op, message));
        }
        // A group's elements in a row.
        let sizes = self.numbers(&[0, groups as i64, -1]);
        let shape = [x.shape[0].clone(), Dim::Fixed(groups), Dim::from("elements of a group")];
        let rows = self.node("Reshape", &[x, &sizes], &[], x.dtype, shape);
        let y = self.instance_norm(&rows, [None, None], eps)?;
        let mut y = self.shaped_like(&y, x);
        for (operator, t) in ["Mul", "Add"].into_iter().zip(affine) {
            if let Some(t) = t {
                let t = self.constant(t);
                let t = self.unsqueeze(&t, &(1..x.dim() - 1).collect::<Vec<_>>());
                y = self.binary(operator, &y, &t)?;
            }
        }
        Ok(y)
    }

    /// Division of `[N, C, ..]` by the activity of neighbouring channels.
    ///
    /// # Errors
    /// [`Error::Shape`] for less than three dimensions, [`Error::Argument`] for a neighbourhood of no channel.
    pub fn local_response_norm(
        &mut self,
        x: &Value,
        size: usize,
        [alpha, beta, k]: [f64; 3],
    ) -> Result<Value> {
        let op = "onnx local_response_norm";
        let channels = x.fixed(op, 1)?;
        if x.dim() < 3 {
            return Err(Error::shape(op, format!("{} must be [N, C, ..]", x.text())));
        }
        if size == 0 {
            return Err(Error::argument(op, "size", "0; must be at least 1"));
        }
        // ONNX's own has its neighbourhood elsewhere where the size is even.
        let square = self.binary("Mul", x, x)?;
        let sizes = self.numbers(&[0, 1, channels as i64, -1]);
        let one = Dim::Fixed(1);
        let shape = [x.shape[0].clone(), one, x.shape[1].clone(), Dim::from("elements")];
        let rows = self.node("Reshape", &[&square, &sizes], &[], x.dtype, shape.clone());
        let attributes = [
            ("kernel_shape", ints([size, 1])),
            ("pads", ints([size / 2, 0, (size - 1) / 2, 0])),
            ("count_include_pad", Attribute::Int(1)),
        ];
        let mean = self.node("AveragePool", &[&rows], &attributes, x.dtype, shape);
        let mut y = self.shaped_like(&mean, x);
        for (operator, number) in [("Mul", alpha), ("Add", k), ("Pow", beta)] {
            let number = self.number(number, x.dtype);
            y = self.binary(operator, &y, &number)?;
        }
        self.binary("Div", x, &y)
    }
}
