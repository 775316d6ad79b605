// Many tensors cast between f32 and halves, in pieces of so many elements, a block for each. Filters whose channels come
// to lie last, or their gradients that lay so, are put in order on the way.

#define PIECE 8192
#define MOST_TENSORS 96

struct Casts {
    const char* from[MOST_TENSORS];
    char* to[MOST_TENSORS];
    i64 counts[MOST_TENSORS];
    // The first block of each tensor.
    i32 blocks[MOST_TENSORS];
    // The last two dimensions of the result, where they change places; else 0.
    i32 outer[MOST_TENSORS], inner[MOST_TENSORS];
    i32 tensors, reserved;
};

template <class From, class To> __device__ __forceinline__ void cast(const Casts& all) {
    // So many that the narrower side is eight bytes.
    const int WIDE = 4;
    i32 own = tensor_of_block(all.blocks, all.tensors);
    i64 start = (i64)((i32)blockIdx.x - all.blocks[own]) * PIECE, left = all.counts[own] - start;
    i32 count = left < PIECE ? (i32)left : PIECE;
    if (all.inner[own] > 0) {
        u32 outer = all.outer[own], inner = all.inner[own];
        u64 matrix = (u64)outer * inner;
        const From* from = (const From*)all.from[own];
        To* to = (To*)all.to[own] + start;
        for (i32 i = threadIdx.x; i < count; i += blockDim.x) {
            u64 at = start + i, first = at / matrix * matrix;
            u32 within = (u32)(at - first), row = within / inner, column = within - row * inner;
            put(to + i, Convert<float>::from(from[first + (u64)column * outer + row]));
        }
        return;
    }
    const From* from = (const From*)all.from[own] + start;
    To* to = (To*)all.to[own] + start;
    bool fits = (u64)from % (WIDE * sizeof(From)) == 0 && (u64)to % (WIDE * sizeof(To)) == 0;
    i32 packs = fits ? count / WIDE : 0;
    for (i32 i = threadIdx.x; i < packs; i += blockDim.x) {
        Several<From, WIDE> x = ((const Several<From, WIDE>*)from)[i];
        Several<To, WIDE> y;
        for (int j = 0; j < WIDE; ++j) put(&y.values[j], Convert<float>::from(x.values[j]));
        ((Several<To, WIDE>*)to)[i] = y;
    }
    for (i32 i = packs * WIDE + (i32)threadIdx.x; i < count; i += blockDim.x) put(to + i, Convert<float>::from(from[i]));
}

extern "C" __global__ void __launch_bounds__(256) cast_to_f16(Casts all) { cast<float, f16>(all); }
extern "C" __global__ void __launch_bounds__(256) cast_to_bf16(Casts all) { cast<float, bf16>(all); }
extern "C" __global__ void __launch_bounds__(256) cast_of_f16(Casts all) { cast<f16, float>(all); }
extern "C" __global__ void __launch_bounds__(256) cast_of_bf16(Casts all) { cast<bf16, float>(all); }
