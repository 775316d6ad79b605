// Attention by tiles, of one type: ELEMENT, with up to DIM features. A block of TILE_THREADS threads has TILE_ROWS queries (or,
// for dK and dV, keys) and goes through the others TILE_STEP at a time. Scores never leave the block; backward computes them
// again. While a step is computed, the next one's rows are being copied.
//
// Blocks that a multiprocessor of an H100 holds, as NVRTC 13.0 compiles for sm_90a, without spilled registers: of the
// three kernels in their order, and what limits the number. A block never has more than 142 KiB of shared memory; more
// than the 99 KiB of small GPUs it has for more than 128 features, and for f64 from 65 on.
//
//     DIM            64                    128                   256
//     f16, bf16      3 2 2 (registers)     3 2 2 (registers)     1 1 1 (registers; 256 threads)
//     float          3 2 2 (both)          4 3 3 (memory)        2 1 1 (memory)
//     double         4 3 3 (memory)        2 2 2 (memory)        2 1 1 (memory)

// Rows of shared memory: of operands, of scores, and of weights, which lie where the scores were.
#define LINE (DIM + Sixteen<T>::N)
#define SCORES (TILE_STEP + Sixteen<A>::N)
#define WEIGHTS (SCORES * (int)(sizeof(A) / sizeof(T)))
// Rows of weights in backward: along the keys, and along the queries.
#define BY_KEYS (TILE_STEP + Sixteen<T>::N)
#define BY_QUERIES (TILE_ROWS + Sixteen<T>::N)
// Parts of the other side that are in shared memory: one is being used, one copied.
#define STAGES 2
#define MOST_BATCH_DIMS 4
// Threads of a row of scores, and what each of them has of it.
#define LANES (TILE_THREADS / TILE_ROWS)
#define OWN (TILE_STEP / LANES)

typedef ELEMENT T;
typedef Arithmetic<T>::A A;

// An operand's distances: of its rows, and of the items of each batch dimension.
struct Operand {
    const T* at;
    i64 row, batch[MOST_BATCH_DIMS];
};

// A result's: of items and rows.
struct Lies {
    i64 item, row;
};

// `Attention` of the other side.
struct Attention {
    Operand q, k, v, mask;
    T* out;
    A* logsum;
    const T* dy;
    // The sums of dY Y along the features, for each query.
    A* along;
    T *dq, *dk, *dv;
    // dY lies as Y.
    Lies of_y, of_q, of_k, of_v;
    i64 batch, batch_sizes[MOST_BATCH_DIMS];
    i64 queries, keys, depth, width, mask_column;
    // Query i sees the keys from i + low to i + high.
    i64 low, high;
    // Sequences that lie one after the other: where each begins, and one more place, where the last one ends. The band
    // is then counted from each sequence's last query and key.
    const i32 *q_starts, *k_starts;
    i64 sequences;
    // Blocks of the longest sequence.
    i64 query_blocks, key_blocks;
    // Of weights that dropout keeps, the factor, and the words.
    double scale, kept;
    u64 threshold, seed, stream;
    const u64* place;
};

__device__ __forceinline__ A nothing() { return (A)-__int_as_float(0x7f800000); }

// Whether dropout keeps a weight, by its place among all: the words are those that dropout of a tensor of them draws.
struct Kept {
    Draw draw;
    u64 threshold;
    i64 block;
    Words words;
    __device__ __forceinline__ Kept(const Attention& a) : draw(a.seed, a.stream, a.place), threshold(a.threshold), block(-1) {}
    __device__ __forceinline__ bool operator()(i64 at) {
        if (at >> 2 != block) {
            block = at >> 2;
            words = philox((u64)block, draw.stream, draw.seed);
        }
        u32 low = at & 1 ? words.w[1] : words.w[0], high = at & 1 ? words.w[3] : words.w[2];
        return (u64)(at & 2 ? high : low) >= threshold;
    }
};

