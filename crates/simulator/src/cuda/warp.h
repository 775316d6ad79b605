// Collectives of a warp. The line of the call goes along, so that a report can name it.

static inline unsigned long long __sim_warp(unsigned mask, unsigned operation, unsigned long long value,
                                            unsigned source, unsigned line) {
    uint3 me = __sim.thread;
    asm volatile("" ::: "memory");
    unsigned long long result = __sim.functions->warp(__sim.machine, mask, operation, value, source, line);
    asm volatile("" ::: "memory");
    __sim.thread = me;
    return result;
}
static inline unsigned __sim_lane() {
    return (__sim.thread.x + __sim.threads.x * (__sim.thread.y + __sim.threads.y * __sim.thread.z)) & 31;
}

static inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
    __sim_warp(mask, 0, 0, 0, line);
}
// A thread is alone with itself wherever it is: every other answer might name lanes that went elsewhere.
static inline unsigned __activemask() { return 1u << __sim_lane(); }
static inline unsigned __ballot_sync(unsigned mask, int p, int line = __builtin_LINE()) {
    return (unsigned)__sim_warp(mask, 2, p != 0, 0, line);
}
static inline int __any_sync(unsigned mask, int p, int line = __builtin_LINE()) {
    return __sim_warp(mask, 2, p != 0, 0, line) != 0;
}
static inline int __all_sync(unsigned mask, int p, int line = __builtin_LINE()) {
    return __sim_warp(mask, 2, p == 0, 0, line) == 0;
}

#define __sim_shuffle(T, Bits)                                                                        \
    static inline T __sim_shuffle_from(unsigned mask, T v, unsigned source, int line) {               \
        return __sim_cast<T>((Bits)__sim_warp(mask, 1, __sim_cast<Bits>(v), source, line));           \
    }                                                                                                 \
    static inline T __shfl_sync(unsigned mask, T v, int source, int width = 32, int line = __builtin_LINE()) { \
        unsigned lane = __sim_lane();                                                                 \
        return __sim_shuffle_from(mask, v, (lane & ~(width - 1)) | (source & (width - 1)), line);     \
    }                                                                                                 \
    static inline T __shfl_up_sync(unsigned mask, T v, unsigned n, int width = 32, int line = __builtin_LINE()) { \
        int lane = __sim_lane(), first = lane & ~(width - 1), other = lane - (int)n;                  \
        return __sim_shuffle_from(mask, v, other >= first ? other : lane, line);                      \
    }                                                                                                 \
    static inline T __shfl_down_sync(unsigned mask, T v, unsigned n, int width = 32, int line = __builtin_LINE()) { \
        int lane = __sim_lane(), last = lane | (width - 1), other = lane + (int)n;                    \
        return __sim_shuffle_from(mask, v, other <= last ? other : lane, line);                       \
    }                                                                                                 \
    static inline T __shfl_xor_sync(unsigned mask, T v, int n, int width = 32, int line = __builtin_LINE()) { \
        int lane = __sim_lane(), last = lane | (width - 1), other = lane ^ n;                         \
        return __sim_shuffle_from(mask, v, other <= last ? other : lane, line);                       \
    }
__sim_shuffle(int, unsigned) __sim_shuffle(unsigned, unsigned) __sim_shuffle(float, unsigned)
__sim_shuffle(long, unsigned long long) __sim_shuffle(unsigned long, unsigned long long)
__sim_shuffle(long long, unsigned long long) __sim_shuffle(unsigned long long, unsigned long long)
__sim_shuffle(double, unsigned long long)
#undef __sim_shuffle

#define __sim_match(T, Bits)                                                                          \
    static inline unsigned __match_any_sync(unsigned mask, T v, int line = __builtin_LINE()) {        \
        return (unsigned)__sim_warp(mask, 3, __sim_cast<Bits>(v), 0, line);                           \
    }                                                                                                 \
    static inline unsigned __match_all_sync(unsigned mask, T v, int* all, int line = __builtin_LINE()) { \
        unsigned same = (unsigned)__sim_warp(mask, 3, __sim_cast<Bits>(v), 0, line);                  \
        unsigned here = (unsigned)__sim_warp(mask, 2, 1, 0, line);                                    \
        *all = same == here;                                                                          \
        return *all ? mask : 0;                                                                       \
    }
__sim_match(int, unsigned) __sim_match(unsigned, unsigned) __sim_match(float, unsigned)
__sim_match(long long, unsigned long long) __sim_match(unsigned long long, unsigned long long)
__sim_match(double, unsigned long long)
#undef __sim_match

#define __sim_reduce(T, name, number)                                                                 \
    static inline T __reduce_##name##_sync(unsigned mask, T v, int line = __builtin_LINE()) {         \
        return (T)(unsigned)__sim_warp(mask, number, (unsigned)v, 0, line);                           \
    }
__sim_reduce(int, add, 4) __sim_reduce(unsigned, add, 4)
__sim_reduce(int, min, 5) __sim_reduce(int, max, 6)
__sim_reduce(unsigned, min, 7) __sim_reduce(unsigned, max, 8)
__sim_reduce(unsigned, and, 9) __sim_reduce(unsigned, or, 10) __sim_reduce(unsigned, xor, 11)
#undef __sim_reduce
