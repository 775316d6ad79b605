// Tensors put together along a dimension, in units of 1, 2, 4, 8 or 16 bytes.

#define MOST_PARTS 32

// Parts that are joined: `row` units each time, from `first` on in rows of `pitch`.
struct Part { const char* from; i64 first, row; };
struct Parts { char* to; i64 outer, pitch; Part parts[MOST_PARTS]; };

template <class T> __device__ __forceinline__ void join(const Parts& all) {
    Part part = all.parts[blockIdx.y];
    i64 count = all.outer * part.row;
    for (i64 i = first_index(); i < count; i += index_step()) {
        i64 o = whole_quotient(i, part.row);
        ((T*)all.to)[o * all.pitch + part.first + i - o * part.row] = ((const T*)part.from)[i];
    }
}

#define MOVING(unit, T)                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) join_##unit(Parts all) { join<T>(all); }
MOVING(1, u8)
MOVING(2, u16)
MOVING(4, u32)
MOVING(8, u64)
MOVING(16, Several<u64>)
