// A formula over all elements of tensors. The program defines C (the compute type), OUTPUTS, INPUTS,
// PARAMS, and `evaluate(C* out, const C* in, const C* param)`.

// Any strides and formats.
extern "C" __global__ void __launch_bounds__(256, BLOCKS) strided(Walk walk) {
    C params[PARAMS + 1], in[INPUTS + 1], out[OUTPUTS];
    parameters(walk, params);
    for (i64 i = first_index(); i < walk.count; i += index_step()) {
        i64 offsets[OPERANDS];
        find(walk, i, walk.dims - 1, offsets);
        for (int k = 0; k < INPUTS; ++k) {
            const Operand& operand = walk.operands[OUTPUTS + k];
            in[k] = operand.at ? load<C>(operand.at + offsets[OUTPUTS + k], operand.format) : number_of(operand);
        }
        evaluate(out, in, params);
        for (int k = 0; k < OUTPUTS; ++k) store<C>(walk.operands[k].at + offsets[k], walk.operands[k].format, out[k]);
    }
}

// All tensors hold T, densely, from multiples of 16 bytes on.
template <class T> __device__ __forceinline__ void run_dense(const Walk& walk) {
    const int WIDE = 16 / sizeof(T);
    C params[PARAMS + 1], in[INPUTS + 1], out[OUTPUTS];
    parameters(walk, params);
    i64 packs = walk.count / WIDE;
    for (i64 i = first_index(); i < packs; i += index_step()) {
        Several<T> from[INPUTS + 1], to[OUTPUTS];
        for (int k = 0; k < INPUTS; ++k) {
            const Operand& operand = walk.operands[OUTPUTS + k];
            if (operand.at) from[k] = ((const Several<T>*)operand.at)[i];
        }
        // A loop that stays one would keep the packs in memory.
#pragma unroll
        for (int j = 0; j < WIDE; ++j) {
            for (int k = 0; k < INPUTS; ++k) {
                const Operand& operand = walk.operands[OUTPUTS + k];
                in[k] = operand.at ? Convert<C>::from(from[k].values[j]) : number_of(operand);
            }
            evaluate(out, in, params);
            for (int k = 0; k < OUTPUTS; ++k) put(&to[k].values[j], out[k]);
        }
        for (int k = 0; k < OUTPUTS; ++k) ((Several<T>*)walk.operands[k].at)[i] = to[k];
    }
    for (i64 i = packs * WIDE + first_index(); i < walk.count; i += index_step()) {
        for (int k = 0; k < INPUTS; ++k) {
            const Operand& operand = walk.operands[OUTPUTS + k];
            in[k] = operand.at ? Convert<C>::from(((const T*)operand.at)[i]) : number_of(operand);
        }
        evaluate(out, in, params);
        for (int k = 0; k < OUTPUTS; ++k) put((T*)walk.operands[k].at + i, out[k]);
    }
}

#if COMPUTE_F32
extern "C" __global__ void __launch_bounds__(256, BLOCKS) dense_f32(Walk walk) { run_dense<float>(walk); }
extern "C" __global__ void __launch_bounds__(256, BLOCKS) dense_f16(Walk walk) { run_dense<f16>(walk); }
extern "C" __global__ void __launch_bounds__(256, BLOCKS) dense_bf16(Walk walk) { run_dense<bf16>(walk); }
#elif COMPUTE_F64
extern "C" __global__ void __launch_bounds__(256, BLOCKS) dense_f64(Walk walk) { run_dense<double>(walk); }
#else
extern "C" __global__ void __launch_bounds__(256, BLOCKS) dense_i64(Walk walk) { run_dense<i64>(walk); }
#endif

#if UPDATE
// The same update of many tensors, each in pieces of so many elements, a block for each.
#define PIECE 8192
#define MOST_TENSORS 40
#define MOST_UPDATED 8

struct Many {
    double params[MOST_PARAMS];
    char* at[MOST_TENSORS][MOST_UPDATED];
    i64 counts[MOST_TENSORS];
    // The first block of each tensor.
    i32 blocks[MOST_TENSORS];
    i32 tensors, reserved;
    // Which inputs are written.
    i32 written[MOST_UPDATED];
};

template <class T> __device__ __forceinline__ void update_many(const Many& many) {
    const int WIDE = 16 / sizeof(T);
    C params[PARAMS + 1], in[INPUTS], out[OUTPUTS];
    for (int p = 0; p < PARAMS; ++p) params[p] = (C)many.params[p];
    i32 low = 0, high = many.tensors - 1;
    while (low < high) {
        i32 middle = (low + high + 1) / 2;
        if (many.blocks[middle] <= (i32)blockIdx.x) low = middle; else high = middle - 1;
    }
    i64 start = (i64)((i32)blockIdx.x - many.blocks[low]) * PIECE;
    i64 left = many.counts[low] - start;
    i32 count = left < PIECE ? (i32)left : PIECE;
    T* at[INPUTS];
    u64 bits = 0;
    for (int k = 0; k < INPUTS; ++k) {
        at[k] = (T*)many.at[low][k] + start;
        bits |= (u64)at[k];
    }
    i32 packs = bits % 16 == 0 ? count / WIDE : 0;
    for (i32 i = threadIdx.x; i < packs; i += blockDim.x) {
        Several<T> from[INPUTS], to[OUTPUTS];
        for (int k = 0; k < INPUTS; ++k) from[k] = ((const Several<T>*)at[k])[i];
        for (int j = 0; j < WIDE; ++j) {
            for (int k = 0; k < INPUTS; ++k) in[k] = Convert<C>::from(from[k].values[j]);
            evaluate(out, in, params);
            for (int k = 0; k < OUTPUTS; ++k) put(&to[k].values[j], out[k]);
        }
        for (int k = 0; k < OUTPUTS; ++k) ((Several<T>*)((T*)many.at[low][many.written[k]] + start))[i] = to[k];
    }
    for (i32 i = packs * WIDE + (i32)threadIdx.x; i < count; i += blockDim.x) {
        for (int k = 0; k < INPUTS; ++k) in[k] = Convert<C>::from(at[k][i]);
        evaluate(out, in, params);
        for (int k = 0; k < OUTPUTS; ++k) put((T*)many.at[low][many.written[k]] + start + i, out[k]);
    }
}

#if COMPUTE_F32
extern "C" __global__ void __launch_bounds__(256) many_f32(Many many) { update_many<float>(many); }
extern "C" __global__ void __launch_bounds__(256) many_f16(Many many) { update_many<f16>(many); }
extern "C" __global__ void __launch_bounds__(256) many_bf16(Many many) { update_many<bf16>(many); }
#elif COMPUTE_F64
extern "C" __global__ void __launch_bounds__(256) many_f64(Many many) { update_many<double>(many); }
#endif
#endif
