//! What can only be seen from inside: that a row's loops for all instruction sets that this processor
//! has agree.

use super::{Row, tables, updates};
use crate::cpu::{
    arch::isa, arch::isa::Isa, elementwise::format::fill_constant, elementwise::kernel::Kernel,
};
use crate::loops::{Compute, Constant};
use crate::tensor::{Dtype, Tensor};

/// Values of a row's operands, in the compute type.
fn columns(row: &Row, count: usize, n: usize) -> Vec<Vec<f64>> {
    let value = |k: usize, i: usize| {
        // The golden ratio's multiples are spread evenly.
        let share = ((i * count + k) as f64 * 0.618_033_988_749_895).fract();
        match row.inputs.get(k) {
            Some(input) if input.mask => (share > 0.5) as u8 as f64,
            Some(_) => {
                let (low, high) = row.sample_range(k);
                low + share * (high - low)
            }
            None => share,
        }
    };
    (0..count).map(|k| (0..n).map(|i| value(k, i)).collect()).collect()
}

/// Runs a kernel on columns; gives its results.
fn run(
    kernel: &Kernel,
    compute: Compute,
    isa: Isa,
    columns: &[Vec<f64>],
    params: &[f64],
    outputs: usize,
) -> Vec<f64> {
    let n = columns[0].len();
    let bytes = n * compute.size();
    let mut tiles = vec![vec![0u64; bytes.div_ceil(8)]; outputs + columns.len()];
    let write = |tile: &mut Vec<u64>, values: &[f64]| {
        for (i, v) in values.iter().enumerate() {
            // SAFETY: value i of the tile.
            unsafe {
                fill_constant(
                    Constant::F(*v),
                    compute,
                    tile.as_mut_ptr().cast::<u8>().add(i * compute.size()),
                    1,
                )
            };
        }
    };
    for (tile, column) in tiles[outputs..].iter_mut().zip(columns) {
        write(tile, column);
    }
    let mut constants = vec![0u64; params.len() + 1];
    write(&mut constants, params);
    let pointers: Vec<*mut u8> = tiles.iter_mut().map(|t| t.as_mut_ptr().cast()).collect();
    // SAFETY: tiles of n values each, the row's parameters, and an instruction set that is there.
    unsafe { kernel.tile(compute, isa)(pointers.as_ptr(), constants.as_ptr().cast(), n) };
    let value = |tile: &Vec<u64>, i: usize| {
        let at = tile.as_ptr();
        // SAFETY: value i of the tile.
        unsafe {
            match compute {
                Compute::F32 => at.cast::<f32>().add(i).read() as f64,
                Compute::F64 => at.cast::<f64>().add(i).read(),
                Compute::I64 => at.cast::<i64>().add(i).read() as f64,
            }
        }
    };
    tiles[..outputs]
        .iter()
        .flat_map(|tile| (0..n).map(|i| value(tile, i)).collect::<Vec<_>>())
        .collect()
}

#[test]
fn all_instruction_sets_agree() {
    // Not a multiple of any vector length.
    let n = 203;
    for row in tables().chain(updates()) {
        let params: Vec<f64> = row.params.iter().map(|p| p.default).collect();
        let forward = (&row.kernel, row.inputs.len(), row.writes.len().max(1));
        let backward = row.gradients.iter().map(|g| (&g.kernel, row.saved.len(), 1));
        for (kernel, inputs, outputs) in std::iter::once(forward).chain(backward) {
            let columns = columns(row, inputs, n);
            for (compute, epsilon) in
                [(Compute::F32, 2e-6), (Compute::F64, 1e-14), (Compute::I64, 0.0)]
            {
                if !kernel.has(compute) {
                    continue;
                }
                let plain = run(kernel, compute, Isa::Baseline, &columns, &params, outputs);
                for isa in Isa::ALL.into_iter().filter(|&isa| isa <= isa::available()) {
                    let got = run(kernel, compute, isa, &columns, &params, outputs);
                    for (i, (a, b)) in got.iter().zip(&plain).enumerate() {
                        let near = (a - b).abs() <= epsilon * (1.0 + b.abs())
                            || a.is_nan() && b.is_nan()
                            || a == b;
                        assert!(
                            near,
                            "{} in {compute:?} at {isa:?}: element {i} is {a}, not {b}",
                            row.name
                        );
                    }
                }
            }
        }
    }
}

