//! Convolutions on a GPU, in two and three dimensions alike. y and dx are products of filters and of planes that are
//! read where they lie; dx is one such for all points with the same remainder modulo the stride, of which it reads
//! those taps that reach them. dw is a product along all points, in parts. Filters of one point at stride 1 are plain
//! matrix products.
use super::cudnn;
use super::geometry::Geometry;
use crate::cuda::cuda_args;
use crate::cuda::{Kernel, Program, launch::Argument, launch::Shape as Grid, sources::kernel_text};
use crate::error::{Error, throw};
use crate::ops::{
    gpu::Gpu, gpu::address, products::matmul::cuda::Finish, products::matmul::cuda::LARGE,
    products::matmul::cuda::add_parts, products::matmul::cuda::half_shared,
    products::matmul::cuda::kernels as product_kernels, products::matmul::cuda::multiprocessors,
    products::matmul::cuda::parts, products::matmul::cuda::plain_shared,
    products::matmul::cuda::products, products::matmul::cuda::room, windows::taps::window_count,
};
use crate::tensor::{Dtype, Layout, Tensor};

/// Bytes of a `Spot` of `kernels/conv.cu`.
const SPOT: usize = 24;
/// Points of which a part of dw's sums has at least so many.
const LEAST_PART: usize = 512;

/// `Field` of `kernels/conv.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Field {
    image: i64,
    channel: i64,
    channels: i64,
    count: i64,
    points: i64,
    taps: i64,
    size: [i32; 3],
    grid: [i32; 3],
    step: [i32; 3],
    origin: [i32; 3],
    tap: [i32; 3],
    tap_step: [i32; 3],
}

/// `Correlation` of `kernels/conv.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Correlation {
    field: Field,
    planes: *const u8,
    filters: *const u8,
    bias: *const u8,
    out: *mut u8,
    groups: i64,
    rows: i64,
    first: i64,
    out_image: i64,
    out_channel: i64,
    out_step: [i64; 3],
}

/// `FilterSums` of `kernels/conv.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct FilterSums {
    field: Field,
    finish: Finish,
    planes: *const u8,
    results: *const u8,
    groups: i64,
    part: i64,
    parts: i64,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Field {}
// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Correlation {}
// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for FilterSums {}

/// The entry points for a dtype. Of tiles there are y's or dx's kernel, and dw's.
struct Kernels {
    plain_64: [Kernel; 2],
    plain_128: Option<[Kernel; 2]>,
    /// Tiles of 64 and of 128 whose left operand can be copied sixteen bytes at a time.
    copied: Option<[[Kernel; 2]; 2]>,
    depthwise: Kernel,
    depthwise_data: Kernel,
    depthwise_filters: Kernel,
}

macro_rules! pair {
    ($program:ident $suffix:literal) => {
        [
            Kernel::new(&$program, concat!("correlate_", $suffix)),
            Kernel::new(&$program, concat!("filter_sums_", $suffix)),
        ]
    };
}

macro_rules! kernels {
    ($($dtype:ident $kernels:ident $element:literal $more:literal $large:expr, $copied:expr;)*) => {
        $(static $kernels: Kernels = {
            static PROGRAM: Program =
                Program::new("conv", kernel_text!("prelude.cuh", "warp.cuh", "tile.cuh"), kernel_text!("conv.cu"))
                    .options(&[concat!("--define-macro=ELEMENT=", $element), $more]);
            Kernels {
                plain_64: pair!(PROGRAM "plain_64"),
                plain_128: if $large { Some(pair!(PROGRAM "plain_128")) } else { None },
                copied: if $copied {
                    Some([pair!(PROGRAM "copied_64"), pair!(PROGRAM "copied_128")])
                } else {
                    None
                },
                depthwise: Kernel::new(&PROGRAM, "depthwise"),
                depthwise_data: Kernel::new(&PROGRAM, "depthwise_data"),
                depthwise_filters: Kernel::new(&PROGRAM, "depthwise_filters"),
            }
        };)*

        /// The programs of all dtypes.
        pub(in crate::ops) fn programs() -> Vec<&'static Program> {
            vec![$($kernels.depthwise.program()),*]
        }

        /// The entry points for a dtype.
        #[track_caller]
        fn kernels(dtype: Dtype) -> &'static Kernels {
            match dtype {
                $(Dtype::$dtype => &$kernels,)*
                _ => throw(Error::dtype(
                    "conv",
                    format!("{dtype} is not a floating-point dtype; convert with `.to_dtype`"),
                )),
            }
        }
    };
}

kernels! {
    F32 SINGLES "float" "--define-macro=SINGLE=1" true, false;
    F64 DOUBLES "double" "--define-macro=SINGLE=0" false, false;
    F16 HALVES "f16" "--define-macro=HALF=1" false, true;
    BF16 BRAIN_HALVES "bf16" "--define-macro=HALF=1" false, true;
}

