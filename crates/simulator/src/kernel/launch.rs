//! A kernel's launch: its shape and its arguments as they were when it was asked for, and the loop over
//! its blocks.

use super::abi;
use super::machine::{FUNCTIONS, Machine};
use crate::code::{Code, Result};
use crate::device::SHARED_MEMORY_OPTIN;
use crate::fiber::switch;
use crate::memory::blocks::GARBAGE;
use crate::memory::mapping::page;
use crate::memory::margins;
use crate::module::Module;
use crate::random::Random;
use std::ffi::c_void;
use std::sync::Arc;

/// A launch.
#[derive(Debug)]
pub struct Launch {
    /// The module, which stays loaded as long as this is in flight.
    pub module: Arc<Module>,
    /// The kernel's number in the module.
    pub kernel: usize,
    /// Blocks along each axis.
    pub grid: [u32; 3],
    /// Threads of a block along each axis.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// Copies of the arguments.
    pub arguments: Vec<Argument>,
    /// A fault on demand.
    pub fault: Option<crate::settings::Fault>,
}

/// A copy of an argument, aligned for whatever it is.
#[repr(align(64))]
#[derive(Debug, Clone)]
struct Chunk {
    _bytes: [u8; 64],
}

/// An argument's bytes.
#[derive(Debug, Clone)]
pub struct Argument(Vec<Chunk>);

impl Argument {
    /// Copies an argument.
    ///
    /// # Safety
    /// `bytes` bytes can be read at `from`.
    pub unsafe fn copy(from: *const u8, bytes: usize) -> Argument {
        let mut chunks = vec![Chunk { _bytes: [0; 64] }; bytes.div_ceil(64).max(1)];
        // SAFETY: the source as promised; the chunks are that large.
        unsafe { std::ptr::copy_nonoverlapping(from, chunks.as_mut_ptr().cast(), bytes) };
        Argument(chunks)
    }
}

/// An executor's buffer of dynamic shared memory, before a page that nobody may touch.
#[derive(Debug, Default)]
pub struct SharedMemory {
    end: usize,
}

impl SharedMemory {
    /// `bytes` bytes that end as near to the forbidden page as their alignment allows.
    fn get(&mut self, bytes: u32) -> Result<*mut u8> {
        if self.end == 0 {
            let size = (SHARED_MEMORY_OPTIN as usize).next_multiple_of(page());
            // SAFETY: a new mapping, where nothing else can be, and its last page. It stays for the
            // executor's life, which is the process's.
            unsafe {
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                let start =
                    libc::mmap(std::ptr::null_mut(), size + page(), protection, flags, -1, 0);
                if start == libc::MAP_FAILED {
                    return Err(Code::OUT_OF_MEMORY);
                }
                self.end = start as usize + size;
                libc::mprotect(self.end as *mut c_void, page(), libc::PROT_NONE);
            }
        }
        Ok((self.end - bytes.next_multiple_of(128) as usize) as *mut u8)
    }
}

impl Launch {
    /// Runs all blocks.
    pub fn run(&self, device: usize, machine: &mut Machine) -> Result {
        use crate::settings::Fault;
        if !switch::AVAILABLE {
            eprintln!("simulated GPU {device}: kernels run on x86-64 and aarch64 only");
            return Err(Code::NOT_SUPPORTED);
        }
        match self.fault {
            Some(Fault::Hang) => loop {
                std::thread::park();
            },
            Some(Fault::IllegalAddress) => {
                eprintln!(
                    "simulated GPU {device}: kernel `{}`: illegal address, on demand",
                    self.name()
                );
                return Err(Code::ILLEGAL_ADDRESS);
            }
            _ => {}
        }
        let pointers: Vec<*const c_void> =
            self.arguments.iter().map(|argument| argument.0.as_ptr().cast()).collect();
        let shared = machine.shared().get(self.shared_bytes)?;
        let mut block = abi::Block {
            index: [0; 3],
            threads: self.block,
            grid: self.grid,
            shared_bytes: self.shared_bytes,
            shared,
            machine: (&raw mut *machine).cast(),
            functions: &raw const FUNCTIONS,
        };
        let blocks = self.grid.iter().map(|n| u64::from(*n)).product::<u64>();
        let order = Order::new(blocks, machine.random());
        let garbage = machine.random().is_some();
        let kernel = self.module.kernel(self.kernel);
        for number in 0..blocks {
            let number = order.at(number);
            let [width, height, _] = self.grid.map(u64::from);
            block.index = [number % width, number / width % height, number / (width * height)]
                .map(|n| n as u32);
            if garbage {
                fill_with_garbage(shared, self.shared_bytes);
            }
            // SAFETY: the module is loaded, and the function only stores what it gets.
            unsafe { (self.module.table().block)(&raw const block) };
            if let Err(failure) = machine.run_block(kernel, pointers.as_ptr(), self.block) {
                return Err(failure.say(device, &self.place(block.index, machine)));
            }
        }
        if let Some(what) = margins::spoiled() {
            let name = self.name();
            eprintln!("simulated GPU {device}: kernel `{name}`, or one beside it: {what}");
            return Err(Code::ILLEGAL_ADDRESS);
        }
        Ok(())
    }

    /// The kernel's name.
    fn name(&self) -> &str {
        self.module.name(self.kernel)
    }

    /// Which thread ran last, in words.
    fn place(&self, index: [u32; 3], machine: &Machine) -> String {
        let [width, height, _] = self.block;
        let thread = machine.current as u32;
        let thread = [thread % width, thread / width % height, thread / (width * height)];
        let said = |n: [u32; 3]| format!("({},{},{})", n[0], n[1], n[2]);
        format!("kernel `{}`, block {}, thread {}", self.name(), said(index), said(thread))
    }
}

/// Dynamic shared memory holds anything when a block begins.
fn fill_with_garbage(shared: *mut u8, bytes: u32) {
    // SAFETY: the buffer is aligned, that large when rounded up, and no block runs on this executor.
    let words = unsafe {
        std::slice::from_raw_parts_mut(shared.cast::<[u8; 4]>(), bytes.div_ceil(4) as usize)
    };
    words.fill(GARBAGE);
}

/// The order of the blocks: as they are numbered, or the adversary's.
#[derive(Debug)]
struct Order {
    blocks: u64,
    stride: u64,
    first: u64,
}

impl Order {
    fn new(blocks: u64, random: Option<&mut Random>) -> Order {
        let Some(random) = random else { return Order { blocks, stride: 1, first: 0 } };
        let blocks = blocks.max(1);
        let mut stride = random.below(blocks) + 1;
        while divisor(stride, blocks) != 1 {
            stride += 1;
        }
        Order { blocks, stride, first: random.below(blocks) }
    }

    /// The block that comes at a place; each comes once, as the stride has no divisor in common with
    /// their number.
    fn at(&self, place: u64) -> u64 {
        match self.stride {
            1 if self.first == 0 => place,
            stride => {
                ((u128::from(place) * u128::from(stride) + u128::from(self.first))
                    % u128::from(self.blocks)) as u64
            }
        }
    }
}

/// The greatest common divisor.
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_adversarys_order_has_each_block_once() {
        let mut random = Random::new(3, 1);
        for blocks in [1, 2, 7, 12, 60] {
            let order = Order::new(blocks, Some(&mut random));
            let mut seen: Vec<u64> = (0..blocks).map(|place| order.at(place)).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..blocks));
        }
    }
}
