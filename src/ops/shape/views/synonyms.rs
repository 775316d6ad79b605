//! Views in terms of others: PyTorch's further names, and pieces given by number or by place.

use smallvec::SmallVec;

use crate::error::{Error, throw};
use crate::tensor::{Dtype, Shape, Tensor, broadcast_shapes, normalize_dims};

impl Tensor {
    /// [`expand`](Self::expand) under PyTorch's other name (`torch.broadcast_to`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([1i64, 2]).broadcast_to(&[2, 2]).to_vec::<i64>(), [1, 2, 1, 2]);
    /// ```
    #[track_caller]
    pub fn broadcast_to(&self, shape: &[usize]) -> Tensor {
        self.expand(shape)
    }

    /// The tensors, all expanded to the shape that they broadcast to (`torch.broadcast_tensors`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let both = Tensor::broadcast_tensors(&[Tensor::from([[1i64], [2]]), Tensor::from([3i64, 4])]);
    /// assert_eq!((both[0].to_vec::<i64>(), both[1].to_vec::<i64>()), (vec![1, 1, 2, 2], vec![3, 4, 3, 4]));
    /// ```
    ///
    /// # Panics
    /// Throws when they do not broadcast.
    #[track_caller]
    pub fn broadcast_tensors(tensors: &[Tensor]) -> Vec<Tensor> {
        let mut shape = Shape::new();
        for t in tensors {
            shape = broadcast_shapes(&shape, t.shape()).unwrap_or_else(|_| {
                let shapes: Vec<&[usize]> = tensors.iter().map(Tensor::shape).collect();
                throw(Error::shape("broadcast_tensors", format!("{shapes:?} do not broadcast")))
            });
        }
        tensors.iter().map(|t| t.expand(&shape)).collect()
    }

    /// [`view`](Self::view) in `other`'s shape (`torch.Tensor.view_as`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::range(4).view_as(&Tensor::from([[7i64, 7], [7, 7]])).shape(), &[2, 2]);
    /// ```
    #[track_caller]
    pub fn view_as(&self, other: &Tensor) -> Tensor {
        let shape: SmallVec<[i64; 5]> = other.shape().iter().map(|&n| n as i64).collect();
        self.view(&shape)
    }

    /// All elements as a list (`torch.ravel`): a view of a contiguous tensor, else a copy.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.t().ravel().to_vec::<i64>(), [1, 3, 2, 4]);
    /// assert_eq!(x.ravel().data_ptr(), x.data_ptr());
    /// ```
    #[track_caller]
    pub fn ravel(&self) -> Tensor {
        self.contiguous().reshape_to(&[self.numel()])
    }

    /// Matrices (the last two dimensions) transposed (`torch.Tensor.mT`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::range(6).view([1, 2, 3]).mt();
    /// assert_eq!((x.shape(), x.to_vec::<i64>()), (&[1, 3, 2][..], vec![0, 3, 1, 4, 2, 5]));
    /// ```
    ///
    /// # Panics
    /// Throws for fewer than two dimensions.
    #[track_caller]
    pub fn mt(&self) -> Tensor {
        if self.dim() < 2 {
            throw(Error::shape("mT", format!("takes matrices, got shape {:?}", self.shape())));
        }
        self.transpose(-2, -1)
    }

    /// All dimensions in the reverse order (`torch.Tensor.T`); of a matrix, [`t`](Self::t).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::range(6).view([1, 2, 3]).reversed_dims().shape(), &[3, 2, 1]);
    /// ```
    pub fn reversed_dims(&self) -> Tensor {
        let order: SmallVec<[i64; 5]> = (0..self.dim() as i64).rev().collect();
        self.permute(&order)
    }

    /// [`expand`](Self::expand), where -1 keeps the size of a dimension (`torch.Tensor.expand`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// assert_eq!(Tensor::zeros([3, 1], Dtype::F32).expand_sizes(&[2, -1, 4]).shape(), &[2, 3, 4]);
    /// ```
    ///
    /// # Panics
    /// As [`expand`](Self::expand), and for -1 in a new dimension and smaller numbers.
    #[track_caller]
    pub fn expand_sizes(&self, sizes: &[i64]) -> Tensor {
        let missing = sizes.len().saturating_sub(self.dim());
        let size = |(d, &size): (usize, &i64)| match usize::try_from(size) {
            Ok(size) => size,
            Err(_) if size == -1 && d >= missing => self.shape()[d - missing],
            Err(_) => throw(Error::argument(
                "expand",
                "sizes",
                format!(
                    "{sizes:?} for shape {:?}; only -1, in a dimension that is there, keeps a size",
                    self.shape()
                ),
            )),
        };
        let known: Shape = sizes.iter().enumerate().map(size).collect();
        self.expand(&known)
    }

