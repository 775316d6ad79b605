//! The kernels against the definitions.

use super::shape::Shape;
use super::*;
use crate::autograd;
use crate::error::catch;
use crate::tensor::Dtype;

fn numbers(shape: &[usize], seed: usize) -> Tensor {
    let n = shape.iter().product::<usize>();
    let v: Vec<f64> =
        (0..n).map(|i| ((i * 7919 + seed * 131) % 1009) as f64 / 504.5 - 1.0).collect();
    Tensor::from_slice(&v, shape)
}

fn compare(x: [usize; 4], w: [usize; 4], options: Conv2dOptions, dtype: Dtype, tolerance: f64) {
    // Numbers that the type has: its results then differ by their own rounding only.
    let numbers = |shape: &[usize], seed| numbers(shape, seed).to_dtype(dtype).to_dtype(Dtype::F64);
    let (x, w, bias) = (numbers(&x, 1), numbers(&w, 2), numbers(&[w[0]], 3));
    let shape = Shape::new(x.shape(), w.shape(), options);
    let dy = numbers(&shape.y(), 4);
    let leaf = |t: &Tensor| t.to_dtype(dtype).requires_grad_(true);
    let (lx, lw, lb) = (leaf(&x), leaf(&w), leaf(&bias));
    let y = lx.conv2d(&lw, Some(&lb), options);
    crate::autograd::backward(
        &[&y],
        &[Some(&dy.to_dtype(dtype))],
        crate::autograd::GraphMode::Free,
    );
    let [mut want_y, dx, dw] =
        reference(&shape, &x.to_vec::<f64>(), &w.to_vec::<f64>(), &dy.to_vec::<f64>());
    let (points, channels) = (shape.output[1] * shape.output[2], shape.output[0]);
    let mut db = vec![0.0; channels];
    for (i, (y, g)) in want_y.iter_mut().zip(dy.to_vec::<f64>()).enumerate() {
        *y += bias.to_vec::<f64>()[i / points % channels];
        db[i / points % channels] += g;
    }
    let grads = [&lx, &lw, &lb].map(|t| t.grad().expect("a gradient"));
    let pairs =
        [("y", &y, want_y), ("dx", &grads[0], dx), ("dw", &grads[1], dw), ("db", &grads[2], db)];
    for (name, got, want) in pairs {
        let scale = want.iter().fold(1.0f64, |m, v| m.max(v.abs()));
        for (i, (got, want)) in got.to_vec::<f64>().iter().zip(&want).enumerate() {
            let error = (got - want).abs() / scale;
            assert!(error <= tolerance, "{name}[{i}] = {got}, not {want}: {shape:?} {dtype}");
        }
    }
}

fn options(
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    groups: usize,
) -> Conv2dOptions {
    Conv2dOptions { stride, padding, dilation, groups }
}

