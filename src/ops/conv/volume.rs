//! Convolution in three dimensions, by the drivers for two.
//!
//! The depth of a filter is counted among the channels, so that a sum over the depth is part of the same
//! matrix product. Direct sums read the planes of a [`Stack`]. For the other ways (minimal filtering, one
//! tap, planes that need no border) the input planes that the depth taps of a block of outputs read are copied
//! side by side (zeros outside), and one product in two dimensions gives all output planes, written straight to
//! their places. The copy is of a cache's size and not of the whole input.
//!
//! ```text
//! y[:, i]  = conv2d(x[:, i * stride + t * dilation - padding] for all t, w[:, :, t])
//! dx[:, j] = the data gradient of dy[:, i] for all i, t with j = i * stride + t * dilation - padding;
//!            the t are the same for all j of a remainder modulo the stride
//! dw       = the sum of the blocks' filter gradients
//! ```

use super::flops_of;
use super::geometry::Geometry;
use std::ops::Range;

use super::cpu::{data_kernels, forward_kernel, place_or_new, turned, weight_kernel};
use super::cuda;
use super::options::{Conv2dOptions, Conv3dOptions};
use super::products::Products;
use super::scratch::scratch;
use super::shape::Shape;
use super::stack::{Depth, Part, Stack};
use crate::autograd::no_grad;
use crate::cpu::{
    convolution::direct::Sizes, convolution::direct::Target, convolution::field::Window,
    products::tiled::Tiled, threads::parallel_for, threads::parts::Parts,
};
use crate::ops::{compute_type, gpu};
use crate::tensor::{Element, Tensor, dispatch};

/// Numbers of a block's copy.
const BLOCK: usize = 1 << 20;

/// All sizes of a convolution in three dimensions.
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    pub batch: usize,
    pub channels: usize,
    pub outputs: usize,
    /// Depth, height, width.
    pub input: [usize; 3],
    pub output: [usize; 3],
    pub kernel: [usize; 3],
    pub options: Conv3dOptions,
}

impl Depth {
    fn place(&self, i: usize, t: usize) -> Option<usize> {
        let at = (i * self.step) as isize + self.taps[t];
        (0..self.size as isize).contains(&at).then_some(at as usize)
    }

    /// Copies planes for positions `items`, counted through the batch: `[items, channels, taps, plane]`
    /// from `[batch, channels, size, plane]`.
    fn gather<T: Tiled>(&self, x: &[T], channels: usize, items: Range<usize>, out: &mut [T]) {
        let (n, taps) = (items.len() * channels * self.taps.len(), self.taps.len());
        let plane = out.len() / n.max(1);
        let out = Parts::new(out);
        parallel_for(n, (64 << 10) / plane.max(1) + 1, |range| {
            for k in range {
                // SAFETY: each plane is one thread's.
                let to = unsafe { out.slice(k * plane..(k + 1) * plane) };
                let (item, c, t) =
                    (items.start + k / taps / channels, k / taps % channels, k % taps);
                match self.place(item % self.count, t) {
                    Some(d) => {
                        let at = (item / self.count * channels + c) * self.size + d;
                        to.copy_from_slice(&x[at * plane..(at + 1) * plane]);
                    }
                    None => to.fill(T::ZERO),
                }
            }
        });
    }
}

impl Volume {
    pub fn new(x: &[usize], w: &[usize], options: Conv3dOptions) -> Self {
        let size = |d: usize| options.count(d, x[d + 2], w[d + 2]).expect("checked");
        Volume {
            batch: x[0],
            channels: x[1],
            outputs: w[0],
            input: [x[2], x[3], x[4]],
            output: [size(0), size(1), size(2)],
            kernel: [w[2], w[3], w[4]],
            options,
        }
    }

    fn x(&self) -> [usize; 5] {
        let [d, h, w] = self.input;
        [self.batch, self.channels, d, h, w]
    }

    fn y(&self) -> [usize; 5] {
        let [d, h, w] = self.output;
        [self.batch, self.outputs, d, h, w]
    }

    fn weight(&self) -> [usize; 5] {
        let [d, h, w] = self.kernel;
        [self.outputs, self.channels / self.options.groups, d, h, w]
    }

    /// A block of `batch` planes as a convolution in two dimensions.
    fn flat(&self, batch: usize, channels: usize, outputs: usize) -> Shape {
        let (o, [_, h, w], [_, oh, ow]) = (self.options, self.input, self.output);
        let options = Conv2dOptions {
            stride: [o.stride[1], o.stride[2]],
            padding: [o.padding[1], o.padding[2]],
            dilation: [o.dilation[1], o.dilation[2]],
            groups: o.groups,
        };
        let kernel = [self.kernel[1], self.kernel[2]];
        Shape { batch, input: [channels, h, w], output: [outputs, oh, ow], kernel, options }
    }

