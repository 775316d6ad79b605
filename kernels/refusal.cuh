// Numbers that a kernel was given and cannot take: indices that are out of range, probabilities that are none.

// In memory of the host, which outlives the device's work.
struct Refused {
    u32 state, reserved;
    u64 site;
    i64 position, limit;
    double value;
};

// Where to write, and which check of which op it is: the host knows it by its number.
struct Refusal {
    Refused* record;
    u64 site;
};

// Leaves word of the first such number, and ends the kernel, and with it all work on the device. A call of its own:
// nothing of it is in the loops that look.
__device__ __noinline__ void refuse(Refused* record, u64 site, double value, i64 position, i64 limit) {
    if (atomicCAS(&record->state, 0u, 1u) == 0u) {
        record->site = site;
        record->position = position;
        record->limit = limit;
        record->value = value;
        __threadfence_system();
        *(volatile u32*)&record->state = 2u;
        __threadfence_system();
    } else {
        // The first one writes to its end; nothing waits for ever should it not.
        for (int i = 0; i < 100000 && *(volatile u32*)&record->state != 2u; ++i) {}
    }
    __trap();
}

__device__ __forceinline__ i64 checked(i64 index, i64 size, i64 position, const Refusal& refusal) {
    if ((u64)index >= (u64)size) refuse(refusal.record, refusal.site, (double)index, position, size);
    return index;
}
