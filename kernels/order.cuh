// An unsigned number with the order of the element: 0.0 and -0.0 alike, NaN above all.
__device__ __forceinline__ u32 order32(float x) {
    u32 bits = __float_as_uint(x == 0.0f ? 0.0f : x);
    return x != x ? 0xffffffffu : (bits >> 31) ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ u64 order64(double x) {
    u64 bits = (u64)__double_as_longlong(x == 0.0 ? 0.0 : x);
    return x != x ? ~0ull : (bits >> 63) ? ~bits : bits | (1ull << 63);
}
__device__ __forceinline__ u32 order_of(float x) { return order32(x); }
__device__ __forceinline__ u32 order_of(f16 x) { return order32(to_float(x)); }
__device__ __forceinline__ u32 order_of(bf16 x) { return order32(to_float(x)); }
__device__ __forceinline__ u32 order_of(i32 x) { return (u32)x ^ 0x80000000u; }
__device__ __forceinline__ u32 order_of(i16 x) { return order_of((i32)x); }
__device__ __forceinline__ u32 order_of(i8 x) { return order_of((i32)x); }
__device__ __forceinline__ u32 order_of(u8 x) { return order_of((i32)x); }
__device__ __forceinline__ u64 order_of(double x) { return order64(x); }
__device__ __forceinline__ u64 order_of(i64 x) { return (u64)x ^ (1ull << 63); }
