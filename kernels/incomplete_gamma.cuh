// The regularised incomplete gamma functions, as crates/cpu/src/numbers/math/incomplete_gamma.rs has them: in f64, also for f32.

#define GAMMA_INFINITY __longlong_as_double(0x7ff0000000000000ll)
#define GAMMA_NAN __longlong_as_double(0x7ff8000000000000ll)
#define TWO_PI 6.28318530717958647693

// mu - log(1 + mu) for |mu| <= 0.3.
__device__ inline double gamma_excess(double mu) {
    double t = mu / (2.0 + mu), z = t * t, power = t * z, sum = 0.0;
    for (double k = 3.0; k < 32.0; k += 2.0) {
        sum += power / k;
        power *= z;
    }
    return 2.0 * z / (1.0 - t) - 2.0 * sum;
}

// x^a e^-x / gamma(a + 1).
__device__ inline double gamma_density(double a, double x) {
    if (a < 10.0) return exp(a * log(x) - x - lgamma(a + 1.0));
    // By Stirling's series, so that large numbers do not cancel.
    double z = 1.0 / (a * a);
    double correction =
        (1.0 / 12.0 - z * (1.0 / 360.0 - z * (1.0 / 1260.0 - z * (1.0 / 1680.0 - z / 1188.0)))) / a;
    double mu = (x - a) / a;
    double distance = fabs(mu) <= 0.3 ? gamma_excess(mu) : mu - log(x / a);
    return exp(-a * distance - correction) / sqrt(TWO_PI * a);
}

// The lower function by its power series.
__device__ inline double gamma_power_series(double a, double x) {
    double term = 1.0, sum = 1.0, n = a;
    for (int i = 0; i < 20000; ++i) {
        n += 1.0;
        term *= x / n;
        sum += term;
        if (term < sum * 1e-17) break;
    }
    return gamma_density(a, x) * sum;
}

// The upper function by its continued fraction, for x > 1 and x > a.
__device__ inline double gamma_fraction(double a, double x) {
    double b = x + 1.0 - a, c = 1e300, d = 1.0 / b, value = d;
    for (double k = 1.0; k < 20000.0; k += 1.0) {
        double numerator = -k * (k - a);
        b += 2.0;
        d = 1.0 / (numerator * d + b);
        c = b + numerator / c;
        double factor = c * d;
        value *= factor;
        if (fabs(factor - 1.0) < 1e-16) break;
    }
    return gamma_density(a, x) * a * value;
}

// The upper function of small x.
__device__ inline double gamma_small(double a, double x) {
    double factor = 1.0, sum = 0.0;
    for (double n = 1.0; n < 200.0; n += 1.0) {
        factor *= -x / n;
        double term = factor / (a + n);
        sum += term;
        if (fabs(term) <= fabs(sum) * 1e-17) break;
    }
    double power = a * log(x) - lgamma(a + 1.0);
    return -expm1(power) - exp(power) * a * sum;
}

// The lower or the upper function near a = x, for a >= 20, by Temme's uniform expansion.
__device__ inline double gamma_uniform(double a, double x, bool upper) {
    const double expansion[26] = {
        -0.3333333333333333, 0.08333333333333333, -0.014814814814814815,
        0.0011574074074074074, 0.0003527336860670195, -0.0001787551440329218,
        3.919263178522438e-5, -2.185448510679992e-6, -1.85406221071516e-6,
        8.296711340953087e-7, -1.7665952736826078e-7, 6.707853543401498e-9,
        1.0261809784240309e-8, -4.382036018453353e-9, 9.14769958223679e-10,
        -2.5514193994946248e-11, -5.830772132550426e-11, 2.4361948020667415e-11,
        -5.0276692801141756e-12, 1.1004392031956135e-13, 3.371763262400985e-13,
        -1.392388722418162e-13, 2.8534893807047445e-14, -5.139111834242572e-16,
        -1.9752288294349442e-15, 8.099521156704561e-16,
    };
    double mu = (x - a) / a, half = gamma_excess(mu), eta = copysign(sqrt(2.0 * half), mu);
    // Two numbers behind the one that is being made.
    double next = 0.0, after = 0.0, sum = 0.0;
    for (int n = 25; n >= 0; --n) {
        double b = expansion[n] + (n + 2.0) * after / a;
        after = next;
        next = b;
        sum = sum * eta + b;
    }
    double remainder = exp(-a * half) / sqrt(TWO_PI * a) * a / (a + after) * sum;
    double root = eta * sqrt(0.5 * a);
    return upper ? 0.5 * erfc(root) + remainder : 0.5 * erfc(-root) - remainder;
}

__device__ inline double incomplete_gamma(double a, double x, bool upper) {
    const double none = upper ? 1.0 : 0.0, all = upper ? 0.0 : 1.0;
    // The order of these tests is PyTorch's, which decides what an infinite number makes of NaN.
    if (x < 0.0 || a < 0.0) return GAMMA_NAN;
    if (a == 0.0) return x > 0.0 ? all : GAMMA_NAN;
    if (x == 0.0) return none;
    if (a == GAMMA_INFINITY) return x == GAMMA_INFINITY ? GAMMA_NAN : none;
    if (x == GAMMA_INFINITY) return all;
    if (a != a || x != x) return GAMMA_NAN;
    if (a >= 20.0 && fabs(x - a) <= 0.3 * a) return gamma_uniform(a, x, upper);
    if (x > 1.1) {
        double value = x < a ? gamma_power_series(a, x) : gamma_fraction(a, x);
        return (x < a) == upper ? 1.0 - value : value;
    }
    // Whichever is not small is made of the other.
    bool mostly_lower = x <= 0.5 ? -0.4 / log(x) < a : x * 1.1 < a;
    if (upper && !mostly_lower) return gamma_small(a, x);
    double lower = gamma_power_series(a, x);
    return upper ? 1.0 - lower : lower;
}

__device__ __forceinline__ C t_igamma(C a, C x) { return (C)incomplete_gamma((double)a, (double)x, false); }
__device__ __forceinline__ C t_igammac(C a, C x) { return (C)incomplete_gamma((double)a, (double)x, true); }
