// What every program of kernels begins with: number types, how elements lie in memory, and loads and
// stores between the two. No header is included: NVRTC needs no path, and the simulated GPU compiles
// the same text.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;

// Half precision as bits; arithmetic is in f32.
struct f16 { u16 bits; };
struct bf16 { u16 bits; };

__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float((u32)x.bits << 16); }

__device__ __forceinline__ bf16 to_bf16(float x) {
    u32 bits = __float_as_uint(x);
    bf16 y;
    // To the nearest, ties to even; a NaN stays one.
    y.bits = x != x ? (u16)0x7fc0 : (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    return y;
}

#if TORCHRS_SIMULATED
__device__ __forceinline__ float to_float(f16 x) {
    u32 sign = (u32)(x.bits & 0x8000u) << 16, exponent = (x.bits >> 10) & 31u, fraction = x.bits & 1023u;
    if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | (fraction << 13));
    if (exponent == 0) {
        // A subnormal is a multiple of 2^-24.
        float value = (float)fraction * 5.9604644775390625e-8f;
        return sign ? -value : value;
    }
    return __uint_as_float(sign | ((exponent + 112u) << 23) | (fraction << 13));
}

__device__ __forceinline__ f16 to_f16(float x) {
    f16 y;
    u32 bits = __float_as_uint(x), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        y.bits = (u16)(sign | 0x7e00u);
    } else if (magnitude >= 0x477ff000u) {
        y.bits = (u16)(sign | 0x7c00u);
    } else if (magnitude < 0x38800000u) {
        // Adding 0.5 leaves the multiple of 2^-24 in the lowest bits, rounded by the addition.
        float shifted = __uint_as_float(magnitude) + 0.5f;
        y.bits = (u16)(sign | (__float_as_uint(shifted) - 0x3f000000u));
    } else {
        u32 rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
        y.bits = (u16)(sign | ((rounded - 0x38000000u) >> 13));
    }
    return y;
}
#else
__device__ __forceinline__ float to_float(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

__device__ __forceinline__ f16 to_f16(float x) {
    f16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}
#endif

// The numbers of `Format` on the other side.
enum Format {
    FORMAT_F64, FORMAT_F32, FORMAT_F16, FORMAT_BF16, FORMAT_I64, FORMAT_I32, FORMAT_I16, FORMAT_I8,
    FORMAT_U8, FORMAT_BOOL, FORMAT_BIT, FORMAT_WIDE,
};

// What a floating-point type is computed in.
template <class T> struct Wide { typedef float type; };
template <> struct Wide<double> { typedef double type; };

// Neighbours that one instruction moves: sixteen bytes unless it is said how many.
template <class T, int N = 16 / (int)sizeof(T)> struct __align__(sizeof(T) * N) Several { T values[N]; };

// Values of a compute type C: float, double or i64.
template <class C> struct Convert {
    static __device__ __forceinline__ C from(float x) { return (C)x; }
    static __device__ __forceinline__ C from(double x) { return (C)x; }
    static __device__ __forceinline__ C from(f16 x) { return (C)to_float(x); }
    static __device__ __forceinline__ C from(bf16 x) { return (C)to_float(x); }
    static __device__ __forceinline__ C from(i64 x) { return (C)x; }
    static __device__ __forceinline__ C from(i32 x) { return (C)x; }
    static __device__ __forceinline__ C from(i16 x) { return (C)x; }
    static __device__ __forceinline__ C from(i8 x) { return (C)x; }
    static __device__ __forceinline__ C from(u8 x) { return (C)x; }
};

__device__ __forceinline__ i64 to_i64(double x) {
    if (x != x) return 0;
    if (x >= 9223372036854775808.0) return 0x7fffffffffffffffll;
    if (x <= -9223372036854775808.0) return -0x7fffffffffffffffll - 1;
    return (i64)x;
}
__device__ __forceinline__ i64 to_i64(float x) { return to_i64((double)x); }
__device__ __forceinline__ i64 to_i64(i64 x) { return x; }

template <class C> __device__ __forceinline__ void put(double* to, C x) { *to = (double)x; }
template <class C> __device__ __forceinline__ void put(float* to, C x) { *to = (float)x; }
template <class C> __device__ __forceinline__ void put(f16* to, C x) { *to = to_f16((float)x); }
template <class C> __device__ __forceinline__ void put(bf16* to, C x) { *to = to_bf16((float)x); }
template <class C> __device__ __forceinline__ void put(i64* to, C x) { *to = to_i64(x); }
template <class C> __device__ __forceinline__ void put(i32* to, C x) { *to = (i32)to_i64(x); }
template <class C> __device__ __forceinline__ void put(i16* to, C x) { *to = (i16)to_i64(x); }
template <class C> __device__ __forceinline__ void put(i8* to, C x) { *to = (i8)to_i64(x); }
template <class C> __device__ __forceinline__ void put(u8* to, C x) { *to = (u8)to_i64(x); }

template <class C> __device__ __forceinline__ C load(const void* at, int format) {
    switch (format) {
        case FORMAT_F64: return Convert<C>::from(*(const double*)at);
        case FORMAT_F32: return Convert<C>::from(*(const float*)at);
        case FORMAT_F16: return Convert<C>::from(*(const f16*)at);
        case FORMAT_BF16: return Convert<C>::from(*(const bf16*)at);
        case FORMAT_I64: return Convert<C>::from(*(const i64*)at);
        case FORMAT_I32: return Convert<C>::from(*(const i32*)at);
        case FORMAT_I16: return Convert<C>::from(*(const i16*)at);
        case FORMAT_I8: return Convert<C>::from(*(const i8*)at);
        default: return Convert<C>::from(*(const u8*)at);
    }
}

template <class C> __device__ __forceinline__ void store(void* at, int format, C x) {
    switch (format) {
        case FORMAT_F64: put((double*)at, x); break;
        case FORMAT_F32: put((float*)at, x); break;
        case FORMAT_F16: put((f16*)at, x); break;
        case FORMAT_BF16: put((bf16*)at, x); break;
        case FORMAT_I64: put((i64*)at, x); break;
        case FORMAT_I32: put((i32*)at, x); break;
        case FORMAT_I16: put((i16*)at, x); break;
        case FORMAT_I8: put((i8*)at, x); break;
        case FORMAT_U8: put((u8*)at, x); break;
        case FORMAT_BOOL: *(u8*)at = x != (C)0; break;
        default: *(u8*)at = (u8)(to_i64(x) & 1); break;
    }
}

// This thread's first element and the distance to its next, in a grid of any size.
__device__ __forceinline__ i64 first_index() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ i64 index_step() { return (i64)gridDim.x * blockDim.x; }

// The whole quotient of numbers of which neither is negative. The compiler's division of 64 bits is a call, around
// which registers are kept in memory; this one is not.
__device__ __forceinline__ i64 whole_quotient(i64 n, i64 by) {
    if (((n | by) >> 32) == 0) return (i64)((u32)n / (u32)by);
#if TORCHRS_SIMULATED
    return n / by;
#else
    // Each turn finds some 19 bits: the estimate is a little less than the quotient, never more.
    float inverse = __fdividef(1.0f, (float)by) * 0.999998f;
    i64 quotient = 0;
    while (n >= by) {
        i64 part = (i64)((float)n * inverse);
        part = part > 0 ? part : 1;
        quotient += part;
        n -= part * by;
    }
    return quotient;
#endif
}
