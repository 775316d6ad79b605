//! Philox against known answers, and what is drawn from it.

use torchrs_cpu::numbers::philox::{LANES, PhiloxStream, philox_blocks, philox4x32_10};

#[test]
fn blocks_side_by_side_are_those_one_by_one() {
    for (first, stream) in [(0, 0), (u64::from(u32::MAX) - 3, 7 << 40 | 5), (u64::MAX - 2, 1)] {
        let (key, mut blocks) = ([3, 1 << 31], [[0; 4]; LANES]);
        philox_blocks(first, stream, key, &mut blocks);
        for (l, words) in blocks.iter().enumerate() {
            let block = first.wrapping_add(l as u64);
            let counter = [block, block >> 32, stream, stream >> 32].map(|c| c as u32);
            assert_eq!(*words, philox4x32_10(counter, key));
        }
    }
}

/// Random123's known answers for philox4x32, 10 rounds.
#[test]
fn known_answers() {
    let cases = [
        ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        ([!0; 4], [!0; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ];
    for (counter, key, expected) in cases {
        assert_eq!(philox4x32_10(counter, key), expected, "counter {counter:x?}");
    }
}

#[test]
fn a_stream_is_its_blocks_in_order() {
    let mut stream = PhiloxStream::new(5 | 7 << 32, 3 | 9 << 32);
    let words: Vec<u32> = (0..8).map(|_| stream.next_u32()).collect();
    assert_eq!(words[..4], philox4x32_10([0, 0, 3, 9], [5, 7]));
    assert_eq!(words[4..], philox4x32_10([1, 0, 3, 9], [5, 7]));
}

#[test]
fn bounded_integers_are_uniform_and_in_range() {
    let mut stream = PhiloxStream::new(1, 0);
    let mut counts = [0u32; 6];
    for _ in 0..60_000 {
        counts[stream.below(6) as usize] += 1;
    }
    // Standard deviation of a count is 91; the seed is fixed, so this cannot flicker.
    assert!(counts.iter().all(|&c| c.abs_diff(10_000) < 400), "{counts:?}");
    // A bound of 3/4 of 2^64 rejects a quarter of the draws: the loop is exercised.
    let large = 3 << 62;
    let mean = (0..4_000).map(|_| stream.below(large) as f64 / large as f64).sum::<f64>() / 4e3;
    assert!((mean - 0.5).abs() < 0.02, "{mean}");
    assert_eq!(stream.below(1), 0);
}

#[test]
fn normal_numbers_have_mean_0_and_variance_1() {
    let mut stream = PhiloxStream::new(2, 0);
    let numbers: Vec<f32> = (0..20_000).flat_map(|_| stream.normal_pair()).collect();
    let mean = numbers.iter().sum::<f32>() / numbers.len() as f32;
    let variance = numbers.iter().map(|x| x * x).sum::<f32>() / numbers.len() as f32;
    assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    assert!(numbers.iter().all(|x| x.is_finite()));
}
