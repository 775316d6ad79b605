// Checks where packed sequences start. The first number must be 0, the last one the number of rows. No number may be
// smaller than the one before, or larger by more than the longest length.

extern "C" __global__ void lengths(const i32* starts, i64 sequences, i64 total, i64 longest, Refusal refusal) {
    for (i64 i = first_index(); i <= sequences; i += index_step()) {
        i64 own = starts[i], before = i > 0 ? starts[i - 1] : 0;
        bool is_right = i > 0 ? own >= before && own - before <= longest : own == 0;
        if (!is_right || (i == sequences && own != total)) refuse(refusal.record, refusal.site, (double)own, i, total);
    }
}
