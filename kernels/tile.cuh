// Tiles of a matrix product, for any way in which the operands lie: a block computes ROWS x COLUMNS sums
// over parts of the depth that it brings to shared memory. A source says where an element is; a loader
// brings a part of a source, along the depth or across it, as neighbouring elements lie; a tile multiplies.
//
//     sums[r, c] = sum over p of left[r, p] right[c, p]

// An address that is no element's, also after another such was added.
#define NOWHERE (-(1ll << 62))

__device__ __forceinline__ float widened(float x) { return x; }
__device__ __forceinline__ double widened(double x) { return x; }
__device__ __forceinline__ float widened(f16 x) { return to_float(x); }
__device__ __forceinline__ float widened(bf16 x) { return to_float(x); }
__device__ __forceinline__ i64 widened(i64 x) { return x; }
__device__ __forceinline__ i64 widened(i32 x) { return x; }
__device__ __forceinline__ i64 widened(i16 x) { return x; }
__device__ __forceinline__ i64 widened(i8 x) { return x; }
__device__ __forceinline__ i64 widened(u8 x) { return x; }

// The type in which elements are multiplied and summed.
template <class T> struct Sum { typedef i64 Type; };
template <> struct Sum<double> { typedef double Type; };
template <> struct Sum<float> { typedef float Type; };
template <> struct Sum<f16> { typedef float Type; };
template <> struct Sum<bf16> { typedef float Type; };

// An integer is cut to its type's width.
template <class T> __device__ __forceinline__ T narrowed(i64 x) { return (T)x; }
template <class T> __device__ __forceinline__ T narrowed(double x) { return (T)x; }
template <class T> __device__ __forceinline__ T narrowed(float x) { T y; put(&y, x); return y; }

template <class T> __device__ __forceinline__ T zero_of() {
    T x;
    for (int i = 0; i < (int)sizeof(T); ++i) ((u8*)&x)[i] = 0;
    return x;
}

// A matrix with any strides: `rows` of what the tile has in its rows (or columns), and the depth to `end`.
template <class E> struct Strided {
    typedef E T;
    typedef i64 Place;
    // Places are so cheap that no table of them pays.
    static const bool TABLE = false;
    const T* at;
    i64 rows, end, row_step, depth_step;
    __device__ __forceinline__ Place row(i64 r) const { return r < rows ? r * row_step : NOWHERE; }
    __device__ __forceinline__ Place depth(i64 p) const { return p < end ? p * depth_step : NOWHERE; }
    __device__ __forceinline__ T get(Place row, Place depth) const {
        i64 place = row + depth;
        return place < 0 ? zero_of<T>() : at[place];
    }
};

// Brings parts of COUNT rows and DEPTH of the depth element by element. Neighbouring threads take
// neighbours along the depth (ALONG) or across it. In shared memory element (r, p) is at
// r * ROW_STEP + p * DEPTH_STEP.
template <class S, int COUNT, int DEPTH, int THREADS, bool ALONG, int ROW_STEP, int DEPTH_STEP>
struct Loader {
    typedef typename S::T T;
    typedef typename S::Place Place;
    static const int EACH = COUNT * DEPTH / THREADS;
    // Two tables of places, used in turns, of what differs between a thread's elements.
    static const int TABLE = S::TABLE ? (ALONG ? COUNT : 2 * DEPTH) : 0;
    static const bool ASYNCHRONOUS = false;
    T kept[EACH];
    Place mine;

    // Before the first part. Threads wait for each other between this and `fetch`.
    __device__ __forceinline__ void begin(const S& s, i64 first, Place* table) {
        if (!ALONG) mine = s.row(first + threadIdx.x % COUNT);
        if (ALONG && S::TABLE)
            for (int r = threadIdx.x; r < COUNT; r += THREADS) table[r] = s.row(first + r);
    }
    // Before `fetch` of a part, with a wait between the two.
    __device__ __forceinline__ void prepare(const S& s, i64 from, int part, Place* table) {
        if (!ALONG && S::TABLE && threadIdx.x < DEPTH)
            table[(part & 1) * DEPTH + threadIdx.x] = s.depth(from + threadIdx.x);
    }
    __device__ __forceinline__ void fetch(const S& s, i64 first, i64 from, int part, const Place* table, T*) {
        if (ALONG) {
            Place depth = s.depth(from + threadIdx.x % DEPTH);
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
                int r = threadIdx.x / DEPTH + i * (THREADS / DEPTH);
                kept[i] = s.get(S::TABLE ? table[r] : s.row(first + r), depth);
            }
        } else {
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
                int p = threadIdx.x / COUNT + i * (THREADS / COUNT);
                kept[i] = s.get(mine, S::TABLE ? table[(part & 1) * DEPTH + p] : s.depth(from + p));
            }
        }
    }
    __device__ __forceinline__ void put_down(T* to) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            int r = ALONG ? threadIdx.x / DEPTH + i * (THREADS / DEPTH) : threadIdx.x % COUNT;
            int p = ALONG ? threadIdx.x % DEPTH : threadIdx.x / COUNT + i * (THREADS / COUNT);
            to[r * ROW_STEP + p * DEPTH_STEP] = kept[i];
        }
    }
};

