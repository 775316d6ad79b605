// What the kernels of linear algebra share. T is float or double.

// Stacks of matrices, with the distances of rows, of columns and of matrices.
struct Matrices {
    T* at;
    i64 row, column, batch;

    __device__ __forceinline__ Matrices of(i64 item) const { return {at + item * batch, row, column, batch}; }
    __device__ __forceinline__ T& operator()(i64 r, i64 c) const { return at[r * row + c * column]; }
};

// A matrix in shared memory, column by column.
struct Columns {
    T* at;
    int step;

    __device__ __forceinline__ T& operator()(i64 r, i64 c) const { return at[(int)c * step + (int)r]; }
};

__device__ __forceinline__ float root(float x) { return sqrtf(x); }
__device__ __forceinline__ double root(double x) { return sqrt(x); }
__device__ __forceinline__ float magnitude(float x) { return fabsf(x); }
__device__ __forceinline__ double magnitude(double x) { return fabs(x); }
__device__ __forceinline__ T larger(T a, T b) { return a > b ? a : b; }

// The sum over each `width` neighbouring lanes (a power of two), for all of them.
__device__ __forceinline__ T lane_sum(T x, int width) {
    for (int step = width / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

// How threads are dealt to the elements of rows of `n`, neighbours to neighbours: columns from `column` on by `wide`, rows from
// `row` on by `high`.
struct Deal {
    int wide, high, column, row;

    __device__ __forceinline__ Deal(int n) {
        wide = 1;
        while (wide < n && wide < (int)blockDim.x) wide *= 2;
        high = blockDim.x / wide;
        column = threadIdx.x % wide;
        row = threadIdx.x / wide;
    }
};

// The largest of a warp's values, for all its lanes.
__device__ __forceinline__ T warp_most(T x) {
    for (int step = 16; step > 0; step /= 2) x = larger(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}