    /// [`transpose`](Self::transpose) under NumPy's name (`torch.swapaxes`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::range(6).view([1, 2, 3]).swapaxes(0, 2).shape(), &[3, 2, 1]);
    /// ```
    #[track_caller]
    pub fn swapaxes(&self, a: i64, b: i64) -> Tensor {
        self.transpose(a, b)
    }

    /// [`transpose`](Self::transpose) under its other name (`torch.swapdims`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::range(6).view([1, 2, 3]).swapdims(0, 1).shape(), &[2, 1, 3]);
    /// ```
    #[track_caller]
    pub fn swapdims(&self, a: i64, b: i64) -> Tensor {
        self.transpose(a, b)
    }

    /// [`movedim`](Self::movedim) under NumPy's name (`torch.moveaxis`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::range(6).view([1, 2, 3]).moveaxis(0, 2).shape(), &[2, 3, 1]);
    /// ```
    #[track_caller]
    pub fn moveaxis(&self, from: i64, to: i64) -> Tensor {
        self.movedim(from, to)
    }

    /// Dimensions `from` moved to places `to`, the others in order (`torch.movedim` with lists).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::range(6).view([1, 2, 3]).movedims(&[0, 1], &[2, 0]).shape(), &[2, 3, 1]);
    /// ```
    ///
    /// # Panics
    /// Throws when the lists differ in length, or a dimension is out of range or named twice.
    #[track_caller]
    pub fn movedims(&self, from: &[i64], to: &[i64]) -> Tensor {
        if from.len() != to.len() {
            throw(Error::argument("movedim", "to", format!("{to:?} for dimensions {from:?}")));
        }
        let from = normalize_dims("movedim", from, self.dim());
        let to = normalize_dims("movedim", to, self.dim());
        let mut others = (0..self.dim()).filter(|d| !from.contains(d));
        let source = |place| match to.iter().position(|&t| t == place) {
            Some(i) => from[i],
            None => others.next().expect("as many places as dimensions"),
        };
        let order: SmallVec<[i64; 5]> = (0..self.dim()).map(source).map(|d| d as i64).collect();
        self.permute(&order)
    }

    /// At least one dimension (`torch.atleast_1d`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::scalar(7).atleast_1d().shape(), &[1]);
    /// ```
    pub fn atleast_1d(&self) -> Tensor {
        if self.dim() == 0 { self.reshape_to(&[1]) } else { self.clone() }
    }

    /// At least two dimensions, added in front (`torch.atleast_2d`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([7i64, 8]).atleast_2d().shape(), &[1, 2]);
    /// ```
    pub fn atleast_2d(&self) -> Tensor {
        match self.dim() {
            0 => self.reshape_to(&[1, 1]),
            1 => self.unsqueeze(0),
            _ => self.clone(),
        }
    }

    /// At least three dimensions: a list becomes `[1, n, 1]`, a matrix gets a last one
    /// (`torch.atleast_3d`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([7i64, 8]).atleast_3d().shape(), &[1, 2, 1]);
    /// assert_eq!(Tensor::from([[7i64, 8]]).atleast_3d().shape(), &[1, 2, 1]);
    /// ```
    pub fn atleast_3d(&self) -> Tensor {
        match self.dim() {
            0 => self.reshape_to(&[1, 1, 1]),
            1 => self.unsqueeze(0).unsqueeze(-1),
            2 => self.unsqueeze(-1),
            _ => self.clone(),
        }
    }

    /// `sections` pieces along `dim`, the first ones longer by one where it does not divide
    /// (`torch.tensor_split`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let pieces = Tensor::range(5).tensor_split(3, 0);
    /// assert_eq!(pieces[0].to_vec::<i64>(), [0, 1]);
    /// assert_eq!(pieces[2].to_vec::<i64>(), [4]);
    /// ```
    ///
    /// # Panics
    /// Throws when `sections` is 0 or the dimension is out of range.
    #[track_caller]
    pub fn tensor_split(&self, sections: usize, dim: i64) -> Vec<Tensor> {
        if sections == 0 {
            throw(Error::argument("tensor_split", "sections", "must be at least 1"));
        }
        let n = self.size_for("tensor_split", dim);
        let longer = n % sections;
        let sizes: Vec<usize> =
            (0..sections).map(|i| n / sections + usize::from(i < longer)).collect();
        self.pieces("tensor_split", &sizes, dim)
    }

