//! Minimal filtering against the definition in f64.

mod phases;
mod tiles;

use torchrs_cpu::convolution::direct::{Sizes, Target};
use torchrs_cpu::convolution::winograd::{Filters, Stride, TAPS, Winograd};

fn numbers(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919 + seed * 131) % 1009) as f32 / 504.5 - 1.0).collect()
}

/// What a source plane holds at a place; zeros outside.
fn at(plane: &[f32], [h, w]: [usize; 2], y: isize, x: isize) -> f64 {
    let inside = y >= 0 && x >= 0 && y < h as isize && x < w as isize;
    if inside { plane[y as usize * w + x as usize] as f64 } else { 0.0 }
}

fn near(what: &str, got: &[f32], want: &[f64]) {
    let scale = want.iter().fold(1e-9, |m: f64, v| m.max(v.abs()));
    for (i, (&got, want)) in got.iter().zip(want).enumerate() {
        let error = (got as f64 - want).abs() / scale;
        // Sums over hundreds of tiles, of transformed numbers that are larger than what they cancel to: on x86-64
        // at most 10^-5 off, on aarch64 a little more.
        assert!(error < 2e-5, "{what}[{i}] = {got}, not {want}: off by {error} of the largest");
    }
}

#[test]
fn products_equal_the_definition() {
    for stride in [Stride::One, Stride::Two] {
        sizes_equal_the_definition(stride);
    }
}

fn sizes_equal_the_definition(stride: Stride) {
    let step = if stride == Stride::One { 1 } else { 2 };
    for (batch, groups, inputs, outputs, source, padding) in [
        (1, 1, 1, 1, [3, 3], [0, 0]),
        (2, 1, 3, 7, [9, 4], [1, 1]),
        (3, 2, 5, 9, [8, 13], [1, 1]),
        (1, 1, 17, 8, [30, 150], [2, 0]),
        (2, 1, 300, 13, [5, 6], [1, 2]),
        (9, 1, 8, 6, [16, 16], [1, 1]),
        // More tiles than are few, and several blocks of few ones.
        (14, 1, 10, 20, [16, 16], [1, 1]),
        // Several runs in a row of tiles.
        (1, 1, 2, 3, [9, 301], [1, 1]),
        (3, 2, 270, 37, [7, 7], [1, 1]),
        // Short tiles in both dimensions, in one block and in several that begin in the middle of a row.
        (8, 1, 24, 20, [14, 14], [1, 1]),
        (21, 1, 9, 10, [10, 14], [1, 1]),
        (2, 2, 3, 5, [2, 2], [1, 1]),
        (1, 1, 4, 5, [6, 130], [1, 1]),
    ] {
        let grid = [0, 1].map(|d| (source[d] + 2 * padding[d] - 3) / step + 1);
        let sizes = Sizes { batch, groups, inputs, outputs, grid };
        let origin = padding.map(|p| -(p as isize));
        let winograd = Winograd { sizes, source, origin, stride };
        let (plane, points) = (source[0] * source[1], grid[0] * grid[1]);
        let x = numbers(batch * groups * inputs * plane, 1);
        let w = numbers(groups * outputs * inputs * TAPS, 2);
        let bias = numbers(groups * outputs, 3);
        let dy = numbers(batch * groups * outputs * points, 4);

        let mut y = vec![0f64; dy.len()];
        let mut dx = vec![0f64; x.len()];
        let mut dw = vec![0f64; w.len()];
        for (i, y) in y.iter_mut().enumerate() {
            let (n, o, p) =
                (i / points / (groups * outputs), i / points % (groups * outputs), i % points);
            *y = bias[o] as f64;
            for (c, t) in (0..inputs).flat_map(|c| (0..TAPS).map(move |t| (c, t))) {
                let channel = n * groups * inputs + o / outputs * inputs + c;
                let row = (p / grid[1] * step + t / 3) as isize + origin[0];
                let column = (p % grid[1] * step + t % 3) as isize + origin[1];
                let v = at(&x[channel * plane..], source, row, column);
                *y += v * w[(o * inputs + c) * TAPS + t] as f64;
                dw[(o * inputs + c) * TAPS + t] += v * dy[i] as f64;
                if (0..source[0] as isize).contains(&row)
                    && (0..source[1] as isize).contains(&column)
                {
                    let place = row as usize * source[1] + column as usize;
                    dx[channel * plane + place] += (w[(o * inputs + c) * TAPS + t] * dy[i]) as f64;
                }
            }
        }

        let order = std::array::from_fn(|t| t);
        let (group, output) = (outputs * inputs * TAPS, inputs * TAPS);
        let filters = Filters { data: &w, group, output, input: TAPS, order };
        let mut scratch = vec![f32::NAN; winograd.scratch_len()];
        let image = groups * outputs * points;
        let target = Target { first: 0, image, channel: points, row: grid[1], column: 1 };
        let mut got = vec![f32::NAN; dy.len()];
        assert!(winograd.correlate(&x, filters, Some(&bias), target, &mut scratch, &mut got));
        near("y", &got, &y);

        let mut scratch = vec![f32::NAN; winograd.filter_sums_len()];
        let mut got = vec![f32::NAN; w.len()];
        winograd.correlate_filters(&x, &dy, &mut scratch, &mut got);
        near("dw", &got, &dw);

        if (stride, padding) != (Stride::Two, [1, 1]) {
            continue;
        }
        let sizes = Sizes { batch, groups, inputs: outputs, outputs: inputs, grid: source };
        let winograd = Winograd { sizes, source: grid, origin: [0; 2], stride: Stride::Half };
        let filters = Filters { data: &w, group, output: TAPS, input: output, order };
        let mut scratch = vec![f32::NAN; winograd.scratch_len()];
        let image = groups * inputs * plane;
        let target = Target { first: 0, image, channel: plane, row: source[1], column: 1 };
        let mut got = vec![f32::NAN; dx.len()];
        assert!(winograd.correlate(&dy, filters, None, target, &mut scratch, &mut got));
        near("dx", &got, &dx);
    }
}

#[test]
fn large_layers_pay_and_small_ones_do_not() {
    let winograd = |stride, batch, [inputs, outputs]: [usize; 2], size| {
        let sizes = Sizes { batch, groups: 1, inputs, outputs, grid: [size; 2] };
        Winograd { sizes, source: [size; 2], origin: [-1, -1], stride }
    };
    let pays = |batch, channels, size| winograd(Stride::One, batch, [channels; 2], size).pays();
    assert!(pays(8, 64, 56) && pays(8, 128, 28) && pays(8, 256, 14));
    assert!(!pays(64, 4, 28) && !pays(1, 512, 7));
    let halves = |batch, channels, size| winograd(Stride::Two, batch, channels, size).pays();
    assert!(halves(6, [48, 64], 28) && halves(8, [64; 2], 28) && halves(8, [128; 2], 28));
    assert!(!halves(1, [256; 2], 14) && !halves(1, [512; 2], 7));
    assert!(winograd(Stride::Two, 8, [128; 2], 28).pays_for_filters());
}
