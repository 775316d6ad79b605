//! The first largest and smallest value of a line.

use parking_lot::Mutex;
use torchrs_cpu::folds::extreme::{beats, extremes};
use torchrs_loops::fold::Plan;

/// (value, index) per output, by both orders of folding.
fn both<const LARGEST: bool>(data: &[f32], rows: usize, width: usize) {
    for folded in [0, 1] {
        let plan = Plan::new(&[rows, width], &[width as isize, 1], &|d| d == folded);
        let out = Mutex::new(vec![(f32::NAN, usize::MAX); plan.outputs()]);
        // SAFETY: the plan covers `data`.
        unsafe { extremes::<f32, LARGEST>(&plan, data.as_ptr(), |o, v, i| out.lock()[o] = (v, i)) };
        for (o, &(value, index)) in out.lock().iter().enumerate() {
            let line: Vec<f32> = if folded == 0 {
                (0..rows).map(|i| data[i * width + o]).collect()
            } else {
                data[o * width..(o + 1) * width].to_vec()
            };
            let mut want = 0;
            for i in 1..line.len() {
                if beats::<f32, LARGEST>(line[i], line[want]) {
                    want = i;
                }
            }
            assert_eq!(index, want, "output {o} of {rows}x{width} along {folded}");
            assert_eq!(value.to_bits(), line[want].to_bits());
        }
    }
}

#[test]
fn the_first_extreme_is_found_with_ties_nan_and_infinities() {
    for (rows, width) in [(1, 1), (3, 10), (5, 2500), (2500, 20), (7, 1024)] {
        let mut data: Vec<f32> = (0..rows * width).map(|i| ((i * 37) % 101) as f32).collect();
        both::<true>(&data, rows, width);
        both::<false>(&data, rows, width);
        let middle = data.len() / 2;
        data[middle] = f32::NAN;
        *data.last_mut().unwrap() = f32::NAN;
        both::<true>(&data, rows, width);
        both::<false>(&data, rows, width);
        data.fill(f32::NEG_INFINITY);
        both::<true>(&data, rows, width);
    }
}