__device__ __forceinline__ const T* item_of(const Attention& a, const Operand& operand, i64 item) {
    const T* at = operand.at;
#pragma unroll 1
    for (int d = MOST_BATCH_DIMS - 1; d >= 0; --d) {
        i64 outer = whole_quotient(item, a.batch_sizes[d]);
        at += (item - outer * a.batch_sizes[d]) * operand.batch[d];
        item = outer;
    }
    return at;
}

// What a block computes: its item, its first row, and the sequence's queries and keys.
struct Turn {
    i64 item, first, query, queries, key, keys, low, high;
    __device__ __forceinline__ Turn(const Attention& a, i64 block, i64 blocks) {
        item = whole_quotient(block, blocks);
        first = (block - item * blocks) * TILE_ROWS;
        low = a.low;
        high = a.high;
        query = key = 0;
        queries = a.queries;
        keys = a.keys;
        if (a.q_starts) {
            i64 sequence = item;
            item = whole_quotient(item, a.sequences);
            sequence -= item * a.sequences;
            query = a.q_starts[sequence];
            queries = a.q_starts[sequence + 1] - query;
            key = a.k_starts[sequence];
            keys = a.k_starts[sequence + 1] - key;
            low += keys - queries;
            high += keys - queries;
        }
    }
    // Where a tensor of a number for each query has the sequence's.
    __device__ __forceinline__ i64 row(const Attention& a) const { return item * a.queries + query; }
    // The keys that the queries of a tile see: from the first to before the last.
    __device__ __forceinline__ i64 keys_from() const { return first + low > 0 ? first + low : 0; }
    __device__ __forceinline__ i64 keys_to() const {
        i64 to = (first + TILE_ROWS < queries ? first + TILE_ROWS : queries) + high;
        return to < keys ? to : keys;
    }
    // The queries that see the keys of a tile.
    __device__ __forceinline__ i64 queries_from() const { return first - high > 0 ? first - high : 0; }
    __device__ __forceinline__ i64 queries_to() const {
        i64 to = (first + TILE_ROWS < keys ? first + TILE_ROWS : keys) - low;
        return to < queries ? to : queries;
    }
};

// Brings COUNT rows from `first` on, zeros where there are none.
template <int COUNT>
__device__ __forceinline__ void bring(T* to, const T* from, i64 step, i64 first, i64 rows, i64 features) {
    const int N = Sixteen<T>::N;
#pragma unroll 1
    for (int i = threadIdx.x; i < COUNT * DIM / N; i += TILE_THREADS) {
        int r = i / (DIM / N), c = i % (DIM / N) * N;
        bool inside = first + r < rows && c < features;
        copy_16(to + r * LINE + c, inside ? from + (first + r) * step + c : from, inside);
    }
}

__device__ __forceinline__ int within(i64 x, int most) { return x < -most ? -most : x > most ? most : (int)x; }

// What of a tile counts: so many queries and keys, and of a query the keys from its own number and this one on to its
// own number and that one.
struct Edge {
    int queries, keys, low, high;
    const T* mask;
    __device__ __forceinline__ Edge(const Attention& a, const Turn& turn, const T* of_item, i64 query, i64 key) {
        queries = within(turn.queries - query, TILE_ROWS + TILE_STEP);
        keys = within(turn.keys - key, TILE_ROWS + TILE_STEP);
        low = within(turn.low + query - key, TILE_ROWS + TILE_STEP);
        high = within(turn.high + query - key, TILE_ROWS + TILE_STEP);
        mask = of_item ? of_item + query * a.mask.row + key * a.mask_column : 0;
    }
    // The score of a query and a key of the tile: minus infinity where it does not see it.
    __device__ __forceinline__ A score(const Attention& a, int i, int j, A product) const {
        if (i >= queries || j >= keys || j < i + low || j > i + high) return nothing();
        A s = product * (A)a.scale;
        return mask ? s + (A)widened(mask[i * a.mask.row + j * a.mask_column]) : s;
    }
};

