//! Complex tensors. A complex number is a pair of real ones that lie side by side, so a complex tensor
//! is, without a copy, a real one with a last dimension of size 2 (`view_as_real`), and most ops on it
//! are ops on that: copies, sums, products with real numbers. No kernel is compiled for complex numbers
//! but multiplication and division (`product.rs`).
//!
//! The gradient of a real number L by z = x + iy is dL/dx + i dL/dy, as in PyTorch: the pair of the
//! gradients by the parts. So the derivative of anything that is made of views of the parts follows.
//!
//! A row that takes complex numbers says so by its clause `complex(z) { .. }`, made of `formulas.rs`; all others throw.

mod apply;
pub(in crate::ops) mod cuda;
pub(in crate::ops) mod formulas;
mod pairs;
mod product;
#[cfg(test)]
mod tests;

pub(in crate::ops) use apply::{pointwise, pointwise_inplace};
pub use pairs::Numbers;
use pairs::record_join;
pub(in crate::ops) use pairs::{bilinear, by_pairs};
pub(in crate::ops) use product::mul as product_of;

use smallvec::smallvec;

use crate::autograd::{BackwardCtx, no_grad, record};
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, positive, values};
use crate::ops::gpu;
use crate::tensor::{Dtype, Tensor, broadcast_shapes};

impl Tensor {
    /// True for c64 and c128 tensors (`torch.is_complex`).
    ///
    /// ```
    /// use torchrs::{Complex, Tensor};
    /// assert!(Tensor::from([Complex::new(1f32, 2.)]).is_complex());
    /// assert!(!Tensor::from([1f32]).is_complex());
    /// ```
    #[inline]
    pub fn is_complex(&self) -> bool {
        self.dtype().is_complex()
    }