#[test]
fn kernels_equal_the_definition() {
    let plain = Conv2dOptions::default();
    for (x, w, o) in [
        ([1, 1, 1, 1], [1, 1, 1, 1], plain),
        ([2, 1, 8, 8], [32, 1, 3, 3], options([1, 1], [1, 1], [1, 1], 1)),
        ([3, 32, 8, 8], [20, 32, 3, 3], options([1, 1], [1, 1], [1, 1], 1)),
        ([2, 3, 16, 10], [5, 3, 3, 3], plain),
        ([2, 3, 13, 16], [7, 3, 5, 5], options([2, 2], [2, 2], [1, 1], 1)),
        ([2, 4, 9, 11], [6, 2, 3, 2], options([2, 3], [1, 0], [2, 1], 2)),
        ([1, 2, 12, 7], [3, 2, 4, 3], options([3, 1], [3, 2], [1, 2], 1)),
        ([2, 20, 7, 7], [9, 20, 1, 1], plain),
        ([2, 9, 8, 8], [20, 9, 1, 1], plain),
        ([3, 8, 11, 12], [6, 4, 1, 1], options([1, 1], [0, 0], [1, 1], 2)),
        ([3, 8, 5, 4], [6, 4, 1, 1], options([1, 1], [0, 0], [1, 1], 2)),
        ([1, 8, 5, 4], [6, 8, 1, 1], plain),
        ([2, 6, 25, 24], [8, 3, 1, 1], options([2, 2], [0, 0], [1, 1], 2)),
        ([2, 6, 5, 30], [8, 6, 1, 1], options([1, 3], [0, 0], [1, 1], 1)),
        ([2, 5, 9, 9], [4, 5, 1, 1], options([2, 2], [0, 0], [1, 1], 1)),
        ([2, 5, 5, 5], [4, 5, 1, 1], options([1, 1], [2, 1], [1, 1], 1)),
        ([2, 6, 9, 20], [6, 1, 3, 3], options([1, 1], [1, 1], [1, 1], 6)),
        ([2, 6, 10, 37], [12, 1, 3, 3], options([2, 2], [1, 1], [1, 1], 6)),
        ([1, 3, 40, 16], [15, 1, 3, 3], options([1, 2], [1, 2], [2, 1], 3)),
        ([1, 300, 4, 4], [10, 300, 2, 2], plain),
        ([40, 8, 8, 16], [300, 8, 3, 3], options([1, 1], [1, 1], [1, 1], 1)),
        ([1, 2, 3, 3], [2, 2, 2, 2], options([4, 4], [0, 0], [1, 1], 1)),
    ] {
        compare(x, w, o, Dtype::F64, 1e-12);
        compare(x, w, o, Dtype::F32, 2e-6);
        compare(x, w, o, Dtype::BF16, 4e-3);
    }
}

#[test]
fn halves_equal_the_definition() {
    for (x, w, o) in [
        ([2, 5, 13, 16], [9, 5, 5, 5], options([2, 2], [2, 2], [1, 1], 1)),
        ([2, 18, 9, 11], [20, 9, 3, 2], options([2, 3], [1, 0], [2, 1], 2)),
        ([3, 10, 9, 3], [12, 10, 3, 3], Conv2dOptions::default()),
        ([2, 9, 20, 21], [17, 9, 3, 3], options([1, 1], [1, 0], [1, 1], 1)),
        ([3, 24, 7, 9], [28, 24, 5, 5], options([1, 1], [2, 2], [1, 1], 1)),
        ([2, 16, 9, 9], [11, 16, 1, 1], options([2, 2], [0, 0], [1, 1], 1)),
        ([1, 70, 6, 6], [40, 70, 3, 3], options([1, 1], [1, 1], [1, 1], 1)),
    ] {
        compare(x, w, o, Dtype::BF16, 4e-3);
        compare(x, w, o, Dtype::F16, 6e-4);
    }
}

#[test]
fn minimal_filtering_equals_the_definition() {
    // It rounds two to three times as much as a direct sum.
    let o = options([1, 1], [1, 0], [1, 1], 1);
    compare([4, 48, 20, 21], [64, 48, 3, 3], o, Dtype::F32, 6e-6);
    // At stride 2 less than that; columns beyond the last window have no part in it.
    let o = options([2, 2], [1, 0], [1, 1], 1);
    compare([6, 48, 56, 58], [64, 48, 3, 3], o, Dtype::F32, 6e-6);
    // The gradient of such a source too, with padding on all sides.
    let o = options([2, 2], [1, 1], [1, 1], 1);
    compare([6, 48, 55, 58], [64, 48, 3, 3], o, Dtype::F32, 6e-6);
}

