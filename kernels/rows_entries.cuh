// The entry points of work on rows, `VARIANT::rows<VALUES, WIDE>()`, passed as it is: for short rows, rows
// that a group keeps in registers, and longer ones. `cuda::fold::rows_shape` knows how long they are.

// What a thread keeps of a row, and how many blocks of the kernels that keep it a multiprocessor holds at least, or
// 0 where the compiler chooses well.
#define KEPT (sizeof(C) == 8 ? 16 : 32)
#ifndef KEPT_BLOCKS
#define KEPT_BLOCKS 0
#endif
#ifndef KEPT_WIDE_BLOCKS
#define KEPT_WIDE_BLOCKS 0
#endif

#if !PARTED || PART_rows_short
extern "C" __global__ void __launch_bounds__(FOLD_THREADS, 3) rows_short(VARIANT op) { op.rows<4, false>(); }
#endif
#if !PARTED || PART_rows_kept
extern "C" __global__ void __launch_bounds__(FOLD_THREADS, KEPT_BLOCKS) rows_kept(VARIANT op) { op.rows<KEPT, false>(); }
#endif
#if !PARTED || PART_rows_kept_wide
extern "C" __global__ void __launch_bounds__(FOLD_THREADS, KEPT_WIDE_BLOCKS) rows_kept_wide(VARIANT op) { op.rows<KEPT, true>(); }
#endif
#if !PARTED || PART_rows_long
extern "C" __global__ void __launch_bounds__(FOLD_THREADS, 3) rows_long(VARIANT op) { op.rows<0, false>(); }
#endif
#if !PARTED || PART_rows_long_wide
extern "C" __global__ void __launch_bounds__(FOLD_THREADS, 3) rows_long_wide(VARIANT op) { op.rows<0, true>(); }
#endif
