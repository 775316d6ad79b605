//! y and dx of dense convolutions of bf16 where the processor multiplies such numbers in pairs.

use half::bf16;

use super::cpu::room_for_data;
use super::scratch::minimal;
use super::scratch::scratch;
use super::shape::Shape;
use crate::autograd::no_grad;
use crate::cpu::{
    convolution::direct::HalfCorrelation, convolution::direct::HalfFilters,
    convolution::direct::Sizes, convolution::direct::Target, convolution::field::Field,
    convolution::field::Window,
};
use crate::tensor::{Dtype, Tensor};

/// A contiguous tensor without history.
fn dense(x: &Tensor) -> Tensor {
    no_grad(|| x.detach().contiguous()).detach()
}

/// y, if it is computed here.
pub(crate) fn forward(
    shape: &Shape,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
) -> Option<Tensor> {
    let window = shape.window();
    let sizes = shape.sizes(window.grid);
    if x.dtype() != Dtype::BF16 || !pays(shape, sizes, &window, 1) {
        return None;
    }
    let out = Tensor::uninitialised(&shape.y(), Dtype::BF16);
    if out.numel() == 0 {
        return Some(out);
    }
    let target = shape.target(&window);
    let taps = shape.taps();
    let order: Vec<usize> = (0..taps).collect();
    let (output, input) = (sizes.inputs * taps, taps);
    let lie = Lie { output, input, taps: &order };
    correlate(sizes, &window, (x, weight, bias), lie, target, &out);
    Some(out)
}

/// dx, from dy and the weight, if it is computed here.
pub(crate) fn data_gradient(shape: &Shape, dy: &Tensor, weight: &Tensor) -> Option<Tensor> {
    let Sizes { inputs, outputs, .. } = shape.sizes([1, 1]);
    // The roles of the channels are exchanged.
    let turned = |grid| Sizes { inputs: outputs, outputs: inputs, ..shape.sizes(grid) };
    let residues = shape.residues();
    let pay = |(window, _, target): &(Window, Vec<usize>, Target)| {
        pays(shape, turned(window.grid), window, target.column)
    };
    if dy.dtype() != Dtype::BF16 || !residues.iter().all(pay) {
        return None;
    }
    let out = room_for_data(shape, Dtype::BF16);
    if out.numel() == 0 {
        return Some(out);
    }
    let taps = shape.taps();
    for (window, which, target) in residues {
        if !which.is_empty() {
            let lie = Lie { output: taps, input: inputs * taps, taps: &which };
            correlate(turned(window.grid), &window, (dy, weight, None), lie, target, &out);
        }
    }
    Some(out)
}

/// Whether pairs take less time than f32 numbers, of which minimal filtering may need few products where its results
/// are neighbours, `column` apart.
fn pays(shape: &Shape, sizes: Sizes, window: &Window, column: usize) -> bool {
    let minimal = minimal(sizes, window).filter(|_| column == 1);
    !shape.is_depthwise()
        && HalfCorrelation::pays(sizes)
        && !minimal.is_some_and(|(winograd, _)| winograd.pays_beside_pairs())
}

/// Distances between filters, as in [`HalfFilters`].
struct Lie<'a> {
    output: usize,
    input: usize,
    taps: &'a [usize],
}

fn correlate(
    sizes: Sizes,
    window: &Window,
    (source, weight, bias): (&Tensor, &Tensor, Option<&Tensor>),
    lie: Lie,
    target: Target,
    out: &Tensor,
) {
    let (source, weight, bias) = (dense(source), dense(weight), bias.map(dense));
    // SAFETY: contiguous tensors of this type; `out` is new.
    let (source, data, bias, out) = unsafe {
        let bias = bias.as_ref().map(|bias| bias.as_slice::<bf16>());
        (source.as_slice::<bf16>(), weight.as_slice::<bf16>(), bias, out.as_mut_slice::<bf16>())
    };
    let field = Field::new(window, 1);
    let correlation = HalfCorrelation::new(sizes, window, &field).expect("checked: it pays");
    let (planes, packed) =
        (scratch::<f32>(correlation.source_len()), scratch::<f32>(correlation.filters_len()));
    // SAFETY: new tensors that nobody else has.
    let (planes, packed) = unsafe { (planes.as_mut_slice::<f32>(), packed.as_mut_slice::<f32>()) };
    let group = data.len() / sizes.groups;
    let Lie { output, input, taps } = lie;
    correlation.pack_filters(HalfFilters { data, group, output, input, taps }, packed);
    correlation.prepare(source, window.source, planes);
    correlation.run(planes, packed, bias, target, out);
}
