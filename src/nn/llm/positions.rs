//! Where a token stands: rotary embeddings (Su et al., "RoFormer", 2021), sines and cosines (Vaswani et al., 2017), ALiBi's slopes
//! (Press et al., 2022). Angles are computed in f64: those of late places have many digits before the point.

use crate::autograd::no_grad;
use crate::error::{Error, throw};
use crate::tensor::{Dtype, Tensor};

/// Options of [`rotary`] and [`rotary_tables`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RotaryOptions {
    /// Base of the wavelengths.
    pub base: f64,
    /// Divides the places, for longer sequences than the model began with.
    pub scale: f64,
    /// Number of features that are turned, from the first; `None`: all.
    pub rotary_dim: Option<usize>,
    /// Whether pairs are neighbours, as in GPT-J; otherwise the halves are pairs, as in Llama.
    pub interleaved: bool,
}

impl Default for RotaryOptions {
    /// Base 10000, places as they are, halves of all features.
    fn default() -> Self {
        RotaryOptions { base: 10000.0, scale: 1.0, rotary_dim: None, interleaved: false }
    }
}

/// Angles of places, `[length, dim / 2]` in f64.
#[track_caller]
fn angles(op: &str, positions: &Tensor, dim: usize, base: f64, scale: f64) -> Tensor {
    if positions.dtype().is_complex() || positions.dtype() == Dtype::Bool {
        let message = format!("takes places as numbers, got {}", positions.dtype());
        throw(Error::dtype(op, message));
    }
    if dim == 0 || !dim.is_multiple_of(2) {
        throw(Error::argument(op, "dim", format!("{dim}; must be even and above 0")));
    }
    for (name, value) in [("base", base), ("scale", scale)] {
        if !(value > 0.0 && value.is_finite()) {
            throw(Error::argument(op, name, format!("{value}; must be positive and finite")));
        }
    }
    let frequencies: Vec<f64> =
        (0..dim / 2).map(|i| base.powf(-2.0 * i as f64 / dim as f64)).collect();
    let frequencies = Tensor::from_slice(&frequencies, [dim / 2]).to_device(positions.device());
    no_grad(|| positions.to_dtype(Dtype::F64).unsqueeze(-1) / scale * frequencies)
}

/// Cosines and sines of rotary embeddings, `[length, dim]` in f32 each, with those of the `dim / 2` angles twice, as Hugging Face's
/// models have them.
///
/// ```
/// use torchrs::{Tensor, nn::llm::{RotaryOptions, rotary_tables}};
/// let (cos, sin) = rotary_tables(&Tensor::from([0i64, 1]), 2, &RotaryOptions::default());
/// assert_eq!((cos.shape(), sin.i(0).to_vec::<f32>()), (&[2, 2][..], vec![0.0, 0.0]));
/// ```
///
/// # Panics
/// Throws [`Error::Argument`] for an odd `dim`, unless `base` and `scale` are positive, for a `rotary_dim` other than `dim`,
/// and for `interleaved`: the tables are of halves.
#[track_caller]
pub fn rotary_tables(positions: &Tensor, dim: usize, options: &RotaryOptions) -> (Tensor, Tensor) {
    const OP: &str = "rotary_tables";
    if options.interleaved {
        let message =
            "true; the tables are of halves, so it must be false; `rotary` turns neighbours";
        throw(Error::argument(OP, "interleaved", message));
    }
    if let Some(width) = options.rotary_dim.filter(|&width| width != dim) {
        throw(Error::argument(OP, "rotary_dim", format!("{width}; must be `dim`, {dim}, or none")));
    }
    let angles = angles(OP, positions, dim, options.base, options.scale);
    let twice = |t: Tensor| {
        let t = t.to_dtype(Dtype::F32);
        Tensor::cat(&[&t, &t], -1)
    };
    (twice(angles.cos()), twice(angles.sin()))
}

