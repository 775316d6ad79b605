//! Joining and repeating, in terms of `cat` and views.

use std::borrow::Borrow;

use crate::error::{Error, throw};
use crate::tensor::{Dtype, Shape, Tensor};

/// Order of the dimensions that [`Tensor::meshgrid`] gives.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::Indexing;
/// let lists = [Tensor::from([1i64, 2, 3]), Tensor::from([4i64, 5])];
/// assert_eq!(Tensor::meshgrid(&lists, Indexing::Ij)[0].shape(), &[3, 2]);
/// assert_eq!(Tensor::meshgrid(&lists, Indexing::Xy)[0].shape(), &[2, 3]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Indexing {
    /// The first list along dimension 0.
    #[default]
    Ij,
    /// The first list along dimension 1, the second along 0.
    Xy,
}

/// Each tensor through `f`; throws for none.
#[track_caller]
fn each(op: &str, tensors: &[impl Borrow<Tensor>], f: fn(&Tensor) -> Tensor) -> Vec<Tensor> {
    if tensors.is_empty() {
        throw(Error::argument(op, "tensors", "no tensor is given"));
    }
    tensors.iter().map(|t| f(t.borrow())).collect()
}

impl Tensor {
    /// Side by side: along dimension 1, lists along 0 (`torch.hstack`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64], [2]]);
    /// assert_eq!(Tensor::hstack(&[&x, &x]).to_vec::<i64>(), [1, 1, 2, 2]);
    /// ```
    ///
    /// # Panics
    /// As [`cat`](Self::cat).
    #[track_caller]
    pub fn hstack(tensors: &[impl Borrow<Tensor>]) -> Tensor {
        let parts = each("hstack", tensors, Tensor::atleast_1d);
        Tensor::cat(&parts, if parts[0].dim() == 1 { 0 } else { 1 })
    }

    /// On top of each other: along dimension 0, lists as rows (`torch.vstack`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (x, y) = (Tensor::from([1i64, 2]), Tensor::from([[3i64, 4]]));
    /// let both = Tensor::vstack(&[&x, &y]);
    /// assert_eq!((both.shape(), both.to_vec::<i64>()), (&[2, 2][..], vec![1, 2, 3, 4]));
    /// ```
    ///
    /// # Panics
    /// As [`cat`](Self::cat).
    #[track_caller]
    pub fn vstack(tensors: &[impl Borrow<Tensor>]) -> Tensor {
        Tensor::cat(&each("vstack", tensors, Tensor::atleast_2d), 0)
    }

    /// Behind each other: along dimension 2 (`torch.dstack`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (x, y) = (Tensor::from([1i64, 2]), Tensor::from([3i64, 4]));
    /// let both = Tensor::dstack(&[&x, &y]);
    /// assert_eq!((both.shape(), both.to_vec::<i64>()), (&[1, 2, 2][..], vec![1, 3, 2, 4]));
    /// ```
    ///
    /// # Panics
    /// As [`cat`](Self::cat).
    #[track_caller]
    pub fn dstack(tensors: &[impl Borrow<Tensor>]) -> Tensor {
        Tensor::cat(&each("dstack", tensors, Tensor::atleast_3d), 2)
    }

    /// Side by side, lists as columns (`torch.column_stack`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (x, y) = (Tensor::from([1i64, 2]), Tensor::from([3i64, 4]));
    /// let both = Tensor::column_stack(&[&x, &y]);
    /// assert_eq!((both.shape(), both.to_vec::<i64>()), (&[2, 2][..], vec![1, 3, 2, 4]));
    /// ```
    ///
    /// # Panics
    /// As [`cat`](Self::cat).
    #[track_caller]
    pub fn column_stack(tensors: &[impl Borrow<Tensor>]) -> Tensor {
        let column = |t: &Tensor| if t.dim() < 2 { t.reshape([-1, 1]) } else { t.clone() };
        Tensor::cat(&each("column_stack", tensors, column), 1)
    }

    /// Copies along each dimension (`torch.tile`): [`repeat`](Self::repeat), where missing entries of
    /// `repeats` are 1.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([[1i64], [2]]).tile(&[2]).to_vec::<i64>(), [1, 1, 2, 2]);
    /// ```
    #[track_caller]
    pub fn tile(&self, repeats: &[usize]) -> Tensor {
        let mut all: Shape = Shape::from_elem(1, self.dim().saturating_sub(repeats.len()));
        all.extend_from_slice(repeats);
        self.repeat(&all)
    }

