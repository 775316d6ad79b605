// Bits, casts, conversions with a rounding, and arithmetic that is not contracted.

template <class To, class From> static inline To __sim_cast(From from) {
    static_assert(sizeof(To) == sizeof(From), "a cast between sizes");
    To to;
    __builtin_memcpy(&to, &from, sizeof(to));
    return to;
}
static inline int __float_as_int(float x) { return __sim_cast<int>(x); }
static inline unsigned __float_as_uint(float x) { return __sim_cast<unsigned>(x); }
static inline float __int_as_float(int x) { return __sim_cast<float>(x); }
static inline float __uint_as_float(unsigned x) { return __sim_cast<float>(x); }
static inline long long __double_as_longlong(double x) { return __sim_cast<long long>(x); }
static inline double __longlong_as_double(long long x) { return __sim_cast<double>(x); }
static inline int __double2hiint(double x) { return (int)(__sim_cast<unsigned long long>(x) >> 32); }
static inline int __double2loint(double x) { return (int)__sim_cast<unsigned long long>(x); }
static inline double __hiloint2double(int hi, int lo) {
    return __sim_cast<double>((unsigned long long)(unsigned)hi << 32 | (unsigned)lo);
}

static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __brev(unsigned x) {
    x = (x & 0x55555555u) << 1 | (x >> 1 & 0x55555555u);
    x = (x & 0x33333333u) << 2 | (x >> 2 & 0x33333333u);
    x = (x & 0x0f0f0f0fu) << 4 | (x >> 4 & 0x0f0f0f0fu);
    return __builtin_bswap32(x);
}
static inline unsigned long long __brevll(unsigned long long x) {
    return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
    unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        unsigned which = s >> (4 * i);
        unsigned byte = (unsigned)(both >> (8 * (which & 7))) & 0xff;
        if (which & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << (8 * i);
    }
    return result;
}
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n) {
    return (unsigned)(((unsigned long long)hi << 32 | lo) << (n & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n) {
    return (unsigned)(((unsigned long long)hi << 32 | lo) >> (n & 31));
}
static inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
static inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
static inline unsigned __sad(int a, int b, unsigned c) { return (a > b ? a - b : b - a) + c; }
static inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a > b ? a - b : b - a) + c; }
static inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; ++i) c += (int)(signed char)(a >> (8 * i)) * (int)(signed char)(b >> (8 * i));
    return c;
}

template <class T> static inline T __ldg(const T* p) { return *p; }
template <class T> static inline T __ldcg(const T* p) { return *p; }
template <class T> static inline T __ldca(const T* p) { return *p; }
template <class T> static inline T __ldcs(const T* p) { return *p; }
template <class T> static inline T __ldlu(const T* p) { return *p; }
template <class T> static inline T __ldcv(const T* p) { return *(const volatile T*)p; }
template <class T> static inline void __stcg(T* p, T v) { *p = v; }
template <class T> static inline void __stcs(T* p, T v) { *p = v; }
template <class T> static inline void __stwb(T* p, T v) { *p = v; }
template <class T> static inline void __stwt(T* p, T v) { *p = v; }

// A conversion on the GPU saturates, and gives zero for a NaN.
template <class To> static inline To __sim_saturate(double x, double least, double most) {
    if (x != x) return 0;
    if (x <= least) return (To)least;
    if (x >= most) return sizeof(To) == 8 && (To)-1 > 0 ? (To)~0ull : sizeof(To) == 8 ? (To)(~0ull >> 1) : (To)most;
    return (To)x;
}
#define __sim_rounded(suffix, function)                                                               \
    static inline int __float2int_##suffix(float x) { return __sim_saturate<int>(function(x), -0x1p31, 0x7fffffffp0); }      \
    static inline unsigned __float2uint_##suffix(float x) { return __sim_saturate<unsigned>(function(x), 0, 0xffffffffp0); } \
    static inline long long __float2ll_##suffix(float x) { return __sim_saturate<long long>(function(x), -0x1p63, 0x1p63); } \
    static inline unsigned long long __float2ull_##suffix(float x) { return __sim_saturate<unsigned long long>(function(x), 0, 0x1p64); } \
    static inline int __double2int_##suffix(double x) { return __sim_saturate<int>(function(x), -0x1p31, 0x7fffffffp0); }    \
    static inline unsigned __double2uint_##suffix(double x) { return __sim_saturate<unsigned>(function(x), 0, 0xffffffffp0); } \
    static inline long long __double2ll_##suffix(double x) { return __sim_saturate<long long>(function(x), -0x1p63, 0x1p63); } \
    static inline unsigned long long __double2ull_##suffix(double x) { return __sim_saturate<unsigned long long>(function(x), 0, 0x1p64); }
__sim_rounded(rn, rint) __sim_rounded(rz, trunc) __sim_rounded(ru, ceil) __sim_rounded(rd, floor)
#undef __sim_rounded
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline float __ll2float_rn(long long x) { return (float)x; }
static inline float __ull2float_rn(unsigned long long x) { return (float)x; }
static inline double __int2double_rn(int x) { return (double)x; }
static inline double __uint2double_rn(unsigned x) { return (double)x; }
static inline double __ll2double_rn(long long x) { return (double)x; }
static inline double __ull2double_rn(unsigned long long x) { return (double)x; }
static inline float __double2float_rn(double x) { return (float)x; }

// The compiler does not join an addition that it cannot see with a product.
template <class T> static inline T __sim_opaque(T x) {
    volatile T seen = x;
    return seen;
}
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return __sim_opaque(a * b); }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __frsqrt_rn(float x) { return rsqrtf(x); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return __sim_opaque(a * b); }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline double __drcp_rn(double x) { return 1.0 / x; }
static inline double __dsqrt_rn(double x) { return sqrt(x); }
