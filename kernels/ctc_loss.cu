// Connectionist temporal classification: alphas, betas and the gradient, as `src/ops/loss/ctc_loss/mod.rs` defines them. A
// block walks through the time of a sample; its threads have the places of the labels and the blanks around them.

struct Ctc {
    // Log-probabilities [steps, samples, classes].
    const T* x;
    const i64* targets;
    // Of each sample: time steps, labels, and the first of these in `targets`.
    const i64* spans;
    // [samples, steps, width].
    C* alphas;
    C* betas;
    C* losses;
    const C* g;
    C* dx;
    // For each label the next of its class, or 0: one more than its number; negative where there is one before.
    i32* links;
    // `width` has room for the places of the most labels, `most`.
    i64 steps, samples, classes, width, most, blank;
    i32 zero_infinity, reserved;
    Refusal refusal;
};

#define CTC_THREADS 256

__device__ __forceinline__ C nothing() { return -(C)__longlong_as_double(0x7ff0000000000000ll); }

// log(e^a + e^b + e^c).
__device__ __forceinline__ C sum_of(C a, C b, C c) {
    C most = a > b ? a : b;
    most = c > most ? c : most;
    if (most == nothing()) return most;
    return most + log(exp(a - most) + exp(b - most) + exp(c - most));
}

__device__ __forceinline__ i64 span(const Ctc& task, int which, i64 sample) { return task.spans[which * task.samples + sample]; }

__device__ __forceinline__ int class_at(const Ctc& task, i64 first, i64 place) {
    if (place % 2 == 0) return (int)task.blank;
    i64 at = first + place / 2;
    return (int)checked(task.targets[at], task.classes, at, task.refusal);
}

// Alphas, and the loss; or, counted from the end of time and labels, betas.
template <bool BACK> __device__ __forceinline__ void walk(const Ctc& task) {
    extern __shared__ double room[];
    // Two rows, by turns the one before and the new one; the places' classes.
    C* rows = (C*)room;
    int* classes = (int*)(rows + 2 * task.width);
    i64 sample = blockIdx.x, steps = span(task, 0, sample), n = 2 * span(task, 1, sample) + 1;
    i64 first = span(task, 2, sample);
    for (i64 s = threadIdx.x; s < n; s += CTC_THREADS) classes[s] = class_at(task, first, BACK ? n - 1 - s : s);
    __syncthreads();
    C* out = (BACK ? task.betas : task.alphas) + sample * task.steps * task.width;
    const T* x = task.x + sample * task.classes;
    i64 row = task.samples * task.classes;
    // This thread's first place is read a step ahead.
    C ahead = 0;
    if (steps > 0 && threadIdx.x < n) ahead = Convert<C>::from(x[(BACK ? steps - 1 : 0) * row + classes[threadIdx.x]]);
    for (i64 t = 0; t < steps; ++t) {
        i64 time = BACK ? steps - 1 - t : t, next = BACK ? time - 1 : time + 1;
        C now = ahead;
        if (t + 1 < steps && threadIdx.x < n) ahead = Convert<C>::from(x[next * row + classes[threadIdx.x]]);
        const C* before = rows + (t + 1) % 2 * task.width;
        C* after = rows + t % 2 * task.width;
        for (i64 s = threadIdx.x; s < n; s += CTC_THREADS) {
            C value = s == threadIdx.x ? now : Convert<C>::from(x[time * row + classes[s]]), ways;
            if (t == 0) {
                ways = s < 2 ? (C)0 : nothing();
            } else {
                C one = s >= 1 ? before[s - 1] : nothing();
                // A blank may be left out between different labels.
                C two = s >= 2 && classes[s] != classes[s - 2] ? before[s - 2] : nothing();
                ways = sum_of(before[s], one, two);
            }
            after[s] = ways + value;
            out[time * task.width + (BACK ? n - 1 - s : s)] = ways + value;
        }
        __syncthreads();
    }
    if (BACK || threadIdx.x != 0) return;
    const C* last = rows + (steps + 1) % 2 * task.width;
    // Without time there is one way to have no labels.
    C loss = n == 1 ? (C)0 : -nothing();
    if (steps > 0) loss = -sum_of(last[n - 1], n > 1 ? last[n - 2] : nothing(), nothing());
    task.losses[sample] = loss;
}

