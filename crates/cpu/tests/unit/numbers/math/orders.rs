//! Bessel functions, incomplete gamma functions and polynomials against values with 40 digits (mpmath).

use torchrs_cpu::numbers::math::special::*;

/// Relative, but near zeros of oscillating functions.
fn near(got: f64, want: f64) {
    let scale = if want.abs() < 1e-3 { want.abs() } else { want.abs().max(0.1) };
    assert!((got - want).abs() <= 1e-13 * scale, "{got:e}, not {want:e}");
}

#[test]
#[allow(clippy::excessive_precision, clippy::unreadable_literal)]
fn bessel_functions() {
    // In the power series, the recurrence and the asymptotic series.
    const AT: [f64; 8] = [0.3, 1.7, 4.5, 5.2, 9.0, 24.5, 26.0, 300.0];
    type Function = fn(f64) -> f64;
    let all: [(Function, [f64; 8]); 6] = [
        (
            bessel_j0,
            [
                0.9776262465382961,
                0.3979848594461095,
                -0.32054250898512143,
                -0.11029043979098647,
                -0.09033361118287614,
                0.0236974337340679,
                0.15599931552242113,
                -0.03329855487630567,
            ],
        ),
        (
            bessel_j1,
            [
                0.148318816273104,
                0.5777652315290233,
                -0.23106043192337064,
                -0.3432230058719219,
                0.24531178657332528,
                -0.1589784118193281,
                0.015045730586915811,
                -0.03188743137749995,
            ],
        ),
        (
            bessel_y0,
            [
                -0.8072735778045195,
                0.4520270001816346,
                -0.19470500862950454,
                -0.33125093481988444,
                0.24993669828502468,
                -0.15942871774975043,
                0.012044625860755602,
                -0.0318318897300034,
            ],
        ),
        (
            bessel_y1,
            [
                -2.2931051383885293,
                -0.2847262450640684,
                0.3009973230696546,
                0.0791903429820843,
                0.10431457519671589,
                -0.026954655331885412,
                -0.15579655322960265,
                0.03324554812131022,
            ],
        ),
        (
            modified_bessel_k0,
            [
                1.3724600605442974,
                0.16549631805699655,
                0.006399857243233975,
                0.002965745601029581,
                5.0881312956459246e-05,
                5.768856182529219e-12,
                1.2498773979850725e-12,
                3.7236948548891435e-132,
            ],
        ),
        (
            modified_bessel_k1,
            [
                3.055992033457325,
                0.2093624882040825,
                0.00707809490896809,
                0.0032392637730894558,
                5.363701637945195e-05,
                5.885432744756932e-12,
                1.2736907792389236e-12,
                3.7298958583323724e-132,
            ],
        ),
    ];
    for (f, want) in all {
        AT.iter().zip(want).for_each(|(&x, want)| near(f(x), want));
    }
    near(bessel_j1(-1.7), -bessel_j1(1.7));
    near(scaled_modified_bessel_k1(4.5), modified_bessel_k1(4.5) * 4.5f64.exp());
    near(scaled_modified_bessel_k0(1.7), modified_bessel_k0(1.7) * 1.7f64.exp());
    near(spherical_bessel_j0(2.0), 2f64.sin() / 2.0);
    assert_eq!([bessel_y0(0.0), bessel_y1(0.0)], [f64::NEG_INFINITY; 2]);
    assert_eq!([modified_bessel_k0(0.0), modified_bessel_k1(0.0)], [f64::INFINITY; 2]);
    assert_eq!(
        [bessel_j0(0.0), bessel_j1(0.0), spherical_bessel_j0(f64::INFINITY)],
        [1.0, 0.0, 0.0]
    );
    assert!(
        [bessel_y0, bessel_y1, modified_bessel_k0, modified_bessel_k1]
            .iter()
            .all(|f| f(-1.0).is_nan())
    );
    assert!(bessel_j0(f64::INFINITY).is_nan() && bessel_j1(f64::NAN).is_nan());
}

