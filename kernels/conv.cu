// Convolutions in up to three dimensions, of one type: ELEMENT. Results are matrix products whose right operand is
// read out of the planes where a filter's taps lie, without a copy of them: by points and taps for y and dx,
// by taps and points for dw. Depthwise ones, whose matrices would be rows, have kernels of their own.

// The assembler for sm_100a spills a few registers unless it may take as many as it likes.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define LOOSE(THREADS) __launch_bounds__(THREADS, 1)
#else
#define LOOSE(THREADS) __launch_bounds__(THREADS)
#endif

// How filters see planes: point (i, j, k) of the grid and tap (r, s, t) meet at i * step + r * tap_step + origin, in each
// dimension; outside the planes are zeros. `Field` of the other side.
struct Field {
    // Distances of images and of channels, and how many channels are read.
    i64 image, channel, channels;
    // All points of all images, those of one, and taps.
    i64 count, points, taps;
    int size[3], grid[3], step[3], origin[3], tap[3], tap_step[3];
};

// An element's distance, or a part of it, and the place in its plane, or a part of that.
struct Spot {
    i64 at;
    int z, y, x;
};

__device__ __forceinline__ i64 divide(i64 n, i64 by, i64* rest) {
    i64 q = whole_quotient(n, by);
    *rest = n - q * by;
    return q;
}

__device__ __forceinline__ Spot outside() {
    Spot s = {0, -(1 << 30), 0, 0};
    return s;
}

__device__ __forceinline__ Spot point_of(const Field& f, i64 n) {
    if (n >= f.count) return outside();
    i64 rest;
    i64 image = divide(n, f.points, &rest);
    u32 within = (u32)rest, row = within / (u32)f.grid[2];
    Spot s;
    s.x = (int)(within - row * f.grid[2]) * f.step[2] + f.origin[2];
    s.y = (int)(row % (u32)f.grid[1]) * f.step[1] + f.origin[1];
    s.z = (int)(row / (u32)f.grid[1]) * f.step[0] + f.origin[0];
    s.at = image * f.image + ((i64)s.z * f.size[1] + s.y) * f.size[2] + s.x;
    return s;
}

__device__ __forceinline__ Spot tap_of(const Field& f, i64 p, i64 end) {
    if (p >= end) return outside();
    u32 taps = (u32)f.taps, channel = (u32)p / taps, tap = (u32)p - channel * taps, row = tap / (u32)f.tap[2];
    Spot s;
    s.x = (int)(tap - row * f.tap[2]) * f.tap_step[2];
    s.y = (int)(row % (u32)f.tap[1]) * f.tap_step[1];
    s.z = (int)(row / (u32)f.tap[1]) * f.tap_step[0];
    s.at = channel * f.channel + ((i64)s.z * f.size[1] + s.y) * f.size[2] + s.x;
    return s;
}

template <class T> __device__ __forceinline__ T at_spot(const Field& f, const T* planes, const Spot& a, const Spot& b) {
    u32 z = a.z + b.z, y = a.y + b.y, x = a.x + b.x;
    bool inside = z < (u32)f.size[0] && y < (u32)f.size[1] && x < (u32)f.size[2];
    return inside ? planes[a.at + b.at] : zero_of<T>();
}

// The planes as a matrix with a row for each point and the taps of all channels along the depth.
template <class E> struct Points {
    typedef E T;
    typedef Spot Place;
    static const bool TABLE = true;
    const Field& f;
    const T* planes;
    i64 end;
    __device__ __forceinline__ Spot row(i64 n) const { return point_of(f, n); }
    __device__ __forceinline__ Spot depth(i64 p) const { return tap_of(f, p, end); }
    __device__ __forceinline__ T get(const Spot& a, const Spot& b) const { return at_spot(f, planes, a, b); }
};

// The transposed matrix.
template <class E> struct Taps {
    typedef E T;
    typedef Spot Place;
    static const bool TABLE = true;
    const Field& f;
    const T* planes;
    i64 rows, end;
    __device__ __forceinline__ Spot row(i64 p) const { return tap_of(f, p, rows); }
    __device__ __forceinline__ Spot depth(i64 n) const { return n < end ? point_of(f, n) : outside(); }
    __device__ __forceinline__ T get(const Spot& a, const Spot& b) const { return at_spot(f, planes, a, b); }
};

// Planes of results as a matrix with a row for each channel and the points of all images along the depth.
template <class E> struct Channels {
    typedef E T;
    typedef i64 Place;
    static const bool TABLE = false;
    const T* at;
    i64 rows, end, points, image;
    __device__ __forceinline__ i64 row(i64 r) const { return r < rows ? r * points : NOWHERE; }
    __device__ __forceinline__ i64 depth(i64 n) const {
        if (n >= end) return NOWHERE;
        i64 rest;
        i64 item = divide(n, points, &rest);
        return item * image + rest;
    }
    __device__ __forceinline__ T get(i64 row, i64 depth) const {
        i64 place = row + depth;
        return place < 0 ? zero_of<T>() : at[place];
    }
};

