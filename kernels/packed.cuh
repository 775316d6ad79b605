// A formula over ELEMENTS neighbours at a time, for operands of these types in particular, which lie in ways that are
// known here: for large tensors of several types, or some of which repeat. The program defines what `pointwise.cuh`
// is told of, and of the operands:
//   OF_OUTPUTS(DO), OF_INPUTS(DO)  `DO(k, T, WAY)` for each tensor: its place among the operands, type and way
//   OF_NUMBERS(DO)  `DO(k)` for each number: its place among the inputs
//   FLAT  all is one dimension
//   CROSSES  neighbours may lie in two runs of the innermost dimension, but not in three

// All neighbours at once; each by itself; one for all of them.
#define WHOLE 0
#define EACH 1
#define SAME 2

// Bytes that are truth values, of which any but 0 is stored as 1, or the lowest bit.
struct truth { u8 value; };
struct bit { u8 value; };

template <class T> __device__ __forceinline__ C taken(T x) { return Convert<C>::from(x); }
__device__ __forceinline__ C taken(truth x) { return Convert<C>::from(x.value); }
__device__ __forceinline__ C taken(bit x) { return Convert<C>::from(x.value); }
template <class T> __device__ __forceinline__ void give(T* to, C x) { put(to, x); }
__device__ __forceinline__ void give(truth* to, C x) { to->value = x != (C)0; }
__device__ __forceinline__ void give(bit* to, C x) { to->value = (u8)(to_i64(x) & 1); }

// Bytes that one instruction moves.
template <int BYTES> struct __align__(BYTES) Moved { char bytes[BYTES]; };

// ELEMENTS neighbours of a tensor.
template <class T, int WAY> struct Held {
    static const int BYTES = ELEMENTS * sizeof(T), STEP = BYTES < 16 ? BYTES : 16;
    union __align__(STEP) {
        T values[ELEMENTS];
        Moved<STEP> moved[BYTES / STEP];
    };
    __device__ __forceinline__ Held() {}

    // `here` are those that lie from the first place on, the others lie from the second one on.
    __device__ __forceinline__ void load(const char* first, const char* second, i64 stride, int here, int count) {
        if (WAY == SAME) {
            values[0] = *(const T*)first;
        } else if (WAY == WHOLE && count == ELEMENTS) {
#pragma unroll
            for (int m = 0; m < BYTES / STEP; ++m) moved[m] = ((const Moved<STEP>*)first)[m];
        } else {
#pragma unroll
            for (int j = 0; j < ELEMENTS; ++j) {
                // Beyond the last there is nothing to read, nor a second run.
                int i = j < count ? j : 0;
                if (WAY == WHOLE) values[j] = ((const T*)first)[i];
                else values[j] = *(const T*)((i < here ? first : second) + i * stride);
            }
        }
    }
    __device__ __forceinline__ void store(char* first, char* second, i64 stride, int here, int count) const {
        if (WAY == WHOLE && count == ELEMENTS) {
#pragma unroll
            for (int m = 0; m < BYTES / STEP; ++m) ((Moved<STEP>*)first)[m] = moved[m];
        } else {
#pragma unroll
            for (int j = 0; j < ELEMENTS; ++j) {
                if (j >= count) continue;
                if (WAY == WHOLE) ((T*)first)[j] = values[j];
                else *(T*)((j < here ? first : second) + j * stride) = values[j];
            }
        }
    }
    __device__ __forceinline__ T value(int j) const { return values[WAY == SAME ? 0 : j]; }
};

extern "C" __global__ void __launch_bounds__(256, BLOCKS) packed(Walk walk) {
    C params[PARAMS + 1], in[INPUTS + 1], out[OUTPUTS];
    parameters(walk, params);
#define HOIST(k) const C number##k = number_of(walk.operands[OUTPUTS + k]);
    OF_NUMBERS(HOIST)
    const int inner = FLAT ? 0 : walk.dims - 1;
    for (i64 at = first_index() * ELEMENTS; at < walk.count; at += index_step() * ELEMENTS) {
        int count = walk.count - at < ELEMENTS ? (int)(walk.count - at) : ELEMENTS, here = ELEMENTS;
#if FLAT
        i64 column = at;
#define FIRST(k, T, WAY) walk.operands[k].at + (WAY == WHOLE ? at * (i64)sizeof(T) : column * walk.operands[k].strides[inner])
#define SECOND(k, T, WAY) walk.operands[k].at
#else
        i64 size = walk.sizes[inner], row = whole_quotient(at, size), column = at - row * size, offsets[OPERANDS];
        find(walk, row, inner - 1, offsets);
#if CROSSES
        i64 others[OPERANDS] = {};
        if (column + ELEMENTS > size) {
            here = (int)(size - column);
            find(walk, row + 1, inner - 1, others);
        }
#define FIRST(k, T, WAY) \
    walk.operands[k].at + (WAY == WHOLE ? at * (i64)sizeof(T) : offsets[k] + column * walk.operands[k].strides[inner])
#define SECOND(k, T, WAY) walk.operands[k].at + (others[k] - here * walk.operands[k].strides[inner])
#else
#define FIRST(k, T, WAY) walk.operands[k].at + (offsets[k] + column * walk.operands[k].strides[inner])
#define SECOND(k, T, WAY) walk.operands[k].at
#endif
#endif
        // All is asked for before any of it is waited for.
#define LOAD(k, T, WAY)                                                                           \
    Held<T, WAY> held##k;                                                                         \
    held##k.load(FIRST(k, T, WAY), SECOND(k, T, WAY), walk.operands[k].strides[inner], here, count);
        OF_INPUTS(LOAD)
#define MAKE(k, T, WAY) Held<T, WAY> held##k;
        OF_OUTPUTS(MAKE)
#pragma unroll
        for (int j = 0; j < ELEMENTS; ++j) {
#define TAKE(k, T, WAY) in[k - OUTPUTS] = taken(held##k.value(j));
            OF_INPUTS(TAKE)
#define NUMBER(k) in[k] = number##k;
            OF_NUMBERS(NUMBER)
            evaluate(out, in, params);
#define GIVE(k, T, WAY) give(&held##k.values[j], out[k]);
            OF_OUTPUTS(GIVE)
        }
#define STORE(k, T, WAY) \
    held##k.store(FIRST(k, T, WAY), SECOND(k, T, WAY), walk.operands[k].strides[inner], here, count);
        OF_OUTPUTS(STORE)
    }
}
