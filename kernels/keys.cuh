// An element's number in the order and its place as one key, so that no two are alike.
// Both in one number, or beside each other.
struct __align__(16) Long { u64 order; u64 place; };
template <class Order> struct KeyOf;
template <> struct KeyOf<u32> {
    typedef u64 type;
    static __device__ __forceinline__ u64 of(u32 order, i64 place, bool descending) {
        return (u64)(descending ? ~order : order) << 32 | (u64)place;
    }
    static __device__ __forceinline__ u64 last() { return ~0ull; }
    static __device__ __forceinline__ i64 place(u64 key) { return (i64)(u32)key; }
    static __device__ __forceinline__ bool less(u64 a, u64 b) { return a < b; }
};
template <> struct KeyOf<u64> {
    typedef Long type;
    static __device__ __forceinline__ Long of(u64 order, i64 place, bool descending) {
        return {descending ? ~order : order, (u64)place};
    }
    static __device__ __forceinline__ Long last() { return {~0ull, ~0ull}; }
    static __device__ __forceinline__ i64 place(const Long& key) { return (i64)key.place; }
    static __device__ __forceinline__ bool less(const Long& a, const Long& b) {
        return a.order < b.order || (a.order == b.order && a.place < b.place);
    }
};
typedef KeyOf<decltype(order_of(T()))> Keys;
typedef Keys::type Key;

// Where element i of a line is in a dense [outer, n, inner] array, whose lines are [outer, inner].
__device__ __forceinline__ i64 in_line(i64 line, i64 i, i64 n, i64 inner) {
    return (line / inner * n + i) * inner + line % inner;
}

// Sorts runs of `length` keys, a power of two, of `all` in shared memory by the threads of a block, THREADS in all.
// Bitonic: sequences of `size` up and down by turns, but the last ones all upwards.
template <int THREADS> __device__ __forceinline__ void sort_runs(Key* keys, u32 all, u32 length) {
    for (u32 size = 2; size <= length; size *= 2) {
        for (u32 apart = size / 2; apart > 0; apart /= 2) {
            __syncthreads();
            for (u32 pair = threadIdx.x; pair < all / 2; pair += THREADS) {
                u32 low = pair / apart * apart * 2 + pair % apart, high = low + apart;
                bool up = size == length || (low & size) == 0;
                Key a = keys[low], b = keys[high];
                if (Keys::less(b, a) == up) {
                    keys[low] = b;
                    keys[high] = a;
                }
            }
        }
    }
    __syncthreads();
}
