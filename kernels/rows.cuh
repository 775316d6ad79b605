// Rows of elements that a group of threads reads more than once: kept in registers where they are short
// enough. Groups are threads side by side along x, a power of two up to 32 or the whole block.

// VALUES is how many elements a thread keeps, 0 for none; WIDE is whether it reads WIDTH at a time.
template <int VALUES, bool WIDE> struct Row {
    static const int EACH = WIDE ? WIDTH : 1;
    static const int PACKS = VALUES / EACH;
    const T* x;
    int items;
    C kept[VALUES ? VALUES : 1];

    __device__ __forceinline__ Row(const T* row, int length) : x(row), items(length / EACH) {
#pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            int item = threadIdx.x + p * blockDim.x;
            if (item < items) values_at<WIDE>(x + item * EACH, kept + p * EACH);
        }
    }
    // Calls f(EACH values, the first one's place) for all of the thread's elements.
    template <class F> __device__ __forceinline__ void each(F f) const {
        if (VALUES) {
#pragma unroll
            for (int p = 0; p < PACKS; ++p) {
                int item = threadIdx.x + p * blockDim.x;
                if (item < items) f(kept + p * EACH, item * EACH);
            }
        } else {
#pragma unroll 4
            for (int item = threadIdx.x; item < items; item += blockDim.x) {
                C v[EACH];
                values_at<WIDE>(x + (i64)item * EACH, v);
                f(v, item * EACH);
            }
        }
    }
    // The same with the elements of another row of this length.
    template <class F> __device__ __forceinline__ void with(const Row& other, F f) const {
        if (VALUES) {
#pragma unroll
            for (int p = 0; p < PACKS; ++p) {
                int item = threadIdx.x + p * blockDim.x;
                if (item < items) f(kept + p * EACH, other.kept + p * EACH, item * EACH);
            }
        } else {
#pragma unroll 2
            for (int item = threadIdx.x; item < items; item += blockDim.x) {
                C v[EACH], w[EACH];
                values_at<WIDE>(x + (i64)item * EACH, v);
                values_at<WIDE>(other.x + (i64)item * EACH, w);
                f(v, w, item * EACH);
            }
        }
    }
};

template <bool WIDE> __device__ __forceinline__ void put_values(T* to, const C* v) {
    if (WIDE) {
        Pack pack;
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) put(&pack.values[k], v[k]);
        *(Pack*)to = pack;
    } else {
        put(to, v[0]);
    }
}

// Sums over a group.
template <class A> struct Pair { A a, b; };
struct AddPairs {
    typedef Pair<C> Acc;
    __device__ __forceinline__ Acc combine(const Acc& x, const Acc& y) const { return {x.a + y.a, x.b + y.b}; }
};
struct AddWide {
    typedef double Acc;
    __device__ __forceinline__ double combine(double x, double y) const { return x + y; }
};
struct AddNumbers {
    typedef C Acc;
    __device__ __forceinline__ C combine(C x, C y) const { return x + y; }
};

// Blocks take rows: a kernel body for `row` of `rows`.
#define EACH_ROW(row, rows)                                                                  \
    for (i64 base = (i64)blockIdx.x * blockDim.y, row = base + threadIdx.y; base < (rows);   \
         base += (i64)gridDim.x * blockDim.y, row = base + threadIdx.y)
