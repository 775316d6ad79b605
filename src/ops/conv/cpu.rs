//! y, dx and dw through the drivers of `cpu::convolution::direct`, `cpu::convolution::winograd` and `cpu::convolution::depthwise`.
use super::one_by_one::Pointwise;
use super::scratch::{field_of, minimal, scratch};
use super::shape::Shape;
use crate::autograd::no_grad;
use crate::cpu::{
    convolution::depthwise::Planes, convolution::depthwise::correlate_plane_filters,
    convolution::depthwise::correlate_planes, convolution::depthwise::spread_planes,
    convolution::direct::Correlation, convolution::direct::FilterSums, convolution::direct::Sizes,
    convolution::direct::Spread, convolution::direct::Target, convolution::field::Field,
    convolution::field::Window, convolution::winograd::Filters, convolution::winograd::Stride,
    convolution::winograd::Winograd, numbers::float::single, numbers::float::single_mut,
    products::tiled::Tiled, threads::GRAIN, threads::parallel_for, threads::parts::Parts,
};
use crate::ops::{compute_type, products::bias_sums};
use crate::tensor::{Dtype, Element, Tensor, dispatch};

/// The source as its field wants it: a prepared copy in `copy`, or as it is.
fn prepared<'a, T: Tiled>(
    field: &Field,
    source: &'a [T],
    [h, w]: [usize; 2],
    copy: &'a mut [T],
) -> &'a [T] {
    if field.direct {
        return source;
    }
    field.fill_planes(|p| Some(&source[p * h * w..(p + 1) * h * w]), [h, w], 1, copy);
    copy
}

/// Bytes of prepared planes that are used while they are in a cache; few in tests, so that batches are divided.
const NEAR: usize = if cfg!(test) { 8 << 10 } else { 2 << 20 };

/// Direct sums over the source of the filters' products with it. `weight(g)` is the row-major
/// `outputs x (inputs * taps)` matrix of group g.
fn correlate_direct<'w, T: Tiled + Element>(
    sizes: Sizes,
    window: &Window,
    source: &[T],
    weight: impl Fn(usize) -> &'w [T] + Sync,
    bias: Option<&[T]>,
    target: Target,
    out: &mut [T],
) {
    let mut field = field_of::<T>(window);
    if Correlation::<T>::new(sizes, &field).takes_points() {
        field = Field::new(window, 1);
    }
    let (batch, channels) = (sizes.batch, sizes.groups * sizes.inputs);
    let images = together::<T>(&field, batch, channels);
    let correlation = Correlation::<T>::new(Sizes { batch: images, ..sizes }, &field);
    let filters = scratch::<T>(correlation.filters_len());
    let copy = scratch::<T>(field.len(images * channels));
    // SAFETY: new tensors that nobody else has.
    let (filters, copy) = unsafe { (filters.as_mut_slice::<T>(), copy.as_mut_slice::<T>()) };
    correlation.pack_filters(weight, filters);
    let len = images * channels * window.source[0] * window.source[1];
    for (i, source) in source[..batch / images * len].chunks_exact(len).enumerate() {
        let source = prepared(&field, source, window.source, copy);
        let first = target.first + i * images * target.image;
        correlation.run(source, &[], filters, bias, Target { first, ..target }, out);
    }
}

/// Minimal filtering of `source` by `filters`; false when the result is not finite. Then it has to be
/// computed directly: in a sum of transformed numbers an infinity makes NaN of its neighbours.
#[must_use]
fn correlate_minimal(
    winograd: &Winograd,
    source: &[f32],
    filters: Filters,
    bias: Option<&[f32]>,
    target: Target,
    out: &mut [f32],
) -> bool {
    let room = scratch::<f32>(winograd.scratch_len());
    // SAFETY: a new tensor that nobody else has.
    let room = unsafe { room.as_mut_slice::<f32>() };
    winograd.correlate(source, filters, bias, target, room, out)
}

#[track_caller]
pub(crate) fn forward(shape: &Shape, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let dtype = x.dtype();
    let (x, w, bias) =
        (compute_type::widen(x), compute_type::widen(weight), bias.map(compute_type::widen));
    let out = Tensor::empty(shape.y(), x.dtype().on_host());
    if out.numel() == 0 {
        return compute_type::narrow(out, dtype);
    }
    dispatch!(compute x.dtype(), "conv2d", T => {
        // SAFETY: `widen` gives contiguous tensors of this type; `out` is new.
        let (x, w, out) = unsafe { (x.as_slice::<T>(), w.as_slice::<T>(), out.as_mut_slice::<T>()) };
        // SAFETY: a contiguous tensor of this type, which nobody writes.
        let bias = bias.as_ref().map(|b| unsafe { b.as_slice::<T>() });
        forward_kernel(shape, x, w, bias, |target| target, out);
    });
    compute_type::narrow(out, dtype)
}

