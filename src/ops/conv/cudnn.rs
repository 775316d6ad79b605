//! Convolutions by cuDNN, where it is found and computes such. Channels lie last where that is what tensor cores read,
//! or where an operand's do already; a result is left as it comes, so that they stay there from layer to layer.

use super::geometry::Geometry;
use crate::amp::{self, Region};
use crate::autograd::no_grad;
use crate::backends;
use crate::cuda::cudnn::{self, Direction, Kind, Lie, Problem, Wishes};
use crate::error::throw;
use crate::ops::{MemoryFormat, gpu::Gpu};
use crate::tensor::{Dtype, Tensor};

/// The most workspace in bytes.
const WORKSPACE: usize = 1 << 30;
/// Channels from which tensor cores take halves in most convolutions: eight bytes.
const LEAST_CHANNELS: usize = 4;
/// The greatest alignment that makes a difference.
const ALIGNMENT: usize = 16;

/// y of shape `out`.
#[track_caller]
pub(crate) fn forward(
    gpu: Gpu,
    g: &Geometry,
    out: &[usize],
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
) -> Option<Tensor> {
    let call = Call::new(gpu, g, [x, w], out)?;
    call.note(w);
    let (x, w) = (call.operand(x), call.operand(w));
    let y = call.result(out);
    let run = |x: &Tensor, w: &Tensor| call.run(Direction::Forward, [x, w, &y]);
    let is_widened = call.is_sooner_with_more_channels([&x, &w, &y]);
    let done = if is_widened { run(&call.widened(&x), &call.widened(&w)) } else { None };
    done.or_else(|| run(&x, &w))?;
    if let Some(bias) = bias {
        let mut shape = vec![1; y.dim()];
        shape[1] = bias.numel();
        y.add_(&bias.detach().reshape_to(&shape));
    }
    Some(y)
}

/// dx of shape `out`, from dy and the weight.
#[track_caller]
pub fn data(gpu: Gpu, g: &Geometry, out: &[usize], dy: &Tensor, w: &Tensor) -> Option<Tensor> {
    let call = Call::new(gpu, g, [dy, w], out)?;
    call.note(w);
    let (dy, w) = (call.operand(dy), call.operand(w));
    let dx = call.result(out);
    call.run(Direction::Data, [&dx, &w, &dy])?;
    Some(dx)
}

/// dw of shape `out`, from dy and x, as cuDNN writes it.
#[track_caller]
pub(crate) fn filters(
    gpu: Gpu,
    g: &Geometry,
    out: &[usize],
    dy: &Tensor,
    x: &Tensor,
) -> Option<Tensor> {
    let call = Call::new(gpu, g, [dy, x], out)?;
    let (dy, x) = (call.operand(dy), call.operand(x));
    let dw = call.result(out);
    call.run(Direction::Filters, [&x, &dw, &dy])?;
    Some(dw)
}

/// An image that autocast is to make half as wide, with its channels last at once: as cuDNN reads it, now and for the
/// filters' gradient.
#[track_caller]
pub(super) fn cast_image(op: &'static str, x: &Tensor) -> Option<Tensor> {
    let last = match x.dim() {
        4 => MemoryFormat::ChannelsLast,
        5 => MemoryFormat::ChannelsLast3d,
        _ => return None,
    };
    let fits = x.dtype() == Dtype::F32 && !x.requires_grad() && x.is_contiguous();
    if !fits || x.device().kernels().is_none() || !backends::cudnn::enabled() {
        return None;
    }
    let region = Region::enter(op, &[Some(x)]).filter(|_| cudnn::is_available())?;
    let halves = |dtype| matches!(dtype, Dtype::F16 | Dtype::BF16);
    let cast = |dtype| Tensor::empty_in(x.shape(), (dtype, x.device()), last).copy_(x).clone();
    Some(no_grad(|| region.run(cast))).filter(|x| halves(x.dtype()))
}

/// What the three have in common.
struct Call<'a> {
    gpu: Gpu,
    geometry: &'a Geometry,
    dtype: Dtype,
    kind: Kind,
    format: MemoryFormat,
}

