//! Weighted sums of pixels along rows, then along columns: PyTorch's antialiased and plain interpolation.
//!
//! u8 is integer arithmetic, as in PyTorch: weights of 16 bits, sums of 32, and u8 again between the two passes. So
//! results are the same bit for bit.

use std::any::Any;

use crate::cpu::arch::vectorize::{Kernel, vectorize};
use crate::data::transforms::image::{Image, Pixel};

/// A filter's shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filter {
    Linear,
    Cubic,
}

impl Filter {
    /// How far it reaches, in pixels.
    fn support(self) -> f64 {
        match self {
            Filter::Linear => 1.0,
            Filter::Cubic => 2.0,
        }
    }

    /// Its value at a distance; `a` is the cubic one's parameter.
    fn at(self, x: f64, a: f64) -> f64 {
        let x = x.abs();
        match self {
            Filter::Linear => (1.0 - x).max(0.0),
            Filter::Cubic if x < 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
            Filter::Cubic if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * a,
            Filter::Cubic => 0.0,
        }
    }
}

/// Of each output pixel along one side the pixels that it is made of, and their weights.
struct Taps {
    /// For each output pixel: its first pixel, and where its weights begin and end.
    bounds: Vec<(usize, usize, usize)>,
    weights: Vec<f64>,
}

impl Taps {
    fn new(from: usize, to: usize, filter: Filter, antialias: bool) -> Self {
        let scale = from as f64 / to as f64;
        let mut taps = Taps { bounds: Vec::new(), weights: Vec::new() };
        for i in 0..to {
            let start = taps.weights.len();
            let first = if antialias {
                let wide = scale.max(1.0);
                let support = filter.support() * wide;
                let centre = scale * (i as f64 + 0.5);
                let first = ((centre - support + 0.5) as i64).max(0) as usize;
                let last = ((centre + support + 0.5) as i64).min(from as i64) as usize;
                let weight = |j: usize| filter.at((j as f64 - centre + 0.5) / wide, -0.5);
                taps.weights.extend((first..last).map(weight));
                let sum: f64 = taps.weights[start..].iter().sum();
                taps.weights[start..].iter_mut().for_each(|w| *w /= sum);
                first
            } else {
                let mut centre = scale * (i as f64 + 0.5) - 0.5;
                if filter == Filter::Linear {
                    centre = centre.max(0.0);
                }
                let reach = filter.support() as i64;
                let below = centre.floor() as i64;
                let inside = |place: i64| place.clamp(0, from as i64 - 1) as usize;
                let first = inside(below + 1 - reach);
                for place in below + 1 - reach..=below + reach {
                    let weight = filter.at(place as f64 - centre, -0.75);
                    // What lies outside counts for the outermost pixel, before weights are rounded.
                    match taps.weights.get_mut(start + inside(place) - first) {
                        Some(sum) => *sum += weight,
                        None => taps.weights.push(weight),
                    }
                }
                first
            };
            taps.bounds.push((first, start, taps.weights.len()));
        }
        taps
    }

    /// The weights as integers, and how far their sums are shifted.
    fn integers(&self) -> (Vec<i32>, u32) {
        let most = self.weights.iter().copied().fold(0.0, f64::max);
        let fits = |bits: &u32| (most * f64::from(1u32 << bits) + 0.5) as i64 >= 1 << 15;
        let precision = (0..22).find(|bits| fits(&(bits + 1))).unwrap_or(22);
        let one = f64::from(1u32 << precision);
        // Halves away from zero.
        (self.weights.iter().map(|w| (w * one).round() as i32).collect(), precision)
    }
}

/// Rows that are summed side by side, one in each lane.
const LANES: usize = 16;
const HALF: usize = LANES / 2;
type Square<T> = [[T; LANES]; LANES];

/// What a pass computes with.
trait Sums: Pixel {
    type Sum: Copy + Default;
    /// The weights, and how far their sums are shifted.
    fn weights(taps: &Taps) -> (Vec<Self::Sum>, u32);
    /// What a sum begins with.
    fn first(shift: u32) -> Self::Sum;
    fn add(sum: Self::Sum, weight: Self::Sum, pixel: Self) -> Self::Sum;
    fn pixel(sum: Self::Sum, shift: u32) -> Self;

