// CUDA's words, what a thread knows of itself, and the table of kernels. `__global__`, `__shared__`,
// `__constant__` and `__launch_bounds__` are defined after the preprocessor, as they are looked for.

#define TORCHRS_SIMULATED 1
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __device__
#define __host__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __inline_hint__
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define CUDARTAPI

// These structures are those of `kernel/abi.rs`.
struct __sim_functions {
    unsigned (*barrier)(void* machine, unsigned kind, unsigned predicate, unsigned line);
    unsigned long long (*warp)(void* machine, unsigned mask, unsigned operation, unsigned long long value,
                               unsigned source, unsigned line);
    void (*fail)(void* machine, unsigned reason, const char* text, const char* file, unsigned line);
    void (*pause)(void* machine);
};
struct __sim_block {
    uint3 index, threads, grid;
    unsigned shared_bytes;
    void* shared;
    void* machine;
    const __sim_functions* functions;
};
struct __sim_kernel {
    const char* name;
    void (*thread)(const void* const* arguments, unsigned x, unsigned y, unsigned z);
    const unsigned* sizes;
    unsigned arguments;
    unsigned max_threads;
};
struct __sim_module {
    unsigned version, count;
    const __sim_kernel* kernels;
    void (*block)(const __sim_block*);
};

// Threads of a block share an executor's thread, so that what is local to it is shared by the block.
struct __sim_state {
    uint3 thread, block, threads, grid;
    void* shared;
    void* machine;
    const __sim_functions* functions;
    // Of the block among all that this thread had.
    unsigned long number;
};
static thread_local __sim_state __sim;

#define threadIdx (__sim.thread)
#define blockIdx (__sim.block)
#define blockDim (__sim.threads)
#define gridDim (__sim.grid)
static constexpr int warpSize = 32;

static void __sim_begin_block(const __sim_block* block) {
    __sim.block = block->index;
    __sim.threads = block->threads;
    __sim.grid = block->grid;
    __sim.shared = block->shared;
    __sim.machine = block->machine;
    __sim.functions = block->functions;
    ++__sim.number;
}

template <size_t... I> struct __sim_numbers {};
template <size_t N, size_t... I> struct __sim_count : __sim_count<N - 1, N - 1, I...> {};
template <size_t... I> struct __sim_count<0, I...> { typedef __sim_numbers<I...> type; };
template <class T> struct __sim_plain { typedef T type; };
template <class T> struct __sim_plain<const T> { typedef T type; };

// A kernel's entry of the table: the sizes of its arguments, and the call of it with pointers to them.
template <class F> struct __sim_entry;
template <class... A> struct __sim_entry<void (*)(A...)> {
    static constexpr unsigned sizes[] = {sizeof(A)..., 0};
    template <void (*F)(A...), size_t... I>
    static inline void call(const void* const* arguments, __sim_numbers<I...>) {
        F(*(typename __sim_plain<A>::type*)arguments[I]...);
    }
    template <void (*F)(A...)>
    static void run(const void* const* arguments, unsigned x, unsigned y, unsigned z) {
        __sim.thread = {x, y, z};
        call<F>(arguments, typename __sim_count<sizeof...(A)>::type());
    }
    template <void (*F)(A...)>
    static constexpr __sim_kernel of(const char* name, unsigned max_threads) {
        return {name, run<F>, sizes, sizeof...(A), max_threads};
    }
};

// While a thread waits others run on the same state, so that it puts its own place back.
static inline unsigned __sim_barrier(unsigned kind, unsigned predicate, unsigned line) {
    uint3 me = __sim.thread;
    asm volatile("" ::: "memory");
    unsigned result = __sim.functions->barrier(__sim.machine, kind, predicate, line);
    asm volatile("" ::: "memory");
    __sim.thread = me;
    return result;
}
static inline void __syncthreads(int line = __builtin_LINE()) { __sim_barrier(0, 0, line); }
static inline int __syncthreads_count(int p, int line = __builtin_LINE()) { return __sim_barrier(1, p != 0, line); }
static inline int __syncthreads_and(int p, int line = __builtin_LINE()) { return __sim_barrier(2, p != 0, line); }
static inline int __syncthreads_or(int p, int line = __builtin_LINE()) { return __sim_barrier(3, p != 0, line); }

static inline void __nanosleep(unsigned) {
    uint3 me = __sim.thread;
    asm volatile("" ::: "memory");
    __sim.functions->pause(__sim.machine);
    asm volatile("" ::: "memory");
    __sim.thread = me;
}
[[noreturn]] static inline void __trap() {
    __sim.functions->fail(__sim.machine, 1, "", "", 0);
    __builtin_unreachable();
}
[[noreturn]] static inline void __sim_assert(const char* text, const char* file, int line) {
    __sim.functions->fail(__sim.machine, 0, text, file, line);
    __builtin_unreachable();
}
#ifdef NDEBUG
#define assert(x) ((void)0)
#else
#define assert(x) ((x) ? (void)0 : __sim_assert(#x, __FILE__, __LINE__))
#endif

static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

extern "C" int printf(const char*, ...);
extern "C" void* memcpy(void*, const void*, size_t);
extern "C" void* memset(void*, int, size_t);
extern "C" void* memmove(void*, const void*, size_t);

static inline long long clock64() {
#if defined(__x86_64__)
    return (long long)__builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    long long ticks;
    asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return 0;
#endif
}
static inline int clock() { return (int)clock64(); }
