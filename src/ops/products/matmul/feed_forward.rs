//! Two linear layers with a function between them. On a GPU the function and its derivative are parts of the products,
//! where cuBLASLt has them: the values between are not read again.

use smallvec::smallvec;

use super::active::{self, Active};
use super::cublaslt::{self, Weight};
use super::epilogue::{Epilogue, turned};
use super::{added, flat, product, product_flops, unflat, with_last};
use crate::amp::cast_op;
use crate::autograd::{
    BackwardCtx, Grads, GraphMode, enable_grad, grad, is_grad_enabled, no_grad, record,
};
use crate::cuda::cublaslt::Activation as Epilogued;
use crate::error::within;
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::products::bias_sums::column_sums;
use crate::ops::{gpu, recompute};
use crate::profiler::flops;
use crate::tensor::Tensor;

/// What a feed-forward layer has between its linear ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// [`Tensor::relu`].
    Relu,
    /// [`Tensor::gelu`].
    Gelu,
    /// [`Tensor::gelu_tanh`].
    GeluTanh,
    /// [`Tensor::silu`].
    Silu,
    /// [`Tensor::tanh`].
    Tanh,
}

impl Activation {
    /// The function of each element.
    ///
    /// ```
    /// use torchrs::{Tensor, ops::Activation};
    /// assert_eq!(Activation::Relu.apply(&Tensor::from([-1f32, 2.0])).to_vec::<f32>(), [0.0, 2.0]);
    /// ```
    #[track_caller]
    pub fn apply(self, x: &Tensor) -> Tensor {
        match self {
            Activation::Relu => x.relu(),
            Activation::Gelu => x.gelu(),
            Activation::GeluTanh => x.gelu_tanh(),
            Activation::Silu => x.silu(),
            Activation::Tanh => x.tanh(),
        }
    }

    /// cuBLASLt's name for it, if there is one.
    fn epilogue(self) -> Option<Epilogued> {
        match self {
            Activation::Relu => Some(Epilogued::Relu),
            Activation::GeluTanh => Some(Epilogued::GeluTanh),
            _ => None,
        }
    }
}

/// A linear layer: its weight and bias.
#[derive(Clone, Copy)]
pub(crate) struct Layer<'a> {
    pub(crate) weight: &'a Tensor,
    pub(crate) bias: Option<&'a Tensor>,
    /// Whether the weight is `[in, out]`, not `[out, in]`.
    pub(crate) is_turned: bool,
}

impl Layer<'_> {
    /// What the layer makes of `x`.
    #[track_caller]
    fn forward(self, x: &Tensor) -> Tensor {
        match (self.is_turned, self.bias) {
            (false, bias) => x.linear(self.weight, bias),
            (true, None) => x.matmul(self.weight),
            (true, Some(bias)) => {
                let out = bias.addmm(&flat(x), self.weight, 1.0, 1.0);
                let shape = with_last(x.shape(), self.weight.shape()[1]);
                unflat(out, &shape)
            }
        }
    }

    /// The weight as `[in, out]`.
    fn matrix(self) -> Tensor {
        if self.is_turned { self.weight.untracked() } else { turned(self.weight) }
    }

    /// How the weight lies.
    fn lies(self) -> Weight {
        if self.is_turned { Weight::InOut } else { Weight::OutIn }
    }
}

