//! Samples for the generic checks, and the op against what it is composed of.

use super::direction::{Direction, Recurrent};
use super::{Cell, composed, fused};
use crate::autograd::{self, gradgradcheck};
use crate::ops::checks::samples::{OpSample, values};
use crate::tensor::{Dtype, Tensor};

const CELLS: [Cell; 4] = [Cell::Tanh, Cell::Relu, Cell::Gru, Cell::Lstm];

/// Sizes of one call: those of the steps, of an input and of h.
#[derive(Clone, Copy)]
struct Case {
    cell: Cell,
    sizes: &'static [usize],
    inputs: usize,
    hidden: usize,
    bias: bool,
    backwards: bool,
}

impl Case {
    /// x, W_ih, W_hh, h, for an LSTM c, and the biases.
    fn operands(&self) -> Vec<Tensor> {
        let Case { cell, sizes, inputs, hidden, bias, .. } = *self;
        let width = cell.gates() * hidden;
        let small = |shape: &[usize], seed: u64| values(shape, seed) * 0.5;
        let mut all = vec![
            values([sizes.iter().sum(), inputs], 1),
            small(&[width, inputs], 2),
            small(&[width, hidden], 3),
        ];
        all.extend((0..cell.states()).map(|i| small(&[sizes[0], hidden], 4 + i as u64)));
        all.extend((0..if bias { 2 } else { 0 }).map(|i| small(&[width], 6 + i)));
        all
    }

    /// The outputs and the last states, by one of the two ways.
    fn call(&self, fused: bool, operands: &[Tensor]) -> Vec<Tensor> {
        let (first, biases) = operands[3..].split_at(self.cell.states());
        let weight_hh = &operands[2];
        let layer = Direction {
            cell: self.cell,
            weight_ih: &operands[1],
            bias_ih: biases.first(),
            recurrent: Recurrent { weight_hh, bias_hh: biases.get(1), weight_hr: None },
            sizes: self.sizes,
            backwards: self.backwards,
        };
        let run = if fused { fused::run } else { composed::run };
        let (out, last) = run(&layer, &operands[0], first);
        [out].into_iter().chain(last).collect()
    }

    /// All in one tensor.
    fn joined(&self, outputs: Vec<Tensor>) -> Tensor {
        Tensor::cat(&outputs, 0)
    }
}

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for cell in CELLS {
        for backwards in [false, true] {
            let case =
                |sizes, inputs, hidden, bias| Case { cell, sizes, inputs, hidden, bias, backwards };
            all.push(case(&[2, 2, 2], 3, 2, true));
            all.push(case(&[3, 2, 2, 1], 2, 3, false));
        }
    }
    all
}

pub fn samples() -> Vec<OpSample> {
    let sample = |case: Case| {
        let Case { cell, sizes, backwards, .. } = case;
        let name = format!("{cell:?} sizes={sizes:?} backwards={backwards}");
        OpSample::new(name, case.operands(), move |x| {
            let (first, biases) = x[3..].split_at(case.cell.states());
            let layer = Direction {
                cell: case.cell,
                weight_ih: &x[1],
                bias_ih: biases.first(),
                recurrent: Recurrent { weight_hh: &x[2], bias_hh: biases.get(1), weight_hr: None },
                sizes: case.sizes,
                backwards: case.backwards,
            };
            let (out, last) = layer.run(&x[0], first);
            case.joined([out].into_iter().chain(last).collect())
        })
        .slack(4.0)
    };
    cases().into_iter().map(sample).collect()
}

/// Cases whose sizes are no multiples of a register tile's, and larger than one.
fn large_cases() -> Vec<Case> {
    let large = |case: Case, sizes| Case { sizes, inputs: 21, hidden: 37, ..case };
    let sizes: [&'static [usize]; 2] = [&[13; 5], &[17, 17, 9, 4, 1]];
    let more = cases().into_iter().flat_map(|case| sizes.map(|sizes| large(case, sizes)));
    cases().into_iter().chain(more).collect()
}

fn leaves(operands: &[Tensor], dtype: Dtype) -> Vec<Tensor> {
    operands.iter().map(|t| t.detach().to_dtype(dtype).requires_grad_(true)).collect()
}

/// Outputs and, for fixed cotangents, all gradients.
fn all_results(case: &Case, fused: bool, dtype: Dtype) -> Vec<Tensor> {
    let operands = leaves(&case.operands(), dtype);
    let outputs = case.call(fused, &operands);
    let by: Vec<Tensor> = outputs
        .iter()
        .enumerate()
        .map(|(i, y)| values(y.shape(), 8 + i as u64).to_dtype(dtype))
        .collect();
    let roots: Vec<&Tensor> = outputs.iter().collect();
    let by: Vec<Option<&Tensor>> = by.iter().map(Some).collect();
    let of: Vec<&Tensor> = operands.iter().collect();
    let grads = autograd::grad(&roots, &of, &by, autograd::GraphMode::Free);
    outputs.iter().map(Tensor::detach).chain(grads.into_iter().flatten()).collect()
}

fn assert_near(case: &Case, got: &[Tensor], want: &[Tensor], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let (got, want) = (got.to_dtype(Dtype::F64), want.to_dtype(Dtype::F64));
        let error = (&got - &want).abs().max().item();
        let bound = tolerance * (1.0 + want.abs().max().item());
        assert!(error <= bound, "{:?} {:?}: result {i} is off by {error}", case.cell, case.sizes);
    }
}

#[test]
fn the_op_equals_what_it_is_composed_of() {
    for case in large_cases() {
        let want = all_results(&case, false, Dtype::F64);
        assert_near(&case, &all_results(&case, true, Dtype::F64), &want, 1e-12);
        assert_near(&case, &all_results(&case, true, Dtype::F32), &want, 2e-5);
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let before = crate::cpu::threads::get_num_threads();
    for cell in CELLS {
        let case = Case {
            cell,
            sizes: &[40, 40, 23],
            inputs: 70,
            hidden: 150,
            bias: true,
            backwards: false,
        };
        crate::cpu::threads::set_num_threads(1);
        let one = all_results(&case, true, Dtype::F32);
        crate::cpu::threads::set_num_threads(3);
        let three = all_results(&case, true, Dtype::F32);
        crate::cpu::threads::set_num_threads(before);
        assert!(one.iter().zip(&three).all(|(a, b)| a.equal(b)), "{cell:?}");
    }
}

#[test]
fn second_derivatives_of_each_output_are_right() {
    for case in cases() {
        let operands = leaves(&case.operands(), Dtype::F64);
        let of: Vec<&Tensor> = operands.iter().collect();
        for output in 0..=case.cell.states() {
            gradgradcheck(|t| case.call(true, t).swap_remove(output), &of, Default::default())
                .unwrap();
        }
    }
}

#[test]
fn operands_without_gradients_and_unused_outputs_are_left_out() {
    let case = cases().pop().expect("an LSTM");
    let operands = case.operands();
    let x = operands[0].detach().requires_grad_(true);
    let mut only_x = operands.clone();
    only_x[0] = x.clone();
    let gradient = |fused: bool| {
        let last_c = case.call(fused, &only_x).pop().expect("c");
        autograd::grad(&[&last_c.sum()], &[&x], &[None], autograd::GraphMode::Free)[0]
            .clone()
            .expect("used")
    };
    assert_near(&case, &[gradient(true)], &[gradient(false)], 1e-12);
    let outputs = case.call(true, &operands);
    assert!(outputs.iter().all(|t| !t.requires_grad()));
}
