// Cholesky and LU factors of blocks, one block of threads for each matrix of a stack; row exchanges; and solutions
// with triangular blocks. What is larger is put together from these and from products. Matrices in `info` are
// numbered in the order of the stack; 0 is for those that were fine.

// The assembler for sm_100a spills a few registers unless it may take as many as it likes.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define LOOSE(THREADS) __launch_bounds__(THREADS, 1)
#else
#define LOOSE(THREADS) __launch_bounds__(THREADS)
#endif

// Threads of a block at most.
#define MOST 256

// A matrix in shared memory, row by row, with an odd distance: a column is in different banks too.
struct Rows {
    T* at;
    int step;

    __device__ __forceinline__ T& operator()(int r, int c) const { return at[r * step + c]; }
};

// A = L L^T in place for `n` x `n` matrices; only lower triangles are read and written. `first` is the
// number of the first row within the whole.
extern "C" __global__ void __launch_bounds__(MOST) cholesky_block(Matrices all, i32* info, i64 count, int n, int first) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    Rows a = {(T*)shared_bytes, n | 1};
    int threads = blockDim.x, x = threadIdx.x % 16, y = threadIdx.x / 16, height = threads / 16;
    for (i64 item = blockIdx.x; item < count; item += gridDim.x) {
        Matrices m = all.of(item);
        if (info[item] != 0) continue;
        for (int i = threadIdx.x; i < n * n; i += threads)
            if (i / n >= i % n) a(i / n, i % n) = m(i / n, i % n);
        __syncthreads();
        int failed = 0;
        for (int j = 0; j < n; ++j) {
            T pivot = a(j, j);
            if (!(pivot > (T)0)) {
                failed = first + j + 1;
                break;
            }
            pivot = root(pivot);
            for (int i = j + 1 + threadIdx.x; i < n; i += threads) a(i, j) /= pivot;
            __syncthreads();
            if (threadIdx.x == 0) a(j, j) = pivot;
            for (int r = j + 1 + y; r < n; r += height) {
                T left = a(r, j);
                for (int c = j + 1 + x; c <= r; c += 16) a(r, c) -= left * a(c, j);
            }
            __syncthreads();
        }
        for (int i = threadIdx.x; i < n * n; i += threads)
            if (i / n >= i % n) m(i / n, i % n) = a(i / n, i % n);
        __syncthreads();
        if (threadIdx.x == 0 && failed) info[item] = failed;
    }
}

// Solutions of T X = B in B's place, for triangular matrices of `n` <= 64 rows: a warp for four columns, a lane
// for two rows of them. `groups` are the blocks for a matrix.
extern "C" __global__ void LOOSE(MOST) solve_block(Matrices triangles, Matrices all, i64 columns, i64 groups, i64 count,
                                                               int n, int upper, int unit) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    Rows a = {(T*)shared_bytes, n | 1};
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (i64 block = blockIdx.x; block < groups * count; block += gridDim.x) {
        i64 item = block / groups;
        Matrices t = triangles.of(item), b = all.of(item);
        __syncthreads();
        // Neighbours in memory by neighbouring threads.
        bool turned = t.column != 1;
        for (int i = threadIdx.x; i < n * n; i += blockDim.x) {
            int r = turned ? i % n : i / n, c = turned ? i / n : i % n;
            a(r, c) = t(r, c);
        }
        __syncthreads();
        i64 column = (block % groups * warps + warp) * 4;
        T low[4], high[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            bool inside = column + k < columns;
            low[k] = inside && lane < n ? b(lane, column + k) : (T)0;
            high[k] = inside && lane + 32 < n ? b(lane + 32, column + k) : (T)0;
        }
        for (int step = 0; step < n; ++step) {
            int l = upper ? n - 1 - step : step;
            T diagonal = unit ? (T)1 : a(l, l);
            bool after_low = upper ? lane < l : lane > l && lane < n;
            bool after_high = upper ? lane + 32 < l : lane + 32 > l && lane + 32 < n;
            T by_low = after_low ? a(lane, l) : (T)0, by_high = after_high ? a(lane + 32, l) : (T)0;
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                T x = __shfl_sync(0xffffffffu, l < 32 ? low[k] : high[k], l % 32);
                if (!unit) x /= diagonal;
                if (after_low) low[k] -= by_low * x;
                if (after_high) high[k] -= by_high * x;
                if (lane == l) low[k] = x;
                if (lane + 32 == l) high[k] = x;
            }
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            if (column + k >= columns) continue;
            if (lane < n) b(lane, column + k) = low[k];
            if (lane + 32 < n) b(lane + 32, column + k) = high[k];
        }
    }
}

