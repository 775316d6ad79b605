//! In-place changes of layout: `squeeze_`, `t_`, ...
//!
//! A tensor's layout never changes: other handles of it, views and histories rely on it. These methods
//! therefore replace the handle they are called on by the view of it: `x.t_()` is `x = x.t()`. What Python
//! calls `y = x` is `let y = x.clone()` here, and such another handle keeps its shape; the elements are
//! shared as before.

use crate::error::{Error, throw};
use crate::tensor::Tensor;

impl Tensor {
    /// Refuses a leaf that requires a gradient: as a view it would no longer be the leaf that collects it.
    #[track_caller]
    fn assert_layout_may_change(&self, op: &str) {
        if self.requires_grad() && self.is_leaf() {
            throw(Error::Autograd(format!(
                "{op}: in-place change of the layout of a leaf that requires a gradient; use the form \
                 without the trailing underscore"
            )));
        }
    }
}

macro_rules! layout_changes {
    ($($name:ident($($arg:ident: $type:ty),*) = $view:ident, $torch:literal, $call:literal, $shape:literal;)*) => {
        impl Tensor {$(
            #[doc = concat!(
                "[`", stringify!($view), "`](Self::", stringify!($view), ") of this handle (`torch.Tensor.",
                $torch, "`). Its clones keep their shape.\n\n```\n\
                 let mut x = torchrs::Tensor::from([[1i64, 2, 3]]);\n\
                 let other = x.clone();\n\
                 x.", stringify!($name), $call, ";\n\
                 assert_eq!((x.shape(), other.shape()), (&", $shape, "[..], &[1, 3][..]));\n\
                 ```\n\n# Panics\nAs [`", stringify!($view),
                "`](Self::", stringify!($view), "), and throws for a leaf that requires a gradient."
            )]
            #[track_caller]
            pub fn $name(&mut self $(, $arg: $type)*) -> &mut Tensor {
                self.assert_layout_may_change(stringify!($name));
                *self = self.$view($($arg),*);
                self
            }
        )*}
    };
}

layout_changes! {
    squeeze_() = squeeze, "squeeze_", "()", "[3]";
    squeeze_dim_(dim: i64) = squeeze_dim, "squeeze_", "(0)", "[3]";
    squeeze_dims_(dims: &[i64]) = squeeze_dims, "squeeze_", "(&[0, 1])", "[3]";
    unsqueeze_(dim: i64) = unsqueeze, "unsqueeze_", "(0)", "[1, 1, 3]";
    t_() = t, "t_", "()", "[3, 1]";
    transpose_(a: i64, b: i64) = transpose, "transpose_", "(0, 1)", "[3, 1]";
    swapaxes_(a: i64, b: i64) = swapaxes, "swapaxes_", "(0, 1)", "[3, 1]";
    swapdims_(a: i64, b: i64) = swapdims, "swapdims_", "(0, -1)", "[3, 1]";
    as_strided_(shape: &[usize], strides: &[isize], offset: usize) = as_strided, "as_strided_", "(&[2, 2], &[1, 1], 0)", "[2, 2]";
    as_strided_at_(shape: &[usize], strides: &[isize], storage_offset: usize) = as_strided_at, "as_strided_", "(&[2], &[1], 1)", "[2]";
}

#[cfg(test)]
mod tests {
    use crate::error::catch;
    use crate::tensor::Tensor;

    #[test]
    fn the_handle_changes_its_clones_do_not() {
        let mut x = Tensor::from([[1.0f64, 2.0, 3.0]]);
        let other = x.clone();
        x.t_().unsqueeze_(0);
        assert_eq!((x.shape(), other.shape()), (&[1, 3, 1][..], &[1, 3][..]));
        x.squeeze_().mul_(2.0);
        assert_eq!(other.to_vec::<f64>(), [2.0, 4.0, 6.0]);
        x.as_strided_(&[2, 2], &[1, 1], 0);
        assert_eq!(x.to_vec::<f64>(), [2.0, 4.0, 4.0, 6.0]);
        assert_eq!(x.transpose_(0, 1).swapaxes_(0, 1).swapdims_(0, 1).shape(), &[2, 2]);
    }

    #[test]
    fn gradients_pass_through_and_leaves_are_refused() {
        let x = Tensor::from([[1.0f64, 2.0]]).requires_grad_(true);
        let mut y = &x * 3.0;
        y.squeeze_dim_(0);
        assert_eq!(y.shape(), &[2]);
        (&y * &y).sum().backward();
        assert_eq!(x.grad().unwrap().to_vec::<f64>(), [18.0, 36.0]);
        let mut leaf = x.clone();
        let error = catch(|| leaf.t_().dim()).unwrap_err().to_string();
        assert!(error.contains("t_") && error.contains("leaf"), "{error}");
    }
}
