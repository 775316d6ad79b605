//! Rows: activation functions.

use super::{apply, apply_inplace};
use crate::amp::cast_op;
use crate::error::{Error, throw};
use crate::tensor::{Scalar, Tensor};

crate::pointwise! {
    table rows for Tensor;

    /// max(x, 0) (`torch.relu`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-1f32, 2.]);
    /// assert_eq!(x.relu().to_vec::<f32>(), [0.0, 2.0]);
    /// assert_eq!(x.relu_().to_vec::<f32>(), [0.0, 2.0]);
    /// ```
    pub numeric relu / relu_ (x) = maximum(x, 0.0);
        grad(g, y) { x: select(le(y, 0.0), 0.0, g) }
        nn { functional, module ReLU }

    /// x, or `negative_slope` times x below 0 (`torch.nn.functional.leaky_relu`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-2f32, 2.]);
    /// assert_eq!(x.leaky_relu(0.25).to_vec::<f32>(), [-0.5, 2.0]);
    /// assert_eq!(x.leaky_relu_(0.5).to_vec::<f32>(), [-1.0, 2.0]);
    /// ```
    pub float leaky_relu / leaky_relu_ (x; negative_slope = 0.01) = select(gt(x, 0.0), x, x * negative_slope);
        grad(g, x) { x: select(gt(x, 0.0), g, g * negative_slope) }
        nn { functional, module LeakyReLU }

    /// x, or `alpha` (e^x - 1) below 0 (`torch.nn.functional.elu`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-(2f64.ln()), 2.]);
    /// assert!(x.elu(1.0).allclose(&Tensor::from([-0.5, 2.0]), Default::default()));
    /// assert!(x.elu_(3.0).allclose(&Tensor::from([-1.5, 2.0]), Default::default()));
    /// ```
    pub float elu / elu_ (x; alpha = 1.0) = select(gt(x, 0.0), x, alpha * expm1(x));
        grad(g, x) { x: select(le(x, 0.0), g * alpha * exp(select(lt(x, 0.0), x, 0.0)), g) }
        nn { functional, module ELU }

    /// x times the normal distribution function of x (`torch.nn.functional.gelu`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, 1.]);
    /// let expected = Tensor::from([0.0, 0.8413447460685429]);
    /// assert!(x.gelu().allclose(&expected, Default::default()));
    /// assert!(x.gelu_().allclose(&expected, Default::default()));
    /// ```
    pub float gelu / gelu_ (x) = gelu(x);
        grad(g, x) {
            x: g * (0.5 * (1.0 + erf(x * FRAC_1_SQRT_2)) + x * 0.398_942_280_401_432_7 * exp(-0.5 * x * x)),
        }
        nn { functional }

    /// [`gelu`](Self::gelu) approximated with tanh (`torch.nn.functional.gelu(approximate="tanh")`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, 1.]);
    /// let expected = Tensor::from([0.0, 0.8411919906082768]);
    /// assert!(x.gelu_tanh().allclose(&expected, Default::default()));
    /// assert!(x.gelu_tanh_().allclose(&expected, Default::default()));
    /// ```
    // The derivative of the hyperbolic tangent is 0 long before the square is 1e4, and an infinite one would make NaN of it.
    pub float gelu_tanh / gelu_tanh_ (x)
        = 0.5 * x * (1.0 + tanh(0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x)));
        grad(g, x) {
            x: g * (0.5 * (1.0 + tanh(0.797_884_560_802_865_4 * (x + 0.044_715 * x * select(lt(x * x, 1e4), x * x, 1e4))))
                + 0.5 * x
                    * (1.0
                        - tanh(0.797_884_560_802_865_4 * (x + 0.044_715 * x * select(lt(x * x, 1e4), x * x, 1e4)))
                            * tanh(0.797_884_560_802_865_4 * (x + 0.044_715 * x * select(lt(x * x, 1e4), x * x, 1e4))))
                    * (0.797_884_560_802_865_4 * (1.0 + 0.134_145 * select(lt(x * x, 1e4), x * x, 1e4)))),
        }

    /// x sigmoid(x) (`torch.nn.functional.silu`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, 3f64.ln()]);
    /// let expected = Tensor::from([0.0, 0.75 * 3f64.ln()]);
    /// assert!(x.silu().allclose(&expected, Default::default()));
    /// assert!(x.silu_().allclose(&expected, Default::default()));
    /// ```
    pub float silu / silu_ (x) = x * sigmoid(x);
        grad(g, x) { x: g * sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x))) }
        nn { functional, module SiLU }

    /// x sigmoid(x) times `up`: the gated layer of Llama (Shazeer, "GLU Variants Improve Transformer", 2020), as one loop
    /// that keeps its operands alone.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (gate, up) = (Tensor::from([0.5f64, -2.0]), Tensor::from([3f64, 1.0]));
    /// assert!(gate.swiglu(&up).allclose(&(gate.silu() * &up), Default::default()));
    /// ```
    pub float swiglu (x, up) = x * sigmoid(x) * up;
        grad(g, x, up) {
            x: g * up * sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x))),
            up: g * x * sigmoid(x),
        }

    /// log(1 + e^(beta x)) / beta; x itself where beta x exceeds `threshold`
    /// (`torch.nn.functional.softplus`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, 30.]);
    /// assert!(x.softplus(1.0, 20.0).allclose(&Tensor::from([2f64.ln(), 30.0]), Default::default()));
    /// let expected = Tensor::from([0.5 * 2f64.ln(), 30.0]);
    /// assert!(x.softplus_(2.0, 20.0).allclose(&expected, Default::default()));
    /// ```
    pub float softplus / softplus_ (x; beta = 1.0, threshold = 20.0)
        = select(gt(x * beta, threshold), x, log1p(exp(x * beta)) / beta);
        grad(g, x) { x: select(gt(x * beta, threshold), g, g * sigmoid(x * beta)) }
        nn { functional, module Softplus }

    /// x above `threshold`, else `value` (`torch.nn.functional.threshold`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0.5f32, 2.]);
    /// assert_eq!(x.threshold(1.0, -7.0).to_vec::<f32>(), [-7.0, 2.0]);
    /// assert_eq!(x.threshold_(3.0, 0.0).to_vec::<f32>(), [0.0, 0.0]);
    /// ```
    pub numeric threshold / threshold_ (x; threshold = 0.1, value = 20.0) = select(le(x, threshold), value, x);
        grad(g, x) { x: select(le(x, threshold), 0.0, g) }
        nn { functional, module Threshold }

    /// [`elu`](Self::elu) with the two constants that keep mean and variance
    /// (`torch.nn.functional.selu`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-(2f64.ln()), 2.]);
    /// let expected = Tensor::from([-0.8790496704236883, 2.101401974710961]);
    /// assert!(x.selu().allclose(&expected, Default::default()));
    /// assert!(x.selu_().allclose(&expected, Default::default()));
    /// ```
    pub float selu / selu_ (x)
        = 1.050_700_987_355_480_5 * select(gt(x, 0.0), x, 1.673_263_242_354_377_2 * expm1(x));
        grad(g, x) {
            x: 1.050_700_987_355_480_5
                * select(
                    le(x, 0.0),
                    g * 1.673_263_242_354_377_2 * exp(select(lt(x, 0.0), x, 0.0)),
                    g
                ),
        }
        nn { functional, module SELU }

    /// x, or `alpha` (e^(x / alpha) - 1) below 0 (`torch.nn.functional.celu`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-2.0 * 2f64.ln(), 2.]);
    /// let expected = Tensor::from([-1.0, 2.0]);
    /// assert!(x.celu(2.0).allclose(&expected, Default::default()));
    /// assert!(x.celu_(2.0).allclose(&expected, Default::default()));
    /// ```
    pub float celu / celu_ (x; alpha = 1.0) = select(gt(x, 0.0), x, alpha * expm1(x / alpha));
        grad(g, x) { x: select(le(x, 0.0), g * exp(select(lt(x, 0.0), x, 0.0) / alpha), g) }
        nn { functional, module CELU }

    /// x tanh(log(1 + e^x)) (`torch.nn.functional.mish`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, (3f64.sqrt() - 1.).ln()]);
    /// let expected = Tensor::from([0.0, 0.5 * (3f64.sqrt() - 1.).ln()]);
    /// assert!(x.mish().allclose(&expected, Default::default()));
    /// assert!(x.mish_().allclose(&expected, Default::default()));
    /// ```
    // Beyond 40 the hyperbolic tangent is 1, and its derivative may be left out.
    pub float mish / mish_ (x) = x * tanh(log1p(exp(x)));
        grad(g, x) {
            x: g * (tanh(log1p(exp(select(lt(x, 40.0), x, 40.0))))
                + x * sigmoid(x)
                    * (1.0
                        - tanh(log1p(exp(select(lt(x, 40.0), x, 40.0))))
                            * tanh(log1p(exp(select(lt(x, 40.0), x, 40.0)))))),
        }
        nn { functional, module Mish }

    /// x / (1 + |x|) (`torch.nn.functional.softsign`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([1f32, -3.]).softsign().to_vec::<f32>(), [0.5, -0.75]);
    /// ```
    pub float softsign(x) = x / (1.0 + abs(x));
        grad(g, x) { x: g / (1.0 + abs(x)) * (1.0 - abs(x) / (1.0 + abs(x))) }
        nn { functional, module Softsign }

    /// x - tanh(x) (`torch.nn.functional.tanhshrink`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let expected = Tensor::from([0.0, 2f64.ln() - 0.6]);
    /// assert!(Tensor::from([0f64, 2f64.ln()]).tanhshrink().allclose(&expected, Default::default()));
    /// ```
    pub float tanhshrink(x) = x - tanh(x);
        grad(g, x) { x: g * tanh(x) * tanh(x) }
        nn { functional, module Tanhshrink }

    /// log(sigmoid(x)) (`torch.nn.functional.logsigmoid`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([0f64, -1000.]).logsigmoid();
    /// assert!(y.allclose(&Tensor::from([0.5f64.ln(), -1000.0]), Default::default()));
    /// ```
    pub float logsigmoid(x) = minimum(x, 0.0) - log1p(exp(-abs(x)));
        grad(g, x) { x: g * sigmoid(-x) }
        nn { functional, module LogSigmoid }

    /// (x + 3) / 6 between 0 and 1 (`torch.nn.functional.hardsigmoid`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-4f32, 0., 4.]);
    /// assert_eq!(x.hardsigmoid().to_vec::<f32>(), [0.0, 0.5, 1.0]);
    /// assert_eq!(x.hardsigmoid_().to_vec::<f32>(), [0.0, 0.5, 1.0]);
    /// ```
    pub float hardsigmoid / hardsigmoid_ (x) = minimum(maximum(x + 3.0, 0.0), 6.0) / 6.0;
        grad(g, x) { x: select(gt(x, -3.0) & lt(x, 3.0), g / 6.0, 0.0) }
        sample { x: -5.0..5.0 }
        nn { functional, module Hardsigmoid }

    /// x [`hardsigmoid(x)`](Self::hardsigmoid) (`torch.nn.functional.hardswish`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-4f64, 1., 4.]);
    /// let expected = Tensor::from([0.0, 2.0 / 3.0, 4.0]);
    /// assert!(x.hardswish().allclose(&expected, Default::default()));
    /// assert!(x.hardswish_().allclose(&expected, Default::default()));
    /// ```
    pub float hardswish / hardswish_ (x) = x * minimum(maximum(x + 3.0, 0.0), 6.0) / 6.0;
        grad(g, x) {
            x: select(le(x, -3.0), 0.0, select(lt(x, 3.0), g * (x / 3.0 + 0.5), g)),
        }
        sample { x: -5.0..5.0 }
        nn { functional, module Hardswish }

    /// x, but 0 from `-lambd` to `lambd` (`torch.nn.functional.hardshrink`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([-1f32, 0.5, 2.]).hardshrink(0.5).to_vec::<f32>(), [-1.0, 0.0, 2.0]);
    /// ```
    pub float hardshrink(x; lambd = 0.5) = select(ge(x, -lambd) & le(x, lambd), 0.0, x);
        grad(g, x) { x: select(lt(x, -lambd) | gt(x, lambd), g, 0.0) }
        nn { functional, module Hardshrink, settings unnamed }
}

