//! Uniform and normal numbers. The words of a Philox stream are made some blocks at a time, in a loop
//! that is vector code, and then turned into elements in another: word `w` of block `b` belongs to
//! place `4 b + w`.

use super::recorded::resolve;
use std::ops::Range;

use half::{bf16, f16};
use smallvec::smallvec;

use super::cuda;
use super::generator::{DEFAULT, Draw, Generator};
use crate::autograd::record_inplace;
use crate::cpu::{
    arch::vectorize::Kernel, arch::vectorize::vectorize, folds::fold::SharedMut,
    numbers::math::single, numbers::philox::LANES, numbers::philox::philox_blocks,
    numbers::widen::Widen, threads::GRAIN, threads::parallel_for,
};
use crate::error::{Error, throw};
use crate::ops::gpu;
use crate::storage::race::Scope;
use crate::tensor::{Element, Tensor, TensorOptions, dispatch};

/// Words that are made at once: a buffer that stays in the L1 cache.
pub(super) const WORDS: usize = 1024;

/// The words of whole blocks from `first` on, in order.
struct Words<'a> {
    draw: Draw,
    first: u64,
    out: &'a mut [u32; WORDS],
}

impl Kernel for Words<'_> {
    type Output = ();
    const WIDE: bool = true;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let key = [self.draw.seed as u32, (self.draw.seed >> 32) as u32];
        let blocks = self.out.as_chunks_mut::<4>().0.as_chunks_mut::<LANES>().0;
        for (j, out) in blocks.iter_mut().enumerate() {
            let first = self.first.wrapping_add((j * LANES) as u64);
            philox_blocks(first, self.draw.stream, key, out);
        }
    }
}

/// Calls `body(elements, words, index of the first element)` for the `n` elements at `out`, some at a
/// time. Element `i` has the words `each * i..each * (i + 1)` of the draw, as `[u32]` from its own on.
pub(super) fn with_words<T>(
    n: usize,
    each: usize,
    draw: Draw,
    out: SharedMut<T>,
    body: impl Fn(&mut [T], &[u32], usize) + Sync,
) {
    let size = WORDS / each;
    parallel_for(n.div_ceil(size), GRAIN / (4 * size), |groups: Range<usize>| {
        let mut words = [0; WORDS];
        for g in groups {
            vectorize(Words { draw, first: (g * WORDS / 4) as u64, out: &mut words });
            // SAFETY: the callers give `n` elements that are theirs alone; groups are disjoint.
            let part = unsafe { out.slice(g * size..n.min((g + 1) * size)) };
            body(part, &words, g * size);
        }
    });
}

/// How words become elements.
pub(super) trait Distribution<T>: Copy + Send + Sync {
    /// Words that an element takes: 1 or 2.
    const WORDS_EACH: usize;
    /// Writes the elements of these words, which may be too many.
    fn write<const FMA: bool>(self, words: &[u32], out: &mut [T]);
}

/// Uniform in [low, low + span).
#[derive(Clone, Copy)]
pub(super) struct Uniform {
    low: f64,
    span: f64,
}

/// Normal with this mean and standard deviation.
#[derive(Clone, Copy)]
struct Normal {
    mean: f64,
    std: f64,
}

impl From<Uniform> for cuda::Shape {
    fn from(uniform: Uniform) -> Self {
        cuda::Shape::Uniform(uniform.low, uniform.span)
    }
}

impl From<Normal> for cuda::Shape {
    fn from(normal: Normal) -> Self {
        cuda::Shape::Normal(normal.mean, normal.std)
    }
}

macro_rules! uniform {
    ($($t:ident, bits $bits:literal;)*) => {$(
        impl Distribution<$t> for Uniform {
            const WORDS_EACH: usize = 1;
            #[inline(always)]
            fn write<const FMA: bool>(self, words: &[u32], out: &mut [$t]) {
                let (low, span) = (self.low as f32, self.span as f32);
                // As many bits as the type has, so that rounding never gives 1.
                let unit = 1.0 / (1u32 << $bits) as f32;
                for (o, &word) in out.iter_mut().zip(words) {
                    // Through i32, which has a vector conversion.
                    let u = (word >> (32 - $bits)) as i32 as f32 * unit;
                    *o = $t::narrow(u * span + low);
                }
            }
        }
    )*};
}
uniform! { f32, bits 24; f16, bits 11; bf16, bits 8; }

