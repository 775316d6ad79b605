// Philox 4x32-10 as crates/cpu/src/numbers/philox.rs: word w of block b belongs to place 4 b + w.

struct Words { u32 w[4]; };

__device__ __forceinline__ Words philox(u64 block, u64 stream, u64 seed) {
    u32 c0 = (u32)block, c1 = (u32)(block >> 32), c2 = (u32)stream, c3 = (u32)(stream >> 32);
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
    for (int round = 0; round < 10; ++round) {
        u64 a = (u64)0xD2511F53u * c0, b = (u64)0xCD9E8D57u * c2;
        u32 n0 = (u32)(b >> 32) ^ c1 ^ k0, n2 = (u32)(a >> 32) ^ c3 ^ k1;
        c1 = (u32)b;
        c3 = (u32)a;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return Words{{c0, c1, c2, c3}};
}

// A draw's key and stream. Those of a graph are counted from the place where the generator stands at the
// replay, which is in memory: the seed and the offset.
struct Draw {
    u64 seed, stream;
    __device__ __forceinline__ Draw(u64 seed, u64 stream, const u64* place) : seed(seed), stream(stream) {
        if (place) {
            this->seed += place[0];
            this->stream += place[1];
        }
    }
};
