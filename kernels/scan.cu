// Running sums, products and extremes along the middle of a dense [outer, n, inner] array. Lines are cut into
// chunks where there are few of them: then the chunks' totals are scanned first.

// The assembler for sm_100a spills a few registers unless it may take as many as it likes.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define LOOSE(THREADS) __launch_bounds__(THREADS, 1)
#else
#define LOOSE(THREADS) __launch_bounds__(THREADS)
#endif

// What is computed in: as exact as there is.
template <class A> struct Wider { typedef A type; };
template <> struct Wider<float> { typedef double type; };
typedef Wider<C>::type A;

// Integers' sums and products are i64.
template <class A> struct Summed { typedef T type; };
template <> struct Summed<i64> { typedef i64 type; };

struct Scan {
    const T* x;
    // Of a product's gradient: that of the result, and the result.
    const T* g;
    const T* products;
    char* y;
    i64* places;
    // Totals per line and chunk, or null.
    void* parts;
    i64 outer, n, inner;
    i64 chunk, chunks;
    // Whether lines begin at their ends.
    i32 reversed;
    // Whether only the chunks' totals are wanted.
    i32 totals;
};

struct Numbers : Scan {
    typedef A Acc;
    typedef Summed<C>::type Out;
    __device__ __forceinline__ A from(i64 at, i64) const { return Convert<A>::from(x[at]); }
    __device__ __forceinline__ void write(i64 at, i64, A value) const { put((Out*)y + at, value); }
};
struct Add : Numbers {
    __device__ __forceinline__ A zero() const { return (A)0; }
    __device__ __forceinline__ A combine(A a, A b) const { return a + b; }
};
struct Mul : Numbers {
    __device__ __forceinline__ A zero() const { return (A)1; }
    __device__ __forceinline__ A combine(A a, A b) const { return a * b; }
};
struct LogAddExp : Numbers {
    __device__ __forceinline__ A zero() const { return -(A)__longlong_as_double(0x7ff0000000000000ll); }
    __device__ __forceinline__ A combine(A a, A b) const {
        double low = a > b ? (double)b : (double)a, high = a > b ? (double)a : (double)b;
        double most = __longlong_as_double(0x7ff0000000000000ll);
        if (a != a || b != b) return a + b;
        return low == -most || high == most ? (A)high : (A)(high + log1p(exp(low - high)));
    }
};

// Of equal extremes the last; NaN replaces all, and only NaN replaces it.
struct Reached { A value; i64 place; };
template <bool LARGEST> struct Running : Scan {
    typedef Reached Acc;
    __device__ __forceinline__ Reached zero() const { return {(A)0, -1}; }
    __device__ __forceinline__ Reached from(i64 at, i64 place) const { return {Convert<A>::from(x[at]), place}; }
    __device__ __forceinline__ Reached combine(const Reached& a, const Reached& b) const {
        if (a.place < 0) return b;
        if (b.place < 0) return a;
        bool replaces = b.value != b.value || (a.value == a.value && (LARGEST ? b.value >= a.value : b.value <= a.value));
        return replaces ? b : a;
    }
    __device__ __forceinline__ void write(i64 at, i64, const Reached& acc) const {
        put((T*)y + at, acc.value);
        places[at] = acc.place;
    }
};
typedef Running<true> Largest;
typedef Running<false> Smallest;

// The gradient of running products, from the end: s_k = g_k + x_{k+1} s_{k+1}, dx_k = y_{k-1} s_k. Elements are
// the maps s -> factor s + term.
struct Affine { A factor, term; };
struct MulBackward : Scan {
    typedef Affine Acc;
    __device__ __forceinline__ Affine zero() const { return {(A)1, (A)0}; }
    __device__ __forceinline__ Affine from(i64 at, i64 place) const {
        A factor = place + 1 < n ? Convert<A>::from(x[at + inner]) : (A)0;
        return {factor, Convert<A>::from(g[at])};
    }
    __device__ __forceinline__ Affine combine(const Affine& first, const Affine& then) const {
        return {first.factor * then.factor, then.factor * first.term + then.term};
    }
    __device__ __forceinline__ void write(i64 at, i64 place, const Affine& acc) const {
        A before = place > 0 ? Convert<A>::from(products[at - inner]) : (A)1;
        // A zero among what follows wins over what overflowed before it.
        put((T*)y + at, acc.term == (A)0 && before == before ? (A)0 : before * acc.term);
    }
};

template <class V> __device__ __forceinline__ V shuffle_up(const V& value, int by) {
    static_assert(sizeof(V) % 4 == 0, "words are exchanged");
    union Words { V whole; u32 words[sizeof(V) / 4]; __device__ Words() {} } from, to;
    from.whole = value;
#pragma unroll
    for (int k = 0; k < (int)(sizeof(V) / 4); ++k) to.words[k] = __shfl_up_sync(0xffffffffu, from.words[k], by);
    return to.whole;
}

#define SCAN_THREADS 256
// Neighbouring elements of a thread.
#define EACH 8

