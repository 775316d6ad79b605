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

    /// `scale` is one over the root of the second average's correction; the first one's is in `step_size`.
    pub adam_step(p, g, m, v; sign, l2, share1, beta2, share2, shrink, step_size, scale, eps) {
        m = m + share1 * (sign * g + l2 * p - m);
        v = beta2 * v + share2 * (sign * g + l2 * p) * (sign * g + l2 * p);
        p = shrink * p - step_size * m / (sqrt(v) * scale + eps);
    }
    /// Divides by the largest average so far, `h`.
    pub amsgrad_step(
        p, g, m, v, h; sign, l2, share1, beta2, share2, shrink, step_size, scale, eps
    ) {
        m = m + share1 * (sign * g + l2 * p - m);
        v = beta2 * v + share2 * (sign * g + l2 * p) * (sign * g + l2 * p);
        h = maximum(h, v);
        p = shrink * p - step_size * m / (sqrt(h) * scale + eps);
    }
    /// Adam that finds the number of steps, `t`, in memory, so that a graph can have it; `log1` and `log2` are
    /// the logarithms of the betas.
    pub adam_counted_step(
        p, g, m, v, t; sign, l2, share1, beta2, share2, shrink, lr, log1, log2, eps
    ) {
        m = m + share1 * (sign * g + l2 * p - m);
        v = beta2 * v + share2 * (sign * g + l2 * p) * (sign * g + l2 * p);
        p = shrink * p + lr / expm1(log1 * t) * m / (sqrt(v) / sqrt(-expm1(log2 * t)) + eps);
    }
    /// The same with the largest average so far, `h`.
    pub amsgrad_counted_step(
        p, g, m, v, h, t; sign, l2, share1, beta2, share2, shrink, lr, log1, log2, eps
    ) {
        m = m + share1 * (sign * g + l2 * p - m);
        v = beta2 * v + share2 * (sign * g + l2 * p) * (sign * g + l2 * p);
        h = maximum(h, v);
        p = shrink * p + lr / expm1(log1 * t) * m / (sqrt(h) / sqrt(-expm1(log2 * t)) + eps);
    }
    /// The step size is what is left of `u` over what is left of `v`.
    pub adadelta_step(p, g, v, u; lr, sign, decay, rho, share, eps)
    let {
        d = sign * g + decay * p;
        w = rho * v + share * d * d;
        d = d * sqrt(u + eps) / sqrt(w + eps);
    } {
        v = w;
        u = rho * u + share * d * d;
        p = p - lr * d;
    }
    /// `v` sums the squares of all gradients.
    pub adagrad_step(p, g, v; lr, sign, decay, eps)
    let { d = sign * g + decay * p; } {
        v = v + d * d;
        p = p - lr * d / (sqrt(v) + eps);
    }
    /// Adam with the largest gradient so far, `u`, in place of the average of squares.
    pub adamax_step(p, g, m, u; step_size, sign, decay, share1, beta2, eps)
    let { d = sign * g + decay * p; } {
        m = m + share1 * (d - m);
        u = maximum(beta2 * u, abs(d) + eps);
        p = p - step_size * m / u;
    }
    /// `a` averages what `p` was.
    pub asgd_step(p, g, a; sign, decay, eta, shrink, mu, keep) {
        p = shrink * p - eta * (sign * g + decay * p);
        a = keep * a + mu * p;
    }
    /// Adam with Nesterov's momentum: `ahead` and `behind` are the rates of gradient and average.
    pub nadam_step(
        p, g, m, v; sign, l2, share1, beta2, share2, shrink, ahead, behind, correction, eps
    )
    let { d = sign * g + l2 * p; } {
        m = m + share1 * (d - m);
        v = beta2 * v + share2 * d * d;
        p = shrink * p - (ahead * d + behind * m) / (sqrt(v / correction) + eps);
    }
    /// Adam while the average of squares is not to be trusted.
    pub radam_start(p, g, m, v; sign, l2, share1, beta2, share2, shrink, step_size)
    let { d = sign * g + l2 * p; } {
        m = m + share1 * (d - m);
        v = beta2 * v + share2 * d * d;
        p = shrink * p - step_size * m;
    }
    /// Divides by the average of squares, `v`.
    pub rmsprop_step(p, g, v; lr, sign, decay, alpha, share, eps)
    let { d = sign * g + decay * p; } {
        v = alpha * v + share * d * d;
        p = p - lr * d / (sqrt(v) + eps);
    }
    /// With momentum.
    pub rmsprop_momentum_step(p, g, v, b; lr, sign, decay, alpha, share, eps, momentum)
    let { d = sign * g + decay * p; } {
        v = alpha * v + share * d * d;
        b = momentum * b + d / (sqrt(v) + eps);
        p = p - lr * b;
    }
    /// Divides by the variance; `m` averages the gradient. With momentum, which may be 0.
    pub rmsprop_centered_step(p, g, v, m, b; lr, sign, decay, alpha, share, eps, momentum)
    let { d = sign * g + decay * p; } {
        v = alpha * v + share * d * d;
        m = m + share * (d - m);
        b = momentum * b + d / (sqrt(v - m * m) + eps);
        p = p - lr * b;
    }
    /// Steps of size `s`, which grow while the sign stays; `b` is the gradient before, or 0 after a
    /// change of sign.
    pub rprop_step(p, g, b, s; sign, shrink, grow, least, largest)
    let { same = sign * g * b; } {
        s = minimum(
            maximum(s * select(gt(same, 0.0), grow, select(lt(same, 0.0), shrink, 1.0)), least),
            largest
        );
        b = select(lt(same, 0.0), 0.0, sign * g);
        p = p - select(gt(b, 0.0), s, select(lt(b, 0.0), -s, 0.0));
    }
}