    /// A complex tensor as a real one with a last dimension of size 2: real and imaginary part
    /// (`torch.view_as_real`). A view.
    ///
    /// ```
    /// use torchrs::{Complex, Tensor};
    /// let z = Tensor::from([Complex::new(1f32, 2.), Complex::new(3., 4.)]);
    /// assert_eq!(z.view_as_real().to_vec::<f32>(), [1., 2., 3., 4.]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] for a real tensor.
    #[track_caller]
    pub fn view_as_real(&self) -> Tensor {
        if !self.is_complex() {
            let got = self.dtype();
            throw(Error::dtype("view_as_real", format!("takes complex tensors, got {got}")));
        }
        let view = self.alias_as(self.layout().pairs(), self.dtype().to_real());
        record("view_as_real", &[self], view, |_| {
            move |ctx: &BackwardCtx<'_>| {
                let g = ctx.grad(0);
                let dense = if g.layout().joined().is_some() { g } else { g.clone_contiguous() };
                smallvec![Some(dense.view_as_complex())]
            }
        })
    }

    /// A real tensor with a last dimension of size 2, real and imaginary part, as a complex one
    /// (`torch.view_as_complex`). A view.
    ///
    /// ```
    /// use torchrs::{Complex, Tensor};
    /// let z = Tensor::from([[1f64, 2.], [3., 4.]]).view_as_complex();
    /// assert_eq!(z.to_vec::<Complex<f64>>(), [Complex::new(1.0, 2.0), Complex::new(3.0, 4.0)]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] unless the tensor is f32 or f64, [`Error::Shape`] unless the last
    /// dimension has size 2 and stride 1, and all other strides and the offset are even.
    #[track_caller]
    pub fn view_as_complex(&self) -> Tensor {
        if !matches!(self.dtype(), Dtype::F32 | Dtype::F64) {
            let got = self.dtype();
            throw(Error::dtype("view_as_complex", format!("takes f32 and f64 tensors, got {got}")));
        }
        let Some(layout) = self.layout().joined() else {
            throw(Error::shape(
                "view_as_complex",
                format!(
                    "shape {:?} with strides {:?} and offset {}; the last dimension must have size 2 \
                     and stride 1, the other strides and the offset must be even",
                    self.shape(),
                    self.strides(),
                    self.storage_offset()
                ),
            ))
        };
        record_join(self, self.alias_as(layout, self.dtype().to_complex()))
    }

    /// The real parts, a view; a real tensor itself (`torch.real`).
    ///
    /// ```
    /// use torchrs::{Complex, Tensor};
    /// let z = Tensor::from([Complex::new(1f32, 2.), Complex::new(3., 4.)]);
    /// assert_eq!(z.real().to_vec::<f32>(), [1.0, 3.0]);
    /// ```
    #[track_caller]
    pub fn real(&self) -> Tensor {
        if self.is_complex() { self.view_as_real().select(-1, 0) } else { self.clone() }
    }

    /// The imaginary parts, a view (`torch.imag`).
    ///
    /// ```
    /// use torchrs::{Complex, Tensor};
    /// let z = Tensor::from([Complex::new(1f32, 2.), Complex::new(3., 4.)]);
    /// z.imag().zero_();
    /// assert_eq!(z.view_as_real().to_vec::<f32>(), [1.0, 0.0, 3.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] for a real tensor.
    #[track_caller]
    pub fn imag(&self) -> Tensor {
        if !self.is_complex() {
            let got = self.dtype();
            throw(Error::dtype("imag", format!("takes complex tensors, got {got}")));
        }
        self.view_as_real().select(-1, 1)
    }

    /// The complex tensor with these parts, which broadcast (`torch.complex`).
    ///
    /// ```
    /// use torchrs::{Complex, Tensor};
    /// let z = Tensor::complex(&Tensor::from([1f64, 2.]), &Tensor::from([-1f64]));
    /// assert_eq!(z.to_vec::<Complex<f64>>(), [Complex::new(1.0, -1.0), Complex::new(2.0, -1.0)]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] unless both are f32 or both f64, [`Error::Shape`] when they do not
    /// broadcast.
    #[track_caller]
    pub fn complex(real: &Tensor, imag: &Tensor) -> Tensor {
        let dtype = real.dtype();
        if dtype != imag.dtype() || !matches!(dtype, Dtype::F32 | Dtype::F64) {
            let other = imag.dtype();
            let why = format!("takes two f32 or two f64 tensors, got {dtype} and {other}");
            throw(Error::dtype("complex", why));
        }
        let shape = broadcast_shapes(real.shape(), imag.shape()).unwrap_or_else(|_| {
            let (a, b) = (real.shape(), imag.shape());
            throw(Error::shape(
                "complex",
                format!("parts of shapes {a:?} and {b:?} do not broadcast"),
            ))
        });
        let out = Tensor::empty(&shape, (dtype.to_complex(), real.device()));
        no_grad(|| {
            out.real().copy_(&real.detach());
            out.imag().copy_(&imag.detach());
        });
        record("complex", &[real, imag], out, |_| {
            move |ctx: &BackwardCtx<'_>| {
                let g = ctx.grad(0);
                smallvec![ctx.needs(0).then(|| g.real()), ctx.needs(1).then(|| g.imag())]
            }
        })
    }

    /// The complex numbers with these absolute values and angles, which broadcast (`torch.polar`).
    ///
    /// ```
    /// use std::f64::consts::FRAC_PI_2;
    /// use torchrs::Tensor;
    /// let z = Tensor::polar(&Tensor::from([2f64]), &Tensor::from([FRAC_PI_2]));
    /// assert!(z.imag().allclose(&Tensor::from([2.0]), Default::default()));
    /// assert!(z.real().item().abs() < 1e-15);
    /// ```
    ///
    /// # Panics
    /// As [`complex`](Self::complex).
    #[track_caller]
    pub fn polar(abs: &Tensor, angle: &Tensor) -> Tensor {
        if abs.dtype() != angle.dtype() || !matches!(abs.dtype(), Dtype::F32 | Dtype::F64) {
            let (a, b) = (abs.dtype(), angle.dtype());
            let why = format!("takes two f32 or two f64 tensors, got {a} and {b}");
            throw(Error::dtype("polar", why));
        }
        Tensor::complex(&(abs * angle.cos()), &(abs * angle.sin()))
    }

    /// The conjugate, with the sign of the imaginary part changed (`torch.conj`, `resolve_conj`): a
    /// copy; a real tensor itself.
    ///
    /// ```
    /// use torchrs::{Complex, Tensor};
    /// let z = Tensor::from([Complex::new(1f64, 2.)]);
    /// assert_eq!(z.conj().item_complex(), Complex::new(1.0, -2.0));
    /// assert_eq!((&z * z.conj()).item_complex(), Complex::new(5.0, 0.0));
    /// ```
    #[track_caller]
    pub fn conj(&self) -> Tensor {
        if !self.is_complex() {
            return self.clone();
        }
        if let Some(gpu) = gpu::of("conj", &[self]) {
            return record("conj", &[self], cuda::conj(gpu, self), |_| {
                move |ctx: &BackwardCtx<'_>| smallvec![Some(ctx.grad(0).conj())]
            });
        }
        let signs = Tensor::from([1.0, -1.0]).to_dtype(self.dtype().to_real());
        by_pairs(self, |pairs| pairs * signs)
    }

    /// The number with absolute value 1 and this one's angle, 0 at 0; of real numbers the
    /// [`sign`](Self::sign) (`torch.sgn`).
    ///
    /// ```
    /// use torchrs::{Complex, Tensor};
    /// let z = Tensor::from([Complex::new(3f64, 4.), Complex::new(0., 0.)]);
    /// let expected = Tensor::from([[0.6, 0.8], [0.0, 0.0]]);
    /// assert!(z.sgn().view_as_real().allclose(&expected, Default::default()));
    /// ```
    #[track_caller]
    pub fn sgn(&self) -> Tensor {
        if self.is_complex() { formulas::sgn(self) } else { self.sign() }
    }

    /// This tensor in the complex type for its values (c128 for f64, else c64); itself if it is
    /// complex.
    ///
    /// ```
    /// use torchrs::{Complex, Tensor};
    /// let z = Tensor::from([1f64, 2.]).to_complex();
    /// assert_eq!(z.to_vec::<Complex<f64>>(), [Complex::new(1.0, 0.0), Complex::new(2.0, 0.0)]);
    /// ```
    #[track_caller]
    pub fn to_complex(&self) -> Tensor {
        self.to_dtype(self.dtype().to_complex())
    }
}