impl<'a> Call<'a> {
    /// A call for these operands, if cuDNN is to be asked.
    fn new(
        gpu: Gpu,
        geometry: &'a Geometry,
        operands: [&Tensor; 2],
        out: &[usize],
    ) -> Option<Call<'a>> {
        let dtype = operands[0].dtype();
        let halves = matches!(dtype, Dtype::F16 | Dtype::BF16);
        let kind = match dtype {
            Dtype::F32 => Kind::F32,
            Dtype::F64 => Kind::F64,
            Dtype::F16 => Kind::F16,
            Dtype::BF16 => Kind::BF16,
            _ => return None,
        };
        // Filters that see one channel are bound by memory, and ours read it once.
        let ours = geometry.is_depthwise() && !halves;
        // cuDNN wants outputs that are those of the input; `output_padding` may leave more of that.
        let fits = geometry.is_exact();
        let empty = operands.iter().any(|t| t.numel() == 0) || out.contains(&0);
        if ours
            || !fits
            || empty
            || !backends::cudnn::enabled()
            || gpu.is_nowhere()
            || !cudnn::is_available()
        {
            return None;
        }
        let last = match out.len() {
            4 => MemoryFormat::ChannelsLast,
            _ => MemoryFormat::ChannelsLast3d,
        };
        let lies_last = |t: &&Tensor| !t.is_contiguous() && t.is_contiguous_in(last);
        let cores = halves || (dtype == Dtype::F32 && backends::cudnn::allow_tf32());
        let format = match cores || operands.iter().any(lies_last) {
            true if dtype != Dtype::F64 => last,
            _ => MemoryFormat::Contiguous,
        };
        Some(Call { gpu, geometry, dtype, kind, format })
    }

    /// Tells autocast how filters are read, so that it casts them like that.
    fn note(&self, w: &Tensor) {
        if self.format != MemoryFormat::Contiguous && w.is_contiguous() {
            amp::is_read_channels_last(w);
        }
    }

    fn operand(&self, t: &Tensor) -> Tensor {
        t.detach().contiguous_in(self.format)
    }

    /// Whether a forward pass gets tensor cores only if it has more channels than an image, as AlexNet's first has.
    #[track_caller]
    fn is_sooner_with_more_channels(&self, tensors: [&Tensor; 3]) -> bool {
        let g = self.geometry;
        let halves = matches!(self.kind, Kind::F16 | Kind::BF16);
        if !halves || g.groups != 1 || g.channels >= LEAST_CHANNELS {
            return false;
        }
        let [x, w, y] = tensors.map(told);
        let uses_cores = |tensors| {
            let problem = self.problem(Direction::Forward, tensors);
            let cores = cudnn::uses_tensor_cores(&problem, &wishes(), self.gpu.stream());
            cores.unwrap_or_else(|error| throw(error))
        };
        let [wide_x, wide_w] = [x, w].map(|(shape, _)| widened(shape));
        !uses_cores([x, w, y]) && uses_cores([(&wide_x, ALIGNMENT), (&wide_w, ALIGNMENT), y])
    }

    /// With channels of zeros.
    fn widened(&self, t: &Tensor) -> Tensor {
        let wide = self.result(&widened(t.shape()));
        wide.narrow(1, 0, self.geometry.channels).copy_(t);
        wide.narrow(1, self.geometry.channels, LEAST_CHANNELS - self.geometry.channels).zero_();
        wide
    }

    fn result(&self, shape: &[usize]) -> Tensor {
        Tensor::empty_in(shape, (self.dtype, self.gpu.device()), self.format)
    }

    fn problem(&self, direction: Direction, tensors: [Told; 3]) -> Problem {
        let (g, last) = (self.geometry, self.format != MemoryFormat::Contiguous);
        let lies = tensors.map(|(shape, alignment)| Lie::dense(shape, last, alignment));
        let window = [g.padding, g.stride, g.dilation];
        Problem::new(direction, self.kind, tensors[0].0.len(), lies, window)
    }

    /// Starts the convolution of x, w and y; nothing where cuDNN does not compute such.
    #[track_caller]
    fn run(&self, direction: Direction, tensors: [&Tensor; 3]) -> Option<()> {
        let problem = self.problem(direction, tensors.map(told));
        let (fastest, at) = (backends::cudnn::benchmark(), tensors.map(Tensor::device_ptr));
        // SAFETY: tensors on this GPU that lie as `lie` says; the result is new. What is freed meanwhile is used
        // again on the same stream only.
        let done =
            unsafe { cudnn::convolution(&problem, &wishes(), fastest, at, self.gpu.stream()) };
        done.unwrap_or_else(|error| throw(error)).then_some(())
    }
}

/// A tensor's shape, and the power of two to which its address is aligned, in bytes.
type Told<'a> = (&'a [usize], usize);

fn told(t: &Tensor) -> Told<'_> {
    (t.shape(), 1 << (t.device_ptr() as usize).trailing_zeros().min(ALIGNMENT.ilog2()))
}

/// A shape with the least channels that tensor cores take.
fn widened(shape: &[usize]) -> Vec<usize> {
    let mut wide = shape.to_vec();
    wide[1] = LEAST_CHANNELS;
    wide
}

/// What the switches ask of plans.
fn wishes() -> Wishes {
    Wishes {
        tf32: backends::cudnn::allow_tf32(),
        deterministic: backends::cudnn::deterministic(),
        workspace: WORKSPACE,
    }
}
