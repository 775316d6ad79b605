// The functions of formulas (src/ops/pointwise/formula.rs), for the compute type C. What a formula
// calls `name` is `t_name` here. The table of them is crates/loops/src/functions.rs.

#define T_PI 3.14159265358979323846
#define T_FRAC_PI_2 1.57079632679489661923
#define T_FRAC_1_SQRT_2 0.70710678118654752440
#define T_FRAC_2_SQRT_PI 1.12837916709551257390
#define T_SQRT_2 1.41421356237309504880
#define T_LN_2 0.69314718055994530942
#define T_LN_10 2.30258509299404568402
#define T_LOG2_E 1.44269504088896340736
#define T_LOG10_E 0.43429448190325182765
#define T_INFINITY __longlong_as_double(0x7ff0000000000000ll)

__device__ __forceinline__ C t_select(bool condition, C a, C b) { return condition ? a : b; }
__device__ __forceinline__ bool t_lt(C a, C b) { return a < b; }
__device__ __forceinline__ bool t_le(C a, C b) { return a <= b; }
__device__ __forceinline__ bool t_gt(C a, C b) { return a > b; }
__device__ __forceinline__ bool t_ge(C a, C b) { return a >= b; }
__device__ __forceinline__ bool t_eq(C a, C b) { return a == b; }
__device__ __forceinline__ bool t_ne(C a, C b) { return a != b; }
__device__ __forceinline__ C t_stepwise(C x) { return x; }
__device__ __forceinline__ C t_sign(C x) { return (C)((x > (C)0) - (x < (C)0)); }
__device__ __forceinline__ C t_maximum(C a, C b) { return a != a ? a : a > b ? a : b; }
__device__ __forceinline__ C t_minimum(C a, C b) { return a != a ? a : a < b ? a : b; }

