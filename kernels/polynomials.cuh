// Orthogonal polynomials, as crates/cpu/src/numbers/math/polynomials.rs has them: in f64, also for f32.

#define POLYNOMIAL_NAN __longlong_as_double(0x7ff8000000000000ll)

// The degree, or -1 where there is none.
__device__ inline i64 polynomial_degree(double n) { return n > -1.0 && n < 9.2e18 ? (i64)n : -1; }

__device__ inline double polynomial_parity(i64 n) { return n % 2 == 0 ? 1.0 : -1.0; }

// By the recurrence of a family: 0 Chebyshev, 1 and 2 Hermite, 3 Laguerre, 4 Legendre.
__device__ inline double polynomial_recurrence(i64 n, double first, double x, int family) {
    double before = 1.0, last = first;
    if (n == 0) return before;
    for (i64 i = 1; i < n; ++i) {
        double k = (double)i, next;
        if (family == 0) next = 2.0 * x * last - before;
        else if (family == 1) next = 2.0 * (x * last - k * before);
        else if (family == 2) next = x * last - k * before;
        else if (family == 3) next = ((2.0 * k + 1.0 - x) * last - k * before) / (k + 1.0);
        else next = ((2.0 * k + 1.0) * x * last - k * before) / (k + 1.0);
        before = last;
        last = next;
        if (last != last) break;
    }
    return last;
}

// Chebyshev's polynomials of the first to fourth kind: T, U, V and W.
__device__ inline double polynomial_chebyshev(int kind, double x, double number) {
    i64 n = polynomial_degree(number);
    if (n < 0) return 0.0;
    double count = (double)n;
    if (fabs(x) == 1.0) {
        bool above = x > 0.0;
        double sign = polynomial_parity(n);
        if (kind == 0) return above ? 1.0 : sign;
        if (kind == 1) return (count + 1.0) * (above ? 1.0 : sign);
        if (kind == 2) return above ? 1.0 : sign * (2.0 * count + 1.0);
        return above ? 2.0 * count + 1.0 : sign;
    }
    if (n > (kind == 0 ? 6 : 8) && fabs(x) < 1.0) {
        double angle = acos(x), half = 0.5 * angle;
        if (kind == 0) return cos(count * angle);
        if (kind == 1) return sin((count + 1.0) * angle) / sin(angle);
        if (kind == 2) return cos((count + 0.5) * angle) / cos(half);
        return sin((count + 0.5) * angle) / sin(half);
    }
    double first = kind == 0 ? x : kind == 1 ? 2.0 * x : kind == 2 ? 2.0 * x - 1.0 : 2.0 * x + 1.0;
    return polynomial_recurrence(n, first, x, 0);
}

__device__ inline double polynomial_hermite(int family, double x, double number) {
    i64 n = polynomial_degree(number);
    if (n < 0) return 0.0;
    if (n > 512) return POLYNOMIAL_NAN;
    return polynomial_recurrence(n, family == 1 ? 2.0 * x : x, x, family);
}

__device__ inline double polynomial_laguerre(double x, double number) {
    i64 n = polynomial_degree(number);
    if (n < 0) return 0.0;
    return x == 0.0 ? 1.0 : polynomial_recurrence(n, 1.0 - x, x, 3);
}

__device__ inline double polynomial_legendre(double x, double number) {
    i64 n = polynomial_degree(number);
    if (n < 0) return 0.0;
    if (fabs(x) == 1.0) return x > 0.0 ? 1.0 : polynomial_parity(n);
    return polynomial_recurrence(n, x, x, 4);
}

__device__ __forceinline__ C t_chebyshev_polynomial_t(C x, C n) { return (C)polynomial_chebyshev(0, (double)x, (double)n); }
__device__ __forceinline__ C t_chebyshev_polynomial_u(C x, C n) { return (C)polynomial_chebyshev(1, (double)x, (double)n); }
__device__ __forceinline__ C t_chebyshev_polynomial_v(C x, C n) { return (C)polynomial_chebyshev(2, (double)x, (double)n); }
__device__ __forceinline__ C t_chebyshev_polynomial_w(C x, C n) { return (C)polynomial_chebyshev(3, (double)x, (double)n); }
__device__ __forceinline__ C t_shifted_chebyshev_polynomial_t(C x, C n) { return (C)polynomial_chebyshev(0, 2.0 * (double)x - 1.0, (double)n); }
__device__ __forceinline__ C t_shifted_chebyshev_polynomial_u(C x, C n) { return (C)polynomial_chebyshev(1, 2.0 * (double)x - 1.0, (double)n); }
__device__ __forceinline__ C t_shifted_chebyshev_polynomial_v(C x, C n) { return (C)polynomial_chebyshev(2, 2.0 * (double)x - 1.0, (double)n); }
__device__ __forceinline__ C t_shifted_chebyshev_polynomial_w(C x, C n) { return (C)polynomial_chebyshev(3, 2.0 * (double)x - 1.0, (double)n); }
__device__ __forceinline__ C t_hermite_polynomial_h(C x, C n) { return (C)polynomial_hermite(1, (double)x, (double)n); }
__device__ __forceinline__ C t_hermite_polynomial_he(C x, C n) { return (C)polynomial_hermite(2, (double)x, (double)n); }
__device__ __forceinline__ C t_laguerre_polynomial_l(C x, C n) { return (C)polynomial_laguerre((double)x, (double)n); }
__device__ __forceinline__ C t_legendre_polynomial_p(C x, C n) { return (C)polynomial_legendre((double)x, (double)n); }
