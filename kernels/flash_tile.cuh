// Products of a block of TILE_THREADS threads for attention by tiles, of one type: halves by tensor cores, f32 and f64 by
// plain arithmetic. Each thread has COUNT sums of ROWS x COLUMNS, and says of each where it stands.

// What scores are computed in, and powers of e, which weights of halves round anyway.
template <class E> struct Arithmetic {
    typedef float A;
    static __device__ __forceinline__ float power(float x) { return __expf(x); }
};
template <> struct Arithmetic<float> {
    typedef float A;
    static __device__ __forceinline__ float power(float x) { return expf(x); }
};
template <> struct Arithmetic<double> {
    typedef double A;
    static __device__ __forceinline__ double power(double x) { return exp(x); }
};

// Elements of sixteen bytes: what one instruction copies, and by how many a row of shared memory is longer, which keeps
// banks apart.
template <class E> struct Sixteen { static const int N = 16 / (int)sizeof(E); };

//     sums[r, c] = sum over p of left[r, p] right[c, p]
//
// A side lies along the depth (element (r, p) at r * LINE + p) or across it (at p * LINE + r).
template <class E, int ROWS, int COLUMNS, int DEPTH, bool LEFT_ALONG, bool RIGHT_ALONG, int LEFT_LINE, int RIGHT_LINE,
          bool IS_HALF = sizeof(E) == 2>
struct Sums;

template <class E, int ROWS, int COLUMNS, int DEPTH, bool LEFT_ALONG, bool RIGHT_ALONG, int LEFT_LINE, int RIGHT_LINE>
struct Sums<E, ROWS, COLUMNS, DEPTH, LEFT_ALONG, RIGHT_ALONG, LEFT_LINE, RIGHT_LINE, true> {
    static const int WARPS = TILE_THREADS / 32, DOWN = COLUMNS / 16 < WARPS / 2 ? 4 : 2, ACROSS = WARPS / DOWN;
    static const int HIGH = ROWS / DOWN / 16, WIDE = COLUMNS / ACROSS / 8, COUNT = HIGH * WIDE * 4;
    // Sums of neighbouring columns.
    static const int NEIGHBOURS = 2;
    static const int LEFT_ROW = LEFT_ALONG ? LEFT_LINE : 1, LEFT_DEPTH = LEFT_ALONG ? 1 : LEFT_LINE;
    static const int RIGHT_ROW = RIGHT_ALONG ? RIGHT_LINE : 1, RIGHT_DEPTH = RIGHT_ALONG ? 1 : RIGHT_LINE;
    float sums[COUNT];

    static __device__ __forceinline__ int first_row() { return threadIdx.x / 32 % DOWN * (ROWS / DOWN); }
    static __device__ __forceinline__ int first_column() { return threadIdx.x / (32 * DOWN) * (COLUMNS / ACROSS); }
    static __device__ __forceinline__ int row(int n) {
        return first_row() + threadIdx.x % 32 / 4 + n / (4 * WIDE) * 16 + n / 2 % 2 * 8;
    }
    static __device__ __forceinline__ int column(int n) {
        return first_column() + threadIdx.x % 4 * 2 + n / 4 % WIDE * 8 + n % 2;
    }
    __device__ __forceinline__ void begin() {
#pragma unroll
        for (int n = 0; n < COUNT; ++n) sums[n] = 0;
    }
    __device__ __forceinline__ void multiply(const E* left, const E* right) {
        int lane = threadIdx.x % 32, low = lane % 8, second = lane / 8 % 2, third = lane / 16;
#pragma unroll
        for (int p = 0; p < DEPTH; p += 16) {
            u32 a[HIGH][4];
#pragma unroll
            for (int i = 0; i < HIGH; ++i) {
                int row = first_row() + 16 * i + 8 * second, depth = p + 8 * third;
                (LEFT_ALONG ? row : depth) += low;
                load_blocks<!LEFT_ALONG>(a[i], (const u16*)(left + row * LEFT_ROW + depth * LEFT_DEPTH));
            }
#pragma unroll
            for (int j = 0; j < WIDE; j += 2) {
                u32 b[4];
                int column = first_column() + 8 * j + 8 * third, depth = p + 8 * second;
                (RIGHT_ALONG ? column : depth) += low;
                load_blocks<!RIGHT_ALONG>(b, (const u16*)(right + column * RIGHT_ROW + depth * RIGHT_DEPTH));
#pragma unroll
                for (int i = 0; i < HIGH; ++i) {
                    add_product<Half<E> >(sums + (i * WIDE + j) * 4, a[i], b);
                    add_product<Half<E> >(sums + (i * WIDE + j + 1) * 4, a[i], b + 2);
                }
            }
        }
    }
};

