// Rows of attention's scores, of one type: ELEMENT, float or double. A block has a row, and every thread each 256th
// number of it.

// The assembler for sm_100a spills a few registers unless it may take as many as it likes.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define LOOSE(THREADS) __launch_bounds__(THREADS, 1)
#else
#define LOOSE(THREADS) __launch_bounds__(THREADS)
#endif

// `Scores` of the other side.
struct Scores {
    ELEMENT* scores;
    // In backward dY V^T, which becomes dS.
    ELEMENT* weights_gradient;
    ELEMENT* logsum;
    const ELEMENT* mask;
    // Query i sees the keys from i + low to i + high.
    i64 rows, queries, keys, low, high;
    double scale;
};

template <class Join> __device__ __forceinline__ ELEMENT of_block(ELEMENT x, Join join) {
    __shared__ ELEMENT shown[8];
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x = join(x, __shfl_xor_sync(0xffffffffu, x, step));
    __syncthreads();
    if (threadIdx.x % 32 == 0) shown[threadIdx.x / 32] = x;
    __syncthreads();
    x = shown[0];
    for (int k = 1; k < 8; ++k) x = join(x, shown[k]);
    return x;
}

struct Add {
    __device__ __forceinline__ ELEMENT operator()(ELEMENT a, ELEMENT b) const { return a + b; }
};
// A NaN stays.
struct Largest {
    __device__ __forceinline__ ELEMENT operator()(ELEMENT a, ELEMENT b) const { return a > b || a != a ? a : b; }
};

// A query's score of a key; minus infinity where it does not see it.
__device__ __forceinline__ ELEMENT score(const Scores& q, i64 row, i64 key) {
    i64 query = row % q.queries;
    if (key < query + q.low || key > query + q.high) return -__int_as_float(0x7f800000);
    ELEMENT s = q.scores[row * q.keys + key] * (ELEMENT)q.scale;
    return q.mask ? s + q.mask[row * q.keys + key] : s;
}

// Turns products of queries and keys into weights, and notes the logarithms of the sums of exponentials, 0 for a
// query that sees nothing.
extern "C" __global__ void __launch_bounds__(256) weights(const Scores q) {
    const ELEMENT nothing = -__int_as_float(0x7f800000);
    for (i64 row = blockIdx.x; row < q.rows; row += gridDim.x) {
        ELEMENT largest = nothing;
        for (i64 key = threadIdx.x; key < q.keys; key += 256) largest = Largest()(score(q, row, key), largest);
        largest = of_block(largest, Largest());
        ELEMENT base = largest == nothing ? (ELEMENT)0 : largest, sum = 0;
        for (i64 key = threadIdx.x; key < q.keys; key += 256) sum += exp(score(q, row, key) - base);
        sum = of_block(sum, Add());
        ELEMENT share = sum == 0 ? (ELEMENT)0 : 1 / sum;
        for (i64 key = threadIdx.x; key < q.keys; key += 256)
            q.scores[row * q.keys + key] = exp(score(q, row, key) - base) * share;
        if (threadIdx.x == 0) q.logsum[row] = sum == 0 ? (ELEMENT)0 : base + log(sum);
    }
}

// Turns products of queries and keys into weights, and the weights' gradients into those of the products.
extern "C" __global__ void LOOSE(256) weights_backward(const Scores q) {
    for (i64 row = blockIdx.x; row < q.rows; row += gridDim.x) {
        ELEMENT along = 0, logsum = q.logsum[row];
        for (i64 key = threadIdx.x; key < q.keys; key += 256) {
            i64 at = row * q.keys + key;
            ELEMENT weight = exp(score(q, row, key) - logsum);
            q.scores[at] = weight;
            along += weight * q.weights_gradient[at];
        }
        along = of_block(along, Add());
        for (i64 key = threadIdx.x; key < q.keys; key += 256) {
            i64 at = row * q.keys + key;
            q.weights_gradient[at] = q.scores[at] * (q.weights_gradient[at] - along) * (ELEMENT)q.scale;
        }
    }
}
