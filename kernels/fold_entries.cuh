// The entry points of a fold: VARIANT is an operation of fold.cuh, passed as it is.

// Blocks that a multiprocessor holds at least: without a number the compiler keeps registers in memory to have more.
#ifndef FOLD_BLOCKS
// The assembler for sm_100a spills within the registers that three leave.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define FOLD_BLOCKS 2
#else
#define FOLD_BLOCKS 3
#endif
#endif

#if !PARTED || PART_fold_rows
extern "C" __global__ void __launch_bounds__(FOLD_THREADS, FOLD_BLOCKS) fold_rows(FoldPlan plan, VARIANT op, void* parts) {
    fold_block<VARIANT, false, false>(plan, op, (VARIANT::Acc*)parts);
}
#endif
#if !PARTED || PART_fold_rows_wide
extern "C" __global__ void __launch_bounds__(FOLD_THREADS, FOLD_BLOCKS) fold_rows_wide(FoldPlan plan, VARIANT op, void* parts) {
    fold_block<VARIANT, true, false>(plan, op, (VARIANT::Acc*)parts);
}
#endif
#if !PARTED || PART_fold_columns
extern "C" __global__ void __launch_bounds__(FOLD_THREADS, FOLD_BLOCKS) fold_columns(FoldPlan plan, VARIANT op, void* parts) {
    fold_block<VARIANT, false, true>(plan, op, (VARIANT::Acc*)parts);
}
#endif
#if !PARTED || PART_fold_parts
extern "C" __global__ void __launch_bounds__(FOLD_THREADS, FOLD_BLOCKS) fold_parts(FoldPlan plan, VARIANT op, void* parts) {
    fold_splits<VARIANT>(plan, op, (const VARIANT::Acc*)parts);
}
#endif