#[test]
#[allow(clippy::excessive_precision, clippy::unreadable_literal)]
fn airys_function() {
    for (x, want) in [
        (-30.0, -0.08796818845684216),
        (-9.5, 0.3191032477191282),
        (-5.0, 0.35076100902411433),
        (-2.0, 0.22740742820168558),
        (-0.5, 0.4757280916105396),
        (0.5, 0.23169360648083348),
        (2.5, 0.01572592338047049),
        (10.0, 1.1047532552898686e-10),
        (80.0, 6.367997325597162e-209),
    ] {
        near(airy_ai(x), want);
    }
}

#[test]
#[allow(clippy::excessive_precision, clippy::unreadable_literal)]
fn incomplete_gamma_functions() {
    for (a, x, lower, upper) in [
        (0.5, 0.2, 0.4729107431344619, 0.5270892568655381),
        (2.5, 1.0, 0.15085496391539036, 0.8491450360846097),
        (3.0, 9.0, 0.9937678048936227, 0.006232195106377317),
        (25.0, 24.0, 0.44599877692500434, 0.5540012230749957),
        (25.0, 40.0, 0.9955173434344268, 0.004482656565573204),
        (1000.0, 990.0, 0.3795213785379639, 0.620478621462036),
        (1e6, 1.001e6, 0.8413447863683403, 0.15865521363165971),
        (0.01, 0.3, 0.990927603578235, 0.009072396421765093),
    ] {
        near(igamma(a, x), lower);
        near(igammac(a, x), upper);
    }
    assert_eq!([igamma(0.0, 1.0), igammac(0.0, 1.0), igamma(2.0, 0.0)], [1.0, 0.0, 0.0]);
    assert_eq!([igamma(2.0, f64::INFINITY), igammac(f64::INFINITY, 2.0)], [1.0, 1.0]);
    assert!(igamma(-1.0, 1.0).is_nan() && igamma(0.0, 0.0).is_nan());
}

#[test]
fn polynomials() {
    let x = 0.3f64;
    near(chebyshev_polynomial_t(x, 5.0), 16.0 * x.powi(5) - 20.0 * x.powi(3) + 5.0 * x);
    near(chebyshev_polynomial_u(x, 3.0), 8.0 * x.powi(3) - 4.0 * x);
    near(hermite_polynomial_h(x, 3.0), 8.0 * x.powi(3) - 12.0 * x);
    near(hermite_polynomial_he(x, 4.0), x.powi(4) - 6.0 * x * x + 3.0);
    near(laguerre_polynomial_l(x, 2.0), 0.5 * x * x - 2.0 * x + 1.0);
    near(legendre_polynomial_p(x, 3.0), 2.5 * x.powi(3) - 1.5 * x);
    near(shifted_chebyshev_polynomial_t(0.65, 5.0), chebyshev_polynomial_t(x, 5.0));
    // By angles and by the recurrence, which meet beyond a degree.
    let by = |last: f64, before: f64| 2.0 * x * last - before;
    let all = [
        chebyshev_polynomial_t,
        chebyshev_polynomial_u,
        chebyshev_polynomial_v,
        chebyshev_polynomial_w,
    ];
    for f in all {
        near(f(x, 10.0), by(f(x, 9.0), f(x, 8.0)));
        near(f(x, 8.0), by(f(x, 7.0), f(x, 6.0)));
        // (-1)^n at the interval's lower end, times 1 or 2 n + 1 or n + 1.
        near(f(-1.0, 3.0), f(-1.0 + 1e-15, 3.0));
        assert_eq!([f(x, -1.0), f(x, 0.0)], [0.0, 1.0]);
        assert_eq!(f(x, 2.9), f(x, 2.0));
    }
    assert!(hermite_polynomial_h(x, 513.0).is_nan() && hermite_polynomial_he(x, 600.0).is_nan());
}
