//! Rows: orthogonal polynomials of a degree that is an operand (`torch.special`). As there, they take no half types and have no
//! derivative.

use super::underived::apply_underived;
use crate::tensor::{Operand, Tensor};

crate::pointwise! {
    table rows without functions;

    /// Chebyshev's polynomial of the first kind ([`Tensor::chebyshev_polynomial_t`]).
    float chebyshev_polynomial_t(x, n) = chebyshev_polynomial_t(x, n);
        sample { x: -1.5..1.5, n: 2.1..2.9 }

    /// Chebyshev's polynomial of the second kind ([`Tensor::chebyshev_polynomial_u`]).
    float chebyshev_polynomial_u(x, n) = chebyshev_polynomial_u(x, n);
        sample { x: -1.5..1.5, n: 2.1..2.9 }

    /// Chebyshev's polynomial of the third kind ([`Tensor::chebyshev_polynomial_v`]).
    float chebyshev_polynomial_v(x, n) = chebyshev_polynomial_v(x, n);
        sample { x: -1.5..1.5, n: 2.1..2.9 }

    /// Chebyshev's polynomial of the fourth kind ([`Tensor::chebyshev_polynomial_w`]).
    float chebyshev_polynomial_w(x, n) = chebyshev_polynomial_w(x, n);
        sample { x: -1.5..1.5, n: 2.1..2.9 }

    /// Chebyshev's polynomial of the first kind at 2 x - 1 ([`Tensor::shifted_chebyshev_polynomial_t`]).
    float shifted_chebyshev_polynomial_t(x, n) = shifted_chebyshev_polynomial_t(x, n);
        sample { x: -1.5..1.5, n: 2.1..2.9 }

    /// Chebyshev's polynomial of the second kind at 2 x - 1 ([`Tensor::shifted_chebyshev_polynomial_u`]).
    float shifted_chebyshev_polynomial_u(x, n) = shifted_chebyshev_polynomial_u(x, n);
        sample { x: -1.5..1.5, n: 2.1..2.9 }

    /// Chebyshev's polynomial of the third kind at 2 x - 1 ([`Tensor::shifted_chebyshev_polynomial_v`]).
    float shifted_chebyshev_polynomial_v(x, n) = shifted_chebyshev_polynomial_v(x, n);
        sample { x: -1.5..1.5, n: 2.1..2.9 }

    /// Chebyshev's polynomial of the fourth kind at 2 x - 1 ([`Tensor::shifted_chebyshev_polynomial_w`]).
    float shifted_chebyshev_polynomial_w(x, n) = shifted_chebyshev_polynomial_w(x, n);
        sample { x: -1.5..1.5, n: 2.1..2.9 }

    /// Hermite's polynomial as physicists have it ([`Tensor::hermite_polynomial_h`]).
    float hermite_polynomial_h(x, n) = hermite_polynomial_h(x, n);
        sample { x: -1.5..1.5, n: 2.1..2.9 }

    /// Hermite's polynomial as probabilists have it ([`Tensor::hermite_polynomial_he`]).
    float hermite_polynomial_he(x, n) = hermite_polynomial_he(x, n);
        sample { x: -1.5..1.5, n: 2.1..2.9 }

    /// Laguerre's polynomial ([`Tensor::laguerre_polynomial_l`]).
    float laguerre_polynomial_l(x, n) = laguerre_polynomial_l(x, n);
        sample { x: -1.5..1.5, n: 2.1..2.9 }

    /// Legendre's polynomial ([`Tensor::legendre_polynomial_p`]).
    float legendre_polynomial_p(x, n) = legendre_polynomial_p(x, n);
        sample { x: -1.5..1.5, n: 2.1..2.9 }
}

macro_rules! polynomials {
    ($($(#[$doc:meta])+ $name:ident of $x:literal, $n:literal is $value:literal;)*) => {
        impl Tensor {$(
            $(#[$doc])+
            /// The degree is cut to an integer; of a negative one the result is 0. There is no derivative.
            ///
            /// ```
            /// use torchrs::Tensor;
            #[doc = concat!("let y = Tensor::from([", stringify!($x), "f64]).", stringify!($name), "(", stringify!($n), ");")]
            #[doc = concat!("assert!((y.item() - ", stringify!($value), ").abs() < 1e-12);")]
            /// ```
            ///
            /// # Panics
            /// Throws [`Error::Dtype`](crate::Error::Dtype) for half types, as PyTorch does.
            #[track_caller]
            pub fn $name<'a>(&'a self, n: impl Into<Operand<'a>>) -> Tensor {
                apply_underived(&rows::$name, &[self.into(), n.into()])
            }
        )*}

        /// The polynomials of tensors or numbers, for `torchrs::special`.
        pub(in crate::ops) mod of_operands {$(
            #[track_caller]
            pub fn $name(x: super::Operand<'_>, n: super::Operand<'_>) -> super::Tensor {
                super::apply_underived(&super::rows::$name, &[x, n])
            }
        )*}
    };
}

polynomials! {
    /// Chebyshev's polynomial of the first kind (`torch.special.chebyshev_polynomial_t`).
    chebyshev_polynomial_t of 0.5, 3 is -1.0;
    /// Chebyshev's polynomial of the second kind (`torch.special.chebyshev_polynomial_u`).
    chebyshev_polynomial_u of 0.5, 2 is 0.0;
    /// Chebyshev's polynomial of the third kind (`torch.special.chebyshev_polynomial_v`).
    chebyshev_polynomial_v of 0.5, 2 is -1.0;
    /// Chebyshev's polynomial of the fourth kind (`torch.special.chebyshev_polynomial_w`).
    chebyshev_polynomial_w of 0.5, 2 is 1.0;
    /// Chebyshev's polynomial of the first kind at 2 x - 1 (`torch.special.shifted_chebyshev_polynomial_t`).
    shifted_chebyshev_polynomial_t of 0.75, 3 is -1.0;
    /// Chebyshev's polynomial of the second kind at 2 x - 1 (`torch.special.shifted_chebyshev_polynomial_u`).
    shifted_chebyshev_polynomial_u of 0.75, 2 is 0.0;
    /// Chebyshev's polynomial of the third kind at 2 x - 1 (`torch.special.shifted_chebyshev_polynomial_v`).
    shifted_chebyshev_polynomial_v of 0.75, 2 is -1.0;
    /// Chebyshev's polynomial of the fourth kind at 2 x - 1 (`torch.special.shifted_chebyshev_polynomial_w`).
    shifted_chebyshev_polynomial_w of 0.75, 2 is 1.0;
    /// Hermite's polynomial as physicists have it (`torch.special.hermite_polynomial_h`).
    hermite_polynomial_h of 0.5, 2 is -1.0;
    /// Hermite's polynomial as probabilists have it (`torch.special.hermite_polynomial_he`).
    hermite_polynomial_he of 0.5, 2 is -0.75;
    /// Laguerre's polynomial (`torch.special.laguerre_polynomial_l`).
    laguerre_polynomial_l of 2.0, 2 is -1.0;
    /// Legendre's polynomial (`torch.special.legendre_polynomial_p`).
    legendre_polynomial_p of 0.5, 2 is -0.125;
}
