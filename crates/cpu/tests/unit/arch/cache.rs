//! How large caches are said to be.

use torchrs_cpu::arch::cache::{first, second};

/// Whatever the processor, the first level is smaller than the second, and no level is absurd.
#[test]
fn levels_grow() {
    assert!((4 << 10..1 << 20).contains(&first()), "{}", first());
    assert!(first() < second() && second() < 1 << 30);
    assert_eq!(first(), first());
}
