// Products of matrices with any strides and batches, of one type: ELEMENT. Sums of parts of the depth, where
// the tiles are too few to fill the device, go to memory and are added in a fixed order afterwards.

#define MOST_BATCH_DIMS 6

// `Product` of the other side.
struct Product {
    Finish finish;
    const void* left;
    const void* right;
    i64 depth, left_row, left_depth, right_depth, right_column;
    // Of how many of the depth a part is, and how many parts.
    i64 part, parts;
    i64 batch, out_batch, batch_dims;
    i64 batch_sizes[MOST_BATCH_DIMS], left_batch[MOST_BATCH_DIMS], right_batch[MOST_BATCH_DIMS];
};

// The operands of a batch item, and its place among the results.
template <class T> __device__ __forceinline__ void enter(const Product& q, i64 item, i64 part, const T** left,
                                                         const T** right, Finish* f) {
    typedef typename Sum<T>::Type A;
    i64 rest = item, l = 0, r = 0;
    for (int d = (int)q.batch_dims - 1; d >= 0; --d) {
        i64 i = rest % q.batch_sizes[d];
        rest /= q.batch_sizes[d];
        l += i * q.left_batch[d];
        r += i * q.right_batch[d];
    }
    *left = (const T*)q.left + l;
    *right = (const T*)q.right + r;
    *f = q.finish;
    f->out = (T*)f->out + item * q.out_batch;
    if (f->start) f->start = (const T*)f->start + item * q.out_batch;
    if (f->partial) f->partial = (A*)f->partial + (part * q.batch + item) * f->rows * f->columns;
}

template <class Tile, class LL, class RL, int STAGES, class T>
__device__ __forceinline__ void product(const Product& q) {
    i64 rows = (q.finish.rows + Tile::ROWS - 1) / Tile::ROWS, columns = (q.finish.columns + Tile::COLUMNS - 1) / Tile::COLUMNS;
    i64 tiles = rows * columns;
    for (i64 block = blockIdx.x; block < tiles * q.batch * q.parts; block += gridDim.x) {
        i64 row, column, rest = block / tiles, item = rest % q.batch, part = rest / q.batch;
        tile_place(block % tiles, rows, columns, &row, &column);
        Writer<T> out;
        out.row = row * Tile::ROWS;
        out.column = column * Tile::COLUMNS;
        const T *left, *right;
        enter(q, item, part, &left, &right, &out.f);
        i64 from = part * q.part, to = from + q.part < q.depth ? from + q.part : q.depth;
        Strided<T> l = {left, q.finish.rows, to, q.left_row, q.left_depth};
        Strided<T> r = {right, q.finish.columns, to, q.right_column, q.right_depth};
        Tile tile;
        tile.begin();
        tile_sums<Tile, LL, RL, STAGES>(tile, l, r, out.row, out.column, from, to);
        tile.each(out);
    }
}

#if HALF
// The assembler for sm_100a spills within the registers that four blocks of the smaller tiles leave.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define TILES(SIZE) (SIZE == 64 ? 2 : 256 / SIZE)
#else
#define TILES(SIZE) (256 / SIZE)
#endif
#define PRODUCT(NAME, SIZE, LOADER, STAGES, LEFT, RIGHT)                                                       \
    extern "C" __global__ void __launch_bounds__(SIZE * 2, TILES(SIZE)) NAME(Product q) {                                   \
        typedef WarpTile<ELEMENT, SIZE, LEFT, RIGHT> Tile;                                                     \
        typedef LOADER<Strided<ELEMENT>, SIZE, 32, SIZE * 2, LEFT, Tile::LEFT_ROW, Tile::LEFT_DEPTH> L;         \
        typedef LOADER<Strided<ELEMENT>, SIZE, 32, SIZE * 2, RIGHT, Tile::RIGHT_ROW, Tile::RIGHT_DEPTH> R;      \
        product<Tile, L, R, STAGES, ELEMENT>(q);                                                               \
    }
#if !PARTED || PART_copied_128
PRODUCT(copied_128_00, 128, CopyLoader, 4, false, false)
PRODUCT(copied_128_01, 128, CopyLoader, 4, false, true)
PRODUCT(copied_128_10, 128, CopyLoader, 4, true, false)
PRODUCT(copied_128_11, 128, CopyLoader, 4, true, true)
#endif
#if !PARTED || PART_copied_64
PRODUCT(copied_64_00, 64, CopyLoader, 4, false, false)
PRODUCT(copied_64_01, 64, CopyLoader, 4, false, true)
PRODUCT(copied_64_10, 64, CopyLoader, 4, true, false)
PRODUCT(copied_64_11, 64, CopyLoader, 4, true, true)
#endif
#if !PARTED || PART_plain_64
PRODUCT(plain_64_00, 64, Loader, 2, false, false)
PRODUCT(plain_64_01, 64, Loader, 2, false, true)
PRODUCT(plain_64_10, 64, Loader, 2, true, false)
PRODUCT(plain_64_11, 64, Loader, 2, true, true)
#endif
#else
// A thread's sums of i64 need more registers than the assembler leaves to it when it makes room for two blocks.
#define IS_LONG_i64 1
#define IS_LONG_OF(T) IS_LONG_##T
#define IS_LONG(T) IS_LONG_OF(T)
#if IS_LONG(ELEMENT)
#define BOUNDS __launch_bounds__(256, 1)
#else
#define BOUNDS __launch_bounds__(256)
#endif
#define PRODUCT(NAME, SIZE, LEFT, RIGHT)                                                                       \
    extern "C" __global__ void BOUNDS NAME(Product q) {                                                        \
        typedef PlainTile<ELEMENT, SIZE> Tile;                                                                 \
        typedef Loader<Strided<ELEMENT>, SIZE, Tile::DEPTH, 256, LEFT, 1, Tile::LINE> L;                        \
        typedef Loader<Strided<ELEMENT>, SIZE, Tile::DEPTH, 256, RIGHT, 1, Tile::LINE> R;                       \
        product<Tile, L, R, 2, ELEMENT>(q);                                                                    \
    }
