// The entry points of work on rows, `VARIANT::rows<VALUES, WIDE>()`, passed as it is: for short rows, rows
// that a group keeps in registers, and longer ones.

extern "C" __global__ void __launch_bounds__(FOLD_THREADS) rows_short(VARIANT op) { op.rows<4, false>(); }
extern "C" __global__ void __launch_bounds__(FOLD_THREADS) rows_kept(VARIANT op) { op.rows<32, false>(); }
extern "C" __global__ void __launch_bounds__(FOLD_THREADS) rows_kept_wide(VARIANT op) { op.rows<32, true>(); }
extern "C" __global__ void __launch_bounds__(FOLD_THREADS) rows_long(VARIANT op) { op.rows<0, false>(); }
extern "C" __global__ void __launch_bounds__(FOLD_THREADS) rows_long_wide(VARIANT op) { op.rows<0, true>(); }
