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

// The place p, or -1 where there is none.
template <class T> __device__ __forceinline__ int position(T p, T size) { return p >= 0 && p < size ? (int)p : -1; }

// Neighbour k of 0 to 3 of a point that is t after `low`, by Keys' cubic convolution with A = -0.75.
template <class T> __device__ __forceinline__ void cubic(const Grid& task, T size, T scale, T low, T t, int k, int* at,
                                                         T* weight, T* slope) {
    const T A = (T)-0.75;
    T x = t - (T)(k - 1), sign = x < 0 ? -1 : 1, s;
    x *= sign;
    *at = position(inside(task, low + (T)(k - 1), size, &s), size);
    bool near = x <= 1;
    *weight = near ? ((A + 2) * x - (A + 3)) * x * x + 1 : (((x - 5) * x + 8) * x - 4) * A;
    *slope = sign * (near ? (3 * (A + 2) * x - 2 * (A + 3)) * x : ((3 * x - 10) * x + 8) * A) * scale;
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
            T low = floor(p), t = p - low;
#pragma unroll
            for (int k = 0; k < TAPS; ++k) cubic(task, size, scale, low, t, k, at + k, weight + k, slope + k);
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

// The 64 neighbours of a point of a volume would not fit in registers: four planes of 16, one after the other.
template <class T> struct Planes {
    Near<T, 4> y, x;
    T size, scale, low, t;

    __device__ __forceinline__ void find(const Grid& task, const T* point) {
        x.find(task, task.sizes[2], point[0]);
        y.find(task, task.sizes[1], point[1]);
        size = (T)task.sizes[0];
        scale = (task.align ? size - 1 : size) / 2;
        T p = task.align ? (point[2] + 1) * scale : ((point[2] + 1) * size - 1) * (T)0.5;
        low = floor(p);
        t = p - low;
    }
    // Where neighbour k of plane a lies, -1 outside.
    __device__ __forceinline__ int place(const Grid& task, int a, int k) const {
        int b = y.at[k / 4], c = x.at[k % 4];
        return a >= 0 && b >= 0 && c >= 0 ? (int)((a * task.sizes[1] + b) * task.sizes[2] + c) : -1;
    }
};

template <class T> __device__ __forceinline__ void sample_planes(const Grid& task) {
    for (i64 i = first_index(); i < task.batch * task.points; i += index_step()) {
        i64 n = i / task.points, point = i - n * task.points;
        Planes<T> all;
        all.find(task, (const T*)task.grid + i * task.dims);
        for (i64 c = blockIdx.y; c < task.channels; c += gridDim.y) {
            i64 plane = n * task.channels + c;
            const T* from = (const T*)task.x + plane * task.volume;
            T sum = 0;
#pragma unroll 1
            for (int z = 0; z < 4; ++z) {
                int a;
                T weight, slope, part = 0;
                cubic(task, all.size, all.scale, all.low, all.t, z, &a, &weight, &slope);
#pragma unroll
                for (int k = 0; k < 16; ++k) {
                    int at = all.place(task, a, k);
                    part += all.y.weight[k / 4] * all.x.weight[k % 4] * (at >= 0 ? from[at] : (T)0);
                }
                sum += weight * part;
            }
            ((T*)task.y)[plane * task.points + point] = sum;
        }
    }
}

template <class T> __device__ __forceinline__ void sample_planes_backward(const Grid& task) {
    for (i64 i = first_index(); i < task.batch * task.points; i += index_step()) {
        i64 n = i / task.points, point = i - n * task.points;
        Planes<T> all;
        all.find(task, (const T*)task.grid + i * task.dims);
        T by_x = 0, by_y = 0, by_z = 0;
#pragma unroll 1
        for (i64 c = blockIdx.y; c < task.channels; c += gridDim.y) {
            i64 plane = n * task.channels + c;
            const T* from = (const T*)task.x + plane * task.volume;
            T g = ((const T*)task.dy)[plane * task.points + point];
#pragma unroll 1
            for (int z = 0; z < 4; ++z) {
                int a;
                T weight, slope, in_x = 0, in_y = 0, in_z = 0;
                cubic(task, all.size, all.scale, all.low, all.t, z, &a, &weight, &slope);
#pragma unroll
                for (int b = 0; b < 4; ++b) {
                    T row = 0, row_slope = 0, share = g * weight * all.y.weight[b];
#pragma unroll
                    for (int k = 0; k < 4; ++k) {
                        int at = all.place(task, a, b * 4 + k);
                        if (at < 0) continue;
                        if (task.dx) atomicAdd((T*)task.dx + plane * task.volume + at, share * all.x.weight[k]);
                        if (!task.dgrid) continue;
                        row += from[at] * all.x.weight[k];
                        row_slope += from[at] * all.x.slope[k];
                    }
                    in_x += all.y.weight[b] * row_slope;
                    in_y += all.y.slope[b] * row;
                    in_z += all.y.weight[b] * row;
                }
                by_x += g * weight * in_x;
                by_y += g * weight * in_y;
                by_z += g * slope * in_z;
            }
        }
        if (!task.dgrid) continue;
        T* to = (T*)task.dgrid + i * task.dims;
        to[0] = by_x;
        to[1] = by_y;
        to[2] = by_z;
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
    SAMPLING(name##_linear_volume, T, 2, true)                                                               \
    extern "C" __global__ void __launch_bounds__(256) sample_##name##_cubic_volume(Grid task) {              \
        sample_planes<T>(task);                                                                              \
    }                                                                                                        \
    extern "C" __global__ void __launch_bounds__(256, 2) sample_backward_##name##_cubic_volume(Grid task) {  \
        sample_planes_backward<T>(task);                                                                     \
    }
#if !PARTED || PART_f64
SAMPLING_ALL(f64, double)
#endif
#if !PARTED || PART_f32
SAMPLING_ALL(f32, float)
#endif
