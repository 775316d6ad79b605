//! Slopes of sampled functions (`torch.gradient`): differences of neighbours, of second order inside and of first or
//! second order at the edges.
//!
//! ```text
//! inside, steps d and e before and behind:  -e/(d(d+e)) f[i-1] + (e-d)/(de) f[i] + d/(e(d+e)) f[i+1]
//! ```

use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::tensor::{Dtype, Tensor, default_dtype, normalize_dims};

/// How far apart the samples of [`Tensor::gradient`] are.
#[derive(Clone, Copy, Debug)]
pub enum Spacing<'a> {
    /// Equally, in every dimension.
    Every(f64),
    /// Equally, by a number for each dimension.
    Each(&'a [f64]),
    /// At these coordinates, a list for each dimension.
    At(&'a [Tensor]),
}

impl Default for Spacing<'_> {
    fn default() -> Self {
        Spacing::Every(1.0)
    }
}

/// Options of [`Tensor::gradient`].
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::{GradientOptions, Spacing};
/// let squares = Tensor::from([1f64, 4., 16.]);
/// let at = [Tensor::from([1f64, 2., 4.])];
/// let options = GradientOptions { spacing: Spacing::At(&at), edge_order: 2, ..Default::default() };
/// let slopes = Tensor::from([2f64, 4., 8.]);
/// assert!(squares.gradient(options)[0].allclose(&slopes, Default::default()));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct GradientOptions<'a> {
    /// How far apart the samples are.
    pub spacing: Spacing<'a>,
    /// Along which dimensions; all if none is named.
    pub dims: Option<&'a [i64]>,
    /// 1 or 2: up to which power the slopes at the edges are exact.
    pub edge_order: usize,
}

impl Default for GradientOptions<'_> {
    fn default() -> Self {
        GradientOptions { spacing: Spacing::default(), dims: None, edge_order: 1 }
    }
}

impl Tensor {
    /// The slopes along each dimension, one tensor for each (`torch.gradient`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let slopes = Tensor::from([1f64, 2., 4., 7.]).gradient(Default::default());
    /// assert_eq!(slopes[0].to_vec::<f64>(), [1.0, 1.5, 2.5, 3.0]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for a dimension that does not exist or is named twice, for another `edge_order` than 1
    /// and 2, and where the spacing is not for as many dimensions; [`Error::Shape`] for a dimension of fewer than
    /// `edge_order + 1` samples.
    #[track_caller]
    pub fn gradient(&self, options: GradientOptions<'_>) -> Vec<Tensor> {
        let op = "gradient";
        let GradientOptions { spacing, dims, edge_order } = options;
        if !(1..=2).contains(&edge_order) {
            throw(Error::argument(op, "edge_order", format!("{edge_order}; must be 1 or 2")));
        }
        let all: Vec<i64> = (0..self.dim() as i64).collect();
        let dims = normalize_dims(op, dims.unwrap_or(&all), self.dim());
        let given = match spacing {
            Spacing::Every(_) => dims.len(),
            Spacing::Each(list) => list.len(),
            Spacing::At(list) => list.len(),
        };
        if given != dims.len() {
            let message = format!("for {given} dimensions; must be for {}", dims.len());
            throw(Error::argument(op, "spacing", message));
        }
        for &dim in &dims {
            if self.shape().get(dim).is_none_or(|&size| size < edge_order + 1) {
                let (shape, least) = (self.shape(), edge_order + 1);
                let message =
                    format!("shape {shape:?}; dimension {dim} must have at least {least} samples");
                throw(Error::shape(op, message));
            }
        }
        let x = if self.dtype().is_differentiable() {
            self.clone()
        } else {
            self.to_dtype(default_dtype())
        };
        let slopes = |(i, &dim): (usize, &usize)| match spacing {
            Spacing::Every(step) => evenly(&x, dim as i64, step, edge_order),
            Spacing::Each(steps) => evenly(&x, dim as i64, steps[i], edge_order),
            Spacing::At(at) => unevenly(&x, dim as i64, &at[i], edge_order),
        };
        dims.iter().enumerate().map(slopes).collect()
    }
}

/// Parts of `x` along `dim`: `n` elements, from `first` on.
fn part(x: &Tensor, dim: i64, first: usize, n: usize) -> Tensor {
    x.narrow(dim, first as i64, n)
}

#[track_caller]
fn evenly(x: &Tensor, dim: i64, step: f64, edge_order: usize) -> Tensor {
    let n = x.size(dim);
    let at = |i: usize| part(x, dim, i, 1);
    let (first, last) = match edge_order {
        1 => (at(1) - at(0), at(n - 1) - at(n - 2)),
        _ => (
            at(0) * -1.5 + at(1) * 2.0 - at(2) * 0.5,
            at(n - 1) * 1.5 - at(n - 2) * 2.0 + at(n - 3) * 0.5,
        ),
    };
    let inside = (part(x, dim, 2, n - 2) - part(x, dim, 0, n - 2)) / (2.0 * step);
    Tensor::cat(&[first / step, inside, last / step], dim)
}

