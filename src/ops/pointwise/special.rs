//! Rows: special functions (`torch.special`), and functions of two arguments that are made of
//! logarithms or angles.

use super::apply;
use super::underived::without_derivative_by;
use crate::error::{Error, throw};
use crate::tensor::{Dtype, Operand, Scalar, Tensor, result_type};

crate::pointwise! {
    table rows for Tensor;

    /// 1 - erf(x), exact where that is small (`torch.erfc`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, 10.]);
    /// assert_eq!(x.erfc().i(0).item(), 1.0);
    /// assert!((x.erfc_().i(1).item() / 2.088487583762545e-45 - 1.0).abs() < 1e-10);
    /// ```
    pub float erfc / erfc_ (x) = erfc(x);
        grad(g, x) { x: -(g * FRAC_2_SQRT_PI * exp(-(x * x))) }

    /// e^(x^2) erfc(x) (`torch.special.erfcx`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([0f64, 1.]).erfcx();
    /// assert!(y.allclose(&Tensor::from([1.0, 0.427583576155807]), Default::default()));
    /// ```
    pub float erfcx(x) = erfcx(x);
        grad(g, x, y) { x: g * (2.0 * x * y - FRAC_2_SQRT_PI) }

    /// Inverse of the error function (`torch.erfinv`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, 0.8427007929497149]);
    /// let expected = Tensor::from([0.0, 1.0]);
    /// assert!(x.erfinv().allclose(&expected, Default::default()));
    /// assert!(x.erfinv_().allclose(&expected, Default::default()));
    /// ```
    pub float erfinv / erfinv_ (x) = erfinv(x);
        grad(g, y) { x: g * 0.886_226_925_452_758 * exp(y * y) }
        sample { x: -0.9..0.9 }

    /// Logarithm of the gamma function's absolute value (`torch.lgamma`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f64, 5.]);
    /// let expected = Tensor::from([0.0, 24f64.ln()]);
    /// assert!(x.lgamma().allclose(&expected, Default::default()));
    /// assert!(x.lgamma_().allclose(&expected, Default::default()));
    /// ```
    pub float lgamma / lgamma_ (x) = lgamma(x);
        grad(g, x) { x: g * digamma(x) }
        sample { x: 0.3..5.0 }

    /// Derivative of [`lgamma`](Self::lgamma) (`torch.digamma`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f64, 2.]);
    /// let expected = Tensor::from([-0.5772156649015329, 0.4227843350984671]);
    /// assert!(x.digamma().allclose(&expected, Default::default()));
    /// assert!(x.digamma_().allclose(&expected, Default::default()));
    /// ```
    pub float digamma / digamma_ (x) = digamma(x);
        grad(g, x) { x: g * (trigamma(x) + select(lt(x, 0.0), 0.0 * (PI * x), 0.0)) }
        sample { x: 0.5..5.0 }

    // PyTorch reflects at 1/2 by the sine of pi x as it rounds it: poles are large numbers, and where the product
    // is no number of the type, NaN.
    /// Derivative of [`digamma`](Self::digamma) (`torch.polygamma` of order 1). At the poles below 0 it is large.
    ///
    /// ```
    /// use std::f64::consts::PI;
    /// use torchrs::Tensor;
    /// assert!((Tensor::from([1f64]).trigamma().item() - PI * PI / 6.0).abs() < 1e-12);
    /// assert!(Tensor::from([-1f64]).trigamma().item() > 1e32);
    /// ```
    pub float trigamma(x) = trigamma(x) + select(lt(x, 0.0), 0.0 * (PI * x), 0.0);
        grad(g, x) { x: -(g * 2.0 * zeta(3.0, x)) }
        sample { x: 0.5..5.0 }

    // 0 times infinity makes NaN of what PyTorch's quotients of infinities are.
    /// Modified Bessel function of the first kind and order 0 (`torch.i0`); NaN at infinity, as there.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, 1.]);
    /// let expected = Tensor::from([1.0, 1.2660658777520084]);
    /// assert!(x.i0().allclose(&expected, Default::default()));
    /// assert!(x.i0_().allclose(&expected, Default::default()));
    /// ```
    pub float i0 / i0_ (x) = i0(x) + 0.0 * x;
        grad(g, x) { x: g * (i1(x) + 0.0 * x) }

    /// Modified Bessel function of the first kind and order 1 (`torch.special.i1`); NaN at
    /// infinity, as there.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let expected = Tensor::from([0.0, 0.565159103992485]);
    /// assert!(Tensor::from([0f64, 1.]).i1().allclose(&expected, Default::default()));
    /// ```
    pub float i1(x) = i1(x) + 0.0 * x;
        grad(g, x, y) { x: g * i1_slope(x, y) }

    /// [`i0`](Self::i0) times e^-|x| (`torch.special.i0e`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, -1., 800.]);
    /// let y = x.i0e();
    /// let expected = Tensor::from([1.0, 0.46575960759364043]);
    /// assert!(y.narrow(0, 0, 2).allclose(&expected, Default::default()));
    /// assert!(y.i(2).item() > 0.01);
    /// ```
    pub float i0e(x) = i0e(x);
        grad(g, x, y) { x: g * (i1e(x) - sign(x) * y) }

    /// [`i1`](Self::i1) times e^-|x| (`torch.special.i1e`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, 1., 800.]);
    /// let y = x.i1e();
    /// assert!(y.narrow(0, 0, 2).allclose(&Tensor::from([0.0, 0.2079104153497085]), Default::default()));
    /// assert!(y.i(2).item() > 0.01);
    /// ```
    pub float i1e(x) = i1e(x);
        grad(g, x, y) {
            x: g * (select(
                lt(abs(x), 0.25),
                i1_slope_near(x) * exp(-abs(x)),
                i0e(x) - y / select(lt(abs(x), 0.25), 1.0, x)
            ) - y * sign(x)),
        }

    /// Entropy -x log(x) of a probability, minus infinity below 0 (`torch.special.entr`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([0f64, 0.5, -1.]).entr();
    /// assert!(y.narrow(0, 0, 2).allclose(&Tensor::from([0.0, 0.5 * 2f64.ln()]), Default::default()));
    /// assert_eq!(y.i(2).item(), f64::NEG_INFINITY);
    /// ```
    pub float entr(x)
        = select(lt(x, 0.0), -INFINITY, select(eq(x, 0.0), 0.0, -(x * log(x))));
        grad(g, x) { x: -(g * (log(x) + 1.0)) }
        sample { x: 0.2..3.0 }

    /// Distribution function of the normal distribution (`torch.special.ndtr`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let expected = Tensor::from([0.5, 0.8413447460685429]);
    /// assert!(Tensor::from([0f64, 1.]).ndtr().allclose(&expected, Default::default()));
    /// ```
    pub float ndtr(x) = 0.5 * erfc(x * -FRAC_1_SQRT_2);
        grad(g, x) { x: g * 0.398_942_280_401_432_7 * exp(-0.5 * x * x) }

    /// Inverse of [`ndtr`](Self::ndtr) (`torch.special.ndtri`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let expected = Tensor::from([0.0, 1.0]);
    /// assert!(Tensor::from([0.5f64, 0.8413447460685429]).ndtri().allclose(&expected, Default::default()));
    /// ```
    pub float ndtri(x) = ndtri(x);
        grad(g, y) { x: g * 2.506_628_274_631_000_7 * exp(0.5 * y * y) }
        sample { x: 0.05..0.95 }

    // y - y is NaN where y is infinite, and so is PyTorch's derivative.
    /// Logarithm of [`ndtr`](Self::ndtr), exact where that is small (`torch.special.log_ndtr`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([0f64, -40.]).log_ndtr();
    /// assert!(y.allclose(&Tensor::from([0.5f64.ln(), -804.6084420137538]), Default::default()));
    /// ```
    pub float log_ndtr(x)
        = select(
            lt(x, 1.0),
            log(0.5 * erfcx(x * -FRAC_1_SQRT_2)) - 0.5 * x * x,
            log1p(-0.5 * erfc(x * FRAC_1_SQRT_2))
        );
        grad(g, x, y) {
            x: g * (0.797_884_560_802_865_4 * select(lt(x, 0.0), 1.0, exp(-0.5 * x * x))
                / (select(lt(x, 0.0), 0.0, 2.0)
                    + select(lt(x, 0.0), 1.0, -exp(-0.5 * x * x))
                        * erfcx(select(lt(x, 0.0), -x, select(gt(x, 1e3), 1.0, x)) * FRAC_1_SQRT_2))
                + 0.0 * y),
        }

    /// Length of the hypotenuse, sqrt(x^2 + other^2) without overflow (`torch.hypot`); infinite where
    /// one of the two is, whatever the other.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([3f32, 3e38]);
    /// assert_eq!(x.hypot(&Tensor::from([4f32, 0.])).to_vec::<f32>(), [5.0, 3e38]);
    /// assert_eq!(x.narrow(0, 0, 1).hypot_(4.0).to_vec::<f32>(), [5.0]);
    /// ```
    pub float hypot / hypot_ (x, other)
        = select(
            eq(abs(x), INFINITY) | eq(abs(other), INFINITY),
            INFINITY,
            select(eq(maximum(abs(x), abs(other)), 0.0), 0.0,
            maximum(abs(x), abs(other))
                * sqrt(1.0 + minimum(abs(x), abs(other)) / maximum(abs(x), abs(other))
                    * (minimum(abs(x), abs(other)) / maximum(abs(x), abs(other)))))
        );
        grad(g, x, other, y) {
            x: g * select(eq(y, 0.0), 0.0, x / select(eq(y, 0.0), 1.0, y)),
            other: g * select(eq(y, 0.0), 0.0, other / select(eq(y, 0.0), 1.0, y)),
        }

    /// Angle of the point with ordinate `x` and abscissa `other` (`torch.atan2`).
    ///
    /// ```
    /// use std::f64::consts::FRAC_PI_4;
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f64, -1.]);
    /// let expected = Tensor::from([2.356194490192345, -2.356194490192345]);
    /// assert!(x.atan2(-1.0).allclose(&expected, Default::default()));
    /// let expected = Tensor::from([FRAC_PI_4, -FRAC_PI_4]);
    /// assert!(x.atan2_(1.0).allclose(&expected, Default::default()));
    /// ```
    pub float atan2 / atan2_ (x, other) = atan2(x, other);
        grad(g, x, other) {
            x: g * over_squares(other, x),
            other: -(g * over_squares(x, other)),
        }
        sample { other: 0.3..3.0 }

    /// x log(other), and 0 where x is 0 (`torch.xlogy`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, 3.]);
    /// let expected = Tensor::from([0.0, 8f64.ln()]);
    /// assert!(x.xlogy(&Tensor::from([0f64, 2.])).allclose(&expected, Default::default()));
    /// assert!(x.xlogy_(2.0).allclose(&expected, Default::default()));
    /// ```
    pub float xlogy / xlogy_ (x, other)
        = select(eq(x, 0.0) & eq(other, other), 0.0, x * log(other));
        grad(g, x, other) {
            x: select(eq(x, 0.0) & le(other, 0.0), 0.0, g * log(other)),
            other: g * x / other,
        }
        sample { other: 0.3..3.0 }

    /// x log(1 + other), and 0 where x is 0 (`torch.special.xlog1py`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, 3.]);
    /// let expected = Tensor::from([0.0, 8f64.ln()]);
    /// assert!(x.xlog1py(&Tensor::from([-1f64, 1.])).allclose(&expected, Default::default()));
    /// ```
    pub float xlog1py(x, other)
        = select(eq(x, 0.0) & eq(other, other), 0.0, x * log1p(other));
        grad(g, x, other) {
            x: select(eq(x, 0.0) & le(other, -1.0), 0.0, g * log1p(other)),
            other: g * x / (other + 1.0),
        }
        sample { other: -0.6..3.0 }

    /// log(e^x + e^other) without overflow (`torch.logaddexp`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([2f64.ln(), 1000.]);
    /// let expected = Tensor::from([5f64.ln(), 1000.0]);
    /// assert!(x.logaddexp(&Tensor::from([3f64.ln(), 0.])).allclose(&expected, Default::default()));
    /// ```
    pub float logaddexp(x, other)
        = select(eq(x, other), x + LN_2, maximum(x, other) + log1p(exp(-abs(x - other))));
        grad(g, x, other) { x: g * sigmoid(x - other), other: g * sigmoid(other - x) }

    /// log2(2^x + 2^other) without overflow (`torch.logaddexp2`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([3f64, 2000.]);
    /// let expected = Tensor::from([4.0, 2000.0]);
    /// assert!(x.logaddexp2(&Tensor::from([3f64, 0.])).allclose(&expected, Default::default()));
    /// ```
    pub float logaddexp2(x, other)
        = select(eq(x, other), x + 1.0, maximum(x, other) + log1p(exp2(-abs(x - other))) * LOG2_E);
        grad(g, x, other) { x: g * sigmoid((x - other) * LN_2), other: g * sigmoid((other - x) * LN_2) }
}

