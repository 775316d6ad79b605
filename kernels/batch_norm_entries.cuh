// The entry points of work on all elements, `VARIANT::run<WIDE>()`, and of what is known of each channel.

extern "C" __global__ void __launch_bounds__(FOLD_THREADS, 3) each(VARIANT op) { op.run<false>(); }
extern "C" __global__ void __launch_bounds__(FOLD_THREADS, 3) each_wide(VARIANT op) { op.run<true>(); }

// The running statistics in place of the batch's.
extern "C" __global__ void __launch_bounds__(FOLD_THREADS, 3) known(BatchNorm op) {
    for (i64 c = first_index(); c < op.channels; c += index_step()) {
        C variance = channel(op.running_var, c, op.var_format, (C)1);
        op.stats[c] = channel(op.running_mean, c, op.mean_format, (C)0);
        op.stats[op.channels + c] = one_over_root(variance + (C)op.eps);
        op.stats[2 * op.channels + c] = variance;
    }
}