// Rows of results, rounded; each by a factor.
template <class S>
__device__ __forceinline__ void put_rows(const S& s, T* out, i64 row, const A* factor, i64 first, i64 rows, i64 features) {
    const int N = S::NEIGHBOURS;
#pragma unroll
    for (int n = 0; n < S::COUNT; n += N) {
        i64 r = first + s.row(n), c = s.column(n);
        // Features are a multiple of sixteen bytes.
        if (r >= rows || c >= features) continue;
        A by = factor ? factor[s.row(n)] : (A)1;
        Several<T, N> pack;
#pragma unroll
        for (int k = 0; k < N; ++k) pack.values[k] = narrowed<T>(s.sums[n + k] * by);
        *(Several<T, N>*)(out + r * row + c) = pack;
    }
}

extern "C" __global__ void __launch_bounds__(TILE_THREADS, TILE_THREADS == 128 ? 3 : 1) flash(const __grid_constant__ Attention a) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    T *q = (T*)shared_bytes, *parts = q + TILE_ROWS * LINE;
    A *scores = (A*)(parts + STAGES * 2 * TILE_STEP * LINE), *factor = scores + TILE_ROWS * SCORES;
    T* weights = (T*)scores;
    for (i64 block = blockIdx.x; block < a.query_blocks * a.sequences * a.batch; block += gridDim.x) {
        Turn turn(a, block, a.query_blocks);
        if (turn.first >= turn.queries) continue;
        i64 first = turn.first;
        const T *of_k = item_of(a, a.k, turn.item) + turn.key * a.k.row;
        const T *of_v = item_of(a, a.v, turn.item) + turn.key * a.v.row;
        const T* mask = a.mask.at ? item_of(a, a.mask, turn.item) : 0;
        bring<TILE_ROWS>(q, item_of(a, a.q, turn.item) + turn.query * a.q.row, a.q.row, first, turn.queries, a.depth);
        Sums<T, TILE_ROWS, DIM, TILE_STEP, true, false, WEIGHTS, LINE> out;
        out.begin();
        // Of the row that this thread and its neighbours have.
        int row = threadIdx.x / LANES, lane = threadIdx.x % LANES, stage = 0;
        A largest = nothing(), sum = 0;
        i64 key = turn.keys_from(), to = turn.keys_to();
        if (key < to) {
            bring<TILE_STEP>(parts, of_k, a.k.row, key, turn.keys, a.depth);
            bring<TILE_STEP>(parts + TILE_STEP * LINE, of_v, a.v.row, key, turn.keys, a.width);
        }
        commit_copies();
        for (; key < to; key += TILE_STEP, stage ^= 1) {
            const T *k = parts + stage * 2 * TILE_STEP * LINE, *v = k + TILE_STEP * LINE;
            if (key + TILE_STEP < to) {
                T* next = parts + (stage ^ 1) * 2 * TILE_STEP * LINE;
                bring<TILE_STEP>(next, of_k, a.k.row, key + TILE_STEP, turn.keys, a.depth);
                bring<TILE_STEP>(next + TILE_STEP * LINE, of_v, a.v.row, key + TILE_STEP, turn.keys, a.width);
            }
            commit_copies();
            await_copies<1>();
            __syncthreads();
            {
                Sums<T, TILE_ROWS, TILE_STEP, DIM, true, true, LINE, LINE> products;
                products.begin();
                products.multiply(q, k);
#pragma unroll
                for (int n = 0; n < products.COUNT; ++n)
                    scores[products.row(n) * SCORES + products.column(n)] = products.sums[n];
            }
            __syncthreads();
            // A bit for each weight.
            u32 kept = ~0u;
            if (a.threshold) {
                Kept keeps(a);
                i64 place = (turn.row(a) + first + row) * a.keys + key + lane;
                kept = 0;
#pragma unroll 1
                for (int i = 0; i < OWN; ++i) kept |= (u32)keeps(place + LANES * i) << i;
            }
            Edge edge(a, turn, mask, first, key);
            A most = largest, own[OWN];
#pragma unroll
            for (int i = 0; i < OWN; ++i) {
                int j = LANES * i + lane;
                own[i] = edge.score(a, row, j, scores[row * SCORES + j]);
                most = own[i] > most || own[i] != own[i] ? own[i] : most;
            }
#pragma unroll
            for (int by = 1; by < LANES; by *= 2) {
                A other = __shfl_xor_sync(0xffffffffu, most, by);
                most = other > most || other != other ? other : most;
            }
            // All scores of the row have been read: its weights go there.
            __syncwarp();
            A base = most == nothing() ? (A)0 : most, more = 0;
#pragma unroll
            for (int i = 0; i < OWN; ++i) {
                A weight = Arithmetic<T>::power(own[i] - base);
                more += weight;
                weights[row * WEIGHTS + LANES * i + lane] = narrowed<T>(kept >> i & 1 ? weight : (A)0);
            }
#pragma unroll
            for (int by = 1; by < LANES; by *= 2) more += __shfl_xor_sync(0xffffffffu, more, by);
            A shrink = Arithmetic<T>::power(largest - base);
            sum = sum * shrink + more;
            largest = most;
            if (lane == 0) factor[row] = shrink;
            __syncthreads();
#pragma unroll
            for (int n = 0; n < out.COUNT; ++n) out.sums[n] *= factor[out.row(n)];
            out.multiply(weights, v);
            __syncthreads();
        }
        await_copies<0>();
        if (lane == 0) {
            factor[row] = sum == 0 ? (A)0 : (A)a.kept / sum;
            if (first + row < turn.queries)
                a.logsum[turn.row(a) + first + row] = sum == 0 ? (A)0 : largest + log(sum);
        }
        __syncthreads();
        T* to_y = a.out + turn.item * a.of_y.item + turn.query * a.of_y.row;
        put_rows(out, to_y, a.of_y.row, factor, first, turn.queries, a.width);
        __syncthreads();
    }
}

