//! Attention of sequences of several lengths on a GPU against the CPU, and what it does not hold in memory.

use super::attention::{compare, numbers, peak_of};
use torchrs::autograd::{GraphMode, grad};
use torchrs::backends::cuda;
use torchrs::ops::VarlenOptions;
use torchrs::{Device, Dtype, Tensor, catch};

const GPU: Device = Device::Cuda(0);

fn starts(lengths: &[usize], device: Device) -> Tensor {
    let ends = lengths.iter().scan(0, |end, n| {
        *end += *n as i32;
        Some(*end)
    });
    let starts: Vec<i32> = std::iter::once(0).chain(ends).collect();
    Tensor::from_slice(&starts, [starts.len()]).to_device(device)
}

/// Queries and keys of each sequence, heads of both, features of queries and of values.
fn against_the_cpu(
    dtype: Dtype,
    lengths: [&[usize]; 2],
    heads: [usize; 2],
    features: [usize; 2],
    options: VarlenOptions,
) {
    let rows = lengths.map(|lengths| lengths.iter().sum::<usize>());
    let longest = lengths.map(|lengths| lengths.iter().copied().max().unwrap_or(0));
    let inputs = [
        numbers(&[rows[0], heads[0], features[0]], 1, dtype),
        numbers(&[rows[1], heads[1], features[0]], 2, dtype),
        numbers(&[rows[1], heads[1], features[1]], 3, dtype),
    ];
    let op = |x: &[Tensor]| {
        let [q, k] = lengths.map(|lengths| starts(lengths, x[0].device()));
        // More than the longest may be told.
        x[0].varlen_attn(&x[1], &x[2], &q, &k, longest[0], longest[1] + 9, options)
    };
    compare(
        &format!("varlen_attn({lengths:?}, {heads:?}, {features:?}, {options:?})"),
        &op,
        &inputs,
    );
}

fn cases(dtype: Dtype) {
    let none = VarlenOptions::default();
    let causal = VarlenOptions { is_causal: true, enable_gqa: true, ..none };
    let window = VarlenOptions { window_size: (9, 3), enable_gqa: true, ..none };
    let lengths: [&[usize]; 2] = [&[5, 0, 70, 1, 3], &[9, 4, 67, 0, 2]];
    against_the_cpu(dtype, lengths, [2, 2], [16, 24], none);
    against_the_cpu(dtype, lengths, [4, 2], [8, 8], causal);
    against_the_cpu(dtype, lengths, [3, 1], [5, 7], window);
    let both = VarlenOptions { is_causal: true, scale: Some(0.7), ..window };
    against_the_cpu(dtype, lengths, [2, 1], [72, 136], both);
    let empty: [[&[usize]; 2]; 4] =
        [[&[0, 0], &[0, 0]], [&[2, 1], &[0, 0]], [&[0, 0], &[0, 3]], [&[], &[]]];
    for lengths in empty {
        against_the_cpu(dtype, lengths, [2, 2], [8, 8], none);
    }
}

/// One sequence after the other, where no kernel takes all of them, and their gradients' gradients.
fn one_by_one() {
    let lengths: [&[usize]; 2] = [&[3, 0, 5], &[4, 2, 0]];
    let options = VarlenOptions { window_size: (2, 0), enable_gqa: true, ..Default::default() };
    cuda::enable_flash_sdp(false);
    against_the_cpu(Dtype::F64, lengths, [4, 2], [3, 2], options);
    cuda::enable_flash_sdp(true);
    against_the_cpu(Dtype::F32, lengths, [2, 2], [300, 2], options);
    let second = |device| {
        let x = numbers(&[8, 2, 3], 1, Dtype::F64).to_device(device).requires_grad_(true);
        let k = numbers(&[8, 2, 3], 2, Dtype::F64).to_device(device);
        let at = starts(lengths[0], device);
        let y = x.varlen_attn(&k, &x, &at, &at, 5, 5, options).square().sum();
        let first = grad(&[&y], &[&x], &[None], GraphMode::Create).remove(0).unwrap();
        let second = grad(&[&first.square().sum()], &[&x], &[None], GraphMode::Free).remove(0);
        second.unwrap().to_vec::<f64>()
    };
    let (got, want) = (second(GPU), second(Device::Cpu));
    assert!(got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-10), "{got:?} {want:?}");
    assert!(want.iter().any(|x| x.abs() > 1e-3));
}

/// Neither scores nor padding, forward and backward.
fn without_scores() {
    // As many rows as one sequence alone would have with all the others' padding.
    let lengths = [1000, 3, 2, 1, 1, 1];
    let rows = lengths.iter().sum::<usize>();
    for dtype in [Dtype::F32, Dtype::BF16] {
        let [q, k, v] = [1, 2, 3]
            .map(|seed| numbers(&[rows, 2, 8], seed, dtype).to_device(GPU).requires_grad_(true));
        let at = starts(&lengths, GPU);
        let peak = peak_of(|| {
            let y = q.varlen_attn(&k, &v, &at, &at, 1000, 1000, VarlenOptions::default());
            y.sum().backward();
        });
        let operand = rows * 2 * 8 * dtype.size();
        assert!(peak < 16 * operand && peak < rows * rows, "{dtype}: {peak}, operands {operand}");
    }
}

/// What is wrong is told before anything is started.
fn misuse() {
    let x = |shape: &[usize], device| Tensor::zeros(shape, (Dtype::F32, device));
    for device in [Device::Cpu, GPU] {
        let text = |q: &[usize], k: &[usize], at: [&Tensor; 2], options| {
            let (q, k) = (x(q, device), x(k, device));
            let y = catch(|| q.varlen_attn(&k, &k, at[0], at[1], 3, 3, options));
            y.unwrap_err().to_string()
        };
        let none = VarlenOptions::default();
        let (q, right) = ([3, 4, 8], starts(&[3], device));
        let both = [&right, &right];
        let long = right.to_dtype(Dtype::I64);
        assert!(text(&q, &q, [&long, &right], none).contains("cu_seq_q is i64"));
        assert!(
            text(&q, &q, [&right, &right.narrow(0, 0, 1)], none).contains("one number for each")
        );
        assert!(text(&q, &q, [&right.unsqueeze(0); 2], none).contains("one number for each"));
        assert!(text(&[3, 32], &q, both, none).contains("3 dimensions"));
        assert!(text(&q, &[3, 4, 7], both, none).contains("same last size"));
        assert!(text(&q, &[3, 2, 8], both, none).contains("enable_gqa"));
        let shared = VarlenOptions { enable_gqa: true, ..none };
        assert!(text(&q, &[3, 3, 8], both, shared).contains("enable_gqa"));
        let window = VarlenOptions { window_size: (-2, 0), ..none };
        assert!(text(&q, &q, both, window).contains("window_size"));
        let elsewhere = starts(&[3], if device == GPU { Device::Cpu } else { GPU });
        assert!(text(&q, &q, [&right, &elsewhere], none).contains("move them to one device"));
    }
}

simulated! {
    fn sequences_of_f32() { cases(Dtype::F32); }
    fn sequences_of_f64() { cases(Dtype::F64); }
    fn sequences_of_bf16() { cases(Dtype::BF16); }
    fn sequences_of_f16() { cases(Dtype::F16); }
    fn sequences_one_by_one() { one_by_one(); }
    fn sequences_without_scores() { without_scores(); }
    fn sequences_that_do_not_fit() { misuse(); }
}