// `Correlation` of the other side.
struct Correlation {
    Field field;
    const void* planes;
    // A group's row-major matrix of `rows` x (channels * taps).
    const void* filters;
    const void* bias;
    void* out;
    i64 groups, rows;
    // Where point (0, 0, 0) of the first plane goes, and distances of the others.
    i64 first, out_image, out_channel, out_step[3];
};

// Results by channel, at a distance for each point that a table has, or -1.
template <class T> struct PointWriter {
    typedef typename Sum<T>::Type A;
    T* out;
    const T* bias;
    const i64* table;
    i64 row, rows, channel;

    template <int N> __device__ __forceinline__ void put(int i, int j, const A* sums) const {
        i64 r = row + i;
        if (r >= rows) return;
        A more = bias ? (A)widened(bias[r]) : (A)0;
        T* to = out + r * channel;
        i64 from = table[j], last = table[j + N - 1];
        const int BYTES = N * sizeof(T);
        if (from >= 0 && last == from + N - 1 && BYTES <= 16 && ((u64)(to + from) & (BYTES - 1)) == 0) {
            struct __align__(BYTES <= 16 ? BYTES : 16) { T x[N]; } pack;
#pragma unroll
            for (int k = 0; k < N; ++k) pack.x[k] = narrowed<T>(sums[k] + more);
            if (BYTES == 16) *(uint4*)(to + from) = *(uint4*)&pack;
            else if (BYTES == 8) *(uint2*)(to + from) = *(uint2*)&pack;
            else *(u32*)(to + from) = *(u32*)&pack;
            return;
        }
#pragma unroll
        for (int k = 0; k < N; ++k) {
            i64 place = table[j + k];
            if (place >= 0) to[place] = narrowed<T>(sums[k] + more);
        }
    }
};

template <class Tile, class LL, class RL, int STAGES, class T>
__device__ __forceinline__ void correlate(const Correlation& q) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    const Field& f = q.field;
    i64 depth = f.channels * f.taps;
    i64 rows = (q.rows + Tile::ROWS - 1) / Tile::ROWS, columns = (f.count + Tile::COLUMNS - 1) / Tile::COLUMNS;
    i64 tiles = rows * columns;
    for (i64 block = blockIdx.x; block < tiles * q.groups; block += gridDim.x) {
        i64 row, column, group = block / tiles;
        tile_place(block % tiles, rows, columns, &row, &column);
        row *= Tile::ROWS;
        column *= Tile::COLUMNS;
        Strided<T> l = {(const T*)q.filters + group * q.rows * depth, q.rows, depth, depth, 1};
        Points<T> r = {f, (const T*)q.planes + group * f.channels * f.channel, depth};
        Tile tile;
        tile.begin();
        tile_sums<Tile, LL, RL, STAGES>(tile, l, r, row, column, 0, depth);
        i64* table = (i64*)shared_bytes;
        for (int j = threadIdx.x; j < Tile::COLUMNS; j += Tile::THREADS) {
            i64 n = column + j, rest, place = -1;
            if (n < f.count) {
                i64 image = divide(n, f.points, &rest);
                u32 within = (u32)rest, line = within / (u32)f.grid[2];
                place = q.first + image * q.out_image + (line / (u32)f.grid[1]) * q.out_step[0] +
                        (line % (u32)f.grid[1]) * q.out_step[1] + (within - line * f.grid[2]) * q.out_step[2];
            }
            table[j] = place;
        }
        __syncthreads();
        PointWriter<T> out = {(T*)q.out + group * q.rows * q.out_channel,
                              q.bias ? (const T*)q.bias + group * q.rows : 0, table, row, q.rows, q.out_channel};
        tile.each(out);
        __syncthreads();
    }
}

// `FilterSums` of the other side: dw of each group as a matrix, the depth in parts.
struct FilterSums {
    Field field;
    Finish finish;
    const void* planes;
    const void* results;
    i64 groups, part, parts;
};

