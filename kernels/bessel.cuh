// Bessel functions of orders 0 and 1 and Airy's, as crates/cpu/src/numbers/math/bessel.rs has them: in f64, also for f32.

#define BESSEL_PI 3.14159265358979323846
#define BESSEL_EULER 0.5772156649015329
#define BESSEL_NEAR 2.0
#define BESSEL_FAR 25.0
#define BESSEL_TOP 80
#define BESSEL_INFINITY __longlong_as_double(0x7ff0000000000000ll)
#define BESSEL_NAN __longlong_as_double(0x7ff8000000000000ll)

struct BesselSeries { double of_zero, of_zero_harmonic, of_one, of_one_harmonic; };

// The power series of z = x^2 / 4.
__device__ inline BesselSeries bessel_series(double z) {
    BesselSeries sums = {1.0, 0.0, 1.0, 1.0};
    double zero = 1.0, one = 1.0, harmonic = 0.0, k = 0.0;
    while (fabs(zero) > 1e-18) {
        k += 1.0;
        harmonic += 1.0 / k;
        zero *= z / (k * k);
        one *= z / (k * (k + 1.0));
        sums.of_zero += zero;
        sums.of_zero_harmonic += zero * harmonic;
        sums.of_one += one;
        sums.of_one_harmonic += one * (2.0 * harmonic + 1.0 / (k + 1.0));
    }
    return sums;
}

// J of the order and the next one, and the sums for Y0 and Y1.
struct BesselRecurrence { double zero, one, even, odd; };

// The recurrence that runs down (J. C. P. Miller), for arguments from BESSEL_NEAR to BESSEL_FAR.
__device__ inline BesselRecurrence bessel_downwards(double order, double gamma, double x) {
    double factors[BESSEL_TOP / 2 + 1];
    factors[0] = order == 0.0 ? 1.0 : order * gamma;
    double rising = gamma;
    for (int k = 1; k <= BESSEL_TOP / 2; ++k) {
        rising *= order == 0.0 && k == 1 ? 1.0 : (order + k - 1.0) / k;
        factors[k] = (order + 2.0 * k) * rising;
    }
    double above = 0.0, here = 1e-250, norm = 0.0;
    BesselRecurrence sums = {0.0, 0.0, 0.0, 0.0};
    for (int m = BESSEL_TOP; m >= 0; --m) {
        double k = m / 2, sign = m / 2 % 2 == 0 ? 1.0 : -1.0;
        if (m % 2 == 0) {
            norm += here * factors[m / 2];
            if (m > 0) sums.even += sign * here / k;
        } else if (m > 1) {
            sums.odd += sign * here * m / (k * (k + 1.0));
        }
        if (m == 1) sums.one = here;
        if (m == 0) sums.zero = here;
        double below = 2.0 * (order + m) / x * here - above;
        above = here;
        here = below;
    }
    double scale = pow(0.5 * x, order) / norm;
    BesselRecurrence scaled = {sums.zero * scale, sums.one * scale, sums.even * scale, sums.odd * scale};
    return scaled;
}

// J or, for `second`, Y of the order from BESSEL_FAR on (Hankel).
__device__ inline double bessel_hankel(double order, double x, bool second) {
    double even = 1.0, odd = 0.0, term = 1.0;
    for (int k = 1; k <= 40 && fabs(term) > 1e-18; ++k) {
        double twice = 2.0 * k - 1.0;
        term *= (4.0 * order * order - twice * twice) / (8.0 * k * x);
        if (k % 4 == 0) even += term;
        else if (k % 4 == 1) odd += term;
        else if (k % 4 == 2) even -= term;
        else odd -= term;
    }
    // The phase is subtracted by the addition theorem: of a large x a difference would lose digits.
    double phase = (2.0 * order + 1.0) * (0.25 * BESSEL_PI);
    double sine = sin(x), cosine = cos(x);
    double c = cosine * cos(phase) + sine * sin(phase);
    double s = sine * cos(phase) - cosine * sin(phase);
    double amplitude = sqrt(2.0 / BESSEL_PI / x);
    return amplitude * (second ? s * even + c * odd : c * even - s * odd);
}

__device__ inline double special_bessel_j0(double x) {
    x = fabs(x);
    if (x <= BESSEL_NEAR) return bessel_series(-0.25 * x * x).of_zero;
    return x < BESSEL_FAR ? bessel_downwards(0.0, 1.0, x).zero : bessel_hankel(0.0, x, false);
}

__device__ inline double special_bessel_j1(double x) {
    double a = fabs(x), y;
    if (a <= BESSEL_NEAR) y = 0.5 * a * bessel_series(-0.25 * a * a).of_one;
    else y = a < BESSEL_FAR ? bessel_downwards(0.0, 1.0, a).one : bessel_hankel(1.0, a, false);
    return copysign(1.0, x) * y;
}