crate::pointwise! {
    table checked without functions;

    /// x between two limits ([`Tensor::hardtanh`]).
    numeric hardtanh(x; min_val = -1.0, max_val = 1.0) = minimum(maximum(x, min_val), max_val);
        grad(g, x) { x: select(gt(x, min_val) & lt(x, max_val), g, 0.0) }
        nn { functional, module Hardtanh }

    /// x moved towards 0 by `lambd` ([`Tensor::softshrink`]).
    float softshrink(x; lambd = 0.5)
        = select(gt(x, lambd), x - lambd, select(lt(x, -lambd), x + lambd, x * 0.0));
        grad(g, x) { x: select(lt(x, -lambd) | gt(x, lambd), g, 0.0) }
        nn { functional, module Softshrink, settings unnamed }

    /// x, or `weight` times x below 0 ([`Tensor::prelu`]).
    float prelu(x, weight) = select(gt(x, 0.0), x, weight * x);
        grad(g, x, weight) {
            x: select(gt(x, 0.0), g, g * weight),
            weight: select(gt(x, 0.0), 0.0, g * x),
        }
        nn { functional }
}

impl Tensor {
    /// x between `min_val` and `max_val` (`torch.nn.functional.hardtanh`); PyTorch's defaults are -1
    /// and 1. [`relu6`](crate::nn::functional::relu6) is this from 0 to 6.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([-3f32, 0.5, 3.]).hardtanh(-1.0, 1.0).to_vec::<f32>(), [-1.0, 0.5, 1.0]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when `min_val` is above `max_val`.
    #[track_caller]
    pub fn hardtanh(&self, min_val: impl Into<Scalar>, max_val: impl Into<Scalar>) -> Tensor {
        let limits = checked_limits("hardtanh", min_val.into(), max_val.into());
        apply(&checked::hardtanh, &[self.into()], &limits)
    }

