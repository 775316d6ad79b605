// The same bits everywhere.

// `value` is made of elements that are alike; whole sixteen bytes at a time where they begin.
template <class T> __device__ __forceinline__ void fill(T* to, Several<u64> value, i64 count) {
    const int EACH = 16 / sizeof(T);
    i64 before = (i64)((0 - (u64)to) % 16 / sizeof(T));
    if (before > count) before = count;
    i64 packs = (count - before) / EACH, after = before + packs * EACH;
    Several<u64>* wide = (Several<u64>*)(to + before);
    for (i64 i = first_index(); i < packs; i += index_step()) wide[i] = value;
    for (i64 i = first_index(); i < before; i += index_step()) to[i] = (T)value.values[0];
    for (i64 i = after + first_index(); i < count; i += index_step()) to[i] = (T)value.values[0];
}

extern "C" __global__ void fill_2(u16* to, u64 low, u64 high, i64 count) { fill(to, {low, high}, count); }
extern "C" __global__ void fill_8(u64* to, u64 low, u64 high, i64 count) { fill(to, {low, high}, count); }
extern "C" __global__ void fill_16(Several<u64>* to, u64 low, u64 high, i64 count) {
    for (i64 i = first_index(); i < count; i += index_step()) to[i] = {low, high};
}
