// Attention of halves by tiles, ELEMENT, with up to DIM features: a block has 64 queries (or, for dK and dV, 64 keys) and
// goes through the others 64 at a time. Scores never leave the block; backward computes them again.

#define SIDE 64
// Rows of shared memory: of operands, and of weights.
#define LINE (DIM + 8)
#define WEIGHTS (SIDE + 8)
#define SCORES (SIDE + 4)
#define MOST_BATCH_DIMS 4

typedef ELEMENT T;

// An operand's distances: of its rows, and of the items of each batch dimension.
struct Operand {
    const T* at;
    i64 row, batch[MOST_BATCH_DIMS];
};

// `Attention` of the other side. What has no distances is dense.
struct Attention {
    Operand q, k, v, mask;
    T* out;
    float* logsum;
    const T* dy;
    // The sums of dY Y along the features, for each query.
    float* along;
    T *dq, *dk, *dv;
    i64 batch, batch_sizes[MOST_BATCH_DIMS];
    i64 queries, keys, depth, width, mask_column, causal;
    // Of weights that dropout keeps, the factor, and the words.
    float scale, kept;
    u64 threshold, seed, stream;
    const u64* place;
};

#if DROPS
// Weights that are computed one after the other.
#define UNROLLED 2

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
#else
#define UNROLLED 8
#endif

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

// Brings 64 rows from `first` on, zeros where there are none.
__device__ __forceinline__ void bring(T* to, const T* from, i64 step, i64 first, i64 rows, i64 features) {
#pragma unroll 1
    for (int i = threadIdx.x; i < SIDE * DIM / 8; i += 128) {
        int r = i / (DIM / 8), c = i % (DIM / 8) * 8;
        bool inside = first + r < rows && c < features;
        copy_16(to + r * LINE + c, inside ? from + (first + r) * step + c : from, inside);
    }
}

// What of a tile counts: so many queries and keys, and of a query the keys up to its own number and this one more.
struct Edge {
    int queries, keys, more;
    const T* mask;
    __device__ __forceinline__ Edge(const Attention& a, const T* of_item, i64 query, i64 key) {
        queries = (int)(a.queries - query < SIDE ? a.queries - query : SIDE);
        keys = (int)(a.keys - key < SIDE ? a.keys - key : SIDE);
        i64 seen = query - key;
        more = a.causal && seen < SIDE ? (int)(seen < -SIDE ? -SIDE : seen) : SIDE;
        mask = of_item ? of_item + query * a.mask.row + key * a.mask_column : 0;
    }
    // The score of a query and a key of the tile: minus infinity where it does not see it.
    __device__ __forceinline__ float score(const Attention& a, int i, int j, float product) const {
        if (i >= queries || j >= keys || j > i + more) return -__int_as_float(0x7f800000);
        float s = product * a.scale;
        return mask ? s + to_float(mask[i * a.mask.row + j * a.mask_column]) : s;
    }
};

typedef WarpTile<T, SIDE, true, true, DIM, LINE, LINE> Products;

struct ToScores {
    float* scores;
    template <int N> __device__ __forceinline__ void put(int i, int j, const float* sums) const {
#pragma unroll
        for (int k = 0; k < N; ++k) scores[i * SCORES + j + k] = sums[k];
    }
};

// Rows of results, rounded; each by a factor.
struct ToRows {
    T* out;
    const float* factor;
    i64 first, rows, features, column;
    template <int N> __device__ __forceinline__ void put(int i, int j, const float* sums) const {
        i64 r = first + i, c = column + j;
        if (r >= rows || c >= features) return;
        float by = factor ? factor[i] : 1.0f;
        struct __align__(4) { T x[2]; } pair;
        pair.x[0] = narrowed<T>(sums[0] * by);
        pair.x[1] = narrowed<T>(sums[1] * by);
        // Features are a multiple of eight.
        *(u32*)(out + r * features + c) = *(u32*)&pair;
    }
};

