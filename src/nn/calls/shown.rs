//! What goes into a module and comes out of it, as far as it is tensors.

use crate::nn::PackedSequence;
use crate::tensor::Tensor;

/// The shapes of a value.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// A tensor: its shape and bytes.
    Tensor(Vec<usize>, usize),
    /// Several values.
    List(Vec<Shown>),
    /// No tensors.
    Nothing,
}

impl Shown {
    /// All tensors in it: shape and bytes.
    pub(in crate::nn) fn tensors(&self) -> Vec<(&[usize], usize)> {
        match self {
            Shown::Tensor(shape, bytes) => vec![(shape, *bytes)],
            Shown::List(list) => list.iter().flat_map(Shown::tensors).collect(),
            Shown::Nothing => Vec::new(),
        }
    }
}

/// A value that may have tensors in it.
#[doc(hidden)]
pub trait Shows {
    /// Their shapes.
    fn show(&self) -> Shown;
}

impl Shows for Tensor {
    fn show(&self) -> Shown {
        Shown::Tensor(self.shape().to_vec(), self.numel() * self.dtype().size())
    }
}

impl Shows for PackedSequence {
    fn show(&self) -> Shown {
        self.data.show()
    }
}

impl<T: Shows + ?Sized> Shows for &T {
    fn show(&self) -> Shown {
        (**self).show()
    }
}

impl<T: Shows + ?Sized> Shows for &mut T {
    fn show(&self) -> Shown {
        (**self).show()
    }
}

impl<T: Shows> Shows for Option<T> {
    fn show(&self) -> Shown {
        self.as_ref().map_or(Shown::Nothing, Shows::show)
    }
}

impl<T: Shows, E> Shows for Result<T, E> {
    fn show(&self) -> Shown {
        self.as_ref().map_or(Shown::Nothing, Shows::show)
    }
}

impl<T: Shows> Shows for [T] {
    fn show(&self) -> Shown {
        Shown::List(self.iter().map(Shows::show).collect())
    }
}

impl<T: Shows, const N: usize> Shows for [T; N] {
    fn show(&self) -> Shown {
        self.as_slice().show()
    }
}

impl<T: Shows> Shows for Vec<T> {
    fn show(&self) -> Shown {
        self.as_slice().show()
    }
}

macro_rules! tuples {
    ($($($T:ident)+;)+) => {$(
        impl<$($T: Shows),+> Shows for ($($T,)+) {
            #[allow(non_snake_case)]
            fn show(&self) -> Shown {
                let ($($T,)+) = self;
                Shown::List(vec![$($T.show()),+])
            }
        }
    )+};
}
tuples! {
    A;
    A B;
    A B C;
    A B C D;
}

/// A value about to be shown: by [`ViaShown`] if its type has tensors, else by [`ViaNothing`], which method
/// resolution finds one reference later.
#[doc(hidden)]
pub struct Probe<'a, T: ?Sized>(pub &'a T);

#[doc(hidden)]
pub trait ViaShown {
    fn shown(&self) -> Shown;
}
impl<T: Shows + ?Sized> ViaShown for Probe<'_, T> {
    fn shown(&self) -> Shown {
        self.0.show()
    }
}

#[doc(hidden)]
pub trait ViaNothing {
    fn shown(&self) -> Shown;
}
impl<T: ?Sized> ViaNothing for &Probe<'_, T> {
    fn shown(&self) -> Shown {
        Shown::Nothing
    }
}
