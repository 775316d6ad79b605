//! Levels of instructions and their names.

use torchrs_cpu::arch::isa::{Isa, available, current, parse};

#[test]
fn names_are_read_back_and_others_refused() {
    for isa in Isa::ALL {
        assert_eq!(parse(isa.name()).unwrap(), isa);
    }
    let message = parse("sse9").unwrap_err().to_string();
    assert!(message.contains("sse9") && message.contains("avx2"), "{message}");
}

#[test]
fn the_current_level_is_there() {
    assert!(current() <= available());
}
