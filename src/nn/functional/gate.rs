//! Activations of more than one element, and those that are random in training.

use crate::error::{Error, throw};
use crate::tensor::Tensor;

/// x between 0 and 6 (`torch.nn.functional.relu6`).
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// assert_eq!(F::relu6(&Tensor::from([-1f32, 3., 9.])).to_vec::<f32>(), [0.0, 3.0, 6.0]);
/// ```
#[track_caller]
pub fn relu6(x: &Tensor) -> Tensor {
    x.hardtanh(0i64, 6i64)
}

/// The first half along `dim` times the logistic function of the second half
/// (`torch.nn.functional.glu`); PyTorch's default is -1.
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// // 4 sigmoid(0), 8 sigmoid(100)
/// assert_eq!(F::glu(&Tensor::from([4f32, 8., 0., 100.]), -1).to_vec::<f32>(), [2.0, 8.0]);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] when the dimension's size is odd.
#[track_caller]
pub fn glu(x: &Tensor, dim: i64) -> Tensor {
    if x.dim() == 0 || !x.size(dim).is_multiple_of(2) {
        let shape = x.shape();
        throw(Error::shape("glu", format!("dimension {dim} of {shape:?} must have an even size")));
    }
    let half = x.size(dim) / 2;
    x.narrow(dim, 0, half) * x.narrow(dim, half, half).sigmoid()
}

/// [`softmax`](Tensor::softmax) of -x (`torch.nn.functional.softmin`).
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// let shares = F::softmin(&Tensor::from([0f64, 3f64.ln()]), 0).to_vec::<f64>();
/// assert!((shares[0] - 0.75).abs() < 1e-9 && (shares[1] - 0.25).abs() < 1e-9);
/// ```
///
/// # Panics
/// Throws for integers and bools, and when the dimension is out of range.
#[track_caller]
pub fn softmin(x: &Tensor, dim: i64) -> Tensor {
    (-x).softmax(dim)
}

/// Leaky ReLU with a slope that is drawn for each element between `lower` and `upper` in training, and
/// is their mean otherwise (`torch.nn.functional.rrelu`); PyTorch's defaults are 1/8 and 1/3.
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// let x = Tensor::from([-4f32, 2.]);
/// assert_eq!(F::rrelu(&x, 0.125, 0.375, false).to_vec::<f32>(), [-1.0, 2.0]);
/// let y = F::rrelu(&x, 0.125, 0.375, true).to_vec::<f32>();
/// assert!((-1.5..=-0.5).contains(&y[0]) && y[1] == 2.0);
/// ```
///
/// # Panics
/// Throws for integers and bools, and when `lower` is above `upper`.
#[track_caller]
pub fn rrelu(x: &Tensor, lower: f64, upper: f64, training: bool) -> Tensor {
    if lower.is_nan() || upper.is_nan() || lower > upper {
        throw(Error::argument("rrelu", "lower", format!("{lower} is above upper, {upper}")));
    }
    if !training {
        return x.leaky_relu(0.5 * (lower + upper));
    }
    let slope = x.empty_like();
    crate::ops::random::default_generator().uniform_(&slope, lower, upper);
    x.gt(0i64).where_(x, &(x * slope))
}

/// Dropout for [`selu`](Tensor::selu): keeps mean and variance (`torch.nn.functional.alpha_dropout`).
/// Dropped elements become `-1.0507 * 1.6733`, and all are then scaled and moved.
///
/// ```
/// use torchrs::{Dtype, Tensor, manual_seed, nn::functional as F};
/// manual_seed(0);
/// let y = F::alpha_dropout(&Tensor::randn([10_000], Dtype::F32), 0.5, true);
/// assert!(y.mean().item().abs() < 0.1 && (y.square().mean().item() - 1.0).abs() < 0.1);
/// ```
///
/// # Panics
/// Throws for integers and bools, and when `p` is not a probability.
#[track_caller]
pub fn alpha_dropout(x: &Tensor, p: f64, training: bool) -> Tensor {
    alpha(x, x.shape(), p, training)
}

/// [`alpha_dropout`] of whole channels, the slices along the first two dimensions
/// (`torch.nn.functional.feature_alpha_dropout`).
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::functional as F};
/// let y = F::feature_alpha_dropout(&Tensor::ones([1, 64, 2], Dtype::F32), 0.5, true);
/// assert!(y.select(2, 0).equal(&y.select(2, 1)));
/// ```
///
/// # Panics
/// As there, and throws [`Error::Shape`] for fewer than two dimensions.
#[track_caller]
pub fn feature_alpha_dropout(x: &Tensor, p: f64, training: bool) -> Tensor {
    if x.dim() < 2 {
        let message = format!("{:?}; at least two dimensions are needed", x.shape());
        throw(Error::shape("feature_alpha_dropout", message));
    }
    let mut shape = x.shape().to_vec();
    shape[2..].fill(1);
    alpha(x, &shape, p, training)
}

