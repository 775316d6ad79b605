// Folds of many elements into few: what reductions are made of. The program defines T (an element), C (what
// is computed in), and operations with
//   Acc                          what a fold has come to: plain data of a multiple of four bytes
//   zero()                       the fold of nothing
//   add<WIDE>(acc, at, item, o)  takes in the element at `at`, or WIDTH elements from there, for output `o`
//   combine(a, b)                two folds in one; any order
//   finish(o, acc)               writes output `o`
// The order of the combinations depends on shapes only: results are the same each time.

// Elements that one instruction moves.
#define WIDTH (16 / (int)sizeof(T))
typedef Several<T> Pack;

#define FOLD_THREADS 256
#define FOLD_DIMS 8

// Dimensions from the outermost to the innermost, at least one; strides in elements.
struct FoldDims {
    i64 sizes[FOLD_DIMS];
    i64 strides[FOLD_DIMS];
    i32 count;
    i32 reserved;
};

struct FoldPlan {
    FoldDims kept, folded;
    i64 outputs;
    // Per output: elements, or packs of WIDTH.
    i64 items;
    i64 items_per_split;
    i32 splits;
    i32 reserved;
};

__device__ __forceinline__ i64 place_of(const FoldDims& dims, i64 index) {
    i64 at = 0;
    for (int d = dims.count - 1; d > 0; --d) {
        i64 size = dims.sizes[d];
        i64 next = whole_quotient(index, size);
        at += (index - next * size) * dims.strides[d];
        index = next;
    }
    return at + index * dims.strides[0];
}

// What one instruction reads: WIDTH elements, or one.
template <bool WIDE> struct Raw {
    static const int COUNT = WIDE ? WIDTH : 1;
    Several<T, COUNT> held;
    __device__ __forceinline__ void read(const T* x) { held = *(const Several<T, COUNT>*)x; }
    // Their values in the type of computation, and how many they are.
    __device__ __forceinline__ int values(C* to) const {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) to[k] = Convert<C>::from(held.values[k]);
        return COUNT;
    }
};
template <bool WIDE> __device__ __forceinline__ int values_at(const T* x, C* to) {
    Raw<WIDE> raw;
    raw.read(x);
    return raw.values(to);
}

template <class A> __device__ __forceinline__ A shuffle_xor(const A& value, int mask) {
    static_assert(sizeof(A) % 4 == 0, "words are exchanged");
    union Words { A whole; u32 words[sizeof(A) / 4]; __device__ Words() {} } from, to;
    from.whole = value;
#pragma unroll
    for (int k = 0; k < (int)(sizeof(A) / 4); ++k) to.words[k] = __shfl_xor_sync(0xffffffffu, from.words[k], mask);
    return to.whole;
}

// The fold over neighbouring threads along x, for all of them: a power of two up to 32, or the whole block.
template <class Op>
__device__ __forceinline__ typename Op::Acc across_lanes(const Op& op, typename Op::Acc acc, int lanes) {
    for (int by = (lanes < 32 ? lanes : 32) / 2; by > 0; by /= 2) acc = op.combine(acc, shuffle_xor(acc, by));
    if (lanes > 32) {
        __shared__ typename Op::Acc parts[FOLD_THREADS / 32];
        __syncthreads();
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = acc;
        __syncthreads();
        acc = parts[0];
        for (int warp = 1; warp < lanes / 32; ++warp) acc = op.combine(acc, parts[warp]);
    }
    return acc;
}

// What a thread makes of every so-many-th item: in runs, and runs of runs, so that no sum is long.
template <class Op, bool WIDE, bool FLAT>
__device__ __forceinline__ typename Op::Acc
fold_items(const Op& op, const FoldDims& dims, i64 at, i64 item, i64 end, int step, i64 o) {
    const i64 RUN = 16;
    typename Op::Acc total = op.zero();
    i64 stride = dims.strides[0];
    while (item < end) {
        typename Op::Acc runs = op.zero();
        for (int count = 0; count < RUN && item < end; ++count) {
            typename Op::Acc run = op.zero();
            i64 stop = end - item > RUN * step ? item + RUN * step : end;
#pragma unroll 8
            for (; item < stop; item += step) {
                op.template add<WIDE>(run, at + (FLAT ? item * stride : place_of(dims, item)), item, o);
            }
            runs = op.combine(runs, run);
        }
        total = op.combine(total, runs);
    }
    return total;
}

