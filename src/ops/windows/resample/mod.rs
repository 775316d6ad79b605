//! Fixed linear maps of one dimension, or of several in turn: interpolation, averages over windows,
//! mirrored padding.
//!
//! ```text
//! y[.., i, ..] = sum over k of weight[i, k] x[.., place[i, k], ..]
//! ```
//!
//! A map is a sparse matrix stored by rows. Its transpose, stored the same way, is the gradient: both
//! directions read and none scatters, and the derivative of either is the other. Several dimensions
//! are done item by item, with what is between them in a cache-sized scratch.

mod cpu;
pub(in crate::ops) mod cuda;

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::autograd::record;
use crate::ops::{compute_type, gpu, gpu::Gpu};
use crate::tensor::{Shape, Tensor, dispatch};
pub(in crate::ops) use cpu::LinearMap;
use cpu::{Sparse, run};

/// Dimension `first + d` mapped by `maps[d]`, for at most three dimensions of a floating-point tensor.
/// Half types are computed in f32 and rounded once.
#[track_caller]
pub(in crate::ops) fn resample(
    name: &'static str,
    x: &Tensor,
    first: usize,
    maps: impl Into<Arc<[LinearMap]>>,
) -> Tensor {
    if !x.dtype().is_floating_point() {
        crate::tensor::dtype::not_floating(name, x.dtype())
    }
    apply(name, x, first, maps.into(), false)
}

fn apply(
    name: &'static str,
    x: &Tensor,
    first: usize,
    maps: Arc<[LinearMap]>,
    back: bool,
) -> Tensor {
    let (dtype, wide) = (x.dtype(), compute_type::widen(x));
    let y = {
        let sides: SmallVec<[&Sparse; 3]> =
            maps.iter().map(|map| if back { &map.back } else { &map.forward }).collect();
        let mut shape = Shape::from_slice(x.shape());
        sides.iter().enumerate().for_each(|(d, side)| shape[first + d] = side.rows());
        if let Some(gpu) = gpu::of(name, &[x]) {
            let y = compute_type::narrow(on_gpu(gpu, wide, first, &sides), dtype);
            return recorded(name, x, first, maps.clone(), back, y);
        }
        let y = Tensor::empty(&shape, wide.dtype().on_host());
        if wide.numel() == 0 || y.numel() == 0 {
            y.fill_contiguous(0i64.into(), 0);
        } else {
            let tail = shape[first + sides.len()..].iter().product();
            dispatch!(compute wide.dtype(), name, T => {
                // SAFETY: `widen` gives a contiguous tensor of this type; the output is new.
                let (x, y) = unsafe { (wide.as_slice::<T>(), y.as_mut_slice::<T>()) };
                run(x, y, tail, &sides);
            });
        }
        compute_type::narrow(y, dtype)
    };
    recorded(name, x, first, maps, back, y)
}

/// `y` with its history.
fn recorded(
    name: &'static str,
    x: &Tensor,
    first: usize,
    maps: Arc<[LinearMap]>,
    back: bool,
    y: Tensor,
) -> Tensor {
    record(name, &[x], y, |_| {
        move |ctx| smallvec![Some(apply(name, &ctx.grad(0), first, maps.clone(), !back))]
    })
}

