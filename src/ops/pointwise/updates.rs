//! Rows: optimizer steps. A step reads and writes every element once; what the numbers are made of
//! is in `optim`.

crate::pointwise_update! {
    table updates;

    /// Without momentum. `sign` is 1, or -1 to ascend.
    pub sgd_step(p, g; lr, sign, decay) {
        p = p - lr * (sign * g + decay * p);
    }
    /// With momentum; `share` is how much of the gradient enters the buffer `b`.
    pub sgd_momentum_step(p, g, b; lr, sign, decay, momentum, share) {
        b = momentum * b + share * (sign * g + decay * p);
        p = p - lr * b;
    }
    /// With Nesterov's momentum.
    pub sgd_nesterov_step(p, g, b; lr, sign, decay, momentum, share) {
        b = momentum * b + share * (sign * g + decay * p);
        p = p - lr * (sign * g + decay * p + momentum * b);
    }

    /// `root` is the root of the second average's correction; the first one's is in `step_size`.
    pub adam_step(p, g, m, v; sign, l2, share1, beta2, share2, shrink, step_size, root, eps) {
        m = m + share1 * (sign * g + l2 * p - m);
        v = beta2 * v + share2 * (sign * g + l2 * p) * (sign * g + l2 * p);
        p = shrink * p - step_size * m / (sqrt(v) / root + eps);
    }
    /// Divides by the largest average so far, `h`.
    pub amsgrad_step(
        p, g, m, v, h; sign, l2, share1, beta2, share2, shrink, step_size, root, eps
    ) {
        m = m + share1 * (sign * g + l2 * p - m);
        v = beta2 * v + share2 * (sign * g + l2 * p) * (sign * g + l2 * p);
        h = maximum(h, v);
        p = shrink * p - step_size * m / (sqrt(h) / root + eps);
    }
}
