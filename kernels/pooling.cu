// Maxima and means over windows of planes (or lines, or volumes): dimensions that are missing in front have
// one position. Gradients are gathered by the threads that write them, so that sums have a fixed order. Several
// planes can lie interleaved, which are then `channels` of one, element by element side by side.

// One dimension's windows. Adaptive ones are as many nearly equal ranges as are wanted; the product of their
// two sizes is below 2^32.
struct Dim { i32 size, out, kernel, stride, padding, dilation, adaptive, counts_padding; };
struct Window { Dim dims[3]; i64 planes; double divisor; i64 channels; };

__device__ __forceinline__ i32 first_of(const Dim& d, i32 i) {
    return d.adaptive ? (i32)((u32)i * (u32)d.size / (u32)d.out) : i * d.stride - d.padding;
}
__device__ __forceinline__ i32 end_of(const Dim& d, i32 i) {
    if (d.adaptive) return (i32)(((u32)(i + 1) * (u32)d.size + (u32)d.out - 1u) / (u32)d.out);
    i32 end = i * d.stride - d.padding + (d.kernel - 1) * d.dilation + 1;
    return end < d.size ? end : d.size;
}
__device__ __forceinline__ i32 step_of(const Dim& d) { return d.adaptive ? 1 : d.dilation; }
// The first position that is inside.
__device__ __forceinline__ i32 inside(i32 first, i32 step) {
    return first >= 0 ? first : first + (-first + step - 1) / step * step;
}
// The windows that may read position p: from the first to before the last.
__device__ __forceinline__ i32 first_window(const Dim& d, i32 p) {
    if (d.adaptive) return (i32)((u32)p * (u32)d.out / (u32)d.size);
    i32 before = p + d.padding - (d.kernel - 1) * d.dilation;
    return before <= 0 ? 0 : (before + d.stride - 1) / d.stride;
}
__device__ __forceinline__ i32 end_window(const Dim& d, i32 p) {
    if (d.adaptive) return (i32)(((u32)(p + 1) * (u32)d.out + (u32)d.size - 1u) / (u32)d.size);
    i32 end = (p + d.padding) / d.stride + 1;
    return end < d.out ? end : d.out;
}

__device__ __forceinline__ i64 inputs(const Window& w) {
    return (i64)w.dims[0].size * w.dims[1].size * w.dims[2].size;
}
__device__ __forceinline__ i64 outputs(const Window& w) {
    return (i64)w.dims[0].out * w.dims[1].out * w.dims[2].out;
}

// A place in a plane, and the first element of the plane with `other` elements that it is computed from or for.
struct At { i64 plane, first; i32 i[3]; };
// Place i of planes of `size` elements, whose last two dimensions are these.
__device__ __forceinline__ At at(
    const Window& w, i64 i, i64 size, double inverse, i32 middle, i32 last, i64 other
) {
    At at;
    i64 channel = 0;
    if (w.channels > 1) {
        i64 all = i;
        i = quotient(all, w.channels, 1.0 / (double)w.channels);
        channel = all - i * w.channels;
    }
    at.plane = quotient(i, size, inverse);
    at.first = at.plane * other * w.channels + channel;
    u32 left = (u32)(i - at.plane * size), next = left / (u32)last;
    at.i[2] = (i32)(left - next * (u32)last);
    at.i[0] = (i32)(next / (u32)middle);
    at.i[1] = (i32)next - at.i[0] * middle;
    return at;
}

