//! Rows: elementary functions and rounding.

use super::complex::by_pairs;
use super::{apply, apply_inplace};
use crate::error::{Error, throw};
use crate::tensor::{Dtype, Scalar, Tensor};

crate::pointwise! {
    table rows for Tensor;

    /// e^x (`torch.exp`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, 1.]);
    /// let expected = Tensor::from([1.0, 2.718281828459045]);
    /// assert!(x.exp().allclose(&expected, Default::default()));
    /// assert!(x.exp_().allclose(&expected, Default::default()));
    /// ```
    pub float exp / exp_ (x) = exp(x);
        grad(g, y) { x: g * y }
        complex(z) { exp(&z.z(0)) }

    /// 2^x (`torch.exp2`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([3f32, -1.]);
    /// assert_eq!(x.exp2().to_vec::<f32>(), [8.0, 0.5]);
    /// assert_eq!(x.exp2_().to_vec::<f32>(), [8.0, 0.5]);
    /// ```
    pub float exp2 / exp2_ (x) = exp2(x);
        grad(g, y) { x: g * y * LN_2 }

    /// e^x - 1, exact near 0 (`torch.expm1`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, 1e-20]);
    /// assert_eq!(x.expm1().to_vec::<f64>(), [0.0, 1e-20]);
    /// assert_eq!(x.expm1_().to_vec::<f64>(), [0.0, 1e-20]);
    /// ```
    pub float expm1 / expm1_ (x) = expm1(x);
        grad(g, y) { x: g * (y + 1.0) }

    /// Natural logarithm (`torch.log`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f64, 10.]);
    /// let expected = Tensor::from([0.0, 2.302585092994046]);
    /// assert!(x.log().allclose(&expected, Default::default()));
    /// assert!(x.log_().allclose(&expected, Default::default()));
    /// ```
    pub float log / log_ (x) = log(x);
        grad(g, x) { x: g / x }
        sample { x: 0.3..5.0 }
        complex(z) { Tensor::complex(&abs(&z.z(0)).log(), &angle(&z.z(0))) }

    /// log(1 + x), exact near 0 (`torch.log1p`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, 1e-20]);
    /// assert_eq!(x.log1p().to_vec::<f64>(), [0.0, 1e-20]);
    /// assert_eq!(x.log1p_().to_vec::<f64>(), [0.0, 1e-20]);
    /// ```
    pub float log1p / log1p_ (x) = log1p(x);
        grad(g, x) { x: g / (x + 1.0) }
        sample { x: -0.6..4.0 }

    /// Logarithm to base 2 (`torch.log2`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([8f64, 0.5]);
    /// let expected = Tensor::from([3.0, -1.0]);
    /// assert!(x.log2().allclose(&expected, Default::default()));
    /// assert!(x.log2_().allclose(&expected, Default::default()));
    /// ```
    pub float log2 / log2_ (x) = log2(x);
        grad(g, x) { x: g / (x * LN_2) }
        sample { x: 0.3..5.0 }

    /// Logarithm to base 10 (`torch.log10`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1000f64, 0.1]);
    /// let expected = Tensor::from([3.0, -1.0]);
    /// assert!(x.log10().allclose(&expected, Default::default()));
    /// assert!(x.log10_().allclose(&expected, Default::default()));
    /// ```
    pub float log10 / log10_ (x) = log10(x);
        grad(g, x) { x: g / (x * LN_10) }
        sample { x: 0.3..5.0 }

    /// Square root (`torch.sqrt`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([9f32, 0.25]);
    /// assert_eq!(x.sqrt().to_vec::<f32>(), [3.0, 0.5]);
    /// assert_eq!(x.sqrt_().to_vec::<f32>(), [3.0, 0.5]);
    /// ```
    pub float sqrt / sqrt_ (x) = sqrt(x);
        grad(g, y) { x: g / (y * 2.0) }
        sample { x: 0.3..5.0 }
        complex(z) { sqrt(&z.z(0)) }

    /// 1 / sqrt(x) (`torch.rsqrt`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([4f64, 0.25]);
    /// let expected = Tensor::from([0.5, 2.0]);
    /// assert!(x.rsqrt().allclose(&expected, Default::default()));
    /// assert!(x.rsqrt_().allclose(&expected, Default::default()));
    /// ```
    pub float rsqrt / rsqrt_ (x) = rsqrt(x);
        grad(g, y) { x: g * -0.5 * y * y * y }
        sample { x: 0.3..5.0 }
        complex(z) { sqrt(&z.z(0)).reciprocal() }

    /// Sine (`torch.sin`).
    ///
    /// ```
    /// use std::f64::consts::FRAC_PI_6;
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, FRAC_PI_6]);
    /// let expected = Tensor::from([0.0, 0.5]);
    /// assert!(x.sin().allclose(&expected, Default::default()));
    /// assert!(x.sin_().allclose(&expected, Default::default()));
    /// ```
    pub float sin / sin_ (x) = sin(x);
        grad(g, x) { x: g * cos(x) }
        complex(z) { of_parts(&z.z(0), |a, b| a.sin() * b.cosh(), |a, b| a.cos() * b.sinh()) }

    /// Cosine (`torch.cos`).
    ///
    /// ```
    /// use std::f64::consts::FRAC_PI_3;
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, FRAC_PI_3]);
    /// let expected = Tensor::from([1.0, 0.5]);
    /// assert!(x.cos().allclose(&expected, Default::default()));
    /// assert!(x.cos_().allclose(&expected, Default::default()));
    /// ```
    pub float cos / cos_ (x) = cos(x);
        grad(g, x) { x: -(g * sin(x)) }
        complex(z) { of_parts(&z.z(0), |a, b| a.cos() * b.cosh(), |a, b| -(a.sin() * b.sinh())) }

    /// Tangent (`torch.tan`).
    ///
    /// ```
    /// use std::f64::consts::FRAC_PI_4;
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, FRAC_PI_4]);
    /// let expected = Tensor::from([0.0, 1.0]);
    /// assert!(x.tan().allclose(&expected, Default::default()));
    /// assert!(x.tan_().allclose(&expected, Default::default()));
    /// ```
    pub float tan / tan_ (x) = tan(x);
        grad(g, y) { x: g * stepwise(y * y + 1.0) }
        sample { x: -1.2..1.2 }

    /// Inverse sine (`torch.asin`).
    ///
    /// ```
    /// use std::f64::consts::FRAC_PI_2;
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, 1.]);
    /// let expected = Tensor::from([0.0, FRAC_PI_2]);
    /// assert!(x.asin().allclose(&expected, Default::default()));
    /// assert!(x.asin_().allclose(&expected, Default::default()));
    /// ```
    pub float asin / asin_ (x) = asin(x);
        grad(g, x) { x: g * rsqrt(1.0 - x * x) }
        sample { x: -0.8..0.8 }

    /// Inverse cosine (`torch.acos`).
    ///
    /// ```
    /// use std::f64::consts::{FRAC_PI_3, PI};
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0.5f64, -1.]);
    /// let expected = Tensor::from([FRAC_PI_3, PI]);
    /// assert!(x.acos().allclose(&expected, Default::default()));
    /// assert!(x.acos_().cos_().allclose(&Tensor::from([0.5, -1.0]), Default::default()));
    /// ```
    pub float acos / acos_ (x) = acos(x);
        grad(g, x) { x: -(g * rsqrt(1.0 - x * x)) }
        sample { x: -0.8..0.8 }

    /// Inverse tangent (`torch.atan`).
    ///
    /// ```
    /// use std::f64::consts::FRAC_PI_4;
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, 1.]);
    /// let expected = Tensor::from([0.0, FRAC_PI_4]);
    /// assert!(x.atan().allclose(&expected, Default::default()));
    /// assert!(x.atan_().allclose(&expected, Default::default()));
    /// ```
    pub float atan / atan_ (x) = atan(x);
        grad(g, x) { x: g / (x * x + 1.0) }

    /// Hyperbolic sine (`torch.sinh`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, 2f64.ln()]);
    /// let expected = Tensor::from([0.0, 0.75]);
    /// assert!(x.sinh().allclose(&expected, Default::default()));
    /// assert!(x.sinh_().allclose(&expected, Default::default()));
    /// ```
    pub float sinh / sinh_ (x) = sinh(x);
        grad(g, x) { x: g * cosh(x) }
        complex(z) { of_parts(&z.z(0), |a, b| a.sinh() * b.cos(), |a, b| a.cosh() * b.sin()) }

    /// Hyperbolic cosine (`torch.cosh`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, 2f64.ln()]);
    /// let expected = Tensor::from([1.0, 1.25]);
    /// assert!(x.cosh().allclose(&expected, Default::default()));
    /// assert!(x.cosh_().allclose(&expected, Default::default()));
    /// ```
    pub float cosh / cosh_ (x) = cosh(x);
        grad(g, x) { x: g * sinh(x) }
        complex(z) { of_parts(&z.z(0), |a, b| a.cosh() * b.cos(), |a, b| a.sinh() * b.sin()) }

    /// Hyperbolic tangent (`torch.tanh`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, 2f64.ln()]);
    /// let expected = Tensor::from([0.0, 0.6]);
    /// assert!(x.tanh().allclose(&expected, Default::default()));
    /// assert!(x.tanh_().allclose(&expected, Default::default()));
    /// ```
    pub float tanh / tanh_ (x) = tanh(x);
        grad(g, y) { x: g * (1.0 - y * y) }
        nn { functional, module Tanh }

    /// Inverse hyperbolic sine (`torch.asinh`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, 0.75]);
    /// let expected = Tensor::from([0.0, 2f64.ln()]);
    /// assert!(x.asinh().allclose(&expected, Default::default()));
    /// assert!(x.asinh_().allclose(&expected, Default::default()));
    /// ```
    pub float asinh / asinh_ (x)
        = sign(x) * select(
            gt(abs(x), 1e8),
            log(abs(x)) + LN_2,
            log1p(abs(x) + x * x / (1.0 + sqrt(x * x + 1.0)))
        );
        grad(g, x) { x: g * rsqrt(x * x + 1.0) }

    /// Inverse hyperbolic cosine (`torch.acosh`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f64, 1.25]);
    /// let expected = Tensor::from([0.0, 2f64.ln()]);
    /// assert!(x.acosh().allclose(&expected, Default::default()));
    /// assert!(x.acosh_().allclose(&expected, Default::default()));
    /// ```
    pub float acosh / acosh_ (x)
        = select(
            gt(x, 1e8) | lt(x, 0.0),
            log(x) + LN_2,
            log1p(x - 1.0 + sqrt((x - 1.0) * (x + 1.0)))
        );
        grad(g, x) { x: g * rsqrt(x * x - 1.0) }
        sample { x: 1.3..4.0 }

    /// Inverse hyperbolic tangent (`torch.atanh`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, 0.6]);
    /// let expected = Tensor::from([0.0, 2f64.ln()]);
    /// assert!(x.atanh().allclose(&expected, Default::default()));
    /// assert!(x.atanh_().allclose(&expected, Default::default()));
    /// ```
    pub float atanh / atanh_ (x) = sign(x) * 0.5 * log1p(2.0 * abs(x) / (1.0 - abs(x)));
        grad(g, x) { x: g / (1.0 - x * x) }
        sample { x: -0.8..0.8 }

    /// sin(pi x) / (pi x), and 1 at 0 (`torch.sinc`).
    ///
    /// ```
    /// use std::f64::consts::FRAC_2_PI;
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, 0.5, 1.]);
    /// let expected = Tensor::from([1.0, FRAC_2_PI, 0.0]);
    /// assert!(x.sinc().allclose(&expected, Default::default()));
    /// assert!(x.sinc_().allclose(&expected, Default::default()));
    /// ```
    pub float sinc / sinc_ (x) = select(eq(x, 0.0), 1.0, sin(x * PI) / (x * PI));
        grad(g, x) { x: g * sinc_slope(x) }

    /// Degrees as radians (`torch.deg2rad`).
    ///
    /// ```
    /// use std::f64::consts::{FRAC_PI_2, PI};
    /// use torchrs::Tensor;
    /// let x = Tensor::from([180f64, -90.]);
    /// let expected = Tensor::from([PI, -FRAC_PI_2]);
    /// assert!(x.deg2rad().allclose(&expected, Default::default()));
    /// assert!(x.deg2rad_().rad2deg_().allclose(&Tensor::from([180.0, -90.0]), Default::default()));
    /// ```
    pub float deg2rad / deg2rad_ (x) = x * 0.017_453_292_519_943_295;
        grad(g) { x: g * 0.017_453_292_519_943_295 }

    /// Radians as degrees (`torch.rad2deg`).
    ///
    /// ```
    /// use std::f64::consts::PI;
    /// use torchrs::Tensor;
    /// let x = Tensor::from([PI, 0.]);
    /// let expected = Tensor::from([180.0, 0.0]);
    /// assert!(x.rad2deg().allclose(&expected, Default::default()));
    /// assert!(x.rad2deg_().allclose(&expected, Default::default()));
    /// ```
    pub float rad2deg / rad2deg_ (x) = x * 57.295_779_513_082_32;
        grad(g) { x: g * 57.295_779_513_082_32 }

    /// Angle of a number in the complex plane, pi for negative ones (`torch.angle`).
    ///
    /// ```
    /// use std::f64::consts::{FRAC_PI_2, PI};
    /// use torchrs::{Complex, Tensor};
    /// let x = Tensor::from([Complex::new(0f64, 2.), Complex::new(-1., 0.)]);
    /// let expected = Tensor::from([FRAC_PI_2, PI]);
    /// assert!(x.angle().allclose(&expected, Default::default()));
    /// assert_eq!(Tensor::from([3f64, -3.]).angle().to_vec::<f64>(), [0.0, PI]);
    /// ```
    pub float angle(x) = select(ne(x, x), x, select(lt(x, 0.0), PI, 0.0));
        grad(g) { x: 0.0 }
        complex(z) { angle(&z.z(0)) }

    /// Error function (`torch.erf`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, 1.]);
    /// let expected = Tensor::from([0.0, 0.8427007929497149]);
    /// assert!(x.erf().allclose(&expected, Default::default()));
    /// assert!(x.erf_().allclose(&expected, Default::default()));
    /// ```
    pub float erf / erf_ (x) = erf(x);
        grad(g, x) { x: g * FRAC_2_SQRT_PI * exp(-(x * x)) }

    /// Logistic function 1 / (1 + e^-x) (`torch.sigmoid`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f64, 3f64.ln()]);
    /// let expected = Tensor::from([0.5, 0.75]);
    /// assert!(x.sigmoid().allclose(&expected, Default::default()));
    /// assert!(x.sigmoid_().allclose(&expected, Default::default()));
    /// ```
    pub float sigmoid / sigmoid_ (x) = sigmoid(x);
        grad(g, y) { x: g * y * (1.0 - y) }
        nn { functional, module Sigmoid }

    /// Largest integer not above (`torch.floor`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1.5f32, -1.5]);
    /// assert_eq!(x.floor().to_vec::<f32>(), [1.0, -2.0]);
    /// assert_eq!(x.floor_().to_vec::<f32>(), [1.0, -2.0]);
    /// ```
    pub numeric floor / floor_ (x) = floor(x);
        grad(g) { x: 0.0 }

    /// Smallest integer not below (`torch.ceil`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1.5f32, -1.5]);
    /// assert_eq!(x.ceil().to_vec::<f32>(), [2.0, -1.0]);
    /// assert_eq!(x.ceil_().to_vec::<f32>(), [2.0, -1.0]);
    /// ```
    pub numeric ceil / ceil_ (x) = ceil(x);
        grad(g) { x: 0.0 }

    /// Nearest integer, ties to the even one (`torch.round`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0.5f32, 1.5, -2.6]);
    /// assert_eq!(x.round().to_vec::<f32>(), [0.0, 2.0, -3.0]);
    /// assert_eq!(x.round_().to_vec::<f32>(), [0.0, 2.0, -3.0]);
    /// ```
    pub numeric round / round_ (x) = round(x);
        grad(g) { x: 0.0 }

    /// Integer part, towards zero (`torch.trunc`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1.5f32, -1.5]);
    /// assert_eq!(x.trunc().to_vec::<f32>(), [1.0, -1.0]);
    /// assert_eq!(x.trunc_().to_vec::<f32>(), [1.0, -1.0]);
    /// ```
    pub numeric trunc / trunc_ (x) = trunc(x);
        grad(g) { x: 0.0 }

    /// Part after the point, with the sign of x (`torch.frac`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1.5f32, -1.25]);
    /// assert_eq!(x.frac().to_vec::<f32>(), [0.5, -0.25]);
    /// assert_eq!(x.frac_().to_vec::<f32>(), [0.5, -0.25]);
    /// ```
    pub numeric frac / frac_ (x) = x - trunc(x);
        grad(g) { x: g }
}

