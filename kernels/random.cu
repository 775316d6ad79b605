// Numbers made of Philox's words as src/ops/random has them. Products and sums are rounded one by one (no
// contraction), as on the host.

#if !PARTED || PART_set
extern "C" __global__ void set_place(u64* place, u64 seed, u64 offset) {
    place[0] = seed;
    place[1] = offset;
}
#endif

// 53 random bits as a number in [0, 1).
__device__ __forceinline__ double unit64(u32 low, u32 high) {
    return (double)(((u64)low | (u64)high << 32) >> 11) * (1.0 / 9007199254740992.0);
}

template <int BITS> __device__ __forceinline__ float unit(u32 word) {
    return (float)(i32)(word >> (32 - BITS)) * (1.0f / (float)(1u << BITS));
}

// The logarithm of a number in (0, 1], as crates/cpu/src/numbers/math/single.rs.
__device__ __forceinline__ float log_of(float x) {
    u32 bits = __float_as_uint(x) - 0x3f3504f3u;
    float e = (float)((i32)bits >> 23), f = __uint_as_float((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    float q = -0.076344505f;
    q = fmaf(q, f, 0.12761553f);
    q = fmaf(q, f, -0.13160188f);
    q = fmaf(q, f, 0.14201762f);
    q = fmaf(q, f, -0.16623357f);
    q = fmaf(q, f, 0.20001227f);
    q = fmaf(q, f, -0.2500082f);
    q = fmaf(q, f, 0.3333333f);
    float z = f * f, tail = fmaf(-0.5f, z, f * z * q);
    return fmaf(e, 0.6933594f, f + fmaf(e, -2.1219444e-4f, tail));
}

__device__ __forceinline__ float signed_by(float v, i32 negative) {
    return __uint_as_float(__float_as_uint(v) ^ (u32)(negative & 2) << 30);
}

// Two normal numbers from two words (Box-Muller).
__device__ __forceinline__ void normal_pair(u32 first, u32 second, float mean, float std, float* out) {
    float radius = sqrtf(-2.0f * log_of(1.0f - unit<24>(first))) * std;
    // Sine and cosine of that many turns: to the nearest quarter, what is left is at most an eighth.
    float u = unit<24>(second);
    i32 quarter = (i32)(4.0f * u + 0.5f);
    float r = (u - 0.25f * (float)quarter) * 6.28318530717958647692f, z = r * r;
    float s = fmaf(fmaf(fmaf(2.718304e-6f, z, -1.9839335e-4f), z, 8.333329e-3f), z, -0.16666667f);
    s = fmaf(r * z, s, r);
    float c = fmaf(fmaf(fmaf(-2.721017e-7f, z, 2.479952e-5f), z, -1.3888883e-3f), z, 4.1666668e-2f);
    c = fmaf(z * z, c, fmaf(z, -0.5f, 1.0f));
    float sine = quarter & 1 ? c : s, cosine = quarter & 1 ? s : c;
    out[0] = radius * signed_by(cosine, quarter + 1) + mean;
    out[1] = radius * signed_by(sine, quarter) + mean;
}

// Random bits of a uniform number: as many as the type has, so that rounding never gives 1.
template <class T> struct Bits;
template <> struct Bits<float> { static const int COUNT = 24; };
template <> struct Bits<f16> { static const int COUNT = 11; };
template <> struct Bits<bf16> { static const int COUNT = 8; };

// How a block's words become EACH elements.
template <class T> struct Uniform {
    static const int EACH = 4;
    static __device__ __forceinline__ void make(Words words, double low, double span, T* out) {
        for (int i = 0; i < 4; ++i) put(out + i, unit<Bits<T>::COUNT>(words.w[i]) * (float)span + (float)low);
    }
};
template <> struct Uniform<double> {
    static const int EACH = 2;
    static __device__ __forceinline__ void make(Words words, double low, double span, double* out) {
        for (int i = 0; i < 2; ++i) out[i] = unit64(words.w[2 * i], words.w[2 * i + 1]) * span + low;
    }
};

template <class T> struct Normal {
    static const int EACH = 4;
    static __device__ __forceinline__ void make(Words words, double mean, double std, T* out) {
        float all[4];
        normal_pair(words.w[0], words.w[1], (float)mean, (float)std, all);
        normal_pair(words.w[2], words.w[3], (float)mean, (float)std, all + 2);
        for (int i = 0; i < 4; ++i) put(out + i, all[i]);
    }
};
template <> struct Normal<double> {
    static const int EACH = 2;
    static __device__ __forceinline__ void make(Words words, double mean, double std, double* out) {
        double radius = sqrt(-2.0 * log(1.0 - unit64(words.w[0], words.w[1]))) * std;
        double sine, cosine;
        sincospi(2.0 * unit64(words.w[2], words.w[3]), &sine, &cosine);
        out[0] = radius * cosine + mean;
        out[1] = radius * sine + mean;
    }
};

// `n` dense elements from an address on that is a multiple of a block's elements.
template <class D, class T>
__device__ __forceinline__ void fill(T* to, i64 n, Draw draw, double a, double b) {
    const int EACH = D::EACH;
    for (i64 block = first_index(); block * EACH < n; block += index_step()) {
        Several<T, EACH> made;
        D::make(philox((u64)block, draw.stream, draw.seed), a, b, made.values);
        if ((block + 1) * EACH <= n && (u64)to % sizeof(made) == 0) {
            ((Several<T, EACH>*)to)[block] = made;
        } else {
            for (int i = 0; i < EACH && block * EACH + i < n; ++i) to[block * EACH + i] = made.values[i];
        }
    }
}

// One where a uniform number of f64 is below the probability, which is the same for all or `each`'s.
template <class T>
__device__ __forceinline__ void bernoulli(T* to, const T* each, double p, i64 n, Draw draw, Refusal refusal) {
    for (i64 block = first_index(); block * 2 < n; block += index_step()) {
        Words words = philox((u64)block, draw.stream, draw.seed);
        for (int i = 0; i < 2 && block * 2 + i < n; ++i) {
            i64 at = block * 2 + i;
            double own = each ? Convert<double>::from(each[at]) : p;
            if (!(own >= 0.0 && own <= 1.0)) refuse(refusal.record, refusal.site, own, at, 1);
            put(to + at, (i64)(unit64(words.w[2 * i], words.w[2 * i + 1]) < own));
        }
    }
}

// Integers from `low` on, of which there are `span`: of half a block's words, or of all where there are many.
template <class T>
__device__ __forceinline__ void integers(T* to, i64 n, i64 low, u64 span, i32 truth, Draw draw) {
    bool many = span > 1ull << 32;
    for (i64 pair = first_index(); pair * 2 < n; pair += index_step()) {
        Words words = philox((u64)(many ? pair * 2 : pair), draw.stream, draw.seed);
        for (int i = 0; i < 2 && pair * 2 + i < n; ++i) {
            u64 number;
            if (many) {
                if (i == 1) words = philox((u64)(pair * 2 + 1), draw.stream, draw.seed);
                u64 first = words.w[0] | (u64)words.w[1] << 32, second = words.w[2] | (u64)words.w[3] << 32;
                u64 carried = __umul64hi(first, span), sum = second * span + carried;
                number = __umul64hi(second, span) + (sum < carried);
            } else {
                number = __umul64hi(words.w[2 * i] | (u64)words.w[2 * i + 1] << 32, span);
            }
            i64 made = (i64)((u64)low + number);
            put(to + pair * 2 + i, truth ? (i64)(made != 0) : made);
        }
    }
}

// y = x * scale and mask = 1 where the element's word is at least the threshold, else 0.
template <class T>
__device__ __forceinline__ void dropout(
    T* y, u8* mask, const T* x, i64 n, Draw draw, u64 threshold, double scale
) {
    typedef typename Wide<T>::type C;
    bool whole = (u64)y % sizeof(Several<T, 4>) == 0 && (u64)x % sizeof(Several<T, 4>) == 0;
    for (i64 block = first_index(); block * 4 < n; block += index_step()) {
        Words words = philox((u64)block, draw.stream, draw.seed);
        Several<T, 4> in, out;
        Several<u8, 4> kept;
        bool all = (block + 1) * 4 <= n && whole;
        if (all) {
            in = ((const Several<T, 4>*)x)[block];
        } else {
            for (int i = 0; i < 4; ++i) if (block * 4 + i < n) in.values[i] = x[block * 4 + i];
        }
        for (int i = 0; i < 4; ++i) {
            kept.values[i] = (u64)words.w[i] >= threshold;
            put(out.values + i, kept.values[i] ? Convert<C>::from(in.values[i]) * (C)scale : (C)0);
        }
        if (all) {
            ((Several<T, 4>*)y)[block] = out;
            ((Several<u8, 4>*)mask)[block] = kept;
        } else {
            for (int i = 0; i < 4; ++i) {
                if (block * 4 + i < n) {
                    y[block * 4 + i] = out.values[i];
                    mask[block * 4 + i] = kept.values[i];
                }
            }
        }
    }
}

// dx = g * scale where the mask is set, else 0.
template <class T>
__device__ __forceinline__ void dropout_backward(T* dx, const T* g, const u8* mask, i64 n, double scale) {
    typedef typename Wide<T>::type C;
    bool whole = (u64)dx % sizeof(Several<T, 4>) == 0 && (u64)g % sizeof(Several<T, 4>) == 0;
    i64 packs = whole ? n / 4 : 0;
    for (i64 i = first_index(); i < packs; i += index_step()) {
        Several<T, 4> in = ((const Several<T, 4>*)g)[i], out;
        Several<u8, 4> kept = ((const Several<u8, 4>*)mask)[i];
        for (int j = 0; j < 4; ++j) {
            put(out.values + j, kept.values[j] ? Convert<C>::from(in.values[j]) * (C)scale : (C)0);
        }
        ((Several<T, 4>*)dx)[i] = out;
    }
    for (i64 i = packs * 4 + first_index(); i < n; i += index_step()) {
        put(dx + i, mask[i] ? Convert<C>::from(g[i]) * (C)scale : (C)0);
    }
}

#define RANDOM(name, T)                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) uniform_##name(                                    \
        T* to, i64 n, u64 seed, u64 stream, const u64* place, double low, double span                    \
    ) { fill<Uniform<T>>(to, n, Draw(seed, stream, place), low, span); }                                 \
    extern "C" __global__ void __launch_bounds__(256) normal_##name(                                     \
        T* to, i64 n, u64 seed, u64 stream, const u64* place, double mean, double std                    \
    ) { fill<Normal<T>>(to, n, Draw(seed, stream, place), mean, std); }                                  \
    extern "C" __global__ void __launch_bounds__(256) dropout_##name(                                    \
        T* y, u8* mask, const T* x, i64 n, u64 seed, u64 stream, const u64* place, u64 threshold, double scale \
    ) { dropout(y, mask, x, n, Draw(seed, stream, place), threshold, scale); }                           \
    extern "C" __global__ void __launch_bounds__(256) dropout_backward_##name(                           \
        T* dx, const T* g, const u8* mask, i64 n, double scale                                           \
    ) { dropout_backward(dx, g, mask, n, scale); }                                                       \
    CHANCE(name, T)
#define CHANCE(name, T)                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) bernoulli_##name(                                  \
        T* to, const T* each, double p, i64 n, u64 seed, u64 stream, const u64* place, Refusal refusal   \
    ) { bernoulli(to, each, p, n, Draw(seed, stream, place), refusal); }                                 \
    extern "C" __global__ void __launch_bounds__(256) integers_##name(                                   \
        T* to, i64 n, i64 low, u64 span, i32 truth, u64 seed, u64 stream, const u64* place               \
    ) { integers(to, n, low, span, truth, Draw(seed, stream, place)); }
#if !PARTED || PART_f64
RANDOM(f64, double)
#endif
#if !PARTED || PART_f32
RANDOM(f32, float)
#endif
#if !PARTED || PART_f16
RANDOM(f16, f16)
#endif
#if !PARTED || PART_bf16
RANDOM(bf16, bf16)
#endif
#if !PARTED || PART_i64
CHANCE(i64, i64)
#endif
#if !PARTED || PART_i32
CHANCE(i32, i32)
#endif
#if !PARTED || PART_i16
CHANCE(i16, i16)
#endif
#if !PARTED || PART_i8
CHANCE(i8, i8)
#endif
#if !PARTED || PART_u8
CHANCE(u8, u8)
#endif