    /// What the outputs read.
    fn depth(&self) -> Depth {
        let o = self.options;
        let tap = |t: usize| (t * o.dilation[0]) as isize - o.padding[0] as isize;
        let taps = (0..self.kernel[0]).map(tap).collect();
        Depth { step: o.stride[0], taps, size: self.input[0], count: self.output[0] }
    }

    /// What the gradients of inputs `rest`, `rest + stride`, .. read of dy, and through which depth taps.
    fn residue(&self, rest: usize) -> (Depth, Vec<usize>) {
        let o = self.options;
        let stride = o.stride[0] as isize;
        let offset = |t: usize| (rest + o.padding[0]) as isize - (t * o.dilation[0]) as isize;
        let which: Vec<usize> =
            (0..self.kernel[0]).filter(|&t| offset(t).rem_euclid(stride) == 0).collect();
        let taps = which.iter().map(|&t| offset(t).div_euclid(stride)).collect();
        let count = (self.input[0] - rest).div_ceil(o.stride[0]);
        (Depth { step: 1, taps, size: self.output[0], count }, which)
    }

    fn output_kernel<T: Tiled + Element>(&self, x: &[T], w: &[T], bias: Option<&[T]>, y: &mut [T]) {
        let (depth, [od, oh, ow]) = (self.depth(), self.output);
        let flat = self.flat(self.batch, self.channels, self.outputs);
        let window = flat.window();
        let (stack, sizes) = (Stack { window: &window, depth: &depth }, flat.sizes(window.grid));
        if !flat.is_depthwise() && stack.pays::<T>(sizes, |winograd| winograd.pays()) {
            let channel = od * oh * ow;
            let image = self.outputs * channel;
            let target = Target { channel, image, ..flat.target(&window) };
            let part = Part { window: &window, weight: w, target };
            // SAFETY: there is no other part.
            return unsafe { stack.correlate(sizes, x, &[part], bias, oh * ow, y) };
        }
        let channels = self.channels * self.kernel[0];
        let item = channels * self.input[1] * self.input[2];
        for_blocks(self.batch, od, item, |n, planes, copy: &mut [T]| {
            depth.gather(x, self.channels, n * od + planes.start..n * od + planes.end, copy);
            let shape = self.flat(planes.len(), channels, self.outputs);
            let place = |target: Target| Target {
                first: (n * self.outputs * od + planes.start) * oh * ow + target.first,
                image: oh * ow,
                channel: od * oh * ow,
                ..target
            };
            forward_kernel(&shape, copy, w, bias, place, y);
        });
    }

    fn data_kernel<T: Tiled + Element>(&self, dy: &[T], w: &[T], dx: &mut [T]) {
        let ([depth, h, width], stride) = (self.input, self.options.stride[0]);
        let (inner, plane) = (self.kernel[1] * self.kernel[2], self.output[1] * self.output[2]);
        let per_group = self.channels / self.options.groups;
        for rest in 0..stride.min(depth) {
            let (reads, which) = self.residue(rest);
            if which.is_empty() || self.stacked_data_kernel(rest, (&reads, &which), dy, w, dx) {
                continue;
            }
            // [o, c, t, ..] becomes [o, t, c, ..], of the taps that count.
            let mut turned = Vec::with_capacity(self.outputs * which.len() * per_group * inner);
            for o in 0..self.outputs {
                for &t in &which {
                    for c in 0..per_group {
                        let at = ((o * per_group + c) * self.kernel[0] + t) * inner;
                        turned.extend_from_slice(&w[at..at + inner]);
                    }
                }
            }
            let outputs = self.outputs * which.len();
            for_blocks(self.batch, reads.count, outputs * plane, |n, planes, copy: &mut [T]| {
                let items = n * reads.count + planes.start..n * reads.count + planes.end;
                reads.gather(dy, self.outputs, items, copy);
                let shape = self.flat(planes.len(), self.channels, outputs);
                let first = n * self.channels * depth + rest + planes.start * stride;
                let place = |target: Target| Target {
                    first: first * h * width + target.first,
                    image: stride * h * width,
                    channel: depth * h * width,
                    ..target
                };
                data_kernels(&shape, copy, &turned, place, dx);
            });
        }
    }

