// Negative log likelihood: a row's factor is minus the weight of its class, 0 for a row that is left out.

struct Nll {
    const T* x;
    T* out;
    C* factors;
    const i64* target;
    const C* weight;
    i64 rows, classes, ignored;
    Refusal refusal;
};

extern "C" __global__ void __launch_bounds__(256) factors(Nll task) {
    for (i64 row = first_index(); row < task.rows; row += index_step()) {
        i64 t = task.target[row];
        if (t != task.ignored) checked(t, task.classes, row, task.refusal);
        task.factors[row] = t == task.ignored ? (C)0 : task.weight ? -task.weight[t] : (C)-1;
    }
}

// The row's element of its class times the factor.
extern "C" __global__ void __launch_bounds__(256) pick(Nll task) {
    for (i64 row = first_index(); row < task.rows; row += index_step()) {
        C f = task.factors[row];
        C y = f == (C)0 ? (C)0 : f * Convert<C>::from(task.x[row * task.classes + task.target[row]]);
        put(task.out + row, y);
    }
}

// Rows that are zero but for x times the factor in the place of the class.
extern "C" __global__ void __launch_bounds__(256) place(Nll task) {
    for (i64 i = first_index(); i < task.rows * task.classes; i += index_step()) {
        i64 row = whole_quotient(i, task.classes);
        C f = task.factors[row];
        bool here = f != (C)0 && i - row * task.classes == task.target[row];
        put(task.out + i, here ? f * Convert<C>::from(task.x[row]) : (C)0);
    }
}