/// Rows of which the second input is one number each, long enough to be used in place, and the threads' shares of them.
#[test]
fn one_number_for_each_row() {
    let x = Tensor::arange(0, 40 * 3 * 50, 1, Dtype::F32).view([40, 3, 50]);
    let bias = Tensor::from([[0.5f32], [-2.0], [7.0]]);
    let sums = (&x + &bias).to_vec::<f32>();
    let differences = (&x.to_dtype(Dtype::F64) - &bias.to_dtype(Dtype::F64)).to_vec::<f64>();
    let products = (&x.to_dtype(Dtype::I64) * &Tensor::from([[2i64], [3], [4]])).to_vec::<i64>();
    for i in 0..40 * 3 * 50 {
        let channel = i / 50 % 3;
        let number = [0.5, -2.0, 7.0][channel];
        assert_eq!(sums[i], i as f32 + number as f32);
        assert_eq!(differences[i], i as f64 - number);
        assert_eq!(products[i], i as i64 * [2, 3, 4][channel]);
    }
}

/// Functions that take two ways: in place, of a number, of rows, with one argument among many for the second way.
#[test]
fn moderate_and_far_arguments_mix() {
    for n in [3, 16, 17, 600, 5000] {
        let values: Vec<f32> =
            (0..n).map(|i| if i % 700 == 2 { 1e9 } else { i as f32 * 0.37 - 40.0 }).collect();
        let sines: Vec<f32> = values.iter().map(|&x| (x as f64).sin() as f32).collect();
        let x = Tensor::from(values.clone());
        let close = |y: &Tensor| y.allclose(&Tensor::from(sines.clone()), Default::default());
        assert!(close(&x.sin()));
        // No element depends on its neighbours.
        let alone = |&x: &f32| Tensor::from([x]).sin().item() as f32;
        assert_eq!(x.sin().to_vec::<f32>(), values.iter().map(alone).collect::<Vec<_>>());
        let rest: Vec<f32> = values.iter().map(|&x| x % 2.5).collect();
        assert_eq!(x.fmod(2.5).to_vec::<f32>(), rest);
        assert_eq!(x.fmod(&Tensor::from(vec![2.5f32; n])).to_vec::<f32>(), rest);
        assert_eq!(x.fmod(&Tensor::from([2.5f32])).to_vec::<f32>(), rest);
        assert!(close(x.sin_()));
    }
}

#[test]
fn limits_that_are_nan_win() {
    let x = [f32::NAN, -2.0, -0.0, 0.5, f32::INFINITY, f32::NEG_INFINITY];
    let x = Tensor::from_slice(&x, [6]);
    let bits = |t: Tensor| t.to_vec::<f32>().into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let limits = |low: f32, high: f32| {
        let tensors =
            x.clamp(&Tensor::from([low]).expand(&[6]), &Tensor::from([high]).expand(&[6]));
        let numbers = x.clamp(low, high);
        assert_eq!(numbers.isnan().to_vec::<bool>(), tensors.isnan().to_vec::<bool>());
        assert_eq!(bits(numbers.i(1..)), bits(tensors.i(1..)), "{low} {high}");
        numbers
    };
    assert!(limits(f32::NAN, 1.0).isnan().all().item() != 0.0);
    assert!(limits(-1.0, f32::NAN).isnan().all().item() != 0.0);
    let all = limits(f32::NEG_INFINITY, f32::INFINITY);
    assert!(all.i(0).item().is_nan());
    assert_eq!(bits(all.i(1..)), bits(x.i(1..)));
    assert_eq!(limits(-1.0, 1.0).i(1..).to_vec::<f32>(), [-1.0, -0.0, 0.5, 1.0, -1.0]);
    // Where they cross the upper one wins.
    assert_eq!(limits(2.0, 1.0).i(1..).to_vec::<f32>(), [1.0; 5]);
}