    /// dx at depths `rest`, `rest + stride`, .. by [`Stack`]s; false where these are not the best way.
    fn stacked_data_kernel<T: Tiled + Element>(
        &self,
        rest: usize,
        (reads, which): (&Depth, &[usize]),
        dy: &[T],
        w: &[T],
        dx: &mut [T],
    ) -> bool {
        let [depth, height, width] = self.input;
        let flat = self.flat(self.batch, self.channels, self.outputs);
        let residues = flat.residues();
        let stack = |window| Stack { window, depth: reads };
        let stacks: Vec<Stack> = residues.iter().map(|(window, ..)| stack(window)).collect();
        let sizes = |window: &Window| {
            let sizes = flat.sizes(window.grid);
            // The roles of the channels are exchanged.
            Sizes { inputs: sizes.outputs, outputs: sizes.inputs, ..sizes }
        };
        let reached = |stack: &&Stack| !stack.window.taps.is_empty();
        let pays = |stack: &Stack| stack.pays::<T>(sizes(stack.window), |winograd| winograd.pays());
        if flat.is_depthwise() || !stacks.iter().filter(reached).all(pays) {
            return false;
        }
        // All residues read one copy.
        let residues: Vec<_> = residues.iter().filter(|(_, seen, _)| !seen.is_empty()).collect();
        let Some((window, ..)) = residues.first() else { return true };
        let widest = |d: usize| residues.iter().map(|(w, ..)| w.grid[d]).max().unwrap_or(0);
        let all = Window {
            grid: [widest(0), widest(1)],
            taps: residues.iter().flat_map(|(window, ..)| window.taps.iter().copied()).collect(),
            ..window.clone()
        };
        let sizes = sizes(&all);
        let (taps, plane) = (self.kernel[1] * self.kernel[2], height * width);
        let roles = [sizes.groups, sizes.inputs, sizes.outputs];
        let weights: Vec<Tensor> = (residues.iter())
            .map(|(_, seen, _)| {
                let of_plane = |&t: &usize| seen.iter().map(move |tap| t * taps + tap);
                let which: Vec<usize> = which.iter().flat_map(of_plane).collect();
                turned(w, roles, self.kernel[0] * taps, &which)
            })
            .collect();
        let parts: Vec<Part<T>> = (residues.iter().zip(&weights))
            .map(|((window, _, target), weight)| {
                let (first, channel) = (rest * plane + target.first, depth * plane);
                let target = Target { first, channel, image: self.channels * channel, ..*target };
                // SAFETY: a new tensor that nobody writes any more.
                Part { window, weight: unsafe { weight.as_slice::<T>() }, target }
            })
            .collect();
        let slice = self.options.stride[0] * plane;
        let stack = Stack { window: &all, depth: reads };
        // SAFETY: residues of the height and width are disjoint.
        unsafe { stack.correlate(sizes, dy, &parts, None, slice, dx) };
        true
    }

    fn filter_kernel<T: Tiled + Element>(&self, dy: &[T], x: &[T], dw: &mut [T]) {
        let (depth, od) = (self.depth(), self.output[0]);
        let flat = self.flat(self.batch, self.channels, self.outputs);
        let window = flat.window();
        let (stack, sizes) = (Stack { window: &window, depth: &depth }, flat.sizes(window.grid));
        if !flat.is_depthwise() && stack.pays::<T>(sizes, |winograd| winograd.pays_for_filters()) {
            return stack.correlate_filters(sizes, x, dy, dw);
        }
        let outputs = Depth { step: 1, taps: vec![0], size: od, count: od };
        let channels = self.channels * self.kernel[0];
        let read = channels * self.input[1] * self.input[2];
        let item = read + self.outputs * self.output[1] * self.output[2];
        let sums = scratch::<T>(dw.len());
        // SAFETY: a new tensor that nobody else has.
        let sums = unsafe { sums.as_mut_slice::<T>() };
        dw.fill(T::ZERO);
        // Planes of all images, one after the other.
        for_blocks(1, self.batch * od, item, |_, items, copy: &mut [T]| {
            let (x_copy, dy_copy) = copy.split_at_mut(items.len() * read);
            depth.gather(x, self.channels, items.clone(), x_copy);
            outputs.gather(dy, self.outputs, items.clone(), dy_copy);
            let shape = self.flat(items.len(), channels, self.outputs);
            weight_kernel(&shape, dy_copy, x_copy, sums);
            dw.iter_mut().zip(&*sums).for_each(|(dw, &sum)| *dw += sum);
        });
    }
}

