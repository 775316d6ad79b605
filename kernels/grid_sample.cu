// Images and volumes read at any points, and the gradients of that. A thread has a point, and finds its neighbours
// once for all channels.

struct Grid {
    const void* x;
    const void* grid;
    // Of the gradients: that of the result, and those wanted, or null.
    const void* dy;
    void* dx;
    void* dgrid;
    void* y;
    i64 batch, channels, volume, points;
    // The slowest first; 1 there for images.
    i64 sizes[3];
    // Numbers of a point; what is outside (0: zeros, 1: the edge, 2: the mirror image); whether -1 and 1 are centres.
    i32 dims, padding, align, reserved;
};

// Where a point outside is read, and the derivative of that place: 1, -1 or 0.
template <class T> __device__ __forceinline__ T inside(const Grid& task, T p, T size, T* slope) {
    T last = size - 1, infinite = (T)__longlong_as_double(0x7ff0000000000000ll);
    *slope = 0;
    // Infinity has an edge to go to; elsewhere it is outside, as NaN is everywhere.
    if (p != p || (task.padding != 1 && (p == infinite || p == -infinite))) return -100;
    *slope = 1;
    if (task.padding == 0) return p;
    if (task.padding == 2) {
        T low = task.align ? (T)0 : (T)-0.5, span = task.align ? last : size;
        if (span == 0) {
            *slope = 0;
            return 0;
        }
        T distance = p - low, sign = distance < 0 ? -1 : 1;
        distance *= sign;
        T flips = floor(distance / span), extra = fmod(distance, span);
        bool even = floor(flips / 2) * 2 == flips;
        p = even ? extra + low : span - extra + low;
        *slope = even ? sign : -sign;
    }
    if (p <= 0 || p >= last) *slope = 0;
    return p <= 0 ? (T)0 : p >= last ? last : p;
}

// A point's neighbours in one dimension: places (-1 outside), weights and the derivatives of those by the grid.
template <class T, int TAPS> struct Near {
    int at[TAPS];
    T weight[TAPS], slope[TAPS];

    // The dimension of a single entry that an image has before its own.
    __device__ __forceinline__ void only() {
        at[0] = 0;
        weight[0] = 1;
        slope[0] = 0;
    }
    __device__ __forceinline__ int position(T p, T size) const { return p >= 0 && p < size ? (int)p : -1; }

    __device__ __forceinline__ void find(const Grid& task, i64 entries, T grid) {
        T size = (T)entries, scale = (task.align ? size - 1 : size) / 2, s;
        T p = task.align ? (grid + 1) * scale : ((grid + 1) * size - 1) * (T)0.5;
        if (TAPS == 1) {
            p = inside(task, p, size, &s);
            at[0] = position(rint(p), size);
            weight[0] = 1;
            slope[0] = 0;
        } else if (TAPS == 2) {
            p = inside(task, p, size, &s);
            T low = floor(p), t = p - low;
            at[0] = position(low, size);
            at[TAPS - 1] = position(low + 1, size);
            weight[0] = 1 - t;
            weight[TAPS - 1] = t;
            slope[0] = -s * scale;
            slope[TAPS - 1] = s * scale;
        } else {
            // Keys' cubic convolution with A = -0.75.
            const T A = (T)-0.75;
            T low = floor(p), t = p - low;
#pragma unroll
            for (int k = 0; k < TAPS; ++k) {
                T x = t - (T)(k - 1), sign = x < 0 ? -1 : 1;
                x *= sign;
                at[k] = position(inside(task, low + (T)(k - 1), size, &s), size);
                bool near = x <= 1;
                weight[k] = near ? ((A + 2) * x - (A + 3)) * x * x + 1 : (((x - 5) * x + 8) * x - 4) * A;
                slope[k] = sign * (near ? (3 * (A + 2) * x - 2 * (A + 3)) * x : ((3 * x - 10) * x + 8) * A) * scale;
            }
        }
    }
};

// The neighbours of a point in all dimensions.
template <class T, int TAPS, bool VOLUME> struct Corners {
    static const int FIRST = VOLUME ? TAPS : 1, COUNT = FIRST * TAPS * TAPS;
    Near<T, FIRST> z;
    Near<T, TAPS> y, x;
    int at[COUNT];

    __device__ __forceinline__ void find(const Grid& task, const T* point) {
        x.find(task, task.sizes[2], point[0]);
        y.find(task, task.sizes[1], point[1]);
        if (VOLUME) z.find(task, task.sizes[0], point[2]);
        else z.only();
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            int a = z.at[k / TAPS / TAPS], b = y.at[k / TAPS % TAPS], c = x.at[k % TAPS];
            bool here = a >= 0 && b >= 0 && c >= 0;
            at[k] = here ? (int)((a * task.sizes[1] + b) * task.sizes[2] + c) : -1;
        }
    }
    __device__ __forceinline__ T weight(int k) const {
        return z.weight[k / TAPS / TAPS] * y.weight[k / TAPS % TAPS] * x.weight[k % TAPS];
    }
};

