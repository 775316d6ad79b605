//! Views: other layouts over the same storage. No kernels; each backward is the inverse view.
//!
//! ```
//! use torchrs::Tensor;
//! let x = Tensor::range(6);
//! x.view([2, 3]).t().select(0, 1).zero_();
//! assert_eq!(x.to_vec::<i64>(), [0, 0, 2, 3, 0, 5]);
//! ```

mod as_strided;
mod dims;
mod in_place;
mod reshape;
mod slice;
mod synonyms;
mod windows;

pub use slice::{Index, IndexArgs};

use smallvec::{SmallVec, smallvec};

use crate::autograd::{BackwardCtx, Part, forward_ad, record, record_with_tangent};
use crate::profiler;
use crate::tensor::{Layout, Tensor};

/// A recorded view of `x` whose gradient is made by `backward` from the view's gradient.
#[track_caller]
fn view(
    name: &'static str,
    x: &Tensor,
    layout: Layout,
    backward: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static,
) -> Tensor {
    part_view(name, x, layout, None, backward)
}

/// [`view`] of a part of `x`, if that can be said.
#[track_caller]
fn part_view(
    name: &'static str,
    x: &Tensor,
    layout: Layout,
    part: Option<Part>,
    backward: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static,
) -> Tensor {
    let _span = profiler::op(name);
    let out = x.alias(layout);
    let backward = move |ctx: &BackwardCtx| {
        let grad = ctx.grad(0);
        let is_part = part.is_some_and(|part| ctx.is_of_part(part));
        smallvec![Some(if is_part { grad } else { backward(&grad) })]
    };
    if !forward_ad::is_open() || !forward_ad::cuts(x, out.layout()) {
        return record(name, &[x], out, |_| backward);
    }
    record_with_tangent(
        name,
        &[x],
        out,
        |_| backward,
        |tangents, out| Some(forward_ad::same_view(x, tangents[0].as_ref()?, out.layout())),
    )
}

/// `x`'s shape, owned, for a backward closure.
fn shape_of(x: &Tensor) -> SmallVec<[usize; 5]> {
    x.layout().shape.clone()
}