/// y, which goes where `place` puts it instead of a tensor of its own.
pub(crate) fn forward_kernel<T: Tiled + Element>(
    shape: &Shape,
    x: &[T],
    w: &[T],
    bias: Option<&[T]>,
    place: impl Fn(Target) -> Target,
    out: &mut [T],
) {
    let (window, taps) = (shape.window(), shape.taps());
    let channels = shape.output[0];
    let target = place(shape.target(&window));
    if shape.is_depthwise() {
        let planes = Planes { batch: shape.batch, channels, sources: shape.input[0], inputs: 1 };
        return correlate_planes(planes, &window, x, w, bias, target, out);
    }
    let sizes = shape.sizes(window.grid);
    if let Some(pointwise) = Pointwise::of(sizes, &window) {
        return pointwise.correlate(x, (w, sizes.inputs, 1), bias, target, out);
    }
    let group = sizes.outputs * sizes.inputs * taps;
    if let Some((winograd, order)) = minimal(sizes, &window)
        && winograd.pays()
        && let (Some(x), Some(w), Some(out)) = (single(x), single(w), single_mut(out))
    {
        let (output, input) = (sizes.inputs * taps, taps);
        let filters = Filters { data: w, group, output, input, order };
        if correlate_minimal(&winograd, x, filters, bias.and_then(single), target, out) {
            return;
        }
    }
    correlate_direct(sizes, &window, x, |g| &w[g * group..(g + 1) * group], bias, target, out);
}

/// Room for dx, with zeros where no tap reaches.
pub(super) fn room_for_data(shape: &Shape, dtype: Dtype) -> Tensor {
    if shape.reaches_all() && shape.batch > 0 {
        Tensor::empty(shape.x(), dtype.on_host())
    } else {
        Tensor::zeros(shape.x(), dtype.on_host())
    }
}

/// dx, from dy and the weight.
pub(crate) fn data_gradient(shape: &Shape, dy: &Tensor, weight: &Tensor) -> Tensor {
    let dtype = dy.dtype();
    let (dy, w) = (compute_type::widen(dy), compute_type::widen(weight));
    let out = room_for_data(shape, dy.dtype());
    if out.numel() == 0 {
        return compute_type::narrow(out, dtype);
    }
    dispatch!(compute dy.dtype(), "conv2d", T => {
        // SAFETY: `widen` gives contiguous tensors of this type; `out` is new.
        let (dy, w, out) = unsafe { (dy.as_slice::<T>(), w.as_slice::<T>(), out.as_mut_slice::<T>()) };
        data_kernels(shape, dy, w, |target| target, out);
    });
    compute_type::narrow(out, dtype)
}

/// All that is not 0 of dx, which goes where `place` puts it.
pub(crate) fn data_kernels<T: Tiled + Element>(
    shape: &Shape,
    dy: &[T],
    w: &[T],
    place: impl Fn(Target) -> Target,
    out: &mut [T],
) {
    if shape.is_depthwise() {
        let [channels, h, width] = shape.input;
        let (outputs, sources) = (shape.output[0] / channels, shape.output[0]);
        let planes = Planes { batch: shape.batch, channels, sources, inputs: outputs };
        let [image, channel] = [channels * h * width, h * width];
        let target = place(Target { first: 0, image, channel, row: width, column: 1 });
        if spread_planes(planes, &shape.window(), dy, w, target, out) {
            return;
        }
    }
    if data_minimal(shape, single(dy), single(w), &place, single_mut(out)) {
        return;
    }
    for (window, which, target) in &shape.residues() {
        if !which.is_empty() {
            data_kernel(shape, window, which, place(*target), dy, w, out);
        }
    }
}

/// All residue classes of dx together by minimal filtering, where that pays; false where not, or as for
/// [`correlate_minimal`].
fn data_minimal(
    shape: &Shape,
    dy: Option<&[f32]>,
    w: Option<&[f32]>,
    place: impl Fn(Target) -> Target,
    out: Option<&mut [f32]>,
) -> bool {
    let [channels, height, width] = shape.input;
    let window = shape.window();
    let Sizes { batch, groups, inputs, outputs, grid } = shape.sizes(window.grid);
    let (Some(dy), Some(w), Some(out)) = (dy, w, out) else { return false };
    let Some((forward, _)) = minimal(shape.sizes(grid), &window) else { return false };
    // The roles of the channels are exchanged.
    let sizes = Sizes { batch, groups, inputs: outputs, outputs: inputs, grid: [height, width] };
    let winograd = Winograd { sizes, source: grid, origin: [0; 2], stride: Stride::Half };
    if (forward.stride, forward.origin) != (Stride::Two, [-1; 2]) || !winograd.pays() {
        return false;
    }
    let order = std::array::from_fn(|tap| tap);
    let group = outputs * inputs * order.len();
    let (output, input) = (order.len(), inputs * order.len());
    let filters = Filters { data: w, group, output, input, order };
    let [image, channel] = [channels * height * width, height * width];
    let target = place(Target { first: 0, image, channel, row: width, column: 1 });
    target.column == 1 && correlate_minimal(&winograd, dy, filters, None, target, out)
}

