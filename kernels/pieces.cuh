// Lists of tensors whose pieces are blocks.

// The tensor of this block, of so many whose first blocks are these.
__device__ __forceinline__ i32 tensor_of_block(const i32* blocks, i32 tensors) {
    i32 low = 0, high = tensors - 1;
    while (low < high) {
        i32 middle = (low + high + 1) / 2;
        if (blocks[middle] <= (i32)blockIdx.x) low = middle; else high = middle - 1;
    }
    return low;
}
