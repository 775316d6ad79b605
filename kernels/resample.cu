// A sparse map of one dimension, row by row: y[o, i, j] = sum over the row i of weight x[o, place, j].
template <class C>
__device__ __forceinline__ void resample(
    C* y, const C* x, const i32* starts, const i32* places, const double* weights, i64 count, i64 size,
    i64 rows, i64 inner
) {
    double by_inner = 1.0 / (double)inner, by_rows = 1.0 / (double)rows;
    for (i64 p = first_index(); p < count; p += index_step()) {
        i64 left = quotient(p, inner, by_inner), j = p - left * inner;
        i64 o = quotient(left, rows, by_rows), i = left - o * rows;
        C sum = 0;
        for (i32 k = starts[i]; k < starts[i + 1]; ++k) {
            sum += (C)weights[k] * x[(o * size + places[k]) * inner + j];
        }
        y[p] = sum;
    }
}

#define RESAMPLE(name, C)                                                                                \
    extern "C" __global__ void __launch_bounds__(256) resample_##name(                                   \
        C* y, const C* x, const i32* starts, const i32* places, const double* weights, i64 count,        \
        i64 size, i64 rows, i64 inner                                                                    \
    ) { resample(y, x, starts, places, weights, count, size, rows, inner); }
RESAMPLE(f64, double)
RESAMPLE(f32, float)
