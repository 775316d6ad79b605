// Rotary position embedding: feature j of a row and feature j + pairs are turned by an angle; those from 2 pairs on are
// copied.

// Strides of the dimensions in front of the last, from the right. The rows of `y` are dense.
struct Rotary { i64 sizes[4], x[4], cos[4], sin[4], count, width, pairs, back; };

template <class T>
__device__ __forceinline__ void rotary(
    T* y, const T* x, const typename Wide<T>::type* cosines, const typename Wide<T>::type* sines, const Rotary& r
) {
    typedef typename Wide<T>::type W;
    i64 each = r.width - r.pairs, all = r.count * each;
    for (i64 i = first_index(); i < all; i += index_step()) {
        i64 row = whole_quotient(i, each), j = i - row * each;
        i64 left = row, at_x = 0, at_cos = 0, at_sin = 0;
        #pragma unroll
        for (int d = 0; d < 4; d++) {
            i64 next = whole_quotient(left, r.sizes[d]), place = left - next * r.sizes[d];
            at_x += place * r.x[d];
            at_cos += place * r.cos[d];
            at_sin += place * r.sin[d];
            left = next;
        }
        const T* from = x + at_x;
        T* to = y + row * r.width;
        if (j >= r.pairs) {
            to[j + r.pairs] = from[j + r.pairs];
            continue;
        }
        W a = Convert<W>::from(from[j]), b = Convert<W>::from(from[j + r.pairs]);
        W c = cosines[at_cos + j], s = r.back ? -sines[at_sin + j] : sines[at_sin + j];
        put(to + j, a * c - b * s);
        put(to + j + r.pairs, b * c + a * s);
    }
}

#define ROTARY(name, T)                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) rotary_##name(                                     \
        T* y, const T* x, const Wide<T>::type* cosines, const Wide<T>::type* sines, Rotary r             \
    ) { rotary(y, x, cosines, sines, r); }
ROTARY(f64, double)
ROTARY(f32, float)
ROTARY(f16, f16)
ROTARY(bf16, bf16)