/// One residue class of dx; `which` are the taps of the filter that it sees.
fn data_kernel<T: Tiled + Element>(
    shape: &Shape,
    window: &Window,
    which: &[usize],
    target: Target,
    dy: &[T],
    w: &[T],
    out: &mut [T],
) {
    let taps = shape.taps();
    let Sizes { batch, groups, inputs, outputs, grid } = shape.sizes(window.grid);
    if shape.is_depthwise() {
        let planes =
            Planes { batch, channels: shape.input[0], sources: shape.output[0], inputs: outputs };
        let seen = |filter: &[T]| which.iter().map(|&t| filter[t]).collect::<Vec<T>>();
        let filters: Vec<T> = w.chunks_exact(taps).flat_map(seen).collect();
        return correlate_planes(planes, window, dy, &filters, None, target, out);
    }
    // The roles of the channels are exchanged.
    let sizes = Sizes { batch, groups, inputs: outputs, outputs: inputs, grid };
    // Of a larger filter, the one tap's weights are not behind one another.
    if let Some(pointwise) = Pointwise::of(sizes, window).filter(|_| taps == 1) {
        return pointwise.correlate(dy, (w, 1, inputs), None, target, out);
    }
    // Minimal filtering writes neighbours; a strided and dilated filter's residue has gaps between its points.
    if let Some((winograd, order)) = minimal(sizes, window).filter(|_| target.column == 1)
        && winograd.pays()
        && let (Some(dy), Some(w), Some(out)) = (single(dy), single(w), single_mut(out))
    {
        let order = order.map(|place| which[place]);
        let group = outputs * inputs * taps;
        let filters = Filters { data: w, group, output: taps, input: inputs * taps, order };
        if correlate_minimal(&winograd, dy, filters, None, target, out) {
            return;
        }
    }
    let k = outputs * which.len();
    let turned = turned(w, [groups, outputs, inputs], taps, which);
    // SAFETY: a new tensor that nobody writes any more.
    let turned = unsafe { turned.as_slice::<T>() };
    let weight = |g: usize| &turned[g * inputs * k..(g + 1) * inputs * k];
    correlate_direct(sizes, window, dy, weight, None, target, out);
}

/// Filters for the data gradient: `[group, o, c, taps]` as `[group, c, o, which]`, of the taps that count.
pub(crate) fn turned<T: Tiled + Element>(
    w: &[T],
    [groups, outputs, inputs]: [usize; 3],
    taps: usize,
    which: &[usize],
) -> Tensor {
    let k = outputs * which.len();
    let turned = scratch::<T>(groups * inputs * k);
    // SAFETY: a new tensor that nobody else has.
    let all = Parts::new(unsafe { turned.as_mut_slice::<T>() });
    for g in 0..groups {
        // Single numbers from places apart.
        parallel_for(inputs, (GRAIN / 8).div_ceil(k.max(1)), |channels| {
            let first = g * inputs + channels.start;
            // SAFETY: channels are disjoint.
            let all = unsafe { all.slice(first * k..(first + channels.len()) * k) };
            for o in 0..outputs {
                let filter = ((g * outputs + o) * inputs + channels.start) * taps;
                let filter = w[filter..][..channels.len() * taps].chunks_exact(taps);
                for (from, to) in filter.zip(all.chunks_exact_mut(k)) {
                    let to = &mut to[o * which.len()..][..which.len()];
                    for (to, &tap) in to.iter_mut().zip(which) {
                        *to = from[tap];
                    }
                }
            }
        });
    }
    turned
}

