//! Rows: activation functions.

crate::pointwise! {
    table rows for Tensor;

    /// max(x, 0) (`torch.relu`).
    pub numeric relu / relu_ (x) = maximum(x, 0.0);
        grad(g, y) { x: select(gt(y, 0.0), g, 0.0) }

    /// x, or `negative_slope` times x below 0 (`torch.nn.functional.leaky_relu`).
    pub float leaky_relu / leaky_relu_ (x; negative_slope = 0.01) = select(gt(x, 0.0), x, x * negative_slope);
        grad(g, x) { x: select(gt(x, 0.0), g, g * negative_slope) }

    /// x, or `alpha` (e^x - 1) below 0 (`torch.nn.functional.elu`).
    pub float elu / elu_ (x; alpha = 1.0) = select(gt(x, 0.0), x, alpha * expm1(x));
        grad(g, x) { x: select(gt(x, 0.0), g, g * alpha * exp(x)) }

    /// x times the normal distribution function of x (`torch.nn.functional.gelu`).
    pub float gelu / gelu_ (x) = 0.5 * x * (1.0 + erf(x * FRAC_1_SQRT_2));
        grad(g, x) {
            x: g * (0.5 * (1.0 + erf(x * FRAC_1_SQRT_2)) + x * 0.398_942_280_401_432_7 * exp(-0.5 * x * x)),
        }

    /// [`gelu`](Self::gelu) approximated with tanh (`torch.nn.functional.gelu(approximate="tanh")`).
    pub float gelu_tanh / gelu_tanh_ (x)
        = 0.5 * x * (1.0 + tanh(0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x)));
        grad(g, x) {
            x: g * (0.5 * (1.0 + tanh(0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x)))
                + 0.5 * x
                    * (1.0
                        - tanh(0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x))
                            * tanh(0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x)))
                    * (0.797_884_560_802_865_4 * (1.0 + 0.134_145 * x * x))),
        }

    /// x sigmoid(x) (`torch.nn.functional.silu`).
    pub float silu / silu_ (x) = x * sigmoid(x);
        grad(g, x) { x: g * sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x))) }

    /// log(1 + e^(beta x)) / beta; x itself where beta x exceeds `threshold`
    /// (`torch.nn.functional.softplus`).
    pub float softplus / softplus_ (x; beta = 1.0, threshold = 20.0)
        = select(gt(x * beta, threshold), x, log1p(exp(x * beta)) / beta);
        grad(g, x) { x: select(gt(x * beta, threshold), g, g * sigmoid(x * beta)) }

    /// x between `min_val` and `max_val` (`torch.nn.functional.hardtanh`).
    pub numeric hardtanh / hardtanh_ (x; min_val = -1.0, max_val = 1.0) = minimum(maximum(x, min_val), max_val);
        grad(g, x) { x: select(gt(x, min_val) & lt(x, max_val), g, 0.0) }

    /// x above `threshold`, else `value` (`torch.nn.functional.threshold`).
    pub numeric threshold / threshold_ (x; threshold = 0.1, value = 20.0) = select(le(x, threshold), value, x);
        grad(g, x) { x: select(le(x, threshold), 0.0, g) }
}
