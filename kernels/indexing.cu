// Elements and slices by index. What is only moved is moved in units of 1, 2, 4, 8 or
// 16 bytes. Indices are checked: one that is out of range ends the program, as in PyTorch.

#define MOST_DIMS 8

// to[o][k] = from[o][index[k]], rows of `row` units.
template <class T>
__device__ __forceinline__ void take(T* to, const T* from, const i64* index, i64 outer, i64 n, i64 m, i64 row, Refusal refusal) {
    i64 count = outer * m * row;
    for (i64 i = first_index(); i < count; i += index_step()) {
        i64 r = whole_quotient(i, row), j = i - r * row;
        i64 o = whole_quotient(r, m), k = r - o * m;
        to[i] = from[(o * n + checked(index[k], n, k, refusal)) * row + j];
    }
}

// to[o][index[k]] = from[o][k]; of slices that are named twice one is left.
template <class T>
__device__ __forceinline__ void put_slices(T* to, const T* from, const i64* index, i64 outer, i64 n, i64 m, i64 row, Refusal refusal) {
    i64 count = outer * m * row;
    for (i64 i = first_index(); i < count; i += index_step()) {
        i64 r = whole_quotient(i, row), j = i - r * row;
        i64 o = whole_quotient(r, m), k = r - o * m;
        to[(o * n + checked(index[k], n, k, refusal)) * row + j] = from[i];
    }
}

__device__ __forceinline__ void add_to(float* to, float x) { atomicAdd(to, x); }
__device__ __forceinline__ void add_to(double* to, double x) { atomicAdd(to, x); }
__device__ __forceinline__ void add_to(i32* to, i32 x) { atomicAdd(to, x); }
__device__ __forceinline__ void add_to(i64* to, i64 x) { atomicAdd((u64*)to, (u64)x); }

// to[o][index[k]] += from[o][k]; the index `skipped` is left out.
template <class A, class T>
__device__ __forceinline__ void add(
    A* to, const T* from, const i64* index, i64 outer, i64 n, i64 m, i64 row, i64 skipped,
    Refusal refusal
) {
    i64 count = outer * m * row;
    for (i64 i = first_index(); i < count; i += index_step()) {
        i64 r = whole_quotient(i, row), j = i - r * row;
        i64 o = whole_quotient(r, m), k = r - o * m, at = checked(index[k], n, k, refusal);
        if (at != skipped) add_to(to + (o * n + at) * row + j, Convert<A>::from(from[i]));
    }
}

// Where the places of an index are: its sizes, and strides in the indexed tensor (0 along the dimension
// that is indexed) and in the one beside the index.
struct Places {
    i64 count, size, along;
    i64 sizes[MOST_DIMS], whole[MOST_DIMS], beside[MOST_DIMS];
    i32 dims, reserved;
    Refusal refusal;
};

__device__ __forceinline__ void place(const Places& p, const i64* index, i64 i, i64* whole, i64* beside) {
    i64 left = i, w = checked(index[i], p.size, i, p.refusal) * p.along, b = 0;
    for (int d = p.dims - 1; d > 0; --d) {
        i64 next = whole_quotient(left, p.sizes[d]), at = left - next * p.sizes[d];
        left = next;
        w += at * p.whole[d];
        b += at * p.beside[d];
    }
    *whole = w + left * p.whole[0];
    *beside = b + left * p.beside[0];
}

template <class T>
__device__ __forceinline__ void gather(T* beside, const T* whole, const i64* index, const Places& p) {
    for (i64 i = first_index(); i < p.count; i += index_step()) {
        i64 w, b;
        place(p, index, i, &w, &b);
        beside[b] = whole[w];
    }
}

template <class T>
__device__ __forceinline__ void scatter(T* whole, const T* beside, const i64* index, const Places& p) {
    for (i64 i = first_index(); i < p.count; i += index_step()) {
        i64 w, b;
        place(p, index, i, &w, &b);
        whole[w] = beside[b];
    }
}

template <class A, class T>
__device__ __forceinline__ void scatter_add(A* whole, const T* beside, const i64* index, const Places& p) {
    for (i64 i = first_index(); i < p.count; i += index_step()) {
        i64 w, b;
        place(p, index, i, &w, &b);
        add_to(whole + w, Convert<A>::from(beside[b]));
    }
}

__device__ __forceinline__ u64 word_of(double x) { return (u64)__double_as_longlong(x); }
__device__ __forceinline__ u64 word_of(i64 x) { return (u64)x; }
__device__ __forceinline__ u32 word_of(float x) { return __float_as_uint(x); }
__device__ __forceinline__ void from_word(u64 word, double* x) { *x = __longlong_as_double((i64)word); }
__device__ __forceinline__ void from_word(u64 word, i64* x) { *x = (i64)word; }
__device__ __forceinline__ void from_word(u32 word, float* x) { *x = __uint_as_float(word); }

