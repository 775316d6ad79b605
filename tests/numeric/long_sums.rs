//! Sums of a million numbers, all of one sign, inside other ops: none is taken one after another in f32, whose error
//! grows with the count. What is right is the same op in f64. (What is added at places that a tensor names, as an
//! embedding's gradient is, is added in their order, as PyTorch does.)

use torchrs::ops::Conv2dOptions;
use torchrs::{Dtype, Generator, Tensor, autograd};

/// What a sum of a million numbers may be off, relative to it: some forty roundings. One after another, 0.1 is off by
/// a hundredth.
const BOUND: f64 = 2.5e-6;

const LONG: usize = 1 << 20;

/// Numbers from 0.05 to 0.15.
fn positive(shape: &[usize], seed: u64) -> Tensor {
    Generator::new(seed).rand(shape, Dtype::F32) * 0.1 + 0.05
}

/// The largest relative error of `op` in f32 of those inputs.
fn error(op: &dyn Fn(&[Tensor]) -> Tensor, inputs: &[Tensor]) -> f64 {
    let wide: Vec<Tensor> = inputs
        .iter()
        .map(|t| if t.dtype() == Dtype::F32 { t.to_dtype(Dtype::F64) } else { t.clone() })
        .collect();
    let (got, right) = (op(inputs).to_dtype(Dtype::F64), op(&wide));
    assert_eq!(got.shape(), right.shape());
    ((&got - &right) / right).abs().amax(&[], false).item()
}

/// The gradient of `forward`'s sum with regard to the first input.
fn gradient(inputs: &[Tensor], forward: impl Fn(&[Tensor]) -> Tensor) -> Tensor {
    let mut leaves: Vec<Tensor> = inputs.iter().map(Tensor::detach).collect();
    leaves[0] = leaves[0].requires_grad_(true);
    let y = forward(&leaves);
    let ones = y.detach().ones_like() * 0.1;
    autograd::grad(&[&y], &[&leaves[0]], &[Some(&ones)], autograd::GraphMode::Free)[0]
        .clone()
        .expect("of it")
}

fn check(name: &str, inputs: &[Tensor], op: impl Fn(&[Tensor]) -> Tensor) {
    let error = error(&op, inputs);
    println!("{name}: {error:.2e}");
    assert!(error < BOUND, "{name}: off by {error:.2e} of the sum");
}

#[test]
fn products_of_long_rows() {
    let [a, b] = [positive(&[LONG], 1), positive(&[LONG], 2)];
    check("dot", &[a.clone(), b.clone()], |t| t[0].dot(&t[1]));
    let rows = positive(&[5, LONG], 3);
    check("matrix and vector", &[rows.clone(), b.clone()], |t| t[0].mv(&t[1]));
    check("vector and matrix", &[b, positive(&[LONG, 5], 4)], |t| t[0].unsqueeze(0).mm(&t[1]));
    let columns = positive(&[LONG, 3], 5);
    check("matrices", &[rows.clone(), columns], |t| t[0].mm(&t[1]));
    check("transposed matrices", &[rows.t().contiguous(), rows], |t| t[0].t().mm(&t[1].t()));
    let many = [positive(&[40, LONG / 8], 6), positive(&[LONG / 8, 48], 7)];
    check("larger matrices", &many, |t| t[0].mm(&t[1]));
}

#[test]
fn gradients_of_parameters() {
    let x = positive(&[LONG, 6], 1);
    check("weight of linear", &[positive(&[4, 6], 2), x.clone()], |t| {
        gradient(t, |t| t[1].linear(&t[0], None))
    });
    check("bias of linear", &[positive(&[4], 2), x.clone(), positive(&[4, 6], 3)], |t| {
        gradient(t, |t| t[1].linear(&t[2], Some(&t[0])))
    });
    for (channels, filters, kernel, groups) in
        [(3, 8, 3, 1), (16, 16, 3, 1), (4, 4, 3, 4), (2, 8, 1, 1), (3, 8, 5, 1)]
    {
        let options = Conv2dOptions { padding: [kernel / 2; 2], groups, ..Default::default() };
        let weight = positive(&[filters, channels / groups, kernel, kernel], 4);
        check(
            &format!(
                "filters of a {kernel}x{kernel} convolution of {channels} channels in {groups} groups"
            ),
            &[weight, positive(&[4, channels, 256, 256], 5)],
            |t| gradient(t, |t| t[1].conv2d(&t[0], None, options)),
        );
    }
    check("bias that is broadcast", &[positive(&[6], 8), x], |t| gradient(t, |t| &t[1] + &t[0]));
}
