// Instructions of a warp for half-precision tiles, each as inline PTX for sm_80 and newer, and beside it in plain
// C++ what it does: copies that a thread does not wait for, blocks of 8 x 8 out of shared memory into
// registers, and their products.

#if !TORCHRS_SIMULATED && __CUDA_ARCH__ >= 800
#define HAS_TENSOR_CORES 1
#else
#define HAS_TENSOR_CORES 0
#endif

#if HAS_TENSOR_CORES
__device__ __forceinline__ u32 shared_address(const void* at) {
    u32 address;
    asm("{ .reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a; }" : "=r"(address) : "l"(at));
    return address;
}
#endif

// Sixteen bytes to shared memory; zeros unless `inside`.
__device__ __forceinline__ void copy_16(void* to, const void* from, bool inside) {
#if HAS_TENSOR_CORES
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(inside ? 16 : 0)
                 : "memory");
#elif TORCHRS_SIMULATED
    __sim_copy_16(to, from, inside);
#else
    uint4 zero = {0, 0, 0, 0};
    *(uint4*)to = inside ? *(const uint4*)from : zero;
#endif
}
// Closes a group of copies, which may be empty.
__device__ __forceinline__ void commit_copies() {
#if HAS_TENSOR_CORES
    asm volatile("cp.async.commit_group;" ::: "memory");
#elif TORCHRS_SIMULATED
    __sim_commit_copies();
#endif
}
// Waits until all but the newest N groups are there.
template <int N> __device__ __forceinline__ void await_copies() {
#if HAS_TENSOR_CORES
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#elif TORCHRS_SIMULATED
    __sim_await_copies(N);
#endif
}

#if !HAS_TENSOR_CORES
// What the lanes of each of up to eight warps show each other.
__shared__ u64 shown[8][32][7];
#endif

// Four blocks of 8 x 8 halves. Lane 8 i + j names row j of block i; lane l gets of each block the two neighbours
// (l / 4, 2 (l % 4)), or, TURNED, those of the transposed block.
template <bool TURNED> __device__ __forceinline__ void load_blocks(u32 out[4], const u16* row) {
#if HAS_TENSOR_CORES
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(shared_address(row)) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(shared_address(row)) : "memory");
#else
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, i = lane / 4, j = lane % 4 * 2;
    shown[warp][lane][0] = (u64)row;
    __syncwarp();
    for (int block = 0; block < 4; ++block) {
        const u64(*rows)[7] = &shown[warp][8 * block];
        u16 a = TURNED ? ((const u16*)rows[j][0])[i] : ((const u16*)rows[i][0])[j];
        u16 b = TURNED ? ((const u16*)rows[j + 1][0])[i] : ((const u16*)rows[i][0])[j + 1];
        out[block] = a | (u32)b << 16;
    }
    __syncwarp();
#endif
}

#if HAS_TENSOR_CORES
#define WARP_PRODUCT(TYPE)                                                                                     \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 {%0, %1, %2, %3}, "            \
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                               \
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#else
template <class T> __device__ __forceinline__ float half_of(u32 pair, int which) {
    T x;
    x.bits = (u16)(pair >> (16 * which));
    return to_float(x);
}
#endif

// Adds the product of a 16 x 16 block, as four 8 x 8 blocks (top left, bottom left, top right, bottom right), and a
// 16 x 8 one, whose two 8 x 8 blocks are transposed. Lane l has the sums (l / 4, 2 (l % 4)), its neighbour, and those
// eight rows below.
template <class T> __device__ __forceinline__ void add_product(float sums[4], const u32 a[4], const u32 b[2]) {
#if HAS_TENSOR_CORES
    if (T::IS_BF16) WARP_PRODUCT("bf16");
    else WARP_PRODUCT("f16");
#else
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int i = 0; i < 4; ++i) shown[warp][lane][i] = a[i];
    for (int i = 0; i < 2; ++i) shown[warp][lane][4 + i] = b[i];
    __syncwarp();
    for (int p = 0; p < 16; ++p) {
        int from = p % 8 / 2, side = p / 8;
        for (int i = 0; i < 4; ++i) {
            int row = lane / 4, column = lane % 4 * 2 + i % 2;
            float x = half_of<typename T::Bits>((u32)shown[warp][row * 4 + from][i / 2 + 2 * side], p % 2);
            float y = half_of<typename T::Bits>((u32)shown[warp][column * 4 + from][4 + side], p % 2);
            sums[i] += x * y;
        }
    }
    __syncwarp();
#endif
}

template <class T> struct Half;
template <> struct Half<f16> {
    typedef f16 Bits;
    static const bool IS_BF16 = false;
};
template <> struct Half<bf16> {
    typedef bf16 Bits;
    static const bool IS_BF16 = true;
};

