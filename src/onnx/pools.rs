//! Nodes of pools.

use super::graph::{Attribute, Dim, Graph, Value};
use super::layers::{ints, pads};
use super::shapes::windows;
use crate::error::{Error, Result};
use crate::ops::PoolOptions;

impl Graph {
    /// A pool: `MaxPool` or `AveragePool` of `[N, C, ..]`.
    ///
    /// # Errors
    /// [`Error::Shape`] where the sizes do not fit, [`Error::Argument`] for windows beyond the end that a number of one's
    /// own divides, which ONNX lacks.
    pub fn pool<const D: usize>(
        &mut self,
        operator: &str,
        x: &Value,
        options: &PoolOptions<D>,
    ) -> Result<Value> {
        if let Some(divisor) = options.divisor_override.filter(|_| operator != "MaxPool") {
            if options.ceil_mode || divisor == 0 {
                let message = format!(
                    "{divisor} with ceil_mode {}: ONNX has no such pool",
                    options.ceil_mode
                );
                return Err(Error::argument(operator, "divisor_override", message));
            }
            let options =
                PoolOptions { divisor_override: None, count_include_pad: true, ..*options };
            let y = self.pool(operator, x, &options)?;
            let all: usize = options.kernel_size.iter().product();
            let factor = self.number(all as f64 / divisor as f64, x.dtype);
            return self.binary("Mul", &y, &factor);
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

    /// Adaptive pooling of `[N, C, ..]` by means or maxima: to one place, or to sizes that divide the input's.
    ///
    /// # Errors
    /// [`Error::Shape`] for other sizes, which need windows of several sizes.
    pub fn adaptive_pool<const D: usize>(
        &mut self,
        operator: &str,
        x: &Value,
        sizes: [Option<usize>; D],
    ) -> Result<Value> {
        let op = "onnx adaptive_pool";
        if x.dim() != D + 2 {
            let message = format!("{}; must be [N, C, ..] with {} dimensions", x.text(), D + 2);
            return Err(Error::shape(op, message));
        }
        if sizes == [Some(1); D] {
            let shape = x.shape[..2].iter().cloned().chain(vec![Dim::Fixed(1); D]);
            return Ok(self.node(&format!("Global{operator}"), &[x], &[], x.dtype, shape));
        }
        let mut kernel = [1; D];
        for d in 0..D {
            // The input's own size, which may be free.
            let Some(wanted) = sizes[d] else { continue };
            let own = x.fixed(op, d + 2)?;
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
        self.pool(operator, x, &PoolOptions::new(kernel))
    }

    /// The p-norm of each window of `[N, C, ..]`, as [`Tensor::lp_pool2d`](crate::Tensor::lp_pool2d).
    ///
    /// # Errors
    /// As [`pool`](Self::pool), and [`Error::Argument`] for padding.
    pub fn lp_pool<const D: usize>(
        &mut self,
        x: &Value,
        p: f64,
        options: &PoolOptions<D>,
    ) -> Result<Value> {
        if options.divisor_override.is_some() || options.padding != [0; D] {
            let message = "norms of windows know neither padding nor divisor_override";
            return Err(Error::argument("onnx lp_pool", "options", message));
        }
        // ONNX's own takes |x|, and whole powers alone.
        let exponent = self.number(p, x.dtype);
        let powers = self.binary("Pow", x, &exponent)?;
        let mean = self.pool("AveragePool", &powers, options)?;
        let (sign, size) = (self.unary("Sign", &mean), self.unary("Abs", &mean));
        let sum = self.binary("Mul", &sign, &size)?;
        let count: usize = options.kernel_size.iter().product();
        let [count, root] = [count as f64, 1.0 / p].map(|number| self.number(number, x.dtype));
        let sum = self.binary("Mul", &sum, &count)?;
        self.binary("Pow", &sum, &root)
    }
}