template <class T, int TAPS, bool VOLUME> __device__ __forceinline__ void sample(const Grid& task) {
    typedef Corners<T, TAPS, VOLUME> All;
    for (i64 i = first_index(); i < task.batch * task.points; i += index_step()) {
        i64 n = i / task.points, point = i - n * task.points;
        All all;
        all.find(task, (const T*)task.grid + i * task.dims);
        T weights[All::COUNT];
#pragma unroll
        for (int k = 0; k < All::COUNT; ++k) weights[k] = all.weight(k);
        for (i64 c = blockIdx.y; c < task.channels; c += gridDim.y) {
            i64 plane = n * task.channels + c;
            const T* from = (const T*)task.x + plane * task.volume;
            T sum = 0;
#pragma unroll
            for (int k = 0; k < All::COUNT; ++k) {
                sum += weights[k] * (all.at[k] >= 0 ? from[all.at[k]] : (T)0);
            }
            ((T*)task.y)[plane * task.points + point] = sum;
        }
    }
}

// Several points may add to one number of dx, in no fixed order, as in PyTorch.
template <class T, int TAPS, bool VOLUME> __device__ __forceinline__ void sample_backward(const Grid& task) {
    typedef Corners<T, TAPS, VOLUME> All;
    for (i64 i = first_index(); i < task.batch * task.points; i += index_step()) {
        i64 n = i / task.points, point = i - n * task.points;
        All all;
        all.find(task, (const T*)task.grid + i * task.dims);
        // What each neighbour's weight gets.
        T reads[All::COUNT];
#pragma unroll
        for (int k = 0; k < All::COUNT; ++k) reads[k] = 0;
        // Unrolled, volumes would not fit in registers.
#pragma unroll 1
        for (i64 c = blockIdx.y; c < task.channels; c += gridDim.y) {
            i64 plane = n * task.channels + c;
            const T* from = (const T*)task.x + plane * task.volume;
            T g = ((const T*)task.dy)[plane * task.points + point];
#pragma unroll
            for (int k = 0; k < All::COUNT; ++k) {
                if (all.at[k] < 0) continue;
                if (task.dx) atomicAdd((T*)task.dx + plane * task.volume + all.at[k], g * all.weight(k));
                if (task.dgrid) reads[k] += g * from[all.at[k]];
            }
        }
        if (!task.dgrid) continue;
        T by_x = 0, by_y = 0, by_z = 0;
#pragma unroll
        for (int k = 0; k < All::COUNT; ++k) {
            int a = k / TAPS / TAPS, b = k / TAPS % TAPS, c = k % TAPS;
            by_x += reads[k] * all.z.weight[a] * all.y.weight[b] * all.x.slope[c];
            by_y += reads[k] * all.z.weight[a] * all.y.slope[b] * all.x.weight[c];
            by_z += reads[k] * all.z.slope[a] * all.y.weight[b] * all.x.weight[c];
        }
        T* to = (T*)task.dgrid + i * task.dims;
        to[0] = by_x;
        to[1] = by_y;
        if (VOLUME) to[2] = by_z;
    }
}

#define SAMPLING(name, T, TAPS, VOLUME)                                                                      \
    extern "C" __global__ void __launch_bounds__(256) sample_##name(Grid task) { sample<T, TAPS, VOLUME>(task); } \
    extern "C" __global__ void __launch_bounds__(256) sample_backward_##name(Grid task) {                    \
        sample_backward<T, TAPS, VOLUME>(task);                                                              \
    }
#define SAMPLING_ALL(name, T)                                                                                \
    SAMPLING(name##_nearest, T, 1, false)                                                                    \
    SAMPLING(name##_linear, T, 2, false)                                                                     \
    SAMPLING(name##_cubic, T, 4, false)                                                                      \
    SAMPLING(name##_nearest_volume, T, 1, true)                                                              \
    SAMPLING(name##_linear_volume, T, 2, true)
#if !PARTED || PART_f64
SAMPLING_ALL(f64, double)
#endif
#if !PARTED || PART_f32
SAMPLING_ALL(f32, float)
#endif
