//! How many numbers, or points, lie in each of several bins (`torch.histogram`, `torch.histogramdd`).

use crate::autograd::no_grad;
use crate::error::{Error, throw};
use crate::ops::SearchOptions;
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::tensor::{Dtype, Tensor};

/// The bins of [`Tensor::histogram`] along a dimension.
#[derive(Clone, Copy, Debug)]
pub enum Bins<'a> {
    /// So many of equal width, between the least and the greatest number.
    Count(usize),
    /// So many of equal width between two numbers; what lies outside is not counted.
    Between(usize, f64, f64),
    /// Between these edges, a rising list.
    Edges(&'a Tensor),
}

impl Tensor {
    /// How many elements lie in each bin, and the bins' edges (`torch.histogram`): a bin has its lower edge and not its
    /// upper one, but for the last, which has both. Counted are `weight`'s elements where it is given; with `density`
    /// the integral over the bins is 1.
    ///
    /// ```
    /// use torchrs::{Tensor, ops::Bins};
    /// let (counts, edges) = Tensor::from([1f64, 2., 1., 4.]).histogram(Bins::Between(3, 1.0, 4.0), None, false);
    /// assert_eq!(counts.to_vec::<f64>(), [2.0, 1.0, 1.0]);
    /// assert_eq!(edges.to_vec::<f64>(), [1.0, 2.0, 3.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] unless elements, edges and weights have one type, f32 or f64; [`Error::Argument`] for no
    /// bin, for edges that fall, and for limits that do not rise or are not finite;
    /// [`Error::Shape`] for weights of another shape.
    #[track_caller]
    pub fn histogram(
        &self,
        bins: Bins<'_>,
        weight: Option<&Tensor>,
        density: bool,
    ) -> (Tensor, Tensor) {
        if let Some(weight) = weight
            && weight.shape() != self.shape()
        {
            let (w, x) = (weight.shape(), self.shape());
            throw(Error::shape("histogram", format!("weights of shape {w:?} for shape {x:?}")));
        }
        let points = self.reshape([-1, 1]);
        let weight = weight.map(|weight| weight.reshape([-1]));
        let (counts, mut edges) = counted("histogram", &points, &[bins], weight.as_ref(), density);
        (counts, edges.remove(0))
    }

