// Layer and root-mean-square normalisation of dense rows, and their gradients.

#define KEPT_BLOCKS 1

struct LayerNorm {
    const T* x;
    // Of `result_format`, as what Forward writes: T, or a half type where T is float.
    const char* dy;
    // A weight and a shift per column, or null; of T, or of float where `wide_weight`.
    const char* w;
    const char* b;
    // The result; or, of T, the gradient of x.
    char* y;
    // Per row.
    C* mean;
    C* scale;
    // Per column, of the weight's type, or null.
    char* dw;
    char* db;
    i64 n, count;
    double eps;
    // Whether the mean is taken out.
    i32 centered;
    i32 wide_weight;
    i32 weight_format;
    i32 weight_size;
    i32 result_format;
    // Forward: what is added to x before, of this format, T or a half type beside float, and the sums, of T. Backward:
    // the sums' own gradients, of T, which are added to those of x; and the same once more, of this format.
    i32 added_format;
    const char* added;
    char* sum;
    const char* dsum;
    char* dadded;
};

// WIDTH neighbours, or one, of another type than T.
template <class H, bool WIDE> __device__ __forceinline__ int others_at(const H* from, C* to) {
    const int EACH = WIDE ? WIDTH : 1;
    Several<H, EACH> raw = *(const Several<H, EACH>*)from;
#pragma unroll
    for (int k = 0; k < EACH; ++k) to[k] = Convert<C>::from(raw.values[k]);
    return EACH;
}
template <class H, bool WIDE> __device__ __forceinline__ void put_others(H* to, const C* v) {
    const int EACH = WIDE ? WIDTH : 1;
    Several<H, EACH> raw;
#pragma unroll
    for (int k = 0; k < EACH; ++k) put(&raw.values[k], v[k]);
    *(Several<H, EACH>*)to = raw;
}