template <class E, int ROWS, int COLUMNS, int DEPTH, bool LEFT_ALONG, bool RIGHT_ALONG, int LEFT_LINE, int RIGHT_LINE>
struct Sums<E, ROWS, COLUMNS, DEPTH, LEFT_ALONG, RIGHT_ALONG, LEFT_LINE, RIGHT_LINE, false> {
    // Threads of a row of the tile, and how many rows of them.
    static const int ACROSS = COLUMNS >= ROWS ? 16 : 8, DOWN = TILE_THREADS / ACROSS;
    static const int HIGH = ROWS / DOWN, WIDE = COLUMNS / ACROSS, COUNT = HIGH * WIDE;
    static const int N = Sixteen<E>::N, NEIGHBOURS = RIGHT_ALONG ? 1 : N;
    typedef Several<E> Pack;
    E sums[COUNT];

    // Of a side along the depth, neighbouring threads have neighbouring rows, so that they read other banks; across
    // it, each has whole vectors.
    static __device__ __forceinline__ int place(bool along, int thread, int threads, int i) {
        return along ? thread + threads * i : (thread + threads * (i / N)) * N + i % N;
    }
    static __device__ __forceinline__ int high(int i) { return place(LEFT_ALONG, threadIdx.x / ACROSS, DOWN, i); }
    static __device__ __forceinline__ int wide(int j) { return place(RIGHT_ALONG, threadIdx.x % ACROSS, ACROSS, j); }
    static __device__ __forceinline__ int row(int n) { return high(n / WIDE); }
    static __device__ __forceinline__ int column(int n) { return wide(n % WIDE); }

    __device__ __forceinline__ void begin() {
#pragma unroll
        for (int n = 0; n < COUNT; ++n) sums[n] = 0;
    }
    __device__ __forceinline__ void multiply(const E* left, const E* right) {
#pragma unroll 1
        for (int p = 0; p < DEPTH; p += N) {
            E l[HIGH][N];
            if (LEFT_ALONG) {
#pragma unroll
                for (int i = 0; i < HIGH; ++i) {
                    Pack pack = *(const Pack*)(left + high(i) * LEFT_LINE + p);
#pragma unroll
                    for (int v = 0; v < N; ++v) l[i][v] = pack.values[v];
                }
            } else {
#pragma unroll
                for (int v = 0; v < N; ++v)
#pragma unroll
                    for (int i = 0; i < HIGH; i += N) {
                        Pack pack = *(const Pack*)(left + (p + v) * LEFT_LINE + high(i));
#pragma unroll
                        for (int k = 0; k < N; ++k) l[i + k][v] = pack.values[k];
                    }
            }
            if (RIGHT_ALONG) {
#pragma unroll
                for (int j = 0; j < WIDE; ++j) {
                    Pack pack = *(const Pack*)(right + wide(j) * RIGHT_LINE + p);
#pragma unroll
                    for (int v = 0; v < N; ++v)
#pragma unroll
                        for (int i = 0; i < HIGH; ++i) sums[i * WIDE + j] += l[i][v] * pack.values[v];
                }
            } else {
#pragma unroll
                for (int v = 0; v < N; ++v)
#pragma unroll
                    for (int j = 0; j < WIDE; j += N) {
                        Pack pack = *(const Pack*)(right + (p + v) * RIGHT_LINE + wide(j));
#pragma unroll
                        for (int k = 0; k < N; ++k)
#pragma unroll
                            for (int i = 0; i < HIGH; ++i) sums[i * WIDE + j + k] += l[i][v] * pack.values[k];
                    }
            }
        }
    }
};
