// Triangles of matrices, in units of 1, 2, 4, 8 or 16 bytes.

// Elements on one side of a diagonal; zeros on the other.
template <class T>
__device__ __forceinline__ void triangle(T* to, const T* from, i64 count, i64 rows, i64 columns, i64 diagonal, i32 lower) {
    for (i64 i = first_index(); i < count; i += index_step()) {
        i64 r = whole_quotient(i, columns), c = i - r * columns;
        i64 above = c - (r - whole_quotient(r, rows) * rows) - diagonal;
        T zero = {};
        to[i] = (lower ? above <= 0 : above >= 0) ? from[i] : zero;
    }
}

#define MOVING(unit, T)                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) triangle_##unit(                                   \
        T* to, const T* from, i64 count, i64 rows, i64 columns, i64 diagonal, i32 lower                  \
    ) { triangle(to, from, count, rows, columns, diagonal, lower); }
MOVING(1, u8)
MOVING(2, u16)
MOVING(4, u32)
MOVING(8, u64)
MOVING(16, Several<u64>)
