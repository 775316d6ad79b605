// The reductions, each an operation of fold.cuh.

// What is done to a result: divided, then its root.
#define FINISH_DIVIDE 1
#define FINISH_ROOT 2

struct Reduction {
    const T* x;
    char* out;
    // Indices of extremes.
    i64* places;
    double divisor;
    // The result's type and its bytes.
    i32 format;
    i32 size;
    i32 finishing;
    i32 reserved;

    __device__ __forceinline__ void write(i64 o, C value) const {
        if (finishing & FINISH_DIVIDE) value = (C)(value / (C)divisor);
        if (finishing & FINISH_ROOT) value = root(value);
        store<C>(out + o * size, format, value);
    }
};

__device__ __forceinline__ float magnitude(float x) { return fabsf(x); }
__device__ __forceinline__ double magnitude(double x) { return fabs(x); }
__device__ __forceinline__ i64 magnitude(i64 x) { return x < 0 ? -x : x; }

// Folds of mapped values into one of their type. Integers wrap.
#define PLAIN_FOLD(Name, first, map, joined)                                                   \
    struct Name : Reduction {                                                                  \
        typedef C Acc;                                                                         \
        __device__ __forceinline__ C zero() const { return first; }                            \
        __device__ __forceinline__ C combine(C a, C b) const { return joined; }                \
        template <bool WIDE> __device__ __forceinline__ void add(C& acc, i64 at, i64, i64) const { \
            C v[WIDTH];                                                                        \
            int count = values_at<WIDE>(x + at, v);                                            \
            C e = v[0], part = map;                                                            \
            for (int k = 1; k < count; ++k) {                                                  \
                e = v[k];                                                                      \
                part = combine(part, map);                                                     \
            }                                                                                  \
            acc = combine(acc, part);                                                          \
        }                                                                                      \
        __device__ __forceinline__ void finish(i64 o, C acc) const { write(o, acc); }          \
    }

// Of numbers one of which may be NaN, which wins.
#define LARGER(a, b) ((a) != (a) || (a) >= (b) ? (a) : (b))
#define SMALLER(a, b) ((a) != (a) || (a) <= (b) ? (a) : (b))

PLAIN_FOLD(Sum, (C)0, e, a + b);
PLAIN_FOLD(Prod, (C)1, e, a * b);
PLAIN_FOLD(Magnitudes, (C)0, magnitude(e), a + b);
PLAIN_FOLD(Max, Limits<C>::least(), e, LARGER(a, b));
PLAIN_FOLD(Min, Limits<C>::most(), e, SMALLER(a, b));
PLAIN_FOLD(Any, (C)0, (C)(e != (C)0), a != (C)0 || b != (C)0 ? (C)1 : (C)0);
PLAIN_FOLD(All, (C)1, (C)(e != (C)0), a != (C)0 && b != (C)0 ? (C)1 : (C)0);

// The largest or smallest element and its place; of equal ones the first.
struct Found { C value; i64 place; };
template <bool LARGEST> struct Extreme : Reduction {
    typedef Found Acc;
    __device__ __forceinline__ Found zero() const {
        return {LARGEST ? Limits<C>::least() : Limits<C>::most(), 0x7fffffffffffffffll};
    }
    __device__ __forceinline__ Found combine(const Found& a, const Found& b) const {
        bool nan = a.value != a.value, other_nan = b.value != b.value;
        bool same = a.value == b.value || (nan && other_nan);
        bool ahead = nan || (!other_nan && (LARGEST ? a.value > b.value : a.value < b.value));
        return same ? (a.place <= b.place ? a : b) : ahead ? a : b;
    }
    template <bool WIDE> __device__ __forceinline__ void add(Found& acc, i64 at, i64 item, i64) const {
        C v[WIDTH];
        int count = values_at<WIDE>(x + at, v);
        for (int k = 0; k < count; ++k) acc = combine(acc, Found{v[k], item * count + k});
    }
    __device__ __forceinline__ void finish(i64 o, const Found& acc) const {
        if (out) write(o, acc.value);
        places[o] = acc.place;
    }
};
typedef Extreme<true> Largest;
typedef Extreme<false> Smallest;

// Squares are added in double: their sums leave the range of float where their roots do not.
struct OfSquares : Reduction {
    __device__ __forceinline__ void write_wide(i64 o, double value) const {
        if (finishing & FINISH_DIVIDE) value /= divisor;
        if (finishing & FINISH_ROOT) value = root(value);
        store<double>(out + o * size, format, value);
    }
};

struct Squares : OfSquares {
    typedef double Acc;
    __device__ __forceinline__ double zero() const { return 0.0; }
    __device__ __forceinline__ double combine(double a, double b) const { return a + b; }
    template <bool WIDE> __device__ __forceinline__ void add(double& acc, i64 at, i64, i64) const {
        C v[WIDTH];
        int count = values_at<WIDE>(x + at, v);
        double part = (double)v[0] * (double)v[0];
        for (int k = 1; k < count; ++k) part += (double)v[k] * (double)v[k];
        acc += part;
    }
    __device__ __forceinline__ void finish(i64 o, double acc) const { write_wide(o, acc); }
};

template <class A> struct Variance : OfSquares {
    typedef typename Momentary<A>::Acc Acc;
    __device__ __forceinline__ Acc zero() const { return Momentary<A>().zero(); }
    __device__ __forceinline__ Acc combine(const Acc& a, const Acc& b) const { return Momentary<A>::join(a, b); }
    template <bool WIDE> __device__ __forceinline__ void add(Acc& acc, i64 at, i64, i64) const {
        A v[WIDTH];
        int count = values_at<WIDE>(x + at, v);
        Momentary<A>::take(acc, v, count);
    }
    __device__ __forceinline__ void finish(i64 o, const Acc& acc) const { write_wide(o, acc.squares); }
};
typedef Variance<C> Var;

template <class A> struct LogOfSum : Reduction {
    typedef ExpSum<A> Acc;
    __device__ __forceinline__ Acc zero() const { return ExpSums<A>().zero(); }
    __device__ __forceinline__ Acc combine(const Acc& a, const Acc& b) const { return ExpSums<A>().combine(a, b); }
    template <bool WIDE> __device__ __forceinline__ void add(Acc& acc, i64 at, i64, i64) const {
        A v[WIDTH];
        int count = values_at<WIDE>(x + at, v);
        ExpSums<A>::take(acc, v, count);
    }
    __device__ __forceinline__ void finish(i64 o, const Acc& acc) const { write(o, ExpSums<A>::logarithm(acc)); }
};
typedef LogOfSum<C> LogSumExp;