fn volume(sizes: [usize; 3]) -> usize {
    sizes.iter().product()
}

fn ints(sizes: [usize; 3]) -> [i32; 3] {
    sizes.map(|size| size as i32)
}

/// A contiguous tensor without history.
fn dense(x: &Tensor) -> Tensor {
    x.detach().contiguous()
}

/// Of one dimension, what points of dx with a remainder modulo the stride read of dy: the first point of those that
/// the first tap reads, and the taps: first, distance, number, and the distance of what they read.
struct Residue {
    origin: i32,
    first: usize,
    every: usize,
    count: usize,
    tap_step: i32,
}

impl Geometry {
    /// One input channel per group, and so few output channels that matrix tiles do not pay.
    pub fn is_depthwise(&self) -> bool {
        self.channels == self.groups && self.outputs / self.groups < 4
    }

    /// Whether there are as many outputs as the input has room for.
    pub fn is_exact(&self) -> bool {
        (0..3).all(|d| {
            let rule = [self.stride[d], self.padding[d], self.dilation[d]];
            window_count(self.input[d], self.kernel[d], rule) == Some(self.output[d])
        })
    }

    /// Filters of one point, each of which reads one point and is read for one.
    fn is_matrix(&self) -> bool {
        self.kernel == [1; 3] && self.stride == [1; 3] && self.padding == [0; 3] && self.groups == 1
    }

    /// How filters see x.
    fn field(&self) -> Field {
        let (plane, points) = (volume(self.input), volume(self.output));
        Field {
            image: (self.channels * plane) as i64,
            channel: plane as i64,
            channels: (self.channels / self.groups) as i64,
            count: (self.batch * points) as i64,
            points: points as i64,
            taps: volume(self.kernel) as i64,
            size: ints(self.input),
            grid: ints(self.output),
            step: ints(self.stride),
            origin: self.padding.map(|padding| -(padding as i32)),
            tap: ints(self.kernel),
            tap_step: ints(self.dilation),
        }
    }

    fn residue(&self, d: usize, rest: usize) -> Residue {
        let (stride, dilation) = (self.stride[d], self.dilation[d]);
        let offset = |tap: usize| (rest + self.padding[d]) as isize - (tap * dilation) as isize;
        let reaches = |tap: &usize| offset(*tap).rem_euclid(stride as isize) == 0;
        let first = (0..self.kernel[d]).find(reaches).unwrap_or(self.kernel[d]);
        let every = (1..=stride).find(|n| (n * dilation).is_multiple_of(stride)).unwrap_or(1);
        Residue {
            origin: offset(first).div_euclid(stride as isize) as i32,
            first,
            every,
            count: (self.kernel[d] - first).div_ceil(every),
            tap_step: -((every * dilation / stride) as i32),
        }
    }
}

/// y of shape `out`.
#[track_caller]
pub(crate) fn forward(
    gpu: Gpu,
    g: &Geometry,
    out: &[usize],
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
) -> Tensor {
    if let Some(y) = cudnn::forward(gpu, g, out, x, w, bias) {
        return y;
    }
    let (x, w, bias) = (dense(x), dense(w), bias.map(dense));
    if g.is_matrix() && bias.is_none() && g.batch > 0 {
        let (x, w) = (
            x.reshape_to(&[g.batch, g.channels, volume(g.input)]),
            w.reshape_to(&[g.outputs, g.channels]),
        );
        let size = (g.outputs, volume(g.input), g.channels);
        return products(gpu, &w, &x, &[g.batch], size).reshape_to(out).detach();
    }
    let y = Tensor::uninitialised_on(out, x.dtype(), gpu.device());
    let points = volume(g.output);
    let bias = address(bias.as_ref());
    if y.numel() == 0 {
        return y;
    }
    if g.is_depthwise() {
        let (field, each) = (g.field(), (g.outputs / g.channels) as i64);
        let (planes, filters, to, channels) =
            (x.device_ptr(), w.device_ptr(), y.device_ptr(), g.channels as i64);
        let args = cuda_args!(field, planes, filters, bias, to, channels, each);
        // SAFETY: the kernel's parameters: contiguous tensors on this GPU of the sizes that they say.
        unsafe { gpu.launch(&kernels(x.dtype()).depthwise, gpu.for_each(y.numel()), args) };
        return y;
    }
    let [_, h, width] = g.output;
    let correlation = Correlation {
        field: g.field(),
        planes: x.device_ptr(),
        filters: w.device_ptr(),
        bias,
        out: y.device_ptr(),
        groups: g.groups as i64,
        rows: (g.outputs / g.groups) as i64,
        first: 0,
        out_image: (g.outputs * points) as i64,
        out_channel: points as i64,
        out_step: [(h * width) as i64, width as i64, 1],
    };
    correlate(gpu, x.dtype(), correlation);
    y
}

