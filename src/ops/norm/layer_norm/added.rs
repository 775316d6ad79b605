//! A sum and its norm, as behind the shortcuts of a transformer: on a GPU the sum is written and normalised in one visit,
//! and its gradient is added to the norm's where that is made.

use smallvec::{SmallVec, smallvec};

use super::{composed, cuda, product_type};
use crate::amp;
use crate::autograd::{BackwardCtx, Grads, no_grad, record_many};
use crate::ops::gpu::{self, Gpu};
use crate::tensor::{Dtype, Shape, Tensor};

/// The norm that is taken of a sum.
struct Norm<'a> {
    op: &'static str,
    shape: &'a [usize],
    weight: Option<&'a Tensor>,
    bias: Option<&'a Tensor>,
    eps: f64,
    centered: bool,
}

impl Tensor {
    /// `self + added`, and its [`layer_norm`](Self::layer_norm); in the type that products take, `for_linear`. The bits
    /// are those of the two ops.
    #[track_caller]
    pub(crate) fn add_layer_norm(
        &self,
        added: &Tensor,
        shape: &[usize],
        [weight, bias]: [Option<&Tensor>; 2],
        eps: f64,
        for_linear: bool,
    ) -> (Tensor, Tensor) {
        let norm = Norm { op: "add_layer_norm", shape, weight, bias, eps, centered: true };
        fused(self, added, &norm, for_linear).unwrap_or_else(|| {
            let sum = self + added;
            let y = match for_linear {
                true => sum.layer_norm_for_linear(shape, weight, bias, eps),
                false => sum.layer_norm(shape, weight, bias, eps),
            };
            (sum, y)
        })
    }

    /// `self + added`, and its [`rms_norm`](Self::rms_norm), as [`add_layer_norm`](Self::add_layer_norm).
    #[track_caller]
    pub(crate) fn add_rms_norm(
        &self,
        added: &Tensor,
        shape: &[usize],
        weight: Option<&Tensor>,
        eps: Option<f64>,
        for_linear: bool,
    ) -> (Tensor, Tensor) {
        let given = eps.unwrap_or(f32::EPSILON as f64);
        let norm =
            Norm { op: "add_rms_norm", shape, weight, bias: None, eps: given, centered: false };
        fused(self, added, &norm, for_linear).unwrap_or_else(|| {
            let sum = self + added;
            let y = match for_linear {
                true => sum.rms_norm_for_linear(shape, weight, eps),
                false => sum.rms_norm(shape, weight, eps),
            };
            (sum, y)
        })
    }
}

/// Whether the kernels take it, of which no argument is wrong then.
fn gpu_of(x: &Tensor, added: &Tensor, norm: &Norm<'_>) -> Option<Gpu> {
    let outer = x.dim().checked_sub(norm.shape.len())?;
    let halves = |dtype| matches!(dtype, Dtype::F16 | Dtype::BF16);
    let is_same = |t: &Tensor| t.shape() == norm.shape && t.device() == x.device();
    let parameters = || [norm.weight, norm.bias].into_iter().flatten();
    let of = |dtype: Dtype| parameters().all(|p| p.dtype() == dtype);
    let fits = !norm.shape.is_empty()
        && x.shape()[outer..] == *norm.shape
        && added.shape() == x.shape()
        && added.device() == x.device()
        && (added.dtype() == x.dtype() || (x.dtype() == Dtype::F32 && halves(added.dtype())))
        && (x.dtype() == Dtype::F32 || halves(x.dtype()))
        && parameters().all(is_same)
        && (of(x.dtype()) || of(Dtype::F32))
        // There a norm of halves is that of their copy in f32.
        && (x.dtype() == Dtype::F32 || !amp::is_active());
    let index = x.device().kernels().filter(|_| fits)?;
    Some(Gpu { index })
}

#[track_caller]
fn fused(
    x: &Tensor,
    added: &Tensor,
    norm: &Norm<'_>,
    for_linear: bool,
) -> Option<(Tensor, Tensor)> {
    let gpu = gpu_of(x, added, norm)?;
    let _span = crate::profiler::op(norm.op);
    let n = norm.shape.iter().product::<usize>();
    let rows = x.numel().checked_div(n)?;
    let to = if for_linear { product_type(x).unwrap_or(x.dtype()) } else { x.dtype() };
    let parameters = [norm.weight, norm.bias];
    let (eps, centered) = (norm.eps, norm.centered);
    if !cuda::is_added(x.dtype(), n) {
        return None;
    }
    let normal = cuda::forward(gpu, x, Some(added), [rows, n], parameters, eps, centered, to);
    let cuda::Normal { sum: Some(sum), y, stats } = normal else {
        unreachable!("something was added")
    };
    let inputs: SmallVec<[&Tensor; 4]> =
        [Some(x), Some(added), norm.weight, norm.bias].into_iter().flatten().collect();
    let outputs = [sum, y];
    record_many(norm.op, &inputs, &outputs, |saver| {
        let (sum, stats) = (saver.save_output(0), saver.save(&stats));
        let weight = norm.weight.map(|w| saver.save(w));
        let saved = Saved {
            with_bias: norm.bias.is_some(),
            shape: Shape::from_slice(norm.shape),
            parameter: norm.weight.or(norm.bias).map(Tensor::dtype),
            added: added.dtype(),
            eps,
            centered,
        };
        move |ctx| {
            let weight = weight.as_ref().map(|w| ctx.get(w));
            saved.backward(ctx, &ctx.get(&sum), weight.as_ref(), &ctx.get(&stats))
        }
    });
    let [sum, y] = outputs;
    Some((sum, y))
}

