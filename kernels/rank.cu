// The place of the element of some rank in each line of a dense [lines, n] array: the numbers of the elements' order
// are found eight bits at a time, from the highest on, by counting how many elements have which. Of equal ones the
// first comes first, as in `sort.cu`.

struct Rank {
    const T* x;
    i64* places;
    i64 lines, n, k;
    // 0: rank k; 1: the middle, or the first NaN; 2: the middle of those that are not NaN.
    i32 mode, reserved;
};

#define RANK_THREADS 256
typedef decltype(order_of(T())) Order;

extern "C" __global__ void __launch_bounds__(RANK_THREADS) place_of_rank(Rank task) {
    __shared__ u32 counts[256];
    __shared__ u32 found[2];
    for (i64 line = blockIdx.x; line < task.lines; line += gridDim.x) {
        const T* x = task.x + line * task.n;
        u32 n = (u32)task.n, rank = (u32)task.k, all;
        if (task.mode != 0) {
            // NaN is above all numbers, but the largest integer is one.
            u32 nans = 0;
            for (u32 i = threadIdx.x; i < n; i += RANK_THREADS) nans += Convert<C>::from(x[i]) != Convert<C>::from(x[i]);
            before_thread<RANK_THREADS>(nans, &all);
            u32 valid = n - all;
            rank = task.mode == 2 ? (valid > 0 ? valid - 1 : 0) / 2 : all == 0 ? (n - 1) / 2 : valid;
        }
        Order prefix = 0, known = 0;
        for (int shift = (int)sizeof(Order) * 8 - 8; shift >= 0; shift -= 8) {
            __syncthreads();
            counts[threadIdx.x] = 0;
            __syncthreads();
            for (u32 i = threadIdx.x; i < n; i += RANK_THREADS) {
                Order order = order_of(x[i]);
                if ((order & known) == prefix) atomicAdd(counts + (u32)(order >> shift & 255), 1u);
            }
            __syncthreads();
            u32 own = counts[threadIdx.x], before = before_thread<RANK_THREADS>(own, &all);
            if (rank >= before && rank - before < own) {
                found[0] = threadIdx.x;
                found[1] = before;
            }
            __syncthreads();
            prefix |= (Order)found[0] << shift;
            known |= (Order)255 << shift;
            rank -= found[1];
        }
        // Of the elements that are equal, that of the rank that is left.
        for (u32 first = 0; first < n; first += RANK_THREADS) {
            u32 i = first + threadIdx.x, own = i < n && order_of(x[i]) == prefix ? 1 : 0;
            u32 before = before_thread<RANK_THREADS>(own, &all);
            if (own && before == rank) task.places[line] = i;
            if (rank < all) break;
            rank -= all;
        }
    }
}
