// Copies to shared memory that a thread does not wait for (`cp.async`). Of each thread's some are there at once, others
// only when they have been waited for: a missing wait finds old bytes, and a copy over what is still read destroys it.

extern "C" void* realloc(void*, size_t);
extern "C" void free(void*);

struct __sim_copy {
    uint4 value;
    uint4* to;
    unsigned long group;
};
struct __sim_copies {
    unsigned long block, groups;
    unsigned count, room, turn;
    __sim_copy* all;
};
static thread_local __sim_copies __sim_copying[1024];

static inline __sim_copies* __sim_own_copies() {
    unsigned thread = __sim.thread.x + __sim.threads.x * (__sim.thread.y + __sim.threads.y * __sim.thread.z);
    __sim_copies* own = &__sim_copying[thread];
    if (own->block != __sim.number) {
        own->block = __sim.number;
        own->groups = own->count = 0;
        own->turn = thread * 2654435761u;
    }
    return own;
}

static inline void __sim_copy_16(void* to, const void* from, bool inside) {
    uint4 value = {0, 0, 0, 0};
    if (inside) value = *(const uint4*)from;
    __sim_copies* own = __sim_own_copies();
    own->turn = own->turn * 1664525u + 1013904223u;
    if (own->turn >> 31) {
        *(uint4*)to = value;
        return;
    }
    if (own->count == own->room) {
        own->room = own->room * 2 + 16;
        own->all = (__sim_copy*)realloc(own->all, own->room * sizeof(__sim_copy));
    }
    own->all[own->count++] = {value, (uint4*)to, own->groups};
}
static inline void __sim_commit_copies() { ++__sim_own_copies()->groups; }
// Waits for all groups that were closed but the newest `but`.
static inline void __sim_await_copies(unsigned but) {
    __sim_copies* own = __sim_own_copies();
    unsigned left = 0;
    for (unsigned i = 0; i < own->count; ++i) {
        __sim_copy copy = own->all[i];
        if (copy.group + but < own->groups) *copy.to = copy.value;
        else own->all[left++] = copy;
    }
    own->count = left;
    if (left == 0) {
        free(own->all);
        own->all = 0;
        own->room = 0;
    }
}
