// Sums, means or maxima of the rows of a table that bags of indices name, and the gradients of that. A thread has a
// column of a bag.

struct Bags {
    const void* table;
    const i64* indices;
    // Where bags start; null where each has `width` indices.
    const i64* offsets;
    // A factor for each index, or null.
    const void* factors;
    const void* g;
    void* y;
    // In the type that is added in.
    void* dtable;
    void* dfactors;
    i64 rows, columns, bags, indices_count, width;
    // Indices that do not count, or -1.
    i64 padding;
    // 0: sum, 1: mean, 2: maximum.
    i32 mode, reserved;
    Refusal indices_refusal, offsets_refusal;
};

__device__ __forceinline__ void span(const Bags& task, i64 bag, i64* first, i64* end) {
    if (!task.offsets) {
        *first = bag * task.width;
        *end = *first + task.width;
        return;
    }
    // Indices after the last offset are the last bag's.
    *first = task.offsets[bag];
    *end = bag + 1 < task.bags ? task.offsets[bag + 1] : task.indices_count;
    bool rising = *first >= 0 && *first <= *end && *end <= task.indices_count && (bag > 0 || *first == 0);
    const Refusal& refusal = task.offsets_refusal;
    if (!rising) {
        bool own = *first < 0 || (bag == 0 && *first != 0);
        refuse(refusal.record, refusal.site, (double)(own ? *first : *end), own ? bag : bag + 1, task.indices_count);
    }
}

__device__ __forceinline__ i64 row_of(const Bags& task, i64 i) {
    return checked(task.indices[i], task.rows, i, task.indices_refusal);
}

__device__ __forceinline__ i64 counting(const Bags& task, i64 first, i64 end) {
    if (task.padding < 0) return end - first;
    i64 all = 0;
    for (i64 i = first; i < end; ++i) all += task.indices[i] != task.padding;
    return all;
}

template <class A, class T> __device__ __forceinline__ void put_together(const Bags& task) {
    const T* table = (const T*)task.table;
    for (i64 at = first_index(); at < task.bags * task.columns; at += index_step()) {
        i64 bag = at / task.columns, column = at - bag * task.columns, first, end, count = 0;
        span(task, bag, &first, &end);
        A value = 0;
#pragma unroll 4
        for (i64 i = first; i < end; ++i) {
            i64 row = row_of(task, i);
            if (row == task.padding) continue;
            A x = Convert<A>::from(table[row * task.columns + column]);
            if (task.mode == 2) value = count == 0 || x > value || x != x ? x : value;
            else if (task.factors) value += x * Convert<A>::from(((const T*)task.factors)[i]);
            else value += x;
            ++count;
        }
        if (task.mode == 1 && count > 1) value /= (A)count;
        put((T*)task.y + at, value);
    }
}

// Rows that several bags name are added to in no fixed order, as in PyTorch. All that equal a maximum share its
// gradient.
template <class A, class T> __device__ __forceinline__ void table_gradient(const Bags& task) {
    const T* table = (const T*)task.table;
    for (i64 at = first_index(); at < task.bags * task.columns; at += index_step()) {
        i64 bag = at / task.columns, column = at - bag * task.columns, first, end;
        span(task, bag, &first, &end);
        A g = Convert<A>::from(((const T*)task.g)[at]), largest = 0;
        if (task.mode == 1) g /= (A)counting(task, first, end);
        if (task.mode == 2) {
            largest = Convert<A>::from(((const T*)task.y)[at]);
            i64 equal = 0;
            for (i64 i = first; i < end; ++i) {
                i64 row = row_of(task, i);
                equal += row != task.padding && Convert<A>::from(table[row * task.columns + column]) == largest;
            }
            g /= (A)equal;
        }
        for (i64 i = first; i < end; ++i) {
            i64 row = row_of(task, i), place = row * task.columns + column;
            if (row == task.padding) continue;
            if (task.mode == 2 && !(Convert<A>::from(table[place]) == largest)) continue;
            A share = task.factors ? g * Convert<A>::from(((const T*)task.factors)[i]) : g;
            atomicAdd((A*)task.dtable + place, share);
        }
    }
}

// A warp for each index: its row times the gradient of its bag.
template <class A, class T> __device__ __forceinline__ void factor_gradient(const Bags& task) {
    int lane = threadIdx.x % 32;
    for (i64 i = first_index() / 32; i < task.indices_count; i += index_step() / 32) {
        i64 bag = 0;
        if (!task.offsets) {
            bag = i / task.width;
        } else {
            // The last bag that starts at i or before.
            i64 low = 0, high = task.bags;
            while (low < high) {
                i64 middle = low + (high - low) / 2;
                if (task.offsets[middle] <= i) low = middle + 1;
                else high = middle;
            }
            bag = low - 1;
        }
        i64 row = row_of(task, i);
        A sum = 0;
        if (row != task.padding) {
            const T* x = (const T*)task.table + row * task.columns;
            const T* g = (const T*)task.g + bag * task.columns;
            for (i64 k = lane; k < task.columns; k += 32) sum += Convert<A>::from(x[k]) * Convert<A>::from(g[k]);
        }
        for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
        if (lane == 0) put((T*)task.dfactors + i, sum);
    }
}

#define BAGS(name, A, T)                                                                                       \
    extern "C" __global__ void __launch_bounds__(256) bags_##name(Bags task) { put_together<A, T>(task); }     \
    extern "C" __global__ void __launch_bounds__(256) table_##name(Bags task) { table_gradient<A, T>(task); }  \
    extern "C" __global__ void __launch_bounds__(256) factors_##name(Bags task) { factor_gradient<A, T>(task); }
#if !PARTED || PART_f64
BAGS(f64, double, double)
#endif
#if !PARTED || PART_f32
BAGS(f32, float, float)
#endif
#if !PARTED || PART_f16
BAGS(f16, float, f16)
#endif
#if !PARTED || PART_bf16
BAGS(bf16, float, bf16)
#endif
