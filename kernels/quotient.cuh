// Whole quotients of indices by numbers whose inverses are known: a division of 64 bits takes a hundred instructions.

// i / n for numbers below 2^53, by the inverse of n: less work than the division of 64-bit integers.
__device__ __forceinline__ i64 quotient(i64 i, i64 n, double inverse) {
    i64 q = (i64)((double)i * inverse), left = i - q * n;
    return left < 0 ? q - 1 : left >= n ? q + 1 : q;
}