// A loader, as in `tile.cuh`, of a matrix whose elements lie side by side in eights from a multiple of sixteen bytes on:
// along the depth, or across it.
template <class S, int COUNT, int DEPTH, int THREADS, bool ALONG, int ROW_STEP, int DEPTH_STEP> struct CopyLoader {
    typedef typename S::T T;
    static const int TABLE = 0, EACH = COUNT * DEPTH / 8 / THREADS, LINE = (ALONG ? DEPTH : COUNT) / 8;

    __device__ __forceinline__ void begin(const S&, i64, i64*) {}
    __device__ __forceinline__ void prepare(const S&, i64, int, i64*) {}
    __device__ __forceinline__ void fetch(const S& s, i64 first, i64 from, int, const i64*, T* to) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            int item = threadIdx.x + i * THREADS, within = item % LINE * 8;
            int r = ALONG ? item / LINE : within, p = ALONG ? within : item / LINE;
            i64 place = s.row(first + r) + s.depth(from + p);
            copy_16(to + r * ROW_STEP + p * DEPTH_STEP, s.at + (place < 0 ? 0 : place), place >= 0);
        }
    }
    __device__ __forceinline__ void put_down(T*) {}
};

// SIZE x SIZE sums of halves by warps, two in a column of the tile: each of SIZE / 2 rows and 32 columns. In shared
// memory a side lies along the depth, or across it, with lines that are eight longer: that keeps banks apart.
template <class E, int SIZE, bool LEFT_ALONG, bool RIGHT_ALONG, int OF_DEPTH = 32,
          int LEFT_LINE = (LEFT_ALONG ? OF_DEPTH : SIZE) + 8, int RIGHT_LINE = (RIGHT_ALONG ? OF_DEPTH : SIZE) + 8>
struct WarpTile {
    typedef E T;
    typedef float A;
    static const int ROWS = SIZE, COLUMNS = SIZE, THREADS = SIZE * 2, DEPTH = OF_DEPTH, HIGH = SIZE / 32;
    static const int LEFT_ROW = LEFT_ALONG ? LEFT_LINE : 1, LEFT_DEPTH = LEFT_ALONG ? 1 : LEFT_LINE;
    static const int RIGHT_ROW = RIGHT_ALONG ? RIGHT_LINE : 1, RIGHT_DEPTH = RIGHT_ALONG ? 1 : RIGHT_LINE;
    static const int LEFT = LEFT_ALONG ? SIZE * LEFT_ROW : DEPTH * LEFT_DEPTH;
    static const int RIGHT = RIGHT_ALONG ? SIZE * RIGHT_ROW : DEPTH * RIGHT_DEPTH;
    float sums[HIGH][4][4];

    static __device__ __forceinline__ int first_row() { return threadIdx.x / 32 % 2 * (SIZE / 2); }
    static __device__ __forceinline__ int first_column() { return threadIdx.x / 64 * 32; }

    __device__ __forceinline__ void begin() {
#pragma unroll
        for (int i = 0; i < HIGH; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j)
#pragma unroll
                for (int k = 0; k < 4; ++k) sums[i][j][k] = 0;
    }
    __device__ __forceinline__ void multiply(const T* left, const T* right) {
        int lane = threadIdx.x % 32, low = lane % 8, second = lane / 8 % 2, third = lane / 16;
#pragma unroll
        for (int p = 0; p < DEPTH; p += 16) {
            u32 a[HIGH][4], b[2][4];
#pragma unroll
            for (int i = 0; i < HIGH; ++i) {
                int row = first_row() + 16 * i + 8 * second, depth = p + 8 * third;
                (LEFT_ALONG ? row : depth) += low;
                load_blocks<!LEFT_ALONG>(a[i], (const u16*)(left + row * LEFT_ROW + depth * LEFT_DEPTH));
            }
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                int column = first_column() + 16 * j + 8 * third, depth = p + 8 * second;
                (RIGHT_ALONG ? column : depth) += low;
                load_blocks<!RIGHT_ALONG>(b[j], (const u16*)(right + column * RIGHT_ROW + depth * RIGHT_DEPTH));
            }
#pragma unroll
            for (int i = 0; i < HIGH; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) add_product<Half<T> >(sums[i][j], a[i], b[j / 2] + j % 2 * 2);
        }
    }
    template <class Out> __device__ __forceinline__ void each(Out& out) {
        int row = first_row() + threadIdx.x % 32 / 4, column = first_column() + threadIdx.x % 4 * 2;
#pragma unroll
        for (int i = 0; i < HIGH; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                out.template put<2>(row + 16 * i, column + 8 * j, sums[i][j]);
                out.template put<2>(row + 16 * i + 8, column + 8 * j, sums[i][j] + 2);
            }
    }
};