// Eliminates in the matrix `a`, in its own memory or a copy, of `m` rows and `n` columns: the pivots, and 0 or the
// number, from 1, of the first that is zero. A column of L is not yet divided by its pivot. `side` is how many rows
// threads are dealt to; the others go to other columns.
template <class A> __device__ __forceinline__ int eliminate(A a, int m, int n, i32* pivots, int first, int side) {
    __shared__ T values[MOST / 32];
    __shared__ int rows[MOST / 32];
    int threads = blockDim.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = threads / 32;
    int own = threadIdx.x % side, group = threadIdx.x / side, groups = threads / side;
    int least = m < n ? m : n, failed = 0;
    for (int j = 0; j < least; ++j) {
        T most = -1;
        int place = m;
        for (int r = j + threadIdx.x; r < m; r += threads) {
            T value = magnitude(a(r, j));
            if (value > most) {
                most = value;
                place = r;
            }
        }
        // The first of equals.
        for (int step = 16; step > 0; step /= 2) {
            T other = __shfl_xor_sync(0xffffffffu, most, step);
            int there = __shfl_xor_sync(0xffffffffu, place, step);
            if (other > most || (other == most && there < place)) {
                most = other;
                place = there;
            }
        }
        if (lane == 0) {
            values[warp] = most;
            rows[warp] = place;
        }
        __syncthreads();
        most = values[0];
        place = rows[0];
        for (int k = 1; k < warps; ++k)
            if (values[k] > most || (values[k] == most && rows[k] < place)) {
                most = values[k];
                place = rows[k];
            }
        // Of nothing but NaN none is the largest.
        if (place >= m) place = j;
        if (threadIdx.x == 0) pivots[j] = first + place + 1;
        if (place != j)
            for (int c = threadIdx.x; c < n; c += threads) {
                T x = a(j, c);
                a(j, c) = a(place, c);
                a(place, c) = x;
            }
        __syncthreads();
        T pivot = a(j, j);
        if (pivot == (T)0) {
            if (!failed) failed = first + j + 1;
        } else {
            for (int r = j + 1 + own; r < m; r += side) {
                T factor = a(r, j) / pivot;
                for (int c = j + 1 + group; c < n; c += groups) a(r, c) -= factor * a(j, c);
            }
        }
        __syncthreads();
    }
    return failed;
}

// P L U in place of matrices of `m` rows and `n` columns, which are copied to shared memory if `copied`. A pivot is
// the number, from 1, of the row that is exchanged with its own; `first` is that of the first row within the whole.
extern "C" __global__ void __launch_bounds__(MOST, 3) lu_block(Matrices all, i32* pivots, i64 pivot_batch, i32* info, i64 count, int m, int n,
                                                               int first, int side, int copied) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    Deal deal(n);
    for (i64 item = blockIdx.x; item < count; item += gridDim.x) {
        Matrices from = all.of(item);
        Columns a = {(T*)shared_bytes, m | 1};
        i32* own = pivots + item * pivot_batch;
        int failed;
        __syncthreads();
        if (copied) {
            for (int r = deal.row; r < m; r += deal.high)
                for (int c = deal.column; c < n; c += deal.wide) a(r, c) = from(r, c);
            __syncthreads();
            failed = eliminate(a, m, n, own, first, side);
        } else {
            failed = eliminate(from, m, n, own, first, side);
        }
        for (int r = deal.row; r < m; r += deal.high)
            for (int c = deal.column; c < n; c += deal.wide) {
                T x = copied ? a(r, c) : from(r, c), pivot = 1;
                if (r > c) pivot = copied ? a(c, c) : from(c, c);
                if (pivot != (T)0 && r > c) x /= pivot;
                // The pivots themselves stay as they are.
                if (copied || r > c) from(r, c) = x;
            }
        if (threadIdx.x == 0 && failed && info[item] == 0) info[item] = failed;
    }
}

// So many exchanges are done at once.
#define AT_ONCE 16

// Exchanges the matrices' rows as `steps` pivots say, the last first if `backwards`; row 0 is number `first` of the
// whole. A thread does it for a column; `groups` are the blocks for a matrix.
extern "C" __global__ void __launch_bounds__(128) swap_rows(Matrices all, const i32* pivots, i64 pivot_batch, i64 rows, i64 columns,
                                                            i64 groups, i64 count, int steps, int first, int backwards) {
    // The rows that change, without repetition but for those marked by -1, and where their new values are.
    __shared__ i64 row[2 * AT_ONCE];
    __shared__ i32 from[2 * AT_ONCE], with[AT_ONCE];
    for (i64 block = blockIdx.x; block < groups * count; block += gridDim.x) {
        i64 item = block / groups, column = block % groups * blockDim.x + threadIdx.x;
        Matrices b = all.of(item);
        const i32* own = pivots + item * pivot_batch;
        int chunks = (steps + AT_ONCE - 1) / AT_ONCE;
        for (int chunk = 0; chunk < chunks; ++chunk) {
            int start = (backwards ? chunks - 1 - chunk : chunk) * AT_ONCE;
            int size = steps - start < AT_ONCE ? steps - start : AT_ONCE;
            __syncthreads();
            if (threadIdx.x < AT_ONCE) {
                int k = threadIdx.x;
                i64 pivot = -1;
                if (k < size) {
                    pivot = own[start + k] - 1 - first;
                    assert(pivot >= 0 && pivot < rows && "a pivot is not a row");
                }
                row[k] = k < size ? start + k : -1;
                row[AT_ONCE + k] = pivot;
                from[k] = k;
                from[AT_ONCE + k] = AT_ONCE + k;
            }
            __syncthreads();
            if (threadIdx.x < size) {
                i64 pivot = row[AT_ONCE + threadIdx.x];
                int k = 0;
                if (pivot >= start && pivot < start + size) k = (int)(pivot - start);
                else {
                    while (row[AT_ONCE + k] != pivot) ++k;
                    k += AT_ONCE;
                }
                with[threadIdx.x] = k;
            }
            __syncthreads();
            if (threadIdx.x < size && with[threadIdx.x] != AT_ONCE + threadIdx.x) row[AT_ONCE + threadIdx.x] = -1;
            if (threadIdx.x == 0)
                for (int i = 0; i < size; ++i) {
                    int k = backwards ? size - 1 - i : i, other = with[k];
                    i32 x = from[k];
                    from[k] = from[other];
                    from[other] = x;
                }
            __syncthreads();
            if (column >= columns) continue;
            T values[2 * AT_ONCE];
#pragma unroll
            for (int k = 0; k < 2 * AT_ONCE; ++k)
                if (row[k] >= 0 && from[k] != k) values[k] = b(row[from[k]], column);
#pragma unroll
            for (int k = 0; k < 2 * AT_ONCE; ++k)
                if (row[k] >= 0 && from[k] != k) b(row[k], column) = values[k];
        }
    }
}