#[test]
fn an_infinity_stays_where_windows_at_stride_2_see_it() {
    let x = numbers(&[8, 64, 56, 56], 1).to_dtype(Dtype::F32);
    x.set_i((3, 5, 10, 11), f32::INFINITY);
    let w = numbers(&[64, 64, 3, 3], 2).to_dtype(Dtype::F32);
    let (x, w) = (x.requires_grad_(true), w.requires_grad_(true));
    let y = x.conv2d(&w, None, options([2, 2], [1, 1], [1, 1], 1));
    for (i, v) in y.to_vec::<f32>().into_iter().enumerate() {
        let (n, row, column) = (i / (64 * 28 * 28), i / 28 % 28, i % 28);
        let sees = n == 3 && row == 5 && (5..7).contains(&column);
        assert_eq!(v.is_finite(), !sees, "image {n}, row {row}, column {column}: {v}");
    }
    let grad = |of: &Tensor, dy: &Tensor| {
        let grads = autograd::grad(&[&y], &[of], &[Some(dy)], autograd::GraphMode::Retain);
        grads[0].as_ref().expect("a gradient").to_vec::<f32>()
    };
    // The outer taps of the middle row read it.
    for (i, v) in grad(&w, &y.ones_like()).into_iter().enumerate() {
        let reads = i / 9 % 64 == 5 && [3, 5].contains(&(i % 9));
        assert_eq!(v == f32::INFINITY, reads, "filter gradient {i}: {v}");
    }
    let dy = y.ones_like();
    dy.set_i((2, 7, 27, 9), f32::INFINITY);
    for (i, v) in grad(&x, &dy).into_iter().enumerate() {
        let (n, row, column) = (i / (64 * 56 * 56), i / 56 % 56, i % 56);
        let sees = n == 2 && row >= 53 && (17..20).contains(&column);
        assert_eq!(v.is_finite(), !sees, "image {n}, row {row}, column {column}: {v}");
    }
}

#[test]
fn an_infinity_stays_where_windows_see_it() {
    let (x, w) = (numbers(&[8, 64, 28, 28], 1), numbers(&[64, 64, 3, 3], 2));
    let x = x.to_dtype(Dtype::F32);
    x.set_i((3, 5, 10, 11), f32::INFINITY);
    let (x, w) = (x.requires_grad_(true), w.to_dtype(Dtype::F32).requires_grad_(true));
    let y = x.conv2d(&w, None, options([1, 1], [1, 1], [1, 1], 1));
    for (i, v) in y.to_vec::<f32>().into_iter().enumerate() {
        let (n, row, column) = (i / (64 * 28 * 28), i / 28 % 28, i % 28);
        let sees = n == 3 && row.abs_diff(10) <= 1 && column.abs_diff(11) <= 1;
        assert_eq!(v.is_finite(), !sees, "image {n}, row {row}, column {column}: {v}");
    }
    // Each filter of the source channel reads it with some gradient, the others do not.
    y.sum().backward();
    let dw = w.grad().expect("a gradient").to_vec::<f32>();
    for (i, v) in dw.into_iter().enumerate() {
        assert_eq!(v == f32::INFINITY, i / 9 % 64 == 5, "filter gradient {i}: {v}");
    }
}

#[test]
fn one_dimension_and_no_batch_are_views_of_the_same() {
    let (x, w) = (numbers(&[3, 9], 1), numbers(&[4, 3, 3], 2));
    let o = Conv1dOptions { stride: [2], padding: [1], ..Default::default() };
    let y = x.conv1d(&w, None, o);
    let o2 = options([1, 2], [0, 1], [1, 1], 1);
    let want = x.unsqueeze(1).conv2d(&w.unsqueeze(2), None, o2);
    assert_eq!(y.shape(), &[4, 5]);
    assert_eq!(y.to_vec::<f64>(), want.to_vec::<f64>());
}

#[test]
fn an_empty_batch_has_zero_weight_gradient() {
    let w = numbers(&[4, 3, 3, 3], 2).requires_grad_(true);
    let y = Tensor::zeros([0, 3, 8, 8], Dtype::F64).conv2d(&w, None, Conv2dOptions::default());
    assert_eq!(y.shape(), &[0, 4, 6, 6]);
    y.sum().backward();
    assert_eq!(w.grad().unwrap().to_vec::<f64>(), vec![0.0; 108]);
}

#[test]
fn misuse_names_the_shapes_and_the_rule() {
    let x = numbers(&[1, 3, 8, 8], 1);
    let message = |w: &Tensor, b: Option<&Tensor>, o: Conv2dOptions| {
        catch(|| x.conv2d(w, b, o)).unwrap_err().to_string()
    };
    let plain = Conv2dOptions::default();
    let text = message(&numbers(&[4, 2, 3, 3], 2), None, plain);
    assert!(text.contains("[1, 3, 8, 8]") && text.contains("takes 2 input channels"), "{text}");
    let text = message(&numbers(&[4, 3, 9, 3], 2), None, plain);
    assert!(text.contains("covers 9"), "{text}");
    let text = message(&numbers(&[4, 3, 3, 3], 2), Some(&numbers(&[3], 3)), plain);
    assert!(text.contains("bias"), "{text}");
    let text = message(&numbers(&[4, 3, 3, 3], 2), None, options([0, 1], [0, 0], [1, 1], 1));
    assert!(text.contains("stride"), "{text}");
}

