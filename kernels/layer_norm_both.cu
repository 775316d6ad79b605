// Gradients of layer and root-mean-square normalisation in one visit of the rows: those of x, and the sums over rows
// that are those of weight and shift. A block keeps its sums in registers while it goes through its rows; the blocks'
// sums are added by a second kernel, always in one order.

// The rows of this launch's groups: LANES threads side by side share one, and keep VALUES elements each.
template <int VALUES, int LANES> __device__ __forceinline__ void both(const LayerNorm& task, C* parts) {
    typedef Row<VALUES, true> Elements;
    const int EACH = WIDTH, PACKS = VALUES / WIDTH;
    C weights[VALUES], shifts[VALUES];
#pragma unroll
    for (int k = 0; k < VALUES; ++k) weights[k] = shifts[k] = (C)0;
    EACH_ROW(row, task.count) {
        bool here = row < task.count;
        i64 at = here ? row * task.n : 0;
        Elements x(task.x + at, here ? (int)task.n : 0);
        Gradients<VALUES, true> dy(task, at, x.items);
        C m = here ? task.mean[row] : (C)0, r = here ? task.scale[row] : (C)0;
        Pair<C> sums = {(C)0, (C)0};
        dy.each(x, [&](const C* v, const C* d, int place) {
            C weight[EACH];
            parameters<true>(task, task.w, place, (C)1, weight);
            for (int k = 0; k < EACH; ++k) {
                C g = d[k] * weight[k];
                sums.a += g;
                sums.b += g * (v[k] - m);
            }
        });
        sums = across_lanes(AddPairs(), sums, LANES);
        C plain = task.centered ? sums.a / (C)task.n : (C)0, along = sums.b * r / (C)task.n;
#pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            int item = threadIdx.x + p * LANES;
            if (item >= x.items) continue;
            const C *v = x.kept + p * EACH, *d = dy.kept + p * EACH;
            C weight[EACH], out[EACH];
            parameters<true>(task, task.w, item * EACH, (C)1, weight);
            for (int k = 0; k < EACH; ++k) {
                C normal = (v[k] - m) * r;
                out[k] = (d[k] * weight[k] - plain - normal * along) * r;
                weights[p * EACH + k] += d[k] * normal;
                shifts[p * EACH + k] += d[k];
            }
            if (task.dsum) {
                C more[EACH];
                values_at<true>((const T*)task.dsum + at + item * EACH, more);
                for (int k = 0; k < EACH; ++k) out[k] = rounded(plus(rounded(out[k]), more[k]));
            }
            put_values<true>((T*)task.y + at + item * EACH, out);
            if (task.dadded) put_formatted<true>(task.dadded, task.added_format, at + item * EACH, out);
        }
    }
    // The groups of a block one after the other.
    __shared__ C joint[LANES == 32 ? 2 * 32 * VALUES : 1];
    C* mine = parts + (i64)blockIdx.x * 2 * task.n;
    for (int group = 0; group < blockDim.y; ++group) {
        if (threadIdx.y == group) {
#pragma unroll
            for (int p = 0; p < PACKS; ++p) {
                int item = threadIdx.x + p * LANES;
                for (int k = 0; k < EACH; ++k) {
                    int column = item * EACH + k;
                    if (column >= task.n) continue;
                    C a = weights[p * EACH + k], b = shifts[p * EACH + k];
                    if (LANES == 32) {
                        if (group > 0) a += joint[column], b += joint[32 * VALUES + column];
                        joint[column] = a;
                        joint[32 * VALUES + column] = b;
                    }
                    if (group == blockDim.y - 1) mine[column] = a, mine[task.n + column] = b;
                }
            }
        }
        __syncthreads();
    }
}

// Rows of up to 1024 elements: a warp for each.
extern "C" __global__ void __launch_bounds__(256, 1) both_short(LayerNorm task, C* parts) { both<32, 32>(task, parts); }
// Rows of up to 4096 elements: a block for each.
extern "C" __global__ void __launch_bounds__(256, 2) both_long(LayerNorm task, C* parts) { both<16, 256>(task, parts); }

// The sums of all blocks; blocks here have 32 columns and 8 threads for each. Columns are those of the weight, then those
// of the shift.
extern "C" __global__ void __launch_bounds__(256) add_blocks(LayerNorm task, const C* parts, i64 blocks) {
    __shared__ C tile[8][32];
    i64 column = (i64)blockIdx.x * 32 + threadIdx.x;
    C sum = (C)0;
    if (column < 2 * task.n) {
#pragma unroll 8
        for (i64 block = threadIdx.y; block < blocks; block += 8) sum += parts[block * 2 * task.n + column];
    }
    tile[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || column >= 2 * task.n) return;
    for (int k = 1; k < 8; ++k) sum += tile[k][threadIdx.x];
    bool is_weight = column < task.n;
    char* to = is_weight ? task.dw : task.db;
    if (to) store<C>(to + (is_weight ? column : column - task.n) * task.weight_size, task.weight_format, sum);
}
