// Lists of gradients: unscaled, measured, scaled; in pieces of so many elements, a block for each.

#define PIECE 16384
#define MOST_TENSORS 128

struct List {
    char* at[MOST_TENSORS];
    i64 counts[MOST_TENSORS];
    // The first block of each tensor.
    i32 blocks[MOST_TENSORS];
    i32 formats[MOST_TENSORS];
    i32 tensors, reserved;
};

struct Piece { char* at; i64 start; i32 count, format; };

__device__ __forceinline__ Piece piece(const List& list) {
    i32 own = tensor_of_block(list.blocks, list.tensors);
    Piece piece;
    piece.start = (i64)((i32)blockIdx.x - list.blocks[own]) * PIECE;
    i64 left = list.counts[own] - piece.start;
    piece.count = left < PIECE ? (i32)left : PIECE;
    piece.at = list.at[own];
    piece.format = list.formats[own];
    return piece;
}

// Calls `f.each(element)` for all elements, sixteen bytes at a time where they lie so; `f` may change them.
template <class T, bool WRITES, class F> __device__ __forceinline__ void walk(const Piece& piece, F& f) {
    const int WIDE = 16 / sizeof(T);
    T* at = (T*)piece.at + piece.start;
    i32 packs = (u64)at % 16 == 0 ? piece.count / WIDE : 0;
    for (i32 i = threadIdx.x; i < packs; i += blockDim.x) {
        Several<T> pack = ((Several<T>*)at)[i];
        for (int j = 0; j < WIDE; ++j) f.each(&pack.values[j]);
        if (WRITES) ((Several<T>*)at)[i] = pack;
    }
    for (i32 i = packs * WIDE + (i32)threadIdx.x; i < piece.count; i += blockDim.x) {
        T one = at[i];
        f.each(&one);
        if (WRITES) at[i] = one;
    }
}

template <bool WRITES, class F> __device__ __forceinline__ void walk_any(const Piece& piece, F& f) {
    switch (piece.format) {
        case FORMAT_F64: walk<double, WRITES>(piece, f); break;
        case FORMAT_F32: walk<float, WRITES>(piece, f); break;
        case FORMAT_F16: walk<f16, WRITES>(piece, f); break;
        default: walk<bf16, WRITES>(piece, f); break;
    }
}

struct Unscale {
    double factor;
    bool odd;
    template <class T> __device__ __forceinline__ void each(T* x) {
        typedef typename Wide<T>::type C;
        C v = Convert<C>::from(*x);
        // Neither infinite nor NaN: only then it is 0.
        odd |= v - v != (C)0;
        put(x, v * (C)factor);
    }
};

// Multiplies, and sets the flag where a number was infinite or NaN.
extern "C" __global__ void __launch_bounds__(256) unscale(List list, double factor, float* flag) {
    Unscale f = {factor, false};
    walk_any<true>(piece(list), f);
    if (f.odd) *flag = 1.0f;
}

struct Scale {
    double factor;
    template <class T> __device__ __forceinline__ void each(T* x) {
        typedef typename Wide<T>::type C;
        put(x, Convert<C>::from(*x) * (C)factor);
    }
};

// Multiplies by most / norm where that makes the numbers smaller, or NaN.
extern "C" __global__ void __launch_bounds__(256) scale_by_norm(List list, double most, const void* norm, i32 format) {
    double factor = most / (load<double>(norm, format) + 1e-6);
    if (factor >= 1.0) return;
    Scale f = {factor};
    walk_any<true>(piece(list), f);
}

// Multiplies by a number that is divided by another, if there is one; by 0 where that is 0. By 1 is no work.
extern "C" __global__ void __launch_bounds__(256)
scale_by(List list, const void* number, i32 format, const void* divisor, i32 divisor_format) {
    Scale f = {load<double>(number, format)};
    if (divisor) {
        double by = load<double>(divisor, divisor_format);
        f.factor = by == 0.0 ? 0.0 : f.factor / by;
    }
    if (f.factor == 1.0) return;
    walk_any<true>(piece(list), f);
}

// Sums of powers of absolute values, or the largest of them for an order of 0.
struct Measure {
    double order, sum;
    __device__ __forceinline__ void join(double v) {
        if (order == 0.0) {
            if (v > sum || v != v) sum = v;
        } else {
            sum += v;
        }
    }
    template <class T> __device__ __forceinline__ void each(T* x) {
        double v = fabs(Convert<double>::from(*x));
        join(order == 0.0 || order == 1.0 ? v : order == 2.0 ? v * v : pow(v, order));
    }
};

// The joint result of all threads, in thread 0.
__device__ __forceinline__ double joined(Measure m) {
    __shared__ double warps[8];
    for (int step = 16; step > 0; step /= 2) m.join(__shfl_down_sync(0xffffffffu, m.sum, step));
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = m.sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 8; ++w) m.join(warps[w]);
    }
    return m.sum;
}

// A block's piece of the norm; blocks have 256 threads.
extern "C" __global__ void __launch_bounds__(256) measure(List list, double order, double* parts) {
    Measure m = {order, 0.0};
    walk_any<false>(piece(list), m);
    double all = joined(m);
    if (threadIdx.x == 0) parts[blockIdx.x] = all;
}

// The norm from all pieces, by one block, in a fixed order.
extern "C" __global__ void __launch_bounds__(256) finish_norm(const double* parts, i64 count, double order, double* out) {
    Measure m = {order, 0.0};
    for (i64 i = threadIdx.x; i < count; i += blockDim.x) m.join(parts[i]);
    double all = joined(m);
    if (threadIdx.x == 0) *out = order == 0.0 || order == 1.0 ? all : order == 2.0 ? sqrt(all) : pow(all, 1.0 / order);
}
