// Batch normalisation of [batch, channels, plane], or of [batch, plane, channels] where channels are last, and
// its gradient; also with a tensor added, and all that is not positive 0, before the result is written. Then a mask
// says what has remained, a bit for each element: backward needs no result.

// The assembler for sm_100a spills within the registers that two blocks leave.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define FOLD_BLOCKS 1
#endif

struct BatchNorm {
    const T* x;
    const T* dy;
    // The result, or the gradient of x.
    T* y;
    // Per channel: mean, 1 / sqrt(variance + eps), unbiased variance.
    C* stats;
    // Per channel: the sums of dy xh and of dy.
    C* along;
    C* plain;
    // Per channel or null, each of its format.
    char* w;
    char* b;
    char* running_mean;
    char* running_var;
    // Null, or how many batches the running statistics have seen.
    i64* batches;
    // What is added to the normalised numbers, its gradient, and what is added to dy.
    const T* residual;
    T* dr;
    const T* more;
    // Null, or which results are not 0: 2^mask_shift neighbours a byte.
    u8* mask;
    i64 channels;
    // Numbers of a channel.
    i64 count;
    // Dense rows: planes, or the channels of a place.
    i64 rows, length;
    double eps, momentum;
    i32 w_format, b_format, mean_format, var_format;
    // Whether rows are channels of a place; whether the statistics are the batch's.
    i32 last;
    i32 training;
    i32 mask_shift;
    i32 reserved;

    // Of the element at `at`, or WIDTH elements from there, which have remained, a bit each.
    template <bool WIDE> __device__ __forceinline__ u32 kept(i64 at) const {
        if (WIDE && mask_shift != 0) return mask[at >> mask_shift];
        u32 bits = 0;
#pragma unroll
        for (int k = 0; k < (WIDE ? WIDTH : 1); ++k) {
            i64 i = at + k;
            bits |= (u32)(mask[i >> mask_shift] >> (i & ((1 << mask_shift) - 1)) & 1) << k;
        }
        return bits;
    }
    // The same of WIDTH elements that are a byte's bits.
    __device__ __forceinline__ u32 kept_of_pack(i64 at) const { return mask[at / WIDTH]; }
};

__device__ __forceinline__ int size_of(i32 format) {
    switch (format) {
        case FORMAT_F64: case FORMAT_I64: return 8;
        case FORMAT_F32: case FORMAT_I32: return 4;
        case FORMAT_F16: case FORMAT_BF16: case FORMAT_I16: return 2;
        default: return 1;
    }
}

__device__ __forceinline__ C channel(const char* p, i64 c, i32 format, C otherwise) {
    return p ? load<C>(p + c * size_of(format), format) : otherwise;
}

// Statistics of the batch; the running ones are moved towards them.
template <class A> struct StatisticsOf : BatchNorm {
    typedef typename Momentary<A>::Acc Acc;
    __device__ __forceinline__ Acc zero() const { return Momentary<A>().zero(); }
    __device__ __forceinline__ Acc combine(const Acc& a, const Acc& b) const { return Momentary<A>::join(a, b); }
    template <bool WIDE> __device__ __forceinline__ void add(Acc& acc, i64 at, i64, i64) const {
        A v[WIDTH];
        int each = values_at<WIDE>(x + at, v);
        Momentary<A>::take(acc, v, each);
    }
    __device__ __forceinline__ void toward(char* running, i64 c, i32 format, A value) const {
        if (!running) return;
        char* at = running + c * size_of(format);
        store<A>(at, format, load<A>(at, format) * (A)(1.0 - momentum) + value * (A)momentum);
    }
    __device__ __forceinline__ void finish(i64 c, const Acc& acc) const {
        A mean = (A)acc.mean, unbiased = (A)(acc.squares / (double)(count - 1));
        stats[c] = mean;
        stats[channels + c] = (A)one_over_root(acc.squares / (double)count + eps);
        stats[2 * channels + c] = unbiased;
        toward(running_mean, c, mean_format, mean);
        toward(running_var, c, var_format, unbiased);
        if (c == 0 && batches) ++*batches;
    }
};
typedef StatisticsOf<C> Statistics;

// The gradient of a result that `relu` was the last to make: what there is of it, where the result has remained.
enum Gradient {
    // Of a result of the norm's own.
    PLAIN,
    // As it is; written as the residual's, too; the sum of two, written.
    MASKED, WRITTEN, SUMMED,
};