// Numbers of T, or of a half type beside float.
template <bool WIDE> __device__ __forceinline__ void formatted_at(const char* from, i32 format, i64 place, C* to) {
    if (sizeof(T) == 4 && format == FORMAT_BF16) others_at<bf16, WIDE>((const bf16*)from + place, to);
    else if (sizeof(T) == 4 && format == FORMAT_F16) others_at<f16, WIDE>((const f16*)from + place, to);
    else values_at<WIDE>((const T*)from + place, to);
}
template <bool WIDE> __device__ __forceinline__ void put_formatted(char* to, i32 format, i64 place, const C* v) {
    if (sizeof(T) == 4 && format == FORMAT_BF16) put_others<bf16, WIDE>((bf16*)to + place, v);
    else if (sizeof(T) == 4 && format == FORMAT_F16) put_others<f16, WIDE>((f16*)to + place, v);
    else put_values<WIDE>((T*)to + place, v);
}
// A sum that no multiplication before it is joined with, rounded to T: what an addition of its own gives.
__device__ __forceinline__ float plus(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double plus(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ C rounded(C v) {
    T narrow;
    put(&narrow, v);
    return Convert<C>::from(narrow);
}

// Gradients of the result from a place on.
template <bool WIDE> __device__ __forceinline__ void results_at(const LayerNorm& task, i64 place, C* to) {
    formatted_at<WIDE>(task.dy, task.result_format, place, to);
}
template <bool WIDE> __device__ __forceinline__ void put_results(const LayerNorm& task, i64 place, const C* v) {
    put_formatted<WIDE>(task.y, task.result_format, place, v);
}

// EACH parameters from a place on; `otherwise` where there are none.
template <bool WIDE>
__device__ __forceinline__ void parameters(const LayerNorm& task, const char* p, int place, C otherwise, C* to) {
    if (!p) {
        for (int k = 0; k < (WIDE ? WIDTH : 1); ++k) to[k] = otherwise;
    } else if (task.wide_weight) {
        others_at<float, WIDE>((const float*)p + place, to);
    } else {
        values_at<WIDE>((const T*)p + place, to);
    }
}

struct Forward : LayerNorm {
    // Adds to the row that is kept, and writes the sums.
    template <int VALUES, bool WIDE> __device__ __forceinline__ void add(Row<VALUES, WIDE>& x, i64 at) const {
        const int EACH = Row<VALUES, WIDE>::EACH;
#pragma unroll
        for (int p = 0; p < Row<VALUES, WIDE>::PACKS; ++p) {
            int item = threadIdx.x + p * blockDim.x;
            if (item >= x.items) continue;
            C more[EACH], *own = x.kept + p * EACH;
            formatted_at<WIDE>(added, added_format, at + item * EACH, more);
            for (int k = 0; k < EACH; ++k) own[k] = rounded(plus(own[k], more[k]));
            put_values<WIDE>((T*)sum + at + item * EACH, own);
        }
    }
    template <int VALUES, bool WIDE> __device__ __forceinline__ void rows() const {
        typedef Row<VALUES, WIDE> Elements;
        EACH_ROW(row, count) {
            bool here = row < count;
            i64 at = here ? row * n : 0;
            Elements x(this->x + at, here ? (int)n : 0);
            if (VALUES && added) add<VALUES, WIDE>(x, at);
            C m = (C)0;
            // Squares are added in double, whose range holds those of all floats.
            double squares = 0.0;
            if (centered) {
                MomentSums moments = Momentary<C>().zero();
                x.each([&](const C* v, int) { Momentary<C>::take(moments, v, Elements::EACH); });
                moments = across_lanes(Momentary<C>(), moments, blockDim.x);
                m = (C)moments.mean;
                squares = moments.squares;
            } else {
                x.each([&](const C* v, int) {
                    for (int k = 0; k < Elements::EACH; ++k) squares += (double)v[k] * (double)v[k];
                });
                squares = across_lanes(AddWide(), squares, blockDim.x);
            }
            C r = (C)one_over_root(squares / (double)n + eps);
            if (here && threadIdx.x == 0) {
                mean[row] = m;
                scale[row] = r;
            }
            x.each([&](const C* v, int place) {
                C weight[Elements::EACH], shift[Elements::EACH], out[Elements::EACH];
                // Addresses are made where they are used: those of a whole row would take all registers.
                asm volatile("" : "+r"(place));
                parameters<WIDE>(*this, w, place, (C)1, weight);
                parameters<WIDE>(*this, b, place, (C)0, shift);
                for (int k = 0; k < Elements::EACH; ++k) out[k] = (v[k] - m) * r * weight[k] + shift[k];
                put_results<WIDE>(*this, at + place, out);
            });
        }
    }
};

// The gradients of a row's results, beside the row itself.
template <int VALUES, bool WIDE> struct Gradients {
    typedef Row<VALUES, WIDE> Elements;
    const LayerNorm& task;
    i64 at;
    C kept[VALUES ? VALUES : 1];

    __device__ __forceinline__ Gradients(const LayerNorm& task, i64 at, int items) : task(task), at(at) {
#pragma unroll
        for (int p = 0; p < Elements::PACKS; ++p) {
            int item = threadIdx.x + p * blockDim.x;
            if (item < items) results_at<WIDE>(task, at + item * Elements::EACH, kept + p * Elements::EACH);
        }
    }
    // Calls f(EACH elements, EACH gradients, the first one's place).
    template <class F> __device__ __forceinline__ void each(const Elements& x, F f) const {
        if (VALUES) {
#pragma unroll
            for (int p = 0; p < Elements::PACKS; ++p) {
                int item = threadIdx.x + p * blockDim.x;
                const int from = p * Elements::EACH;
                if (item < x.items) f(x.kept + from, kept + from, item * Elements::EACH);
            }
        } else {
#pragma unroll 2
            for (int item = threadIdx.x; item < x.items; item += blockDim.x) {
                C v[Elements::EACH], d[Elements::EACH];
                values_at<WIDE>(x.x + (i64)item * Elements::EACH, v);
                results_at<WIDE>(task, at + (i64)item * Elements::EACH, d);
                f(v, d, item * Elements::EACH);
            }
        }
    }
};

struct Backward : LayerNorm {
    // Halves one by one are read again: to keep them and their gradients takes more registers than there are.
    template <int MOST, bool WIDE> __device__ __forceinline__ void rows() const {
        const int VALUES = !WIDE && MOST > 16 && sizeof(T) == 2 ? 0 : MOST;
        typedef Row<VALUES, WIDE> Elements;
        EACH_ROW(row, count) {
            bool here = row < count;
            i64 at = here ? row * n : 0;
            Elements x(this->x + at, here ? (int)n : 0);
            Gradients<VALUES, WIDE> dy(*this, at, x.items);
            C m = here ? mean[row] : (C)0, r = here ? scale[row] : (C)0;
            Pair<C> sums = {(C)0, (C)0};
            dy.each(x, [&](const C* v, const C* d, int place) {
                C weight[Elements::EACH];
                parameters<WIDE>(*this, w, place, (C)1, weight);
                for (int k = 0; k < Elements::EACH; ++k) {
                    C g = d[k] * weight[k];
                    sums.a += g;
                    sums.b += g * (v[k] - m);
                }
            });
            sums = across_lanes(AddPairs(), sums, blockDim.x);
            C plain = centered ? sums.a / (C)n : (C)0, along = sums.b * r / (C)n;
            dy.each(x, [&](const C* v, const C* d, int place) {
                C weight[Elements::EACH], out[Elements::EACH];
                parameters<WIDE>(*this, w, place, (C)1, weight);
                for (int k = 0; k < Elements::EACH; ++k) {
                    out[k] = (d[k] * weight[k] - plain - (v[k] - m) * r * along) * r;
                }
                put_values<WIDE>((T*)y + at + place, out);
            });
        }
    }
};

// The gradients of weight and shift: a fold over the rows.
template <class A> struct OfParameters : LayerNorm {
    typedef Pair<A> Acc;
    __device__ __forceinline__ Acc zero() const { return {(A)0, (A)0}; }
    __device__ __forceinline__ Acc combine(const Acc& p, const Acc& q) const { return {p.a + q.a, p.b + q.b}; }
    template <bool WIDE> __device__ __forceinline__ void add(Acc& acc, i64 at, i64 item, i64) const {
        A v[WIDTH], d[WIDTH];
        int each = values_at<WIDE>(x + at, v);
        results_at<WIDE>(*this, at, d);
        for (int k = 0; k < each; ++k) {
            i64 row = item * each + k;
            acc.a += d[k] * (v[k] - mean[row]) * scale[row];
            acc.b += d[k];
        }
    }
    __device__ __forceinline__ void finish(i64 o, const Acc& acc) const {
        if (dw) store<A>(dw + o * weight_size, weight_format, acc.a);
        if (db) store<A>(db + o * weight_size, weight_format, acc.b);
    }
};
typedef OfParameters<C> Parameters;