/// What is dropped together is one element of `shape`, which broadcasts to that of `x`.
#[track_caller]
fn alpha(x: &Tensor, shape: &[usize], p: f64, training: bool) -> Tensor {
    const ALPHA: f64 = 1.758_099_340_847_376_6;
    // 1 / (1 - p) where it is kept; checks p.
    let kept = Tensor::ones(shape, (x.dtype(), x.device())).dropout(p, training);
    if !training || p == 0.0 {
        return x.clone();
    }
    let scale = if p == 1.0 { 0.0 } else { 1.0 / ((ALPHA * ALPHA * p + 1.0) * (1.0 - p)).sqrt() };
    let dropped = kept.eq(0i64);
    x.masked_fill(&dropped, -ALPHA) * scale + scale * ALPHA * p
}

/// Shares that add up to 1 along `dim`, drawn by adding Gumbel noise to `logits`; the lower `tau`, the
/// nearer to one class (`torch.nn.functional.gumbel_softmax`; Jang et al. 2017). With `hard` they are
/// one class, with the gradient of the shares. PyTorch's defaults are 1, false and -1.
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::functional as F};
/// let y = F::gumbel_softmax(&Tensor::zeros([4, 3], Dtype::F32), 1.0, true, -1);
/// assert!((y.amax(&[1], false) - 1.0).abs().max().item() < 1e-6);
/// assert!((y.sum().item() - 4.0).abs() < 1e-6);
/// ```
///
/// # Panics
/// Throws for integers and bools, and when the dimension is out of range.
#[track_caller]
pub fn gumbel_softmax(logits: &Tensor, tau: f64, hard: bool, dim: i64) -> Tensor {
    let noise = crate::autograd::no_grad(|| {
        let share = logits.empty_like();
        crate::ops::random::default_generator().uniform_(&share, 0.0, 1.0);
        // From above 0, of which there is no logarithm, to 1.
        -(-(1.0 - share).log()).log()
    });
    let soft = ((logits + noise) / tau).softmax(dim);
    if !hard {
        return soft;
    }
    let highest = soft.argmax_dim(dim, true);
    let one = crate::autograd::no_grad(|| {
        soft.zeros_like().scatter(dim, &highest, &highest.ones_like().to_dtype(soft.dtype()))
    });
    one - soft.detach() + &soft
}

macro_rules! of_channels {
    ($($name:ident $dims:literal $shapes:literal;)*) => {$(
        #[doc = concat!("Sets whole channels of `", $shapes, "` to zero with probability `p` and divides the others by")]
        #[doc = concat!("`1 - p`, in training (`torch.nn.functional.", stringify!($name), "`).")]
        ///
        /// ```
        /// use torchrs::{Dtype, Tensor, manual_seed, nn::functional as F};
        /// manual_seed(0);
        #[doc = concat!("let x = Tensor::ones([4; 2 + ", $dims, "], Dtype::F32);")]
        #[doc = concat!("let y = F::", stringify!($name), "(&x, 0.5, true).flatten(2, -1);")]
        /// assert!(y.amin(&[2], false).equal(&y.amax(&[2], false)) && y.max().item() == 2.0);
        /// ```
        ///
        /// # Panics
        /// Throws for integers and bools, other numbers of dimensions, and when `p` is not a probability.
        #[track_caller]
        pub fn $name(x: &Tensor, p: f64, training: bool) -> Tensor {
            channels(stringify!($name), x, $dims, p, training)
        }
    )*};
}
of_channels! {
    dropout1d 1 "[N, C, L]";
    dropout2d 2 "[N, C, H, W]";
    dropout3d 3 "[N, C, D, H, W]";
}

/// Without a batch dimension the channels come first.
#[track_caller]
fn channels(op: &str, x: &Tensor, dims: usize, p: f64, training: bool) -> Tensor {
    if x.dim() != dims + 1 && x.dim() != dims + 2 {
        let (n, m) = (dims + 1, dims + 2);
        throw(Error::shape(op, format!("{:?}; {n} or {m} dimensions are needed", x.shape())));
    }
    let mut shape = x.shape().to_vec();
    let spatial = shape.len() - dims;
    shape[spatial..].fill(1);
    let kept = Tensor::ones(shape, (x.dtype(), x.device())).dropout(p, training);
    if training && p > 0.0 { x * kept } else { x.clone() }
}
