// The folds of batch normalisation where channels are last: a thread has WIDTH neighbouring channels, which it reads
// with one instruction per row, and several rows under way.

// What squares are added in: double, but of halves, whose columns are twice as many, what is computed in. Where that
// is out of range, `in_range` adds them anew.
template <int SIZE> struct ColumnSums { typedef double type; };
template <> struct ColumnSums<2> { typedef C type; };

// Moments of a thread's channels, which have as many numbers each.
struct StatisticsColumns {
    typedef ColumnSums<sizeof(T)>::type Wide;
    static const int ROWS = 4;
    C mean[WIDTH], count;
    Wide squares[WIDTH];

    __device__ __forceinline__ StatisticsColumns(const BatchNorm&, i64) : count((C)0) {
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) mean[k] = (C)0, squares[k] = (Wide)0;
    }
    // Takes in N rows from `at` on, which lie `step` apart.
    template <int N> __device__ __forceinline__ void take(const BatchNorm& task, i64 at, i64 step) {
        Pack rows[N];
#pragma unroll
        for (int r = 0; r < N; ++r) rows[r] = *(const Pack*)(task.x + at + r * step);
        C share = quotient((C)N, count + (C)N), weight = count * share;
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            C v[N], own = (C)0;
            Wide apart_squared = (Wide)0;
#pragma unroll
            for (int r = 0; r < N; ++r) own += v[r] = Convert<C>::from(rows[r].values[k]);
            own *= (C)1 / (C)N;
#pragma unroll
            for (int r = 0; r < N; ++r) apart_squared += (Wide)(v[r] - own) * (Wide)(v[r] - own);
            C apart = own - mean[k];
            mean[k] += apart * share;
            squares[k] += apart_squared + (Wide)apart * (Wide)apart * (Wide)weight;
        }
        count += (C)N;
    }
    __device__ __forceinline__ MomentSums fold(int k) const {
        return {(double)mean[k], (double)squares[k], (double)count};
    }
    // The moments of the numbers at `at`, `step` apart, with squares in double where `found` has lost them: they were
    // too large, or so small that only an eps of nothing shows it.
    static __device__ __forceinline__ MomentSums in_range(
        const BatchNorm& task, const MomentSums& found, i64 at, i64 count, i64 step
    ) {
        if (sizeof(Wide) == sizeof(double)) return found;
        bool lost = !(found.squares <= 1e37) || (found.squares < 1e-30 && task.eps < 1e-30);
        if (!lost) return found;
        MomentSums all = Momentary<C>().zero();
#pragma unroll 1
        for (; count > 0; --count, at += step) {
            C v = Convert<C>::from(task.x[at]);
            Momentary<C>::take(all, &v, 1);
        }
        return all;
    }
};

// Sums over a thread's channels.
template <int KIND> struct SumsColumns {
    static const int ROWS = 4;
    C mean[WIDTH], products[WIDTH], plain[WIDTH];

    __device__ __forceinline__ SumsColumns(const BatchNorm& task, i64 c) {
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            mean[k] = task.stats[c + k];
            products[k] = plain[k] = (C)0;
        }
    }
    template <int N> __device__ __forceinline__ void take(const BatchNorm& task, i64 at, i64 step) {
        Pack rows[N];
        Slopes<KIND, true> slopes[N];
#pragma unroll
        for (int r = 0; r < N; ++r) {
            rows[r] = *(const Pack*)(task.x + at + r * step);
            slopes[r].read(task, at + r * step);
            if (KIND != PLAIN) slopes[r].bits = task.kept_of_pack(at + r * step);
        }
#pragma unroll
        for (int r = 0; r < N; ++r) slopes[r].settle(task, at + r * step);
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            C a = (C)0, b = (C)0;
#pragma unroll
            for (int r = 0; r < N; ++r) {
                C d = slopes[r].value(k);
                a += d * (Convert<C>::from(rows[r].values[k]) - mean[k]);
                b += d;
            }
            products[k] += a;
            plain[k] += b;
        }
    }
    __device__ __forceinline__ Pair<C> fold(int k) const { return {products[k], plain[k]}; }
    static __device__ __forceinline__ Pair<C> in_range(const BatchNorm&, const Pair<C>& found, i64, i64, i64) {
        return found;
    }
};

template <class Op> struct ColumnsOf;
template <> struct ColumnsOf<Statistics> { typedef StatisticsColumns Columns; };
template <int KIND> struct ColumnsOf<SumsOf<C, KIND>> { typedef SumsColumns<KIND> Columns; };

// Blocks take neighbouring channels, a part of the rows each: threads along y every so-many-th row.
template <class Op>
__device__ __forceinline__ void fold_wide_columns(const FoldPlan& plan, const Op& op, typename Op::Acc* parts) {
    typedef typename ColumnsOf<Op>::Columns Columns;
    __shared__ typename Op::Acc tile[WIDTH][FOLD_THREADS];
    i64 channels = plan.outputs, packs = channels / WIDTH;
    int width = blockDim.x, lanes = blockDim.y, place = threadIdx.y * width + threadIdx.x;
    i64 first = blockIdx.y * plan.items_per_split;
    i64 end = plan.items - first > plan.items_per_split ? first + plan.items_per_split : plan.items;
    for (i64 base = (i64)blockIdx.x * width; base < packs; base += (i64)gridDim.x * width) {
        i64 pack = base + threadIdx.x, c = (pack < packs ? pack : 0) * WIDTH;
        Columns own(op, c);
        if (pack < packs) {
            i64 row = first + threadIdx.y;
            for (; row + (Columns::ROWS - 1) * lanes < end; row += Columns::ROWS * lanes) {
                own.template take<Columns::ROWS>(op, row * channels + c, lanes * channels);
            }
            for (; row < end; row += lanes) own.template take<1>(op, row * channels + c, 0);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) tile[k][place] = own.fold(k);
        if (pack < packs) {
            i64 row = first + threadIdx.y, rows = count_from(row, end, lanes);
#pragma unroll 1
            for (int k = 0; k < WIDTH; ++k) {
                tile[k][place] = Columns::in_range(op, tile[k][place], row * channels + c + k, rows, lanes * channels);
            }
        }
        for (int by = lanes / 2; by > 0; by /= 2) {
            __syncthreads();
            if (threadIdx.y < by) {
#pragma unroll 1
                for (int k = 0; k < WIDTH; ++k) tile[k][place] = op.combine(tile[k][place], tile[k][place + by * width]);
            }
        }
        if (threadIdx.y == 0 && pack < packs) {
#pragma unroll 1
            for (int k = 0; k < WIDTH; ++k) {
                if (plan.splits == 1) op.finish(c + k, tile[k][place]);
                else parts[blockIdx.y * channels + c + k] = tile[k][place];
            }
        }
    }
}

// Sums that write, too, have so much under way at once that fewer threads do, with more registers.
#if defined(VARIANT_SumsWritten) || defined(VARIANT_SumsSummed)
#define COLUMNS_BLOCKS 2
#else
#define COLUMNS_BLOCKS 3
#endif

extern "C" __global__ void __launch_bounds__(FOLD_THREADS, COLUMNS_BLOCKS) fold_columns_wide(FoldPlan plan, VARIANT op, void* parts) {
    fold_wide_columns<VARIANT>(plan, op, (VARIANT::Acc*)parts);
}