// A bit for each weight that this thread has of a tile: whether dropout keeps it. Found before the products, which take
// the registers that this takes.
template <class S> __device__ __forceinline__ u32 kept_bits(const Attention& a, const Turn& turn, i64 query, i64 key) {
    if (!a.threshold) return ~0u;
    u32 bits = 0;
    Kept keeps(a);
    i64 place = (turn.row(a) + query) * a.keys + key;
#pragma unroll 1
    for (int n = 0; n < S::COUNT; ++n) bits |= (u32)keeps(place + S::row(n) * a.keys + S::column(n)) << n;
    return bits;
}

// Weights, rounded, from the products of queries and keys, and the gradients of those products, in rows of LINE_OF; the
// weights may be left out.
template <int LINE_OF, class S>
__device__ __forceinline__ void differentiate(const Attention& a, const Edge& edge, u32 kept, const S& products,
                                              const S& gradient, const A* logsum, const A* along, T* weights, T* gradients) {
#pragma unroll
    for (int n = 0; n < S::COUNT; ++n) {
        int r = products.row(n), c = products.column(n);
        A weight = Arithmetic<T>::power(edge.score(a, r, c, products.sums[n]) - logsum[r]);
        A by = kept >> n & 1 ? (A)a.kept : (A)0;
        if (weights) weights[r * LINE_OF + c] = narrowed<T>(weight * by);
        gradients[r * LINE_OF + c] = narrowed<T>(weight * (gradient.sums[n] * by - along[r]) * (A)a.scale);
    }
}

