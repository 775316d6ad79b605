// One step of a recurrent layer: from the products of the input and of the state with their weights to the gates
// and the next state, and from the gradient of that to those of the products. A thread has one column of the
// state in one sequence. c and what is added up over the steps are of C.

// The assembler for sm_100a spills a few registers unless it may take as many as it likes.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define LOOSE(THREADS) __launch_bounds__(THREADS, 1)
#else
#define LOOSE(THREADS) __launch_bounds__(THREADS)
#endif

struct Step {
    // Of this step's rows: the products with the input weights on entry, the gates in the end.
    T* gates;
    const T* from_state;
    // Or null.
    const T* bias_ih;
    const T* bias_hh;
    // An LSTM's c, a GRU's hn.
    C* inner;
    T* out;
    // Of all sequences; the rows that this step has are brought up to date.
    T* h;
    C* c;
    i64 rows, n;
};

struct Back {
    // Of this step's rows, as forward left them.
    const T* gates;
    const C* inner;
    const T* out;
    const T* dout;
    // What `shared` rows had after the step before; the others begin here, from the first state.
    const T* out_before;
    const C* inner_before;
    const T* first_h;
    const C* first_c;
    // Of this step's rows: the gradients of the products, and h before the step.
    T* by_input;
    T* by_state;
    T* h_before;
    // Of all sequences.
    C* dh;
    C* dc;
    // What the step after, of so many rows, gives to the gradient of h.
    const T* from_after;
    i64 rows, shared, after, n;
};

__device__ __forceinline__ C number(const T* x, i64 at) { return Convert<C>::from(x[at]); }
__device__ __forceinline__ C bias(const T* b, i64 at) { return b ? Convert<C>::from(b[at]) : (C)0; }

__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float hyperbolic(float x) { return tanhf(x); }
__device__ __forceinline__ double hyperbolic(double x) { return tanh(x); }
__device__ __forceinline__ C sigmoid(C x) { return (C)1 / ((C)1 + exponential(-x)); }
// Derivatives where the functions are y.
__device__ __forceinline__ C slope(C y) { return y * ((C)1 - y); }
__device__ __forceinline__ C hyperbolic_slope(C y) { return (C)1 - y * y; }

template <class F> __device__ __forceinline__ void each_place(i64 rows, i64 n, F f) {
    for (i64 row = (i64)blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += (i64)gridDim.y * blockDim.y) {
        for (i64 j = first_index(); j < n; j += index_step()) f(row, j);
    }
}

// The sum inside a gate.
template <int GATES> __device__ __forceinline__ C gate_sum(const Step& s, i64 row, i64 j, int gate) {
    i64 column = gate * s.n + j, at = row * GATES * s.n + column;
    return number(s.gates, at) + number(s.from_state, at) + (bias(s.bias_ih, column) + bias(s.bias_hh, column));
}

template <int GATES> __device__ __forceinline__ void put_gate(const Step& s, i64 row, i64 j, int gate, C value) {
    put(s.gates + (row * GATES + gate) * s.n + j, value);
}

__device__ __forceinline__ void put_state(const Step& s, i64 at, C h) {
    put(s.out + at, h);
    put(s.h + at, h);
}

extern "C" __global__ void __launch_bounds__(128) tanh_forward(Step s) {
    each_place(s.rows, s.n, [&](i64 row, i64 j) {
        put_state(s, row * s.n + j, hyperbolic(gate_sum<1>(s, row, j, 0)));
    });
}

extern "C" __global__ void __launch_bounds__(128) relu_forward(Step s) {
    each_place(s.rows, s.n, [&](i64 row, i64 j) {
        C y = gate_sum<1>(s, row, j, 0);
        // NaN stays NaN.
        put_state(s, row * s.n + j, y < (C)0 ? (C)0 : y);
    });
}

extern "C" __global__ void LOOSE(128) gru_forward(Step s) {
    each_place(s.rows, s.n, [&](i64 row, i64 j) {
        i64 at = row * s.n + j, column = 2 * s.n + j, of_new = row * 3 * s.n + column;
        C reset = sigmoid(gate_sum<3>(s, row, j, 0)), update = sigmoid(gate_sum<3>(s, row, j, 1));
        C from_state = number(s.from_state, of_new) + bias(s.bias_hh, column);
        C fresh = hyperbolic(reset * from_state + (number(s.gates, of_new) + bias(s.bias_ih, column)));
        put_gate<3>(s, row, j, 0, reset);
        put_gate<3>(s, row, j, 1, update);
        put_gate<3>(s, row, j, 2, fresh);
        s.inner[at] = from_state;
        put_state(s, at, update * (number(s.h, at) - fresh) + fresh);
    });
}