// Blocks take neighbouring outputs: with threads along x on one output's items, or (COLUMNS) on neighbouring
// outputs. blockIdx.y is the part of the items.
template <class Op, bool WIDE, bool COLUMNS>
__device__ __forceinline__ void fold_block(const FoldPlan& plan, const Op& op, typename Op::Acc* parts) {
    typedef typename Op::Acc Acc;
    int lanes = COLUMNS ? blockDim.y : blockDim.x, lane = COLUMNS ? threadIdx.y : threadIdx.x;
    int own = COLUMNS ? threadIdx.x : threadIdx.y, width = COLUMNS ? blockDim.x : blockDim.y;
    i64 first = blockIdx.y * plan.items_per_split;
    i64 end = plan.items - first > plan.items_per_split ? first + plan.items_per_split : plan.items;
    for (i64 base = (i64)blockIdx.x * width; base < plan.outputs; base += (i64)gridDim.x * width) {
        i64 o = base + own;
        Acc acc = op.zero();
        if (o < plan.outputs) {
            i64 at = place_of(plan.kept, o);
            acc = plan.folded.count == 1
                ? fold_items<Op, WIDE, true>(op, plan.folded, at, first + lane, end, lanes, o)
                : fold_items<Op, WIDE, false>(op, plan.folded, at, first + lane, end, lanes, o);
        }
        if (COLUMNS) {
            __shared__ Acc tile[FOLD_THREADS];
            __syncthreads();
            tile[lane * width + own] = acc;
            for (int by = lanes / 2; by > 0; by /= 2) {
                __syncthreads();
                if (lane < by) {
                    acc = op.combine(acc, tile[(lane + by) * width + own]);
                    tile[lane * width + own] = acc;
                }
            }
        } else {
            acc = across_lanes(op, acc, lanes);
        }
        if (lane == 0 && o < plan.outputs) {
            if (plan.splits == 1) op.finish(o, acc);
            else parts[blockIdx.y * plan.outputs + o] = acc;
        }
    }
}

// The folds of the parts of the items: threads along x share an output.
template <class Op>
__device__ __forceinline__ void fold_splits(const FoldPlan& plan, const Op& op, const typename Op::Acc* parts) {
    for (i64 base = (i64)blockIdx.x * blockDim.y; base < plan.outputs; base += (i64)gridDim.x * blockDim.y) {
        i64 o = base + threadIdx.y;
        typename Op::Acc acc = op.zero();
        if (o < plan.outputs) {
            for (int split = threadIdx.x; split < plan.splits; split += blockDim.x) {
                acc = op.combine(acc, parts[split * plan.outputs + o]);
            }
        }
        acc = across_lanes(op, acc, blockDim.x);
        if (threadIdx.x == 0 && o < plan.outputs) op.finish(o, acc);
    }
}

// Functions of the type of computation.
__device__ __forceinline__ float power_e(float x) { return expf(x); }
__device__ __forceinline__ double power_e(double x) { return exp(x); }
__device__ __forceinline__ float log_e(float x) { return logf(x); }
__device__ __forceinline__ double log_e(double x) { return log(x); }
__device__ __forceinline__ float root(float x) { return sqrtf(x); }
__device__ __forceinline__ double root(double x) { return sqrt(x); }
__device__ __forceinline__ i64 root(i64 x) { return x; }
__device__ __forceinline__ float one_over_root(float x) { return 1.0f / sqrtf(x); }
__device__ __forceinline__ double one_over_root(double x) { return 1.0 / sqrt(x); }
// Nearly rounded; for weights of means.
#if TORCHRS_SIMULATED
__device__ __forceinline__ float quotient(float a, float b) { return a / b; }
#else
__device__ __forceinline__ float quotient(float a, float b) { return __fdividef(a, b); }
#endif
__device__ __forceinline__ double quotient(double a, double b) { return a / b; }
__device__ __forceinline__ bool is_infinite(float x) { return x == __int_as_float(0x7f800000) || x == -__int_as_float(0x7f800000); }
__device__ __forceinline__ bool is_infinite(double x) {
    double most = __longlong_as_double(0x7ff0000000000000ll);
    return x == most || x == -most;
}

