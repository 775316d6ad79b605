// The same bits everywhere.

template <class T> __device__ __forceinline__ void fill(T* to, T value, i64 count) {
    for (i64 i = first_index(); i < count; i += index_step()) to[i] = value;
}

struct __align__(16) Wide { u64 low, high; };

extern "C" __global__ void fill_2(u16* to, u64 low, u64 high, i64 count) { fill(to, (u16)low, count); }
extern "C" __global__ void fill_8(u64* to, u64 low, u64 high, i64 count) { fill(to, low, count); }
extern "C" __global__ void fill_16(Wide* to, u64 low, u64 high, i64 count) {
    Wide value = {low, high};
    fill(to, value, count);
}
