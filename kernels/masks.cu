// Elements that a mask of zeros and ones chooses: how many there are, their places, the elements in order, and a
// list put back in that order. The mask is cut into chunks, one for a block. The chosen of each are counted; then
// every block knows how many come before its own. Tiles are put in order in shared memory, so that memory is read
// and written by neighbours side by side.

#define MASK_THREADS 256
#define MASK_EACH 16
#define MASK_TILE (MASK_THREADS * MASK_EACH)
#define MOST_DIMS 8

struct Mask {
    const u8* at;
    // Chosen ones before each chunk, and in all.
    i64* starts;
    i64 n, chunk;
    // Whether sixteen flags can be read at once.
    i32 aligned, reserved;
};

// The four bytes of a word, each 0 or 1, as the lowest bits.
__device__ __forceinline__ u32 bits_of(u32 word) { return (word * 0x01020408u) >> 24 & 15u; }

// The flags from `first` on, at most sixteen, as bits.
__device__ __forceinline__ u32 flags(const Mask& mask, i64 first, i64 end) {
    if (mask.aligned && first + MASK_EACH <= end) {
        uint4 words = *(const uint4*)(mask.at + first);
        return bits_of(words.x) | bits_of(words.y) << 4 | bits_of(words.z) << 8 | bits_of(words.w) << 12;
    }
    u32 bits = 0;
    for (int k = 0; k < MASK_EACH && first + k < end; ++k) bits |= (u32)(mask.at[first + k] != 0) << k;
    return bits;
}

__device__ __forceinline__ i64 end_of_chunk(const Mask& mask) {
    i64 first = blockIdx.x * mask.chunk;
    return mask.n - first > mask.chunk ? first + mask.chunk : mask.n;
}

extern "C" __global__ void __launch_bounds__(MASK_THREADS) count_chosen(Mask mask) {
    i64 end = end_of_chunk(mask), own = 0, all;
    for (i64 tile = blockIdx.x * mask.chunk; tile < end; tile += MASK_TILE) {
        own += __popc(flags(mask, tile + threadIdx.x * MASK_EACH, end));
    }
    before_thread<MASK_THREADS>(own, &all);
    if (threadIdx.x == 0) mask.starts[blockIdx.x] = all;
}

// One block: numbers of chunks to numbers before them, and the sum behind the last.
extern "C" __global__ void __launch_bounds__(MASK_THREADS) start_chunks(i64* starts, i64 chunks) {
    i64 carry = 0;
    for (i64 tile = 0; tile < chunks; tile += MASK_THREADS) {
        i64 i = tile + threadIdx.x, own = i < chunks ? starts[i] : 0, all;
        i64 before = carry + before_thread<MASK_THREADS>(own, &all);
        if (i < chunks) starts[i] = before;
        carry += all;
    }
    if (threadIdx.x == 0) starts[chunks] = carry;
}

// op.chosen(rank, place) for the chosen elements of this block's chunk.
template <class Op> __device__ __forceinline__ void each_chosen(const Mask& mask, const Op& op) {
    __shared__ u16 list[MASK_TILE];
    i64 end = end_of_chunk(mask), start = mask.starts[blockIdx.x];
    for (i64 tile = blockIdx.x * mask.chunk; tile < end; tile += MASK_TILE) {
        u32 bits = flags(mask, tile + threadIdx.x * MASK_EACH, end);
        int all, rank = before_thread<MASK_THREADS>((int)__popc(bits), &all);
#pragma unroll
        for (int k = 0; k < MASK_EACH; ++k) {
            if (bits >> k & 1u) list[rank++] = (u16)(threadIdx.x * MASK_EACH + k);
        }
        __syncthreads();
        for (int k = threadIdx.x; k < all; k += MASK_THREADS) op.chosen(start + k, tile + list[k]);
        start += all;
        // The next tile's list is written behind the barriers of its count.
    }
}

struct Sizes { i64 size[MOST_DIMS]; };

// to[rank][d] is coordinate d of the place, in an array of `dims` dimensions.
struct Coordinates {
    i64* to;
    Sizes sizes;
    i32 dims;
    __device__ __forceinline__ void chosen(i64 rank, i64 place) const {
#pragma unroll
        for (int d = MOST_DIMS - 1; d > 0; --d) {
            if (d >= dims) continue;
            i64 size = sizes.size[d];
            i64 next = whole_quotient(place, size);
            to[rank * dims + d] = place - next * size;
            place = next;
        }
        to[rank * dims] = place;
    }
};
extern "C" __global__ void __launch_bounds__(MASK_THREADS) coordinates(Mask mask, i64* to, Sizes sizes, i32 dims) {
    Coordinates op = {to, sizes, dims};
    each_chosen(mask, op);
}

template <class T> struct Taken {
    T* to;
    const T* from;
    __device__ __forceinline__ void chosen(i64 rank, i64 place) const { to[rank] = from[place]; }
};

// to[i] = from[rank of i] where i is chosen, else 0, or what is there.
template <class T> __device__ __forceinline__ void spread(
    const Mask& mask, T* to, const T* from, i64 available, i32 keep, i32 exact, Refusal refusal
) {
    const u16 NONE = 0xffff;
    i64 places = mask.starts[gridDim.x];
    bool fits = exact ? places == available : places <= available;
    if (!fits) refuse(refusal.record, refusal.site, (double)available, 0, places);
    __shared__ u16 ranks[MASK_TILE];
    i64 end = end_of_chunk(mask), start = mask.starts[blockIdx.x];
    for (i64 tile = blockIdx.x * mask.chunk; tile < end; tile += MASK_TILE) {
        u32 bits = flags(mask, tile + threadIdx.x * MASK_EACH, end);
        int all, rank = before_thread<MASK_THREADS>((int)__popc(bits), &all);
#pragma unroll
        for (int k = 0; k < MASK_EACH; ++k) {
            ranks[threadIdx.x * MASK_EACH + k] = bits >> k & 1u ? (u16)rank++ : NONE;
        }
        __syncthreads();
        for (int k = threadIdx.x; k < MASK_TILE && tile + k < end; k += MASK_THREADS) {
            T zero = {};
            if (ranks[k] != NONE) to[tile + k] = from[start + ranks[k]];
            else if (!keep) to[tile + k] = zero;
        }
        start += all;
    }
}

#define MOVING(unit, T)                                                                                    \
    extern "C" __global__ void __launch_bounds__(MASK_THREADS) select_##unit(Mask mask, T* to, const T* from) { \
        Taken<T> op = {to, from};                                                                          \
        each_chosen(mask, op);                                                                             \
    }                                                                                                      \
    extern "C" __global__ void __launch_bounds__(MASK_THREADS) spread_##unit(                              \
        Mask mask, T* to, const T* from, i64 available, i32 keep, i32 exact, Refusal refusal               \
    ) { spread(mask, to, from, available, keep, exact, refusal); }
MOVING(1, u8)
MOVING(2, u16)
MOVING(4, u32)
MOVING(8, u64)
MOVING(16, Several<u64>)