/// The samples, in real numbers: an input is made complex first and the result is seen as real.
#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    type Op = fn(&Tensor, &Tensor) -> Tensor;
    let sample = |name: &'static str, f: Op| {
        let inputs = [positive([2, 3, 2], 1), values([3, 2], 2)];
        OpSample::new(format!("complex {name}"), inputs, move |x| {
            let [a, b] = [&x[0], &x[1]].map(|t| t.contiguous().view_as_complex());
            let z = f(&a, &b);
            if z.is_complex() { z.view_as_real() } else { z }
        })
        .no_half()
    };
    let all: [(&'static str, Op); 23] = [
        ("add", |a, b| a + b),
        ("sub", |a, b| a - b),
        ("mul", |a, b| a * b),
        ("div", |a, b| b / a),
        ("neg, conj", |a, b| (-a).conj() + b),
        ("by real parts", |a, b| a * b.real() + b.imag() / a),
        ("by numbers", |a, b| 2.0 * a - b / 3.0 + 1.0 / a),
        ("square, reciprocal", |a, b| a.reciprocal() + b.square()),
        ("abs", |a, b| a.abs() * b.abs()),
        ("angle", |a, b| a.angle() + b.real()),
        ("sgn", |a, b| a.sgn() * b),
        ("exp", |a, b| a.exp() * b.exp()),
        ("log, sqrt", |a, b| a.log() + a.sqrt() * b),
        ("pow", |a, b| a.pow(1.5) + b.pow(3.0) + a.pow(b)),
        ("sin, cos", |a, b| a.sin() + b.cos() * 0.5),
        ("sinh, cosh", |a, b| a.sinh() + b.cosh() * 0.5),
        ("sum, mean", |a, b| a.sum_dim(&[0], false) * b.mean()),
        ("where", |a, b| a.real().gt(1.2).where_(a, b)),
        ("addcmul, lerp", |a, b| a.addcmul(b, a, 0.5) + a.lerp(b, 0.3)),
        ("cat, index, flip", |a, b| {
            let both = Tensor::cat(&[a, &b.unsqueeze(0)], 0).flip(&[0, 1]);
            both.index_select(1, &Tensor::from([2i64, 0, 2]).to_device(a.device()))
        }),
        ("matmul", |a, b| {
            let square = b.unsqueeze(1) * b.unsqueeze(0);
            let batch = a.unsqueeze(0).matmul(&square.unsqueeze(0));
            a.matmul(&square) + a.select(0, 1).matmul(&square) + batch
        }),
        ("polar", |a, b| Tensor::polar(&a.real(), &b.real())),
        ("in place", |a, b| {
            let z = a * 1.0;
            z.mul_(b);
            z.select(0, 1).add_(2.0);
            z.imag().mul_(3.0);
            z
        }),
    ];
    all.into_iter().map(|(name, f)| sample(name, f)).collect()
}
