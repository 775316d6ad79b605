// Atomic operations, relaxed as on the GPU; they hold between blocks, devices and processes.

#define __sim_atomic_add(T)                                                                           \
    static inline T atomicAdd(T* p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
__sim_atomic_add(int) __sim_atomic_add(unsigned) __sim_atomic_add(unsigned long long)
#undef __sim_atomic_add

#define __sim_atomic_bits(T)                                                                          \
    static inline T atomicAnd(T* p, T v) { return __atomic_fetch_and(p, v, __ATOMIC_RELAXED); }       \
    static inline T atomicOr(T* p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); }         \
    static inline T atomicXor(T* p, T v) { return __atomic_fetch_xor(p, v, __ATOMIC_RELAXED); }       \
    static inline T atomicExch(T* p, T v) { return __atomic_exchange_n(p, v, __ATOMIC_RELAXED); }     \
    static inline T atomicCAS(T* p, T old, T v) {                                                     \
        __atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);           \
        return old;                                                                                   \
    }
__sim_atomic_bits(int) __sim_atomic_bits(unsigned) __sim_atomic_bits(unsigned long long)
#undef __sim_atomic_bits
static inline unsigned short atomicCAS(unsigned short* p, unsigned short old, unsigned short v) {
    __atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return old;
}

// Any change of a value, by comparing and exchanging its bits.
template <class Bits, class T, class F> static inline T __sim_atomic_change(T* p, F change) {
    Bits old = __atomic_load_n((Bits*)p, __ATOMIC_RELAXED);
    for (;;) {
        T before;
        __builtin_memcpy(&before, &old, sizeof(before));
        T after = change(before);
        Bits wanted;
        __builtin_memcpy(&wanted, &after, sizeof(wanted));
        if (__atomic_compare_exchange_n((Bits*)p, &old, wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return before;
    }
}
static inline float atomicAdd(float* p, float v) {
    return __sim_atomic_change<unsigned>(p, [=](float x) { return x + v; });
}
static inline double atomicAdd(double* p, double v) {
    return __sim_atomic_change<unsigned long long>(p, [=](double x) { return x + v; });
}
static inline float atomicExch(float* p, float v) {
    return __sim_atomic_change<unsigned>(p, [=](float) { return v; });
}
static inline int atomicSub(int* p, int v) { return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED); }
static inline unsigned atomicSub(unsigned* p, unsigned v) { return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED); }
#define __sim_atomic_minmax(T)                                                                        \
    static inline T atomicMin(T* p, T v) {                                                            \
        return __sim_atomic_change<T>(p, [=](T x) { return x < v ? x : v; });                         \
    }                                                                                                 \
    static inline T atomicMax(T* p, T v) {                                                            \
        return __sim_atomic_change<T>(p, [=](T x) { return x > v ? x : v; });                         \
    }
__sim_atomic_minmax(int) __sim_atomic_minmax(unsigned)
__sim_atomic_minmax(long long) __sim_atomic_minmax(unsigned long long)
#undef __sim_atomic_minmax
static inline unsigned atomicInc(unsigned* p, unsigned v) {
    return __sim_atomic_change<unsigned>(p, [=](unsigned x) { return x >= v ? 0 : x + 1; });
}
static inline unsigned atomicDec(unsigned* p, unsigned v) {
    return __sim_atomic_change<unsigned>(p, [=](unsigned x) { return x == 0 || x > v ? v : x - 1; });
}