    /// Entry `i` of dimension `dim` `repeats[i]` times (`torch.repeat_interleave` with a tensor); without
    /// a dimension, of the tensor as a list.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([7i64, 8, 9]);
    /// assert_eq!(x.repeat_interleave_each(&Tensor::from([2i64, 0, 1]), 0).to_vec::<i64>(), [7, 7, 9]);
    /// ```
    ///
    /// # Panics
    /// Throws when `repeats` is not a list of as many integers as the dimension has entries (or of
    /// one, for all), or one is negative.
    #[track_caller]
    pub fn repeat_interleave_each(&self, repeats: &Tensor, dim: impl Into<Option<i64>>) -> Tensor {
        let Some(dim) = dim.into() else { return self.ravel().repeat_interleave_each(repeats, 0) };
        repeats.assert_has_values("repeat_interleave");
        let n = self.size(dim);
        if self.device().is_apart() && n > 0 && repeats.dtype().is_integral() {
            return repeated_on_gpu(self, &repeats.detach().expand(&[n]), dim);
        }
        let counts = repeats.expand(&[n]).to_vec::<i64>();
        if !repeats.dtype().is_integral() || counts.iter().any(|&c| c < 0) {
            throw(Error::argument(
                "repeat_interleave",
                "repeats",
                format!("{counts:?} of {}; integers of at least 0 are needed", repeats.dtype()),
            ));
        }
        let places = counts.iter().enumerate();
        let places: Vec<i64> =
            places.flat_map(|(i, &c)| std::iter::repeat_n(i as i64, c as usize)).collect();
        self.index_select(dim, &Tensor::from(places).to_device(self.device()))
    }

    /// The order reversed along dimension 1 (`torch.fliplr`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([[1i64, 2], [3, 4]]).fliplr().to_vec::<i64>(), [2, 1, 4, 3]);
    /// ```
    ///
    /// # Panics
    /// Throws for fewer than two dimensions.
    #[track_caller]
    pub fn fliplr(&self) -> Tensor {
        self.flip(&[1])
    }

    /// The order reversed along dimension 0 (`torch.flipud`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([[1i64, 2], [3, 4]]).flipud().to_vec::<i64>(), [3, 4, 1, 2]);
    /// ```
    ///
    /// # Panics
    /// Throws for a 0-dim tensor.
    #[track_caller]
    pub fn flipud(&self) -> Tensor {
        if self.dim() == 0 {
            throw(Error::shape("flipud", "takes one dimension at least, got a 0-dim tensor"));
        }
        self.flip(&[0])
    }

    /// Turned `k` times by a quarter in the plane of `dims`, from the first of them to the second (`torch.rot90`); a
    /// negative `k` turns the other way.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.rot90(1, [0, 1]).to_vec::<i64>(), [2, 4, 1, 3]);
    /// assert_eq!(x.rot90(-1, [0, 1]).to_vec::<i64>(), [3, 1, 4, 2]);
    /// ```
    ///
    /// # Panics
    /// Throws for fewer than two dimensions, and when `dims` are out of range or the same.
    #[track_caller]
    pub fn rot90(&self, k: i64, dims: [i64; 2]) -> Tensor {
        if self.dim() < 2 {
            let message = format!("takes two dimensions at least, got shape {:?}", self.shape());
            throw(Error::shape("rot90", message));
        }
        let [from, to] = dims.map(|dim| self.normalize_dim("rot90", dim) as i64);
        if from == to {
            throw(Error::argument("rot90", "dims", format!("{dims:?} name one dimension twice")));
        }
        match k.rem_euclid(4) {
            0 => self.clone_contiguous(),
            1 => self.flip(&[to]).transpose(from, to),
            2 => self.flip(&[from, to]),
            _ => self.flip(&[from]).transpose(from, to),
        }
    }

    /// Coordinates of a grid: for each list (or number) a tensor with a dimension per list, in which it varies
    /// along its own (`torch.meshgrid`). Views.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::ops::Indexing;
    /// let lists = [Tensor::from([1i64, 2]), Tensor::from([3i64, 4])];
    /// let grid = Tensor::meshgrid(&lists, Indexing::Ij);
    /// assert_eq!(grid[0].to_vec::<i64>(), [1, 1, 2, 2]);
    /// assert_eq!(grid[1].to_vec::<i64>(), [3, 4, 3, 4]);
    /// ```
    ///
    /// # Panics
    /// Throws for tensors of more than one dimension, or of different types.
    #[track_caller]
    pub fn meshgrid(tensors: &[impl Borrow<Tensor>], indexing: Indexing) -> Vec<Tensor> {
        let lists = each("meshgrid", tensors, Tensor::atleast_1d);
        if let Some(bad) = lists.iter().find(|t| t.dim() != 1 || t.dtype() != lists[0].dtype()) {
            throw(Error::shape(
                "meshgrid",
                format!(
                    "takes lists of {}, got {} {:?}",
                    lists[0].dtype(),
                    bad.dtype(),
                    bad.shape()
                ),
            ));
        }
        let sizes: Shape = lists.iter().map(Tensor::numel).collect();
        let grid = |(d, list): (usize, &Tensor)| {
            let mut own = Shape::from_elem(1, lists.len());
            own[d] = sizes[d];
            let grid = list.reshape_to(&own).expand(&sizes);
            let swap = indexing == Indexing::Xy && lists.len() > 1;
            if swap { grid.transpose(0, 1) } else { grid }
        };
        lists.iter().enumerate().map(grid).collect()
    }

