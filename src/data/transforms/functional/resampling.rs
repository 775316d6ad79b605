//! Weighted sums of pixels along rows, then along columns: PyTorch's antialiased and plain interpolation.
//!
//! u8 is integer arithmetic, as in PyTorch: weights of 16 bits, sums of 32, and u8 again between the two passes. So
//! results are the same bit for bit.

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
    /// For each output pixel: where its taps begin and end.
    bounds: Vec<(usize, usize)>,
    /// Places of input pixels.
    sources: Vec<usize>,
    weights: Vec<f64>,
}

impl Taps {
    fn new(from: usize, to: usize, filter: Filter, antialias: bool) -> Self {
        let scale = from as f64 / to as f64;
        let mut taps = Taps { bounds: Vec::new(), sources: Vec::new(), weights: Vec::new() };
        for i in 0..to {
            let start = taps.weights.len();
            if antialias {
                let wide = scale.max(1.0);
                let support = filter.support() * wide;
                let centre = scale * (i as f64 + 0.5);
                let first = ((centre - support + 0.5) as i64).max(0) as usize;
                let last = ((centre + support + 0.5) as i64).min(from as i64) as usize;
                taps.sources.extend(first..last);
                let weight = |j: usize| filter.at((j as f64 - centre + 0.5) / wide, -0.5);
                taps.weights.extend((first..last).map(weight));
                let sum: f64 = taps.weights[start..].iter().sum();
                taps.weights[start..].iter_mut().for_each(|w| *w /= sum);
            } else {
                let mut centre = scale * (i as f64 + 0.5) - 0.5;
                if filter == Filter::Linear {
                    centre = centre.max(0.0);
                }
                let reach = filter.support() as i64;
                let below = centre.floor() as i64;
                for j in below + 1 - reach..=below + reach {
                    let source = j.clamp(0, from as i64 - 1) as usize;
                    let weight = filter.at(j as f64 - centre, -0.75);
                    // What lies outside counts for the outermost pixel, before weights are rounded.
                    if taps.sources[start..].last() == Some(&source)
                        && let Some(sum) = taps.weights.last_mut()
                    {
                        *sum += weight;
                    } else {
                        taps.sources.push(source);
                        taps.weights.push(weight);
                    }
                }
            }
            taps.bounds.push((start, taps.weights.len()));
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

/// Rows that are summed side by side, so that the sums are vector code.
const ROWS: usize = 16;

/// What a pass computes with.
trait Sums: Pixel {
    type Weight: Copy;
    fn weights(taps: &Taps) -> (Vec<Self::Weight>, u32);
    /// The weighted sums of `sources` rows of `out.len()` pixels each.
    fn sum<'a>(
        rows: impl Iterator<Item = (&'a [Self], Self::Weight)>,
        shift: u32,
        sums: &mut Vec<Self::Weight>,
        out: &mut [Self],
    ) where
        Self: 'a;
}

impl Sums for u8 {
    type Weight = i32;
    fn weights(taps: &Taps) -> (Vec<i32>, u32) {
        taps.integers()
    }
    fn sum<'a>(
        rows: impl Iterator<Item = (&'a [u8], i32)>,
        shift: u32,
        sums: &mut Vec<i32>,
        out: &mut [u8],
    ) {
        sums.clear();
        sums.resize(out.len(), 1 << shift >> 1);
        for (row, weight) in rows {
            sums.iter_mut().zip(row).for_each(|(sum, &pixel)| *sum += weight * i32::from(pixel));
        }
        out.iter_mut().zip(sums).for_each(|(out, sum)| *out = (*sum >> shift).clamp(0, 255) as u8);
    }
}

impl Sums for f32 {
    type Weight = f32;
    fn weights(taps: &Taps) -> (Vec<f32>, u32) {
        (taps.weights.iter().map(|&w| w as f32).collect(), 0)
    }
    fn sum<'a>(
        rows: impl Iterator<Item = (&'a [f32], f32)>,
        _: u32,
        sums: &mut Vec<f32>,
        out: &mut [f32],
    ) {
        sums.clear();
        sums.resize(out.len(), 0.0);
        for (row, weight) in rows {
            sums.iter_mut().zip(row).for_each(|(sum, &pixel)| *sum += weight * pixel);
        }
        out.copy_from_slice(sums);
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
    let pixels: Vec<T> = match T::IS_FLOAT {
        false => cast(passes::<u8>(image, &cast_slice(&image.pixels), &columns, &rows)),
        true => cast(passes::<f32>(image, &cast_slice(&image.pixels), &columns, &rows)),
    };
    image.with(height, width, pixels)
}

/// The same list, of a type that is the same.
fn cast<A: 'static, B: 'static>(list: Vec<A>) -> Vec<B> {
    let list: Box<dyn std::any::Any> = Box::new(list);
    *list.downcast().expect("one type")
}

fn cast_slice<A: Clone + 'static, B: 'static>(list: &[A]) -> Vec<B> {
    cast(list.to_vec())
}

fn passes<T: Sums>(image: &Image<impl Pixel>, pixels: &[T], columns: &Taps, rows: &Taps) -> Vec<T> {
    let (height, width) = (image.height, image.width);
    let (out_height, out_width) = (rows.bounds.len(), columns.bounds.len());
    let planes = pixels.len() / (height * width);
    let mut out = Vec::with_capacity(planes * out_height * out_width);
    let mut sums = Vec::new();
    for plane in pixels.chunks_exact(height * width) {
        let narrow = match width == out_width {
            true => plane.to_vec(),
            false => along_rows(plane, width, columns, &mut sums),
        };
        if height == out_height {
            out.extend_from_slice(&narrow);
            continue;
        }
        let (weights, shift) = T::weights(rows);
        for &(start, end) in &rows.bounds {
            let taps = rows.sources[start..end].iter().zip(&weights[start..end]);
            let taps = taps.map(|(&y, &weight)| (&narrow[y * out_width..][..out_width], weight));
            let at = out.len();
            out.resize(at + out_width, narrow[0]);
            T::sum(taps, shift, &mut sums, &mut out[at..]);
        }
    }
    out
}

/// Each row of a plane at another width. Some rows lie side by side meanwhile, a column after the other.
fn along_rows<T: Sums>(
    plane: &[T],
    width: usize,
    columns: &Taps,
    sums: &mut Vec<T::Weight>,
) -> Vec<T> {
    let out_width = columns.bounds.len();
    let (weights, shift) = T::weights(columns);
    let mut out = vec![plane[0]; plane.len() / width * out_width];
    let mut turned = vec![plane[0]; width * ROWS];
    for (block, rows) in plane.chunks(width * ROWS).enumerate() {
        let count = rows.len() / width;
        for (r, row) in rows.chunks_exact(width).enumerate() {
            row.iter().enumerate().for_each(|(x, &pixel)| turned[x * ROWS + r] = pixel);
        }
        let mut column = [plane[0]; ROWS];
        for (i, &(start, end)) in columns.bounds.iter().enumerate() {
            let taps = columns.sources[start..end].iter().zip(&weights[start..end]);
            let taps = taps.map(|(&x, &weight)| (&turned[x * ROWS..][..ROWS], weight));
            T::sum(taps, shift, sums, &mut column);
            for (r, &pixel) in column[..count].iter().enumerate() {
                out[(block * ROWS + r) * out_width + i] = pixel;
            }
        }
    }
    out
}