// dQ, and the sums of dY Y, which the other kernel needs.
extern "C" __global__ void __launch_bounds__(TILE_THREADS) flash_queries(const __grid_constant__ Attention a) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    T *q = (T*)shared_bytes, *dy = q + TILE_ROWS * LINE, *parts = dy + TILE_ROWS * LINE, *gradients = parts + STAGES * 2 * TILE_STEP * LINE;
    A *logsum = (A*)(gradients + TILE_ROWS * BY_KEYS), *along = logsum + TILE_ROWS;
    typedef Sums<T, TILE_ROWS, TILE_STEP, DIM, true, true, LINE, LINE> Products;
    for (i64 block = blockIdx.x; block < a.query_blocks * a.sequences * a.batch; block += gridDim.x) {
        Turn turn(a, block, a.query_blocks);
        if (turn.first >= turn.queries) continue;
        i64 first = turn.first, results = turn.item * a.of_y.item + turn.query * a.of_y.row;
        const T *of_k = item_of(a, a.k, turn.item) + turn.key * a.k.row;
        const T *of_v = item_of(a, a.v, turn.item) + turn.key * a.v.row;
        const T* mask = a.mask.at ? item_of(a, a.mask, turn.item) : 0;
        bring<TILE_ROWS>(q, item_of(a, a.q, turn.item) + turn.query * a.q.row, a.q.row, first, turn.queries, a.depth);
        bring<TILE_ROWS>(dy, a.dy + results, a.of_y.row, first, turn.queries, a.width);
        i64 key = turn.keys_from(), to = turn.keys_to();
        if (key < to) {
            bring<TILE_STEP>(parts, of_k, a.k.row, key, turn.keys, a.depth);
            bring<TILE_STEP>(parts + TILE_STEP * LINE, of_v, a.v.row, key, turn.keys, a.width);
        }
        commit_copies();
        {
            int row = threadIdx.x / LANES, lane = threadIdx.x % LANES;
            i64 query = first + row;
            bool inside = query < turn.queries;
            A sum = 0;
            if (inside)
                for (i64 c = lane; c < a.width; c += LANES) {
                    i64 at = results + query * a.of_y.row + c;
                    sum += (A)widened(a.dy[at]) * (A)widened(a.out[at]);
                }
#pragma unroll
            for (int by = 1; by < LANES; by *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
            if (lane == 0) {
                along[row] = sum;
                logsum[row] = inside ? a.logsum[turn.row(a) + query] : (A)0;
                if (inside) a.along[turn.row(a) + query] = sum;
            }
        }
        Sums<T, TILE_ROWS, DIM, TILE_STEP, true, false, BY_KEYS, LINE> dq;
        dq.begin();
        for (int stage = 0; key < to; key += TILE_STEP, stage ^= 1) {
            const T *k = parts + stage * 2 * TILE_STEP * LINE, *v = k + TILE_STEP * LINE;
            if (key + TILE_STEP < to) {
                T* next = parts + (stage ^ 1) * 2 * TILE_STEP * LINE;
                bring<TILE_STEP>(next, of_k, a.k.row, key + TILE_STEP, turn.keys, a.depth);
                bring<TILE_STEP>(next + TILE_STEP * LINE, of_v, a.v.row, key + TILE_STEP, turn.keys, a.width);
            }
            commit_copies();
            u32 kept = kept_bits<Products>(a, turn, first, key);
            await_copies<1>();
            __syncthreads();
            {
                Products products, gradient;
                products.begin();
                gradient.begin();
                products.multiply(q, k);
                gradient.multiply(dy, v);
                Edge edge(a, turn, mask, first, key);
                differentiate<BY_KEYS>(a, edge, kept, products, gradient, logsum, along, (T*)0, gradients);
            }
            __syncthreads();
            dq.multiply(gradients, k);
            __syncthreads();
        }
        await_copies<0>();
        T* to_q = a.dq + turn.item * a.of_q.item + turn.query * a.of_q.row;
        put_rows(dq, to_q, a.of_q.row, (const A*)0, first, turn.queries, a.depth);
        __syncthreads();
    }
}

