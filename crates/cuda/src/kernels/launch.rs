//! Starting kernels. Arguments go by value: numbers, addresses, and small structures such as shapes
//! with strides.
//!
//! ```no_run
//! # use torchrs::cuda::{Kernel, Program, Stream, Block, launch::{self, Shape}};
//! # static PROGRAM: Program = Program::new("twice", "", "");
//! # static TWICE: Kernel = Kernel::new(&PROGRAM, "twice");
//! let (x, n) = (Block::new(4096, 0)?, 1024i64);
//! let shape = Shape::elements(n as u64, 256);
//! // SAFETY: the kernel takes an address of n floats, and n.
//! unsafe { launch::launch(TWICE.on(0)?, shape, Stream::current(0)?, torchrs::cuda_args!(x.as_ptr(), n)) }?;
//! # Ok::<(), torchrs::Error>(())
//! ```

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::null_mut;

use crate::device;
use crate::driver::code::within;
use crate::driver::driver;
use crate::kernels::module::Function;
use crate::work::stream::Stream;
use crate::work::traffic;
use torchrs_error::{Error, Result};

/// The most blocks along x.
const MOST_X: u64 = i32::MAX as u64;
/// The most blocks along y and z.
const MOST_YZ: u32 = 65_535;

/// A value that can be a kernel's argument.
///
/// # Safety
/// The kernel's parameter must have the same size and layout: `#[repr(C)]` for structures, with no
/// references in them.
pub unsafe trait Argument: Copy {}

macro_rules! arguments {
    ($($t:ty)*) => {$(
        // SAFETY: the same in CUDA C.
        unsafe impl Argument for $t {}
    )*};
}
arguments!(u8 i8 u16 i16 u32 i32 u64 i64 usize isize f32 f64 bool half::f16 half::bf16);

// SAFETY: an address.
unsafe impl<T> Argument for *const T {}
// SAFETY: an address.
unsafe impl<T> Argument for *mut T {}
// SAFETY: a structure of one array on the other side.
unsafe impl<T: Argument, const N: usize> Argument for [T; N] {}

/// A reference to a kernel's argument.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Arg<'a> {
    address: *mut c_void,
    _value: PhantomData<&'a ()>,
}

impl<'a> Arg<'a> {
    /// The argument of a value. The driver copies it at the launch.
    #[inline]
    pub fn new<T: Argument>(value: &'a T) -> Arg<'a> {
        if traffic::is_counted() {
            traffic::argument((&raw const *value) as usize, size_of::<T>());
        }
        Arg { address: (&raw const *value).cast_mut().cast(), _value: PhantomData }
    }
}

/// The arguments of a launch, in the order of the kernel's parameters.
#[macro_export]
macro_rules! cuda_args {
    ($($value:expr),* $(,)?) => { &mut [$($crate::kernels::launch::Arg::new(&$value)),*] };
}

/// Blocks, their threads, and their dynamic shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared: usize,
}

impl Shape {
    /// Blocks in a row.
    #[inline]
    pub fn row(blocks: u32, threads: u32) -> Shape {
        Shape { grid: [blocks, 1, 1], block: [threads, 1, 1], shared: 0 }
    }

    /// Blocks in a plane, or fewer where that is beyond what a grid can have: the kernel then goes on by the
    /// grid's width and height.
    #[inline]
    pub fn plane(x: usize, y: usize, threads: u32) -> Shape {
        let (x, y) = ((x as u64).min(MOST_X) as u32, (y as u64).min(MOST_YZ.into()) as u32);
        Shape { grid: [x, y, 1], ..Shape::row(1, threads) }
    }

    /// A thread for each of `n` elements, or fewer where `n` is beyond what a grid can have: the
    /// kernel then goes on by the grid's width. No blocks for no elements.
    #[inline]
    pub fn elements(n: u64, threads: u32) -> Shape {
        Shape::row(n.div_ceil(u64::from(threads.max(1))).min(MOST_X) as u32, threads)
    }

    /// For a kernel in which each thread takes every so-many-th element: as many blocks as fill
    /// the device a few times over, or fewer for few elements.
    ///
    /// # Errors
    /// [`Error::Device`] where there is no such device.
    #[inline]
    pub fn grid_stride(n: u64, threads: u32, device: usize) -> Result<Shape> {
        /// How often the device is filled: blocks that end early make room for others.
        const WAVES: u64 = 4;
        let figures = device::properties(device)?;
        let resident = figures.threads_per_multiprocessor / threads.max(1);
        let most = u64::from(figures.multiprocessors) * u64::from(resident.max(1)) * WAVES;
        let all = Shape::elements(n, threads);
        Ok(Shape::row(u64::from(all.grid[0]).min(most) as u32, threads))
    }

