//! Blocks of every format, into tiles and out of them.

use torchrs_cpu::elementwise::format::{Block, loader, storer};
use torchrs_loops::{Compute, Format};

#[test]
fn blocks_go_in_and_out() {
    // A 5 x 12 matrix of i16 in rows of 16; every third column, rows backwards.
    let mut memory: Vec<i16> = (0..80).map(|i| i * 3 - 100).collect();
    let block = Block { inner: 4, inner_stride: 6, outer: 5, outer_stride: -32 };
    let mut tile = [0f32; 20];
    let origin = &raw mut memory[64];
    // SAFETY: the block's elements are in `memory`, the tile has 20 values.
    unsafe { loader(Format::I16, Compute::F32)(tile.as_mut_ptr().cast(), origin.cast(), block) };
    for (i, v) in tile.iter().enumerate() {
        let (row, column) = (4 - i / 4, 3 * (i % 4));
        assert_eq!(*v, (16 * row + column) as f32 * 3.0 - 100.0);
    }
    tile.iter_mut().for_each(|v| *v += 0.75);
    // SAFETY: the block and the tile are those of before.
    unsafe {
        storer(Compute::F32, Format::I16)(
            tile.as_mut_ptr().cast(),
            (&raw mut memory[64]).cast(),
            block,
        )
    };
    assert_eq!(memory[64 + 3], (64 + 3) * 3 - 100);
    assert_eq!(memory[0], -99);
}

#[test]
fn truth_values() {
    let mut bytes = [7u8; 3];
    let mut tile = [0.0f32, f32::NAN, -0.5];
    let block = Block { inner: 3, inner_stride: 1, outer: 1, outer_stride: 0 };
    // SAFETY: three elements on both sides.
    unsafe {
        storer(Compute::F32, Format::Bool)(tile.as_mut_ptr().cast(), bytes.as_mut_ptr(), block)
    };
    assert_eq!(bytes, [0, 1, 1]);
    let mut tile = [-1i64, -2, 2];
    // SAFETY: three elements on both sides.
    unsafe {
        storer(Compute::I64, Format::Bit)(tile.as_mut_ptr().cast(), bytes.as_mut_ptr(), block)
    };
    assert_eq!(bytes, [1, 0, 0]);
}
