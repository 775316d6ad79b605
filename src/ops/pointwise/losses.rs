//! Rows: what a loss is of one element, before it is summed (`nn::functional`).

crate::pointwise! {
    table rows;

    /// (x - t)^2.
    pub float squared_error(x, t) = (x - t) * (x - t);
        grad(g, x, t) { x: g * 2.0 * (x - t), t: g * 2.0 * (t - x) }

    /// |x - t|.
    pub float absolute_error(x, t) = abs(x - t);
        grad(g, x, t) { x: g * sign(x - t), t: g * sign(t - x) }

    /// Squared below a distance of `delta`, then linear.
    pub float huber_error(x, t; delta = 1.0)
        = select(le(abs(x - t), delta), 0.5 * (x - t) * (x - t), delta * (abs(x - t) - 0.5 * delta));
        grad(g, x, t) {
            x: select(le(abs(x - t), delta), g * (x - t), g * delta * sign(x - t)),
            t: select(le(abs(x - t), delta), g * (t - x), g * delta * sign(t - x)),
        }

    /// Cross entropy of the logit x with the probability t; `weight` counts the positive part.
    pub float logit_error(x, t, weight)
        = (1.0 - t) * x + (1.0 + (weight - 1.0) * t) * (log1p(exp(-abs(x))) + maximum(-x, 0.0));
        grad(g, x, t, weight) {
            x: g * ((1.0 - t) - (1.0 + (weight - 1.0) * t) * sigmoid(-x)),
            t: g * ((weight - 1.0) * (log1p(exp(-abs(x))) + maximum(-x, 0.0)) - x),
        }
        sample { t: 0.0..1.0, weight: 0.5..2.0 }
}
