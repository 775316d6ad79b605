//! Rows: elementary functions and rounding.

crate::pointwise! {
    table rows for Tensor;

    /// e^x (`torch.exp`).
    pub float exp / exp_ (x) = exp(x);
        grad(g, y) { x: g * y }

    /// e^x - 1, exact near 0 (`torch.expm1`).
    pub float expm1 / expm1_ (x) = expm1(x);
        grad(g, y) { x: g * (y + 1.0) }

    /// Natural logarithm (`torch.log`).
    pub float log / log_ (x) = log(x);
        grad(g, x) { x: g / x }
        sample { x: 0.3..5.0 }

    /// log(1 + x), exact near 0 (`torch.log1p`).
    pub float log1p / log1p_ (x) = log1p(x);
        grad(g, x) { x: g / (x + 1.0) }
        sample { x: -0.6..4.0 }

    /// Logarithm to base 2 (`torch.log2`).
    pub float log2 / log2_ (x) = log2(x);
        grad(g, x) { x: g / (x * LN_2) }
        sample { x: 0.3..5.0 }

    /// Logarithm to base 10 (`torch.log10`).
    pub float log10 / log10_ (x) = log10(x);
        grad(g, x) { x: g / (x * LN_10) }
        sample { x: 0.3..5.0 }

    /// Square root (`torch.sqrt`).
    pub float sqrt / sqrt_ (x) = sqrt(x);
        grad(g, y) { x: g / (y * 2.0) }
        sample { x: 0.3..5.0 }

    /// 1 / sqrt(x) (`torch.rsqrt`).
    pub float rsqrt / rsqrt_ (x) = rsqrt(x);
        grad(g, y) { x: g * -0.5 * y * y * y }
        sample { x: 0.3..5.0 }

    /// Sine (`torch.sin`).
    pub float sin / sin_ (x) = sin(x);
        grad(g, x) { x: g * cos(x) }

    /// Cosine (`torch.cos`).
    pub float cos / cos_ (x) = cos(x);
        grad(g, x) { x: -(g * sin(x)) }

    /// Tangent (`torch.tan`).
    pub float tan / tan_ (x) = tan(x);
        grad(g, y) { x: g * (y * y + 1.0) }
        sample { x: -1.2..1.2 }

    /// Inverse sine (`torch.asin`).
    pub float asin / asin_ (x) = asin(x);
        grad(g, x) { x: g * rsqrt(1.0 - x * x) }
        sample { x: -0.8..0.8 }

    /// Inverse cosine (`torch.acos`).
    pub float acos / acos_ (x) = acos(x);
        grad(g, x) { x: -(g * rsqrt(1.0 - x * x)) }
        sample { x: -0.8..0.8 }

    /// Inverse tangent (`torch.atan`).
    pub float atan / atan_ (x) = atan(x);
        grad(g, x) { x: g / (x * x + 1.0) }

    /// Hyperbolic sine (`torch.sinh`).
    pub float sinh / sinh_ (x) = sinh(x);
        grad(g, x) { x: g * cosh(x) }

    /// Hyperbolic cosine (`torch.cosh`).
    pub float cosh / cosh_ (x) = cosh(x);
        grad(g, x) { x: g * sinh(x) }

    /// Hyperbolic tangent (`torch.tanh`).
    pub float tanh / tanh_ (x) = tanh(x);
        grad(g, y) { x: g * (1.0 - y * y) }

    /// Error function (`torch.erf`).
    pub float erf / erf_ (x) = erf(x);
        grad(g, x) { x: g * FRAC_2_SQRT_PI * exp(-(x * x)) }

    /// Logistic function 1 / (1 + e^-x) (`torch.sigmoid`).
    pub float sigmoid / sigmoid_ (x) = sigmoid(x);
        grad(g, y) { x: g * y * (1.0 - y) }

    /// Largest integer not above (`torch.floor`).
    pub numeric floor / floor_ (x) = floor(x);
        grad(g) { x: 0.0 }

    /// Smallest integer not below (`torch.ceil`).
    pub numeric ceil / ceil_ (x) = ceil(x);
        grad(g) { x: 0.0 }

    /// Nearest integer, ties to the even one (`torch.round`).
    pub numeric round / round_ (x) = round(x);
        grad(g) { x: 0.0 }

    /// Integer part, towards zero (`torch.trunc`).
    pub numeric trunc / trunc_ (x) = trunc(x);
        grad(g) { x: 0.0 }
}