    /// The pieces between the places `indices` along `dim`, which may be negative (from the end) and
    /// are clamped (`torch.tensor_split` with a list).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let pieces = Tensor::range(5).tensor_split_at(&[1, -1], 0);
    /// assert_eq!(pieces[1].to_vec::<i64>(), [1, 2, 3]);
    /// assert_eq!(pieces[2].to_vec::<i64>(), [4]);
    /// ```
    ///
    /// # Panics
    /// Throws when the dimension is out of range.
    #[track_caller]
    pub fn tensor_split_at(&self, indices: &[i64], dim: i64) -> Vec<Tensor> {
        let n = self.size_for("tensor_split", dim) as i64;
        let starts = std::iter::once(0).chain(indices.iter().copied());
        let ends = indices.iter().copied().chain([n]);
        starts.zip(ends).map(|(start, end)| self.slice(dim, start, end, 1)).collect()
    }

    /// The pieces that a tensor of integers on the CPU asks for: a number of sections if it is 0-dim,
    /// places if it is a list (`torch.tensor_split` with a tensor).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let pieces = Tensor::range(5).tensor_split_by(&Tensor::from([2i64]), 0);
    /// assert_eq!(pieces[1].to_vec::<i64>(), [2, 3, 4]);
    /// assert_eq!(Tensor::range(5).tensor_split_by(&Tensor::scalar(2), 0).len(), 2);
    /// ```
    ///
    /// # Panics
    /// As the other two, and for more dimensions or other types than i64.
    #[track_caller]
    pub fn tensor_split_by(&self, indices_or_sections: &Tensor, dim: i64) -> Vec<Tensor> {
        let by = indices_or_sections;
        by.assert_has_values("tensor_split");
        match (by.dtype(), by.dim()) {
            (Dtype::I64, 1) => self.tensor_split_at(&by.to_vec::<i64>(), dim),
            (Dtype::I64, 0) => self.tensor_split(by.item_i64().max(0) as usize, dim),
            _ => throw(Error::argument(
                "tensor_split",
                "indices_or_sections",
                format!("{} {:?}; an i64 number or list is needed", by.dtype(), by.shape()),
            )),
        }
    }
}

/// `hsplit`, `vsplit`, `dsplit`: equal pieces along a fixed dimension.
macro_rules! fixed_splits {
    ($($split:ident $split_at:ident, $least:literal, $dim:expr, $which:literal, $second:literal;)*) => {
        impl Tensor {$(
            #[doc = concat!("Equal pieces along the ", $which, " dimension (`torch.", stringify!($split), "`).")]
            ///
            /// ```
            /// let x = torchrs::Tensor::range(8).view([2, 2, 2]);
            #[doc = concat!("assert_eq!(x.", stringify!($split), "(2)[1].to_vec::<i64>(), ", $second, ");")]
            /// ```
            ///
            /// # Panics
            /// Throws when the size is not a multiple of `sections`, or dimensions are too few.
            #[track_caller]
            pub fn $split(&self, sections: usize) -> Vec<Tensor> {
                let dim = self.fixed_dim(stringify!($split), $least, $dim);
                let n = self.size(dim);
                if sections == 0 || n % sections != 0 {
                    throw(Error::argument(
                        stringify!($split),
                        "sections",
                        format!("{sections} equal pieces of dimension {dim} of shape {:?}", self.shape()),
                    ));
                }
                self.tensor_split(sections, dim)
            }

            #[doc = concat!("The pieces between places of the ", $which, " dimension (`torch.", stringify!($split), "` with a list).")]
            ///
            /// ```
            /// let x = torchrs::Tensor::range(8).view([2, 2, 2]);
            #[doc = concat!("let pieces = x.", stringify!($split_at), "(&[1, 1]);")]
            #[doc = concat!("assert_eq!(pieces[2].to_vec::<i64>(), ", $second, ");")]
            /// assert_eq!(pieces[1].numel(), 0);
            /// ```
            ///
            /// # Panics
            /// Throws when there are too few dimensions.
            #[track_caller]
            pub fn $split_at(&self, indices: &[i64]) -> Vec<Tensor> {
                let dim = self.fixed_dim(stringify!($split), $least, $dim);
                self.tensor_split_at(indices, dim)
            }
        )*}
    };
}
fixed_splits! {
    hsplit hsplit_at, 1, |n| if n == 1 { 0 } else { 1 }, "second (of a list, the first)", "[2, 3, 6, 7]";
    vsplit vsplit_at, 2, |_| 0, "first", "[4, 5, 6, 7]";
    dsplit dsplit_at, 3, |_| 2, "third", "[1, 3, 5, 7]";
}

impl Tensor {
    #[track_caller]
    fn fixed_dim(&self, op: &str, least: usize, dim: impl Fn(usize) -> i64) -> i64 {
        if self.dim() < least {
            throw(Error::shape(
                op,
                format!("takes at least {least} dimensions, got shape {:?}", self.shape()),
            ));
        }
        dim(self.dim())
    }
}
