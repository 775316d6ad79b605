// Vector types, as CUDA has them.

typedef decltype(sizeof(0)) size_t;
typedef decltype((char*)0 - (char*)0) ptrdiff_t;

#define __sim_vector(T, N, A2, A4)                                                                    \
    struct N##1 { T x; };                                                                             \
    struct __attribute__((aligned(A2))) N##2 { T x, y; };                                             \
    struct N##3 { T x, y, z; };                                                                       \
    struct __attribute__((aligned(A4))) N##4 { T x, y, z, w; };                                       \
    static inline N##1 make_##N##1(T x) { return {x}; }                                               \
    static inline N##2 make_##N##2(T x, T y) { return {x, y}; }                                       \
    static inline N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; }                               \
    static inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
__sim_vector(signed char, char, 2, 4)
__sim_vector(unsigned char, uchar, 2, 4)
__sim_vector(short, short, 4, 8)
__sim_vector(unsigned short, ushort, 4, 8)
__sim_vector(int, int, 8, 16)
__sim_vector(unsigned int, uint, 8, 16)
__sim_vector(long, long, 16, 16)
__sim_vector(unsigned long, ulong, 16, 16)
__sim_vector(long long, longlong, 16, 16)
__sim_vector(unsigned long long, ulonglong, 16, 16)
__sim_vector(float, float, 8, 16)
__sim_vector(double, double, 16, 16)

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};