impl Tensor {
    /// A linear layer, a function of each element, and another linear layer (the position-wise feed-forward network of
    /// Vaswani et al., "Attention Is All You Need", 2017): `x` is `[.., in]`; a layer is a weight, `[out, in]` as for
    /// [`linear`](Self::linear), and a bias, `[out]`.
    ///
    /// What comes is that of the three ops. On a GPU the function of ReLU, or GELU by the hyperbolic tangent, and its
    /// derivative are computed within the products of halves, before they are rounded.
    ///
    /// ```
    /// use torchrs::{Tensor, ops::Activation};
    /// let (x, w) = (Tensor::from([[1f32, -2.0]]), Tensor::from([[1f32, 0.0], [0.0, 1.0]]));
    /// let (b, v) = (Tensor::from([0f32, 1.0]), Tensor::from([[2f32, 2.0]]));
    /// let y = x.feed_forward((&w, Some(&b)), Activation::Relu, (&v, None));
    /// assert_eq!(y.to_vec::<f32>(), [2.0]);
    /// ```
    ///
    /// # Panics
    /// As [`linear`](Self::linear), of both layers.
    #[track_caller]
    pub fn feed_forward(
        &self,
        (w1, b1): (&Tensor, Option<&Tensor>),
        activation: Activation,
        (w2, b2): (&Tensor, Option<&Tensor>),
    ) -> Tensor {
        let layer = |weight, bias| Layer { weight, bias, is_turned: false };
        let (first, second) = (layer(w1, b1), layer(w2, b2));
        fused_feed_forward(self, first, activation, second)
            .unwrap_or_else(|| activation.apply(&self.linear(w1, b1)).linear(w2, b2))
    }
}

/// [`Tensor::feed_forward`] of layers that lie either way, where products end with the function; else none.
#[track_caller]
pub(crate) fn fused_feed_forward(
    x: &Tensor,
    first: Layer<'_>,
    activation: Activation,
    second: Layer<'_>,
) -> Option<Tensor> {
    let (function, b1, b2) = (activation.epilogue()?, first.bias?, second.bias?);
    // A selective checkpoint keeps the results of the ops by themselves; what frozen weights do not need is not kept.
    let is_frozen = is_grad_enabled()
        && [x, first.weight, second.weight].iter().any(|t| t.requires_grad())
        && ![first.weight, second.weight].iter().all(|t| t.requires_grad());
    if x.device().kernels().is_none() || recompute::is_selective() || is_frozen {
        return None;
    }
    let weights = [first.is_turned, second.is_turned];
    cast_op!("linear", [x = x, w1 = first.weight, c1 = b1, w2 = second.weight, c2 = b2] => {
        let layer = |weight, bias, is_turned| Layer { weight, bias: Some(bias), is_turned };
        let (first, second) = (layer(&w1, &c1, weights[0]), layer(&w2, &c2, weights[1]));
        fused_feed_forward(&x, first, activation, second)
    });
    if !fits(x, first, second) {
        return None;
    }
    let gpu = gpu::of("linear", &[x, first.weight, b1, second.weight, b2])?;
    let rows = flat(&x.untracked());
    let [m1, m2] = [first.matrix(), second.matrix()];
    let bias = b1.untracked();
    let _line = within::line();
    let Active { out: hidden, kept } =
        no_grad(|| active::active(gpu, &rows, &m1, &bias, function))?;
    let (n, inner, features) = (rows.shape()[0], m1.shape()[1], m2.shape()[1]);
    flops("linear", || product_flops([n, inner, rows.shape()[1]], &[]));
    let epilogue = Some(Epilogue { start: b2, beta: 1.0, alpha: 1.0 });
    let out = no_grad(|| product("linear", &hidden, &m2, &[n, features], epilogue));
    let out = no_grad(|| unflat(out, &with_last(x.shape(), features)));
    let lies = [first.lies(), second.lies()];
    let inputs = [x, first.weight, b1, second.weight, b2];
    let out = record("feed_forward", &inputs, out, |saver| {
        let saved = [x, first.weight, b1, second.weight].map(|t| saver.save(t));
        let [hidden, kept] = [&hidden, &kept].map(|t| saver.save(t));
        let is_turned = weights;
        move |ctx: &BackwardCtx<'_>| {
            let [x, w1, b1, w2] = saved.each_ref().map(|t| ctx.get(t));
            let layer = |weight, bias, is_turned| Layer { weight, bias, is_turned };
            let (first, second) =
                (layer(&w1, Some(&b1), is_turned[0]), layer(&w2, None, is_turned[1]));
            if ctx.create_graph() {
                return of_ops(ctx, &x, first, activation, second);
            }
            let between = [&hidden, &kept].map(|t| ctx.get(t));
            let layers = [first, second];
            gradients(ctx, &x, layers, lies, between, (activation, function))
        }
    });
    out.add_to_sum();
    Some(out)
}

