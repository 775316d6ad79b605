// Products, quotients and functions of complex numbers that lie as pairs.

struct alignas(2 * sizeof(T)) Number { T re, im; };

// Rounded one by one, so that the imaginary part of z conj(z) is 0.
__device__ __forceinline__ float times(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double times(double a, double b) { return __dmul_rn(a, b); }

struct Zip {
    const Number* x;
    const Number* y;
    Number* out;
    i64 n;
    // After so many elements an operand begins again.
    i64 x_period, y_period;
};

__device__ __forceinline__ i64 place_in(i64 i, i64 period, i64 n) {
    if (period == n) return i;
    if (period == 1) return 0;
    return n <= 0x7fffffff ? (i64)((u32)i % (u32)period) : i % period;
}

template <class F> __device__ __forceinline__ void zip(const Zip& task, F f) {
    for (i64 i = first_index(); i < task.n; i += index_step()) {
        Number x = task.x[place_in(i, task.x_period, task.n)], y = task.y[place_in(i, task.y_period, task.n)];
        task.out[i] = f(x, y);
    }
}

__device__ __forceinline__ Number product(Number x, Number y) {
    return Number{times(x.re, y.re) - times(x.im, y.im), times(x.re, y.im) + times(x.im, y.re)};
}

extern "C" __global__ void __launch_bounds__(256) multiply(Zip task) {
    zip(task, [](Number x, Number y) { return product(x, y); });
}

// By the conjugate of the second one.
extern "C" __global__ void __launch_bounds__(256) multiply_conj(Zip task) {
    zip(task, [](Number x, Number y) { return product(x, Number{y.re, -y.im}); });
}

// Smith's way: no overflow where the result has none.
extern "C" __global__ void __launch_bounds__(256, 4) divide(Zip task) {
    zip(task, [](Number x, Number y) {
        double a = x.re, b = x.im, c = y.re, d = y.im;
        if (fabs(c) >= fabs(d)) {
            // By 0: infinities and NaN with the signs that parts divided by 0 have.
            if (c == 0.0) return Number{(T)(a / fabs(c)), (T)(b / fabs(c))};
            double ratio = d / c, scale = c + d * ratio;
            return Number{(T)((a + b * ratio) / scale), (T)((b - a * ratio) / scale)};
        }
        double ratio = c / d, scale = d + c * ratio;
        return Number{(T)((a * ratio + b) / scale), (T)((b * ratio - a) / scale)};
    });
}

__device__ __forceinline__ float length(Number z, float) { return hypotf(z.re, z.im); }
__device__ __forceinline__ double length(Number z, double) { return hypot(z.re, z.im); }
__device__ __forceinline__ void turn(float angle, float* s, float* c) { *s = sinf(angle), *c = cosf(angle); }
__device__ __forceinline__ void turn(double angle, double* s, double* c) { *s = sin(angle), *c = cos(angle); }
__device__ __forceinline__ float power_of_e(float x) { return expf(x); }
__device__ __forceinline__ double power_of_e(double x) { return exp(x); }

extern "C" __global__ void __launch_bounds__(256) conjugate(const Number* x, Number* out, i64 n) {
    for (i64 i = first_index(); i < n; i += index_step()) out[i] = Number{x[i].re, -x[i].im};
}

extern "C" __global__ void __launch_bounds__(256) absolute(const Number* x, T* out, i64 n) {
    for (i64 i = first_index(); i < n; i += index_step()) out[i] = length(x[i], (T)0);
}

// The gradient of absolute values: g z / |z|, 0 at 0.
extern "C" __global__ void __launch_bounds__(256) along(const Number* x, const T* g, Number* out, i64 n) {
    for (i64 i = first_index(); i < n; i += index_step()) {
        Number z = x[i];
        T r = length(z, (T)0), by = g[i];
        bool zero = z.re == (T)0 && z.im == (T)0;
        out[i] = zero ? Number{(T)0, (T)0} : Number{by * (z.re / r), by * (z.im / r)};
    }
}

extern "C" __global__ void __launch_bounds__(256) exponential(const Number* x, Number* out, i64 n) {
    for (i64 i = first_index(); i < n; i += index_step()) {
        T r = power_of_e(x[i].re), s, c;
        turn(x[i].im, &s, &c);
        out[i] = Number{r * c, r * s};
    }
}