/// y, dx and dw by their definitions, for `dy` given: the loops that the kernels are tested against.
fn reference(shape: &Shape, x: &[f64], w: &[f64], dy: &[f64]) -> [Vec<f64>; 3] {
    let ([channels, h, width], [outputs, oh, ow]) = (shape.input, shape.output);
    let (o, [kh, kw]) = (shape.options, shape.kernel);
    let (ci, co) = (channels / o.groups, outputs / o.groups);
    let (mut y, mut dx, mut dw) = (vec![0.0; dy.len()], vec![0.0; x.len()], vec![0.0; w.len()]);
    for n in 0..shape.batch {
        for out in 0..outputs {
            for (i, j) in (0..oh).flat_map(|i| (0..ow).map(move |j| (i, j))) {
                for c in 0..ci {
                    for (r, s) in (0..kh).flat_map(|r| (0..kw).map(move |s| (r, s))) {
                        let a = (i * o.stride[0] + r * o.dilation[0]).wrapping_sub(o.padding[0]);
                        let b = (j * o.stride[1] + s * o.dilation[1]).wrapping_sub(o.padding[1]);
                        if a >= h || b >= width {
                            continue;
                        }
                        let at_x = ((n * channels + out / co * ci + c) * h + a) * width + b;
                        let at_w = ((out * ci + c) * kh + r) * kw + s;
                        let at_y = ((n * outputs + out) * oh + i) * ow + j;
                        y[at_y] += x[at_x] * w[at_w];
                        dx[at_x] += dy[at_y] * w[at_w];
                        dw[at_w] += dy[at_y] * x[at_x];
                    }
                }
            }
        }
    }
    [y, dx, dw]
}

#[test]
fn an_infinity_that_nobody_reads_leaves_no_trace() {
    // Stride 2 and a filter of 1: the infinite column is in the gaps between the points read.
    let x = numbers(&[1, 2, 3, 4], 1);
    x.slice(3, 1, 4, 2).fill_(f64::INFINITY);
    let w = numbers(&[2, 1, 1, 2], 2).slice(3, 0, 1, 1).clone_contiguous().requires_grad_(true);
    let options = Conv2dOptions { stride: [1, 2], groups: 2, ..Default::default() };
    let y = x.conv2d(&w, None, options);
    y.sum().backward();
    let want = x.slice(3, 0, 4, 2).sum_dim(&[0, 2, 3], false);
    let got = w.grad().expect("a gradient").ravel();
    assert!(got.allclose(&want, Default::default()), "{got:?}, expected {want:?}");
    // A padded plane whose last column is outside every window of two.
    let x = numbers(&[1, 1, 3, 5], 1);
    x.select(3, 4).fill_(f64::NEG_INFINITY);
    let w = numbers(&[1, 1, 2, 2], 2).requires_grad_(true);
    let options = Conv2dOptions { stride: [1, 2], ..Default::default() };
    x.conv2d(&w, None, options).sum().backward();
    assert!(w.grad().expect("a gradient").isfinite().all().item() == 1.0);
}

/// A convolution in three dimensions as one in two for each tap and slice of the depth.
fn by_planes(x: &Tensor, w: &Tensor, bias: &Tensor, o: Conv3dOptions) -> Tensor {
    let flat = options(
        [o.stride[1], o.stride[2]],
        [o.padding[1], o.padding[2]],
        [o.dilation[1], o.dilation[2]],
        o.groups,
    );
    let (depth, taps) = (x.shape()[2], w.shape()[2]);
    let slices = o.count(0, depth, taps).expect("an output");
    let slice = |i: usize| {
        let plane = |t: usize| (i * o.stride[0] + t * o.dilation[0]).checked_sub(o.padding[0]);
        let part = |t: usize| {
            let d = plane(t).filter(|&d| d < depth);
            let x = d.map_or_else(|| x.select(2, 0) * 0.0, |d| x.select(2, d as i64));
            x.conv2d(&w.select(2, t as i64), None, flat)
        };
        (1..taps).fold(part(0), |sum, t| sum + part(t)) + bias.reshape([-1, 1, 1])
    };
    let slices: Vec<Tensor> = (0..slices).map(slice).collect();
    Tensor::stack(&slices.iter().collect::<Vec<_>>(), 2)
}

