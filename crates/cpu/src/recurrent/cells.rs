//! The gates of one row of one step, forward and backward. Gates come as sums of products and become what
//! their functions make of them; backward gives the gradients of the sums.
//!
//! `dout` is what reaches h as an output, `dh` (and `dc`) what reaches it from the step after; `dh` becomes
//! what reaches the h before directly, `dc` what reaches the c before.

use crate::numbers::float::{Float, simd_fn};

#[inline(always)]
fn sigmoid<T: Float, const FMA: bool>(x: T) -> T {
    let one = T::of(1.0);
    one / (one + (-x).exp::<FMA>())
}

/// The derivative of the sigmoid where it is `y`.
#[inline(always)]
fn slope<T: Float>(y: T) -> T {
    y * (T::of(1.0) - y)
}

/// The derivative of the hyperbolic tangent where it is `y`.
#[inline(always)]
fn tanh_slope<T: Float>(y: T) -> T {
    T::of(1.0) - y * y
}

simd_fn! {
    pub fn tanh<T, FMA>(x: &mut [T], bias: &[T], h: &mut [T]) {
        for ((h, &x), &b) in h.iter_mut().zip(&*x).zip(bias) {
            *h = (x + b).tanh::<FMA>();
        }
    }

    pub fn tanh_back<T, FMA>(h: &[T], dout: &[T], dh: &mut [T], dx: &mut [T]) {
        let _ = FMA;
        for (((&h, &dout), dh), dx) in h.iter().zip(dout).zip(dh).zip(dx) {
            *dx = (dout + *dh) * tanh_slope(h);
            *dh = T::ZERO;
        }
    }

    pub fn relu<T, FMA>(x: &mut [T], bias: &[T], h: &mut [T]) {
        let _ = FMA;
        for ((h, &x), &b) in h.iter_mut().zip(&*x).zip(bias) {
            let y = x + b;
            // NaN stays NaN.
            *h = if y < T::ZERO { T::ZERO } else { y };
        }
    }

    pub fn relu_back<T, FMA>(h: &[T], dout: &[T], dh: &mut [T], dx: &mut [T]) {
        let _ = FMA;
        for (((&h, &dout), dh), dx) in h.iter().zip(dout).zip(dh).zip(dx) {
            *dx = if h <= T::ZERO { T::ZERO } else { dout + *dh };
            *dh = T::ZERO;
        }
    }

    /// `hn` comes without its bias, `bh`.
    pub fn gru<T, FMA>(
        r: &mut [T], z: &mut [T], n: &mut [T], hn: &mut [T],
        br: &[T], bz: &[T], bn: &[T], bh: &[T],
        before: &[T], h: &mut [T],
    ) {
        let len = h.len();
        let (r, z, n, hn) = (&mut r[..len], &mut z[..len], &mut n[..len], &mut hn[..len]);
        let (br, bz, bn, bh) = (&br[..len], &bz[..len], &bn[..len], &bh[..len]);
        let before = &before[..len];
        for j in 0..len {
            let reset = sigmoid::<T, FMA>(r[j] + br[j]);
            let update = sigmoid::<T, FMA>(z[j] + bz[j]);
            let from_state = hn[j] + bh[j];
            let new = reset.fma::<FMA>(from_state, n[j] + bn[j]).tanh::<FMA>();
            h[j] = update.fma::<FMA>(before[j] - new, new);
            (r[j], z[j], n[j], hn[j]) = (reset, update, new, from_state);
        }
    }

    /// `sr`, `sz` and `sn` are the gradients of the products with the state.
    pub fn gru_back<T, FMA>(
        r: &[T], z: &[T], n: &[T], hn: &[T], before: &[T],
        dout: &[T], dh: &mut [T],
        dr: &mut [T], dz: &mut [T], dn: &mut [T],
        sr: &mut [T], sz: &mut [T], sn: &mut [T],
    ) {
        let _ = FMA;
        let len = dh.len();
        let (r, z, n, hn) = (&r[..len], &z[..len], &n[..len], &hn[..len]);
        let (before, dout) = (&before[..len], &dout[..len]);
        let (dr, dz, dn) = (&mut dr[..len], &mut dz[..len], &mut dn[..len]);
        let (sr, sz, sn) = (&mut sr[..len], &mut sz[..len], &mut sn[..len]);
        for j in 0..len {
            let d = dout[j] + dh[j];
            dh[j] = d * z[j];
            let update = d * (before[j] - n[j]) * slope(z[j]);
            let new = d * (T::of(1.0) - z[j]) * tanh_slope(n[j]);
            let reset = new * hn[j] * slope(r[j]);
            (dr[j], dz[j], dn[j]) = (reset, update, new);
            (sr[j], sz[j], sn[j]) = (reset, update, new * r[j]);
        }
    }

    pub fn lstm<T, FMA>(
        i: &mut [T], f: &mut [T], g: &mut [T], o: &mut [T],
        bi: &[T], bf: &[T], bg: &[T], bo: &[T],
        before: &[T], c: &mut [T], h: &mut [T],
    ) {
        let len = h.len();
        let (i, f, g, o) = (&mut i[..len], &mut f[..len], &mut g[..len], &mut o[..len]);
        let (bi, bf, bg, bo) = (&bi[..len], &bf[..len], &bg[..len], &bo[..len]);
        let (before, c) = (&before[..len], &mut c[..len]);
        for j in 0..len {
            let input = sigmoid::<T, FMA>(i[j] + bi[j]);
            let forget = sigmoid::<T, FMA>(f[j] + bf[j]);
            let new = (g[j] + bg[j]).tanh::<FMA>();
            let output = sigmoid::<T, FMA>(o[j] + bo[j]);
            let cell = forget.fma::<FMA>(before[j], input * new);
            h[j] = output * cell.tanh::<FMA>();
            (i[j], f[j], g[j], o[j], c[j]) = (input, forget, new, output, cell);
        }
    }

    pub fn lstm_back<T, FMA>(
        i: &[T], f: &[T], g: &[T], o: &[T], before: &[T], c: &[T],
        dout: &[T], dh: &mut [T], dc: &mut [T],
        di: &mut [T], df: &mut [T], dg: &mut [T], d_o: &mut [T],
    ) {
        let len = dh.len();
        let (i, f, g, o) = (&i[..len], &f[..len], &g[..len], &o[..len]);
        let (before, c, dout, dc) = (&before[..len], &c[..len], &dout[..len], &mut dc[..len]);
        let (di, df, dg, d_o) = (&mut di[..len], &mut df[..len], &mut dg[..len], &mut d_o[..len]);
        for j in 0..len {
            let (d, t) = (dout[j] + dh[j], c[j].tanh::<FMA>());
            dh[j] = T::ZERO;
            let cell = (d * o[j]).fma::<FMA>(tanh_slope(t), dc[j]);
            d_o[j] = d * t * slope(o[j]);
            di[j] = cell * g[j] * slope(i[j]);
            df[j] = cell * before[j] * slope(f[j]);
            dg[j] = cell * i[j] * tanh_slope(g[j]);
            dc[j] = cell * f[j];
        }
    }
}
