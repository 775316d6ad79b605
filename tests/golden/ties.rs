//! Ops that name one of several equal elements, where PyTorch does not say which ("not necessarily the
//! first", in the documentation of `median` and `kthvalue`; the order of `topk` is what the sorting of
//! the C++ library leaves). A place is right when its element is, and no place is named twice; gradients
//! of equal elements are compared added up.

use torchrs::{Device, Dtype, Tensor, no_grad};

use crate::arg::Arg;
use crate::case::Case;
use crate::forward::Named;

/// The first input of such a case and the dimension along which it was searched.
pub struct Ties {
    x: Tensor,
    dim: i64,
    name: String,
}

impl Ties {
    pub fn of(case: &Case, inputs: &Named) -> Option<Ties> {
        // Where the dimension is among the arguments, and what it is if it is not there.
        let (place, default) = match case.op() {
            "topk" | "kthvalue" => (2, Some(-1)),
            "median" | "nanmedian" => (1, None),
            _ => return None,
        };
        let named = case.json["kwargs"].get("dim").and_then(|dim| dim.as_i64());
        let dim = case.json["args"][place].as_i64().or(named).or(default)?;
        let name = case.json["args"][0]["tensor"].as_str()?.to_string();
        let Arg::Tensor(x) = case.decode(&case.json["args"][0], inputs) else { return None };
        (x.dim() > 0).then(|| Ties { x: x.detach().cpu(), dim, name })
    }

    /// Whether the places `got` along the dimension name the same elements as `want`, each once.
    pub fn same_places(&self, got: &Tensor, want: &Tensor) -> Result<(), String> {
        if (got.shape(), got.dtype()) != (want.shape(), Dtype::I64) {
            return Err(format!("places {got:?}, expected {want:?}"));
        }
        // Without `keepdim` the dimension is not there any more.
        let along = |places: &Tensor| match places.dim() < self.x.dim() {
            true => places.unsqueeze(self.dim),
            false => places.clone(),
        };
        let (got, want) = (along(&got.cpu()), along(want));
        let elements = |places: &Tensor| self.x.gather(self.dim, places).to_vec::<f64>();
        let pairs = elements(&got).into_iter().zip(elements(&want));
        if let Some((g, w)) = pairs.into_iter().find(|(g, w)| g != w && !(g.is_nan() && w.is_nan()))
        {
            return Err(format!("a place of element {g}, expected one of {w}"));
        }
        let ones = got.ones_like();
        let none = Tensor::zeros(self.x.shape(), (Dtype::I64, Device::Cpu));
        let named = none.scatter_add(self.dim, &got, &ones);
        match named.gt(1i64).any().item_i64() {
            0 => Ok(()),
            _ => Err(format!("a place is named twice in {got:?}")),
        }
    }

    /// Of the gradient by `name` the sums over equal elements, if it is that of the searched tensor.
    pub fn added_up(&self, name: &str, gradient: Tensor) -> Tensor {
        if name != self.name {
            return gradient;
        }
        no_grad(|| {
            let x = self.x.to_dtype(Dtype::F64).movedim(self.dim, -1);
            let g = gradient.cpu().to_dtype(Dtype::F64).movedim(self.dim, -1);
            let (a, b) = (x.unsqueeze(-1), x.unsqueeze(-2));
            let same = a.eq(&b).logical_or(&a.isnan().logical_and(&b.isnan()));
            let sums = (same.to_dtype(Dtype::F64) * g.unsqueeze(-2)).sum_dim(&[-1], false);
            sums.movedim(-1, self.dim).to_dtype(gradient.dtype())
        })
    }
}