extern "C" __global__ void __launch_bounds__(128, 2) flash(const __grid_constant__ Attention a) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    T *q = (T*)shared_bytes, *k = q + SIDE * LINE, *v = k + SIDE * LINE, *weights = v + SIDE * LINE;
    float *scores = (float*)(weights + SIDE * WEIGHTS), *factor = scores + SIDE * SCORES;
    i64 blocks = (a.queries + SIDE - 1) / SIDE;
    for (i64 block = blockIdx.x; block < blocks * a.batch; block += gridDim.x) {
        i64 item = whole_quotient(block, blocks), first = (block - item * blocks) * SIDE;
        const T *of_k = item_of(a, a.k, item), *of_v = item_of(a, a.v, item);
        const T* mask = a.mask.at ? item_of(a, a.mask, item) : 0;
        bring(q, item_of(a, a.q, item), a.q.row, first, a.queries, a.depth);
        WarpTile<T, SIDE, true, false, SIDE, WEIGHTS, LINE> out[DIM / SIDE];
#pragma unroll
        for (int c = 0; c < DIM / SIDE; ++c) out[c].begin();
        // Of the row that this thread and its neighbour have.
        int row = threadIdx.x / 2;
        float largest = -__int_as_float(0x7f800000), sum = 0;
        i64 seen = a.causal && first + SIDE < a.keys ? first + SIDE : a.keys;
        for (i64 key = 0; key < seen; key += SIDE) {
            bring(k, of_k, a.k.row, key, a.keys, a.depth);
            commit_copies();
            bring(v, of_v, a.v.row, key, a.keys, a.width);
            commit_copies();
            await_copies<1>();
            __syncthreads();
            Products products;
            products.begin();
            products.multiply(q, k);
            ToScores to = {scores};
            products.each(to);
            __syncthreads();
            Edge edge(a, mask, first, key);
            float most = largest;
#pragma unroll 8
            for (int i = 0; i < SIDE / 2; ++i) {
                int j = 2 * i + threadIdx.x % 2;
                float s = edge.score(a, row, j, scores[row * SCORES + j]);
                scores[row * SCORES + j] = s;
                most = s > most || s != s ? s : most;
            }
            float other = __shfl_xor_sync(0xffffffffu, most, 1);
            most = other > most || other != other ? other : most;
            float base = most == -__int_as_float(0x7f800000) ? 0.0f : most, more = 0;
#if DROPS
            Kept kept(a);
            i64 place = (item * a.queries + first + row) * a.keys + key;
#endif
#pragma unroll UNROLLED
            for (int i = 0; i < SIDE / 2; ++i) {
                int j = 2 * i + threadIdx.x % 2;
                float weight = __expf(scores[row * SCORES + j] - base);
                more += weight;
#if DROPS
                if (!kept(place + j)) weight = 0;
#endif
                weights[row * WEIGHTS + j] = narrowed<T>(weight);
            }
            more += __shfl_xor_sync(0xffffffffu, more, 1);
            float shrink = __expf(largest - base);
            sum = sum * shrink + more;
            largest = most;
            if (threadIdx.x % 2 == 0) factor[row] = shrink;
            await_copies<0>();
            __syncthreads();
#pragma unroll
            for (int c = 0; c < DIM / SIDE; ++c) {
                int mine = out[c].first_row() + threadIdx.x % 32 / 4;
#pragma unroll
                for (int i = 0; i < 2; ++i)
#pragma unroll
                    for (int j = 0; j < 4; ++j)
#pragma unroll
                        for (int n = 0; n < 4; ++n) out[c].sums[i][j][n] *= factor[mine + 16 * i + n / 2 * 8];
                out[c].multiply(weights, v + c * SIDE);
            }
            __syncthreads();
        }
        await_copies<0>();
        if (threadIdx.x % 2 == 0) {
            factor[row] = sum == 0 ? 0.0f : a.kept / sum;
            if (first + row < a.queries)
                a.logsum[item * a.queries + first + row] = sum == 0 ? 0.0f : largest + logf(sum);
        }
        __syncthreads();
#pragma unroll
        for (int c = 0; c < DIM / SIDE; ++c) {
            ToRows to = {a.out + item * a.queries * a.width, factor, first, a.queries, a.width, c * SIDE};
            out[c].each(to);
        }
        __syncthreads();
    }
}