// The least and the largest value of a type.
template <class A> struct Limits;
template <> struct Limits<float> {
    static __device__ __forceinline__ float most() { return __int_as_float(0x7f800000); }
    static __device__ __forceinline__ float least() { return -most(); }
};
template <> struct Limits<double> {
    static __device__ __forceinline__ double most() { return __longlong_as_double(0x7ff0000000000000ll); }
    static __device__ __forceinline__ double least() { return -most(); }
};
template <> struct Limits<i64> {
    static __device__ __forceinline__ i64 most() { return 0x7fffffffffffffffll; }
    static __device__ __forceinline__ i64 least() { return -most() - 1; }
};

// A sum of exponentials, in units of the exponential of the largest number.
template <class A> struct ExpSum { A largest, sum; };
template <class A> struct ExpSums {
    typedef ExpSum<A> Acc;
    __device__ __forceinline__ Acc zero() const { return {Limits<A>::least(), (A)0}; }
    // An infinite number is not subtracted: inf - inf is NaN.
    static __device__ __forceinline__ A term(A x, A largest) {
        return power_e(x - (is_infinite(largest) ? (A)0 : largest));
    }
    static __device__ __forceinline__ void take(Acc& acc, const A* v, int count) {
        A largest = acc.largest;
        for (int k = 0; k < count; ++k) largest = v[k] > largest ? v[k] : largest;
        if (largest > acc.largest) {
            acc.sum = acc.sum == (A)0 ? (A)0 : acc.sum * term(acc.largest, largest);
            acc.largest = largest;
        }
        for (int k = 0; k < count; ++k) acc.sum += term(v[k], largest);
    }
    __device__ __forceinline__ Acc combine(const Acc& a, const Acc& b) const {
        A largest = a.largest > b.largest ? a.largest : b.largest;
        A left = a.sum == (A)0 ? (A)0 : a.sum * term(a.largest, largest);
        A right = b.sum == (A)0 ? (A)0 : b.sum * term(b.largest, largest);
        return {largest, left + right};
    }
    static __device__ __forceinline__ A logarithm(const Acc& acc) {
        return log_e(acc.sum) + (is_infinite(acc.largest) ? (A)0 : acc.largest);
    }
};

// Mean and sum of squared deviations of `count` numbers of A, in double: squares leave the range of float where the
// roots of their sums do not.
struct MomentSums { double mean, squares, count; };
template <class A> struct Momentary {
    typedef MomentSums Acc;
    __device__ __forceinline__ Acc zero() const { return {0.0, 0.0, 0.0}; }
    static __device__ __forceinline__ void take(Acc& acc, const A* v, int count) {
        A mean = v[0];
        for (int k = 1; k < count; ++k) mean += v[k];
        mean *= (A)1 / (A)count;
        double squares = 0.0;
        for (int k = 0; k < count; ++k) {
            double apart = (double)(v[k] - mean);
            squares += apart * apart;
        }
        acc = join(acc, {(double)mean, squares, (double)count});
    }
    static __device__ __forceinline__ Acc join(const Acc& a, const Acc& b) {
        double count = a.count + b.count;
        if (count == 0.0) return a;
        double share = (double)quotient((A)b.count, (A)count), apart = b.mean - a.mean;
        return {a.mean + apart * share, a.squares + b.squares + apart * apart * a.count * share, count};
    }
    __device__ __forceinline__ Acc combine(const Acc& a, const Acc& b) const { return join(a, b); }
};