// Of equal numbers the first counts; a NaN wins. `places` may be null.
template <class T>
__device__ __forceinline__ void maxima(T* y, i32* places, const T* x, const Window& w) {
    typedef typename Wide<T>::type C;
    i64 count = w.planes * w.channels * outputs(w), step = w.channels;
    double inverse = 1.0 / (double)outputs(w);
    const Dim &a = w.dims[0], &b = w.dims[1], &c = w.dims[2];
    for (i64 o = first_index(); o < count; o += index_step()) {
        At here = at(w, o, outputs(w), inverse, b.out, c.out, inputs(w));
        const T* plane = x + here.first;
        C best = 0;
        i32 place = -1;
        for (i32 i = inside(first_of(a, here.i[0]), step_of(a)); i < end_of(a, here.i[0]); i += step_of(a)) {
            for (i32 j = inside(first_of(b, here.i[1]), step_of(b)); j < end_of(b, here.i[1]); j += step_of(b)) {
                i32 row = (i * b.size + j) * c.size;
                for (i32 k = inside(first_of(c, here.i[2]), step_of(c)); k < end_of(c, here.i[2]); k += step_of(c)) {
                    C v = Convert<C>::from(plane[(row + k) * step]);
                    if (place < 0 || v > best || v != v) {
                        best = v;
                        place = row + k;
                    }
                }
            }
        }
        put(y + o, best);
        if (places) places[o] = place;
    }
}

// dx: the sum of dy where the maximum was taken from here.
template <class T>
__device__ __forceinline__ void maxima_backward(T* dx, const T* dy, const i32* places, const Window& w) {
    typedef typename Wide<T>::type C;
    i64 count = w.planes * w.channels * inputs(w), step = w.channels;
    double inverse = 1.0 / (double)inputs(w);
    const Dim &a = w.dims[0], &b = w.dims[1], &c = w.dims[2];
    for (i64 p = first_index(); p < count; p += index_step()) {
        At here = at(w, p, inputs(w), inverse, b.size, c.size, outputs(w));
        i32 own = (here.i[0] * b.size + here.i[1]) * c.size + here.i[2];
        i32 i1 = end_window(a, here.i[0]), j0 = first_window(b, here.i[1]), j1 = end_window(b, here.i[1]);
        i32 k0 = first_window(c, here.i[2]), k1 = end_window(c, here.i[2]);
        C sum = 0;
        for (i32 i = first_window(a, here.i[0]); i < i1; ++i) {
            for (i32 j = j0; j < j1; ++j) {
                i64 row = here.first + (i64)(i * b.out + j) * c.out * step;
#pragma unroll 1
                for (i32 k = k0; k < k1; ++k) {
                    if (places[row + k * step] == own) sum += Convert<C>::from(dy[row + k * step]);
                }
            }
        }
        put(dx + p, sum);
    }
}

// The numbers of x where the maxima were.
template <class T>
__device__ __forceinline__ void pick(T* y, const T* x, const i32* places, const Window& w) {
    i64 count = w.planes * w.channels * outputs(w), step = w.channels;
    double inverse = 1.0 / (double)outputs(w);
    for (i64 o = first_index(); o < count; o += index_step()) {
        At here = at(w, o, outputs(w), inverse, w.dims[1].out, w.dims[2].out, inputs(w));
        y[o] = x[here.first + places[o] * step];
    }
}

// By how much a window's sum is multiplied.
template <class C> __device__ __forceinline__ C share(const Window& w, const i32* o) {
    if (w.divisor != 0.0) return (C)(1.0 / w.divisor);
    double count = 1.0;
    for (int d = 0; d < 3; ++d) {
        const Dim& dim = w.dims[d];
        i32 first = first_of(dim, o[d]), end = end_of(dim, o[d]);
        if (dim.counts_padding) {
            end = first + dim.kernel;
            if (end > dim.size + dim.padding) end = dim.size + dim.padding;
        } else if (first < 0) {
            first = 0;
        }
        count *= (double)(end - first);
    }
    return (C)(1.0 / count);
}

