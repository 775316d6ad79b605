// A formula over all elements of tensors. The program defines C (the compute type), OUTPUTS, INPUTS,
// PARAMS, and `evaluate(C* out, const C* in, const C* param)`.

#define OPERANDS (OUTPUTS + INPUTS)
#define MOST_DIMS 8
#define MOST_OPERANDS 12
#define MOST_PARAMS 16
// The least number of a multiprocessor's blocks: without a word the assembler spills registers to make room for
// more of them than it is worth.
#define BLOCKS 2

// A tensor, or a number where `at` is null.
struct Operand {
    char* at;
    i64 strides[MOST_DIMS];
    double number;
    i64 integer;
    i32 format;
    i32 is_integer;
};

// Dimensions from the outermost to the innermost, strides in bytes.
struct Walk {
    i64 count;
    i64 sizes[MOST_DIMS];
    i32 dims;
    i32 reserved;
    double params[MOST_PARAMS];
    i64 integers[MOST_PARAMS];
    Operand operands[MOST_OPERANDS];
};

__device__ __forceinline__ C number_of(const Operand& operand) {
    return operand.is_integer ? (C)operand.integer : (C)operand.number;
}

__device__ __forceinline__ void parameters(const Walk& walk, C* params) {
#if COMPUTE_I64
    for (int p = 0; p < PARAMS; ++p) params[p] = walk.integers[p];
#else
    for (int p = 0; p < PARAMS; ++p) params[p] = (C)walk.params[p];
#endif
}


// Any strides and formats.
extern "C" __global__ void __launch_bounds__(256, BLOCKS) strided(Walk walk) {
    C params[PARAMS + 1], in[INPUTS + 1], out[OUTPUTS];
    parameters(walk, params);
    for (i64 i = first_index(); i < walk.count; i += index_step()) {
        i64 offsets[OPERANDS];
        for (int k = 0; k < OPERANDS; ++k) offsets[k] = 0;
        i64 left = i;
        for (int d = walk.dims - 1; d > 0; --d) {
            i64 size = walk.sizes[d];
            i64 next = (left | size) >> 32 ? left / size : (i64)((u32)left / (u32)size);
            i64 index = left - next * size;
            left = next;
            for (int k = 0; k < OPERANDS; ++k) offsets[k] += index * walk.operands[k].strides[d];
        }
        for (int k = 0; k < OPERANDS; ++k) offsets[k] += left * walk.operands[k].strides[0];
        for (int k = 0; k < INPUTS; ++k) {
            const Operand& operand = walk.operands[OUTPUTS + k];
            in[k] = operand.at ? load<C>(operand.at + offsets[OUTPUTS + k], operand.format) : number_of(operand);
        }
        evaluate(out, in, params);
        for (int k = 0; k < OUTPUTS; ++k) store<C>(walk.operands[k].at + offsets[k], walk.operands[k].format, out[k]);
    }
}

// Sixteen bytes, which one instruction moves.
template <class T> struct __align__(16) Pack { T values[16 / sizeof(T)]; };

// All tensors hold T, densely, from multiples of 16 bytes on.
template <class T> __device__ __forceinline__ void run_dense(const Walk& walk) {
    const int WIDE = 16 / sizeof(T);
    C params[PARAMS + 1], in[INPUTS + 1], out[OUTPUTS];
    parameters(walk, params);
    i64 packs = walk.count / WIDE;
    for (i64 i = first_index(); i < packs; i += index_step()) {
        Pack<T> from[INPUTS + 1], to[OUTPUTS];
        for (int k = 0; k < INPUTS; ++k) {
            const Operand& operand = walk.operands[OUTPUTS + k];
            if (operand.at) from[k] = ((const Pack<T>*)operand.at)[i];
        }
        for (int j = 0; j < WIDE; ++j) {
            for (int k = 0; k < INPUTS; ++k) {
                const Operand& operand = walk.operands[OUTPUTS + k];
                in[k] = operand.at ? Convert<C>::from(from[k].values[j]) : number_of(operand);
            }
            evaluate(out, in, params);
            for (int k = 0; k < OUTPUTS; ++k) put(&to[k].values[j], out[k]);
        }
        for (int k = 0; k < OUTPUTS; ++k) ((Pack<T>*)walk.operands[k].at)[i] = to[k];
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
