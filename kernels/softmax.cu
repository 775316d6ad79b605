// Softmax and its logarithm of a dense [outer, n, inner] array, and their gradients. In backward `a` is the
// result and `b` its gradient.

// The assembler for sm_100a spills a few registers unless it may take more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define KEPT_BLOCKS 1
#define COLUMNS_BLOCKS 2
#else
#define COLUMNS_BLOCKS 3
#endif

struct Softmax {
    const T* a;
    const T* b;
    T* out;
    i64 outer, n, inner;
    i32 log;
    i32 reserved;
};

__device__ __forceinline__ C of_forward(C x, const ExpSum<C>& acc, C scale, bool log) {
    C d = x - acc.largest;
    return log ? d - scale : power_e(d) * scale;
}

__device__ __forceinline__ C scale_of(const ExpSum<C>& acc, bool log) {
    // inf - inf is NaN, in all of the row.
    C sum = acc.sum + (acc.largest - acc.largest);
    return log ? log_e(sum) : (C)1 / sum;
}

__device__ __forceinline__ C of_backward(C y, C g, C sum, bool log) {
    return log ? g - power_e(y) * sum : y * (g - sum);
}

// Rows that lie densely: inner is 1.
template <int VALUES, bool WIDE> __device__ __forceinline__ void forward_rows(const Softmax& task) {
    typedef Row<VALUES, WIDE> Elements;
    ExpSums<C> sums;
    EACH_ROW(row, task.outer) {
        bool here = row < task.outer;
        i64 at = here ? row * task.n : 0;
        Elements x(task.a + at, here ? (int)task.n : 0);
        ExpSum<C> acc = sums.zero();
        x.each([&](const C* v, int) { ExpSums<C>::take(acc, v, Elements::EACH); });
        acc = across_lanes(sums, acc, blockDim.x);
        C scale = scale_of(acc, task.log);
        x.each([&](const C* v, int place) {
            C y[Elements::EACH];
            for (int k = 0; k < Elements::EACH; ++k) y[k] = of_forward(v[k], acc, scale, task.log);
            put_values<WIDE>(task.out + at + place, y);
        });
    }
}

template <int VALUES, bool WIDE> __device__ __forceinline__ void backward_rows(const Softmax& task) {
    typedef Row<VALUES, WIDE> Elements;
    EACH_ROW(row, task.outer) {
        bool here = row < task.outer;
        i64 at = here ? row * task.n : 0;
        int n = here ? (int)task.n : 0;
        Elements y(task.a + at, n), g(task.b + at, n);
        C sum = (C)0;
        y.with(g, [&](const C* y, const C* g, int) {
            for (int k = 0; k < Elements::EACH; ++k) sum += task.log ? g[k] : y[k] * g[k];
        });
        sum = across_lanes(AddNumbers(), sum, blockDim.x);
        y.with(g, [&](const C* y, const C* g, int place) {
            C d[Elements::EACH];
            for (int k = 0; k < Elements::EACH; ++k) d[k] = of_backward(y[k], g[k], sum, task.log);
            put_values<WIDE>(task.out + at + place, d);
        });
    }
}

// The combination of the threads along y that share a column, for all of them.
template <class Op>
__device__ __forceinline__ typename Op::Acc across_column(const Op& op, typename Op::Acc acc) {
    __shared__ typename Op::Acc tile[FOLD_THREADS];
    __syncthreads();
    tile[threadIdx.y * blockDim.x + threadIdx.x] = acc;
    __syncthreads();
    acc = tile[threadIdx.x];
    for (int y = 1; y < blockDim.y; ++y) acc = op.combine(acc, tile[y * blockDim.x + threadIdx.x]);
    return acc;
}

// Columns: threads along x have neighbouring ones, those along y share one.
#define EACH_COLUMN(columns)                                                                                 \
    for (i64 base = (i64)blockIdx.x * blockDim.x, column = base + threadIdx.x; base < (columns);             \
         base += (i64)gridDim.x * blockDim.x, column = base + threadIdx.x)

__device__ __forceinline__ void forward_columns(const Softmax& task) {
    ExpSums<C> sums;
    EACH_COLUMN(task.outer * task.inner) {
        i64 outer = whole_quotient(column, task.inner);
        i64 at = outer * (task.n - 1) * task.inner + column;
        i64 n = column < task.outer * task.inner ? task.n : 0;
        ExpSum<C> acc = sums.zero();
#pragma unroll 4
        for (i64 k = threadIdx.y; k < n; k += blockDim.y) {
            C x = Convert<C>::from(task.a[at + k * task.inner]);
            ExpSums<C>::take(acc, &x, 1);
        }
        acc = across_column(sums, acc);
        C scale = scale_of(acc, task.log);
#pragma unroll 4
        for (i64 k = threadIdx.y; k < n; k += blockDim.y) {
            C x = Convert<C>::from(task.a[at + k * task.inner]);
            put(task.out + at + k * task.inner, of_forward(x, acc, scale, task.log));
        }
    }
}

__device__ __forceinline__ void backward_columns(const Softmax& task) {
    EACH_COLUMN(task.outer * task.inner) {
        i64 outer = whole_quotient(column, task.inner);
        i64 at = outer * (task.n - 1) * task.inner + column;
        i64 n = column < task.outer * task.inner ? task.n : 0;
        C sum = (C)0;
#pragma unroll 4
        for (i64 k = threadIdx.y; k < n; k += blockDim.y) {
            C g = Convert<C>::from(task.b[at + k * task.inner]);
            sum += task.log ? g : g * Convert<C>::from(task.a[at + k * task.inner]);
        }
        sum = across_column(AddNumbers(), sum);
#pragma unroll 4
        for (i64 k = threadIdx.y; k < n; k += blockDim.y) {
            C g = Convert<C>::from(task.b[at + k * task.inner]);
            C y = Convert<C>::from(task.a[at + k * task.inner]);
            put(task.out + at + k * task.inner, of_backward(y, g, sum, task.log));
        }
    }
}

struct Forward : Softmax {
    template <int VALUES, bool WIDE> __device__ __forceinline__ void rows() const { forward_rows<VALUES, WIDE>(*this); }
    __device__ __forceinline__ void columns() const { forward_columns(*this); }
};

struct Backward : Softmax {
    template <int VALUES, bool WIDE> __device__ __forceinline__ void rows() const { backward_rows<VALUES, WIDE>(*this); }
    __device__ __forceinline__ void columns() const { backward_columns(*this); }
};

extern "C" __global__ void __launch_bounds__(FOLD_THREADS, COLUMNS_BLOCKS) columns(VARIANT op) { op.columns(); }
