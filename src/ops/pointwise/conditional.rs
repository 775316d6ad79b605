//! Rows: choice, limits, and fused forms of three operands.

use super::{apply, apply_inplace};
use crate::error::{Error, throw};
use crate::tensor::{Dtype, Operand, Scalar, Tensor, can_cast};

crate::pointwise! {
    table rows for Tensor;

    /// `a` where this bool tensor is true, else `b` (`torch.where`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 2., 3.]);
    /// assert_eq!(x.gt(1.5).where_(&x, -1.0).to_vec::<f32>(), [-1.0, 2.0, 3.0]);
    /// ```
    pub arith where_(condition: bool, a, b) = select(ne(condition, 0.0), a, b);
        grad(g, condition) {
            a: select(ne(condition, 0.0), g, 0.0),
            b: select(ne(condition, 0.0), 0.0, g),
        }
        complex(z) { choose(z.input(0), &z.pairs(1), &z.pairs(2)) }

    /// x + value a b (`torch.addcmul`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 2.]);
    /// let y = Tensor::from([3f32, 4.]);
    /// assert_eq!(x.addcmul(&y, &y, 0.5).to_vec::<f32>(), [5.5, 10.0]);
    /// assert_eq!(x.addcmul_(&y, 2.0, 1.0).to_vec::<f32>(), [7.0, 10.0]);
    /// ```
    pub arith addcmul / addcmul_ (x, a, b; value = 0.75) = x + a * b * value;
        grad(g, a, b) { x: g, a: g * b * value, b: g * a * value }
        complex(z) { z.z(0) + mul(&z.z(1), &z.z(2)) * z.param(0) }

    /// x + value a / b (`torch.addcdiv`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 2.]);
    /// let y = Tensor::from([3f32, 4.]);
    /// assert_eq!(x.addcdiv(&y, 2.0, 2.0).to_vec::<f32>(), [4.0, 6.0]);
    /// assert_eq!(x.addcdiv_(&y, &y, -1.0).to_vec::<f32>(), [0.0, 1.0]);
    /// ```
    pub float addcdiv / addcdiv_ (x, a, b; value = 0.75) = x + a / b * value;
        grad(g, a, b) { x: g, a: g * value / b, b: -(g * (a / b / b) * value) }
        sample { b: 0.5..3.0 }
        complex(z) { z.z(0) + div(&z.z(1), &z.z(2)) * z.param(0) }
}

crate::pointwise! {
    table checked without functions;

    /// The way from `x` to `end`, `weight` of it; exact at both ends ([`Tensor::lerp`]).
    float lerp(x, end, weight)
        = select(lt(abs(weight), 0.5), x + weight * (end - x), end - (end - x) * (1.0 - weight));
        grad(g, x, end, weight) { x: g * (1.0 - weight), end: g * weight, weight: g * (end - x) }
        complex(z) { between(z) }

    // Limits that are NaN come in by a sum, which is done once where they are numbers.
    /// Between two tensors ([`Tensor::clamp`]). A limit that is met has half of the gradient; `max` has all where the
    /// limits cross, and the tensor where it or `min` is NaN.
    arith clamp(x, min, max)
        = select(lt(max, select(lt(x, min), min, x)), max, select(lt(x, min), min, x))
            + select(ne(min, min) | ne(max, max), min + max, -0.0);
        grad(g, x, min, max) {
            x: select(
                lt(x, min) | gt(x, max),
                0.0,
                select((eq(x, min) | eq(x, max)) & le(min, max), g * 0.5, g)
            ),
            min: select(
                le(min, max) & le(x, min),
                select(eq(x, min), select(eq(min, max), g * 0.25, g * 0.5), g),
                0.0
            ),
            max: select(
                lt(max, min),
                g,
                select(
                    le(min, max) & ge(x, max),
                    select(eq(x, max), select(eq(min, max), g * 0.25, g * 0.5), g),
                    0.0
                )
            ),
        }
        sample { min: -2.0..0.0, max: 0.5..2.0 }

    /// Between two numbers ([`Tensor::clamp`]).
    arith clamp_numbers(x, min, max)
        = select(lt(max, select(lt(x, min), min, x)), max, select(lt(x, min), min, x))
            + select(ne(min, min) | ne(max, max), min + max, -0.0);
        grad(g, x, min, max) {
            x: select(gt(x, min) & lt(x, max), g, 0.0),
            min: select(lt(min, max) & le(x, min), g, 0.0),
            max: select(ge(x, max) | lt(max, min), g, 0.0),
        }
        sample { min: -2.0..0.0, max: 0.5..2.0 }

    /// At least a number ([`Tensor::clamp_min`]).
    arith clamp_min_number(x, min) = maximum(x, min);
        grad(g, x, min) { x: select(gt(x, min), g, 0.0), min: select(le(x, min), g, 0.0) }

    /// At most a number ([`Tensor::clamp_max`]).
    arith clamp_max_number(x, max) = minimum(x, max);
        grad(g, x, max) { x: select(lt(x, max), g, 0.0), max: select(ge(x, max), g, 0.0) }

    /// `value` where `mask` is true ([`Tensor::masked_fill`]).
    arith masked_fill(x, mask: bool, value) = select(ne(mask, 0.0), value, x);
        grad(g, mask) {
            x: select(ne(mask, 0.0), 0.0, g),
            value: select(ne(mask, 0.0), g, 0.0),
        }
        complex(z) { choose(z.input(1), &z.pairs(2), &z.pairs(0)) }
}