/// `x`, `[.., length, features]`, turned by the places of its tokens, `[length]`.
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::llm::{RotaryOptions, rotary}};
/// let x = Tensor::ones([1, 2, 4], Dtype::F64);
/// let y = rotary(&x, &Tensor::from([0i64, 1]), &RotaryOptions::default());
/// // The first token stays, the first pair of the second is turned by a radian.
/// assert!(y.i(0).i(0).equal(&x.i(0).i(0)));
/// assert!((y.i(0).i(1).i(0).item() - (1f64.cos() - 1f64.sin())).abs() < 1e-12);
/// ```
///
/// # Panics
/// As [`rotary_tables`]; throws [`Error::Argument`] for a `rotary_dim` beyond the features, and as
/// [`Tensor::rotary_embedding`].
#[track_caller]
pub fn rotary(x: &Tensor, positions: &Tensor, options: &RotaryOptions) -> Tensor {
    if x.dim() < 2 || positions.shape() != [x.size(-2)] {
        let (x, positions) = (x.shape(), positions.shape());
        let message = format!(
            "x is {x:?} and positions {positions:?}; must be [.., length, features] and [length]"
        );
        throw(Error::shape("rotary", message));
    }
    let width = options.rotary_dim.unwrap_or_else(|| x.size(-1));
    if width > x.size(-1) {
        let message = format!("{width}; x has {} features", x.size(-1));
        throw(Error::argument("rotary", "rotary_dim", message));
    }
    let angles = angles("rotary", positions, width, options.base, options.scale);
    let table = |t: Tensor| t.to_dtype(x.dtype().compute()).to_device(x.device());
    let (cos, sin) = (table(angles.cos()), table(angles.sin()));
    if !options.interleaved {
        return x.rotary_embedding(&cos, &sin);
    }
    // Pairs of neighbours become halves, and back.
    let turned = x.narrow(-1, 0, width).unflatten(-1, &[-1, 2]).transpose(-1, -2).flatten(-2, -1);
    let turned = turned.rotary_embedding(&cos, &sin);
    let turned = turned.unflatten(-1, &[2, -1]).transpose(-1, -2).flatten(-2, -1);
    if width == x.size(-1) {
        return turned;
    }
    Tensor::cat(&[&turned, &x.narrow(-1, width, x.size(-1) - width)], -1)
}

/// Sinusoidal positions, `[length, dim]` in f32: sines and cosines of falling frequencies by turns.
///
/// ```
/// use torchrs::{Tensor, nn::llm::sinusoidal_positions};
/// let y = sinusoidal_positions(&Tensor::from([0i64, 1]), 4, 10000.0);
/// assert_eq!(y.i(0).to_vec::<f32>(), [0.0, 1.0, 0.0, 1.0]);
/// assert_eq!(y.i(1).i(0).item(), f64::from(1f32.sin()));
/// ```
///
/// # Panics
/// Throws [`Error::Argument`] for an odd `dim`, and unless `base` is positive.
#[track_caller]
pub fn sinusoidal_positions(positions: &Tensor, dim: usize, base: f64) -> Tensor {
    let angles = angles("sinusoidal_positions", positions, dim, base, 1.0);
    Tensor::stack(&[angles.sin(), angles.cos()], -1).flatten(-2, -1).to_dtype(Dtype::F32)
}

/// The slopes of ALiBi for that many heads, in f64: powers of 2^(-8 / heads), and where `heads` is no power of two, those of the next
/// lower one, then every other of the next higher.
///
/// ```
/// use torchrs::nn::llm::alibi_slopes;
/// assert_eq!(alibi_slopes(2).to_vec::<f64>(), [0.0625, 0.00390625]);
/// assert_eq!(alibi_slopes(3).to_vec::<f64>(), [0.0625, 0.00390625, 0.25]);
/// ```
///
/// # Panics
/// Throws [`Error::Argument`] for no heads.
#[track_caller]
pub fn alibi_slopes(heads: usize) -> Tensor {
    if heads == 0 {
        throw(Error::argument("alibi_slopes", "heads", "0; must be at least 1"));
    }
    let of = |n: usize| (0..n).map(move |k| 2f64.powf(-8.0 * (k + 1) as f64 / n as f64));
    let lower = if heads.is_power_of_two() { heads } else { heads.next_power_of_two() / 2 };
    let slopes: Vec<f64> = of(lower).chain(of(2 * lower).step_by(2)).take(heads).collect();
    Tensor::from_slice(&slopes, [heads])
}