#[track_caller]
fn unevenly(x: &Tensor, dim: i64, at: &Tensor, edge_order: usize) -> Tensor {
    let n = x.size(dim);
    if at.shape() != [n] {
        let message = format!("coordinates of shape {:?} for {n} samples", at.shape());
        throw(Error::argument("gradient", "spacing", message));
    }
    let at = at.to_dtype(Dtype::F64).to_dtype(x.dtype());
    let steps = part(&at, 0, 1, n - 1) - part(&at, 0, 0, n - 1);
    // A list along `dim`.
    let mut shape = vec![1i64; x.dim()];
    shape[dim as usize] = -1;
    let along = |list: &Tensor| list.reshape(&shape);
    let sample = |i: usize| part(x, dim, i, 1);
    let step = |i: usize| along(&part(&steps, 0, i, 1));
    let (first, last) = match edge_order {
        1 => ((sample(1) - sample(0)) / step(0), (sample(n - 1) - sample(n - 2)) / step(n - 2)),
        _ => {
            let (d, e) = (step(0), step(1));
            let both = &d + &e;
            let first = sample(1) * (&both / (&d * &e))
                - sample(0) * ((&d * 2.0 + &e) / (&d * &both))
                - sample(2) * (&d / (&e * &both));
            let (d, e) = (step(n - 3), step(n - 2));
            let both = &d + &e;
            let last = sample(n - 3) * (&e / (&d * &both)) - sample(n - 2) * (&both / (&d * &e))
                + sample(n - 1) * ((&e * 2.0 + &d) / (&e * &both));
            (first, last)
        }
    };
    let (d, e) = (along(&part(&steps, 0, 0, n - 2)), along(&part(&steps, 0, 1, n - 2)));
    let both = &d + &e;
    let inside = part(x, dim, 1, n - 2) * ((&e - &d) / (&d * &e))
        - part(x, dim, 0, n - 2) * (&e / (&d * &both))
        + part(x, dim, 2, n - 2) * (&d / (&e * &both));
    Tensor::cat(&[first, inside, last], dim)
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    use crate::ops::checks::samples::{positive, values};
    vec![
        OpSample::new("gradient", [values([4, 3], 1)], |x| {
            Tensor::cat(&x[0].gradient(Default::default()), 0)
        })
        .slack(8.0),
        OpSample::new("gradient(edge_order=2)", [values([2, 5], 2)], |x| {
            let options =
                GradientOptions { spacing: Spacing::Every(0.5), dims: Some(&[-1]), edge_order: 2 };
            x[0].gradient(options).remove(0)
        })
        .slack(8.0),
        OpSample::new("gradient(spacing)", [values([2, 5], 3), positive([5], 1)], |x| {
            let at = x[1].cumsum(0);
            let options = GradientOptions {
                spacing: Spacing::At(std::slice::from_ref(&at)),
                dims: Some(&[1]),
                ..Default::default()
            };
            x[0].gradient(options).remove(0)
        })
        .slack(64.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::catch;

    #[test]
    fn slopes_of_squares_are_exact_where_the_order_is_two() {
        let at = Tensor::from([0f64, 1., 3., 4., 6.]);
        let squares = Tensor::stack(&[at.square(), at.square() * 2.0], 0);
        let lists = [at.clone()];
        let options =
            GradientOptions { spacing: Spacing::At(&lists), dims: Some(&[-1]), edge_order: 2 };
        let slopes = squares.gradient(options);
        let expected = Tensor::stack(&[&at * 2.0, &at * 4.0], 0);
        assert!(slopes[0].allclose(&expected, Default::default()));
        let edges = squares.gradient(GradientOptions { edge_order: 1, ..options });
        assert_eq!((edges[0].to_vec::<f64>()[0], edges[0].to_vec::<f64>()[4]), (1.0, 10.0));
    }

    #[test]
    fn what_is_for_other_dimensions_is_refused() {
        let x = Tensor::zeros([3, 2], Dtype::F64);
        let refused = |options: GradientOptions<'_>, what: &str| {
            let error = catch(|| x.gradient(options)).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        };
        let plain = GradientOptions::default();
        refused(GradientOptions { edge_order: 2, ..plain }, "at least 3");
        refused(GradientOptions { edge_order: 3, ..plain }, "edge_order");
        refused(GradientOptions { dims: Some(&[2]), ..plain }, "2");
        refused(GradientOptions { dims: Some(&[1, -1]), ..plain }, "dim");
        refused(GradientOptions { spacing: Spacing::Each(&[1.0]), ..plain }, "spacing");
        let lists = [Tensor::range(3), Tensor::range(3)];
        refused(GradientOptions { spacing: Spacing::At(&lists), ..plain }, "coordinates");
    }
}