// The sums of a tile over the depth from `from` to `to`: `tile` multiplies what the loaders of its two
// sides bring. STAGES parts are in shared memory at a time, one of which is being brought.
template <class Tile, class LL, class RL, int STAGES, class L, class R>
__device__ __forceinline__ void tile_sums(Tile& tile, const L& left, const R& right, i64 row, i64 column, i64 from,
                                          i64 to) {
    typedef typename L::T T;
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    T* parts = (T*)shared_bytes;
    const int BOTH = Tile::LEFT + Tile::RIGHT;
    typename L::Place* left_table = (typename L::Place*)(parts + STAGES * BOTH);
    typename R::Place* right_table = (typename R::Place*)(left_table + LL::TABLE);
    LL l;
    RL r;
    const int DEPTH = Tile::DEPTH;
    int count = (int)((to - from + DEPTH - 1) / DEPTH);
    l.begin(left, row, left_table);
    r.begin(right, column, right_table);
    for (int i = 0; i < STAGES - 1; ++i) {
        i64 p = from + (i64)i * DEPTH;
        if (LL::TABLE || RL::TABLE) {
            __syncthreads();
            l.prepare(left, p, i, left_table);
            r.prepare(right, p, i, right_table);
            __syncthreads();
        }
        if (i < count) {
            T* at = parts + i * BOTH;
            l.fetch(left, row, p, i, left_table, at);
            r.fetch(right, column, p, i, right_table, at + Tile::LEFT);
            l.put_down(at);
            r.put_down(at + Tile::LEFT);
        }
        commit_copies();
    }
    {
        i64 p = from + (i64)(STAGES - 1) * DEPTH;
        l.prepare(left, p, STAGES - 1, left_table);
        r.prepare(right, p, STAGES - 1, right_table);
    }
    for (int i = 0; i < count; ++i) {
        // The part of this turn is there, and all threads are done with that of the last one.
        await_copies<STAGES - 2>();
        __syncthreads();
        int next = i + STAGES - 1;
        i64 p = from + (i64)next * DEPTH;
        T* to_part = parts + next % STAGES * BOTH;
        if (next < count) {
            l.fetch(left, row, p, next, left_table, to_part);
            r.fetch(right, column, p, next, right_table, to_part + Tile::LEFT);
            l.prepare(left, p + DEPTH, next + 1, left_table);
            r.prepare(right, p + DEPTH, next + 1, right_table);
        }
        commit_copies();
        const T* part = parts + i % STAGES * BOTH;
        tile.multiply(part, part + Tile::LEFT);
        if (next < count) {
            l.put_down(to_part);
            r.put_down(to_part + Tile::LEFT);
        }
    }
    await_copies<0>();
    __syncthreads();
}

