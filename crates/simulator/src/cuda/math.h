// Mathematical functions: the host's, and those that only CUDA has.

#define __sim_math1(name)                                                                             \
    extern "C" double name(double) noexcept;                                                          \
    extern "C" float name##f(float) noexcept;                                                         \
    static inline float name(float x) { return name##f(x); }
#define __sim_math2(name)                                                                             \
    extern "C" double name(double, double) noexcept;                                                  \
    extern "C" float name##f(float, float) noexcept;                                                  \
    static inline float name(float x, float y) { return name##f(x, y); }
__sim_math1(sin) __sim_math1(cos) __sim_math1(tan) __sim_math1(asin) __sim_math1(acos) __sim_math1(atan)
__sim_math1(sinh) __sim_math1(cosh) __sim_math1(tanh) __sim_math1(asinh) __sim_math1(acosh) __sim_math1(atanh)
__sim_math1(exp) __sim_math1(exp2) __sim_math1(expm1) __sim_math1(log) __sim_math1(log2) __sim_math1(log10)
__sim_math1(log1p) __sim_math1(logb) __sim_math1(sqrt) __sim_math1(cbrt) __sim_math1(floor) __sim_math1(ceil)
__sim_math1(round) __sim_math1(trunc) __sim_math1(rint) __sim_math1(nearbyint) __sim_math1(fabs)
__sim_math1(erf) __sim_math1(erfc) __sim_math1(lgamma) __sim_math1(tgamma)
__sim_math1(j0) __sim_math1(j1) __sim_math1(y0) __sim_math1(y1)
__sim_math2(pow) __sim_math2(fmod) __sim_math2(remainder) __sim_math2(atan2) __sim_math2(hypot)
__sim_math2(fdim) __sim_math2(fmin) __sim_math2(fmax) __sim_math2(copysign) __sim_math2(nextafter)
#undef __sim_math1
#undef __sim_math2

extern "C" {
double fma(double, double, double) noexcept;
float fmaf(float, float, float) noexcept;
double ldexp(double, int) noexcept;
float ldexpf(float, int) noexcept;
double scalbn(double, int) noexcept;
float scalbnf(float, int) noexcept;
double frexp(double, int*) noexcept;
float frexpf(float, int*) noexcept;
double modf(double, double*) noexcept;
float modff(float, float*) noexcept;
int ilogb(double) noexcept;
int ilogbf(float) noexcept;
long lrint(double) noexcept;
long lrintf(float) noexcept;
long lround(double) noexcept;
long lroundf(float) noexcept;
long long llrint(double) noexcept;
long long llrintf(float) noexcept;
long long llround(double) noexcept;
long long llroundf(float) noexcept;
int abs(int) noexcept;
long labs(long) noexcept;
long long llabs(long long) noexcept;
}
static inline float fma(float a, float b, float c) { return fmaf(a, b, c); }
static inline float ldexp(float x, int n) { return ldexpf(x, n); }
static inline float frexp(float x, int* n) { return frexpf(x, n); }
static inline float modf(float x, float* n) { return modff(x, n); }
static inline float pow(float x, int n) { return powf(x, (float)n); }
static inline double pow(double x, int n) { return pow(x, (double)n); }
static inline long abs(long x) { return x < 0 ? -x : x; }
static inline long long abs(long long x) { return x < 0 ? -x : x; }
static inline float abs(float x) { return fabsf(x); }
static inline double abs(double x) { return fabs(x); }

static inline bool isnan(float x) { return __builtin_isnan(x); }
static inline bool isnan(double x) { return __builtin_isnan(x); }
static inline bool isinf(float x) { return __builtin_isinf(x); }
static inline bool isinf(double x) { return __builtin_isinf(x); }
static inline bool isfinite(float x) { return __builtin_isfinite(x); }
static inline bool isfinite(double x) { return __builtin_isfinite(x); }
static inline bool signbit(float x) { return __builtin_signbit(x); }
static inline bool signbit(double x) { return __builtin_signbit(x); }

#define __sim_minmax(T, A, B)                                                                         \
    static inline T min(A a, B b) { return (T)a < (T)b ? (T)a : (T)b; }                               \
    static inline T max(A a, B b) { return (T)a > (T)b ? (T)a : (T)b; }
__sim_minmax(int, int, int)
__sim_minmax(unsigned, unsigned, unsigned)
__sim_minmax(unsigned, int, unsigned)
__sim_minmax(unsigned, unsigned, int)
__sim_minmax(long, long, long)
__sim_minmax(unsigned long, unsigned long, unsigned long)
__sim_minmax(unsigned long, long, unsigned long)
__sim_minmax(unsigned long, unsigned long, long)
__sim_minmax(long long, long long, long long)
__sim_minmax(unsigned long long, unsigned long long, unsigned long long)
__sim_minmax(unsigned long long, long long, unsigned long long)
__sim_minmax(unsigned long long, unsigned long long, long long)
#undef __sim_minmax
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline double min(float a, double b) { return fmin(a, b); }
static inline double max(float a, double b) { return fmax(a, b); }
static inline double min(double a, float b) { return fmin(a, b); }
static inline double max(double a, float b) { return fmax(a, b); }
static inline int umin(unsigned a, unsigned b) { return a < b ? a : b; }
static inline int umax(unsigned a, unsigned b) { return a > b ? a : b; }
static inline long long llmin(long long a, long long b) { return a < b ? a : b; }
static inline long long llmax(long long a, long long b) { return a > b ? a : b; }

// sin(pi x) and cos(pi x), exact where the argument is a multiple of a half.
static inline double sinpi(double x) {
    double r = fmod(x, 2.0);
    if (r > 1.0) r -= 2.0;
    if (r < -1.0) r += 2.0;
    if (r == 0.0 || r == 1.0 || r == -1.0) return copysign(0.0, x);
    if (r > 0.5) r = 1.0 - r;
    if (r < -0.5) r = -1.0 - r;
    return sin(r * 3.14159265358979323846);
}
static inline double cospi(double x) { return sinpi(0.5 + fabs(fmod(x, 2.0))); }

// The inverse of erfc for 0 < z < 2: a first guess, then steps of Halley's rule.
static inline double erfcinv(double z) {
    if (!(z > 0.0)) return z == 0.0 ? __builtin_inf() : __builtin_nan("");
    if (z >= 2.0) return z == 2.0 ? -__builtin_inf() : __builtin_nan("");
    if (z > 1.0) return -erfcinv(2.0 - z);
    double l = log(z * (2.0 - z)), t = 4.33074675078 + 0.5 * l;
    double y = sqrt(sqrt(t * t - l / 0.147) - t);
    for (int i = 0; i < 3; ++i) {
        double e = (erfc(y) - z) / (1.12837916709551257390 * exp(-y * y));
        y += e / (1.0 - y * e);
    }
    return y;
}
static inline double erfinv(double x) {
    double a = fabs(x);
    if (!(a < 0.5)) return copysign(erfcinv(1.0 - a), x);
    double y = x * 0.886226925452758;
    for (int i = 0; i < 4; ++i) {
        double e = (erf(y) - x) / (1.12837916709551257390 * exp(-y * y));
        y -= e / (1.0 + y * e);
    }
    return y;
}
static inline double erfcx(double x) { return x < 25.0 ? exp(x * x) * erfc(x) : 0.56418958354775628695 / x; }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline double rcbrt(double x) { return 1.0 / cbrt(x); }
static inline double exp10(double x) { return pow(10.0, x); }
static inline double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
static inline double normcdfinv(double p) { return -1.41421356237309504880 * erfcinv(2.0 * p); }
static inline void sincos(double x, double* s, double* c) { *s = sin(x); *c = cos(x); }
static inline void sincospi(double x, double* s, double* c) { *s = sinpi(x); *c = cospi(x); }
static inline float sincos(float x, float* s, float* c) { *s = sinf(x); *c = cosf(x); return 0; }
static inline void sincosf(float x, float* s, float* c) { *s = sinf(x); *c = cosf(x); }
static inline void sincospif(float x, float* s, float* c) { *s = (float)sinpi((double)x); *c = (float)cospi((double)x); }
#define __sim_in_double(name)                                                                         \
    static inline float name##f(float x) { return (float)name((double)x); }                           \
    static inline float name(float x) { return (float)name((double)x); }
__sim_in_double(sinpi) __sim_in_double(cospi) __sim_in_double(erfcinv) __sim_in_double(erfinv)
__sim_in_double(erfcx) __sim_in_double(rsqrt) __sim_in_double(rcbrt) __sim_in_double(exp10)
__sim_in_double(normcdf) __sim_in_double(normcdfinv)
#undef __sim_in_double
static inline double norm3d(double a, double b, double c) { return sqrt(a * a + b * b + c * c); }
static inline float norm3df(float a, float b, float c) { return (float)norm3d(a, b, c); }
static inline float nanf(const char*) { return __builtin_nanf(""); }
static inline double nan(const char*) { return __builtin_nan(""); }

// The fast ones, which are not less exact here.
static inline float __expf(float x) { return expf(x); }
static inline float __exp10f(float x) { return exp10f(x); }
static inline float __logf(float x) { return logf(x); }
static inline float __log2f(float x) { return log2f(x); }
static inline float __log10f(float x) { return log10f(x); }
static inline float __powf(float x, float y) { return powf(x, y); }
static inline float __sinf(float x) { return sinf(x); }
static inline float __cosf(float x) { return cosf(x); }
static inline float __tanf(float x) { return tanf(x); }
static inline float __tanhf(float x) { return tanhf(x); }
static inline void __sincosf(float x, float* s, float* c) { sincosf(x, s, c); }
static inline float __fdividef(float x, float y) { return x / y; }
static inline float fdividef(float x, float y) { return x / y; }
static inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
static inline float saturatef(float x) { return __saturatef(x); }
