//! How rows are divided among register tiles.

use torchrs_cpu::products::micro::heights;

#[test]
fn consecutive_heights_are_those_of_their_sum() {
    for most in [6, 8, 14] {
        for m in 1..300 {
            let all: Vec<usize> = heights(m, most).collect();
            assert_eq!(all.iter().sum::<usize>(), m);
            for some in 1..=8 {
                for group in all.chunks(some) {
                    let again: Vec<usize> = heights(group.iter().sum(), most).collect();
                    assert_eq!(again, group, "{m} in tiles of {most}, {some} at a time");
                }
            }
        }
    }
}
