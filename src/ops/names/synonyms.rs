//! Methods by PyTorch's other names for them.

use std::borrow::Borrow;

use crate::error::{Error, throw};
use crate::tensor::{Dtype, Operand, Tensor};

/// Methods without arguments, and their in-place forms.
macro_rules! unary {
    ($($name:ident / $in_place:ident = $of:ident / $of_in_place:ident;)*) => {
        impl Tensor {$(
            #[doc = concat!("[`Tensor::", stringify!($of), "`] (`torch.", stringify!($name), "`).")]
            #[track_caller]
            pub fn $name(&self) -> Tensor {
                self.$of()
            }

            #[doc = concat!("[`Tensor::", stringify!($of_in_place), "`] (`torch.Tensor.", stringify!($in_place), "`).")]
            #[track_caller]
            pub fn $in_place(&self) -> &Tensor {
                self.$of_in_place()
            }
        )*}
    };
}

/// Methods with another operand, a tensor or a number, and their in-place forms.
macro_rules! binary {
    ($($name:ident / $in_place:ident = $of:ident / $of_in_place:ident;)*) => {
        impl Tensor {$(
            #[doc = concat!("[`Tensor::", stringify!($of), "`] (`torch.", stringify!($name), "`).")]
            #[track_caller]
            pub fn $name<'a>(&'a self, other: impl Into<Operand<'a>>) -> Tensor {
                self.$of(other)
            }

            #[doc = concat!("[`Tensor::", stringify!($of_in_place), "`] (`torch.Tensor.", stringify!($in_place), "`).")]
            #[track_caller]
            pub fn $in_place<'a>(&'a self, other: impl Into<Operand<'a>>) -> &'a Tensor {
                self.$of_in_place(other)
            }
        )*}
    };
}

unary! {
    absolute / absolute_ = abs / abs_;
    arccos / arccos_ = acos / acos_;
    arccosh / arccosh_ = acosh / acosh_;
    arcsin / arcsin_ = asin / asin_;
    arcsinh / arcsinh_ = asinh / asinh_;
    arctan / arctan_ = atan / atan_;
    arctanh / arctanh_ = atanh / atanh_;
    fix / fix_ = trunc / trunc_;
    negative / negative_ = neg / neg_;
}

binary! {
    arctan2 / arctan2_ = atan2 / atan2_;
    divide / divide_ = div / div_;
    greater / greater_ = gt / gt_;
    greater_equal / greater_equal_ = ge / ge_;
    less / less_ = lt / lt_;
    less_equal / less_equal_ = le / le_;
    multiply / multiply_ = mul / mul_;
    not_equal / not_equal_ = ne / ne_;
    subtract / subtract_ = sub / sub_;
    true_divide / true_divide_ = div / div_;
}