#[test]
fn volumes_equal_their_planes() {
    let volume =
        |stride, padding, dilation, groups| Conv3dOptions { stride, padding, dilation, groups };
    for (x, w, o) in [
        ([2, 3, 6, 7, 9], [4, 3, 3, 3, 3], volume([1; 3], [1; 3], [1; 3], 1)),
        ([2, 4, 8, 6, 5], [6, 2, 4, 4, 4], volume([2; 3], [1; 3], [1; 3], 2)),
        ([1, 5, 9, 8, 8], [33, 5, 2, 3, 2], volume([3, 1, 2], [1, 0, 1], [2, 1, 1], 1)),
        ([3, 2, 5, 4, 20], [3, 2, 3, 1, 1], volume([1; 3], [2, 0, 0], [2, 1, 1], 1)),
        ([2, 40, 6, 14, 14], [32, 40, 4, 4, 4], volume([2; 3], [1; 3], [1; 3], 1)),
        ([1, 2, 2, 9, 3], [2, 2, 1, 2, 3], volume([4, 2, 1], [1, 1, 1], [1; 3], 1)),
        // Some residues of the gradient read a part of its planes that needs no border.
        ([1, 16, 7, 15, 15], [8, 16, 3, 3, 3], volume([2; 3], [2; 3], [1; 3], 1)),
        ([1, 16, 7, 29, 29], [32, 16, 3, 3, 3], volume([2; 3], [2; 3], [1; 3], 1)),
        ([2, 3, 7, 6, 6], [3, 1, 3, 3, 3], volume([1; 3], [1; 3], [1; 3], 3)),
    ] {
        for (dtype, tolerance) in [(Dtype::F64, 1e-12), (Dtype::F32, 4e-6)] {
            let leaves = |seed: usize| {
                [(&x[..], seed), (&w[..], seed + 1), (&w[..1], seed + 2)]
                    .map(|(shape, seed)| numbers(shape, seed).to_dtype(dtype).requires_grad_(true))
            };
            let ([x, w, b], [px, pw, pb]) = (leaves(1), leaves(1));
            let (y, want) = (x.conv3d(&w, Some(&b), o), by_planes(&px, &pw, &pb, o));
            let dy = numbers(y.shape(), 5).to_dtype(dtype);
            crate::autograd::backward(
                &[&y, &want],
                &[Some(&dy), Some(&dy)],
                crate::autograd::GraphMode::Free,
            );
            let gradient = |t: &Tensor| t.grad().expect("a gradient");
            for (name, got, want) in [
                ("y", y.detach(), want.detach()),
                ("dx", gradient(&x), gradient(&px)),
                ("dw", gradient(&w), gradient(&pw)),
                ("db", gradient(&b), gradient(&pb)),
            ] {
                assert_eq!(got.shape(), want.shape());
                let error = (&got - &want).abs().max().item() / want.abs().max().item().max(1.0);
                assert!(
                    error <= tolerance,
                    "{name} is off by {error}: {:?} {o:?} {dtype}",
                    w.shape()
                );
            }
        }
    }
}

#[test]
fn a_volume_of_no_images_has_a_gradient_of_zeros() {
    let w = numbers(&[32, 8, 4, 4, 4], 1).to_dtype(Dtype::F32).requires_grad_(true);
    let options = Conv3dOptions { stride: [2; 3], padding: [1; 3], ..Default::default() };
    // An image's sums, in the memory that those of none get.
    for (images, any) in [(1, true), (0, false)] {
        let x = numbers(&[images, 8, 6, 14, 14], 2).to_dtype(Dtype::F32);
        w.set_grad(None);
        x.conv3d(&w, None, options).sum().backward();
        let dw = w.grad().expect("a gradient");
        assert_eq!((dw.shape(), dw.abs().max().item() > 0.0), (w.shape(), any));
    }
}