extern "C" __global__ void __launch_bounds__(CTC_THREADS) ctc_alphas(Ctc task) { walk<false>(task); }
extern "C" __global__ void __launch_bounds__(CTC_THREADS) ctc_betas(Ctc task) { walk<true>(task); }

extern "C" __global__ void __launch_bounds__(256) ctc_links(Ctc task) {
    for (i64 i = first_index(); i < task.samples * task.most; i += index_step()) {
        i64 sample = i / task.most, label = i - sample * task.most, count = span(task, 1, sample);
        if (label >= count) continue;
        const i64* labels = task.targets + span(task, 2, sample);
        i64 next = label + 1, earlier = 0;
        while (next < count && labels[next] != labels[label]) ++next;
        while (earlier < label && labels[earlier] != labels[label]) ++earlier;
        i32 link = next < count ? (i32)next + 1 : 0;
        task.links[i] = earlier < label ? -1 : link;
        // Chains go on through labels that are not the first of their class.
        task.links[task.samples * task.most + i] = link;
    }
}

// e^(alpha + beta + loss - x) of a place.
__device__ __forceinline__ C share(C alpha, C beta, C loss, C x) {
    C way = alpha + beta;
    return way > nothing() ? exp(way + loss - x) : (C)0;
}

// blockIdx.x: time, blockIdx.y and on: sample. Always the same sum: a thread adds up all places of a class, and the
// block those of the blank.
extern "C" __global__ void __launch_bounds__(CTC_THREADS) ctc_gradient(Ctc task) {
    __shared__ C sums[CTC_THREADS / 32];
    for (i64 t = blockIdx.x; t < task.steps; t += gridDim.x)
    for (i64 sample = blockIdx.y; sample < task.samples; sample += gridDim.y) {
        i64 steps = span(task, 0, sample), count = span(task, 1, sample), first = span(task, 2, sample);
        i64 at = (t * task.samples + sample) * task.classes;
        C loss = task.losses[sample], g = task.g[sample];
        bool counts = t < steps && !(task.zero_infinity && loss == -nothing());
        for (i64 c = threadIdx.x; c < task.classes; c += CTC_THREADS) {
            task.dx[at + c] = counts ? g * exp(Convert<C>::from(task.x[at + c])) : (C)0;
        }
        if (!counts) continue;
        __syncthreads();
        const C* alphas = task.alphas + (sample * task.steps + t) * task.width;
        const C* betas = task.betas + (sample * task.steps + t) * task.width;
        const i32* links = task.links + sample * task.most;
        const i32* chains = links + task.samples * task.most;
        C blank = Convert<C>::from(task.x[at + task.blank]), sum = 0;
        for (i64 label = threadIdx.x; label <= count; label += CTC_THREADS) {
            sum += share(alphas[2 * label], betas[2 * label], loss, blank);
            if (label == count) continue;
            int c = class_at(task, first, 2 * label + 1);
            if (c == task.blank) {
                sum += share(alphas[2 * label + 1], betas[2 * label + 1], loss, blank);
            } else if (links[label] >= 0) {
                C x = Convert<C>::from(task.x[at + c]), own = 0;
                for (i64 k = label + 1; k > 0; k = chains[k - 1]) own += share(alphas[2 * k - 1], betas[2 * k - 1], loss, x);
                task.dx[at + c] -= g * own;
            }
        }
        for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
        if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int w = 1; w < CTC_THREADS / 32; ++w) sum += sums[w];
            task.dx[at + task.blank] -= g * sum;
        }
        __syncthreads();
    }
}