#if SINGLE && (!PARTED || PART_plain_128)
PRODUCT(plain_128_00, 128, false, false)
PRODUCT(plain_128_01, 128, false, true)
PRODUCT(plain_128_10, 128, true, false)
PRODUCT(plain_128_11, 128, true, true)
#endif
#if !PARTED || PART_plain_64
PRODUCT(plain_64_00, 64, false, false)
PRODUCT(plain_64_01, 64, false, true)
PRODUCT(plain_64_10, 64, true, false)
PRODUCT(plain_64_11, 64, true, true)
#endif
#endif

template <class A> __device__ __forceinline__ A warp_sum(A x) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

#if !PARTED || PART_column
// A matrix, on the left, times a column: LANES threads of a warp for each row.
template <int LANES> __device__ __forceinline__ void column(const Product& q) {
    typedef Sum<ELEMENT>::Type A;
    i64 rows = q.finish.rows, lane = LANES == 1 ? 0 : threadIdx.x % LANES;
    for (i64 i = first_index() / LANES; i < rows * q.batch * q.parts; i += index_step() / LANES) {
        i64 row = i % rows, item = i / rows % q.batch, part = i / rows / q.batch;
        Writer<ELEMENT> out;
        const ELEMENT *left, *right;
        enter(q, item, part, &left, &right, &out.f);
        out.row = row;
        out.column = 0;
        i64 p = part * q.part, to = p + q.part < q.depth ? p + q.part : q.depth;
        left += row * q.left_row;
        A sums[4] = {0, 0, 0, 0};
        const int WIDE = 16 / sizeof(ELEMENT);
        if (LANES == 32 && q.left_depth == 1 && q.right_depth == 1 && ((u64)(left + p) | (u64)(right + p)) % 16 == 0) {
            i64 whole = p + (to - p) / WIDE * WIDE;
#pragma unroll 2
            for (i64 at = p + lane * WIDE; at < whole; at += LANES * WIDE) {
                Several<ELEMENT> l = *(const Several<ELEMENT>*)(left + at), r = *(const Several<ELEMENT>*)(right + at);
#pragma unroll
                for (int k = 0; k < WIDE; ++k) sums[k % 4] += (A)widened(l.values[k]) * (A)widened(r.values[k]);
            }
            p = whole;
        }
        for (p += lane; p + 3 * LANES < to; p += 4 * LANES)
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                i64 at = p + k * LANES;
                sums[k] += (A)widened(left[at * q.left_depth]) * (A)widened(right[at * q.right_depth]);
            }
        for (; p < to; p += LANES) sums[0] += (A)widened(left[p * q.left_depth]) * (A)widened(right[p * q.right_depth]);
        A sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        if (LANES > 1) sum = warp_sum(sum);
        if (lane == 0) out.put<1>(0, 0, &sum);
    }
}

// Where a row's elements are neighbours in memory.
extern "C" __global__ void __launch_bounds__(256) column_along(Product q) { column<32>(q); }

// Where neighbours in a column are.
extern "C" __global__ void __launch_bounds__(256) column_across(Product q) { column<1>(q); }
#endif

#if !PARTED || PART_add
// Adds the parts' sums and finishes them; what is added to them lies in batches as the results do.
extern "C" __global__ void __launch_bounds__(256) add_parts(Finish f, i64 batch, i64 out_batch, i64 parts) {
    typedef Sum<ELEMENT>::Type A;
    i64 size = f.rows * f.columns, count = size * batch;
    const A* partial = (const A*)f.partial;
    Writer<ELEMENT> out;
    out.f = f;
    out.f.partial = 0;
    for (i64 i = first_index(); i < count; i += index_step()) {
        A sum = 0;
        for (i64 part = 0; part < parts; ++part) sum += partial[part * count + i];
        out.f.out = (ELEMENT*)f.out + i / size * out_batch;
        if (f.start) out.f.start = (const ELEMENT*)f.start + i / size * out_batch;
        out.row = i % size / f.columns;
        out.column = i % f.columns;
        out.put<1>(0, 0, &sum);
    }
}
#endif