// A bit for each weight that this thread has of a tile: whether dropout keeps it. Found before the products, which take
// the registers that this takes.
__device__ __forceinline__ u32 kept_bits(const Attention& a, i64 item, i64 query, i64 key) {
    u32 bits = 0;
#if DROPS
    Kept kept(a);
    int row = Products::first_row() + threadIdx.x % 32 / 4, column = Products::first_column() + threadIdx.x % 4 * 2;
#pragma unroll 1
    for (int half = 0; half < 4; ++half) {
        i64 at = (item * a.queries + query + row + 8 * half) * a.keys + key + column;
#pragma unroll 1
        for (int j = 0; j < 4; ++j) {
            int first = half / 2 * 16 + j * 4 + half % 2 * 2;
            bits |= (u32)kept(at + 8 * j) << first | (u32)kept(at + 8 * j + 1) << (first + 1);
        }
    }
#endif
    return bits;
}

// Weights, rounded, from the products of queries and keys, and the gradients of those products; the
// weights may be left out.
__device__ __forceinline__ void differentiate(const Attention& a, const T* mask, u32 kept, i64 query, i64 key,
                                              const Products& products, const Products& gradient, const float* logsum,
                                              const float* along, T* weights, T* gradients) {
    Edge edge(a, mask, query, key);
    int row = products.first_row() + threadIdx.x % 32 / 4, column = products.first_column() + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                int r = row + 16 * i + n / 2 * 8, c = column + 8 * j + n % 2;
                float weight = __expf(edge.score(a, r, c, products.sums[i][j][n]) - logsum[r]);
                float of_weight = gradient.sums[i][j][n], used = weight;
#if DROPS
                float by = kept >> ((i * 4 + j) * 4 + n) & 1 ? a.kept : 0.0f;
                of_weight *= by;
                used *= by;
#endif
                if (weights) weights[r * WEIGHTS + c] = narrowed<T>(used);
                gradients[r * WEIGHTS + c] = narrowed<T>(weight * (of_weight - along[r]) * a.scale);
            }
}

// dQ, and the sums of dY Y, which the other kernel needs.
extern "C" __global__ void __launch_bounds__(128) flash_queries(const __grid_constant__ Attention a) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    T *q = (T*)shared_bytes, *dy = q + SIDE * LINE, *k = dy + SIDE * LINE, *v = k + SIDE * LINE;
    T* gradients = v + SIDE * LINE;
    float *logsum = (float*)(gradients + SIDE * WEIGHTS), *along = logsum + SIDE;
    i64 blocks = (a.queries + SIDE - 1) / SIDE;
    for (i64 block = blockIdx.x; block < blocks * a.batch; block += gridDim.x) {
        i64 item = whole_quotient(block, blocks), first = (block - item * blocks) * SIDE;
        const T *of_k = item_of(a, a.k, item), *of_v = item_of(a, a.v, item);
        const T* mask = a.mask.at ? item_of(a, a.mask, item) : 0;
        i64 results = item * a.queries * a.width;
        bring(q, item_of(a, a.q, item), a.q.row, first, a.queries, a.depth);
        bring(dy, a.dy + results, a.width, first, a.queries, a.width);
        {
            i64 query = first + threadIdx.x / 2;
            float sum = 0;
            if (query < a.queries)
                for (i64 c = threadIdx.x % 2; c < a.width; c += 2) {
                    i64 at = results + query * a.width + c;
                    sum += to_float(a.dy[at]) * to_float(a.out[at]);
                }
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            if (threadIdx.x % 2 == 0) {
                along[threadIdx.x / 2] = sum;
                logsum[threadIdx.x / 2] = query < a.queries ? a.logsum[item * a.queries + query] : 0.0f;
                if (query < a.queries) a.along[item * a.queries + query] = sum;
            }
        }
        WarpTile<T, SIDE, true, false, SIDE, WEIGHTS, LINE> dq[DIM / SIDE];
#pragma unroll
        for (int c = 0; c < DIM / SIDE; ++c) dq[c].begin();
        i64 seen = a.causal && first + SIDE < a.keys ? first + SIDE : a.keys;
        for (i64 key = 0; key < seen; key += SIDE) {
            bring(k, of_k, a.k.row, key, a.keys, a.depth);
            bring(v, of_v, a.v.row, key, a.keys, a.width);
            commit_copies();
            u32 kept = kept_bits(a, item, first, key);
            await_copies<0>();
            __syncthreads();
            Products products, gradient;
            products.begin();
            gradient.begin();
            products.multiply(q, k);
            gradient.multiply(dy, v);
            differentiate(a, mask, kept, first, key, products, gradient, logsum, along, (T*)0, gradients);
            __syncthreads();
#pragma unroll
            for (int c = 0; c < DIM / SIDE; ++c) dq[c].multiply(gradients, k + c * SIDE);
            __syncthreads();
        }
#pragma unroll
        for (int c = 0; c < DIM / SIDE; ++c) {
            ToRows to = {a.dq + item * a.queries * a.depth, 0, first, a.queries, a.depth, c * SIDE};
            dq[c].each(to);
        }
        await_copies<0>();
        __syncthreads();
    }
}

