//! Convolutions with 1x1 filters: the filters' matrix times the matrix of an image's points. Dense planes
//! are used where they lie. Strided ones are gathered first, and so are small ones, of which those of all
//! images make one matrix: a few points would leave most of a register tile's work undone.

use crate::cpu::{
    convolution::direct::Sizes, convolution::direct::Target, convolution::field::Window,
    products::gemm::Gemm, products::gemm::Matrix, products::tiled::Tiled, threads::GRAIN,
    threads::parallel_for, threads::parts::Parts, threads::parts::Shared,
};
use crate::tensor::{Element, Tensor};

use super::scratch::scratch;

/// Points of a plane below which those of all images are gathered.
const SMALL: usize = 100;

/// A convolution with one tap, which reads the source at multiples of the step.
pub struct Pointwise<'a> {
    sizes: Sizes,
    window: &'a Window,
    /// Points of an image.
    points: usize,
    /// The planes of all images lie behind one another, channel by channel.
    merged: bool,
}

/// Distances between channels and between images.
#[derive(Clone, Copy)]
struct Lie {
    channel: usize,
    image: usize,
}

impl<'a> Pointwise<'a> {
    /// The window, if its only tap is the first point of a source that it stays inside.
    pub fn of(sizes: Sizes, window: &'a Window) -> Option<Self> {
        let inside = |d: usize| (window.grid[d] - 1) * window.step[d] < window.source[d];
        let fits = window.taps == [[0, 0]] && inside(0) && inside(1);
        let points = window.points();
        let merged = points < SMALL && sizes.batch > 1;
        fits.then_some(Pointwise { sizes, window, points, merged })
    }

    /// For every point and result channel the sum over the source channels of source times filter, plus
    /// `bias`. Filter (o, c) of group g is at `filters + (g * outputs * inputs) + o * row + c * column`.
    pub fn correlate<T: Tiled + Element>(
        &self,
        source: &[T],
        (filters, row, column): (&[T], usize, usize),
        bias: Option<&[T]>,
        target: Target,
        out: &mut [T],
    ) {
        let Sizes { batch, groups, inputs, outputs, grid } = self.sizes;
        let (points, results) = (self.points, groups * outputs);
        let last = (batch - 1) * target.image + (results - 1) * target.channel;
        let corner = (grid[0] - 1) * target.row + (grid[1] - 1) * target.column;
        assert!(target.first + last + corner < out.len(), "the target is outside the output");
        assert!(filters.len() >= groups * outputs * inputs);
        let mut copy = None;
        let (source, lie) = self.lay(source, groups * inputs, self.window, &mut copy);
        let dense = target.column == 1 && (grid[0] == 1 || target.row == grid[1]);
        if dense && !self.merged {
            let to = Lie { channel: target.channel, image: target.image };
            let out = &mut out[target.first..];
            return self.products((source, lie), (filters, row, column), bias, (out, to));
        }
        let sums = scratch::<T>(batch * results * points);
        // SAFETY: a new tensor that nobody else has.
        let sums = unsafe { sums.as_mut_slice::<T>() };
        let from = self.lie(results);
        self.products((source, lie), (filters, row, column), bias, (sums, from));
        let out = Shared::new(out.as_mut_ptr());
        parallel_for(batch * results, GRAIN.div_ceil(points), |range| {
            for item in range {
                let (n, c) = (item / results, item % results);
                let mut from = n * from.image + c * from.channel;
                for i in 0..grid[0] {
                    let to = target.first + n * target.image + c * target.channel + i * target.row;
                    let line = &sums[from..from + grid[1]];
                    // SAFETY: inside the output, as asserted; planes are disjoint.
                    unsafe {
                        let to = out.get().add(to);
                        if target.column == 1 {
                            to.copy_from_nonoverlapping(line.as_ptr(), line.len());
                        } else {
                            for j in 0..line.len() {
                                *to.add(j * target.column) = line[j];
                            }
                        }
                    }
                    from += grid[1];
                }
            }
        });
    }