    /// In-place form of [`hardtanh`](Self::hardtanh).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-3f32, 0.5, 3.]);
    /// assert_eq!(x.hardtanh_(0.0, 2.0).to_vec::<f32>(), [0.0, 0.5, 2.0]);
    /// ```
    #[track_caller]
    pub fn hardtanh_(&self, min_val: impl Into<Scalar>, max_val: impl Into<Scalar>) -> &Tensor {
        let limits = checked_limits("hardtanh_", min_val.into(), max_val.into());
        apply_inplace(&checked::hardtanh, &[self.into()], &limits);
        self
    }

    /// x moved towards 0 by `lambd`, and 0 where that would pass it
    /// (`torch.nn.functional.softshrink`); PyTorch's default is 0.5.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([-2f32, 0.25, 2.]).softshrink(0.5).to_vec::<f32>(), [-1.5, 0.0, 1.5]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when `lambd` is negative.
    #[track_caller]
    pub fn softshrink(&self, lambd: f64) -> Tensor {
        if lambd.is_nan() || lambd < 0.0 {
            throw(Error::argument("softshrink", "lambd", format!("{lambd}; must be at least 0")));
        }
        apply(&checked::softshrink, &[self.into()], &[lambd.into()])
    }

    /// x, or `weight` times x below 0 (`torch.nn.functional.prelu`). One weight for all, or one per
    /// channel, the index of dimension 1; fewer dimensions are one channel.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[-2f32, -2.], [4., 4.]]);
    /// assert_eq!(x.prelu(&Tensor::from([0.5f32, 0.25])).to_vec::<f32>(), [-1.0, -0.5, 4.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when there are not as many weights as channels.
    #[track_caller]
    pub fn prelu(&self, weight: &Tensor) -> Tensor {
        cast_op!("prelu", [x = self, w = weight] => x.prelu(&w));
        let channels = if self.dim() < 2 { 1 } else { self.shape()[1] };
        let fits = weight.dim() <= 1 && (weight.numel() == 1 || weight.numel() == channels);
        if !fits || (self.dim() == 0 && weight.dim() > 0 && weight.numel() != 1) {
            throw(Error::shape(
                "prelu",
                format!(
                    "weights of shape {:?} for input {:?}; one, or one per channel, is needed",
                    weight.shape(),
                    self.shape()
                ),
            ));
        }
        let mut shape = vec![1i64; self.dim()];
        if self.dim() >= 2 {
            shape[1] = weight.numel() as i64;
        }
        apply(&checked::prelu, &[self.into(), (&weight.reshape(shape)).into()], &[])
    }
}

#[track_caller]
fn checked_limits(op: &str, min: Scalar, max: Scalar) -> [Scalar; 2] {
    if min.to_f64() > max.to_f64() {
        let (min, max) = (min.to_f64(), max.to_f64());
        throw(Error::argument(op, "min_val", format!("{min} is above max_val, {max}")));
    }
    [min, max]
}