    /// A square with its rows and columns exchanged: interleaved with its other half as often as halves can be.
    #[inline(always)]
    fn exchanged(mut rows: Square<Self>) -> Square<Self> {
        for _ in 0..LANES.ilog2() {
            let mut next = rows;
            for row in 0..HALF {
                for lane in 0..HALF {
                    next[2 * row][2 * lane] = rows[row][lane];
                    next[2 * row][2 * lane + 1] = rows[row + HALF][lane];
                    next[2 * row + 1][2 * lane] = rows[row][lane + HALF];
                    next[2 * row + 1][2 * lane + 1] = rows[row + HALF][lane + HALF];
                }
            }
            rows = next;
        }
        rows
    }
}

impl Sums for u8 {
    type Sum = i32;
    fn weights(taps: &Taps) -> (Vec<i32>, u32) {
        taps.integers()
    }
    #[inline(always)]
    fn first(shift: u32) -> i32 {
        1 << shift >> 1
    }
    #[inline(always)]
    fn add(sum: i32, weight: i32, pixel: u8) -> i32 {
        sum + weight * i32::from(pixel)
    }
    #[inline(always)]
    fn pixel(sum: i32, shift: u32) -> u8 {
        (sum >> shift).clamp(0, 255) as u8
    }
    /// As all types, by instructions that the compiler does not find.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn exchanged(rows: Square<u8>) -> Square<u8> {
        use std::arch::x86_64::{__m128i, _mm_unpackhi_epi8, _mm_unpacklo_epi8};
        // SAFETY: both are 16 times 16 bytes of any value.
        let mut rows: [__m128i; LANES] = unsafe { std::mem::transmute(rows) };
        for _ in 0..LANES.ilog2() {
            let mut next = rows;
            for row in 0..HALF {
                // SAFETY: every x86-64 has SSE2.
                unsafe {
                    next[2 * row] = _mm_unpacklo_epi8(rows[row], rows[row + HALF]);
                    next[2 * row + 1] = _mm_unpackhi_epi8(rows[row], rows[row + HALF]);
                }
            }
            rows = next;
        }
        // SAFETY: as above.
        unsafe { std::mem::transmute(rows) }
    }
}

impl Sums for f32 {
    type Sum = f32;
    fn weights(taps: &Taps) -> (Vec<f32>, u32) {
        (taps.weights.iter().map(|&w| w as f32).collect(), 0)
    }
    #[inline(always)]
    fn first(_: u32) -> f32 {
        0.0
    }
    #[inline(always)]
    fn add(sum: f32, weight: f32, pixel: f32) -> f32 {
        sum + weight * pixel
    }
    #[inline(always)]
    fn pixel(sum: f32, _: u32) -> f32 {
        sum
    }
}

/// Images of another size.
pub(super) fn resample<T: Pixel>(
    image: &Image<T>,
    height: usize,
    width: usize,
    filter: Filter,
    antialias: bool,
) -> Image<T> {
    let columns = Taps::new(image.width, width, filter, antialias);
    let rows = Taps::new(image.height, height, filter, antialias);
    // Two types of pixels there are; each is its own here.
    let pixels: &dyn Any = &image.pixels;
    let size = (image.height, image.width);
    let made: Box<dyn Any> = match pixels.downcast_ref::<Vec<u8>>() {
        Some(pixels) => Box::new(passes::<u8>(pixels, size, &columns, &rows)),
        None => {
            let pixels = pixels.downcast_ref::<Vec<f32>>().expect("pixels are u8 or f32");
            Box::new(passes::<f32>(pixels, size, &columns, &rows))
        }
    };
    image.with(height, width, *made.downcast().expect("of the same type"))
}

