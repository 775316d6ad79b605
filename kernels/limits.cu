// A look at numbers of which all must lie in a range.

template <class T>
__device__ __forceinline__ void look(const T* x, i64 n, double low, double high, const Refusal& refusal) {
    for (i64 i = first_index(); i < n; i += index_step()) {
        double value = Convert<double>::from(x[i]);
        if (!(value >= low && value <= high)) refuse(refusal.record, refusal.site, value, i, (i64)high + 1);
    }
}

#define LOOKING(name, T)                                                                  \
    extern "C" __global__ void __launch_bounds__(256) within_##name(                      \
        const T* x, i64 n, double low, double high, Refusal refusal                       \
    ) { look(x, n, low, high, refusal); }
LOOKING(f64, double)
LOOKING(f32, float)
LOOKING(f16, f16)
LOOKING(bf16, bf16)
LOOKING(i64, i64)
LOOKING(i32, i32)
LOOKING(i16, i16)
LOOKING(i8, i8)
LOOKING(u8, u8)
