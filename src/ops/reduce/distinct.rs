//! Distinct elements and slices: sorted, or as they follow each other.

use crate::ops::{gpu, indexing::masked::places};
use crate::tensor::{Dtype, Tensor};

impl Tensor {
    /// The distinct elements in order, with for each element the place of its value among them and
    /// for each value how often it occurs (`torch.unique` with `return_inverse` and `return_counts`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let unique = Tensor::from([3i64, 1, 3]).unique();
    /// assert_eq!((unique.values.to_vec::<i64>(), unique.counts.to_vec::<i64>()), (vec![1, 3], vec![1, 2]));
    /// assert_eq!(unique.inverse.to_vec::<i64>(), [1, 0, 1]);
    /// ```
    #[track_caller]
    pub fn unique(&self) -> Unique {
        self.assert_has_values("unique");
        let (values, places) = self.detach().ravel().sort(0, false);
        let groups = values.unique_consecutive();
        if self.device().is_apart() {
            let inverse = back(&groups.inverse, &places).reshape_to(self.shape());
            return Unique { inverse, ..groups };
        }
        let mut inverse = vec![0; self.numel()];
        for (place, group) in places.to_vec::<i64>().into_iter().zip(groups.inverse.to_vec::<i64>())
        {
            inverse[place as usize] = group;
        }
        Unique { inverse: Tensor::from_slice(&inverse, self.shape()), ..groups }
    }

    /// The distinct slices along `dim` in lexicographic order (`torch.unique` with `dim`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let unique = Tensor::from([[3i64, 4], [1, 2], [3, 4]]).unique_dim(0);
    /// assert_eq!(unique.values.to_vec::<i64>(), [1, 2, 3, 4]);
    /// assert_eq!(unique.counts.to_vec::<i64>(), [1, 2]);
    /// ```
    ///
    /// # Panics
    /// Throws when the dimension is out of range.
    #[track_caller]
    pub fn unique_dim(&self, dim: i64) -> Unique {
        self.assert_has_values("unique");
        if self.device().is_apart() {
            return unique_slices_on_gpu(&self.detach(), dim);
        }
        // Numbers in the elements' order stand for them.
        let ranks = self.unique().inverse;
        let rows = ranks.movedim(dim, 0).to_vec::<i64>();
        let n = self.size(dim);
        let width = rows.len() / n.max(1);
        let row = |i: &i64| &rows[*i as usize * width..(*i as usize + 1) * width];
        let mut order: Vec<i64> = (0..n as i64).collect();
        order.sort_by(|a, b| row(a).cmp(row(b)));
        let order_of = Tensor::from(order.clone());
        let groups = self.detach().index_select(dim, &order_of).unique_consecutive_dim(dim);
        let mut inverse = vec![0; n];
        for (place, group) in order.into_iter().zip(groups.inverse.to_vec::<i64>()) {
            inverse[place as usize] = group;
        }
        Unique { inverse: Tensor::from(inverse), ..groups }
    }

    /// The elements, in row-major order, without those equal to the one before
    /// (`torch.unique_consecutive`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let unique = Tensor::from([3i64, 3, 1, 3]).unique_consecutive();
    /// assert_eq!(unique.values.to_vec::<i64>(), [3, 1, 3]);
    /// assert_eq!(unique.counts.to_vec::<i64>(), [2, 1, 1]);
    /// ```
    #[track_caller]
    pub fn unique_consecutive(&self) -> Unique {
        let groups = self.ravel().unique_consecutive_dim(0);
        Unique { inverse: groups.inverse.reshape_to(self.shape()), ..groups }
    }

    /// The slices along `dim` without those equal to the one before (`torch.unique_consecutive` with
    /// `dim`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let unique = Tensor::from([[3i64, 3, 1], [4, 4, 4]]).unique_consecutive_dim(1);
    /// assert_eq!(unique.values.to_vec::<i64>(), [3, 1, 4, 4]);
    /// assert_eq!(unique.inverse.to_vec::<i64>(), [0, 0, 1]);
    /// ```
    ///
    /// # Panics
    /// Throws when the dimension is out of range.
    #[track_caller]
    pub fn unique_consecutive_dim(&self, dim: i64) -> Unique {
        self.assert_has_values("unique_consecutive");
        let x = self.detach();
        let n = x.size(dim);
        let differs = (n > 1).then(|| {
            let differs = x.narrow(dim, 1, n - 1).ne(&x.narrow(dim, 0, n - 1));
            differs.movedim(dim, 0).reshape([n as i64 - 1, -1]).any_dim(&[1], false)
        });
        if gpu::of("unique", &[&x]).is_some() {
            return groups_on_gpu(&x, dim, &starts_of(&x, n, differs));
        }
        let mut starts = vec![true; n];
        if let Some(differs) = differs {
            starts[1..].copy_from_slice(&differs.to_vec::<bool>());
        }
        let (mut firsts, mut counts, mut inverse) = (Vec::new(), Vec::<i64>::new(), Vec::new());
        for (i, starts) in starts.into_iter().enumerate() {
            if starts {
                firsts.push(i as i64);
                counts.push(0);
            }
            *counts.last_mut().expect("the first one starts a group") += 1;
            inverse.push(counts.len() as i64 - 1);
        }
        Unique {
            values: x.index_select(dim, &Tensor::from(firsts)),
            inverse: Tensor::from(inverse),
            counts: Tensor::from(counts),
        }
    }
}

