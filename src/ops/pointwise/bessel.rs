//! Rows: Bessel functions and Airy's (`torch.special`). As there, they take no half types.

use super::apply;
use super::underived::{apply_underived, refuse_halves};
use crate::tensor::{Operand, Tensor};

crate::pointwise! {
    table rows without functions;

    /// Airy's function ([`Tensor::airy_ai`]).
    float airy_ai(x) = airy_ai(x);

    /// Of the first kind and order 0 ([`Tensor::bessel_j0`]).
    float bessel_j0(x) = bessel_j0(x);
        grad(g, x) { x: -(g * bessel_j1(x)) }

    /// Of the first kind and order 1 ([`Tensor::bessel_j1`]).
    float bessel_j1(x) = bessel_j1(x);
        grad(g, x, y) {
            x: g * select(
                lt(abs(x), 0.25),
                j1_slope_near(x),
                bessel_j0(x) - y / select(lt(abs(x), 0.25), 1.0, x)
            ),
        }

    /// Of the second kind and order 0 ([`Tensor::bessel_y0`]).
    float bessel_y0(x) = bessel_y0(x);
        grad(g, x) { x: -(g * bessel_y1(x)) }
        sample { x: 0.5..5.0 }

    /// Of the second kind and order 1 ([`Tensor::bessel_y1`]).
    float bessel_y1(x) = bessel_y1(x);
        grad(g, x, y) {
            x: g * select(eq(x, 0.0), INFINITY, bessel_y0(x) - y / select(eq(x, 0.0), 1.0, x)),
        }
        sample { x: 0.5..5.0 }

    /// Modified, of the second kind and order 0 ([`Tensor::modified_bessel_k0`]).
    float modified_bessel_k0(x) = modified_bessel_k0(x);
        grad(g, x) { x: -(g * modified_bessel_k1(x)) }
        sample { x: 0.5..5.0 }

    /// Modified, of the second kind and order 1 ([`Tensor::modified_bessel_k1`]).
    float modified_bessel_k1(x) = modified_bessel_k1(x);
        grad(g, x, y) { x: -(g * (modified_bessel_k0(x) + y / x)) }
        sample { x: 0.5..5.0 }

    /// `modified_bessel_k0` times e^x ([`Tensor::scaled_modified_bessel_k0`]).
    float scaled_modified_bessel_k0(x) = scaled_modified_bessel_k0(x);
        sample { x: 0.5..5.0 }

    /// `modified_bessel_k1` times e^x ([`Tensor::scaled_modified_bessel_k1`]).
    float scaled_modified_bessel_k1(x) = scaled_modified_bessel_k1(x);
        sample { x: 0.5..5.0 }

    /// Spherical, of order 0 ([`Tensor::spherical_bessel_j0`]).
    float spherical_bessel_j0(x) = spherical_bessel_j0(x);
}

macro_rules! methods {
    ($($(#[$doc:meta])+ $name:ident by $row:expr, $at:literal is $value:literal, $call:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])+
            ///
            /// ```
            /// use torchrs::Tensor;
            #[doc = concat!("let y = Tensor::from([", stringify!($at), "f64]).", stringify!($name), "();")]
            #[doc = concat!("assert!((y.item() - ", stringify!($value), ").abs() < 1e-12);")]
            /// ```
            ///
            /// # Panics
            /// Throws [`Error::Dtype`](crate::Error::Dtype) for half types, as PyTorch does.
            #[track_caller]
            pub fn $name(&self) -> Tensor {
                $call(&$row, &[self.into()])
            }
        )*}
    };
}

/// The row's op with its derivative.
#[track_caller]
fn derived(row: &'static super::Row, inputs: &[Operand<'_>]) -> Tensor {
    refuse_halves(row, inputs);
    apply(row, inputs, &[])
}

methods! {
    /// Airy's function Ai (`torch.special.airy_ai`), which has no derivative, as there.
    airy_ai by rows::airy_ai, 0.0 is 0.3550280538878172, apply_underived;
    /// Bessel function of the first kind and order 0 (`torch.special.bessel_j0`).
    bessel_j0 by rows::bessel_j0, 1.0 is 0.7651976865579666, derived;
    /// Bessel function of the first kind and order 1 (`torch.special.bessel_j1`).
    bessel_j1 by rows::bessel_j1, 1.0 is 0.4400505857449335, derived;
    /// Bessel function of the second kind and order 0 (`torch.special.bessel_y0`); NaN below 0.
    bessel_y0 by rows::bessel_y0, 1.0 is 0.08825696421567697, derived;
    /// Bessel function of the second kind and order 1 (`torch.special.bessel_y1`); NaN below 0.
    bessel_y1 by rows::bessel_y1, 1.0 is -0.7812128213002887, derived;
    /// Modified Bessel function of the first kind and order 0 (`torch.special.modified_bessel_i0`), as [`i0`](Self::i0).
    modified_bessel_i0 by super::special::rows::i0, 1.0 is 1.2660658777520084, derived;
    /// Modified Bessel function of the first kind and order 1 (`torch.special.modified_bessel_i1`), as [`i1`](Self::i1).
    modified_bessel_i1 by super::special::rows::i1, 1.0 is 0.565159103992485, derived;
    /// Modified Bessel function of the second kind and order 0 (`torch.special.modified_bessel_k0`); NaN below 0.
    modified_bessel_k0 by rows::modified_bessel_k0, 1.0 is 0.42102443824070834, derived;
    /// Modified Bessel function of the second kind and order 1 (`torch.special.modified_bessel_k1`); NaN below 0.
    modified_bessel_k1 by rows::modified_bessel_k1, 1.0 is 0.6019072301972346, derived;
    /// [`modified_bessel_k0`](Self::modified_bessel_k0) times e^x (`torch.special.scaled_modified_bessel_k0`), which has no
    /// derivative, as there.
    scaled_modified_bessel_k0 by rows::scaled_modified_bessel_k0, 1.0 is 1.1444630798068947, apply_underived;
    /// [`modified_bessel_k1`](Self::modified_bessel_k1) times e^x (`torch.special.scaled_modified_bessel_k1`), which has no
    /// derivative, as there.
    scaled_modified_bessel_k1 by rows::scaled_modified_bessel_k1, 1.0 is 1.636153486263258, apply_underived;
    /// Spherical Bessel function of the first kind and order 0, sin(x) / x (`torch.special.spherical_bessel_j0`), which has
    /// no derivative, as there; [`sinc`](Self::sinc) has one.
    spherical_bessel_j0 by rows::spherical_bessel_j0, 1.0 is 0.8414709848078965, apply_underived;
}