extern "C" __global__ void LOOSE(128) lstm_forward(Step s) {
    each_place(s.rows, s.n, [&](i64 row, i64 j) {
        i64 at = row * s.n + j;
        C input = sigmoid(gate_sum<4>(s, row, j, 0)), forget = sigmoid(gate_sum<4>(s, row, j, 1));
        C fresh = hyperbolic(gate_sum<4>(s, row, j, 2)), output = sigmoid(gate_sum<4>(s, row, j, 3));
        C cell = forget * s.c[at] + input * fresh;
        put_gate<4>(s, row, j, 0, input);
        put_gate<4>(s, row, j, 1, forget);
        put_gate<4>(s, row, j, 2, fresh);
        put_gate<4>(s, row, j, 3, output);
        s.inner[at] = cell;
        s.c[at] = cell;
        put_state(s, at, output * hyperbolic(cell));
    });
}

// F gets a place and the gradient that reaches its h, and gives what of it reaches the h before directly.
template <class F> __device__ __forceinline__ void each_back(const Back& s, F f) {
    each_place(s.rows > s.after ? s.rows : s.after, s.n, [&](i64 row, i64 j) {
        i64 at = row * s.n + j;
        C d = s.dh[at];
        if (row < s.after) d += number(s.from_after, at);
        if (row < s.rows) {
            bool begins = row >= s.shared;
            T h = begins ? s.first_h[at] : s.out_before[at];
            s.h_before[at] = h;
            d = f(row, j, d + number(s.dout, at), Convert<C>::from(h), begins);
        }
        s.dh[at] = d;
    });
}

template <int GATES> __device__ __forceinline__ C gate_at(const Back& s, i64 row, i64 j, int gate) {
    return number(s.gates, (row * GATES + gate) * s.n + j);
}

template <int GATES> __device__ __forceinline__ void put_back(T* to, const Back& s, i64 row, i64 j, int gate, C value) {
    put(to + (row * GATES + gate) * s.n + j, value);
}

extern "C" __global__ void __launch_bounds__(128) tanh_backward(Back s) {
    each_back(s, [&](i64 row, i64 j, C d, C, bool) {
        i64 at = row * s.n + j;
        put(s.by_input + at, d * hyperbolic_slope(number(s.out, at)));
        return (C)0;
    });
}

extern "C" __global__ void __launch_bounds__(128) relu_backward(Back s) {
    each_back(s, [&](i64 row, i64 j, C d, C, bool) {
        i64 at = row * s.n + j;
        put(s.by_input + at, number(s.out, at) <= (C)0 ? (C)0 : d);
        return (C)0;
    });
}

extern "C" __global__ void __launch_bounds__(128) gru_backward(Back s) {
    each_back(s, [&](i64 row, i64 j, C d, C h, bool) {
        C reset = gate_at<3>(s, row, j, 0), update = gate_at<3>(s, row, j, 1), fresh = gate_at<3>(s, row, j, 2);
        C by_update = d * (h - fresh) * slope(update);
        C by_fresh = d * ((C)1 - update) * hyperbolic_slope(fresh);
        C by_reset = by_fresh * s.inner[row * s.n + j] * slope(reset);
        put_back<3>(s.by_input, s, row, j, 0, by_reset);
        put_back<3>(s.by_input, s, row, j, 1, by_update);
        put_back<3>(s.by_input, s, row, j, 2, by_fresh);
        put_back<3>(s.by_state, s, row, j, 0, by_reset);
        put_back<3>(s.by_state, s, row, j, 1, by_update);
        put_back<3>(s.by_state, s, row, j, 2, by_fresh * reset);
        return d * update;
    });
}

extern "C" __global__ void __launch_bounds__(128) lstm_backward(Back s) {
    each_back(s, [&](i64 row, i64 j, C d, C, bool begins) {
        i64 at = row * s.n + j;
        C input = gate_at<4>(s, row, j, 0), forget = gate_at<4>(s, row, j, 1);
        C fresh = gate_at<4>(s, row, j, 2), output = gate_at<4>(s, row, j, 3);
        C bent = hyperbolic(s.inner[at]), before = begins ? s.first_c[at] : s.inner_before[at];
        C by_cell = d * output * hyperbolic_slope(bent) + s.dc[at];
        put_back<4>(s.by_input, s, row, j, 0, by_cell * fresh * slope(input));
        put_back<4>(s.by_input, s, row, j, 1, by_cell * before * slope(forget));
        put_back<4>(s.by_input, s, row, j, 2, by_cell * input * hyperbolic_slope(fresh));
        put_back<4>(s.by_input, s, row, j, 3, d * bent * slope(output));
        s.dc[at] = by_cell * forget;
        return (C)0;
    });
}