__device__ inline double special_bessel_y0(double x) {
    if (!(x > 0.0)) return x == 0.0 ? -BESSEL_INFINITY : BESSEL_NAN;
    double log_half = log(0.5 * x) + BESSEL_EULER;
    if (x <= BESSEL_NEAR) {
        BesselSeries sums = bessel_series(-0.25 * x * x);
        return 2.0 / BESSEL_PI * (log_half * sums.of_zero - sums.of_zero_harmonic);
    }
    if (!(x < BESSEL_FAR)) return bessel_hankel(0.0, x, true);
    BesselRecurrence sums = bessel_downwards(0.0, 1.0, x);
    return 2.0 / BESSEL_PI * (log_half * sums.zero - 2.0 * sums.even);
}

__device__ inline double special_bessel_y1(double x) {
    if (!(x > 0.0)) return x == 0.0 ? -BESSEL_INFINITY : BESSEL_NAN;
    double log_half = log(0.5 * x) + BESSEL_EULER;
    if (x <= BESSEL_NEAR) {
        BesselSeries sums = bessel_series(-0.25 * x * x);
        return 2.0 / BESSEL_PI * (0.5 * x * (log_half * sums.of_one - 0.5 * sums.of_one_harmonic) - 1.0 / x);
    }
    if (!(x < BESSEL_FAR)) return bessel_hankel(1.0, x, true);
    BesselRecurrence sums = bessel_downwards(0.0, 1.0, x);
    return 2.0 / BESSEL_PI * ((log_half - 1.0) * sums.one - sums.zero / x - sums.odd);
}

// e^x times K of the order and, for `next`, of the next one, by Temme's continued fraction, for x >= BESSEL_NEAR.
__device__ inline double bessel_fraction(double order, double x, bool next) {
    double first = 0.25 - order * order, a = -first, b = 2.0 * (1.0 + x), d = 1.0 / b, step = d, h = d;
    double before = 0.0, last = 1.0, c = first, q = first, sum = 1.0 + q * step;
    for (double k = 2.0; k < 500.0; k += 1.0) {
        a -= 2.0 * (k - 1.0);
        c *= -a / k;
        double following = (before - b * last) / a;
        before = last;
        last = following;
        q += c * last;
        b += 2.0;
        d = 1.0 / (b + a * d);
        step *= b * d - 1.0;
        h += step;
        sum += q * step;
        if (fabs(q * step) < 1e-17 * fabs(sum)) break;
    }
    double value = sqrt(0.5 * BESSEL_PI / x) / sum;
    return next ? value * (order + x + 0.5 - first * h) / x : value;
}

__device__ inline double bessel_second_kind(double x, bool next, bool scaled) {
    if (!(x > 0.0)) return x == 0.0 ? BESSEL_INFINITY : BESSEL_NAN;
    if (x == BESSEL_INFINITY) return 0.0;
    if (x > BESSEL_NEAR) return bessel_fraction(0.0, x, next) * (scaled ? 1.0 : exp(-x));
    BesselSeries sums = bessel_series(0.25 * x * x);
    double log_half = log(0.5 * x) + BESSEL_EULER;
    double value = next ? 1.0 / x + 0.5 * x * (log_half * sums.of_one - 0.5 * sums.of_one_harmonic)
                        : sums.of_zero_harmonic - log_half * sums.of_zero;
    return scaled ? value * exp(x) : value;
}

__device__ inline double special_modified_bessel_k0(double x) { return bessel_second_kind(x, false, false); }
__device__ inline double special_modified_bessel_k1(double x) { return bessel_second_kind(x, true, false); }
__device__ inline double special_scaled_modified_bessel_k0(double x) { return bessel_second_kind(x, false, true); }
__device__ inline double special_scaled_modified_bessel_k1(double x) { return bessel_second_kind(x, true, true); }

__device__ inline double special_spherical_bessel_j0(double x) {
    if (fabs(x) == BESSEL_INFINITY) return 0.0;
    return x == 0.0 ? 1.0 : sin(x) / x;
}

__device__ inline double special_airy_ai(double x) {
    double a = fabs(x);
    if (!(a < BESSEL_INFINITY)) return BESSEL_NAN;
    double zeta = 2.0 / 3.0 * a * sqrt(a);
    if (zeta < BESSEL_NEAR) {
        double cube = x * x * x, f = 1.0, g = x, even = 1.0, odd = x, k = 0.0;
        while (fabs(even) + fabs(odd) > 1e-19) {
            k += 3.0;
            even *= cube / (k * (k - 1.0));
            odd *= cube / (k * (k + 1.0));
            f += even;
            g += odd;
        }
        return 0.3550280538878172 * f - 0.2588194037928068 * g;
    }
    if (x > 0.0) return sqrt(a / 3.0) / BESSEL_PI * exp(-zeta) * bessel_fraction(1.0 / 3.0, zeta, false);
    double sum;
    if (zeta < BESSEL_FAR)
        sum = bessel_downwards(1.0 / 3.0, 2.6789385347077476, zeta).zero
            + bessel_downwards(-1.0 / 3.0, -4.062353818279201, zeta).zero;
    else sum = bessel_hankel(1.0 / 3.0, zeta, false) + bessel_hankel(-1.0 / 3.0, zeta, false);
    return sqrt(a) / 3.0 * sum;
}

#define BESSEL(name) __device__ __forceinline__ C t_##name(C x) { return (C)special_##name((double)x); }