impl Tensor {
    /// [`Tensor::clamp`] (`torch.clip`); one bound alone: [`Tensor::clamp_min`], [`Tensor::clamp_max`].
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([-1f32, 0.5, 7.]).clip(0.0, 1.0).to_vec::<f32>(), [0.0, 0.5, 1.0]);
    /// ```
    #[track_caller]
    pub fn clip<'a>(&self, min: impl Into<Operand<'a>>, max: impl Into<Operand<'a>>) -> Tensor {
        self.clamp(min, max)
    }

    /// [`Tensor::clamp_`] (`torch.Tensor.clip_`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([-1i64, 7]).clip_(0, 5).to_vec::<i64>(), [0, 5]);
    /// ```
    #[track_caller]
    pub fn clip_<'a>(&self, min: impl Into<Operand<'a>>, max: impl Into<Operand<'a>>) -> &Tensor {
        self.clamp_(min, max)
    }

    /// [`Tensor::cat`] (`torch.concat`).
    #[track_caller]
    pub fn concat(tensors: &[impl Borrow<Tensor>], dim: i64) -> Tensor {
        Tensor::cat(tensors, dim)
    }

    /// [`Tensor::cat`] (`torch.concatenate`).
    #[track_caller]
    pub fn concatenate(tensors: &[impl Borrow<Tensor>], dim: i64) -> Tensor {
        Tensor::cat(tensors, dim)
    }

    /// [`Tensor::vstack`] (`torch.row_stack`).
    #[track_caller]
    pub fn row_stack(tensors: &[impl Borrow<Tensor>]) -> Tensor {
        Tensor::vstack(tensors)
    }

    /// [`Tensor::multi_dot`] (`torch.chain_matmul`).
    #[track_caller]
    pub fn chain_matmul(tensors: &[impl Borrow<Tensor>]) -> Tensor {
        Tensor::multi_dot(tensors)
    }

    /// [`Tensor::outer`] (`torch.ger`).
    #[track_caller]
    pub fn ger(&self, other: &Tensor) -> Tensor {
        self.outer(other)
    }

    /// [`Tensor::trapezoid`] (`torch.trapz`).
    #[track_caller]
    pub fn trapz(&self, dx: f64, dim: i64) -> Tensor {
        self.trapezoid(dx, dim)
    }

    /// [`Tensor::split_sizes`] (`torch.split_with_sizes`).
    #[track_caller]
    pub fn split_with_sizes(&self, sizes: &[usize], dim: i64) -> Vec<Tensor> {
        self.split_sizes(sizes, dim)
    }

    /// The conjugates of transposed matrices (`torch.adjoint`): [`Tensor::mt`] of real ones.
    ///
    /// ```
    /// use torchrs::{Complex, Tensor};
    /// let z = Tensor::from([[Complex::new(1f32, 2.), Complex::new(3., 4.)]]);
    /// assert_eq!(z.adjoint().to_vec::<Complex<f32>>(), [Complex::new(1.0, -2.0), Complex::new(3.0, -4.0)]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for fewer than two dimensions.
    #[track_caller]
    pub fn adjoint(&self) -> Tensor {
        if self.dim() < 2 {
            let shape = self.shape();
            throw(Error::shape(
                "adjoint",
                format!("takes matrices, got a tensor of shape {shape:?}"),
            ));
        }
        self.mt().conj()
    }

    /// [`Tensor::adjoint`] (`torch.Tensor.mH`).
    #[track_caller]
    pub fn mh(&self) -> Tensor {
        self.adjoint()
    }

    /// The conjugate of a transposed matrix (`torch.Tensor.H`); a number stays as it is.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([[1i64, 2]]).h().shape(), &[2, 1]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for one dimension, and for more than two.
    #[track_caller]
    pub fn h(&self) -> Tensor {
        match self.dim() {
            0 => self.conj(),
            2 => self.adjoint(),
            _ => {
                let shape = self.shape();
                let message =
                    format!("takes one matrix or number, got a tensor of shape {shape:?}");
                throw(Error::shape("H", message))
            }
        }
    }

    /// [`Tensor::conj`], which always computes here (`torch.conj_physical`).
    #[track_caller]
    pub fn conj_physical(&self) -> Tensor {
        self.conj()
    }

    /// Puts the conjugates in place of the elements (`torch.Tensor.conj_physical_`).
    ///
    /// ```
    /// use torchrs::{Complex, Tensor};
    /// let z = Tensor::from([Complex::new(1f32, 2.)]);
    /// assert_eq!(z.conj_physical_().to_vec::<Complex<f32>>(), [Complex::new(1.0, -2.0)]);
    /// ```
    #[track_caller]
    pub fn conj_physical_(&self) -> &Tensor {
        match self.is_complex() {
            true => self.copy_(&self.conj().clone_contiguous()),
            false => self,
        }
    }

    /// In-place form of [`Tensor::sgn`] (`torch.Tensor.sgn_`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([-3f32, 0., 2.]).sgn_().to_vec::<f32>(), [-1.0, 0.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn sgn_(&self) -> &Tensor {
        match self.is_complex() {
            true => self.copy_(&self.clone_contiguous().sgn()),
            false => self.sign_(),
        }
    }

    /// The least and the greatest element (`torch.aminmax`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (least, greatest) = Tensor::from([3i64, -1, 2]).aminmax();
    /// assert_eq!((least.item(), greatest.item()), (-1.0, 3.0));
    /// ```
    ///
    /// # Panics
    /// Throws when there are no elements.
    #[track_caller]
    pub fn aminmax(&self) -> (Tensor, Tensor) {
        (self.amin(&[], false), self.amax(&[], false))
    }

    /// [`Tensor::aminmax`] along a dimension.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (least, greatest) = Tensor::from([[3i64, -1], [2, 5]]).aminmax_dim(1, false);
    /// assert_eq!((least.to_vec::<i64>(), greatest.to_vec::<i64>()), (vec![-1, 2], vec![3, 5]));
    /// ```
    ///
    /// # Panics
    /// Throws when the dimension does not exist or has size 0.
    #[track_caller]
    pub fn aminmax_dim(&self, dim: i64, keepdim: bool) -> (Tensor, Tensor) {
        (self.amin(&[dim], keepdim), self.amax(&[dim], keepdim))
    }

    /// Uniform numbers in [0, 1), of this tensor's shape, type and device (`torch.rand_like`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let x = Tensor::zeros([2, 3], Dtype::F64).rand_like();
    /// assert_eq!((x.shape(), x.dtype()), (&[2, 3][..], Dtype::F64));
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] for integers and bools.
    #[track_caller]
    pub fn rand_like(&self) -> Tensor {
        Tensor::rand(self.shape(), (self.dtype(), self.device()))
    }

    /// Standard normal numbers, of this tensor's shape, type and device (`torch.randn_like`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([1f32, 2.]).randn_like().shape(), &[2]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] for integers and bools.
    #[track_caller]
    pub fn randn_like(&self) -> Tensor {
        Tensor::randn(self.shape(), (self.dtype(), self.device()))
    }

    /// Uniform integers in `low..high`, of this tensor's shape, type and device (`torch.randint_like`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 2.]).randint_like(3, 5);
    /// assert!(x.min().item() >= 3.0 && x.max().item() <= 4.0);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when `high` is not above `low`.
    #[track_caller]
    pub fn randint_like(&self, low: i64, high: i64) -> Tensor {
        Tensor::randint(low, high, self.shape(), (self.dtype(), self.device()))
    }

    /// A tensor of this one's type and device, with other elements than any that were there before
    /// (`torch.Tensor.new_empty`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let x = Tensor::from([1f64]).new_empty([2, 3]);
    /// assert_eq!((x.shape(), x.dtype()), (&[2, 3][..], Dtype::F64));
    /// ```
    #[track_caller]
    pub fn new_empty(&self, shape: impl AsRef<[usize]>) -> Tensor {
        Tensor::empty(shape, (self.dtype(), self.device()))
    }

    /// A tensor without a value, with these strides (`torch.empty_strided`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// assert_eq!(Tensor::empty_strided(&[2, 3], &[1, 2], Dtype::F32).strides(), [1, 2]);
    /// ```
    ///
    /// # Panics
    /// Throws when shape and strides have different lengths, and for negative strides.
    #[track_caller]
    pub fn empty_strided(
        shape: &[usize],
        strides: &[isize],
        options: impl Into<crate::tensor::TensorOptions>,
    ) -> Tensor {
        let last =
            |(&size, &stride): (&usize, &isize)| size.saturating_sub(1) * stride.max(0) as usize;
        let needed = match shape.contains(&0) {
            true => 0,
            false => 1 + shape.iter().zip(strides).map(last).sum::<usize>(),
        };
        Tensor::empty([needed], options).as_strided(shape, strides, 0)
    }

    /// [`Tensor::to_dtype`] with the type of `other`, on its device (`torch.Tensor.type_as`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// assert_eq!(Tensor::from([1i64]).type_as(&Tensor::from([0.5f32])).dtype(), Dtype::F32);
    /// ```
    #[track_caller]
    pub fn type_as(&self, other: &Tensor) -> Tensor {
        self.to_device(other.device()).to_dtype(other.dtype())
    }

    /// As complex numbers of two f32 (`torch.Tensor.cfloat`).
    #[track_caller]
    pub fn cfloat(&self) -> Tensor {
        self.to_dtype(Dtype::C64)
    }

    /// As complex numbers of two f64 (`torch.Tensor.cdouble`).
    #[track_caller]
    pub fn cdouble(&self) -> Tensor {
        self.to_dtype(Dtype::C128)
    }

    /// The shape that shapes broadcast to (`torch.broadcast_shapes`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::broadcast_shapes(&[&[2, 1], &[3], &[]]), [2, 3]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when they do not broadcast.
    #[track_caller]
    pub fn broadcast_shapes(shapes: &[&[usize]]) -> Vec<usize> {
        let mut all = crate::tensor::Shape::new();
        for shape in shapes {
            all = crate::tensor::broadcast_shapes(&all, shape).unwrap_or_else(|_| {
                throw(Error::shape("broadcast_shapes", format!("{shapes:?} do not broadcast")))
            });
        }
        all.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::catch;

    #[test]
    fn names_are_those_of_the_methods_that_they_name() {
        let x = Tensor::from([0.25f64, -0.5, 0.75]);
        let y = Tensor::from([2f64, -0.5, 0.5]);
        type Unary = [fn(&Tensor) -> Tensor; 2];
        let unary: [Unary; 9] = [
            [Tensor::absolute, |x| x.abs()],
            [Tensor::arccos, |x| x.acos()],
            [|x| (x + 2.0).arccosh(), |x| (x + 2.0).acosh()],
            [Tensor::arcsin, |x| x.asin()],
            [Tensor::arcsinh, |x| x.asinh()],
            [Tensor::arctan, |x| x.atan()],
            [Tensor::arctanh, |x| x.atanh()],
            [|x| (x * 3.0).fix(), |x| (x * 3.0).trunc()],
            [Tensor::negative, |x| x.neg()],
        ];
        for (i, [name, of]) in unary.into_iter().enumerate() {
            assert!(name(&x).equal(&of(&x)), "{i}");
        }
        let binary: [fn(&Tensor, &Tensor) -> [Tensor; 3]; 10] = [
            |x, y| [x.arctan2(y), x.clone_contiguous().arctan2_(y).clone(), x.atan2(y)],
            |x, y| [x.divide(y), x.clone_contiguous().divide_(y).clone(), x.div(y)],
            |x, y| [x.true_divide(y), x.clone_contiguous().true_divide_(y).clone(), x.div(y)],
            |x, y| [x.multiply(y), x.clone_contiguous().multiply_(y).clone(), x.mul(y)],
            |x, y| [x.subtract(y), x.clone_contiguous().subtract_(y).clone(), x.sub(y)],
            |x, y| [x.greater(y), x.clone_contiguous().greater_(y).bool(), x.gt(y)],
            |x, y| [x.greater_equal(y), x.clone_contiguous().greater_equal_(y).bool(), x.ge(y)],
            |x, y| [x.less(y), x.clone_contiguous().less_(y).bool(), x.lt(y)],
            |x, y| [x.less_equal(y), x.clone_contiguous().less_equal_(y).bool(), x.le(y)],
            |x, y| [x.not_equal(y), x.clone_contiguous().not_equal_(y).bool(), x.ne(y)],
        ];
        for (i, of) in binary.into_iter().enumerate() {
            let [name, in_place, method] = of(&x, &y);
            assert!(name.equal(&method) && in_place.equal(&method), "{i}");
        }
        assert!(x.clone_contiguous().fix_().equal(&x.trunc()));
        assert!(x.clone_contiguous().arctanh_().equal(&x.atanh()));
    }

    #[test]
    fn what_has_no_adjoint_is_refused() {
        let list = Tensor::from([1f32, 2.]);
        for refused in [catch(|| list.adjoint()), catch(|| list.h()), catch(|| list.mh())] {
            assert!(refused.unwrap_err().to_string().contains("[2]"));
        }
        assert!(catch(|| _ = Tensor::from([1i64]).mvlgamma_(1)).is_err());
        assert!(catch(|| Tensor::broadcast_shapes(&[&[2], &[3]])).is_err());
    }
}