// Gradients that one instruction reads, of the elements from `at` on.
template <int KIND, bool WIDE> struct Slopes {
    static const int EACH = Raw<WIDE>::COUNT;
    Several<T, EACH> held, more;
    u32 bits;
    __device__ __forceinline__ void read(const BatchNorm& task, i64 at) {
        held = *(const Several<T, EACH>*)(task.dy + at);
        if (KIND == SUMMED) more = *(const Several<T, EACH>*)(task.more + at);
    }
    // Makes them what counts: after all are read.
    __device__ __forceinline__ void settle(const BatchNorm& task, i64 at) {
        if (KIND == PLAIN) return;
#pragma unroll
        for (int k = 0; k < EACH; ++k) {
            T& d = held.values[k];
            if (KIND == SUMMED) put(&d, Convert<C>::from(d) + Convert<C>::from(more.values[k]));
            if (!(bits >> k & 1)) put(&d, (C)0);
        }
        if (KIND >= WRITTEN) *(Several<T, EACH>*)(task.dr + at) = held;
    }
    __device__ __forceinline__ C value(int k) const { return Convert<C>::from(held.values[k]); }
};

// The sums of dy (x - mean) scale and of dy.
template <class A, int KIND> struct SumsOf : BatchNorm {
    typedef Pair<A> Acc;
    __device__ __forceinline__ Acc zero() const { return {(A)0, (A)0}; }
    __device__ __forceinline__ Acc combine(const Acc& p, const Acc& q) const { return {p.a + q.a, p.b + q.b}; }
    template <bool WIDE> __device__ __forceinline__ void add(Acc& acc, i64 at, i64, i64 c) const {
        A v[WIDTH], mean = stats[c];
        Slopes<KIND, WIDE> slopes;
        slopes.read(*this, at);
        if (KIND != PLAIN) slopes.bits = kept<WIDE>(at);
        values_at<WIDE>(x + at, v);
        slopes.settle(*this, at);
#pragma unroll
        for (int k = 0; k < slopes.EACH; ++k) {
            A d = slopes.value(k);
            acc.a += d * (v[k] - mean);
            acc.b += d;
        }
    }
    __device__ __forceinline__ void finish(i64 c, const Acc& acc) const {
        along[c] = acc.a * stats[channels + c];
        plain[c] = acc.b;
    }
};
typedef SumsOf<C, PLAIN> Sums;
typedef SumsOf<C, MASKED> SumsMasked;
typedef SumsOf<C, WRITTEN> SumsWritten;
typedef SumsOf<C, SUMMED> SumsSummed;

__device__ __forceinline__ i64 remainder_of(i64 a, i64 b) { return a - whole_quotient(a, b) * b; }

// Has `f` work on `count` items that lie `step` apart, F::FLIGHT at a time: all are read before one is written.
template <bool WIDE, class F> __device__ __forceinline__ void in_flights(const F& f, i64 at, i64 count, i64 step) {
    for (; count >= F::FLIGHT; count -= F::FLIGHT, at += F::FLIGHT * step) f.template at<WIDE, F::FLIGHT>(at, step);
    for (; count > 0; --count, at += step) f.template at<WIDE, 1>(at, step);
}

// How many of `n` every so-many-th is from `first` on.
__device__ __forceinline__ i64 count_from(i64 first, i64 n, i64 step) {
    return first < n ? whole_quotient(n - first - 1, step) + 1 : 0;
}

// Has `f` work on all elements, EACH at a time, after it was told of their channels. Threads along x are on
// neighbouring elements of a row; a plane's channel is the same throughout, a place's channels are the same in
// each row.
template <bool WIDE, class F> __device__ __forceinline__ void over_rows(const BatchNorm& task, F f) {
    const int EACH = WIDE ? WIDTH : 1;
    i64 items = task.length / EACH, step = (i64)gridDim.y * blockDim.x, step_of_rows = (i64)gridDim.x * blockDim.y;
    i64 first = (i64)blockIdx.y * blockDim.x + threadIdx.x, first_row = (i64)blockIdx.x * blockDim.y + threadIdx.y;
    if (task.last) {
        i64 rows = count_from(first_row, task.rows, step_of_rows);
        for (i64 item = first; item < items; item += step) {
#pragma unroll
            for (int k = 0; k < EACH; ++k) f.own[k] = f.of(item * EACH + k);
            in_flights<WIDE>(f, first_row * task.length + item * EACH, rows, step_of_rows * task.length);
        }
    } else {
        i64 count = count_from(first, items, step);
        for (i64 row = first_row; row < task.rows; row += step_of_rows) {
            typename F::Line line = f.of(remainder_of(row, task.channels));
#pragma unroll
            for (int k = 0; k < EACH; ++k) f.own[k] = line;
            in_flights<WIDE>(f, row * task.length + first * EACH, count, step * EACH);
        }
    }
}

