//! A convolution's description, whose parts have to fit each other, and its computation.

use super::attributes::kind;
use super::engines::Engine;
use super::tensor::{Home, Layout};
use super::{Outcome, Status, refuse};
use crate::code::Result;
use crate::number::{Number, is_tf32_allowed};

/// How a filter moves.
#[derive(Clone, Debug)]
pub struct Window {
    /// The type of sums.
    sums: i32,
    /// Of each spatial dimension.
    padding: Vec<i64>,
    stride: Vec<i64>,
    dilation: Vec<i64>,
}

impl Window {
    /// Looks at the attributes of a convolution; the lists are the paddings before and after, the strides, and the
    /// dilations.
    pub fn new(spatial: i64, sums: i32, mode: i32, lists: [Vec<i64>; 4]) -> Outcome<Window> {
        let [before, after, stride, dilation] = lists;
        let all = [&before, &after, &stride, &dilation];
        let fits = all.iter().all(|list| list.len() as i64 == spatial)
            && before.iter().all(|&n| n >= 0)
            && stride.iter().chain(&dilation).all(|&n| n > 0);
        if !fits {
            return refuse(Status::BAD_PARAM, format!("{spatial} dimensions with {all:?}"));
        }
        if mode != 1 || before != after || sums > 1 {
            return refuse(Status::NOT_SUPPORTED, "correlations with equal paddings only");
        }
        Ok(Window { sums, padding: before, stride, dilation })
    }
}

/// A convolution, or one of its gradients.
#[derive(Clone, Debug)]
pub struct Convolution {
    direction: i32,
    window: Window,
    /// x, w, y.
    tensors: [Layout; 3],
    scales: [f64; 2],
    groups: i64,
}

/// Of a row of outputs under one tap: the first x, w and y, the number of outputs, and the distance of x's.
struct Row {
    x: usize,
    w: usize,
    y: usize,
    count: usize,
    step: usize,
}

impl Convolution {
    /// Looks at whether the parts fit.
    pub fn new(
        direction: i32,
        window: Window,
        tensors: [Layout; 3],
        scales: [f64; 2],
    ) -> Outcome<Convolution> {
        let [x, w, y] = &tensors;
        let dims = window.padding.len() + 2;
        if tensors.iter().any(|t| t.home() != Home::Memory) {
            return refuse(Status::NOT_SUPPORTED, "a tensor without memory");
        }
        if tensors.iter().any(|t| t.sizes().len() != dims || t.number() != x.number()) {
            return refuse(Status::BAD_PARAM, "tensors of different dimensions or types");
        }
        let spans = (0..dims - 2).all(|d| {
            let free = x.sizes()[d + 2] + 2 * window.padding[d]
                - window.dilation[d] * (w.sizes()[d + 2] - 1)
                - 1;
            free >= 0 && y.sizes()[d + 2] == free / window.stride[d] + 1
        });
        let fits = x.sizes()[0] == y.sizes()[0]
            && y.sizes()[1] == w.sizes()[0]
            && x.sizes()[1] % w.sizes()[1] == 0
            && y.sizes()[1] % (x.sizes()[1] / w.sizes()[1]) == 0
            && spans;
        if !fits {
            let sizes = tensors.each_ref().map(Layout::sizes);
            return refuse(Status::SHAPE_MISMATCH, format!("{sizes:?} do not fit {window:?}"));
        }
        if (window.sums == 1) != (x.number() == Number::F64) {
            return refuse(Status::NOT_SUPPORTED, "sums are f64 for f64 and else f32");
        }
        let groups = x.sizes()[1] / w.sizes()[1];
        Ok(Convolution { direction, window, tensors, scales, groups })
    }

    /// Whether tensor cores compute it: not in f64, and halves in groups of at least four channels only.
    pub fn takes_cores(&self) -> bool {
        match self.number() {
            Number::F64 => false,
            Number::F32 => true,
            _ => self.tensors[1].sizes()[1] >= 4,
        }
    }

    /// The type of its elements.
    pub fn number(&self) -> Number {
        self.tensors[0].number()
    }

    /// The addresses of x, w and y among those of a pack.
    pub fn addresses(&self, pack: &[(i64, usize)]) -> Outcome<[usize; 3]> {
        let mut at = [0; 3];
        for (tensor, at) in self.tensors.iter().zip(&mut at) {
            *at = tensor.address(pack)?;
        }
        Ok(at)
    }

