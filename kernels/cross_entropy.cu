// Cross entropy of dense rows of class scores, and negative log likelihood.

#define FOLD_BLOCKS 2
#define KEPT_BLOCKS 3
#define KEPT_WIDE_BLOCKS 3

struct Classes {
    const T* x;
    const i64* target;
    // A weight per class and their sum, or null.
    const C* weight;
    const C* all_weights;
    C* lse;
    // In forward the rows' losses and weights; in backward the losses' gradient is `g`.
    C* losses;
    C* weights;
    const C* g;
    // What the gradient is divided by, or null.
    const C* total;
    T* out;
    i64 rows, classes, ignored;
    double smoothing;
    // Whether there is one gradient for all rows.
    i32 one;
    i32 reserved;
    Refusal refusal;

    __device__ __forceinline__ C sum_of_weights() const { return weight ? *all_weights : (C)classes; }
};

// The fold of a row's scores, which gives its loss.
struct Spread { C largest, sum, weighted; };
template <class A> struct Losses : Classes {
    typedef Spread Acc;
    __device__ __forceinline__ Acc zero() const { return {Limits<A>::least(), (A)0, (A)0}; }
    __device__ __forceinline__ Acc combine(const Acc& a, const Acc& b) const {
        ExpSum<A> sum = ExpSums<A>().combine({a.largest, a.sum}, {b.largest, b.sum});
        return {sum.largest, sum.sum, a.weighted + b.weighted};
    }
    template <bool WIDE> __device__ __forceinline__ void add(Acc& acc, i64 at, i64 item, i64) const {
        A v[WIDTH];
        int count = values_at<WIDE>(x + at, v);
        ExpSum<A> sum = {acc.largest, acc.sum};
        ExpSums<A>::take(sum, v, count);
        acc.largest = sum.largest;
        acc.sum = sum.sum;
        if (smoothing > 0.0) {
            for (int k = 0; k < count; ++k) acc.weighted += weight ? v[k] * weight[item * count + k] : v[k];
        }
    }
    __device__ __forceinline__ void finish(i64 o, const Acc& acc) const {
        i64 t = target[o];
        if (t == ignored) {
            lse[o] = losses[o] = weights[o] = (A)0;
            return;
        }
        checked(t, classes, o, refusal);
        A w = weight ? weight[t] : (A)1;
        // An infinite score makes NaN: inf - inf.
        A logarithm = log_e(acc.sum + (acc.largest - acc.largest)), all = acc.largest + logarithm;
        // In this order the large parts cancel before the small one is added.
        A loss = (A)(1.0 - smoothing) * w * ((acc.largest - Convert<A>::from(x[o * classes + t])) + logarithm);
        if (smoothing > 0.0) loss += (A)(smoothing / (double)classes) * (sum_of_weights() * all - acc.weighted);
        lse[o] = all;
        losses[o] = loss;
        weights[o] = w;
    }
};
typedef Losses<C> Loss;

// The gradient of the scores.
struct Gradient : Classes {
    template <int VALUES, bool WIDE> __device__ __forceinline__ void rows() const {
        typedef Row<0, WIDE> Elements;
        C own_part = (C)(1.0 - smoothing), spread = (C)(smoothing / (double)classes);
        for (i64 row = (i64)blockIdx.x * blockDim.y + threadIdx.y; row < Classes::rows;
             row += (i64)gridDim.x * blockDim.y) {
            i64 at = row * classes, t = target[row];
            bool counts = t != ignored;
            C own = counts ? own_part * (weight ? weight[t] : (C)1) : (C)0;
            C upper = g[one ? 0 : row];
            if (total) upper /= *total;
            C a = counts ? upper * (own + (smoothing > 0.0 ? spread * sum_of_weights() : (C)0)) : (C)0;
            C b = upper * spread, log_sum = lse[row];
            Elements x(this->x + at, (int)classes);
            x.each([&](const C* v, int place) {
                C d[Elements::EACH];
                for (int k = 0; k < Elements::EACH; ++k) {
                    C value = a * power_e(v[k] - log_sum);
                    if (smoothing > 0.0) value -= weight ? b * weight[place + k] : b;
                    if (place + k == t) value -= upper * own;
                    d[k] = counts ? value : (C)0;
                }
                put_values<WIDE>(out + at + place, d);
            });
        }
    }
};

// The sum of losses over the sum of weights. T is C here.
struct Average {
    const T* losses;
    const T* weights;
    char* out;
    C* total;
    i32 format;
    i32 reserved;

    typedef Pair<C> Acc;
    __device__ __forceinline__ Acc zero() const { return {(C)0, (C)0}; }
    __device__ __forceinline__ Acc combine(const Acc& x, const Acc& y) const { return {x.a + y.a, x.b + y.b}; }
    template <bool WIDE> __device__ __forceinline__ void add(Acc& acc, i64 at, i64, i64) const {
        C v[WIDTH], w[WIDTH];
        int count = values_at<WIDE>(losses + at, v);
        values_at<WIDE>(weights + at, w);
        for (int k = 0; k < count; ++k) acc = combine(acc, Acc{v[k], w[k]});
    }
    __device__ __forceinline__ void finish(i64, const Acc& acc) const {
        *total = acc.b;
        store<C>(out, format, acc.a / acc.b);
    }
};