/// Whether sizes and types are right; the ops name what is not.
fn fits(x: &Tensor, first: Layer<'_>, second: Layer<'_>) -> bool {
    let sizes = |layer: Layer<'_>| match (layer.weight.shape(), layer.is_turned) {
        (&[out, inner], false) | (&[inner, out], true) => Some((inner, out)),
        _ => None,
    };
    let (Some((from, inner)), Some((middle, to))) = (sizes(first), sizes(second)) else {
        return false;
    };
    let is_bias = |layer: Layer<'_>, n: usize| layer.bias.is_some_and(|b| b.shape() == [n]);
    let all = [Some(first.weight), first.bias, Some(second.weight), second.bias];
    x.dim() > 0
        && x.shape().last() == Some(&from)
        && inner == middle
        && is_bias(first, inner)
        && is_bias(second, to)
        && all.into_iter().flatten().all(|t| t.dtype() == x.dtype() && t.device() == x.device())
}

/// The gradients from what was kept.
#[track_caller]
fn gradients(
    ctx: &BackwardCtx<'_>,
    x: &Tensor,
    [first, second]: [Layer<'_>; 2],
    [lies1, lies2]: [Weight; 2],
    [hidden, kept]: [Tensor; 2],
    (activation, function): (Activation, Epilogued),
) -> Grads {
    let (g, rows) = (flat(&ctx.grad(0)).untracked(), flat(x).untracked());
    let gpu = gpu::of("linear", &[&g]).expect("it was computed on a GPU");
    let back = second.matrix().t();
    let (n, inner) = (g.shape()[0], hidden.shape()[1]);
    let counted = |size: [usize; 3]| flops("mm", || product_flops(size, &[]));
    let (mut dw1, mut db1, mut dx) = (None, None, None);
    if ctx.needs(0) || ctx.needs(1) || ctx.needs(2) {
        let joint = no_grad(|| active::backward(gpu, &g, &back, &kept, function));
        let (inside, bias) = match joint {
            Some((inside, bias)) => {
                counted([n, inner, g.shape()[1]]);
                (inside, Some(bias))
            }
            None => {
                // ReLU's derivative is that at its result.
                let at = if activation == Activation::Relu { &hidden } else { &kept };
                (before(&no_grad(|| g.mm(&back)), at, activation), None)
            }
        };
        dx = ctx.needs(0).then(|| {
            let back = first.matrix().t();
            added(ctx, &inside, &back, x.shape())
                .unwrap_or_else(|| no_grad(|| unflat(inside.mm(&back), x.shape())))
        });
        dw1 = ctx.needs(1).then(|| of_weight(&inside, &rows, lies1));
        db1 = ctx.needs(2).then(|| bias.unwrap_or_else(|| column_sums(&inside)));
    }
    let mut of_second = [None, None];
    if ctx.needs(3) && ctx.needs(4) {
        let joint = no_grad(|| cublaslt::weight_and_bias(&g, &hidden, lies2));
        if let Some((weight, bias)) = joint {
            counted([g.shape()[1], inner, n]);
            of_second = [Some(weight), Some(bias)];
        }
    }
    let [dw2, db2] = of_second;
    let dw2 = dw2.or_else(|| ctx.needs(3).then(|| of_weight(&g, &hidden, lies2)));
    let db2 = db2.or_else(|| ctx.needs(4).then(|| column_sums(&g)));
    smallvec![dx, dw1, db1, dw2, db2]
}

/// A weight's gradient.
#[track_caller]
fn of_weight(g: &Tensor, x: &Tensor, lies: Weight) -> Tensor {
    no_grad(|| match lies {
        Weight::OutIn => g.t().mm(x),
        Weight::InOut => x.t().mm(g),
    })
}

/// The gradient before the function, where no product ends with its derivative.
#[track_caller]
fn before(g: &Tensor, at: &Tensor, activation: Activation) -> Tensor {
    let x = at.detach().requires_grad_(true);
    let y = enable_grad(|| activation.apply(&x));
    grad(&[&y], &[&x], &[Some(g)], GraphMode::Free).swap_remove(0).expect("it depends on it")
}

/// The gradients by recorded ops, which can be differentiated again.
#[track_caller]
fn of_ops(
    ctx: &BackwardCtx<'_>,
    x: &Tensor,
    first: Layer<'_>,
    activation: Activation,
    second: Layer<'_>,
) -> Grads {
    let (rows, g) = (flat(x), flat(&ctx.grad(0)));
    let inside = first.forward(&rows);
    // The function's own input, of which its derivative is made.
    let inside = if inside.requires_grad() { inside } else { inside.requires_grad_(true) };
    let hidden = activation.apply(&inside);
    let back = |layer: Layer<'_>, g: &Tensor| match layer.is_turned {
        true => g.mm(&layer.weight.t()),
        false => g.mm(layer.weight),
    };
    let weight = |layer: Layer<'_>, g: &Tensor, x: &Tensor| match layer.is_turned {
        true => x.t().mm(g),
        false => g.t().mm(x),
    };
    let sums = |g: &Tensor| g.sum_to(&g.shape()[1..]);
    let dhidden = back(second, &g);
    let dinside = grad(&[&hidden], &[&inside], &[Some(&dhidden)], GraphMode::Create)
        .swap_remove(0)
        .expect("it depends on it");
    let needed = |i: usize, make: &dyn Fn() -> Tensor| ctx.needs(i).then(make);
    smallvec![
        needed(0, &|| unflat(back(first, &dinside), x.shape())),
        needed(1, &|| weight(first, &dinside, &rows)),
        needed(2, &|| sums(&dinside)),
        needed(3, &|| weight(second, &g, &hidden)),
        needed(4, &|| sums(&g)),
    ]
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let sample = |activation: Activation| {
        let inputs = [
            values([2, 3, 4], 1),
            values([8, 4], 2),
            values([8], 3),
            values([5, 8], 4),
            values([5], 5),
        ];
        OpSample::new(format!("feed_forward({activation:?})"), inputs, move |x| {
            x[0].feed_forward((&x[1], Some(&x[2])), activation, (&x[3], Some(&x[4])))
        })
        .slack(8.0)
    };
    [Activation::Relu, Activation::GeluTanh, Activation::Gelu, Activation::Silu, Activation::Tanh]
        .map(sample)
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autograd;
    use crate::cuda::simulated_test::on_gpu;
    use crate::storage::Device;
    use crate::tensor::Dtype;

    /// Input, weights and biases, on the GPU.
    fn inputs(dtype: Dtype, is_turned: bool) -> [Tensor; 5] {
        let weight = |shape: [i64; 2], seed: u64| {
            let shape = if is_turned { shape } else { [shape[1], shape[0]] };
            values(shape.map(|s| s as usize), seed)
        };
        let all = [
            values([2, 5, 16], 1),
            weight([16, 24], 2),
            values([24], 3),
            weight([24, 8], 4),
            values([8], 5),
        ];
        all.map(|t| t.to_dtype(dtype).to_device(Device::Cuda(0)).requires_grad_(true))
    }

    fn layers([_, w1, b1, w2, b2]: &[Tensor; 5], is_turned: bool) -> [Layer<'_>; 2] {
        [(w1, b1), (w2, b2)].map(|(weight, bias)| Layer { weight, bias: Some(bias), is_turned })
    }

    fn close(a: &Tensor, b: &Tensor, what: &str) {
        let [a, b] = [a, b].map(|t| t.detach().cpu().to_dtype(Dtype::F64));
        assert_eq!(a.shape(), b.shape(), "{what}");
        let error = (&a - &b).abs().max().item();
        assert!(error <= 0.02 * b.abs().max().item(), "{what}: {error}");
    }

    fn fused_and_not() {
        for dtype in [Dtype::F16, Dtype::BF16] {
            for (activation, is_turned) in
                [(Activation::Relu, false), (Activation::GeluTanh, true), (Activation::Relu, true)]
            {
                let what = format!("{dtype} {activation:?} {is_turned}");
                let x = inputs(dtype, is_turned);
                let [first, second] = layers(&x, is_turned);
                let y = fused_feed_forward(&x[0], first, activation, second).expect(&what);
                let composed = second.forward(&activation.apply(&first.forward(&x[0])));
                close(&y, &composed, &what);
                let g = values([2, 5, 8], 6).to_dtype(dtype).to_device(Device::Cuda(0));
                let wanted = x.each_ref();
                let of = |y: &Tensor, mode| autograd::grad(&[y], &wanted, &[Some(&g)], mode);
                let ours = of(&y, GraphMode::Retain);
                let again = of(&y, GraphMode::Create);
                let theirs = of(&composed, GraphMode::Create);
                for (i, theirs_i) in theirs.iter().enumerate() {
                    let [a, b, c] = [&ours[i], &again[i], theirs_i].map(|t| t.as_ref().unwrap());
                    close(a, c, &format!("{what}, gradient {i}"));
                    close(b, c, &format!("{what}, recorded gradient {i}"));
                }
                // Of a function that is not linear in each of them.
                let second_of = |grads: &[Option<Tensor>]| {
                    let sum = grads.iter().flatten().map(|t| (t * t).mean()).reduce(|a, b| a + b);
                    autograd::grad(&[&sum.unwrap()], &wanted[..4], &[None], GraphMode::Free)
                };
                for (i, (a, b)) in second_of(&again).iter().zip(second_of(&theirs)).enumerate() {
                    if let (Some(a), Some(b)) = (a, b) {
                        close(a, &b, &format!("{what}, second derivative {i}"));
                    }
                }
            }
        }
        assert_eq!(crate::cuda::cublaslt::refused(), 0);
    }

    /// What is not a product of halves with all weights trained is left to the ops.
    fn left_to_the_ops() {
        let x = inputs(Dtype::BF16, false);
        let [first, second] = layers(&x, false);
        let gelu = fused_feed_forward(&x[0], first, Activation::Gelu, second);
        assert!(gelu.is_none(), "cuBLASLt has no such function");
        x[1].requires_grad_(false);
        assert!(fused_feed_forward(&x[0], first, Activation::Relu, second).is_none(), "frozen");
        let evaluated =
            no_grad(|| fused_feed_forward(&x[0], first, Activation::Relu, second).is_some());
        assert!(evaluated, "without gradients it does not matter");
        let full = inputs(Dtype::F32, false);
        let [first, second] = layers(&full, false);
        assert!(fused_feed_forward(&full[0], first, Activation::Relu, second).is_none(), "f32");
        let half =
            |f: &dyn Fn() -> Option<Tensor>| crate::amp::autocast(Device::Cuda(0), Dtype::BF16, f);
        let cast = half(&|| fused_feed_forward(&full[0], first, Activation::Relu, second));
        assert_eq!(cast.expect("cast to halves").dtype(), Dtype::BF16);
    }

    #[test]
    fn functions_within_products_are_those_beside_them() {
        let test = "ops::products::matmul::feed_forward::tests::functions_within_products_are_those_beside_them";
        on_gpu(test, || {
            fused_and_not();
            left_to_the_ops();
        });
    }
}