fn passes<T: Sums>(
    pixels: &[T],
    (height, width): (usize, usize),
    columns: &Taps,
    rows: &Taps,
) -> Vec<T> {
    let (out_height, out_width) = (rows.bounds.len(), columns.bounds.len());
    let planes = pixels.len() / (height * width);
    let mut out = vec![T::default(); planes * out_height * out_width];
    let mut narrow = vec![T::default(); height * out_width];
    let (column_weights, row_weights) = (T::weights(columns), T::weights(rows));
    let from = pixels.chunks_exact(height * width);
    for (plane, out) in from.zip(out.chunks_exact_mut(out_height * out_width)) {
        let narrow = match width == out_width {
            true => plane,
            false => {
                let weights = &column_weights;
                vectorize(AlongRows { plane, width, taps: columns, weights, out: &mut narrow });
                &narrow
            }
        };
        match height == out_height {
            true => out.copy_from_slice(narrow),
            false => {
                let weights = &row_weights;
                vectorize(AlongColumns {
                    plane: narrow,
                    width: out_width,
                    taps: rows,
                    weights,
                    out,
                });
            }
        }
    }
    out
}

/// Each row of a plane at another width.
struct AlongRows<'a, T: Sums> {
    plane: &'a [T],
    width: usize,
    taps: &'a Taps,
    weights: &'a (Vec<T::Sum>, u32),
    out: &'a mut [T],
}

impl<T: Sums> Kernel for AlongRows<'_, T> {
    type Output = ();
    const WIDE: bool = true;

    /// Some rows lie side by side meanwhile, a column after the other.
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let bounds = &self.taps.bounds[..];
        let (width, out_width) = (self.width, bounds.len());
        let (weights, shift) = (&self.weights.0[..], self.weights.1);
        let mut turned = vec![[T::default(); LANES]; width.next_multiple_of(LANES)];
        let mut made = vec![[T::default(); LANES]; out_width.next_multiple_of(LANES)];
        let blocks = self.plane.chunks(width * LANES).zip(self.out.chunks_mut(out_width * LANES));
        for (rows, out) in blocks {
            for (block, turned) in turned.chunks_exact_mut(LANES).enumerate() {
                let mut square = [[T::default(); LANES]; LANES];
                for row in 0..rows.len() / width {
                    let rest = &rows[row * width..(row + 1) * width][block * LANES..];
                    match rest.first_chunk() {
                        Some(whole) => square[row] = *whole,
                        None => square[row][..rest.len()].copy_from_slice(rest),
                    }
                }
                turned.copy_from_slice(&T::exchanged(square));
            }
            for (made, &(first, start, end)) in made.iter_mut().zip(bounds) {
                let mut sums = [T::first(shift); LANES];
                let weights = &weights[start..end];
                let turned = &turned[first..first + weights.len()];
                for tap in 0..weights.len() {
                    for lane in 0..LANES {
                        sums[lane] = T::add(sums[lane], weights[tap], turned[tap][lane]);
                    }
                }
                for lane in 0..LANES {
                    made[lane] = T::pixel(sums[lane], shift);
                }
            }
            for (block, made) in made.chunks_exact(LANES).enumerate() {
                let square = T::exchanged(*made.first_chunk().expect("a chunk has as many"));
                for row in 0..rows.len() / width {
                    let lanes = &square[row];
                    let rest = &mut out[row * out_width..(row + 1) * out_width][block * LANES..];
                    match rest.first_chunk_mut() {
                        Some(whole) => *whole = *lanes,
                        None => rest.copy_from_slice(&lanes[..rest.len()]),
                    }
                }
            }
        }
    }
}

/// A plane at another height.
struct AlongColumns<'a, T: Sums> {
    plane: &'a [T],
    width: usize,
    taps: &'a Taps,
    weights: &'a (Vec<T::Sum>, u32),
    out: &'a mut [T],
}

impl<T: Sums> Kernel for AlongColumns<'_, T> {
    type Output = ();
    const WIDE: bool = true;

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let width = self.width;
        let (weights, shift) = (&self.weights.0[..], self.weights.1);
        let mut sums = vec![T::Sum::default(); width];
        let sums = &mut sums[..width];
        let bounds = self.taps.bounds.iter();
        for (&(first, start, end), out) in bounds.zip(self.out.chunks_exact_mut(width)) {
            sums.fill(T::first(shift));
            for tap in start..end {
                let weight = weights[tap];
                let row = &self.plane[(first + tap - start) * width..][..width];
                for x in 0..width {
                    sums[x] = T::add(sums[x], weight, row[x]);
                }
            }
            let out = &mut out[..width];
            for x in 0..width {
                out[x] = T::pixel(sums[x], shift);
            }
        }
    }
}
