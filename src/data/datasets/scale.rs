//! Scaling as `PIL.Image.resize(..., BILINEAR)` does it, to the bit: a triangle filter, widened where
//! the image shrinks, first along the rows and then along the columns, in fixed point. Computes only
//! the pixels that are asked for.

use super::decode::Rgb;

/// Bits after the point of a weight.
const FRACTION: u32 = 22;
const HALF: u32 = 1 << (FRACTION - 1);

/// The pixels that make up one pixel of the scaled image: the first of them, and a weight for each.
struct Window {
    first: usize,
    weights: Vec<u32>,
}

impl Window {
    fn end(&self) -> usize {
        self.first + self.weights.len()
    }
}

/// Of the image scaled to `scaled` (width, height), the `size` x `size` square at `corner` (x, y).
pub(super) fn scaled_square(
    image: &Rgb,
    scaled: (usize, usize),
    corner: (usize, usize),
    size: usize,
) -> Vec<u8> {
    let columns = windows(image.width, scaled.0, corner.0, size);
    let rows = windows(image.height, scaled.1, corner.1, size);
    let (top, bottom) = (rows[0].first, rows[size - 1].end());
    let mut narrow = vec![0; 3 * size * (bottom - top)];
    let source = image.pixels.chunks_exact(3 * image.width).skip(top);
    for (from, to) in source.zip(narrow.chunks_exact_mut(3 * size)) {
        for (window, pixel) in columns.iter().zip(to.chunks_exact_mut(3)) {
            let mut sums = [HALF; 3];
            let pixels = from[3 * window.first..].chunks_exact(3);
            for (from, weight) in pixels.zip(&window.weights) {
                for (sum, &value) in sums.iter_mut().zip(from) {
                    *sum += weight * u32::from(value);
                }
            }
            pixel.copy_from_slice(&sums.map(level));
        }
    }
    let mut square = Vec::with_capacity(3 * size * size);
    let mut sums = vec![0; 3 * size];
    for window in &rows {
        sums.fill(HALF);
        let from = narrow[3 * size * (window.first - top)..].chunks_exact(3 * size);
        for (from, weight) in from.zip(&window.weights) {
            for (sum, &value) in sums.iter_mut().zip(from) {
                *sum += weight * u32::from(value);
            }
        }
        square.extend(sums.iter().copied().map(level));
    }
    square
}

/// Rounded weights may add up to a little more than one.
fn level(sum: u32) -> u8 {
    (sum >> FRACTION).min(255) as u8
}

/// The windows of pixels `from..from + count` when `source` pixels are scaled to `scaled`. Where the
/// two are equal each window has one pixel that counts, so that nothing changes.
fn windows(source: usize, scaled: usize, from: usize, count: usize) -> Vec<Window> {
    let ratio = source as f64 / scaled as f64;
    let reach = ratio.max(1.0);
    let window = |at: usize| {
        let centre = (at as f64 + 0.5) * ratio;
        // A negative number becomes 0.
        let first = (centre - reach + 0.5) as usize;
        let end = ((centre + reach + 0.5) as usize).min(source);
        let height = |x: usize| (1.0 - ((x as f64 + 0.5 - centre) / reach).abs()).max(0.0);
        let sum: f64 = (first..end).map(height).sum();
        let fixed = |x| (height(x) / sum * f64::from(1 << FRACTION) + 0.5) as u32;
        Window { first, weights: (first..end).map(fixed).collect() }
    };
    (from..from + count).map(window).collect()
}
