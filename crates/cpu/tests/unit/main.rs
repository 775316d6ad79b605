//! Tests of the loops on raw buffers, in one program whose modules lie as those of the library do.
//!
//! They are no modules of the library, which would be compiled once more for them.

mod arch;
mod convolution;
mod elementwise;
mod folds;
mod linalg;
mod numbers;
mod products;
mod threads;

/// Before `main`, so that all tests see the same ways.
// SAFETY: the section holds functions that the C library calls before `main`; this one stores a flag.
#[used]
#[unsafe(link_section = ".init_array")]
static SMALL_PIECES: extern "C" fn() = {
    extern "C" fn set() {
        torchrs_cpu::take_small_pieces();
    }
    set
};