    /// All ways to take one element of each list, a row each (`torch.cartesian_prod`); of one list,
    /// itself.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let lists = [Tensor::from([1i64, 2]), Tensor::from([3i64, 4])];
    /// assert_eq!(Tensor::cartesian_prod(&lists).to_vec::<i64>(), [1, 3, 1, 4, 2, 3, 2, 4]);
    /// ```
    ///
    /// # Panics
    /// As [`meshgrid`](Self::meshgrid).
    #[track_caller]
    pub fn cartesian_prod(lists: &[impl Borrow<Tensor>]) -> Tensor {
        if let [list] = lists {
            return list.borrow().clone();
        }
        let grids = Tensor::meshgrid(lists, Indexing::Ij);
        let columns: Vec<Tensor> = grids.iter().map(Tensor::ravel).collect();
        Tensor::stack(&columns, 1)
    }

    /// All ways to take `r` elements of this list in its order, a row each (`torch.combinations`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, 2, 3]);
    /// assert_eq!(x.combinations(2, false).to_vec::<i64>(), [1, 2, 1, 3, 2, 3]);
    /// assert_eq!(x.combinations(2, true).shape(), &[6, 2]);
    /// ```
    ///
    /// # Panics
    /// Throws when this is not a list.
    #[track_caller]
    pub fn combinations(&self, r: usize, with_replacement: bool) -> Tensor {
        if self.dim() != 1 {
            throw(Error::shape("combinations", format!("takes a list, got {:?}", self.shape())));
        }
        let n = self.numel();
        let (mut rows, mut row) = (Vec::new(), Vec::with_capacity(r));
        choose(n as i64, 0, r, !with_replacement as i64, &mut row, &mut rows);
        let places = Tensor::from(rows).to_device(self.device());
        if r == 0 {
            return self.index_select(0, &places);
        }
        let width = r as i64;
        self.index_select(0, &places).reshape([places.numel() as i64 / width, width])
    }
}

/// Appends to `rows` all ways to complete `row` to `r` entries from `start` to below `n`, each at
/// least `apart` above the one before.
fn choose(n: i64, start: i64, r: usize, apart: i64, row: &mut Vec<i64>, rows: &mut Vec<i64>) {
    if row.len() == r {
        rows.extend_from_slice(row);
        return;
    }
    for i in start..n {
        row.push(i);
        choose(n, i + apart, r, apart, row, rows);
        row.pop();
    }
}

/// A conversion by the name of its type.
macro_rules! conversions {
    ($($name:ident $dtype:ident;)*) => {
        impl Tensor {$(
            #[doc = concat!("Converted to ", stringify!($dtype), " (`torch.Tensor.", stringify!($name), "`): [`to_dtype`](Self::to_dtype).")]
            ///
            /// ```
            /// use torchrs::{Dtype, Tensor};
            #[doc = concat!("let x = Tensor::from([0f64, 1.]).", stringify!($name), "();")]
            #[doc = concat!("assert_eq!((x.dtype(), x.sum().item()), (Dtype::", stringify!($dtype), ", 1.0));")]
            /// ```
            #[track_caller]
            pub fn $name(&self) -> Tensor {
                self.to_dtype(Dtype::$dtype)
            }
        )*}
    };
}
conversions! {
    double F64; float F32; half F16; bfloat16 BF16; long I64; int I32; short I16; char I8; byte U8;
    bool Bool;
}

/// Entry `i` of dimension `dim` `counts[i]` times. Waits once, for how many there are in all.
#[track_caller]
fn repeated_on_gpu(x: &Tensor, counts: &Tensor, dim: i64) -> Tensor {
    let ends = counts.to_dtype(Dtype::I64).cumsum(0);
    let least = counts.min().to_dtype(Dtype::I64);
    let facts = Tensor::stack(&[ends.select(0, -1), least], 0).to_vec::<i64>();
    if facts[1] < 0 {
        let message = format!("{}; integers of at least 0 are needed", facts[1]);
        throw(Error::argument("repeat_interleave", "repeats", message));
    }
    let all = Tensor::arange(0, facts[0], 1, (Dtype::I64, x.device()));
    x.index_select(dim, &ends.searchsorted(&all, true))
}