    /// For every result and source channel the sum over all points of `gradient` times source: the filters'
    /// gradient, `[groups * outputs, inputs]`.
    pub fn correlate_filters<T: Tiled + Element>(
        &self,
        source: &[T],
        gradient: &[T],
        out: &mut [T],
    ) {
        let Sizes { groups, inputs, outputs, grid, .. } = self.sizes;
        let results = groups * outputs;
        let (mut columns, mut rows) = (None, None);
        let (source, of_source) = self.lay(source, groups * inputs, self.window, &mut columns);
        let window = Window { source: grid, grid, step: [1, 1], taps: vec![[0, 0]] };
        let (gradient, of_gradient) = self.lay(gradient, results, &window, &mut rows);
        assert_eq!(out.len(), results * inputs);
        let (images, k) = self.images();
        for g in 0..groups {
            for n in 0..images {
                let a = &gradient[n * of_gradient.image + g * outputs * of_gradient.channel..];
                let b = &source[n * of_source.image + g * inputs * of_source.channel..];
                let c = &mut out[g * outputs * inputs..];
                let a = matrix(a, of_gradient.channel, 1);
                let b = matrix(b, 1, of_source.channel);
                let c = Matrix { ptr: c.as_mut_ptr(), row: inputs as isize, column: 1 };
                let beta = if n == 0 { T::ZERO } else { T::of(1.0) };
                // SAFETY: the lengths were asserted.
                unsafe {
                    Gemm { size: (outputs, inputs, k), alpha: T::of(1.0), a, b, beta, c }.run();
                }
            }
        }
    }

    fn lie(&self, channels: usize) -> Lie {
        if self.merged {
            Lie { channel: self.sizes.batch * self.points, image: self.points }
        } else {
            Lie { channel: self.points, image: channels * self.points }
        }
    }

    /// How many matrices there are, and their points.
    fn images(&self) -> (usize, usize) {
        if self.merged {
            (1, self.sizes.batch * self.points)
        } else {
            (self.sizes.batch, self.points)
        }
    }

    /// The points that the window reads, one behind another: the planes themselves, or a copy.
    fn lay<'s, T: Tiled + Element>(
        &self,
        planes: &'s [T],
        channels: usize,
        window: &Window,
        copy: &'s mut Option<Tensor>,
    ) -> (&'s [T], Lie) {
        let (lie, len) = (self.lie(channels), self.sizes.batch * channels * self.points);
        // Then the step is 1, or there is nowhere to go.
        let whole = window.grid == window.source;
        if whole && !self.merged {
            assert!(planes.len() >= len, "the planes are too few");
            return (planes, lie);
        }
        // SAFETY: a new tensor that nobody else has.
        let out = unsafe { copy.insert(scratch::<T>(len)).as_mut_slice::<T>() };
        let [height, width] = window.source;
        let [rows, columns] = window.grid;
        let parts = Parts::new(out);
        parallel_for(self.sizes.batch * channels, GRAIN.div_ceil(self.points), |range| {
            for item in range {
                let (n, c) = (item / channels, item % channels);
                let at = n * lie.image + c * lie.channel;
                // SAFETY: planes are disjoint.
                let out = unsafe { parts.slice(at..at + self.points) };
                let plane = &planes[item * height * width..][..height * width];
                if whole {
                    out.copy_from_slice(plane);
                    continue;
                }
                for i in 0..rows {
                    let line = &plane[i * window.step[0] * width..];
                    for j in 0..columns {
                        out[i * columns + j] = line[j * window.step[1]];
                    }
                }
            }
        });
        (out, lie)
    }

    /// The products, whose operands' lengths were checked.
    fn products<T: Tiled>(
        &self,
        (source, from): (&[T], Lie),
        (filters, row, column): (&[T], usize, usize),
        bias: Option<&[T]>,
        (out, to): (&mut [T], Lie),
    ) {
        let Sizes { groups, inputs, outputs, .. } = self.sizes;
        let (images, n) = self.images();
        if let Some(bias) = bias {
            for item in 0..images * groups * outputs {
                let (image, c) = (item / (groups * outputs), item % (groups * outputs));
                out[image * to.image + c * to.channel..][..n].fill(bias[c]);
            }
        }
        let items: Vec<[isize; 3]> = (0..images * groups)
            .map(|item| {
                let (image, g) = (item / groups, item % groups);
                let a = g * outputs * inputs;
                let b = image * from.image + g * inputs * from.channel;
                let c = image * to.image + g * outputs * to.channel;
                [a, b, c].map(|at| at as isize)
            })
            .collect();
        let beta = if bias.is_some() { T::of(1.0) } else { T::ZERO };
        let (a, b) = (matrix(filters, row, column), matrix(source, from.channel, 1));
        let c = Matrix { ptr: out.as_mut_ptr(), row: to.channel as isize, column: 1 };
        // SAFETY: the caller checked the lengths, and results are disjoint.
        unsafe {
            let size = (outputs, n, inputs);
            Gemm { size, alpha: T::of(1.0), a, b, beta, c }.run_batched(&items);
        }
    }
}

fn matrix<T>(numbers: &[T], row: usize, column: usize) -> Matrix<*const T> {
    Matrix { ptr: numbers.as_ptr(), row: row as isize, column: column as isize }
}
