//! Depthwise convolutions against the definitions, in f64.

use torchrs_cpu::convolution::depthwise::{
    Planes, correlate_plane_filters, correlate_planes, spread_planes,
};
use torchrs_cpu::convolution::direct::Target;
use torchrs_cpu::convolution::field::Window;

/// A depthwise convolution of square stride, padding and dilation.
#[derive(Clone, Copy, Debug)]
struct Case {
    batch: usize,
    channels: usize,
    size: [usize; 2],
    side: usize,
    stride: usize,
    padding: [usize; 2],
    dilation: usize,
}

impl Case {
    /// The window, unless the filter is larger than the padded plane.
    fn window(&self) -> Option<Window> {
        let reach = (self.side - 1) * self.dilation + 1;
        let count = |d: usize| {
            let room = (self.size[d] + 2 * self.padding[d]).checked_sub(reach)?;
            Some(room / self.stride + 1)
        };
        let grid = [count(0)?, count(1)?];
        let tap = |d: usize, t: usize| (t * self.dilation) as isize - self.padding[d] as isize;
        let taps = (0..self.side)
            .flat_map(|r| (0..self.side).map(move |s| [tap(0, r), tap(1, s)]))
            .collect();
        Some(Window { source: self.size, grid, step: [self.stride; 2], taps })
    }
}

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed * 131) % 1009) as f32 / 504.5 - 1.0).collect()
}

/// y, dx and dw of planes that have one filter each.
fn reference(window: &Window, x: &[f32], w: &[f32], dy: &[f32]) -> [Vec<f64>; 3] {
    let ([height, width], [rows, columns]) = (window.source, window.grid);
    let (taps, points) = (window.taps.len(), window.points());
    let channels = w.len() / taps;
    let (mut y, mut dx, mut dw) = (vec![0.0; dy.len()], vec![0.0; x.len()], vec![0.0; w.len()]);
    for plane in 0..dy.len() / points {
        for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
            let at_y = plane * points + i * columns + j;
            for (t, tap) in window.taps.iter().enumerate() {
                let a = (i * window.step[0]) as isize + tap[0];
                let b = (j * window.step[1]) as isize + tap[1];
                if a < 0 || b < 0 || a as usize >= height || b as usize >= width {
                    continue;
                }
                let at_x = plane * height * width + a as usize * width + b as usize;
                let at_w = plane % channels * taps + t;
                let [x, w, dy] = [x[at_x], w[at_w], dy[at_y]].map(f64::from);
                y[at_y] += x * w;
                dx[at_x] += dy * w;
                dw[at_w] += dy * x;
            }
        }
    }
    [y, dx, dw]
}

/// That sums of `terms` products of numbers below 1 are right to a rounding of the sum of their amounts.
fn assert_near(name: &str, got: &[f32], want: &[f64], terms: usize, case: Case) {
    let tolerance = 1e-7 * terms.max(10) as f64;
    for (i, (&got, &want)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(got) - want).abs();
        assert!(error <= tolerance, "{name}[{i}] is {got}, not {want}: {case:?}");
    }
}

/// A target of planes one after the other.
fn dense(channels: usize, [h, w]: [usize; 2]) -> Target {
    Target { first: 0, image: channels * h * w, channel: h * w, row: w, column: 1 }
}

fn check(case: Case) {
    let Some(window) = case.window() else { return };
    let Case { batch, channels, size, .. } = case;
    let planes = Planes { batch, channels, sources: channels, inputs: 1 };
    let x = numbers(batch * channels * size[0] * size[1], 1);
    let w = numbers(channels * window.taps.len(), 2);
    let dy = numbers(batch * channels * window.points(), 3);
    let [y, dx, dw] = reference(&window, &x, &w, &dy);

    let mut got = vec![f32::NAN; y.len()];
    correlate_planes(planes, &window, &x, &w, None, dense(channels, window.grid), &mut got);
    assert_near("y", &got, &y, window.taps.len(), case);

    let mut got = vec![f32::NAN; dw.len()];
    correlate_plane_filters(planes, &window, &x, &dy, &mut got);
    assert_near("dw", &got, &dw, batch * window.points(), case);

    let mut got = vec![f32::NAN; dx.len()];
    if spread_planes(planes, &window, &dy, &w, dense(channels, size), &mut got) {
        assert_near("dx", &got, &dx, window.taps.len(), case);
    } else {
        assert!(got.iter().all(|v| v.is_nan()), "dx is not to be touched: {case:?}");
    }
}