// dK and dV.
extern "C" __global__ void __launch_bounds__(128) flash_keys(const __grid_constant__ Attention a) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    T *q = (T*)shared_bytes, *dy = q + SIDE * LINE, *k = dy + SIDE * LINE, *v = k + SIDE * LINE;
    T *gradients = v + SIDE * LINE, *weights = gradients + SIDE * WEIGHTS;
    float *logsum = (float*)(weights + SIDE * WEIGHTS), *along = logsum + SIDE;
    i64 blocks = (a.keys + SIDE - 1) / SIDE;
    for (i64 block = blockIdx.x; block < blocks * a.batch; block += gridDim.x) {
        i64 item = whole_quotient(block, blocks), first = (block - item * blocks) * SIDE;
        const T *of_q = item_of(a, a.q, item), *of_dy = a.dy + item * a.queries * a.width;
        const T* mask = a.mask.at ? item_of(a, a.mask, item) : 0;
        bring(k, item_of(a, a.k, item), a.k.row, first, a.keys, a.depth);
        bring(v, item_of(a, a.v, item), a.v.row, first, a.keys, a.width);
        WarpTile<T, SIDE, false, false, SIDE, WEIGHTS, LINE> dk[DIM / SIDE], dv[DIM / SIDE];
#pragma unroll
        for (int c = 0; c < DIM / SIDE; ++c) {
            dk[c].begin();
            dv[c].begin();
        }
        for (i64 query = a.causal ? first : 0; query < a.queries; query += SIDE) {
            bring(q, of_q, a.q.row, query, a.queries, a.depth);
            bring(dy, of_dy, a.width, query, a.queries, a.width);
            commit_copies();
            if (threadIdx.x < SIDE) {
                i64 at = item * a.queries + query + threadIdx.x;
                bool inside = query + threadIdx.x < a.queries;
                logsum[threadIdx.x] = inside ? a.logsum[at] : 0.0f;
                along[threadIdx.x] = inside ? a.along[at] : 0.0f;
            }
            u32 kept = kept_bits(a, item, query, first);
            await_copies<0>();
            __syncthreads();
            Products products, gradient;
            products.begin();
            gradient.begin();
            products.multiply(q, k);
            gradient.multiply(dy, v);
            differentiate(a, mask, kept, query, first, products, gradient, logsum, along, weights, gradients);
            __syncthreads();
#pragma unroll
            for (int c = 0; c < DIM / SIDE; ++c) {
                dk[c].multiply(gradients, q + c * SIDE);
                dv[c].multiply(weights, dy + c * SIDE);
            }
            __syncthreads();
        }
#pragma unroll
        for (int c = 0; c < DIM / SIDE; ++c) {
            ToRows to_k = {a.dk + item * a.keys * a.depth, 0, first, a.keys, a.depth, c * SIDE};
            ToRows to_v = {a.dv + item * a.keys * a.width, 0, first, a.keys, a.width, c * SIDE};
            dk[c].each(to_k);
            dv[c].each(to_v);
        }
        await_copies<0>();
        __syncthreads();
    }
}