crate::pointwise! {
    table checked without functions;

    /// log(x / (1 - x)) ([`Tensor::logit`]).
    float logit(x) = log(x / (1.0 - x));
        grad(g, x, y) { x: select(ne(y, y), y, g / (x * (1.0 - x))) }
        sample { x: 0.1..0.9 }

    /// Numbers for NaN and the infinities ([`Tensor::nan_to_num`]).
    arith nan_to_num(x; nan = 0.0, posinf = 1e30, neginf = -1e30)
        = select(ne(x, x), nan, select(eq(x, INFINITY), posinf, select(eq(x, -INFINITY), neginf, x)));
        grad(g, x) { x: select(lt(abs(x), INFINITY), g, 0.0) }
}

impl Tensor {
    /// log(x / (1 - x)), the inverse of the logistic function; `x` is first brought between `eps` and
    /// `1 - eps` if that is given (`torch.logit`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0.5f64, 1.]);
    /// assert_eq!(x.logit(None).to_vec::<f64>(), [0.0, f64::INFINITY]);
    /// assert!(x.logit(Some(0.25)).allclose(&Tensor::from([0.0, 3f64.ln()]), Default::default()));
    /// ```
    #[track_caller]
    pub fn logit(&self, eps: Option<f64>) -> Tensor {
        match eps {
            None => apply(&checked::logit, &[self.into()], &[]),
            Some(eps) => {
                // The lower limit wins where they cross.
                let high = self.gt(1.0 - eps).where_(1.0 - eps, self);
                let inside = self.lt(eps).where_(eps, &high);
                apply(&checked::logit, &[(&inside).into()], &[])
            }
        }
    }

