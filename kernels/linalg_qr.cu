// Householder's reflections for a panel of columns, one block of threads for each matrix of a stack: A = H_0 H_1 .. R
// with H_k = I - tau_k v_k v_k^T, and their product as I - V T V^T with the upper triangular T. What is larger is put
// together from panels and products.

// The most columns of a panel.
#define WIDTH 32
#define MOST 256

// For all threads of the block; `room` has a place for each warp.
__device__ __forceinline__ T block_sum(T x, T* room) {
    x = lane_sum(x, 32);
    __syncthreads();
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
    __syncthreads();
    T sum = 0;
    for (int k = 0; k < (int)blockDim.x / 32; ++k) sum += room[k];
    return sum;
}
__device__ __forceinline__ T block_most(T x, T* room) {
    x = warp_most(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
    __syncthreads();
    T most = 0;
    for (int k = 0; k < (int)blockDim.x / 32; ++k) most = larger(most, room[k]);
    return most;
}

// The reflections for a panel of `m` >= `n` rows, whose columns `a` lie `m` apart: V below its diagonal of ones, R above,
// R's diagonal in `beta`. T goes to `factor`.
__device__ __forceinline__ void reflect(T* a, i64 m, int n, T (*factor)[WIDTH + 1], T* beta) {
    __shared__ T products[WIDTH], room[MOST / 32];
    int threads = blockDim.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = threads / 32;
    for (int k = 0; k < n; ++k) {
        T* x = a + k * m;
        T below = 0;
        bool nothing = true;
        for (i64 r = k + 1 + threadIdx.x; r < m; r += threads) {
            nothing = nothing && x[r] == (T)0;
            below = larger(below, magnitude(x[r]));
        }
        // A NaN is no largest; it comes back by the sum.
        T alpha = x[k], scale = larger(block_most(below, room), magnitude(alpha)), sum = 0;
        if (!(scale > (T)0)) scale = 1;
        for (i64 r = k + 1 + threadIdx.x; r < m; r += threads) {
            T y = x[r] / scale;
            sum += y * y;
        }
        sum = block_sum(sum, room);
        nothing = __syncthreads_and(nothing);
        T tau = 0, to = alpha;
        if (!nothing) {
            T first = alpha / scale, norm = scale * root(sum + first * first);
            to = alpha < (T)0 ? norm : -norm;
            tau = (to - alpha) / to;
            for (i64 r = k + 1 + threadIdx.x; r < m; r += threads) x[r] /= alpha - to;
        }
        if (threadIdx.x == 0) {
            beta[k] = to;
            x[k] = 1;
        }
        __syncthreads();
        for (int c = warp; c < n; c += warps) {
            if (c == k) continue;
            T *other = a + c * m, product = 0;
            for (i64 r = k + lane; r < m; r += 32) product += x[r] * other[r];
            product = lane_sum(product, 32);
            if (c < k) {
                if (lane == 0) products[c] = product;
            } else if (tau != (T)0) {
                product *= tau;
                for (i64 r = k + lane; r < m; r += 32) other[r] -= product * x[r];
            }
        }
        __syncthreads();
        if (threadIdx.x < k) {
            T sum = 0;
            for (int l = threadIdx.x; l < k; ++l) sum += factor[threadIdx.x][l] * products[l];
            factor[threadIdx.x][k] = -tau * sum;
        } else if (threadIdx.x < n) {
            factor[threadIdx.x][k] = threadIdx.x == k ? tau : (T)0;
        }
    }
    __syncthreads();
}

// R in place of panels of `m` >= `n` rows, zeros below; V to `vectors`, a stack of `n` x `m` matrices whose rows
// are the columns of V; T to `factors`, a stack of `n` x `n`. The panel is worked on in shared memory if `copied`,
// else where V goes.
extern "C" __global__ void __launch_bounds__(MOST, 3) qr_panel(Matrices all, T* vectors, T* factors, i64 count, i64 m, int n, int copied) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    __shared__ T factor[WIDTH][WIDTH + 1], beta[WIDTH];
    Deal deal(n);
    for (i64 item = blockIdx.x; item < count; item += gridDim.x) {
        Matrices from = all.of(item);
        T *v = vectors + item * n * m, *own = (T*)shared_bytes, *a = copied ? own : v;
        __syncthreads();
        for (i64 r = deal.row; r < m; r += deal.high)
            for (int c = deal.column; c < n; c += deal.wide) a[c * m + r] = from(r, c);
        __syncthreads();
        // Of shared memory the compiler knows where it is.
        if (copied) reflect(own, m, n, factor, beta);
        else reflect(v, m, n, factor, beta);
        for (i64 r = deal.row; r < m; r += deal.high)
            for (int c = deal.column; c < n; c += deal.wide) from(r, c) = r < c ? a[c * m + r] : r == c ? beta[c] : (T)0;
        __syncthreads();
        for (int c = 0; c < n; ++c)
            for (i64 r = threadIdx.x; r < m; r += blockDim.x) v[c * m + r] = r < c ? (T)0 : r == c ? (T)1 : a[c * m + r];
        for (int i = threadIdx.x; i < n * n; i += blockDim.x) factors[item * n * n + i] = factor[i / n][i % n];
    }
}