/// dx of shape `out`, from dy and the weight.
#[track_caller]
pub fn data(gpu: Gpu, g: &Geometry, out: &[usize], dy: &Tensor, w: &Tensor) -> Tensor {
    if let Some(dx) = cudnn::data(gpu, g, out, dy, w) {
        return dx;
    }
    let (dy, w) = (dense(dy), dense(w));
    let dtype = dy.dtype();
    if g.is_matrix() && g.batch > 0 {
        let dy = dy.reshape_to(&[g.batch, g.outputs, volume(g.input)]);
        let w = w.reshape_to(&[g.outputs, g.channels]).t();
        let size = (g.channels, volume(g.input), g.outputs);
        return products(gpu, &w, &dy, &[g.batch], size).reshape_to(out).detach();
    }
    let rests = |d: usize| 0..g.stride[d].min(g.input[d]);
    let reached = (0..3).all(|d| rests(d).all(|rest| g.residue(d, rest).count > 0));
    let covered = g.batch > 0 && (reached || g.is_depthwise());
    let dx = match covered {
        true => Tensor::uninitialised_on(out, dtype, gpu.device()),
        false => Tensor::zeros(out, (dtype, gpu.device())),
    };
    if dx.numel() == 0 {
        return dx;
    }
    if g.is_depthwise() {
        let (field, each, images) = (g.field(), (g.outputs / g.channels) as i64, g.batch as i64);
        let (results, filters, to, channels) =
            (dy.device_ptr(), w.device_ptr(), dx.device_ptr(), g.channels as i64);
        let args = cuda_args!(field, results, filters, to, channels, each, images);
        // SAFETY: as for y.
        unsafe { gpu.launch(&kernels(dtype).depthwise_data, gpu.for_each(dx.numel()), args) };
        return dx;
    }
    for z in rests(0) {
        for y in rests(1) {
            for x in rests(2) {
                data_residue(gpu, g, [z, y, x], &dy, &w, &dx);
            }
        }
    }
    dx
}

/// The points of dx with these remainders modulo the stride.
#[track_caller]
fn data_residue(gpu: Gpu, g: &Geometry, rest: [usize; 3], dy: &Tensor, w: &Tensor, dx: &Tensor) {
    let residue = [0, 1, 2].map(|d| g.residue(d, rest[d]));
    let tap = residue.each_ref().map(|r| r.count);
    if volume(tap) == 0 {
        return;
    }
    let (inputs, outputs) = (g.channels / g.groups, g.outputs / g.groups);
    let filters = turned_filters(g, w, &residue);
    let grid = [0, 1, 2].map(|d| (g.input[d] - rest[d]).div_ceil(g.stride[d]));
    let (plane, points, [_, h, width]) = (volume(g.input), volume(g.output), g.input);
    let step = [h * width, width, 1];
    let correlation = Correlation {
        field: Field {
            image: (g.outputs * points) as i64,
            channel: points as i64,
            channels: outputs as i64,
            count: (g.batch * volume(grid)) as i64,
            points: volume(grid) as i64,
            taps: volume(tap) as i64,
            size: ints(g.output),
            grid: ints(grid),
            step: [1; 3],
            origin: residue.each_ref().map(|r| r.origin),
            tap: ints(tap),
            tap_step: residue.each_ref().map(|r| r.tap_step),
        },
        planes: dy.device_ptr(),
        filters: filters.device_ptr(),
        bias: std::ptr::null(),
        out: dx.device_ptr(),
        groups: g.groups as i64,
        rows: inputs as i64,
        first: (0..3).map(|d| rest[d] * step[d]).sum::<usize>() as i64,
        out_image: (g.channels * plane) as i64,
        out_channel: plane as i64,
        out_step: [0, 1, 2].map(|d| (g.stride[d] * step[d]) as i64),
    };
    correlate(gpu, dy.dtype(), correlation);
}

/// The filters as dx wants them: for each group and input channel all outputs' taps that count.
fn turned_filters(g: &Geometry, w: &Tensor, residue: &[Residue; 3]) -> Tensor {
    let (inputs, outputs) = (g.channels / g.groups, g.outputs / g.groups);
    let taps = volume(g.kernel);
    let step = [g.kernel[1] * g.kernel[2], g.kernel[2], 1];
    let mut layout = Layout::contiguous(&[
        g.groups,
        inputs,
        outputs,
        residue[0].count,
        residue[1].count,
        residue[2].count,
    ]);
    let strides = [outputs * inputs * taps, taps, inputs * taps];
    for (d, stride) in
        strides.into_iter().chain((0..3).map(|d| residue[d].every * step[d])).enumerate()
    {
        layout.strides[d] = stride as isize;
    }
    layout.offset = w.layout().offset + (0..3).map(|d| residue[d].first * step[d]).sum::<usize>();
    w.alias(layout).contiguous()
}

