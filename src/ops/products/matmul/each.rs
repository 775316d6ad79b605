//! Several linear layers of one input, as those to queries, keys and values. Where their weights lie side by side, which
//! autocast sees to on a GPU, one product makes all results, and the input is read once.
//!
//! Backward is that of each layer: its weight's gradient is a product by itself, and each product of the input's gradient
//! begins with the sum so far. Nothing is copied together for it.

use super::epilogue::{Epilogue, turned};
use super::feed_forward::Layer;
use super::{flat, product, recorded, unflat, with_last};
use crate::amp::{self, Region};
use crate::autograd::no_grad;
use crate::error::within;
use crate::ops::recompute;
use crate::tensor::{Layout, Tensor};

/// What each of the layers, whose weights are `[out, in]`, makes of `x`.
#[track_caller]
pub(crate) fn linear_each<const N: usize>(x: &Tensor, layers: [Layer<'_>; N]) -> [Tensor; N] {
    debug_assert!(layers.iter().all(|layer| !layer.is_turned));
    if let Some(region) = cast_together(x, &layers) {
        let x = region.cast(x);
        let given: Vec<&Tensor> = layers.iter().filter_map(|layer| layer.bias).collect();
        let groups = [&layers.map(|layer| layer.weight)[..], &given];
        let [weights, biases] = region.side_by_side(&groups).try_into().expect("as many");
        let mut biases = biases.into_iter();
        let biases = layers.map(|layer| layer.bias.and_then(|_| biases.next()));
        let cast = std::array::from_fn(|i| Layer {
            weight: &weights[i],
            bias: biases[i].as_ref(),
            is_turned: false,
        });
        return linear_each(&x, cast);
    }
    match joint(x, &layers) {
        Some(outputs) => std::array::from_fn(|i| {
            recorded(x, layers[i].weight, layers[i].bias, outputs[i].clone())
        }),
        None => layers.map(|layer| x.linear(layer.weight, layer.bias)),
    }
}

/// The region that casts the layers of a GPU, if there is one.
#[track_caller]
fn cast_together(x: &Tensor, layers: &[Layer<'_>]) -> Option<Region> {
    if !amp::is_active() || x.device().kernels().is_none() {
        return None;
    }
    let mut inputs = vec![Some(x)];
    inputs.extend(layers.iter().flat_map(|layer| [Some(layer.weight), layer.bias]));
    Region::enter("linear", &inputs)
}

/// The results as parts of one product's, where the weights, and the biases, lie side by side.
#[track_caller]
fn joint(x: &Tensor, layers: &[Layer<'_>]) -> Option<Vec<Tensor>> {
    // A selective checkpoint keeps the result of each.
    if x.device().kernels().is_none() || recompute::is_selective() {
        return None;
    }
    let weights: Vec<&Tensor> = layers.iter().map(|layer| layer.weight).collect();
    let biases: Vec<&Tensor> = layers.iter().filter_map(|layer| layer.bias).collect();
    let fits = |t: &Tensor| t.dtype() == x.dtype() && t.device() == x.device();
    let weight = whole(&weights).filter(fits)?;
    let right = weight.dim() == 2 && x.dim() > 0 && x.shape().last() == weight.shape().last();
    let bias = whole(&biases).filter(fits);
    let same = bias.as_ref().map_or(biases.is_empty(), |bias| {
        biases.len() == layers.len() && bias.shape() == &weight.shape()[..1]
    });
    if !right || !same {
        return None;
    }
    let _line = within::line();
    Some(no_grad(|| {
        let rows = flat(&x.untracked());
        let shape = [rows.shape()[0], weight.shape()[0]];
        let epilogue = bias.as_ref().map(|start| Epilogue { start, beta: 1.0, alpha: 1.0 });
        let out = product("linear", &rows, &turned(&weight), &shape, epilogue);
        let mut from: usize = 0;
        let part = |weight: &&Tensor| {
            let features = weight.shape()[0];
            let part = out.narrow(1, from, features);
            from += features;
            unflat(part, &with_last(x.shape(), features)).detach()
        };
        weights.iter().map(part).collect()
    }))
}

/// The tensors as one, along their first dimension, if each lies behind the one before it in one storage.
fn whole(parts: &[&Tensor]) -> Option<Tensor> {
    let first = *parts.first()?;
    let mut end = first.layout().offset;
    let mut size = 0;
    for part in parts {
        let is_next = part.storage().ptr_eq(first.storage())
            && part.dtype() == first.dtype()
            && part.dim() > 0
            && part.shape()[1..] == first.shape()[1..]
            && part.is_contiguous()
            && part.layout().offset == end;
        if !is_next {
            return None;
        }
        end += part.numel();
        size += part.shape()[0];
    }
    let mut shape = first.layout().shape.clone();
    shape[0] = size;
    let layout = Layout { offset: first.layout().offset, ..Layout::contiguous(&shape) };
    Some(Tensor::from_parts(first.storage().clone(), layout, first.dtype()))
}