// Replaces a number in memory by it and x together, all at once; nothing is written where that changes nothing,
// which soon is the rule for extremes.
template <class Op, class A> __device__ __forceinline__ void combine_at(A* at, A x) {
    typedef decltype(word_of(A())) Word;
    Word seen = *(volatile Word*)at;
    while (true) {
        A old;
        from_word(seen, &old);
        Word wanted = word_of(Op::of(old, x));
        if (wanted == seen) return;
        Word found = atomicCAS((Word*)at, seen, wanted);
        if (found == seen) return;
        seen = found;
    }
}

struct Product {
    static __device__ __forceinline__ double of(double a, double b) { return a * b; }
    static __device__ __forceinline__ float of(float a, float b) { return a * b; }
    static __device__ __forceinline__ i64 of(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }
};
// The extreme, NaN if one is.
struct Larger {
    template <class A> static __device__ __forceinline__ A of(A a, A b) { return b > a || b != b ? b : a; }
};
struct Smaller {
    template <class A> static __device__ __forceinline__ A of(A a, A b) { return b < a || b != b ? b : a; }
};

template <class Op, class A>
__device__ __forceinline__ void scatter_with(A* whole, const A* beside, const i64* index, const Places& p) {
    for (i64 i = first_index(); i < p.count; i += index_step()) {
        i64 w, b;
        place(p, index, i, &w, &b);
        combine_at<Op>(whole + w, beside[b]);
    }
}

#define MOVING(unit, T)                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) take_##unit(                                       \
        T* to, const T* from, const i64* index, i64 outer, i64 n, i64 m, i64 row, Refusal refusal        \
    ) { take(to, from, index, outer, n, m, row, refusal); }                                              \
    extern "C" __global__ void __launch_bounds__(256) put_##unit(                                        \
        T* to, const T* from, const i64* index, i64 outer, i64 n, i64 m, i64 row, Refusal refusal        \
    ) { put_slices(to, from, index, outer, n, m, row, refusal); }                                        \
    extern "C" __global__ void __launch_bounds__(256) gather_##unit(                                     \
        T* beside, const T* whole, const i64* index, Places p                                            \
    ) { gather(beside, whole, index, p); }                                                               \
    extern "C" __global__ void __launch_bounds__(256) scatter_##unit(                                    \
        T* whole, const T* beside, const i64* index, Places p                                            \
    ) { scatter(whole, beside, index, p); }
#if !PARTED || PART_1
MOVING(1, u8)
#endif
#if !PARTED || PART_2
MOVING(2, u16)
#endif
#if !PARTED || PART_4
MOVING(4, u32)
#endif
#if !PARTED || PART_8
MOVING(8, u64)
#endif
#if !PARTED || PART_16
MOVING(16, Several<u64>)
#endif

#define ADDING(name, A, T)                                                                               \
    extern "C" __global__ void __launch_bounds__(256) add_##name(                                        \
        A* to, const T* from, const i64* index, i64 outer, i64 n, i64 m, i64 row, i64 skipped,           \
        Refusal refusal                                                                                  \
    ) { add(to, from, index, outer, n, m, row, skipped, refusal); }                                      \
    extern "C" __global__ void __launch_bounds__(256) scatter_add_##name(                                \
        A* whole, const T* beside, const i64* index, Places p                                            \
    ) { scatter_add(whole, beside, index, p); }
#if !PARTED || PART_f64
ADDING(f64, double, double)
#endif
#if !PARTED || PART_f32
ADDING(f32, float, float)
#endif
#if !PARTED || PART_f16
ADDING(f16, float, f16)
#endif
#if !PARTED || PART_bf16
ADDING(bf16, float, bf16)
#endif
#if !PARTED || PART_i64
ADDING(i64, i64, i64)
#endif
#if !PARTED || PART_i32
ADDING(i32, i32, i32)
#endif
#if !PARTED || PART_i16
ADDING(i16, i32, i16)
#endif
#if !PARTED || PART_i8
ADDING(i8, i32, i8)
#endif
#if !PARTED || PART_u8
ADDING(u8, i32, u8)
#endif

#define COMBINING(name, Op, type, A)                                                                     \
    extern "C" __global__ void __launch_bounds__(256) scatter_##name##_##type(                           \
        A* whole, const A* beside, const i64* index, Places p                                            \
    ) { scatter_with<Op>(whole, beside, index, p); }
#define COMBINING_ALL(name, Op)                                                                          \
    COMBINING(name, Op, f64, double)                                                                     \
    COMBINING(name, Op, f32, float)                                                                      \
    COMBINING(name, Op, i64, i64)
#if !PARTED || PART_scatter_prod
COMBINING_ALL(prod, Product)
#endif
#if !PARTED || PART_scatter_amax
COMBINING_ALL(amax, Larger)
#endif
#if !PARTED || PART_scatter_amin
COMBINING_ALL(amin, Smaller)
#endif
