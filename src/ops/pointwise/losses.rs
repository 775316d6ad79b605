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

    /// Cross entropy of the probability x with the probability t; logarithms are at least -100.
    pub float probability_error(x, t)
        = (t - 1.0) * maximum(log1p(-x), -100.0) - t * maximum(log(x), -100.0);
        grad(g, x, t) {
            x: g * (x - t) / maximum((1.0 - x) * x, 1e-12),
            t: g * (select(eq(x, 1.0), -100.0, maximum(log1p(-select(eq(x, 1.0), 0.0, x)), -100.0))
                - select(eq(x, 0.0), -100.0, maximum(log(select(eq(x, 0.0), 1.0, x)), -100.0))),
        }
        sample { x: 0.1..0.9, t: 0.0..1.0 }

    /// Divergence of the log-probability x from the probability t: t (log(t) - x).
    pub float divergence(x, t) = select(eq(t, 0.0), 0.0, t * log(t)) - t * x;
        grad(g, x, t) { x: -(g * t), t: g * (log(t) + 1.0 - x) }
        sample { t: 0.1..2.0 }

    /// Divergence of the log-probability x from the log-probability t.
    pub float log_divergence(x, t) = exp(t) * (t - x);
        grad(g, x, t) { x: -(g * exp(t)), t: g * exp(t) * (t - x + 1.0) }
}
