// Places of numbers in sorted sequences, and how many numbers fall into each of equal ranges.

// Whether a comes before b; NaN is above everything, and equal to itself.
template <class A> __device__ __forceinline__ bool before(A a, A b) { return a < b || (b != b && a == a); }

struct Search {
    i64* to;
    // Elements of a sequence, values of each (or of the one), and in all.
    i64 n, per_row, count;
    // Whether there is one sequence, and whether equal elements come before a value.
    i32 shared, right;
};

template <class A, class T>
__device__ __forceinline__ void search(const Search& task, const T* sorted, const T* values) {
    for (i64 i = first_index(); i < task.count; i += index_step()) {
        const T* row = task.shared ? sorted : sorted + i / task.per_row * task.n;
        A value = Convert<A>::from(values[i]);
        i64 low = 0, high = task.n;
        while (low < high) {
            i64 middle = low + (high - low) / 2;
            A element = Convert<A>::from(row[middle]);
            bool above = task.right ? !before(value, element) : before(element, value);
            low = above ? middle + 1 : low;
            high = above ? high : middle;
        }
        task.to[i] = low;
    }
}

struct Ranges {
    u64* counts;
    i64 n, bins;
    double low, high;
    // Whether the counts of a block are kept in its shared memory first.
    i32 shared, reserved;
    Refusal refusal;
};

#define COUNT_THREADS 256

// Counts `bin(x[i])`, unless that is below 0.
template <class T, class F>
__device__ __forceinline__ void count(const Ranges& task, const T* x, const F& bin, u32* own) {
    if (task.shared) {
        for (i64 k = threadIdx.x; k < task.bins; k += COUNT_THREADS) own[k] = 0;
        __syncthreads();
    }
    for (i64 i = first_index(); i < task.n; i += index_step()) {
        i64 k = bin.of(task, x[i], i);
        if (k < 0) continue;
        if (task.shared) atomicAdd(own + k, 1u);
        else atomicAdd(task.counts + k, (u64)1);
    }
    if (!task.shared) return;
    __syncthreads();
    for (i64 k = threadIdx.x; k < task.bins; k += COUNT_THREADS) {
        if (own[k]) atomicAdd(task.counts + k, (u64)own[k]);
    }
}

// In what the ranges of numbers are found, which decides about those between two.
template <class A> struct Found {
    typedef double type;
};
template <> struct Found<float> {
    typedef float type;
};

// The range of a number; of the ends both belong to one.
template <class A> struct Range {
    template <class T> __device__ __forceinline__ i64 of(const Ranges& task, T x, i64) const {
        typedef typename Found<A>::type F;
        F value = Convert<F>::from(x), low = (F)task.low, high = (F)task.high;
        if (!(value >= low && value <= high)) return -1;
        i64 k = (i64)((value - low) * (F)task.bins / (high - low));
        return k < task.bins ? k : task.bins - 1;
    }
};
// The number itself.
struct Itself {
    __device__ __forceinline__ i64 of(const Ranges& task, i64 x, i64 i) const {
        return checked(x, task.bins, i, task.refusal);
    }
};

extern "C" __global__ void __launch_bounds__(COUNT_THREADS) count_numbers(Ranges task, const i64* x) {
    extern __shared__ u32 own[];
    Itself bin;
    count(task, x, bin, own);
}

#define SEARCHING(name, A, T)                                                                                 \
    extern "C" __global__ void __launch_bounds__(256) search_##name(Search task, const T* sorted, const T* values) { \
        search<A>(task, sorted, values);                                                                      \
    }                                                                                                         \
    extern "C" __global__ void __launch_bounds__(COUNT_THREADS) count_##name(Ranges task, const T* x) {       \
        extern __shared__ u32 own[];                                                                          \
        Range<A> bin;                                                                                         \
        count(task, x, bin, own);                                                                             \
    }
SEARCHING(f64, double, double)
SEARCHING(f32, float, float)
SEARCHING(f16, float, f16)
SEARCHING(bf16, float, bf16)
SEARCHING(i64, i64, i64)
SEARCHING(i32, i32, i32)
SEARCHING(i16, i32, i16)
SEARCHING(i8, i32, i8)
SEARCHING(u8, i32, u8)
