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
    // `step` is the distance of rows for `Step`; all else has dense ones.
    i64 rows, classes, step, ignored;
    double smoothing;
    // Whether there is one gradient for all rows.
    i32 one;
    // The number of the first row in its batch, for messages.
    i32 first;
    Refusal refusal;

    __device__ __forceinline__ C sum_of_weights() const { return weight ? *all_weights : (C)classes; }
};

// Of a row: the weight of its class, the loss and the logarithm of the sum of exponentials.
template <class A> struct Lost { A weight, loss, all; };

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
        checked(t, classes, first + o, refusal);
        Lost<A> row = lost(acc, t, Convert<A>::from(x[o * classes + t]));
        lse[o] = row.all;
        losses[o] = row.loss;
        weights[o] = row.weight;
    }
    // What comes of the fold of a row of class `t`, which has this score.
    __device__ __forceinline__ Lost<A> lost(const Acc& acc, i64 t, A score) const {
        A w = weight ? weight[t] : (A)1;
        // An infinite score makes NaN: inf - inf.
        A logarithm = log_e(acc.sum + (acc.largest - acc.largest)), all = acc.largest + logarithm;
        // In this order the large parts cancel before the small one is added.
        A loss = (A)(1.0 - smoothing) * w * ((acc.largest - score) + logarithm);
        if (smoothing > 0.0) loss += (A)(smoothing / (double)classes) * (sum_of_weights() * all - acc.weighted);
        return {w, loss, all};
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

// Losses and, in place of the scores, their gradients for a gradient of 1 of each, in one visit of a row. What lies
// between the classes and the next row counts for nothing, and is written over.
struct Step : Losses<C> {
    template <int VALUES, bool WIDE> __device__ __forceinline__ void rows() const {
        typedef Row<VALUES, WIDE> Elements;
        C own_part = (C)(1.0 - smoothing), spread = (C)(smoothing / (double)classes);
        EACH_ROW(row, Classes::rows) {
            bool here = row < Classes::rows;
            i64 at = here ? row * step : 0, t = here ? target[row] : ignored;
            bool counts = t != ignored;
            if (counts) checked(t, classes, first + row, refusal);
            Elements x(this->x + at, here ? (int)step : 0);
            C score = counts ? Convert<C>::from(this->x[at + t]) : (C)0;
            Spread acc = zero();
            x.each([&](const C* v, int place) {
                C scores[Elements::EACH];
#pragma unroll
                for (int k = 0; k < Elements::EACH; ++k) scores[k] = place + k < classes ? v[k] : Limits<C>::least();
                ExpSum<C> sum = {acc.largest, acc.sum};
                ExpSums<C>::take(sum, scores, Elements::EACH);
                acc.largest = sum.largest;
                acc.sum = sum.sum;
                if (smoothing > 0.0) {
#pragma unroll
                    for (int k = 0; k < Elements::EACH; ++k) {
                        if (place + k < classes) acc.weighted += weight ? v[k] * weight[place + k] : v[k];
                    }
                }
            });
            acc = across_lanes(static_cast<const Losses<C>&>(*this), acc, blockDim.x);
            // All have read their class's score before it is written over.
            __syncthreads();
            Lost<C> row_loss = {(C)0, (C)0, (C)0};
            if (counts) row_loss = lost(acc, t, score);
            if (here && threadIdx.x == 0) {
                losses[row] = row_loss.loss;
                weights[row] = row_loss.weight;
            }
            C upper = total ? (C)1 / *total : (C)1, own = own_part * row_loss.weight;
            C a = upper * (own + (smoothing > 0.0 ? spread * sum_of_weights() : (C)0)), b = upper * spread;
            C log_sum = row_loss.all;
            x.each([&](const C* v, int place) {
                C d[Elements::EACH];
#pragma unroll
                for (int k = 0; k < Elements::EACH; ++k) {
                    C value = a * power_e(v[k] - log_sum);
                    if (smoothing > 0.0) value -= weight && place + k < classes ? b * weight[place + k] : b;
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