// LANES threads of a warp for an output: 1, or 32 for large windows.
template <class T, int LANES>
__device__ __forceinline__ void means(T* y, const T* x, const Window& w) {
    typedef typename Wide<T>::type C;
    i64 count = w.planes * w.channels * outputs(w), step = w.channels;
    double inverse = 1.0 / (double)outputs(w);
    const Dim &a = w.dims[0], &b = w.dims[1], &c = w.dims[2];
    i32 lane = LANES == 1 ? 0 : (i32)(threadIdx.x % LANES);
    for (i64 o = first_index() / LANES; o < count; o += index_step() / LANES) {
        At here = at(w, o, outputs(w), inverse, b.out, c.out, inputs(w));
        const T* plane = x + here.first;
        i32 i0 = max(first_of(a, here.i[0]), 0), j0 = max(first_of(b, here.i[1]), 0), k0 = max(first_of(c, here.i[2]), 0);
        i32 wide = end_of(c, here.i[2]) - k0;
        C sum = 0;
        for (i32 i = i0; i < end_of(a, here.i[0]); ++i) {
            if (LANES == 1) {
                for (i32 j = j0; j < end_of(b, here.i[1]); ++j) {
                    const T* row = plane + ((i64)(i * b.size + j) * c.size + k0) * step;
                    for (i32 k = 0; k < wide; ++k) sum += Convert<C>::from(row[k * step]);
                }
            } else {
                i32 area = (end_of(b, here.i[1]) - j0) * wide;
                for (i32 t = lane; t < area; t += LANES) {
                    i32 j = t / wide, k = t - j * wide;
                    sum += Convert<C>::from(plane[((i64)(i * b.size + j0 + j) * c.size + k0 + k) * step]);
                }
            }
        }
        for (int step = LANES / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (lane == 0) put(y + o, sum * share<C>(w, here.i));
    }
}

// dx: the shares of all windows that this position is in.
template <class T>
__device__ __forceinline__ void means_backward(T* dx, const T* dy, const Window& w) {
    typedef typename Wide<T>::type C;
    i64 count = w.planes * w.channels * inputs(w), step = w.channels;
    double inverse = 1.0 / (double)inputs(w);
    const Dim &a = w.dims[0], &b = w.dims[1], &c = w.dims[2];
    for (i64 p = first_index(); p < count; p += index_step()) {
        At here = at(w, p, inputs(w), inverse, b.size, c.size, outputs(w));
        C sum = 0;
        i32 o[3];
        for (o[0] = first_window(a, here.i[0]); o[0] < end_window(a, here.i[0]); ++o[0]) {
            for (o[1] = first_window(b, here.i[1]); o[1] < end_window(b, here.i[1]); ++o[1]) {
                i64 row = here.first + (i64)(o[0] * b.out + o[1]) * c.out * step;
                for (o[2] = first_window(c, here.i[2]); o[2] < end_window(c, here.i[2]); ++o[2]) {
                    sum += Convert<C>::from(dy[row + o[2] * step]) * share<C>(w, o);
                }
            }
        }
        put(dx + p, sum);
    }
}

#define POOLING(name, T)                                                                                 \
    extern "C" __global__ void __launch_bounds__(256, 4) maxima_##name(                                  \
        T* y, i32* places, const T* x, Window w                                                          \
    ) { maxima(y, places, x, w); }                                                                       \
    extern "C" __global__ void __launch_bounds__(256, 4) maxima_backward_##name(                         \
        T* dx, const T* dy, const i32* places, Window w                                                  \
    ) { maxima_backward(dx, dy, places, w); }                                                            \
    extern "C" __global__ void __launch_bounds__(256, 4) pick_##name(                                    \
        T* y, const T* x, const i32* places, Window w                                                    \
    ) { pick(y, x, places, w); }                                                                         \
    extern "C" __global__ void __launch_bounds__(256, 4) means_##name(T* y, const T* x, Window w) {      \
        means<T, 1>(y, x, w);                                                                            \
    }                                                                                                    \
    extern "C" __global__ void __launch_bounds__(256, 4) large_means_##name(T* y, const T* x, Window w) { \
        means<T, 32>(y, x, w);                                                                           \
    }                                                                                                    \
    extern "C" __global__ void __launch_bounds__(256, 4) means_backward_##name(T* dx, const T* dy, Window w) { \
        means_backward(dx, dy, w);                                                                       \
    }
#if !PARTED || PART_f64
POOLING(f64, double)
#endif
#if !PARTED || PART_f32
POOLING(f32, float)
#endif
#if !PARTED || PART_f16
POOLING(f16, f16)
#endif
#if !PARTED || PART_bf16
POOLING(bf16, bf16)
#endif