#if COMPUTE_I64
__device__ __forceinline__ C t_abs(C x) { return x < 0 ? (C)(0 - (u64)x) : x; }
__device__ __forceinline__ C t_floor(C x) { return x; }
__device__ __forceinline__ C t_ceil(C x) { return x; }
__device__ __forceinline__ C t_round(C x) { return x; }
__device__ __forceinline__ C t_trunc(C x) { return x; }
__device__ __forceinline__ bool t_signbit(C x) { return x < 0; }
// Divisions of 32 bits where that is enough, which the compiler knows of narrow types: those of 64 are long.
__device__ __forceinline__ bool t_both_narrow(C a, C b) { return a == (C)(i32)a && b == (C)(i32)b; }
// Quotients by 0 are 0; the least number by -1 is itself.
__device__ __forceinline__ C t_quotient(C a, C b) {
    if (b == 0) return 0;
    if (b == -1) return (C)(0 - (u64)a);
    return t_both_narrow(a, b) ? (C)((i32)a / (i32)b) : a / b;
}
// `a * t_over * b` is that quotient.
struct Over {};
struct Dividend { C value; };
#define t_over Over()
__device__ __forceinline__ Dividend operator*(C a, Over) { return Dividend{a}; }
__device__ __forceinline__ C operator*(Dividend a, C b) { return t_quotient(a.value, b); }
__device__ __forceinline__ C t_fmod(C a, C b) {
    if (b == 0 || b == -1) return 0;
    return t_both_narrow(a, b) ? (C)((i32)a % (i32)b) : a % b;
}
__device__ __forceinline__ C t_remainder(C a, C b) {
    C r = t_fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
__device__ __forceinline__ C t_floor_divide(C a, C b) {
    C q = t_quotient(a, b);
    bool inexact = (C)((u64)q * (u64)b) != a;
    return inexact && (a < 0) != (b < 0) ? q - 1 : q;
}
__device__ __forceinline__ C t_pow(C base, C exponent) {
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? ((exponent & 1) ? -1 : 1) : 0;
    u64 y = 1, b = (u64)base;
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1) y *= b;
        b *= b;
    }
    return (C)y;
}
__device__ __forceinline__ C t_shift_left(C a, C bits) { return bits >= 0 && bits < 64 ? (C)((u64)a << bits) : 0; }
__device__ __forceinline__ C t_shift_right(C a, C bits) { return a >> (bits >= 0 && bits < 64 ? bits : 63); }
__device__ __forceinline__ C t_gcd(C a, C b) {
    while (b != 0) {
        C r = t_fmod(a, b);
        a = b;
        b = r;
    }
    return t_abs(a);
}
#else
#if COMPUTE_F32
#define MATH(name) name##f
#else
#define MATH(name) name
#endif
// CUDA C's own functions: of those that a formula calls, ONE(name) is written below this file.
#define ONE(name) __device__ __forceinline__ C t_##name(C x) { return MATH(name)(x); }
ONE(floor) ONE(ceil) ONE(trunc)
__device__ __forceinline__ C t_abs(C x) { return MATH(fabs)(x); }
__device__ __forceinline__ C t_round(C x) { return MATH(rint)(x); }
__device__ __forceinline__ C t_rsqrt(C x) { return (C)1 / MATH(sqrt)(x); }
// Nothing is left of x far below 0, not even of an infinite one.
__device__ __forceinline__ C t_gelu(C x) { return x * (x < (C)-40 ? (C)0 : MATH(normcdf)(x)); }
__device__ __forceinline__ C t_sigmoid(C x) { return (C)1 / ((C)1 + MATH(exp)(-x)); }
__device__ __forceinline__ bool t_signbit(C x) { return x < (C)0 || (C)1 / x < (C)0; }
__device__ __forceinline__ C t_quotient(C a, C b) { return a / b; }
__device__ __forceinline__ C t_fmod(C a, C b) { return MATH(fmod)(a, b); }
__device__ __forceinline__ C t_remainder(C a, C b) {
    C r = MATH(fmod)(a, b);
    return r != (C)0 && (b < (C)0) != (r < (C)0) ? r + b : r;
}
__device__ __forceinline__ C t_floor_divide(C a, C b) {
    if (b == (C)0) return a / b;
    // From the exact remainder, because a / b may round up to the next integer.
    C r = MATH(fmod)(a, b), q = (a - r) / b;
    if (r != (C)0 && (b < (C)0) != (r < (C)0)) q -= (C)1;
    if (q == (C)0) return MATH(copysign)((C)0, a / b);
    C rounded = MATH(floor)(q);
    return q - rounded > (C)0.5 ? rounded + (C)1 : rounded;
}
__device__ __forceinline__ C t_pow(C a, C b) { return MATH(pow)(a, b); }
__device__ __forceinline__ C t_atan2(C a, C b) { return MATH(atan2)(a, b); }
__device__ __forceinline__ C t_nextafter(C a, C b) { return MATH(nextafter)(a, b); }
// a / (a^2 + b^2), 0 at the origin; by powers of two the squares do not underflow.
__device__ __forceinline__ C t_over_squares(C a, C b) {
    C largest = t_maximum(t_abs(a), t_abs(b));
    if (largest == (C)0) return (C)0;
    C scale = largest < (C)1e-15 ? (C)1.2089258196146292e24 : (C)1;
#if !COMPUTE_F32
    if (largest < 1e-130) scale = 3.432398830065304e156;
#endif
    C x = a * scale, y = b * scale;
    return x / (x * x + y * y) * scale;
}
// The derivative of sin(pi x) / (pi x): near 0 by its series.
__device__ __forceinline__ C t_sinc_slope(C x) {
    C angle = x * (C)T_PI;
    if (t_abs(x) < (C)0.25) {
        C z = angle * angle, series = (C)(1.0 / 93405312000.0) - z * (C)(1.0 / 22230464256000.0);
        series = z * (z * series - (C)(1.0 / 518918400.0)) + (C)(1.0 / 3991680.0);
        series = z * (z * (z * series - (C)(1.0 / 45360.0)) + (C)(1.0 / 840.0)) - (C)(1.0 / 30.0);
        return x * (C)(T_PI * T_PI) * -(z * series + (C)(1.0 / 3.0));
    }
    return (angle * MATH(cos)(angle) - MATH(sin)(angle)) / (x * x * (C)T_PI);
}
// The derivative of the Bessel function I1 by its series, up to 1/4.
__device__ __forceinline__ C t_i1_slope_near(C x) {
    C z = x * x, series = z * (C)(11.0 / 176947200.0) + (C)(9.0 / 1474560.0);
    return z * (z * (z * (z * series + (C)(7.0 / 18432.0)) + (C)(5.0 / 384.0)) + (C)(3.0 / 16.0)) + (C)0.5;
}
// The same of J1: the terms of I1's with alternating signs.
__device__ __forceinline__ C t_j1_slope_near(C x) {
    C z = -(x * x), series = z * (C)(11.0 / 176947200.0) + (C)(9.0 / 1474560.0);
    return z * (z * (z * (z * series + (C)(7.0 / 18432.0)) + (C)(5.0 / 384.0)) + (C)(3.0 / 16.0)) + (C)0.5;
}
#endif
