// The special functions of formulas, as crates/cpu/src/numbers/math/special.rs has them: in f64, also for f32.

#define TWO_BY_SQRT_PI 1.12837916709551257390
#define POSITIVE_INFINITY __longlong_as_double(0x7ff0000000000000ll)
#define NOT_A_NUMBER __longlong_as_double(0x7ff8000000000000ll)

__device__ inline double special_erfc(double x) { return erfc(x); }

__device__ inline double special_erfcx(double x) {
    if (x < 25.0) return exp(x * x) * erfc(x);
    double z = 0.5 / (x * x);
    return 0.5 * TWO_BY_SQRT_PI / x * (1.0 - z * (1.0 - 3.0 * z * (1.0 - 5.0 * z * (1.0 - 7.0 * z))));
}

// The y >= 0 with erfc(y) = c, for 0 <= c <= 1; else NaN.
__device__ inline double erfc_inverse(double c) {
    if (!(c > 0.0 && c <= 1.0)) return c == 0.0 ? POSITIVE_INFINITY : NOT_A_NUMBER;
    // Winitzki's approximation, within 0.2 %, then Halley's steps.
    double power = log(c * (2.0 - c));
    double b = 2.0 / (3.14159265358979323846 * 0.147) + 0.5 * power;
    double y = sqrt(fmax(sqrt(b * b - power / 0.147) - b, 0.0));
    if (c < 1e-290) {
        // erfc has few digits there; its logarithm has all, for Newton's steps.
        for (int i = 0; i < 4; ++i) {
            double scaled = special_erfcx(y);
            y += (log(scaled) - y * y - log(c)) * scaled / TWO_BY_SQRT_PI;
        }
        return y;
    }
    for (int i = 0; i < 4; ++i) {
        double step = (erfc(y) - c) / (TWO_BY_SQRT_PI * exp(-y * y));
        y += step / (1.0 - y * step);
    }
    return y;
}

// The error function below 1, where its series needs few terms.
__device__ inline double erf_series(double x) {
    double z = 2.0 * x * x, term = x, sum = x, k = 1.0;
    while (term > sum * 1e-17) {
        k += 2.0;
        term *= z / k;
        sum += term;
    }
    return TWO_BY_SQRT_PI * exp(-x * x) * sum;
}

__device__ inline double special_erfinv(double x) {
    double a = fabs(x), y = erfc_inverse(1.0 - a);
    if (a < 0.5) {
        // erfc loses small values; one step of Newton on erf(y) by its series.
        double error = a - erf_series(y);
        y += error / (TWO_BY_SQRT_PI * exp(-y * y));
    }
    return copysign(y, x);
}

__device__ inline double special_ndtri(double p) {
    const double root = 1.41421356237309504880;
    return p < 0.5 ? -root * erfc_inverse(2.0 * p) : root * erfc_inverse(2.0 - 2.0 * p);
}

__device__ inline double special_lgamma(double x) { return lgamma(x); }

__device__ inline double special_digamma(double x) {
    const double pi = 3.14159265358979323846;
    if (x == 0.0) return copysign(POSITIVE_INFINITY, -x);
    double reflected = 0.0;
    if (x < 0.0) {
        if (x == floor(x)) return NOT_A_NUMBER;
        // The distance from the nearest integer keeps the tangent exact.
        reflected = pi / tan(pi * (x - round(x)));
        x = 1.0 - x;
    }
    double shifted = 0.0;
    while (x < 10.0) {
        shifted += 1.0 / x;
        x += 1.0;
    }
    double z = 1.0 / (x * x);
    double series = z * (1.0 / 12.0 - z * (1.0 / 120.0 - z * (1.0 / 252.0 - z * (1.0 / 240.0
        - z * (1.0 / 132.0 - z * (691.0 / 32760.0 - z / 12.0))))));
    return log(x) - 0.5 / x - series - shifted - reflected;
}