/// dw, from dy and the input, in `place` where that fits.
pub(crate) fn weight_gradient(
    shape: &Shape,
    dy: &Tensor,
    x: &Tensor,
    place: Option<Tensor>,
) -> Tensor {
    let dtype = dy.dtype();
    let (dy, x) = (compute_type::widen(dy), compute_type::widen(x));
    if dy.numel() == 0 {
        return compute_type::narrow(Tensor::zeros(shape.weight(), dy.dtype().on_host()), dtype);
    }
    let out = place_or_new(place, &shape.weight(), dy.dtype());
    dispatch!(compute dy.dtype(), "conv2d", T => {
        // SAFETY: `widen` gives contiguous tensors of this type; `out` is new, or dense and to be overwritten.
        let (dy, x, out) = unsafe { (dy.as_slice::<T>(), x.as_slice::<T>(), out.as_mut_slice::<T>()) };
        weight_kernel(shape, dy, x, out);
    });
    compute_type::narrow(out, dtype)
}

/// `place` if it is as wanted, else a new tensor.
pub(crate) fn place_or_new(place: Option<Tensor>, shape: &[usize], dtype: Dtype) -> Tensor {
    let fits = |place: &Tensor| (place.shape(), place.dtype()) == (shape, dtype);
    place.filter(fits).unwrap_or_else(|| Tensor::empty(shape, dtype.on_host()))
}

/// dw from contiguous dy and x.
pub(crate) fn weight_kernel<T: Tiled + Element>(shape: &Shape, dy: &[T], x: &[T], out: &mut [T]) {
    let window = shape.window();
    if shape.is_depthwise() {
        let (channels, sources) = (shape.output[0], shape.input[0]);
        let planes = Planes { batch: shape.batch, channels, sources, inputs: 1 };
        return correlate_plane_filters(planes, &window, x, dy, out);
    }
    let sizes = shape.sizes(window.grid);
    if let Some(pointwise) = Pointwise::of(sizes, &window) {
        return pointwise.correlate_filters(x, dy, out);
    }
    // A window's taps are the filter's, row by row.
    if let Some((winograd, _)) = minimal(sizes, &window)
        && winograd.pays_for_filters()
        && let (Some(dy), Some(x), Some(out)) = (single(dy), single(x), single_mut(out))
    {
        let sums = scratch::<f32>(winograd.filter_sums_len());
        // SAFETY: a new tensor that nobody else has.
        let sums = unsafe { sums.as_mut_slice::<f32>() };
        winograd.correlate_filters(x, dy, sums, out);
        // As for `correlate_minimal`.
        if out.iter().all(|v| v.is_finite()) {
            return;
        }
    }
    let field = field_of::<T>(&window);
    let [batch, channels] = [shape.batch, shape.input[0]];
    let images = together::<T>(&field, batch, channels);
    let sizes = Sizes { batch: images, ..sizes };
    let all = FilterSums::new(sizes, &field);
    let (sums, copy) = (scratch::<T>(all.len()), scratch::<T>(field.len(images * channels)));
    // SAFETY: new tensors that nobody else has.
    let (sums, copy) = unsafe { (sums.as_mut_slice::<T>(), copy.as_mut_slice::<T>()) };
    let [of_x, of_dy] = [x.len(), dy.len()].map(|len| len / batch * images);
    for (i, (x, dy)) in x.chunks_exact(of_x).zip(dy.chunks_exact(of_dy)).enumerate() {
        let source = prepared(&field, x, window.source, copy);
        all.add((source, &[]), (dy, Spread::dense(sizes)), i == 0, sums);
    }
    all.bring(sums, out);
}

/// Images of a batch, which they divide, whose prepared planes are a copy that need not go to memory and back. Not
/// by the number of threads, on which no result depends.
fn together<T>(field: &Field, batch: usize, channels: usize) -> usize {
    let fits = |images: usize| field.len(images * channels) * size_of::<T>() <= NEAR;
    let whole = |images: &usize| batch.is_multiple_of(*images) && fits(*images);
    (2..=batch).rev().find(whole).unwrap_or(1)
}

/// The sum of `[N, C, ..]` over all dimensions but the second.
pub(crate) fn bias_gradient(dy: &Tensor) -> Tensor {
    if dy.device().kernels().is_some() {
        let dims: Vec<i64> = (0..dy.dim() as i64).filter(|&d| d != 1).collect();
        return no_grad(|| dy.sum_dim(&dims, false));
    }
    let (dtype, dy) = (dy.dtype(), compute_type::widen(dy));
    let (batch, channels) = (dy.shape()[0], dy.shape()[1]);
    let out = Tensor::empty([channels], dy.dtype().on_host());
    dispatch!(compute dy.dtype(), "conv2d", T => {
        // SAFETY: `widen` gives a contiguous tensor of this type; `out` is new.
        let (dy, out) = unsafe { (dy.as_slice::<T>(), out.as_mut_slice::<T>()) };
        bias_sums::sum_channels(dy, batch, out);
    });
    compute_type::narrow(out, dtype)
}
