//! Every row of the pointwise tables on a GPU: its result and its gradients, of dense operands and of
//! strided ones.

use torchrs::ops::pointwise::{self, Kind, Row};
use torchrs::tensor::Operand;
use torchrs::{Device, Dtype, Scalar, Tensor};

/// Operands of a row, within the intervals that its checks take.
fn operands(row: &Row, dtype: Dtype) -> Vec<Tensor> {
    let inputs = row.inputs.iter().enumerate();
    inputs
        .map(|(k, input)| {
            let (low, high) = row.sample_range(k);
            let values = (0..35).map(|i| {
                let share = ((i * 37 + k * 11) % 35) as f64 / 34.0;
                low + (high - low) * share
            });
            let x = Tensor::from(values.collect::<Vec<f64>>()).view([5, 7]);
            if input.mask { x.gt((low + high) / 2.0) } else { x.to_dtype(dtype) }
        })
        .collect()
}

fn run(row: &'static Row, inputs: &[Tensor], device: Device, dtype: Dtype) -> Vec<Tensor> {
    let params: Vec<Scalar> = row.params.iter().map(|p| p.default.into()).collect();
    let moved: Vec<Tensor> = inputs.iter().map(|x| x.to_device(device)).collect();
    let differentiates = dtype.is_floating_point() && !row.gradients.is_empty();
    let leaves: Vec<Tensor> = moved
        .iter()
        .zip(row.inputs)
        .map(|(x, input)| {
            if differentiates && !input.mask { x.detach().requires_grad_(true) } else { x.clone() }
        })
        .collect();
    let operands: Vec<Operand<'_>> = leaves.iter().map(Operand::from).collect();
    let y = pointwise::apply(row, &operands, &params);
    let mut out = vec![y.detach().cpu()];
    if y.requires_grad() {
        torchrs::autograd::backward(
            &[&y],
            &[Some(&y.ones_like())],
            torchrs::autograd::GraphMode::Free,
        );
        out.extend(leaves.iter().filter_map(Tensor::grad).map(|g| g.cpu()));
    }
    // Columns apart from each other, and the last operand broadcast along rows.
    let count = moved.len();
    let strided: Vec<Tensor> = moved
        .iter()
        .enumerate()
        .map(|(k, x)| if k + 1 == count && k > 0 { x.narrow(0, 2, 1).t() } else { x.t() })
        .collect();
    let operands: Vec<Operand<'_>> = strided.iter().map(Operand::from).collect();
    out.push(pointwise::apply(row, &operands, &params).cpu());
    out
}

fn check(dtype: Dtype, tolerance: f64) {
    let rows: Vec<&'static Row> = pointwise::tables()
        .filter(|row| row.kind != Kind::Update && row.takes(dtype))
        .filter(|row| dtype.is_floating_point() || row.kind != Kind::Float)
        .collect();
    assert!(rows.len() > 20);
    // Compilers of several programs run at once.
    let failures = std::thread::scope(|scope| {
        let parts: Vec<_> = rows
            .chunks(rows.len().div_ceil(2))
            .map(|rows| {
                scope.spawn(move || {
                    let wrong = |row: &&&'static Row| {
                        let inputs = operands(row, dtype);
                        let expected = run(row, &inputs, Device::Cpu, dtype);
                        let got = torchrs::catch(|| run(row, &inputs, Device::Cuda(0), dtype));
                        let got = match got {
                            Ok(got) => got,
                            Err(error) => {
                                eprintln!("{}: {error}", row.name);
                                return true;
                            }
                        };
                        let near = |(a, b): (&Tensor, &Tensor)| {
                            a.dtype() == b.dtype() && a.shape() == b.shape() && {
                                let pairs = a.to_vec::<f64>().into_iter().zip(b.to_vec::<f64>());
                                pairs.into_iter().all(|(a, b)| {
                                    a == b
                                        || a.is_nan() && b.is_nan()
                                        || (a - b).abs() <= tolerance * (1.0 + b.abs())
                                })
                            }
                        };
                        let same =
                            got.len() == expected.len() && got.iter().zip(&expected).all(near);
                        if !same {
                            eprintln!("{}: {got:?}\nexpected {expected:?}", row.name);
                        }
                        !same
                    };
                    rows.iter().filter(wrong).map(|row| row.name).collect::<Vec<_>>()
                })
            })
            .collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(failures.is_empty(), "{} rows of {dtype} differ: {failures:?}", failures.len());
}

simulated! {
    /// Both compute in f32, with the same programs.
    fn rows_of_f32_and_bf16() {
        check(Dtype::F32, 2e-6);
        check(Dtype::BF16, 1e-2);
    }
    fn rows_of_f64() { check(Dtype::F64, 1e-12); }
    fn rows_of_i64() { check(Dtype::I64, 0.0); }
}