// ROWS x COLUMNS sums of plain arithmetic by 256 threads, each with square blocks of FOUR x FOUR sums, SIDE x
// SIDE of them, in the tile's quarters (or the tile itself), so that its reads of shared memory are whole vectors.
template <class T, int SIZE> struct PlainTile {
    typedef typename Sum<T>::Type A;
    static const int ROWS = SIZE, COLUMNS = SIZE, THREADS = 256, SIDE = SIZE / 64, DEPTH = SIDE == 2 ? 8 : 16;
    // A row of shared memory, with room that keeps banks apart.
    static const int LINE = SIZE + (sizeof(T) == 8 ? 2 : 4), LEFT = LINE * DEPTH, RIGHT = LINE * DEPTH;
    static const int ROW_STEP = 1, DEPTH_STEP = LINE;
    A sums[4 * SIDE][4 * SIDE];

    __device__ __forceinline__ void begin() {
#pragma unroll
        for (int i = 0; i < 4 * SIDE; ++i)
#pragma unroll
            for (int j = 0; j < 4 * SIDE; ++j) sums[i][j] = 0;
    }
    __device__ __forceinline__ void multiply(const T* left, const T* right) {
        int i0 = threadIdx.x / 16 * 4, j0 = threadIdx.x % 16 * 4;
#pragma unroll
        for (int p = 0; p < DEPTH; ++p) {
            A a[4 * SIDE], b[4 * SIDE];
#pragma unroll
            for (int i = 0; i < 4 * SIDE; ++i) {
                a[i] = widened(left[p * LINE + i0 + i / 4 * 64 + i % 4]);
                b[i] = widened(right[p * LINE + j0 + i / 4 * 64 + i % 4]);
            }
#pragma unroll
            for (int i = 0; i < 4 * SIDE; ++i)
#pragma unroll
                for (int j = 0; j < 4 * SIDE; ++j) sums[i][j] += a[i] * b[j];
        }
    }
    // Calls `out(row, column, values)` with four sums that are neighbours in a row.
    template <class Out> __device__ __forceinline__ void each(Out& out) {
        int i0 = threadIdx.x / 16 * 4, j0 = threadIdx.x % 16 * 4;
#pragma unroll
        for (int i = 0; i < 4 * SIDE; ++i)
#pragma unroll
            for (int j = 0; j < SIDE; ++j) out.template put<4>(i0 + i / 4 * 64 + i % 4, j0 + 64 * j, &sums[i][4 * j]);
    }
};

// Where results go: `alpha sum + beta start`, rounded, or sums of a part of the depth as they are.
struct Finish {
    void* out;
    const void* start;
    void* partial;
    i64 rows, columns, out_row, out_column, start_row, start_column;
    double alpha, beta;
    i64 integer_alpha, integer_beta;

    __device__ __forceinline__ float scaled(float sum, float start) const {
        return this->start ? (float)alpha * sum + (float)beta * start : (float)alpha * sum;
    }
    __device__ __forceinline__ double scaled(double sum, double start) const {
        return this->start ? alpha * sum + beta * start : alpha * sum;
    }
    __device__ __forceinline__ i64 scaled(i64 sum, i64 start) const { return integer_alpha * sum + integer_beta * start; }
};

template <class T> struct Writer {
    typedef typename Sum<T>::Type A;
    Finish f;
    i64 row, column;

    __device__ __forceinline__ T value(i64 r, i64 c, A sum) const {
        A start = f.start ? (A)widened(((const T*)f.start)[r * f.start_row + c * f.start_column]) : (A)0;
        return narrowed<T>(f.scaled(sum, start));
    }
    template <int N> __device__ __forceinline__ void put(int i, int j, const A* sums) const {
        i64 r = row + i, c = column + j;
        if (r >= f.rows) return;
        if (f.partial) {
#pragma unroll
            for (int k = 0; k < N; ++k)
                if (c + k < f.columns) ((A*)f.partial)[r * f.columns + c + k] = sums[k];
            return;
        }
        T* to = (T*)f.out + r * f.out_row + c * f.out_column;
        const int BYTES = N * sizeof(T);
        if (f.out_column == 1 && c + N <= f.columns && ((u64)to & (BYTES - 1)) == 0 && BYTES <= 16) {
            struct __align__(BYTES <= 16 ? BYTES : 16) { T x[N]; } pack;
#pragma unroll
            for (int k = 0; k < N; ++k) pack.x[k] = value(r, c + k, sums[k]);
            if (BYTES == 16) *(uint4*)to = *(uint4*)&pack;
            else if (BYTES == 8) *(uint2*)to = *(uint2*)&pack;
            else if (BYTES == 4) *(u32*)to = *(u32*)&pack;
            else {
#pragma unroll
                for (int k = 0; k < N; ++k) to[k] = pack.x[k];
            }
            return;
        }
#pragma unroll
        for (int k = 0; k < N; ++k)
            if (c + k < f.columns) to[k * f.out_column] = value(r, c + k, sums[k]);
    }
};

// The tile of a number, in an order in which neighbours share operands: eight rows of tiles at a time.
__device__ __forceinline__ void tile_place(i64 tile, i64 rows, i64 columns, i64* row, i64* column) {
    const i64 GROUP = 8;
    i64 group = tile / (GROUP * columns), within = tile % (GROUP * columns);
    i64 height = rows - group * GROUP < GROUP ? rows - group * GROUP : GROUP;
    *row = group * GROUP + within % height;
    *column = within / height;
}