crate::pointwise! {
    table checked without functions;

    /// Hurwitz's zeta function ([`Tensor::zeta`]).
    float zeta(x, q) = zeta(x, q);
        grad(g, x, q) { q: -(g * x * zeta(x + 1.0, q)) }
        sample { x: 2.0..4.0, q: 0.7..3.0 }

    /// The next number ([`Tensor::nextafter`]). Where both are equal PyTorch's derivative is 0.
    float nextafter(x, other) = nextafter(x, other);
        grad(g, x, other) { x: select(ne(x, other), g, 0.0), other: 0.0 }
        sample { x: 0.5..1.5, other: 2.0..3.0 }

    // A little more than half of the way to the next number above is rounded to the next number in either direction: of
    // a power of two the number below is half as far. `share` is that way by `x`, `least` that from 0.
    /// The next number of a half type, whose largest is `most` ([`Tensor::nextafter`]).
    float nextafter_half(x, other; share = 0.003_910_064, least = 6.887_662_6e-41, most = 3.389_531_389_251_535_5e38)
        = select(
            eq(x, other) | ne(x, x) | ne(other, other),
            select(eq(x, other), other, x + other),
            select(
                eq(abs(x), INFINITY),
                sign(x) * most,
                x + select(gt(other, x), 1.0, -1.0) * maximum(abs(x) * share, least)
            )
        );
        grad(g, x, other) { x: select(ne(x, other), g, 0.0), other: 0.0 }
}

