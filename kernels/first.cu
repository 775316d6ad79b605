// The places of the first k elements in the order of each line of a dense [lines, n] array, for k up to TILE. The bits
// of the order's numbers are looked at from the highest on, by counting how many elements have which, until those that
// may be among the first fit in a block's memory, where they are sorted. Of equal elements the first come first.

struct First {
    const T* x;
    // [outer, k, inner], where lines are [outer, inner].
    i64* places;
    i64 lines, n, k, inner;
    i32 descending, reserved;
};

#define THREADS 256
#define TILE 2048
// Bits at a time: numbers of floats differ little in the highest ones.
#define BITS 11
#define BINS (1 << BITS)
typedef decltype(order_of(T())) Order;

// Elements that a thread asks for before it looks at any.
#define AT_ONCE 4

__device__ __forceinline__ Order ordered(T value, bool descending) {
    return descending ? (Order)~order_of(value) : order_of(value);
}

// Calls `each` with the place and the order of all elements of a line, of which this thread has every THREADS-th.
template <class F> __device__ __forceinline__ void walk_orders(const T* x, i64 n, bool descending, F each) {
    for (i64 i = threadIdx.x; i < n; i += AT_ONCE * THREADS) {
        Order orders[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j) {
            i64 place = i + j * THREADS;
            orders[j] = ordered(x[place < n ? place : i], descending);
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j) {
            if (i + j * THREADS < n) each(i + j * THREADS, orders[j]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) first_of_lines(First task) {
    __shared__ Key keys[TILE];
    __shared__ u32 found[3];
    u32* counts = (u32*)keys;
    const int EACH = BINS / THREADS, ALL_BITS = (int)sizeof(Order) * 8;
    u32 n = (u32)task.n, k = (u32)task.k, all;
    for (i64 line = blockIdx.x; line < task.lines; line += gridDim.x) {
        const T* x = task.x + line * task.n;
        // Elements below the bin in question, and in it.
        u32 below = 0, inside = n;
        Order prefix = 0, known = 0;
        int left = ALL_BITS;
        while (below + inside > TILE && left > 0) {
            int bits = left < BITS ? left : BITS;
            left -= bits;
            __syncthreads();
            for (int bin = threadIdx.x; bin < BINS; bin += THREADS) counts[bin] = 0;
            __syncthreads();
            walk_orders(x, n, task.descending, [&](i64, Order order) {
                if ((order & known) != prefix) return;
                atomicAdd(counts + (u32)(order >> left & ((1u << bits) - 1)), 1u);
            });
            __syncthreads();
            u32 own = 0;
            for (int j = 0; j < EACH; ++j) own += counts[threadIdx.x * EACH + j];
            u32 before = before_thread<THREADS>(own, &all);
            u32 rank = k - 1 - below;
            if (rank >= before && rank - before < own) {
                int bin = threadIdx.x * EACH;
                while (rank - before >= counts[bin]) before += counts[bin++];
                found[0] = (u32)bin;
                found[1] = before;
                found[2] = counts[bin];
            }
            __syncthreads();
            prefix |= (Order)found[0] << left;
            known |= (Order)((1u << bits) - 1) << left;
            below += found[1];
            inside = found[2];
        }
        // All that may be among the first; of equal ones only those that are.
        bool too_many = below + inside > TILE;
        u32 count = too_many ? k : below + inside, length = 1;
        while (length < count) length *= 2;
        __syncthreads();
        if (threadIdx.x == 0) found[0] = 0;
        for (u32 i = count + threadIdx.x; i < length; i += THREADS) keys[i] = Keys::last();
        __syncthreads();
        walk_orders(x, n, task.descending, [&](i64 place, Order order) {
            Order part = order & known;
            bool chosen = part < prefix || (part == prefix && !too_many);
            if (chosen) keys[atomicAdd(found, 1u)] = Keys::of(order, place, false);
        });
        for (u32 first = 0, taken = below; too_many && taken < k; first += THREADS) {
            u32 i = first + threadIdx.x;
            Order order = ordered(x[i < n ? i : 0], task.descending);
            bool equal = i < n && order == prefix;
            u32 at = taken + before_thread<THREADS>(equal ? 1u : 0u, &all);
            if (equal && at < k) keys[at] = Keys::of(order, i, false);
            taken += all;
        }
        sort_runs<THREADS>(keys, length, length);
        for (u32 rank = threadIdx.x; rank < k; rank += THREADS) {
            task.places[in_line(line, rank, task.k, task.inner)] = Keys::place(keys[rank]);
        }
        __syncthreads();
    }
}