/// What [`Tensor::unique`] gives.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::Unique;
/// let x = Tensor::from([5i64, 7, 5]);
/// let Unique { values, inverse, counts } = x.unique();
/// assert_eq!((values.to_vec::<i64>(), counts.to_vec::<i64>()), (vec![5, 7], vec![2, 1]));
/// assert!(values.index_select(0, &inverse).equal(&x));
/// ```
#[derive(Clone, Debug)]
pub struct Unique {
    /// The distinct elements or slices.
    pub values: Tensor,
    /// For each element or slice of the input, its place in `values`.
    pub inverse: Tensor,
    /// How often each of `values` occurs.
    pub counts: Tensor,
}

/// Whether each of `n` entries starts a group, given which of those but the first differ from the one before.
fn starts_of(x: &Tensor, n: usize, differs: Option<Tensor>) -> Tensor {
    let first = Tensor::ones([n.min(1)], (Dtype::Bool, x.device()));
    match differs {
        Some(differs) => Tensor::cat(&[first, differs], 0),
        None => first,
    }
}

/// The groups of entries along `dim`, given where they start. Waits once, for how many there are.
#[track_caller]
fn groups_on_gpu(x: &Tensor, dim: i64, starts: &Tensor) -> Unique {
    let firsts = places(starts);
    let end = Tensor::full([1], starts.numel() as i64, (Dtype::I64, x.device()));
    let bounds = Tensor::cat(&[&firsts, &end], 0);
    Unique {
        values: x.index_select(dim, &firsts),
        inverse: starts.to_dtype(Dtype::I64).cumsum(0) - 1i64,
        counts: bounds.narrow(0, 1, firsts.numel()) - &firsts,
    }
}

/// The numbers at the places where they came from: `places` is an order of them.
fn back(numbers: &Tensor, places: &Tensor) -> Tensor {
    numbers.zeros_like().scatter(0, places, numbers)
}

/// The place of each element of a list among the distinct ones.
fn ranks(list: &Tensor) -> Tensor {
    let n = list.numel();
    let (values, places) = list.sort(0, false);
    let differs = (n > 1).then(|| values.narrow(0, 1, n - 1).ne(&values.narrow(0, 0, n - 1)));
    let starts = starts_of(list, n, differs);
    back(&(starts.to_dtype(Dtype::I64).cumsum(0) - 1i64), &places)
}

/// Distinct slices in lexicographic order. Elements become ranks, and of neighbours one rank of both is made, until
/// a slice is one number.
#[track_caller]
fn unique_slices_on_gpu(x: &Tensor, dim: i64) -> Unique {
    let n = x.size(dim);
    let mut width = x.numel() / n.max(1);
    let mut rows = Tensor::zeros([n, 1], (Dtype::I64, x.device()));
    if x.numel() > 0 {
        rows = ranks(&x.movedim(dim, 0).ravel()).reshape_to(&[n, width]);
    }
    while width > 1 {
        let (pairs, distinct) = (width / 2, (n * width) as i64);
        let both = rows.narrow(1, 0, 2 * pairs).reshape_to(&[n, pairs, 2]);
        let mut joined = both.select(2, 0) * distinct + both.select(2, 1);
        if width > 2 * pairs {
            // Ranks of a column are compared with each other only.
            joined = Tensor::cat(&[joined, rows.narrow(1, width - 1, 1)], 1);
        }
        width = width.div_ceil(2);
        rows = ranks(&joined.ravel()).reshape_to(&[n, width]);
    }
    let (sorted, order) = rows.ravel().sort(0, false);
    let differs = (n > 1).then(|| sorted.narrow(0, 1, n - 1).ne(&sorted.narrow(0, 0, n - 1)));
    let starts = starts_of(x, n, differs);
    let groups = groups_on_gpu(&x.index_select(dim, &order), dim, &starts);
    Unique { inverse: back(&groups.inverse, &order), ..groups }
}
