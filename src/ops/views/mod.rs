//! Views: other layouts over the same storage. No kernels; each backward is the inverse view.

mod as_strided;
mod dims;
mod reshape;
mod slice;
mod synonyms;
mod windows;

pub use slice::{Index, IndexArgs};

use smallvec::{SmallVec, smallvec};

use crate::Tensor;
use crate::autograd::{BackwardCtx, record};
use crate::tensor::Layout;

/// A recorded view of `x` whose gradient is made by `backward` from the view's gradient.
#[track_caller]
fn view(
    name: &'static str,
    x: &Tensor,
    layout: Layout,
    backward: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static,
) -> Tensor {
    record(name, &[x], x.alias(layout), |_| {
        move |ctx: &BackwardCtx| smallvec![Some(backward(&ctx.grad(0)))]
    })
}

/// `x`'s shape, owned, for a backward closure.
fn shape_of(x: &Tensor) -> SmallVec<[usize; 5]> {
    x.layout().shape.clone()
}