    /// With dynamic shared memory.
    #[inline]
    pub fn with_shared(self, bytes: usize) -> Shape {
        Shape { shared: bytes, ..self }
    }

    /// Whether there is nothing to do.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.grid.contains(&0)
    }

    /// What is wrong with it, given the most threads and shared memory of a block.
    fn complaint(&self, threads: u32, shared: usize) -> Option<String> {
        let [_, y, z] = self.grid;
        let volume = self.block.iter().map(|&n| u64::from(n)).product::<u64>();
        if u64::from(self.grid[0]) > MOST_X || y > MOST_YZ || z > MOST_YZ {
            let most = [MOST_X, MOST_YZ.into(), MOST_YZ.into()];
            return Some(format!("the grid {:?} is above {most:?}", self.grid));
        }
        if volume == 0 || volume > u64::from(threads) || self.block[2] > 64 {
            let block = self.block;
            return Some(format!("the block {block:?} is not 1 to {threads} threads (z: 64)"));
        }
        if self.shared > shared {
            let bytes = self.shared;
            return Some(format!("{bytes} bytes of dynamic shared memory are above {shared}"));
        }
        None
    }
}

/// Starts a kernel on a stream; nothing for an empty grid.
///
/// # Errors
/// [`Error::Argument`] for a shape that the kernel cannot have; [`Error::Device`] where the driver
/// refuses, which may be because of work that was started earlier.
///
/// # Safety
/// `args` are the kernel's parameters, in number, order and type, and the addresses among them are
/// valid for what the kernel does until the stream has done it.
#[inline]
pub unsafe fn launch(
    function: &Function,
    shape: Shape,
    stream: Stream,
    args: &mut [Arg<'_>],
) -> Result<()> {
    if shape.is_empty() {
        return Ok(());
    }
    check(function, &shape, stream)?;
    device::bind(function.device())?;
    if traffic::is_counted() {
        let at: Vec<usize> = args.iter().map(|arg| arg.address as usize).collect();
        // SAFETY: arguments are references to values.
        unsafe { traffic::launched(function.name(), &at) };
    }
    let ([gx, gy, gz], [bx, by, bz]) = (shape.grid, shape.block);
    // SAFETY: the shape was checked, the caller answers for the arguments; `Arg` is an address.
    let outcome = unsafe {
        driver()?.cuLaunchKernel(
            function.handle(),
            gx,
            gy,
            gz,
            bx,
            by,
            bz,
            shape.shared as u32,
            stream.handle(),
            args.as_mut_ptr().cast::<*mut c_void>(),
            null_mut(),
        )
    };
    outcome.map_err(|error| within(function.name(), error))
}

#[inline]
fn check(function: &Function, shape: &Shape, stream: Stream) -> Result<()> {
    let device = function.device();
    if stream.device() != device {
        return Err(refusal(function, format!("{stream:?} is not of the kernel's cuda:{device}")));
    }
    let most_shared = device::properties(device)?.shared_memory_per_block_optin;
    let shared = most_shared.saturating_sub(function.static_shared());
    if let Some(complaint) = shape.complaint(function.threads_per_block(), shared) {
        return Err(refusal(function, complaint));
    }
    function.allow_shared(shape.shared)
}

#[cold]
fn refusal(function: &Function, message: String) -> Error {
    Error::argument(&format!("launch of {}", function.name()), "shape", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_covers_the_elements() {
        assert_eq!(Shape::elements(1000, 256).grid, [4, 1, 1]);
        assert_eq!(Shape::elements(1024, 256).grid, [4, 1, 1]);
        assert!(Shape::elements(0, 256).is_empty());
        assert_eq!(Shape::elements(u64::MAX, 256).grid, [i32::MAX as u32, 1, 1]);
    }

    #[test]
    fn what_a_device_cannot_start_is_named() {
        let complaint = |shape: Shape| shape.complaint(1024, 1000);
        assert_eq!(complaint(Shape::row(5, 1024).with_shared(1000)), None);
        assert!(complaint(Shape::row(5, 1025)).unwrap().contains("1 to 1024 threads"));
        assert!(complaint(Shape::row(5, 0)).is_some());
        assert!(complaint(Shape { block: [1, 1, 65], ..Shape::row(1, 1) }).is_some());
        assert!(complaint(Shape { grid: [1, 65_536, 1], ..Shape::row(1, 1) }).is_some());
        assert!(complaint(Shape::row(5, 1).with_shared(1001)).unwrap().contains("1001 bytes"));
    }
}