/// Hurwitz's zeta function of tensors or numbers.
#[track_caller]
pub(in crate::ops) fn zeta(x: Operand<'_>, q: Operand<'_>) -> Tensor {
    without_derivative_by("zeta", "self", x, apply(&checked::zeta, &[x, q], &[]))
}

impl Tensor {
    /// Hurwitz's zeta function, the sum over k >= 0 of 1 / (q + k)^x (`torch.special.zeta`).
    ///
    /// ```
    /// use std::f64::consts::PI;
    /// use torchrs::Tensor;
    /// let y = Tensor::from([2f64, 4.]).zeta(1.0);
    /// let pi = PI;
    /// assert!(y.allclose(&Tensor::from([pi * pi / 6.0, pi.powi(4) / 90.0]), Default::default()));
    /// ```
    ///
    /// # Panics
    /// Backward throws where `self` requires a gradient: PyTorch has no derivative by the exponent.
    #[track_caller]
    pub fn zeta<'a>(&'a self, other: impl Into<Operand<'a>>) -> Tensor {
        zeta(self.into(), other.into())
    }

    /// In-place form of [`mvlgamma`](Self::mvlgamma).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([2f64]);
    /// assert!((x.mvlgamma_(1).item()).abs() < 1e-12);
    /// ```
    ///
    /// # Panics
    /// As [`mvlgamma`](Self::mvlgamma); throws [`Error::Dtype`] for integers.
    #[track_caller]
    pub fn mvlgamma_(&self, p: u32) -> &Tensor {
        if !self.dtype().is_floating_point() {
            crate::tensor::dtype::not_floating("mvlgamma_", self.dtype());
        }
        self.assign_same_shape("mvlgamma_", &self.clone_contiguous().mvlgamma(p))
    }

    /// Derivative of order `n` of [`digamma`](Self::digamma) (`torch.polygamma`), which is
    /// `(-1)^(n + 1) n! zeta(n + 1, x)`.
    ///
    /// ```
    /// use std::f64::consts::PI;
    /// use torchrs::Tensor;
    /// let pi = PI;
    /// assert!((Tensor::from([1f64]).polygamma(1).item() - pi * pi / 6.0).abs() < 1e-6);
    /// ```
    #[track_caller]
    pub fn polygamma(&self, n: u32) -> Tensor {
        if n == 0 {
            return self.digamma();
        }
        if n == 1 {
            return self.trigamma();
        }
        let factorial: f64 = (1..=n).map(f64::from).product();
        let factor = if n % 2 == 1 { factorial } else { -factorial };
        let order = f64::from(n) + 1.0;
        apply(&checked::zeta, &[order.into(), self.into()], &[]) * factor
    }

    /// Logarithm of the multivariate gamma function of dimension `p`
    /// (`torch.special.multigammaln`, `torch.mvlgamma`):
    /// `p (p - 1) / 4 log(pi)` and the sum of `lgamma(x - j / 2)` over j below p.
    ///
    /// ```
    /// use std::f64::consts::PI;
    /// use torchrs::Tensor;
    /// assert!((Tensor::from([1f64]).mvlgamma(2).item() - PI.ln()).abs() < 1e-6);
    /// ```
    #[track_caller]
    pub fn mvlgamma(&self, p: u32) -> Tensor {
        if p == 0 {
            throw(Error::argument("mvlgamma", "p", "0; must be at least 1"));
        }
        let dimension = f64::from(p);
        let constant = dimension * (dimension - 1.0) / 4.0 * std::f64::consts::PI.ln();
        let sum = (1..p).fold(self.lgamma(), |sum, j| sum + (self - 0.5 * f64::from(j)).lgamma());
        sum + constant
    }

    /// In-place form of [`polygamma`](Self::polygamma).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([2f64]);
    /// assert!((x.polygamma_(0).item() - 0.4227843350984671).abs() < 1e-6);
    /// ```
    #[track_caller]
    pub fn polygamma_(&self, n: u32) -> &Tensor {
        self.copy_(&self.clone_contiguous().polygamma(n))
    }

    /// The next number of the type in the direction of `other` (`torch.nextafter`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([1f64, 1.]).nextafter(&Tensor::from([2f64, 1.]));
    /// assert_eq!(y.to_vec::<f64>(), [1.0 + f64::EPSILON, 1.0]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] for integers.
    #[track_caller]
    pub fn nextafter<'a>(&self, other: impl Into<Operand<'a>>) -> Tensor {
        let other = other.into();
        let dtype = result_type(self, other);
        let half = |digits: i32, least: f64, most: f64| {
            let share = 0.5f64.powi(digits) * (1.0 + 0.5f64.powi(10));
            apply(
                &checked::nextafter_half,
                &[self.into(), other],
                &[share, 0.75 * least, most].map(Scalar::F),
            )
        };
        match dtype {
            Dtype::F16 => half(11, 0.5f64.powi(24), 65504.0),
            Dtype::BF16 => half(8, 0.5f64.powi(133), f64::from(half::bf16::MAX)),
            _ if dtype.is_floating_point() => {
                apply(&checked::nextafter, &[self.into(), other], &[])
            }
            _ => throw(Error::dtype(
                "nextafter",
                format!("takes floating-point tensors, got {dtype}"),
            )),
        }
    }

    /// In-place form of [`nextafter`](Self::nextafter).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32]);
    /// assert_eq!(x.nextafter_(2.0).to_vec::<f32>(), [1.0 + f32::EPSILON]);
    /// ```
    #[track_caller]
    pub fn nextafter_<'a>(&self, other: impl Into<Operand<'a>>) -> &Tensor {
        self.assign_same_shape("nextafter_", &self.clone_contiguous().nextafter(other))
    }
}