// dK and dV.
extern "C" __global__ void __launch_bounds__(TILE_THREADS) flash_keys(const __grid_constant__ Attention a) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    T *k = (T*)shared_bytes, *v = k + TILE_ROWS * LINE, *parts = v + TILE_ROWS * LINE, *gradients = parts + STAGES * 2 * TILE_STEP * LINE;
    T* weights = gradients + TILE_STEP * BY_QUERIES;
    A *logsum = (A*)(weights + TILE_STEP * BY_QUERIES), *along = logsum + TILE_STEP;
    typedef Sums<T, TILE_STEP, TILE_ROWS, DIM, true, true, LINE, LINE> Products;
    for (i64 block = blockIdx.x; block < a.key_blocks * a.sequences * a.batch; block += gridDim.x) {
        Turn turn(a, block, a.key_blocks);
        if (turn.first >= turn.keys) continue;
        i64 first = turn.first;
        const T* of_q = item_of(a, a.q, turn.item) + turn.query * a.q.row;
        const T* of_dy = a.dy + turn.item * a.of_y.item + turn.query * a.of_y.row;
        const T* mask = a.mask.at ? item_of(a, a.mask, turn.item) : 0;
        bring<TILE_ROWS>(k, item_of(a, a.k, turn.item) + turn.key * a.k.row, a.k.row, first, turn.keys, a.depth);
        bring<TILE_ROWS>(v, item_of(a, a.v, turn.item) + turn.key * a.v.row, a.v.row, first, turn.keys, a.width);
        i64 query = turn.queries_from(), to = turn.queries_to();
        if (query < to) {
            bring<TILE_STEP>(parts, of_q, a.q.row, query, turn.queries, a.depth);
            bring<TILE_STEP>(parts + TILE_STEP * LINE, of_dy, a.of_y.row, query, turn.queries, a.width);
        }
        commit_copies();
        Sums<T, TILE_ROWS, DIM, TILE_STEP, false, false, BY_QUERIES, LINE> dk, dv;
        dk.begin();
        dv.begin();
        for (int stage = 0; query < to; query += TILE_STEP, stage ^= 1) {
            const T *q = parts + stage * 2 * TILE_STEP * LINE, *dy = q + TILE_STEP * LINE;
            if (query + TILE_STEP < to) {
                T* next = parts + (stage ^ 1) * 2 * TILE_STEP * LINE;
                bring<TILE_STEP>(next, of_q, a.q.row, query + TILE_STEP, turn.queries, a.depth);
                bring<TILE_STEP>(next + TILE_STEP * LINE, of_dy, a.of_y.row, query + TILE_STEP, turn.queries, a.width);
            }
            commit_copies();
            if (threadIdx.x < TILE_STEP) {
                i64 at = turn.row(a) + query + threadIdx.x;
                bool inside = query + threadIdx.x < turn.queries;
                logsum[threadIdx.x] = inside ? a.logsum[at] : (A)0;
                along[threadIdx.x] = inside ? a.along[at] : (A)0;
            }
            u32 kept = kept_bits<Products>(a, turn, query, first);
            await_copies<1>();
            __syncthreads();
            {
                Products products, gradient;
                products.begin();
                gradient.begin();
                products.multiply(q, k);
                gradient.multiply(dy, v);
                Edge edge(a, turn, mask, query, first);
                differentiate<BY_QUERIES>(a, edge, kept, products, gradient, logsum, along, weights, gradients);
            }
            __syncthreads();
            dk.multiply(gradients, q);
            dv.multiply(weights, dy);
            __syncthreads();
        }
        await_copies<0>();
        T* to_k = a.dk + turn.item * a.of_k.item + turn.key * a.of_k.row;
        T* to_v = a.dv + turn.item * a.of_v.item + turn.key * a.of_v.row;
        put_rows(dk, to_k, a.of_k.row, (const A*)0, first, turn.keys, a.depth);
        put_rows(dv, to_v, a.of_v.row, (const A*)0, first, turn.keys, a.width);
        __syncthreads();
    }
}