/// What backward knows beside the tensors.
struct Saved {
    with_bias: bool,
    shape: Shape,
    /// The parameters' type, if there are some.
    parameter: Option<Dtype>,
    /// The type of what was added.
    added: Dtype,
    eps: f64,
    centered: bool,
}

impl Saved {
    #[track_caller]
    fn backward(
        &self,
        ctx: &BackwardCtx<'_>,
        sum: &Tensor,
        weight: Option<&Tensor>,
        stats: &Tensor,
    ) -> Grads {
        let dsum = ctx.grads[0].clone();
        let Some(dy) = ctx.grads[1].clone() else {
            let parameters = usize::from(weight.is_some()) + usize::from(self.with_bias);
            return self.of_sum(ctx, dsum, parameters);
        };
        if ctx.create_graph() {
            return self.composed(ctx, dsum, &dy, sum, weight, stats);
        }
        let gpu = gpu::of("add_norm", &[sum]).expect("it was computed on a GPU");
        let n = self.shape.iter().product::<usize>();
        // Weight and bias, behind the two terms.
        let places = [
            weight.is_some().then_some(2),
            self.with_bias.then_some(2 + usize::from(weight.is_some())),
        ];
        let wanted = places.map(|place| place.is_some_and(|place| ctx.needs(place)));
        let to = self.parameter.unwrap_or(sum.dtype());
        let narrow = (self.added != sum.dtype() && ctx.needs(1)).then_some(self.added);
        let dsum = dsum.map(|dsum| no_grad(|| dsum.to_dtype(sum.dtype())));
        let of_sum = cuda::Sum { dsum: dsum.as_ref(), added: narrow };
        if !ctx.needs(0) && !ctx.needs(1) {
            let of_parameters = cuda::parameters(gpu, &dy, sum, n, stats, wanted, to);
            return self.together([None, None], of_parameters, places);
        }
        let (centered, of) = (self.centered, Some(of_sum));
        let both = cuda::both(gpu, &dy, sum, n, weight, stats, centered, wanted, to, of);
        let (dx, dadded, of_parameters) = both.unwrap_or_else(|| {
            let dx = cuda::backward(gpu, &dy, sum, n, weight, stats, centered);
            let dx = no_grad(|| dsum.as_ref().map_or(dx.clone(), |dsum| &dx + dsum));
            let dadded = narrow.map(|dtype| no_grad(|| dx.to_dtype(dtype)));
            (dx, dadded, cuda::parameters(gpu, &dy, sum, n, stats, wanted, to))
        });
        let dadded = ctx.needs(1).then(|| dadded.unwrap_or_else(|| dx.clone()));
        self.together([ctx.needs(0).then_some(dx), dadded], of_parameters, places)
    }

    /// The gradients of the terms, and those of the parameters that there are.
    fn together(
        &self,
        [dx, dadded]: [Option<Tensor>; 2],
        of_parameters: [Option<Tensor>; 2],
        places: [Option<usize>; 2],
    ) -> Grads {
        let mut grads: Grads = smallvec![dx, dadded];
        for (grad, place) in of_parameters.into_iter().zip(places) {
            if place.is_some() {
                grads.push(grad.map(|grad| grad.reshape_to(&self.shape)));
            }
        }
        grads
    }

    /// Where nothing reached the norm.
    fn of_sum(&self, ctx: &BackwardCtx<'_>, dsum: Option<Tensor>, parameters: usize) -> Grads {
        let dadded = dsum.as_ref().filter(|_| ctx.needs(1)).map(|d| d.to_dtype(self.added));
        let mut grads: Grads = smallvec![dsum.filter(|_| ctx.needs(0)), dadded];
        grads.extend((0..parameters).map(|_| None));
        grads
    }

    /// From recorded ops.
    fn composed(
        &self,
        ctx: &BackwardCtx<'_>,
        dsum: Option<Tensor>,
        dy: &Tensor,
        sum: &Tensor,
        weight: Option<&Tensor>,
        stats: &Tensor,
    ) -> Grads {
        // Beside parameters of f32 all is computed in it.
        let own = sum.dtype();
        let wide = self.parameter.unwrap_or(own);
        let (dy, x) = (dy.to_dtype(wide), sum.to_dtype(wide));
        let needs = |i: usize| if i == 0 { ctx.needs(0) || ctx.needs(1) } else { ctx.needs(i + 1) };
        let unit = stats.select(0, 1);
        let mut of_norm = composed(
            &needs,
            &dy,
            &x,
            weight,
            self.with_bias,
            &self.shape,
            &unit,
            self.eps,
            self.centered,
        );
        let dx = of_norm[0].take().map(|dx| dx.to_dtype(own));
        let dx = match (dx, dsum) {
            (Some(dx), Some(dsum)) => Some(dx + dsum),
            (dx, _) => dx,
        };
        let dadded = dx.as_ref().filter(|_| ctx.needs(1)).map(|d| d.to_dtype(self.added));
        let mut grads: Grads = smallvec![dx.filter(|_| ctx.needs(0)), dadded];
        grads.extend(of_norm.into_iter().skip(1));
        grads
    }
}