/// 53 random bits as a number in [0, 1).
#[inline(always)]
fn unit64(low: u32, high: u32) -> f64 {
    ((u64::from(low) | u64::from(high) << 32) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

impl Distribution<f64> for Uniform {
    const WORDS_EACH: usize = 2;
    #[inline(always)]
    fn write<const FMA: bool>(self, words: &[u32], out: &mut [f64]) {
        for (o, w) in out.iter_mut().zip(words.as_chunks::<2>().0) {
            *o = unit64(w[0], w[1]) * self.span + self.low;
        }
    }
}

/// Sine and cosine of `u` turns, u in [0, 1), to f32's precision.
#[inline(always)]
fn sin_cos_turns<const FMA: bool>(u: f32) -> (f32, f32) {
    // To the nearest quarter turn; what is left is at most an eighth.
    let quarter = (4.0 * u + 0.5) as i32;
    let r = (u - 0.25 * quarter as f32) * std::f32::consts::TAU;
    let z = r * r;
    let fma = single::fma::<FMA>;
    let s = fma(fma(fma(2.718_304e-6, z, -1.983_933_5e-4), z, 8.333_329e-3), z, -0.166_666_67);
    let s = fma(r * z, s, r);
    let c = fma(fma(fma(-2.721_017e-7, z, 2.479_952e-5), z, -1.388_888_3e-3), z, 4.166_666_8e-2);
    let c = fma(z * z, c, fma(z, -0.5, 1.0));
    let (sin, cos) = if quarter & 1 == 0 { (s, c) } else { (c, s) };
    let sign = |v: f32, negative: i32| f32::from_bits(v.to_bits() ^ ((negative & 2) as u32) << 30);
    (sign(sin, quarter), sign(cos, quarter + 1))
}

/// Two normal numbers from two words (Box-Muller). A function, not a closure: it has to be inlined
/// into the loops for an instruction set.
#[inline(always)]
fn normal_pair<const FMA: bool>(w: &[u32; 2], mean: f32, std: f32) -> [f32; 2] {
    let unit = 1.0 / (1u32 << 24) as f32;
    // In [2^-24, 1], where the logarithm is finite.
    let u = 1.0 - (w[0] >> 8) as i32 as f32 * unit;
    let radius = (-2.0 * single::log_of_normal::<FMA>(u)).sqrt() * std;
    let (sin, cos) = sin_cos_turns::<FMA>((w[1] >> 8) as i32 as f32 * unit);
    [radius * cos + mean, radius * sin + mean]
}

macro_rules! normal {
    ($($t:ident)*) => {$(
        impl Distribution<$t> for Normal {
            const WORDS_EACH: usize = 1;
            /// Words 2 j and 2 j + 1 make elements 2 j and 2 j + 1.
            #[inline(always)]
            fn write<const FMA: bool>(self, words: &[u32], out: &mut [$t]) {
                let (mean, std) = (self.mean as f32, self.std as f32);
                let words = words.as_chunks::<2>().0;
                let (pairs, last) = out.as_chunks_mut::<2>();
                for (o, w) in pairs.iter_mut().zip(words) {
                    let [a, b] = normal_pair::<FMA>(w, mean, std);
                    *o = [$t::narrow(a), $t::narrow(b)];
                }
                if let [last] = last {
                    *last = $t::narrow(normal_pair::<FMA>(&words[pairs.len()], mean, std)[0]);
                }
            }
        }
    )*};
}
normal!(f32 f16 bf16);

impl Distribution<f64> for Normal {
    const WORDS_EACH: usize = 2;
    #[inline(always)]
    fn write<const FMA: bool>(self, words: &[u32], out: &mut [f64]) {
        for (o, w) in out.chunks_mut(2).zip(words.as_chunks::<4>().0) {
            let radius = (-2.0 * (1.0 - unit64(w[0], w[1])).ln()).sqrt() * self.std;
            let (sin, cos) = (std::f64::consts::TAU * unit64(w[2], w[3])).sin_cos();
            let pair = [radius * cos + self.mean, radius * sin + self.mean];
            o.copy_from_slice(&pair[..o.len()]);
        }
    }
}

/// Some elements from their words.
struct Fill<'a, T, D> {
    out: &'a mut [T],
    words: &'a [u32],
    distribution: D,
}

impl<T, D: Distribution<T>> Kernel for Fill<'_, T, D> {
    type Output = ();
    const WIDE: bool = false;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        self.distribution.write::<FMA>(self.words, self.out);
    }
}