template <class Tile, class LL, class RL, int STAGES, class T>
__device__ __forceinline__ void filter_sums(const FilterSums& q) {
    typedef typename Sum<T>::Type A;
    const Field& f = q.field;
    i64 rows = (q.finish.rows + Tile::ROWS - 1) / Tile::ROWS, columns = (q.finish.columns + Tile::COLUMNS - 1) / Tile::COLUMNS;
    i64 tiles = rows * columns, size = q.finish.rows * q.finish.columns;
    for (i64 block = blockIdx.x; block < tiles * q.groups * q.parts; block += gridDim.x) {
        i64 row, column, rest = block / tiles, group = rest % q.groups, part = rest / q.groups;
        tile_place(block % tiles, rows, columns, &row, &column);
        Writer<T> out;
        out.f = q.finish;
        out.f.out = (T*)out.f.out + group * size;
        if (out.f.partial) out.f.partial = (A*)out.f.partial + (part * q.groups + group) * size;
        out.row = row * Tile::ROWS;
        out.column = column * Tile::COLUMNS;
        i64 from = part * q.part, to = from + q.part < f.count ? from + q.part : f.count;
        Channels<T> l = {(const T*)q.results + group * q.finish.rows * f.points, q.finish.rows, to, f.points,
                         q.groups * q.finish.rows * f.points};
        Taps<T> r = {f, (const T*)q.planes + group * f.channels * f.channel, q.finish.columns, to};
        Tile tile;
        tile.begin();
        tile_sums<Tile, LL, RL, STAGES>(tile, l, r, out.row, out.column, from, to);
        tile.each(out);
    }
}

#if HALF
#define KERNELS(SUFFIX, SIZE, LOADER)                                                                          \
    extern "C" __global__ void __launch_bounds__(SIZE * 2, 256 / SIZE) correlate_##SUFFIX(const Correlation q) {           \
        typedef WarpTile<ELEMENT, SIZE, true, false> Tile;                                                     \
        typedef LOADER<Strided<ELEMENT>, SIZE, 32, SIZE * 2, true, Tile::LEFT_ROW, Tile::LEFT_DEPTH> L;         \
        typedef Loader<Points<ELEMENT>, SIZE, 32, SIZE * 2, false, Tile::RIGHT_ROW, Tile::RIGHT_DEPTH> R;       \
        correlate<Tile, L, R, 2, ELEMENT>(q);                                                                  \
    }                                                                                                          \
    extern "C" __global__ void __launch_bounds__(SIZE * 2, 256 / SIZE) filter_sums_##SUFFIX(const FilterSums q) {          \
        typedef WarpTile<ELEMENT, SIZE, true, true> Tile;                                                      \
        typedef LOADER<Channels<ELEMENT>, SIZE, 32, SIZE * 2, true, Tile::LEFT_ROW, Tile::LEFT_DEPTH> L;        \
        typedef Loader<Taps<ELEMENT>, SIZE, 32, SIZE * 2, true, Tile::RIGHT_ROW, Tile::RIGHT_DEPTH> R;          \
        filter_sums<Tile, L, R, 2, ELEMENT>(q);                                                                \
    }
#if !PARTED || PART_plain_64
KERNELS(plain_64, 64, Loader)
#endif
#if !PARTED || PART_copied_64
KERNELS(copied_64, 64, CopyLoader)
#endif
#if !PARTED || PART_copied_128
KERNELS(copied_128, 128, CopyLoader)
#endif
#else
#define KERNELS(SUFFIX, SIZE)                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, SIZE / 64) correlate_##SUFFIX(const Correlation q) {                \
        typedef PlainTile<ELEMENT, SIZE> Tile;                                                                 \
        typedef Loader<Strided<ELEMENT>, SIZE, Tile::DEPTH, 256, true, 1, Tile::LINE> L;                        \
        typedef Loader<Points<ELEMENT>, SIZE, Tile::DEPTH, 256, false, 1, Tile::LINE> R;                        \
        correlate<Tile, L, R, 2, ELEMENT>(q);                                                                  \
    }                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256, SIZE / 64) filter_sums_##SUFFIX(const FilterSums q) {               \
        typedef PlainTile<ELEMENT, SIZE> Tile;                                                                 \
        typedef Loader<Channels<ELEMENT>, SIZE, Tile::DEPTH, 256, true, 1, Tile::LINE> L;                       \
        typedef Loader<Taps<ELEMENT>, SIZE, Tile::DEPTH, 256, true, 1, Tile::LINE> R;                           \
        filter_sums<Tile, L, R, 2, ELEMENT>(q);                                                                \
    }
#if !PARTED || PART_plain_64
KERNELS(plain_64, 64)
#endif
#if SINGLE && (!PARTED || PART_plain_128)
KERNELS(plain_128, 128)
#endif
#endif

