//! Folds: accuracy, and independence of the number of threads and of neighbours.

use proptest::prelude::*;
use torchrs_cpu::folds::fold::{Fold, Order, fold, leaf};
use torchrs_cpu::threads::{get_num_threads, set_num_threads};
use torchrs_loops::fold::Plan;

struct Sum;

impl Fold for Sum {
    type In = f32;
    type Acc = f32;
    type Param = ();
    #[inline(always)]
    fn identity(&self) -> f32 {
        0.0
    }
    #[inline(always)]
    fn param(&self, _: usize) {}
    #[inline(always)]
    fn map<const FMA: bool>(&self, x: f32, (): ()) -> f32 {
        x
    }
    #[inline(always)]
    fn combine(&self, a: f32, b: f32) -> f32 {
        a + b
    }
}

fn sums(plan: &Plan, data: &[f32]) -> Vec<f32> {
    let mut out = vec![f32::NAN; plan.outputs()];
    // SAFETY: the tests' plans stay inside `data`; every output has its place.
    unsafe { fold(&Sum, plan, data.as_ptr(), out.as_mut_ptr()) };
    out
}

/// The plain way: every element is added to its output, one by one.
fn reference(shape: &[usize], strides: &[isize], folded: &[bool], data: &[f32]) -> Vec<f32> {
    let outputs = (0..shape.len()).filter(|&d| !folded[d]).map(|d| shape[d]).product();
    let mut out = vec![0.0; outputs];
    for i in 0..shape.iter().product() {
        let (mut left, mut offset, mut output, mut place) = (i, 0, 0, 1);
        for d in (0..shape.len()).rev() {
            let index = left % shape[d];
            left /= shape[d];
            offset += index as isize * strides[d];
            if !folded[d] {
                output += index * place;
                place *= shape[d];
            }
        }
        out[output] += data[offset as usize];
    }
    out
}

proptest! {
    #[test]
    fn any_layout_is_folded_as_by_the_plain_loop(
        dims in prop::collection::vec((0usize..40, any::<bool>(), 0usize..3), 0..4),
        order in any::<u64>(),
    ) {
        // Dimensions lie in memory in some order, with gaps.
        let mut places: Vec<usize> = (0..dims.len()).collect();
        if !places.is_empty() {
            places.rotate_left(order as usize % dims.len());
        }
        let mut strides = vec![0isize; dims.len()];
        let mut next = 1isize;
        for &d in &places {
            strides[d] = next * (1 + (dims[d].2 == 2) as isize);
            next = strides[d] * dims[d].0.max(1) as isize;
        }
        let shape: Vec<usize> = dims.iter().map(|d| d.0).collect();
        let folded: Vec<bool> = dims.iter().map(|d| d.1).collect();
        // Small integers: sums are exact in any order.
        let data: Vec<f32> = (0..next).map(|i| (i * 7 % 23 - 11) as f32).collect();
        let plan = Plan::new(&shape, &strides, &|d| folded[d]);
        prop_assert_eq!(sums(&plan, &data), reference(&shape, &strides, &folded, &data));
    }
}

#[test]
fn long_and_narrow_folds_are_cut_into_parts() {
    for (rows, width) in [(300_001, 1), (50_000, 3), (4_000, 10), (70_000, 8), (150_001, 10)] {
        let data: Vec<f32> = (0..rows * width).map(|i| (i % 13) as f32).collect();
        let (shape, strides) = ([rows, width], [width as isize, 1]);
        for folded in [[true, false], [false, true], [true, true]] {
            let plan = Plan::new(&shape, &strides, &|d| folded[d]);
            assert_eq!(sums(&plan, &data), reference(&shape, &strides, &folded, &data));
        }
    }
}

#[test]
fn long_sums_are_accurate_and_do_not_depend_on_the_number_of_threads() {
    let n = 1 << 22;
    let data: Vec<f32> = (0..n).map(|i| 0.1 + (i % 7) as f32 * 0.01).collect();
    let exact: f64 = data.iter().map(|&v| v as f64).sum();
    for shape in [[1, n], [n, 1], [n / 64, 64]] {
        let plan = Plan::new(&shape, &[shape[1] as isize, 1], &|_| true);
        let one = sums(&plan, &data)[0];
        assert!((one as f64 / exact - 1.0).abs() < 2e-7, "{one} for {exact}");
        let before = get_num_threads();
        set_num_threads(3);
        assert_eq!(sums(&plan, &data)[0].to_bits(), one.to_bits());
        set_num_threads(before);
    }
}

/// Channels of images are folded where they lie, image after image.
#[test]
fn sums_of_channels_are_accurate_and_do_not_depend_on_the_number_of_threads() {
    let [images, channels, points] = [40, 5, 3000];
    let strides = [channels * points, points, 1].map(|s| s as isize);
    let plan = Plan::new(&[images, channels, points], &strides, &|d| d != 1);
    assert_eq!(plan.of_images().map(|of_images| of_images.outputs()), Some(images * channels));
    let value = |i: usize| 0.1 + (i * 37 % 101) as f32 * 0.01;
    let data: Vec<f32> = (0..images * channels * points).map(value).collect();
    let got = sums(&plan, &data);
    for (c, got) in got.iter().enumerate() {
        let image = |n: usize| &data[(n * channels + c) * points..][..points];
        let exact: f64 = (0..images).flat_map(image).map(|&v| v as f64).sum();
        assert!((*got as f64 / exact - 1.0).abs() < 2e-7, "channel {c}: {got} for {exact}");
    }
    let before = get_num_threads();
    set_num_threads(3);
    assert_eq!(sums(&plan, &data), got);
    set_num_threads(before);
}

/// Long rows are folded four at a time and the rest one by one, whichever those are.
#[test]
fn a_row_gives_the_same_alone_and_among_others() {
    let lengths =
        (0..140).chain([255, 256, 257, 511, 512, 513, 1000, 2048, 2049, 4095, 4096, 4097, 9000]);
    for n in lengths {
        let data: Vec<f32> = (0..7 * n).map(|i| 0.1 + (i * 37 % 101) as f32 / 7.0).collect();
        let plan = |rows: usize| Plan::new(&[rows, n], &[n as isize, 1], &|d| d == 1);
        let together = sums(&plan(7), &data);
        for row in 0..7 {
            let alone = sums(&plan(1), &data[row * n..]);
            assert_eq!(alone[0].to_bits(), together[row].to_bits(), "{n} numbers, row {row}");
            let exact: f64 = data[row * n..][..n].iter().map(|&x| x as f64).sum();
            let off = (alone[0] as f64 - exact).abs();
            assert!(off <= 1e-6 * exact, "{n} numbers, row {row}: {} for {exact}", alone[0]);
        }
    }
}

/// The order is chosen by the processor and by what else is folded, of which no result may depend.
#[test]
fn quarters_give_the_same_in_any_order() {
    let data: Vec<f32> = (0..4096).map(|i| 0.1 + (i * 37 % 101) as f32 / 7.0).collect();
    for n in (0..200).chain([512, 777, 1024, 2048, 4095, 4096]) {
        let sum = |order| leaf::<_, true>(&Sum, &data[..n], (), order).to_bits();
        assert_eq!(sum(Order::InTurn), sum(Order::Together), "{n} numbers");
    }
}