// y = (x - mean) factor + shift; ADD: plus a residual; RELU: 0 where that is not positive. Each is rounded to T as by an
// op of its own.
template <bool ADD, bool RELU> struct ForwardOf : BatchNorm {
    struct Line { C mean, factor, shift; };
    struct Work {
        typedef typename ForwardOf::Line Line;
        static const int FLIGHT = ADD ? 2 : RELU ? 3 : 4;
        const ForwardOf& task;
        Line own[WIDTH];
        __device__ __forceinline__ Line of(i64 c) const {
            C scale = task.stats[task.channels + c] * channel(task.w, c, task.w_format, (C)1);
            return {task.stats[c], scale, channel(task.b, c, task.b_format, (C)0)};
        }
        template <bool WIDE, int N> __device__ __forceinline__ void at(i64 at, i64 step) const {
            Raw<WIDE> x[N], more[N];
#pragma unroll
            for (int n = 0; n < N; ++n) {
                x[n].read(task.x + at + n * step);
                if (ADD) more[n].read(task.residual + at + n * step);
            }
#pragma unroll
            for (int n = 0; n < N; ++n) {
                const int EACH = Raw<WIDE>::COUNT;
                Several<T, EACH> out;
                u32 bits = 0;
#pragma unroll
                for (int k = 0; k < EACH; ++k) {
                    C v = Convert<C>::from(x[n].held.values[k]);
                    T& y = out.values[k];
                    C z = (v - own[k].mean) * own[k].factor + own[k].shift;
                    if (ADD) {
                        put(&y, z);
                        z = Convert<C>::from(y) + Convert<C>::from(more[n].held.values[k]);
                    }
                    // NaN stays.
                    if (RELU) z = z != z ? z : z > (C)0 ? z : (C)0;
                    put(&y, z);
                    if (RELU) bits |= (u32)(Convert<C>::from(y) != (C)0) << k;
                }
                *(Several<T, EACH>*)(task.y + at + n * step) = out;
                if (RELU && task.mask) task.mask[(at + n * step) / EACH] = (u8)bits;
            }
        }
    };
    template <bool WIDE> __device__ __forceinline__ void run() const { over_rows<WIDE>(*this, Work{*this, {}}); }
};
typedef ForwardOf<false, false> Forward;
typedef ForwardOf<false, true> ForwardRelu;
typedef ForwardOf<true, true> ForwardAddRelu;

// dx = (dy - plain - (x - mean) slope) factor.
template <int KIND> struct BackwardOf : BatchNorm {
    struct Line { C mean, plain, slope, factor; };
    struct Work {
        typedef typename BackwardOf::Line Line;
        static const int FLIGHT = 2;
        const BackwardOf& task;
        Line own[WIDTH];
        __device__ __forceinline__ Line of(i64 c) const {
            C scale = task.stats[task.channels + c], n = (C)task.count;
            C factor = scale * channel(task.w, c, task.w_format, (C)1);
            if (!task.training) return {task.stats[c], (C)0, (C)0, factor};
            return {task.stats[c], task.plain[c] / n, task.along[c] / n * scale, factor};
        }
        template <bool WIDE, int N> __device__ __forceinline__ void at(i64 at, i64 step) const {
            Raw<WIDE> x[N];
            Slopes<KIND, WIDE> dy[N];
#pragma unroll
            for (int n = 0; n < N; ++n) {
                i64 place = at + n * step;
                x[n].read(task.x + place);
                dy[n].read(task, place);
                if (KIND != PLAIN) dy[n].bits = WIDE ? task.kept_of_pack(place) : task.template kept<false>(place);
            }
#pragma unroll
            for (int n = 0; n < N; ++n) {
                C v[WIDTH], out[WIDTH];
                int each = x[n].values(v);
                dy[n].settle(task, at + n * step);
                for (int k = 0; k < each; ++k) {
                    const Line& line = own[k];
                    out[k] = (dy[n].value(k) - line.plain - (v[k] - line.mean) * line.slope) * line.factor;
                }
                put_values<WIDE>(task.y + at + n * step, out);
            }
        }
    };
    template <bool WIDE> __device__ __forceinline__ void run() const { over_rows<WIDE>(*this, Work{*this, {}}); }
};
typedef BackwardOf<PLAIN> Backward;
typedef BackwardOf<MASKED> BackwardMasked;