    /// In-place form of [`logit`](Self::logit) (`torch.Tensor.logit_`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0.5f64, 0.75]);
    /// assert!(x.logit_(None).allclose(&Tensor::from([0.0, 3f64.ln()]), Default::default()));
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] for integers and bools, which cannot hold the result.
    #[track_caller]
    pub fn logit_(&self, eps: Option<f64>) -> &Tensor {
        if !self.dtype().is_floating_point() {
            crate::tensor::dtype::not_floating("logit_", self.dtype());
        }
        self.copy_(&self.clone_contiguous().logit(eps))
    }

    /// `nan` for NaN, `posinf` and `neginf` for the infinities; without a value the largest and the
    /// smallest number of the type (`torch.nan_to_num`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([f32::NAN, f32::INFINITY, 1.]);
    /// assert_eq!(x.nan_to_num(0.0, Some(9.0), None).to_vec::<f32>(), [0.0, 9.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn nan_to_num(&self, nan: f64, posinf: Option<f64>, neginf: Option<f64>) -> Tensor {
        if self.is_complex() {
            return by_pairs(self, |pairs| pairs.nan_to_num(nan, posinf, neginf));
        }
        if !self.dtype().is_floating_point() {
            return self.clone_contiguous();
        }
        let params = replacements(self.dtype(), nan, posinf, neginf);
        apply(&checked::nan_to_num, &[self.into()], &params)
    }

    /// Rounded to `decimals` places after the point, or before it when negative
    /// (`torch.round` with `decimals`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1.375f64, -126.0]);
    /// assert!(x.round_decimals(2).allclose(&Tensor::from([1.38, -126.0]), Default::default()));
    /// assert_eq!(x.round_decimals(-1).to_vec::<f64>(), [0.0, -130.0]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] for integers, unless `decimals` is 0.
    #[track_caller]
    pub fn round_decimals(&self, decimals: i32) -> Tensor {
        if decimals == 0 {
            return self.round();
        }
        if !self.dtype().is_floating_point() {
            throw(Error::dtype(
                "round_decimals",
                format!("takes floating-point tensors, got {}", self.dtype()),
            ));
        }
        let scale = 10f64.powi(decimals.abs());
        if decimals > 0 { (self * scale).round() / scale } else { (self / scale).round() * scale }
    }

    /// In-place form of [`nan_to_num`](Self::nan_to_num).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([f32::NAN, f32::NEG_INFINITY]);
    /// assert_eq!(x.nan_to_num_(7.0, None, None).to_vec::<f32>(), [7.0, f32::MIN]);
    /// ```
    #[track_caller]
    pub fn nan_to_num_(&self, nan: f64, posinf: Option<f64>, neginf: Option<f64>) -> &Tensor {
        if self.is_complex() {
            self.view_as_real().nan_to_num_(nan, posinf, neginf);
        } else if self.dtype().is_floating_point() {
            let params = replacements(self.dtype(), nan, posinf, neginf);
            apply_inplace(&checked::nan_to_num, &[self.into()], &params);
        }
        self
    }

    /// In-place form of [`round_decimals`](Self::round_decimals).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1.26f64, -1.24]);
    /// assert!(x.round_decimals_(1).allclose(&Tensor::from([1.3, -1.2]), Default::default()));
    /// ```
    #[track_caller]
    pub fn round_decimals_(&self, decimals: i32) -> &Tensor {
        self.copy_(&self.round_decimals(decimals))
    }

    /// The tensor itself (`torch.positive`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-1f32, 2.]);
    /// assert!(x.positive().ptr_eq(&x));
    /// assert!(torchrs::catch(|| Tensor::from([true]).positive()).is_err());
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] for bool.
    #[track_caller]
    pub fn positive(&self) -> Tensor {
        if self.dtype() == Dtype::Bool {
            throw(Error::dtype("positive", "takes numbers, got bool"));
        }
        self.clone()
    }
}

/// What [`Tensor::nan_to_num`] puts for NaN and the infinities.
fn replacements(dtype: Dtype, nan: f64, posinf: Option<f64>, neginf: Option<f64>) -> [Scalar; 3] {
    let largest = match dtype {
        Dtype::F64 => f64::MAX,
        Dtype::F16 => half::f16::MAX.to_f64(),
        Dtype::BF16 => half::bf16::MAX.to_f64(),
        _ => f64::from(f32::MAX),
    };
    [nan.into(), posinf.unwrap_or(largest).into(), neginf.unwrap_or(-largest).into()]
}
