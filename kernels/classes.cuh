// Classes that there are not.

// Ends the kernel, and with it all work on the device. A call of its own: what prints has memory on the stack.
__device__ __noinline__ void refuse(i64 target, i64 row, i64 classes) {
    printf("torchrs: class %lld at position %lld is out of range: there are %lld classes\n", target, row, classes);
    __trap();
}

__device__ __forceinline__ void check_class(i64 target, i64 row, i64 classes) {
    if ((u64)target >= (u64)classes) refuse(target, row, classes);
}
