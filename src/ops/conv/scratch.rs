//! Memory between the loops of a convolution, and how these see a window.

use crate::cpu::{
    arch::isa, convolution::direct::Sizes, convolution::field::Field, convolution::field::Window,
    convolution::winograd::Stride, convolution::winograd::Winograd, products::tiled::Tiled,
};
use crate::tensor::{Element, Tensor};

pub(super) fn scratch<T: Tiled + Element>(len: usize) -> Tensor {
    Tensor::empty([len], T::DTYPE.on_host())
}

/// The field of a window for tiles of this type.
pub(super) fn field_of<T: Tiled>(window: &Window) -> Field {
    Field::new(window, T::tile(isa::current()).columns)
}

/// Winograd's way to the products of a window, where there is one, and the window's taps row by row.
pub(super) fn minimal(sizes: Sizes, window: &Window) -> Option<(Winograd, [usize; 9])> {
    let stride = match window.step {
        [1, 1] => Stride::One,
        [2, 2] => Stride::Two,
        _ => return None,
    };
    let (origin, places) = window.square(3)?;
    let mut order = [0; 9];
    for (tap, place) in places.into_iter().enumerate() {
        order[place] = tap;
    }
    Some((Winograd { sizes, source: window.source, origin, stride }, order))
}