/// Fills the dense `out` with the draw's numbers.
pub(super) fn fill<T: Element, D: Distribution<T>>(out: &mut [T], draw: Draw, distribution: D) {
    with_words(out.len(), D::WORDS_EACH, draw, SharedMut(out.as_mut_ptr()), |out, words, _| {
        vectorize(Fill { out, words, distribution });
    });
}

impl Generator {
    /// Uniform numbers in [0, 1) (`torch.rand` with a generator).
    ///
    /// ```
    /// use torchrs::{Dtype, Generator};
    /// let x = Generator::new(7).rand([1000], Dtype::F32);
    /// assert!(x.min().item() >= 0.0 && x.max().item() < 1.0 && (x.mean().item() - 0.5).abs() < 0.1);
    /// assert!(x.equal(&Generator::new(7).rand([1000], Dtype::F32)));
    /// ```
    #[track_caller]
    pub fn rand(&self, shape: impl AsRef<[usize]>, options: impl Into<TensorOptions>) -> Tensor {
        options.into().made(shape, |t| _ = self.uniform_(t, 0.0, 1.0))
    }

    /// Standard normal numbers (`torch.randn` with a generator).
    ///
    /// ```
    /// use torchrs::{Dtype, Generator};
    /// let x = Generator::new(7).randn([1000], Dtype::F32);
    /// assert!(x.mean().item().abs() < 0.2 && (x.norm().item() / 1000f64.sqrt() - 1.0).abs() < 0.2);
    /// ```
    #[track_caller]
    pub fn randn(&self, shape: impl AsRef<[usize]>, options: impl Into<TensorOptions>) -> Tensor {
        options.into().made(shape, |t| _ = self.normal_(t, 0.0, 1.0))
    }