/// The dimensions one after another, those that shrink first.
fn on_gpu(gpu: Gpu, x: Tensor, first: usize, sides: &[&Sparse]) -> Tensor {
    let mut order: SmallVec<[usize; 3]> = (0..sides.len()).collect();
    order.sort_by(|&a, &b| {
        let growth = |d: usize| sides[d].rows() as f64 / sides[d].size as f64;
        growth(a).total_cmp(&growth(b))
    });
    order.into_iter().fold(x, |x, d| {
        let side = sides[d];
        let mut shape = Shape::from_slice(x.shape());
        shape[first + d] = side.rows();
        let y = Tensor::empty(&shape, (x.dtype(), x.device()));
        let inner = shape[first + d + 1..].iter().product();
        let sizes = [side.size, side.rows(), inner];
        cuda::resample(gpu, [&x, &y], side.lists(), &side.weights, sizes);
        y
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::checks::samples::values;

    /// Three taps per output, of which some are the same and rows may be empty.
    fn uneven(size: usize, out: usize) -> LinearMap {
        let row = |i: usize| {
            let taps = i * 7 % 4;
            (0..taps).map(move |t| ((i * 5 + t * 3) % size, (i + t) as f64 / 8.0 - 1.0))
        };
        LinearMap::new(size, (0..out).map(row))
    }

    /// Twice as many, by lines between neighbours: rows repeat.
    fn doubled(size: usize) -> LinearMap {
        let at = |p: isize| p.clamp(0, size as isize - 1) as usize;
        let row = |i: usize| {
            let near = (i / 2) as isize + if i.is_multiple_of(2) { -1 } else { 1 };
            [(at((i / 2) as isize), 0.75), (at(near), 0.25)]
        };
        LinearMap::new(size, (0..2 * size).map(row))
    }

    fn dense(map: &Sparse) -> Vec<f64> {
        let mut all = vec![0.0; map.rows() * map.size];
        for i in 0..map.rows() {
            for k in map.row(i) {
                all[i * map.size + map.places[k] as usize] += map.weights[k];
            }
        }
        all
    }

    #[test]
    fn a_map_is_the_product_with_its_matrix_and_the_gradient_with_the_transpose() {
        for (shape, d, map) in [
            (&[3, 7][..], 1, uneven(7, 9)),
            (&[2, 5, 3], 1, uneven(5, 4)),
            (&[2, 50], 1, doubled(50)),
            (&[2, 40], 1, LinearMap { forward: doubled(20).back, back: doubled(20).forward }),
            (&[20, 17], 0, doubled(20)),
        ] {
            let matrix =
                Tensor::from_slice(&dense(&map.forward), [map.forward.rows(), map.forward.size]);
            let x = values(shape, 1).requires_grad_(true);
            let y = resample("test", &x, d, [map]);
            let want = x.transpose(d as i64, -1).matmul(&matrix.t()).transpose(d as i64, -1);
            let g = values(y.shape(), 2);
            let grad = |y: &Tensor| {
                crate::autograd::grad(&[y], &[&x], &[Some(&g)], crate::autograd::GraphMode::Free)[0]
                    .clone()
                    .unwrap()
            };
            for (got, want) in [(grad(&y), grad(&want)), (y, want)] {
                assert_eq!(got.shape(), want.shape());
                let far = (&got - &want).abs().amax(&[], false).item();
                assert!(far < 1e-12, "{far} {shape:?}");
            }
        }
    }

    #[test]
    fn rows_that_repeat_are_found() {
        let map = doubled(50);
        let found = |map: &Sparse| map.pattern.map(|p| (p.phases, p.step, p.first, p.periods));
        assert_eq!(found(&map.forward), Some((2, 1, 2, 48)));
        assert_eq!(found(&map.back), Some((1, 2, 1, 48)));
        assert_eq!(found(&uneven(50, 50).forward), None);
    }

    #[test]
    fn three_dimensions_are_three_maps() {
        let x = values([2, 4, 5, 6, 2], 1);
        let one = |y: &Tensor, d: usize, map: LinearMap| resample("test", y, d, [map]);
        let want = one(&one(&one(&x, 1, uneven(4, 6)), 2, doubled(5)), 3, uneven(6, 3));
        let got = resample("test", &x, 1, [uneven(4, 6), doubled(5), uneven(6, 3)]);
        assert!((&got - &want).abs().amax(&[], false).item() < 1e-12);
        let same = |n: usize| LinearMap::new(n, (0..n).map(|i| [(i, 1.0)]));
        assert_eq!(resample("test", &x, 1, [same(4), same(5)]).to_vec::<f64>(), x.to_vec::<f64>());
    }
}