/// Whether both limits are numbers.
fn numbers(min: Operand<'_>, max: Operand<'_>) -> bool {
    matches!((min, max), (Operand::Scalar(_), Operand::Scalar(_)))
}

impl Tensor {
    /// The way from this tensor to `end`, `weight` of it (`torch.lerp`); exact at both ends. Both may be tensors of this
    /// one's type, or numbers.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f32, 10.]);
    /// assert_eq!(x.lerp(&Tensor::from([4f32, 20.]), 0.25).to_vec::<f32>(), [1.0, 12.5]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] for tensors of different types.
    #[track_caller]
    pub fn lerp<'a>(&self, end: impl Into<Operand<'a>>, weight: impl Into<Operand<'a>>) -> Tensor {
        let end = self.of_one_type("lerp", "end", end.into());
        let weight = self.of_one_type("lerp", "weight", weight.into());
        apply(&checked::lerp, &[self.into(), end, weight], &[])
    }

    /// In-place form of [`lerp`](Self::lerp).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f32, 10.]);
    /// assert_eq!(x.lerp_(4.0, 0.5).to_vec::<f32>(), [2.0, 7.0]);
    /// ```
    #[track_caller]
    pub fn lerp_<'a>(
        &self,
        end: impl Into<Operand<'a>>,
        weight: impl Into<Operand<'a>>,
    ) -> &Tensor {
        let end = self.of_one_type("lerp_", "end", end.into());
        let weight = self.of_one_type("lerp_", "weight", weight.into());
        apply_inplace(&checked::lerp, &[self.into(), end, weight], &[]);
        self
    }

    /// Between two limits, tensors or numbers (`torch.clamp`). `max` wins where the limits cross; NaN among the three
    /// makes NaN. On a limit that is a number the gradient is 0, and so it is for NaN. A limit that is a tensor
    /// has its own gradient: half of it where it is met.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-2f32, 0.5, 9.]);
    /// assert_eq!(x.clamp(0.0, 1.0).to_vec::<f32>(), [0.0, 0.5, 1.0]);
    /// ```
    #[track_caller]
    pub fn clamp<'a>(&self, min: impl Into<Operand<'a>>, max: impl Into<Operand<'a>>) -> Tensor {
        let (min, max) = (min.into(), max.into());
        let row = if numbers(min, max) { &checked::clamp_numbers } else { &checked::clamp };
        apply(row, &[self.into(), min, max], &[])
    }

    /// In-place form of [`clamp`](Self::clamp).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-2f32, 0.5, 9.]);
    /// assert_eq!(x.clamp_(&Tensor::from([-1f32, 1., 1.]), 8.0).to_vec::<f32>(), [-1.0, 1.0, 8.0]);
    /// ```
    #[track_caller]
    pub fn clamp_<'a>(&self, min: impl Into<Operand<'a>>, max: impl Into<Operand<'a>>) -> &Tensor {
        let (min, max) = (min.into(), max.into());
        let row = if numbers(min, max) { &checked::clamp_numbers } else { &checked::clamp };
        apply_inplace(row, &[self.into(), min, max], &[]);
        self
    }

    /// At least `min`, a tensor or a number (`torch.clamp_min`). The gradient is that of [`maximum`](Self::maximum) for a
    /// tensor; for a number it is 0 where the number is met and for NaN.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-2i64, 3]);
    /// assert_eq!(x.clamp_min(0).to_vec::<i64>(), [0, 3]);
    /// ```
    #[track_caller]
    pub fn clamp_min<'a>(&self, min: impl Into<Operand<'a>>) -> Tensor {
        match min.into() {
            Operand::Tensor(min) => self.maximum(min),
            min => apply(&checked::clamp_min_number, &[self.into(), min], &[]),
        }
    }

    /// In-place form of [`clamp_min`](Self::clamp_min).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-2i64, 3]);
    /// assert_eq!(x.clamp_min_(4).to_vec::<i64>(), [4, 4]);
    /// ```
    #[track_caller]
    pub fn clamp_min_<'a>(&self, min: impl Into<Operand<'a>>) -> &Tensor {
        match min.into() {
            Operand::Tensor(min) => _ = self.maximum_(min),
            min => apply_inplace(&checked::clamp_min_number, &[self.into(), min], &[]),
        }
        self
    }

    /// At most `max`, a tensor or a number (`torch.clamp_max`), with the gradients of [`clamp_min`](Self::clamp_min).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-2i64, 3]);
    /// assert_eq!(x.clamp_max(0).to_vec::<i64>(), [-2, 0]);
    /// ```
    #[track_caller]
    pub fn clamp_max<'a>(&self, max: impl Into<Operand<'a>>) -> Tensor {
        match max.into() {
            Operand::Tensor(max) => self.minimum(max),
            max => apply(&checked::clamp_max_number, &[self.into(), max], &[]),
        }
    }

    /// In-place form of [`clamp_max`](Self::clamp_max).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-2i64, 3]);
    /// assert_eq!(x.clamp_max_(-3).to_vec::<i64>(), [-3, -3]);
    /// ```
    #[track_caller]
    pub fn clamp_max_<'a>(&self, max: impl Into<Operand<'a>>) -> &Tensor {
        match max.into() {
            Operand::Tensor(max) => _ = self.minimum_(max),
            max => apply_inplace(&checked::clamp_max_number, &[self.into(), max], &[]),
        }
        self
    }

    /// This tensor where `condition` is true, else `other` (`torch.Tensor.where`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 2.]);
    /// assert_eq!(x.where_self(&Tensor::from([true, false]), 9.0).to_vec::<f32>(), [1.0, 9.0]);
    /// ```
    #[track_caller]
    pub fn where_self<'a>(&self, condition: &Tensor, other: impl Into<Operand<'a>>) -> Tensor {
        condition.where_(self, other.into())
    }

    /// This tensor with `value`, a number or a 0-dim tensor, where `mask` is true
    /// (`torch.Tensor.masked_fill`). The mask broadcasts; the type stays.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1f32, 2.], [3., 4.]]);
    /// assert_eq!(x.masked_fill(&Tensor::from([true, false]), 0.0).to_vec::<f32>(), [0.0, 2.0, 0.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] when the value is of a higher category than the tensor.
    #[track_caller]
    pub fn masked_fill<'a>(&self, mask: &Tensor, value: impl Into<Operand<'a>>) -> Tensor {
        let value = self.checked_fill("masked_fill", value.into());
        apply(&checked::masked_fill, &[self.into(), mask.into(), value], &[])
    }

    /// In-place form of [`masked_fill`](Self::masked_fill).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, -2, 3]);
    /// assert_eq!(x.masked_fill_(&x.lt(0), 0).to_vec::<i64>(), [1, 0, 3]);
    /// ```
    #[track_caller]
    pub fn masked_fill_<'a>(&self, mask: &Tensor, value: impl Into<Operand<'a>>) -> &Tensor {
        let value = self.checked_fill("masked_fill_", value.into());
        apply_inplace(&checked::masked_fill, &[self.into(), mask.into(), value], &[]);
        self
    }

    #[track_caller]
    fn checked_fill<'a>(&self, op: &str, value: Operand<'a>) -> Operand<'a> {
        let (dtype, dim) = match value {
            Operand::Scalar(s) => (s.dtype(), 0),
            Operand::Tensor(t) => (t.dtype(), t.dim()),
        };
        if dim > 0 {
            throw(Error::shape(
                op,
                format!("`value` must be a number or a 0-dim tensor, has {dim} dimensions"),
            ));
        }
        // A bool takes any number, as a truth value.
        if self.dtype() != Dtype::Bool && !can_cast(dtype, self.dtype()) {
            throw(Error::dtype(
                op,
                format!("`value` is {dtype} and does not fit in a {} tensor", self.dtype()),
            ));
        }
        match (value, self.dtype()) {
            (Operand::Scalar(s), Dtype::Bool) => Operand::Scalar(Scalar::B(s.to_f64() != 0.0)),
            _ => value,
        }
    }
}
