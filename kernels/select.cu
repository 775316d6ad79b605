// Elements of a dense [outer, n, inner] array at places along its middle, [outer, k, inner], and back.

struct Select {
    const T* x;
    T* y;
    const i64* places;
    i64 outer, n, k, inner;
};

__device__ __forceinline__ i64 chosen(const Select& task, i64 i) {
    i64 line = i / task.inner / task.k;
    return (line * task.n + task.places[i]) * task.inner + i % task.inner;
}

extern "C" __global__ void __launch_bounds__(256) take(Select task) {
    for (i64 i = first_index(); i < task.outer * task.k * task.inner; i += index_step()) task.y[i] = task.x[chosen(task, i)];
}

// Places of a line are all different.
extern "C" __global__ void __launch_bounds__(256) put_back(Select task) {
    for (i64 i = first_index(); i < task.outer * task.k * task.inner; i += index_step()) task.y[chosen(task, i)] = task.x[i];
}