#[track_caller]
fn correlate(gpu: Gpu, dtype: Dtype, correlation: Correlation) {
    let (field, kernels) = (&correlation.field, kernels(dtype));
    let (rows, columns, depth) =
        (correlation.rows as usize, field.count as usize, (field.channels * field.taps) as usize);
    let tiles =
        |side: usize| rows.div_ceil(side) * columns.div_ceil(side) * correlation.groups as usize;
    let large = rows >= LARGE && tiles(128) >= multiprocessors(gpu);
    let aligned = depth.is_multiple_of(8) && (correlation.filters as usize).is_multiple_of(16);
    let (kernel, size) = choose(kernels, large, aligned, 0);
    let halves = kernels.copied.is_some();
    let shared = if halves { half_shared(size, 2, 2) } else { plain_shared(size, dtype) };
    let parts_deep = if size == 128 && !halves {
        8
    } else if halves {
        32
    } else {
        16
    };
    let grid = Grid::row(tiles(size).min(i32::MAX as usize) as u32, threads(size, halves))
        .with_shared(shared + 2 * parts_deep * SPOT);
    // SAFETY: the kernel takes one `Correlation` of contiguous tensors on this GPU, whose sizes it has.
    unsafe { gpu.launch(kernel, grid, cuda_args!(correlation)) };
}

/// The kernel (0 of y and dx, 1 of dw) and the size of its tiles.
fn choose(
    kernels: &'static Kernels,
    large: bool,
    aligned: bool,
    which: usize,
) -> (&'static Kernel, usize) {
    match (&kernels.copied, &kernels.plain_128) {
        (Some(copied), _) if aligned => {
            (&copied[usize::from(large)][which], if large { 128 } else { 64 })
        }
        (None, Some(plain)) if large => (&plain[which], 128),
        _ => (&kernels.plain_64[which], 64),
    }
}

fn threads(size: usize, halves: bool) -> u32 {
    if halves { 2 * size as u32 } else { 256 }
}

/// dw of shape `out`, from dy and x.
#[track_caller]
pub(crate) fn filters(gpu: Gpu, g: &Geometry, out: &[usize], dy: &Tensor, x: &Tensor) -> Tensor {
    if let Some(dw) = cudnn::filters(gpu, g, out, dy, x) {
        return dw;
    }
    let (dy, x) = (dense(dy), dense(x));
    let dtype = x.dtype();
    let count = g.batch * volume(g.output);
    if count == 0 {
        return Tensor::zeros(out, (dtype, gpu.device()));
    }
    let dw = Tensor::uninitialised_on(out, dtype, gpu.device());
    let (field, kernels) = (g.field(), kernels(dtype));
    let (planes, results) = (x.device_ptr(), dy.device_ptr());
    if g.is_depthwise() {
        let (to, channels, each) =
            (dw.device_ptr(), g.channels as i64, (g.outputs / g.channels) as i64);
        let grid = Grid::row(dw.numel().min(i32::MAX as usize) as u32, 256);
        let args = cuda_args!(field, planes, results, to, channels, each);
        // SAFETY: as for y.
        unsafe { gpu.launch(&kernels.depthwise_filters, grid, args) };
        return dw;
    }
    let (rows, columns) = (g.outputs / g.groups, (field.channels * field.taps) as usize);
    let tiles = |side: usize| rows.div_ceil(side) * columns.div_ceil(side) * g.groups;
    let large = rows >= LARGE && columns >= LARGE;
    let aligned = volume(g.output).is_multiple_of(8) && (results as usize).is_multiple_of(16);
    let (kernel, size) = choose(kernels, large, aligned, 1);
    let halves = kernels.copied.is_some();
    let (parts, part) = parts(gpu, tiles(size), count, LEAST_PART, 256);
    let mut finish = Finish::new(&dw, rows, columns);
    let partial = (parts > 1).then(|| room(gpu, dtype, parts, dw.numel()));
    finish.partial = address(partial.as_ref());
    let (groups, part, count) = (g.groups as i64, part as i64, parts as i64);
    let sums = FilterSums { field, finish, planes, results, groups, part, parts: count };
    let shared = if halves { half_shared(size, 3, 2) } else { plain_shared(size, dtype) };
    let grid =
        Grid::row((tiles(size) * parts).min(i32::MAX as usize) as u32, threads(size, halves))
            .with_shared(shared + size * SPOT);
    // SAFETY: the kernel takes one `FilterSums` of contiguous tensors on this GPU, whose sizes it has.
    unsafe { gpu.launch(kernel, grid, cuda_args!(sums)) };
    if parts > 1 {
        add_parts(gpu, product_kernels(dtype), finish, g.groups, rows * columns, parts);
    }
    dw
}
