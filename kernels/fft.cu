// Discrete Fourier transforms along the middle of a dense [outer, n, inner] array of complex numbers, by Stockham's
// self-sorting passes. A block transforms a few lines of up to some thousand numbers in shared memory, in passes
// of radix 2 to 8; longer lines take several launches, each of which is such a pass of a large radix in global
// memory. All is the forward transform: of the other one real and imaginary parts change places.

struct alignas(2 * sizeof(T)) Number { T re, im; };

__device__ __forceinline__ Number operator+(Number a, Number b) { return Number{a.re + b.re, a.im + b.im}; }
__device__ __forceinline__ Number operator-(Number a, Number b) { return Number{a.re - b.re, a.im - b.im}; }
__device__ __forceinline__ Number operator*(Number a, Number b) {
    return Number{a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
__device__ __forceinline__ Number conjugate(Number a) { return Number{a.re, -a.im}; }
__device__ __forceinline__ Number swapped(Number a) { return Number{a.im, a.re}; }
// By -i.
__device__ __forceinline__ Number quarter(Number a) { return Number{a.im, -a.re}; }

__device__ __forceinline__ void sin_cos(float half_turns, float* s, float* c) { sincospif(half_turns, s, c); }
__device__ __forceinline__ void sin_cos(double half_turns, double* s, double* c) { sincospi(half_turns, s, c); }

// exp(-2 pi i e / n) for 0 <= e < n, to the last bit or two: the part of a quarter turn that is left is exact in
// double before it is rounded.
__device__ __forceinline__ Number turn(i64 e, i64 n) {
    double half_turns = 2.0 * (double)e / (double)n, nearest = rint(2.0 * half_turns);
    T s, c, rest = (T)(half_turns - 0.5 * nearest);
    sin_cos(rest, &s, &c);
    switch ((i32)nearest & 3) {
        case 0: return Number{c, -s};
        case 1: return Number{-s, -c};
        case 2: return Number{-c, s};
        default: return Number{s, c};
    }
}

extern "C" __global__ void __launch_bounds__(256) table(Number* out, i64 n) {
    for (i64 i = first_index(); i < n; i += index_step()) out[i] = turn(i, n);
}

// A pass in shared memory: `lines x R / radix` butterflies.
struct Stage {
    i32 radix;
    // Butterflies of a line, and the product of the radices before; each with what divides by it.
    u32 each, each_magic;
    u32 done, done_magic;
    // Which entry of the table is the root of order done x radix.
    u32 step;
};

enum Mode { COMPLEX, TO_HALF, FROM_HALF };
const int MOST_STAGES = 13;

struct Pass {
    const void* in;
    void* out;
    const Number* table;
    // Lines of all, and of each outer item; the distance of a line's results.
    i64 lines, width, spread;
    // The order of the roots by which a line is multiplied first, if it is not the first pass.
    i64 inner, whole;
    double scale;
    // Numbers of a line, what divides by it, and the same for the real transforms' R + 1.
    u32 n, n_magic, half_magic;
    // Lines of a block as a power of two, and the distance of their numbers in shared memory.
    u32 block_bits, pitch;
    i32 mode, swap_in, swap_out, stages;
    Stage stage[MOST_STAGES];
};

// t / d for small numbers; 0 stands for 1.
__device__ __forceinline__ u32 divided(u32 t, u32 magic) { return magic ? __umulhi(t, magic) : t; }

// Where a number lies in its line: neighbours at small powers of two lie in different banks.
const int BANK_BITS = sizeof(T) == 4 ? 4 : 3;
__device__ __forceinline__ u32 place(u32 k) { return k + (k >> BANK_BITS); }

template <int R> struct Roots;
template <> struct Roots<3> {
    static __device__ __forceinline__ T cosine(int k) { const double c[] = {1.0, -0.5, -0.5}; return (T)c[k]; }
    static __device__ __forceinline__ T sine(int k) {
        const double s[] = {0.0, 0.86602540378443864676, -0.86602540378443864676};
        return (T)s[k];
    }
};
template <> struct Roots<5> {
    static __device__ __forceinline__ T cosine(int k) {
        const double c[] = {1.0, 0.30901699437494742410, -0.80901699437494742410, -0.80901699437494742410,
                            0.30901699437494742410};
        return (T)c[k];
    }
    static __device__ __forceinline__ T sine(int k) {
        const double s[] = {0.0, 0.95105651629515357212, 0.58778525229247312917, -0.58778525229247312917,
                            -0.95105651629515357212};
        return (T)s[k];
    }
};
template <> struct Roots<7> {
    static __device__ __forceinline__ T cosine(int k) {
        const double c[] = {1.0, 0.62348980185873353053, -0.22252093395631440429, -0.90096886790241912624,
                            -0.90096886790241912624, -0.22252093395631440429, 0.62348980185873353053};
        return (T)c[k];
    }
    static __device__ __forceinline__ T sine(int k) {
        const double s[] = {0.0, 0.78183148246802980871, 0.97492791218182360702, 0.43388373911755812048,
                            -0.43388373911755812048, -0.97492791218182360702, -0.78183148246802980871};
        return (T)s[k];
    }
};

// The transform of R numbers, in place.
template <int R> struct Butterfly {
    static __device__ __forceinline__ void apply(Number* x) {
        const int HALF = R / 2;
        Number sum[HALF], difference[HALF], first = x[0];
        Number all = first;
#pragma unroll
        for (int k = 0; k < HALF; ++k) {
            sum[k] = x[k + 1] + x[R - 1 - k];
            difference[k] = quarter(x[k + 1] - x[R - 1 - k]);
            all = all + sum[k];
        }
        x[0] = all;
#pragma unroll
        for (int q = 1; q <= HALF; ++q) {
            Number even = first, odd = {(T)0, (T)0};
#pragma unroll
            for (int k = 0; k < HALF; ++k) {
                T c = Roots<R>::cosine(q * (k + 1) % R), s = Roots<R>::sine(q * (k + 1) % R);
                even = Number{even.re + sum[k].re * c, even.im + sum[k].im * c};
                odd = Number{odd.re + difference[k].re * s, odd.im + difference[k].im * s};
            }
            x[q] = even + odd;
            x[R - q] = even - odd;
        }
    }
};
template <> struct Butterfly<2> {
    static __device__ __forceinline__ void apply(Number* x) {
        Number a = x[0];
        x[0] = a + x[1];
        x[1] = a - x[1];
    }
};
template <> struct Butterfly<4> {
    static __device__ __forceinline__ void apply(Number* x) {
        Number a = x[0] + x[2], b = x[0] - x[2], c = x[1] + x[3], d = quarter(x[1] - x[3]);
        x[0] = a + c;
        x[1] = b + d;
        x[2] = a - c;
        x[3] = b - d;
    }
};
template <> struct Butterfly<8> {
    static __device__ __forceinline__ void apply(Number* x) {
        const T root = (T)0.70710678118654752440;
        Number even[4] = {x[0], x[2], x[4], x[6]}, odd[4] = {x[1], x[3], x[5], x[7]};
        Butterfly<4>::apply(even);
        Butterfly<4>::apply(odd);
        odd[1] = Number{(odd[1].re + odd[1].im) * root, (odd[1].im - odd[1].re) * root};
        odd[2] = quarter(odd[2]);
        odd[3] = Number{(odd[3].im - odd[3].re) * root, -(odd[3].re + odd[3].im) * root};
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            x[k] = even[k] + odd[k];
            x[k + 4] = even[k] - odd[k];
        }
    }
};

template <int R>
__device__ __forceinline__ void stage(const Pass& p, const Stage& s, u32 lines, const Number* from, Number* to) {
    for (u32 t = threadIdx.x; t < lines * s.each; t += blockDim.x) {
        u32 line = divided(t, s.each_magic), j = t - line * s.each;
        u32 group = divided(j, s.done_magic), at = j - group * s.done;
        const Number* source = from + line * p.pitch;
        Number x[R];
#pragma unroll
        for (int q = 0; q < R; ++q) x[q] = source[place(j + q * s.each)];
        if (at) {
#pragma unroll
            for (int q = 1; q < R; ++q) x[q] = x[q] * p.table[at * s.step * q];
        }
        Butterfly<R>::apply(x);
        Number* target = to + line * p.pitch;
        u32 base = group * s.done * R + at;
#pragma unroll
        for (int q = 0; q < R; ++q) target[place(base + q * s.done)] = x[q];
    }
}

// What the half of a real signal's transform is, of the transform z of its pairs, and the other way round.
__device__ __forceinline__ Number to_half(Number a, Number b, Number root) {
    Number e = a + conjugate(b), o = quarter(a - conjugate(b)) * root;
    return Number{(e.re + o.re) * (T)0.5, (e.im + o.im) * (T)0.5};
}
__device__ __forceinline__ Number from_half(const Number* x, i64 k, i64 n, i64 step, Number root) {
    Number a = x[k * step], b = x[(n - k) * step];
    // Real in the transform of a real signal; what else is given there does not count.
    if (k == 0) a.im = b.im = (T)0;
    Number o = conjugate(quarter(conjugate((a - conjugate(b)) * conjugate(root))));
    return a + conjugate(b) + o;
}

extern "C" __global__ void __launch_bounds__(256) lines(Pass p) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    const u32 in_block = 1u << p.block_bits;
    Number* from = (Number*)shared_bytes;
    Number* to = from + in_block * p.pitch;
    const Number* in = (const Number*)p.in;
    Number* out = (Number*)p.out;
    for (i64 first = (i64)blockIdx.x << p.block_bits; first < p.lines; first += (i64)gridDim.x << p.block_bits) {
        u32 here = p.lines - first < (i64)in_block ? (u32)(p.lines - first) : in_block;
        // A line of this thread's own, where lines lie side by side.
        u32 line = threadIdx.x & (in_block - 1), row = threadIdx.x >> p.block_bits, rows = blockDim.x >> p.block_bits;
        i64 item = 0, q = 0;
        if (p.width > 1) {
            item = (first + line) / p.width;
            q = first + line - item * p.width;
        }
        if (p.mode == FROM_HALF) {
            for (u32 i = threadIdx.x; i < here * p.n; i += blockDim.x) {
                u32 l = divided(i, p.n_magic), k = i - l * p.n;
                Number z = from_half(in + (first + l) * (p.n + 1), k, p.n, 1, p.table[k]);
                from[l * p.pitch + place(k)] = p.swap_in ? swapped(z) : z;
            }
        } else if (p.width == 1) {
            for (u32 i = threadIdx.x; i < here * p.n; i += blockDim.x) {
                u32 l = divided(i, p.n_magic), k = i - l * p.n;
                Number z = in[first * p.n + i];
                from[l * p.pitch + place(k)] = p.swap_in ? swapped(z) : z;
            }
        } else if (line < here) {
            i64 base = item * p.width * p.n + q;
            i64 exponent = p.whole ? (p.inner == 1 ? q % p.spread : (q % p.spread) / p.inner) : 0;
            for (u32 k = row; k < p.n; k += rows) {
                Number z = in[base + k * p.width];
                if (p.swap_in) z = swapped(z);
                if (exponent) z = z * turn(exponent * k, p.whole);
                from[line * p.pitch + place(k)] = z;
            }
        }
        __syncthreads();
        for (int i = 0; i < p.stages; ++i) {
            const Stage& s = p.stage[i];
            switch (s.radix) {
                case 2: stage<2>(p, s, here, from, to); break;
                case 3: stage<3>(p, s, here, from, to); break;
                case 4: stage<4>(p, s, here, from, to); break;
                case 5: stage<5>(p, s, here, from, to); break;
                case 7: stage<7>(p, s, here, from, to); break;
                default: stage<8>(p, s, here, from, to); break;
            }
            __syncthreads();
            Number* results = to;
            to = from;
            from = results;
        }
        T scale = (T)p.scale;
        if (p.mode == TO_HALF) {
            u32 n = p.n + 1;
            for (u32 i = threadIdx.x; i < here * n; i += blockDim.x) {
                u32 l = divided(i, p.half_magic), k = i - l * n;
                const Number* z = from + l * p.pitch;
                Number root = k == p.n ? Number{(T)-1, (T)0} : p.table[k];
                Number x = to_half(z[place(k == p.n ? 0 : k)], z[place(k == 0 ? 0 : p.n - k)], root);
                out[first * n + i] = Number{x.re * scale, x.im * scale};
            }
        } else if (p.spread == 1) {
            for (u32 i = threadIdx.x; i < here * p.n; i += blockDim.x) {
                u32 l = divided(i, p.n_magic), k = i - l * p.n;
                Number z = from[l * p.pitch + place(k)];
                if (p.swap_out) z = swapped(z);
                out[first * p.n + i] = Number{z.re * scale, z.im * scale};
            }
        } else if (line < here) {
            i64 group = q / p.spread, base = item * p.width * p.n + group * p.spread * p.n + (q - group * p.spread);
            for (u32 k = row; k < p.n; k += rows) {
                Number z = from[line * p.pitch + place(k)];
                if (p.swap_out) z = swapped(z);
                out[base + k * p.spread] = Number{z.re * scale, z.im * scale};
            }
        }
        // The next lines go into the same memory.
        __syncthreads();
    }
}

