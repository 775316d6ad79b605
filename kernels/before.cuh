// How many the threads of a block before this one have, THREADS in all; `all` becomes how many the block has.
template <int THREADS, class N> __device__ __forceinline__ N before_thread(N own, N* all) {
    __shared__ N warps[THREADS / 32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    N upto = own;
    for (int by = 1; by < 32; by *= 2) {
        N other = __shfl_up_sync(0xffffffffu, upto, by);
        if (lane >= by) upto += other;
    }
    __syncthreads();
    if (lane == 31) warps[warp] = upto;
    __syncthreads();
    N before = upto - own, sum = 0;
    for (int w = 0; w < THREADS / 32; ++w) {
        if (w == warp) before += sum;
        sum += warps[w];
    }
    *all = sum;
    return before;
}