#if !PARTED || PART_depthwise
// y of a depthwise convolution: each channel's plane by the filters of its `each` results.
extern "C" __global__ void __launch_bounds__(256)
depthwise(const Field f, const ELEMENT* planes, const ELEMENT* filters, const ELEMENT* bias, ELEMENT* out, i64 channels, i64 each) {
    typedef Sum<ELEMENT>::Type A;
    i64 total = f.count * channels * each;
    for (i64 i = first_index(); i < total; i += index_step()) {
        i64 point, result;
        i64 plane = divide(i, f.points, &point);
        i64 image = divide(plane, channels * each, &result);
        Spot s = point_of(f, point);
        const ELEMENT* from = planes + image * f.image + result / each * f.channel + s.at;
        const ELEMENT* taps = filters + result * f.taps;
        A sum = bias ? (A)widened(bias[result]) : (A)0;
        for (int r = 0; r < f.tap[0]; ++r) {
            int z = r * f.tap_step[0];
            if ((u32)(s.z + z) >= (u32)f.size[0]) continue;
            for (int t = 0; t < f.tap[1]; ++t) {
                int y = t * f.tap_step[1];
                if ((u32)(s.y + y) >= (u32)f.size[1]) continue;
                const ELEMENT* line = from + ((i64)z * f.size[1] + y) * f.size[2];
                const ELEMENT* row = taps + (r * f.tap[1] + t) * f.tap[2];
                for (int u = 0; u < f.tap[2]; ++u) {
                    int x = u * f.tap_step[2];
                    if ((u32)(s.x + x) < (u32)f.size[2]) sum += (A)widened(line[x]) * (A)widened(row[u]);
                }
            }
        }
        out[i] = narrowed<ELEMENT>(sum);
    }
}

// The point of a dimension that reads place `at` by tap `tap`, or -1.
__device__ __forceinline__ int reader(const Field& f, int d, int at, int tap) {
    int from = at - f.origin[d] - tap * f.tap_step[d];
    if (from < 0) return -1;
    int point = f.step[d] == 1 ? from : from / f.step[d];
    return point * f.step[d] == from && point < f.grid[d] ? point : -1;
}

// dx of a depthwise convolution.
extern "C" __global__ void LOOSE(256)
depthwise_data(const Field f, const ELEMENT* results, const ELEMENT* filters, ELEMENT* out, i64 channels, i64 each, i64 images) {
    typedef Sum<ELEMENT>::Type A;
    i64 total = images * channels * f.channel;
    for (i64 i = first_index(); i < total; i += index_step()) {
        i64 within, channel;
        i64 plane = divide(i, f.channel, &within);
        divide(plane, channels, &channel);
        u32 line = (u32)within / (u32)f.size[2];
        int x = (int)((u32)within - line * f.size[2]), y = (int)(line % (u32)f.size[1]), z = (int)(line / (u32)f.size[1]);
        const ELEMENT* from = results + plane * each * f.points;
        const ELEMENT* taps = filters + channel * each * f.taps;
        A sum = 0;
        for (int r = 0; r < f.tap[0]; ++r) {
            int a = reader(f, 0, z, r);
            if (a < 0) continue;
            for (int t = 0; t < f.tap[1]; ++t) {
                int b = reader(f, 1, y, t);
                if (b < 0) continue;
                for (int u = 0; u < f.tap[2]; ++u) {
                    int c = reader(f, 2, x, u);
                    if (c < 0) continue;
                    i64 point = ((i64)a * f.grid[1] + b) * f.grid[2] + c;
                    i64 tap = ((i64)r * f.tap[1] + t) * f.tap[2] + u;
                    for (i64 k = 0; k < each; ++k)
                        sum += (A)widened(from[k * f.points + point]) * (A)widened(taps[k * f.taps + tap]);
                }
            }
        }
        out[i] = narrowed<ELEMENT>(sum);
    }
}

// dw of a depthwise convolution: a block for each tap of each result's filter.
extern "C" __global__ void __launch_bounds__(256)
depthwise_filters(const Field f, const ELEMENT* planes, const ELEMENT* results, ELEMENT* out, i64 channels, i64 each) {
    typedef Sum<ELEMENT>::Type A;
    __shared__ A sums[8];
    i64 images = f.count / f.points;
    for (i64 block = blockIdx.x; block < channels * each * f.taps; block += gridDim.x) {
        i64 tap, result = divide(block, f.taps, &tap);
        Spot b = tap_of(f, tap, f.taps);
        A sum = 0;
        for (i64 i = threadIdx.x; i < f.count; i += 256) {
            i64 point, image = divide(i, f.points, &point);
            Spot a = point_of(f, i);
            a.at += result / each * f.channel;
            A x = widened(at_spot(f, planes, a, b));
            sum += x * (A)widened(results[(image * channels * each + result) * f.points + point]);
        }
#pragma unroll
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        __syncthreads();
        if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
        __syncthreads();
        if (threadIdx.x == 0) {
            sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
            out[block] = narrowed<ELEMENT>(images ? sum : (A)0);
        }
    }
}
#endif