// The same two steps of real transforms for lines that take several launches; a block's lines are along y.
extern "C" __global__ void __launch_bounds__(256) halves(const Number* z, Number* out, i64 lines, i64 n, double scale) {
    for (i64 line = blockIdx.y; line < lines; line += gridDim.y) {
        for (i64 k = first_index(); k <= n; k += index_step()) {
            const Number* from = z + line * n;
            Number x = to_half(from[k == n ? 0 : k], from[k == 0 ? 0 : n - k], turn(k, 2 * n));
            out[line * (n + 1) + k] = Number{x.re * (T)scale, x.im * (T)scale};
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) wholes(const Number* x, Number* out, i64 lines, i64 n) {
    for (i64 line = blockIdx.y; line < lines; line += gridDim.y) {
        for (i64 k = first_index(); k < n; k += index_step()) {
            out[line * n + k] = from_half(x + line * (n + 1), k, n, 1, turn(k, 2 * n));
        }
    }
}

// Bluestein's way for other lengths: y_k = c_k sum_j (x_j c_j) / c_(k-j) with c_j = exp(-pi i j^2 / n), a
// convolution of any length m >= 2 n - 1.
__device__ __forceinline__ Number chirp(i64 j, i64 n) { return turn((i64)((u64)j * (u64)j % (u64)(2 * n)), 2 * n); }

extern "C" __global__ void __launch_bounds__(256) chirped(const Number* x, Number* out, i64 lines, i64 n, i64 m, i32 swap) {
    for (i64 line = blockIdx.y; line < lines; line += gridDim.y) {
        for (i64 j = first_index(); j < m; j += index_step()) {
            Number z = {(T)0, (T)0};
            if (j < n) {
                z = x[line * n + j];
                z = (swap ? swapped(z) : z) * chirp(j, n);
            }
            out[line * m + j] = z;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) chirps(Number* out, i64 n, i64 m) {
    for (i64 j = first_index(); j < m; j += index_step()) {
        i64 k = j < n ? j : m - j;
        out[j] = k < n ? conjugate(chirp(k, n)) : Number{(T)0, (T)0};
    }
}

extern "C" __global__ void __launch_bounds__(256)
unchirped(const Number* x, Number* out, i64 lines, i64 n, i64 m, i32 swap, double scale) {
    for (i64 line = blockIdx.y; line < lines; line += gridDim.y) {
        for (i64 k = first_index(); k < n; k += index_step()) {
            Number z = x[line * m + k] * chirp(k, n);
            if (swap) z = swapped(z);
            out[line * n + k] = Number{z.re * (T)scale, z.im * (T)scale};
        }
    }
}