// The combination of `carry` and the totals of the threads before this one; `carry` goes on to the end.
template <class Op>
__device__ __forceinline__ typename Op::Acc before_thread(const Op& op, typename Op::Acc total, typename Op::Acc& carry) {
    __shared__ typename Op::Acc warps[SCAN_THREADS / 32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    typename Op::Acc upto = total;
    for (int by = 1; by < 32; by *= 2) {
        typename Op::Acc other = shuffle_up(upto, by);
        if (lane >= by) upto = op.combine(other, upto);
    }
    typename Op::Acc previous = shuffle_up(upto, 1);
    __syncthreads();
    if (lane == 31) warps[warp] = upto;
    __syncthreads();
    typename Op::Acc before = carry;
    for (int w = 0; w < SCAN_THREADS / 32; ++w) {
        if (w == warp) before = carry;
        carry = op.combine(carry, warps[w]);
    }
    return lane == 0 ? before : op.combine(before, previous);
}

// Where a tile's element is in a block's memory: so that threads with EACH neighbours do not meet in a bank.
__device__ __forceinline__ int staged_at(int i) { return i + i / EACH; }

// Lines that lie densely: a block for each chunk. Memory is read and written by neighbouring threads, and each thread
// scans its neighbours.
extern "C" __global__ void LOOSE(SCAN_THREADS) scan_rows(VARIANT op) {
    typedef VARIANT::Acc Acc;
    __shared__ Acc staged[SCAN_THREADS * (EACH + 1)];
    Acc* parts = (Acc*)op.parts;
    for (i64 block = blockIdx.x; block < op.outer * op.chunks; block += gridDim.x) {
        i64 line = block / op.chunks, chunk = block - line * op.chunks;
        i64 first = chunk * op.chunk, end = op.n - first > op.chunk ? first + op.chunk : op.n;
        Acc carry = !op.totals && chunk > 0 ? parts[block - 1] : op.zero();
        for (i64 tile = first; tile < end; tile += SCAN_THREADS * EACH) {
            Acc values[EACH], total = op.zero();
            __syncthreads();
#pragma unroll
            for (int k = 0; k < EACH; ++k) {
                int own = k * SCAN_THREADS + threadIdx.x;
                i64 i = tile + own, place = op.reversed ? op.n - 1 - i : i;
                staged[staged_at(own)] = i < end ? op.from(line * op.n + place, place) : op.zero();
            }
            __syncthreads();
#pragma unroll
            for (int k = 0; k < EACH; ++k) {
                values[k] = staged[staged_at(threadIdx.x * EACH + k)];
                total = op.combine(total, values[k]);
            }
            Acc acc = before_thread(op, total, carry);
            if (op.totals) continue;
#pragma unroll
            for (int k = 0; k < EACH; ++k) {
                acc = op.combine(acc, values[k]);
                staged[staged_at(threadIdx.x * EACH + k)] = acc;
            }
            __syncthreads();
#pragma unroll
            for (int k = 0; k < EACH; ++k) {
                int own = k * SCAN_THREADS + threadIdx.x;
                i64 i = tile + own, place = op.reversed ? op.n - 1 - i : i;
                if (i < end) op.write(line * op.n + place, place, staged[staged_at(own)]);
            }
        }
        if (op.totals && threadIdx.x == 0) parts[block] = carry;
    }
}

// Lines side by side: a thread for each chunk, blockIdx.y.
extern "C" __global__ void __launch_bounds__(SCAN_THREADS) scan_columns(VARIANT op) {
    typedef VARIANT::Acc Acc;
    Acc* parts = (Acc*)op.parts;
    i64 chunk = blockIdx.y, first = chunk * op.chunk, end = op.n - first > op.chunk ? first + op.chunk : op.n;
    for (i64 line = first_index(); line < op.outer * op.inner; line += index_step()) {
        i64 at = line / op.inner * op.n * op.inner + line % op.inner;
        Acc acc = !op.totals && chunk > 0 ? parts[line * op.chunks + chunk - 1] : op.zero();
#pragma unroll 4
        for (i64 i = first; i < end; ++i) {
            i64 place = op.reversed ? op.n - 1 - i : i;
            acc = op.combine(acc, op.from(at + place * op.inner, place));
            if (!op.totals) op.write(at + place * op.inner, place, acc);
        }
        if (op.totals) parts[line * op.chunks + chunk] = acc;
    }
}

// The chunks' totals of each line become those of all chunks up to each: a block for a line.
extern "C" __global__ void __launch_bounds__(SCAN_THREADS) scan_totals(VARIANT op) {
    typedef VARIANT::Acc Acc;
    for (i64 line = blockIdx.x; line < op.outer * op.inner; line += gridDim.x) {
        Acc* parts = (Acc*)op.parts + line * op.chunks;
        Acc carry = op.zero();
        for (i64 tile = 0; tile < op.chunks; tile += SCAN_THREADS) {
            i64 i = tile + threadIdx.x;
            Acc own = i < op.chunks ? parts[i] : op.zero();
            Acc before = before_thread(op, own, carry);
            if (i < op.chunks) parts[i] = op.combine(before, own);
        }
    }
}
