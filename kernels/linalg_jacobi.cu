// Jacobi's rotations from one side: the rows of G become orthogonal, G -> J G, with J orthogonal. In a sweep each pair
// of rows is rotated once, in rounds of pairs that have no row in common.

#define MOST 512

// Pair number `i` of a round of `n` players, an even number.
__device__ __forceinline__ void pair_of(int n, int round, int i, int* p, int* q) {
    *p = i == 0 ? n - 1 : (round + i) % (n - 1);
    *q = i == 0 ? round : (round + n - 1 - i) % (n - 1);
}

// The rotation that makes rows orthogonal whose squares have sums a and b, and whose product has sum g; false where
// they are.
__device__ __forceinline__ bool rotation(T a, T b, T g, double tolerance, T* c, T* s) {
    // False for NaN.
    if (!(magnitude(g) > (T)tolerance * root(a) * root(b))) return false;
    T zeta = (b - a) / (2 * g), size = magnitude(zeta);
    T t = size > (T)1e18 ? (T)0.5 / size : 1 / (size + root(1 + size * size));
    if (zeta < (T)0) t = -t;
    *c = 1 / root(1 + t * t);
    *s = t * *c;
    return true;
}

__device__ __forceinline__ void rotate(T* x, T* y, T c, T s, int n, int first, int step) {
    for (int i = first; i < n; i += step) {
        T a = x[i], b = y[i];
        x[i] = c * a - s * b;
        y[i] = s * a + c * b;
    }
}

// All sweeps of matrices of `n` x `n` that fit into shared memory, one block of threads for each; J to `turns`.
// `width` lanes, a power of two, have a pair. `info` is 1 where `sweeps` were not enough.
extern "C" __global__ void __launch_bounds__(MOST) jacobi_block(T* matrices, T* turns, i32* info, i64 count, int n, int width, int sweeps,
                                                                double tolerance) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    __shared__ int rotated;
    int players = n + (n & 1), pairs = players / 2, size = n * n;
    int lane = threadIdx.x % width, group = threadIdx.x / width, groups = blockDim.x / width;
    T *g = (T*)shared_bytes, *j = g + size;
    for (i64 item = blockIdx.x; item < count; item += gridDim.x) {
        T *from = matrices + item * size, *to = turns + item * size;
        __syncthreads();
        for (int i = threadIdx.x; i < size; i += blockDim.x) {
            g[i] = from[i];
            j[i] = i / n == i % n ? 1 : 0;
        }
        int sweep = 0;
        for (; sweep < sweeps; ++sweep) {
            __syncthreads();
            if (threadIdx.x == 0) rotated = 0;
            __syncthreads();
            for (int round = 0; round < players - 1; ++round) {
                // The same number of steps for all threads: they exchange sums.
                for (int i = 0; i < pairs; i += groups) {
                    int p = n, q = n;
                    if (i + group < pairs) pair_of(players, round, i + group, &p, &q);
                    bool inside = p < n && q < n;
                    T *x = g + (inside ? p : 0) * n, *y = g + (inside ? q : 0) * n;
                    T a = 0, b = 0, product = 0;
                    for (int k = lane; inside && k < n; k += width) {
                        a += x[k] * x[k];
                        b += y[k] * y[k];
                        product += x[k] * y[k];
                    }
                    a = lane_sum(a, width);
                    b = lane_sum(b, width);
                    product = lane_sum(product, width);
                    T c, s;
                    if (inside && rotation(a, b, product, tolerance, &c, &s)) {
                        rotate(x, y, c, s, n, lane, width);
                        rotate(j + p * n, j + q * n, c, s, n, lane, width);
                        rotated = 1;
                    }
                }
                __syncthreads();
            }
            if (!rotated) break;
        }
        for (int i = threadIdx.x; i < size; i += blockDim.x) {
            from[i] = g[i];
            to[i] = j[i];
        }
        if (threadIdx.x == 0) info[item] = sweep == sweeps;
    }
}

// A round of matrices in memory: a block of threads for a pair. `rotated` is set where a pair was not orthogonal.
extern "C" __global__ void __launch_bounds__(256) jacobi_round(T* matrices, T* turns, i32* rotated, i64 count, int n, int round, double tolerance) {
    __shared__ T sums[3][8];
    int players = n + (n & 1), pairs = players / 2, lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (i64 block = blockIdx.x; block < count * pairs; block += gridDim.x) {
        int p, q;
        pair_of(players, round, (int)(block % pairs), &p, &q);
        if (p >= n || q >= n) continue;
        i64 size = (i64)n * n;
        T *g = matrices + block / pairs * size, *j = turns + block / pairs * size;
        T *x = g + (i64)p * n, *y = g + (i64)q * n, a = 0, b = 0, product = 0;
        for (int k = threadIdx.x; k < n; k += blockDim.x) {
            a += x[k] * x[k];
            b += y[k] * y[k];
            product += x[k] * y[k];
        }
        a = lane_sum(a, 32);
        b = lane_sum(b, 32);
        product = lane_sum(product, 32);
        __syncthreads();
        if (lane == 0) {
            sums[0][warp] = a;
            sums[1][warp] = b;
            sums[2][warp] = product;
        }
        __syncthreads();
        a = sums[0][0], b = sums[1][0], product = sums[2][0];
        for (int k = 1; k < warps; ++k) {
            a += sums[0][k];
            b += sums[1][k];
            product += sums[2][k];
        }
        T c, s;
        if (!rotation(a, b, product, tolerance, &c, &s)) continue;
        rotate(x, y, c, s, n, threadIdx.x, blockDim.x);
        rotate(j + (i64)p * n, j + (i64)q * n, c, s, n, threadIdx.x, blockDim.x);
        if (threadIdx.x == 0) *rotated = 1;
    }
}
