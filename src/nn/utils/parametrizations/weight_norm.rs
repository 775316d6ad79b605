//! Weight normalisation (Salimans & Kingma 2016): w = g v / |v|.

use crate::nn::{
    Module, utils::parametrize::Parametrization, utils::parametrize::Parametrized,
    utils::parametrize::register_parametrization,
};
use crate::tensor::Tensor;

#[derive(Module, Clone)]
#[module(name = "_WeightNorm")]
struct WeightNorm {
    /// `None`: one norm for the whole tensor.
    dim: Option<i64>,
}

impl WeightNorm {
    /// Norms over all dimensions but one.
    #[track_caller]
    fn norm(&self, v: &Tensor) -> Tensor {
        match self.dim {
            None => v.norm(),
            Some(dim) => {
                let kept = if dim < 0 { dim + v.dim() as i64 } else { dim };
                let others: Vec<i64> = (0..v.dim() as i64).filter(|d| *d != kept).collect();
                match others.is_empty() {
                    // No dimension would mean all of them.
                    true => v.abs(),
                    false => v.norm_dim(2.0, &others, true),
                }
            }
        }
    }
}

impl Parametrization for WeightNorm {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, originals: &[Tensor]) -> Tensor {
        let (g, v) = (&originals[0], &originals[1]);
        v * (g / self.norm(v))
    }

    #[track_caller]
    fn right_inverse(&self, value: &Tensor) -> Option<Vec<Tensor>> {
        Some(vec![self.norm(value), value.clone()])
    }
}

/// `module` with a weight whose length is trained apart from its direction
/// (`torch.nn.utils.parametrizations.weight_norm`): `original0` are the lengths, `original1` is the
/// direction. Lengths are those of the slices along `dim`, or with `None` there is one. PyTorch's
/// default is dimension 0.
///
/// ```
/// use torchrs::nn::{Linear, Module, utils::parametrizations::weight_norm};
/// let layer = weight_norm(Linear::new(20, 40), "weight", Some(0));
/// let state = layer.state_dict();
/// assert_eq!(state["parametrizations.weight.original0"].shape(), &[40, 1]);
/// assert_eq!(state["parametrizations.weight.original1"].shape(), &[40, 20]);
/// ```
///
/// # Panics
/// Throws when the module itself has no parameter of this name.
#[track_caller]
pub fn weight_norm<M: Module + Clone>(
    module: M,
    name: &str,
    dim: impl Into<Option<i64>>,
) -> Parametrized<M> {
    register_parametrization(module, name, WeightNorm { dim: dim.into() })
}