    /// Overwrites `t` with uniform numbers in [low, high) (`torch.Tensor.uniform_`).
    ///
    /// ```
    /// use torchrs::{Dtype, Generator, Tensor};
    /// let x = Tensor::zeros([1000], Dtype::F32);
    /// Generator::new(7).uniform_(&x, 2.0, 3.0);
    /// assert!(x.min().item() >= 2.0 && x.max().item() < 3.0 && (x.mean().item() - 2.5).abs() < 0.1);
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools, and when `high` is below `low`.
    #[track_caller]
    pub fn uniform_<'t>(&self, t: &'t Tensor, low: f64, high: f64) -> &'t Tensor {
        if low.partial_cmp(&high).is_none_or(|o| o.is_gt()) {
            throw(Error::argument("uniform_", "low", format!("{low} is above `high`, {high}")));
        }
        self.overwrite("uniform_", t, Uniform { low, span: high - low });
        t
    }

    /// Overwrites `t` with normal numbers (`torch.Tensor.normal_`).
    ///
    /// ```
    /// use torchrs::{Dtype, Generator, Tensor};
    /// let x = Tensor::zeros([1000], Dtype::F32);
    /// Generator::new(7).normal_(&x, 100.0, 0.5);
    /// assert!((x.mean().item() - 100.0).abs() < 0.1 && (x.std_dim(&[], 1, false).item() - 0.5).abs() < 0.1);
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools, and when `std` is negative.
    #[track_caller]
    pub fn normal_<'t>(&self, t: &'t Tensor, mean: f64, std: f64) -> &'t Tensor {
        if std < 0.0 || std.is_nan() {
            throw(Error::argument("normal_", "std", format!("{std}; it must be at least 0")));
        }
        self.overwrite("normal_", t, Normal { mean, std });
        t
    }

    #[track_caller]
    fn overwrite<D>(&self, op: &'static str, t: &Tensor, distribution: D)
    where
        D: Distribution<f64> + Distribution<f32> + Distribution<f16> + Distribution<bf16> + 'static,
        cuda::Shape: From<D>,
    {
        super::assert_floating(op, t);
        let _scope = Scope::enter(|| op);
        t.assert_inplace_legal(op);
        let before = t.device().is_meta().then(|| self.get_state());
        let draw = self.draw_on(t.device());
        t.change_dense(|x| {
            if let Some(gpu) = gpu::of(op, &[x]) {
                return cuda::fill(gpu, x, resolve(gpu, draw), distribution.into());
            }
            dispatch!(float x.dtype(), op, T => {
                // SAFETY: dense, of type T, and about to be overwritten by the caller's wish.
                fill(unsafe { x.as_mut_slice::<T>() }, draw, distribution);
            });
        });
        record_inplace(op, t, &[t], |_| |_: &crate::autograd::BackwardCtx<'_>| smallvec![None]);
        match before {
            None => {}
            Some(_) if draw.of_default => {
                t.note_initial(move |t| DEFAULT.overwrite(op, t, distribution), 1);
            }
            Some(state) => {
                let again =
                    move |t: &Tensor| Generator::in_state(state).overwrite(op, t, distribution);
                t.note_initial(again, 0);
            }
        }
    }
}

/// Uniform numbers in [0, 1) of a draw, as a list.
pub(super) fn uniform_list(draw: Draw, n: usize) -> Vec<f64> {
    let mut list = vec![0.0; n];
    fill(&mut list, draw, Uniform { low: 0.0, span: 1.0 });
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Dtype;

    #[test]
    fn groups_are_the_blocks_of_the_stream() {
        let draw = Draw { seed: 5 | 7 << 32, stream: 3 | 9 << 32, of_default: false };
        let first = (1 << 32) - 3;
        let mut words = [0; WORDS];
        vectorize(Words { draw, first, out: &mut words });
        for (j, block) in words.chunks_exact(4).enumerate() {
            let counter = first + j as u64;
            let counter = [counter as u32, (counter >> 32) as u32, 3, 9];
            assert_eq!(
                block,
                crate::cpu::numbers::philox::philox4x32_10(counter, [5, 7]),
                "block {j}"
            );
        }
    }

    #[test]
    fn numbers_follow_the_stream_one_by_one() {
        let draw = Draw { seed: 11, stream: 1, of_default: false };
        let (mut uniform, mut normal) = (vec![0f32; 150], vec![0f32; 150]);
        fill(&mut uniform, draw, Uniform { low: -1.0, span: 3.0 });
        fill(&mut normal, draw, Normal { mean: 2.0, std: 0.5 });
        let mut plain = draw.words();
        assert!(uniform.iter().all(|u| *u == plain.uniform() * 3.0 - 1.0));
        let mut plain = draw.words();
        for pair in normal.chunks_exact(2) {
            for (got, want) in pair.iter().zip(plain.normal_pair()) {
                assert!((got - (want * 0.5 + 2.0)).abs() < 2e-6, "{got} {want}");
            }
        }
    }

    #[test]
    fn all_types_have_the_moments_asked_for() {
        let g = Generator::new(3);
        for dtype in [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::BF16] {
            let u = g.rand([40_000], dtype).to_vec::<f64>();
            assert!(u.iter().all(|u| (0.0..1.0).contains(u)), "{dtype}");
            let (mean, var) = moments(&u);
            assert!(
                (mean - 0.5).abs() < 0.006 && (var - 1.0 / 12.0).abs() < 0.002,
                "{dtype} {mean} {var}"
            );
            let n = Tensor::empty([40_000], dtype);
            let (mean, var) = moments(&g.normal_(&n, 3.0, 2.0).to_vec::<f64>());
            assert!((mean - 3.0).abs() < 0.04 && (var - 4.0).abs() < 0.12, "{dtype} {mean} {var}");
        }
    }

    fn moments(x: &[f64]) -> (f64, f64) {
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        (mean, x.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / x.len() as f64)
    }

    #[test]
    fn the_number_of_threads_does_not_matter() {
        let before = crate::cpu::threads::get_num_threads();
        let make = |threads| {
            crate::cpu::threads::set_num_threads(threads);
            let g = Generator::new(9);
            let mut all = g.randn([300_001], Dtype::F32).to_vec::<f32>();
            all.extend(g.rand([100_003], Dtype::F64).to_vec::<f32>());
            all.extend(g.dropout(&Tensor::ones([200_000], Dtype::F32), 0.3, true).to_vec::<f32>());
            all
        };
        let (one, three) = (make(1), make(3));
        crate::cpu::threads::set_num_threads(before);
        assert_eq!(one, three);
    }
}
