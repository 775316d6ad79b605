// What kernels of formulas are told: operands, where they lie, numbers.

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

// Bytes from the operands' first elements to the one of an index in the dimensions up to `last`.
__device__ __forceinline__ void find(const Walk& walk, i64 index, int last, i64* offsets) {
#pragma unroll
    for (int k = 0; k < OPERANDS; ++k) offsets[k] = 0;
#pragma unroll 1
    for (int d = last; d > 0; --d) {
        i64 next = whole_quotient(index, walk.sizes[d]), own = index - next * walk.sizes[d];
        index = next;
#pragma unroll
        for (int k = 0; k < OPERANDS; ++k) offsets[k] += own * walk.operands[k].strides[d];
    }
#pragma unroll
    for (int k = 0; k < OPERANDS; ++k) offsets[k] += index * walk.operands[k].strides[0];
}

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