    /// [`Tensor::histogram`] of points: the rows of `[.., D]`, with bins for each of the D coordinates
    /// (`torch.histogramdd`). Weights have the shape `[..]`.
    ///
    /// ```
    /// use torchrs::{Tensor, ops::Bins};
    /// let points = Tensor::from([[0f64, 1.], [1., 0.], [2., 0.], [2., 2.]]);
    /// let (counts, edges) = points.histogramdd(&[Bins::Count(3), Bins::Count(2)], None, false);
    /// assert_eq!(counts.to_vec::<f64>(), [0.0, 1.0, 1.0, 0.0, 1.0, 1.0]);
    /// assert_eq!(edges[1].to_vec::<f64>(), [0.0, 1.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::histogram`], and throws [`Error::Argument`] unless bins are given for each coordinate.
    #[track_caller]
    pub fn histogramdd(
        &self,
        bins: &[Bins<'_>],
        weight: Option<&Tensor>,
        density: bool,
    ) -> (Tensor, Vec<Tensor>) {
        let op = "histogramdd";
        let Some((&width, rows)) = self.shape().split_last() else {
            throw(Error::shape(op, "takes points, at least [D], got a number"))
        };
        if bins.len() != width {
            let message = format!("for {} coordinates; the points have {width}", bins.len());
            throw(Error::argument(op, "bins", message));
        }
        if let Some(weight) = weight
            && weight.shape() != rows
        {
            let w = weight.shape();
            throw(Error::shape(op, format!("weights of shape {w:?} for points {rows:?}")));
        }
        let points = self.reshape([rows.iter().product::<usize>() as i64, width as i64]);
        let weight = weight.map(|weight| weight.reshape([-1]));
        counted(op, &points, bins, weight.as_ref(), density)
    }
}

/// The edges of a dimension's bins.
#[track_caller]
fn edges(op: &'static str, x: &Tensor, bins: Bins<'_>) -> Tensor {
    let (count, least, greatest) = match bins {
        Bins::Edges(edges) => {
            if edges.dim() != 1 || edges.numel() < 2 {
                let message =
                    format!("edges of shape {:?}; must be a list of two at least", edges.shape());
                throw(Error::argument(op, "bins", message));
            }
            if edges.dtype() != x.dtype() {
                let (e, x) = (edges.dtype(), x.dtype());
                throw(Error::dtype(
                    op,
                    format!("edges are {e} and elements {x}; must have one type"),
                ));
            }
            let edges = edges.detach().contiguous();
            let last = edges.numel() - 1;
            let rise = || edges.narrow(0, 1, last).ge(&edges.narrow(0, 0, last)).all();
            if !edges.device().is_meta() && rise().item() == 0.0 {
                throw(Error::argument(op, "bins", "edges that fall or are NaN; must rise"));
            }
            // The result is the caller's to write to; the edges given are not.
            return edges.clone_contiguous();
        }
        Bins::Count(count) if x.numel() == 0 => (count, 0.0, 1.0),
        Bins::Count(count) => (count, x.min().item(), x.max().item()),
        Bins::Between(count, least, greatest) => (count, least, greatest),
    };
    if count == 0 {
        throw(Error::argument(op, "bins", "0; must be at least 1"));
    }
    if !(least.is_finite() && greatest.is_finite() && least <= greatest) {
        let message = format!("{least} to {greatest}; must be finite and rise");
        throw(Error::argument(op, "range", message));
    }
    // Equal numbers get a bin around them.
    let (least, greatest) =
        if least == greatest { (least - 0.5, greatest + 0.5) } else { (least, greatest) };
    Tensor::linspace(least, greatest, count + 1, (x.dtype(), x.device()))
}

#[track_caller]
fn counted(
    op: &'static str,
    points: &Tensor,
    bins: &[Bins<'_>],
    weight: Option<&Tensor>,
    density: bool,
) -> (Tensor, Vec<Tensor>) {
    if !matches!(points.dtype(), Dtype::F32 | Dtype::F64) {
        throw(Error::dtype(op, format!("takes f32 and f64, got {}", points.dtype())));
    }
    if let Some(weight) = weight
        && weight.dtype() != points.dtype()
    {
        let (w, x) = (weight.dtype(), points.dtype());
        throw(Error::dtype(op, format!("weights are {w} and elements {x}; must have one type")));
    }
    no_grad(|| {
        let points = points.detach();
        let options = (points.dtype(), points.device());
        let mut all = Vec::new();
        // The number of a point's bin, and whether it lies in one.
        let mut place = Tensor::zeros([points.size(0)], (Dtype::I64, points.device()));
        let mut inside = Tensor::ones([points.size(0)], (Dtype::Bool, points.device()));
        let mut shape = Vec::new();
        for (d, &bins) in bins.iter().enumerate() {
            let x = points.select(1, d as i64).contiguous();
            let edges = edges(op, &x, bins);
            let count = edges.numel() - 1;
            let right = SearchOptions { right: true, ..Default::default() };
            // The last edge belongs to the last bin.
            let own = (edges.searchsorted(&x, right) - 1).clamp(0, count as i64 - 1);
            inside = inside & x.ge(&edges.select(0, 0)) & x.le(&edges.select(0, count as i64));
            place = place * count as i64 + own;
            shape.push(count);
            all.push(edges);
        }
        let weight = match weight {
            Some(weight) => weight.detach(),
            None => Tensor::ones([points.size(0)], options),
        };
        let weight = inside.where_(&weight, &weight.zeros_like());
        let cells: usize = shape.iter().product();
        let counts = Tensor::zeros([cells], options);
        counts.index_add_(0, &place, &weight);
        let counts = counts.view(shape.iter().map(|&n| n as i64).collect::<Vec<_>>());
        (if density { dense(&counts, &all) } else { counts }, all)
    })
}

/// Counts over their sum and the bins' sizes.
fn dense(counts: &Tensor, edges: &[Tensor]) -> Tensor {
    let mut density = counts / counts.sum();
    for (d, edges) in edges.iter().enumerate() {
        let count = edges.numel() - 1;
        let widths = edges.narrow(0, 1, count) - edges.narrow(0, 0, count);
        let mut shape = vec![1i64; counts.dim()];
        shape[d] = -1;
        density = density / widths.reshape(&shape);
    }
    density
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    use crate::ops::checks::samples::{Order, positive, values};
    let none = |sample: OpSample| sample.order(Order::None).no_half();
    vec![
        none(OpSample::new("histogram", [values([3, 5], 1)], |x| {
            x[0].histogram(Bins::Between(4, -1.5, 1.5), None, false).0
        })),
        none(OpSample::new(
            "histogram, weights, density",
            [values([12], 1), positive([12], 2)],
            |x| x[0].histogram(Bins::Between(3, -2.5, 2.5), Some(&x[1]), true).0,
        )),
        none(OpSample::new("histogram, edges", [values([12], 1), values([1], 2)], |x| {
            let edges = Tensor::cat(&[&x[1] - 1.125, x[1].clone(), &x[1] + 0.75], 0);
            x[0].histogram(Bins::Edges(&edges), None, false).0
        })),
        none(OpSample::new("histogramdd", [values([10, 2], 3), positive([10], 1)], |x| {
            let bins = [Bins::Between(2, -1.75, 2.25), Bins::Between(3, -2.0, 2.0)];
            x[0].histogramdd(&bins, Some(&x[1]), false).0
        })),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::catch;

    #[test]
    fn what_lies_outside_or_is_no_number_is_not_counted() {
        let x = Tensor::from([-1f64, 0., 0.5, 1., 1.5, f64::NAN]);
        let (counts, _) = x.histogram(Bins::Between(2, 0.0, 1.0), None, false);
        assert_eq!(counts.to_vec::<f64>(), [1.0, 2.0]);
        let edges = Tensor::from([0f64, 1., 4.]);
        let weights = Tensor::from([9f64, 1., 2., 3., 4., 9.]);
        let (counts, _) = x.histogram(Bins::Edges(&edges), Some(&weights), false);
        assert_eq!(counts.to_vec::<f64>(), [3.0, 7.0]);
        let (density, _) = x.histogram(Bins::Edges(&edges), Some(&weights), true);
        assert!(density.allclose(&Tensor::from([0.3, 0.7 / 3.0]), Default::default()));
    }

    #[test]
    fn bins_that_are_none_are_refused() {
        let x = Tensor::from([1f64, 2.]);
        let refused = |bins: Bins<'_>, what: &str| {
            let error = catch(|| x.histogram(bins, None, false)).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        };
        refused(Bins::Count(0), "bins");
        refused(Bins::Between(2, 1.0, 0.0), "range");
        refused(Bins::Between(2, 1.0, f64::INFINITY), "range");
        refused(Bins::Edges(&Tensor::from([1f64])), "edges");
        refused(Bins::Edges(&Tensor::from([0f64, 2., 1.])), "must rise");
        refused(Bins::Edges(&Tensor::from([0f64, f64::NAN])), "must rise");
        refused(Bins::Edges(&Tensor::from([1f32, 2.])), "one type");
        assert!(catch(|| x.histogramdd(&[Bins::Count(1)], None, false)).is_err());
        let integers = Tensor::from([1i64, 2]);
        assert!(catch(|| integers.histogram(Bins::Count(1), None, false)).is_err());
    }
}
