//! Copies and zeros past the cache.

use torchrs_cpu::arch::vectorize::{Kernel, vectorize};
use torchrs_cpu::elementwise::streaming::{Copying, PART, finish, zero};

#[test]
fn zeros_are_written_to_every_byte_and_no_other() {
    for len in [0, 1, 63, 64, 100, PART, PART + 1, 3 * PART + 77, (32 << 20) + 5] {
        for together in [0, 1 << 30] {
            let mut bytes = vec![0xAA; len + 2];
            // SAFETY: inside the vector.
            unsafe { zero(bytes[1..].as_mut_ptr(), len, together) };
            assert!(bytes[0] == 0xAA && bytes[len + 1] == 0xAA, "{len}");
            assert!(bytes[1..=len].iter().all(|&b| b == 0), "{len}");
        }
    }
}

#[test]
fn copies_every_byte_and_no_other_whatever_the_alignment() {
    let source: Vec<u8> = (0..500u32).map(|i| (i * 7 % 251) as u8).collect();
    for start in 0..20 {
        for len in [0, 1, 15, 16, 63, 64, 65, 127, 128, 300, 460] {
            let mut target = [0xAAu8; 500];
            let from = &source[start / 3..][..len];
            for by_baseline in [false, true] {
                // Both ranges are inside their arrays, which are distinct.
                let (to, from) = (target[start..].as_mut_ptr(), from.as_ptr());
                let copying = Copying { to, from, len };
                if by_baseline {
                    copying.run::<false>()
                } else {
                    vectorize(copying)
                }
                finish();
            }
            assert_eq!(&target[start..start + len], from, "{start} {len}");
            let outside = target[..start].iter().chain(&target[start + len..]);
            assert!(outside.copied().all(|b| b == 0xAA), "{start} {len}");
        }
    }
}