__device__ inline double special_trigamma(double x) {
    const double pi = 3.14159265358979323846;
    double reflected = 0.0, sum = 0.0;
    bool below = x < 0.5;
    if (below) {
        // Not 0 at the poles, as pi is rounded.
        double sine = sin(pi * x);
        reflected = pi * pi / (sine * sine);
        x = 1.0 - x;
    }
    while (x < 10.0) {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    double z = 1.0 / (x * x);
    double series = z * (1.0 / 6.0 - z * (1.0 / 30.0 - z * (1.0 / 42.0 - z * (1.0 / 30.0
        - z * (5.0 / 66.0 - z * (691.0 / 2730.0 - z * 7.0 / 6.0))))));
    double positive = sum + (1.0 + 0.5 / x + series) / x;
    return below ? reflected - positive : positive;
}

// Hurwitz's zeta function by Euler and Maclaurin.
__device__ inline double special_zeta(double s, double q) {
    if (s == 1.0) return POSITIVE_INFINITY;
    if (!(s > 1.0) || q != q) return NOT_A_NUMBER;
    if (q <= 0.0) {
        if (q == floor(q)) return POSITIVE_INFINITY;
        // Powers of negative numbers need a whole exponent.
        if (s != floor(s)) return NOT_A_NUMBER;
    }
    // B_2k / (2k)!
    const double coefficients[8] = {
        1.0 / 12.0, -1.0 / 720.0, 1.0 / 30240.0, -1.0 / 1209600.0, 1.0 / 47900160.0,
        -691.0 / 1307674368000.0, 1.0 / 74724249600.0, -3617.0 / 10670622842880000.0,
    };
    double sum = 0.0;
    while (q < 12.0) {
        sum += pow(q, -s);
        q += 1.0;
    }
    double power = pow(q, -s);
    sum += power * q / (s - 1.0) + 0.5 * power;
    double factor = s * power / q;
    for (int k = 0; k < 8; ++k) {
        sum += factor * coefficients[k];
        factor *= (s + 2.0 * k + 1.0) * (s + 2.0 * k + 2.0) / (q * q);
    }
    return sum;
}

// Modified Bessel functions of the first kind of |x|, in two factors, so that they overflow no earlier
// than the result; or times e^-|x|.
__device__ inline double bessel(double x, double order, bool scaled) {
    double a = fabs(x);
    if (a != a) return a;
    // Far beyond where it is infinite, the factors of infinity itself would be infinity and 0.
    if (!scaled && a > 1e4) a = 1e4;
    if (a <= 30.0) {
        // The power series: all of its terms are positive.
        double z = 0.25 * a * a, term = order == 0.0 ? 1.0 : 0.5 * a, sum = 0.0, k = 0.0;
        while (term > sum * 1e-17) {
            sum += term;
            k += 1.0;
            term *= z / (k * (k + order));
        }
        return scaled ? sum * exp(-a) : sum;
    }
    // The asymptotic series in 1 / (8 a), which has enough falling terms.
    double term = 1.0, sum = 1.0;
    for (double k = 1.0; fabs(term) > 1e-17 && k < 40.0; k += 1.0) {
        double odd = 2.0 * k - 1.0;
        term *= (odd * odd - 4.0 * order * order) / (8.0 * a * k);
        sum += term;
    }
    double result = sum / sqrt(2.0 * 3.14159265358979323846 * a), half = exp(0.5 * a);
    return scaled ? result : half * (half * result);
}

__device__ inline double special_i0(double x) { return bessel(x, 0.0, false); }
__device__ inline double special_i1(double x) { return copysign(bessel(x, 1.0, false), x); }
__device__ inline double special_i0e(double x) { return bessel(x, 0.0, true); }
__device__ inline double special_i1e(double x) { return copysign(bessel(x, 1.0, true), x); }

// What a formula calls `name` is `t_name`; of those that it calls, SPECIAL(name) is written below this file.
#define SPECIAL(name) __device__ __forceinline__ C t_##name(C x) { return (C)special_##name((double)x); }
__device__ __forceinline__ C t_i1_slope(C x, C y) { return t_abs(x) < (C)0.25 ? t_i1_slope_near(x) : (C)special_i0((double)x) - y / x; }
__device__ __forceinline__ C t_zeta(C s, C q) { return (C)special_zeta((double)s, (double)q); }