/// Calls `body` with each image's number, a block of its `count` planes, and room for a copy of `item`
/// numbers per plane.
fn for_blocks<T: Tiled + Element>(
    batch: usize,
    count: usize,
    item: usize,
    mut body: impl FnMut(usize, Range<usize>, &mut [T]),
) {
    let blocks = (count * item).div_ceil(BLOCK).clamp(1, count.max(1));
    let size = count.div_ceil(blocks);
    let copy = scratch::<T>(size * item);
    // SAFETY: a new tensor that nobody else has.
    let copy = unsafe { copy.as_mut_slice::<T>() };
    for n in 0..batch {
        for from in (0..count).step_by(size.max(1)) {
            let planes = from..(from + size).min(count);
            let used = planes.len() * item;
            body(n, planes, &mut copy[..used]);
        }
    }
}

impl Products for Volume {
    const NAMES: [&'static str; 3] = ["conv3d", "conv3d_data", "conv3d_weight"];

    fn flops(&self) -> u64 {
        flops_of(&self.y(), &self.weight())
    }

    fn output(&self, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        if let Some(gpu) = gpu::of("conv3d", &[x, weight, bias.unwrap_or(x)]) {
            return no_grad(|| cuda::forward(gpu, &self.into(), &self.y(), x, weight, bias));
        }
        let dtype = x.dtype();
        let (x, w, bias) =
            (compute_type::widen(x), compute_type::widen(weight), bias.map(compute_type::widen));
        let out = Tensor::empty(self.y(), x.dtype().on_host());
        if out.numel() > 0 {
            dispatch!(compute x.dtype(), "conv3d", T => {
                // SAFETY: `widen` gives contiguous tensors of this type; `out` is new.
                let (x, w, y) = unsafe { (x.as_slice::<T>(), w.as_slice::<T>(), out.as_mut_slice::<T>()) };
                // SAFETY: a contiguous tensor of this type, which nobody writes.
                let bias = bias.as_ref().map(|b| unsafe { b.as_slice::<T>() });
                self.output_kernel(x, w, bias, y);
            });
        }
        compute_type::narrow(out, dtype)
    }

    fn data(&self, dy: &Tensor, weight: &Tensor) -> Tensor {
        if let Some(gpu) = gpu::of("conv3d", &[dy, weight]) {
            return no_grad(|| cuda::data(gpu, &self.into(), &self.x(), dy, weight));
        }
        let dtype = dy.dtype();
        let (dy, w) = (compute_type::widen(dy), compute_type::widen(weight));
        let reached = (0..self.options.stride[0].min(self.input[0]))
            .all(|rest| !self.residue(rest).1.is_empty());
        let covered = reached && self.flat(1, self.channels, self.outputs).reaches_all();
        let out = if covered {
            Tensor::empty(self.x(), dy.dtype().on_host())
        } else {
            Tensor::zeros(self.x(), dy.dtype().on_host())
        };
        if out.numel() > 0 {
            dispatch!(compute dy.dtype(), "conv3d", T => {
                // SAFETY: `widen` gives contiguous tensors of this type; `out` is new.
                let (dy, w, dx) = unsafe { (dy.as_slice::<T>(), w.as_slice::<T>(), out.as_mut_slice::<T>()) };
                self.data_kernel(dy, w, dx);
            });
        }
        compute_type::narrow(out, dtype)
    }

    fn filters(&self, dy: &Tensor, x: &Tensor, place: Option<Tensor>) -> Tensor {
        if let Some(gpu) = gpu::of("conv3d", &[dy, x]) {
            return no_grad(|| cuda::filters(gpu, &self.into(), &self.weight(), dy, x));
        }
        let dtype = dy.dtype();
        let (dy, x) = (compute_type::widen(dy), compute_type::widen(x));
        let out = place_or_new(place, &self.weight(), dy.dtype());
        dispatch!(compute dy.dtype(), "conv3d", T => {
            // SAFETY: `widen` gives contiguous tensors of this type; `out` is new, or dense and to be overwritten.
            let (dy, x, dw) = unsafe { (dy.as_slice::<T>(), x.as_slice::<T>(), out.as_mut_slice::<T>()) };
            self.filter_kernel(dy, x, dw);
        });
        compute_type::narrow(out, dtype)
    }
}

impl From<&Volume> for Geometry {
    fn from(volume: &Volume) -> Geometry {
        let o = volume.options;
        Geometry {
            batch: volume.batch,
            channels: volume.channels,
            outputs: volume.outputs,
            input: volume.input,
            output: volume.output,
            kernel: volume.kernel,
            stride: o.stride,
            padding: o.padding,
            dilation: o.dilation,
            groups: o.groups,
        }
    }
}