#[test]
fn products_equal_their_definitions() {
    let sizes = [
        [1, 1],
        [2, 3],
        [3, 3],
        [5, 4],
        [7, 7],
        [6, 8],
        [9, 9],
        [8, 15],
        [14, 14],
        [13, 16],
        [11, 17],
        [5, 28],
        [10, 31],
        [6, 33],
        [4, 50],
        [17, 64],
        [5, 79],
        [3, 115],
        [4, 129],
        [2, 150],
    ];
    for size in sizes {
        for side in [2, 3, 5] {
            for stride in 1..4 {
                for padding in [[0, 0], [1, 1], [2, 2], [0, 1], [4, 3]] {
                    for dilation in [1, 2] {
                        let (batch, channels) = (2, 3);
                        check(Case { batch, channels, size, side, stride, padding, dilation });
                    }
                }
            }
        }
    }
}

#[test]
fn long_sums_are_added_in_blocks() {
    let (size, padding) = ([200, 210], [1, 1]);
    check(Case { batch: 3, channels: 1, size, side: 3, stride: 1, padding, dilation: 1 });
    // Hundreds of thousands of equal numbers: one f32 sum of them all would be wrong in the third digit.
    let case =
        Case { batch: 9, channels: 1, size, side: 3, stride: 1, padding: [0; 2], dilation: 1 };
    let window = case.window().expect("fits");
    let planes = Planes { batch: 9, channels: 1, sources: 1, inputs: 1 };
    let (x, dy) = (vec![1.1f32; 9 * 200 * 210], vec![1f32; 9 * window.points()]);
    let mut dw = [0f32; 9];
    correlate_plane_filters(planes, &window, &x, &dy, &mut dw);
    let want = f64::from(1.1f32) * dy.len() as f64;
    assert!(dw.iter().all(|&v| (f64::from(v) / want - 1.0).abs() < 5e-6), "{dw:?}, not {want}");
}

#[test]
fn turned_filters_and_other_targets() {
    // Taps from the last to the first, as the data gradient has them, into every second plane.
    let case = Case {
        batch: 2,
        channels: 3,
        size: [9, 14],
        side: 3,
        stride: 1,
        padding: [1; 2],
        dilation: 1,
    };
    let mut window = case.window().expect("fits");
    window.taps.reverse();
    let (x, w) = (numbers(2 * 3 * 126, 1), numbers(27, 2));
    let [want, ..] = reference(&window, &x, &w, &x);
    let planes = Planes { batch: 2, channels: 3, sources: 3, inputs: 1 };
    let target = Target { first: 126, image: 6 * 126, channel: 2 * 126, row: 14, column: 1 };
    let mut out = vec![-7f32; 12 * 126];
    correlate_planes(planes, &window, &x, &w, Some(&[0.5, 1.5, 2.5]), target, &mut out);
    for (p, plane) in out.chunks_exact(126).enumerate() {
        if p % 2 == 0 {
            assert!(plane.iter().all(|&v| v == -7.0), "plane {p} was written");
            continue;
        }
        let bias = (p / 2 % 3) as f64 + 0.5;
        let want: Vec<f64> = want[p / 2 * 126..][..126].iter().map(|v| v + bias).collect();
        assert_near("y", plane, &want, 10, case);
    }
}

#[test]
fn numbers_that_no_window_reads_leave_no_trace() {
    // The last row and column of a plane of even size are outside a 3x3 window at stride 2. Grid rows fill their
    // registers, leave lanes over, and are longer than a strip of any registers.
    for n in [18, 20, 148] {
        let size = [n, n];
        let (batch, channels, padding) = (1, 1, [0; 2]);
        let case = Case { batch, channels, size, side: 3, stride: 2, padding, dilation: 1 };
        let window = case.window().expect("fits");
        let planes = Planes { batch: 1, channels: 1, sources: 1, inputs: 1 };
        let mut x = numbers(n * n, 1);
        for i in 0..n {
            (x[i * n + n - 1], x[(n - 1) * n + i]) = (f32::INFINITY, f32::NAN);
        }
        let points = window.points();
        let (mut y, mut dw) = (vec![f32::NAN; points], vec![f32::NAN; 9]);
        correlate_planes(planes, &window, &x, &numbers(9, 2), None, dense(1, window.grid), &mut y);
        correlate_plane_filters(planes, &window, &x, &numbers(points, 3), &mut dw);
        assert!(y.iter().chain(&dw).all(|v| v.is_finite()), "{y:?} {dw:?}");
    }
}
