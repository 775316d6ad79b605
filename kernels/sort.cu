// Places of elements in order along the middle of a dense [outer, n, inner] array. An element and its place
// are one key, so that no two are alike and the order is stable. Short lines are sorted in a block's shared
// memory; of longer ones tiles, which are then merged.

struct Sort {
    const T* x;
    i64* places;
    // Keys of each line, dense; the source and the goal of a merge.
    void* from;
    void* to;
    i64 outer, n, inner;
    // How many places are wanted of each line, and how many keys of a run are in order.
    i64 k, run;
    // Keys of a line in a tile: a power of two.
    i32 length;
    i32 descending;
};

#define SORT_THREADS 256
#define TILE 2048

__device__ __forceinline__ void put_place(const Sort& task, i64 line, i64 rank, const Key& key) {
    if (rank < task.k) task.places[in_line(line, rank, task.k, task.inner)] = Keys::place(key);
}

// Tiles of lines: blockIdx.y and on are the tile in a line, or 0 where a tile has whole lines.
extern "C" __global__ void __launch_bounds__(SORT_THREADS) sort_tiles(Sort task) {
    __shared__ Key keys[TILE];
    i64 lines = task.outer * task.inner, tiles = (task.n + TILE - 1) / TILE;
    int each = TILE / task.length;
    for (i64 tile = blockIdx.y; tile < tiles; tile += gridDim.y)
    for (i64 base = (i64)blockIdx.x * each; base < lines; base += (i64)gridDim.x * each) {
        i64 first = tile * TILE;
        __syncthreads();
        for (int i = threadIdx.x; i < TILE; i += SORT_THREADS) {
            i64 line = base + i / task.length, place = first + i % task.length;
            bool here = line < lines && place < task.n;
            keys[i] = here ? Keys::of(order_of(task.x[in_line(line, place, task.n, task.inner)]), place, task.descending) : Keys::last();
        }
        sort_runs<SORT_THREADS>(keys, TILE, (u32)task.length);
        for (int i = threadIdx.x; i < TILE; i += SORT_THREADS) {
            i64 line = base + i / task.length, rank = first + i % task.length;
            if (line >= lines || rank >= task.n) continue;
            if (task.to) ((Key*)task.to)[line * task.n + rank] = keys[i];
            else put_place(task, line, rank, keys[i]);
        }
    }
}

// How many of the first `both` keys of two runs in one are of `a`.
__device__ __forceinline__ i64 share_of_first(const Key* a, i64 of_a, const Key* b, i64 of_b, i64 both) {
    i64 low = both > of_b ? both - of_b : 0, high = both < of_a ? both : of_a;
    while (low < high) {
        i64 middle = (low + high) / 2;
        if (Keys::less(a[middle], b[both - middle - 1])) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Merges neighbouring runs: a block writes TILE keys, blockIdx.x, of a line, blockIdx.y and on. After the last
// merge the places are written.
extern "C" __global__ void __launch_bounds__(SORT_THREADS) merge_runs(Sort task) {
    __shared__ Key keys[TILE];
    __shared__ i64 bounds[2];
    const int EACH = TILE / SORT_THREADS;
    i64 lines = task.outer * task.inner, start = (i64)blockIdx.x * TILE;
    i64 pair = start / (2 * task.run) * (2 * task.run);
    i64 of_a = task.n - pair < task.run ? task.n - pair : task.run;
    i64 of_b = task.n - pair - of_a < task.run ? task.n - pair - of_a : task.run;
    i64 first = start - pair, end = first + TILE < of_a + of_b ? first + TILE : of_a + of_b;
    for (i64 line = blockIdx.y; line < lines; line += gridDim.y) {
        const Key* a = (const Key*)task.from + line * task.n + pair;
        const Key* b = a + of_a;
        __syncthreads();
        if (threadIdx.x < 2) bounds[threadIdx.x] = share_of_first(a, of_a, b, of_b, threadIdx.x ? end : first);
        __syncthreads();
        // Of each run what this tile is made of, one after the other.
        i64 a_first = bounds[0], b_first = first - a_first;
        int own_a = (int)(bounds[1] - a_first), count = (int)(end - first), own_b = count - own_a;
        for (int i = threadIdx.x; i < count; i += SORT_THREADS) {
            keys[i] = i < own_a ? a[a_first + i] : b[b_first + i - own_a];
        }
        __syncthreads();
        int from = threadIdx.x * EACH < count ? threadIdx.x * EACH : count;
        int to = from + EACH < count ? from + EACH : count;
        int i = (int)share_of_first(keys, own_a, keys + own_a, own_b, from), j = from - i;
        for (int rank = from; rank < to; ++rank) {
            bool left = j >= own_b || (i < own_a && Keys::less(keys[i], keys[own_a + j]));
            Key key = left ? keys[i++] : keys[own_a + j++];
            if (task.to) ((Key*)task.to)[line * task.n + start + rank] = key;
            else put_place(task, line, start + rank, key);
        }
    }
}