    /// Computes the result; f32 is rounded by the engine on tensor cores.
    pub fn compute(&self, at: [usize; 3], engine: Engine) -> Result {
        for (tensor, at) in self.tensors.iter().zip(at) {
            tensor.check(at)?;
        }
        let rounded =
            engine == Engine::TensorCores && self.number() == Number::F32 && is_tf32_allowed();
        let result = match self.direction {
            kind::FORWARD => 2,
            kind::DATA => 0,
            _ => 1,
        };
        let mut all = [0, 1, 2].map(|i| match i == result {
            true => vec![0.0; self.tensors[i].count()],
            false => self.tensors[i].read(at[i], rounded),
        });
        let [x, w, y] = &mut all;
        self.for_each_row(|row| {
            let xs = row.x..;
            match result {
                2 => {
                    let (xs, ys) = (&x[xs], &mut y[row.y..row.y + row.count]);
                    ys.iter_mut()
                        .zip(xs.iter().step_by(row.step))
                        .for_each(|(y, x)| *y += w[row.w] * x);
                }
                0 => {
                    let (xs, ys) = (&mut x[xs], &y[row.y..row.y + row.count]);
                    xs.iter_mut().step_by(row.step).zip(ys).for_each(|(x, y)| *x += w[row.w] * y);
                }
                _ => {
                    let (xs, ys) = (&x[xs], &y[row.y..row.y + row.count]);
                    w[row.w] +=
                        ys.iter().zip(xs.iter().step_by(row.step)).map(|(y, x)| x * y).sum::<f64>();
                }
            }
        });
        self.tensors[result].store(at[result], &all[result], self.scales);
        Ok(())
    }

    /// Goes through all rows of outputs and taps that reach the input. Two dimensions are three of depth one.
    fn for_each_row(&self, mut body: impl FnMut(Row)) {
        let three = |list: &[i64], fill: i64| -> [usize; 3] {
            let mut three = [fill as usize; 3];
            for (to, from) in three.iter_mut().rev().zip(list.iter().rev()) {
                *to = *from as usize;
            }
            three
        };
        let [x, w, y] = self.tensors.each_ref().map(|t| three(&t.sizes()[2..], 1));
        let (padding, stride, dilation) = (
            three(&self.window.padding, 0),
            three(&self.window.stride, 1),
            three(&self.window.dilation, 1),
        );
        let [of_x, of_w, of_y] = self.tensors.each_ref().map(|t| t.sizes()[1] as usize);
        let (batch, outputs) = (self.tensors[0].sizes()[0] as usize, of_y / self.groups as usize);
        // The outputs whose tap reads within the input.
        let reach = |d: usize, tap: usize| {
            let offset = tap * dilation[d];
            let first = padding[d].saturating_sub(offset).div_ceil(stride[d]);
            let end = (x[d] + padding[d]).saturating_sub(offset).div_ceil(stride[d]).min(y[d]);
            first..end.max(first)
        };
        let volume = |sizes: [usize; 3]| sizes.iter().product::<usize>();
        for n in 0..batch {
            for o in 0..of_y {
                for c in 0..of_w {
                    let channel = o / outputs * of_w + c;
                    for tap in 0..volume(w) {
                        let [tz, ty, tx] = [tap / (w[1] * w[2]), tap / w[2] % w[1], tap % w[2]];
                        let wide = reach(2, tx);
                        if wide.is_empty() {
                            continue;
                        }
                        for z in reach(0, tz) {
                            for row in reach(1, ty) {
                                let from = [z, row, wide.start];
                                let [xz, xy, xx] = [(0, tz), (1, ty), (2, tx)].map(|(d, t)| {
                                    from[d] * stride[d] + t * dilation[d] - padding[d]
                                });
                                let x_plane = (n * of_x + channel) * volume(x);
                                let y_plane = (n * of_y + o) * volume(y);
                                body(Row {
                                    x: x_plane + (xz * x[1] + xy) * x[2] + xx,
                                    w: (o * of_w + c) * volume(w) + tap,
                                    y: y_plane + (z * y[1] + row) * y[2] + wide.start,
                                    count: wide.len(),
                                    step: stride[2],
                                });
                            }
                        }
                    }
                }
            }
        }
    }
}
