//! Starting a small op asks the host's allocator for little: its time is what limits small models.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use torchrs::{Dtype, MemoryFormat, Tensor};

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// The system's, with each thread's calls counted.
struct Counting;

// SAFETY: the system's allocator does it all.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The host's allocations of an op, after its kernels and plans are there.
fn allocations(op: impl Fn() -> Tensor) -> usize {
    for _ in 0..3 {
        op();
    }
    let before = COUNT.get();
    op();
    COUNT.get() - before
}

fn few(what: &str, most: usize, op: impl Fn() -> Tensor) {
    let count = allocations(op);
    println!("{what}: {count} allocations");
    assert!(count <= most, "{what} allocates {count} times on the host, above {most}");
}

simulated! {
    fn small_ops_allocate_little() {
        let ones = |shape: &[usize], dtype| Tensor::ones(shape, dtype).cuda(0);
        let (x, y) = (ones(&[1], Dtype::F32), ones(&[1], Dtype::F32));
        few("an addition", 2, || &x + &y);
        few("relu", 2, || x.relu());
        let (a, b) = (ones(&[32, 32], Dtype::F32), ones(&[32, 32], Dtype::F32));
        few("a product", 2, || a.mm(&b));
        few("a sum", 2, || a.sum());
        let (a, b, c) = (ones(&[2, 4, 16], Dtype::BF16), ones(&[16, 16], Dtype::BF16), ones(&[16], Dtype::BF16));
        few("a linear layer", 9, || a.linear(&b, Some(&c)));
        let h = ones(&[2, 3, 4, 8], Dtype::BF16);
        few("scores of heads", 9, || h.transpose(1, 2).matmul(&h.transpose(1, 2).mt()));
        let image = ones(&[2, 8, 6, 6], Dtype::BF16).contiguous_in(MemoryFormat::ChannelsLast);
        let filters = ones(&[8, 8, 3, 3], Dtype::BF16).contiguous_in(MemoryFormat::ChannelsLast);
        few("a convolution", 11, || image.conv2d(&filters, None, Default::default()));
    }
}
