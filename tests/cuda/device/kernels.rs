//! Kernels: arguments, shared memory, the cache of compiled ones.

use std::fs;
use std::path::PathBuf;
use std::thread;

use torchrs::cuda::launch::{self, Argument, Shape};
use torchrs::cuda::{self, Block, Function, Kernel, Program, Stream};
use torchrs::{Error, cuda_args};

use crate::support::{download, upload};

const PRELUDE: &str = "\
#define INDEX (blockIdx.x * (long long)blockDim.x + threadIdx.x)
#define STEP (gridDim.x * (long long)blockDim.x)
";
pub static PROGRAM: Program = Program::new(
    "arithmetic",
    PRELUDE,
    r#"
struct Line { float slope; double offset; long long n; };

extern "C" __global__ void line(float* x, Line line) {
    for (long long i = INDEX; i < line.n; i += STEP) x[i] = x[i] * line.slope + line.offset;
}

extern "C" __global__ void reverse_block(float* x) {
    extern __shared__ float kept[];
    kept[threadIdx.x] = x[INDEX];
    __syncthreads();
    x[INDEX] = kept[blockDim.x - 1 - threadIdx.x];
}

extern "C" __global__ void kinds(double* out, bool b, signed char c, short s, int i, long long l, float f, double d) {
    out[0] = b; out[1] = c; out[2] = s; out[3] = i; out[4] = l; out[5] = f; out[6] = d;
}
"#,
);
/// x[i] = x[i] * slope + offset.
pub static LINE: Kernel = Kernel::new(&PROGRAM, "line");
static REVERSE: Kernel = Kernel::new(&PROGRAM, "reverse_block");
static KINDS: Kernel = Kernel::new(&PROGRAM, "kinds");

/// A straight line.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Line {
    pub slope: f32,
    pub offset: f64,
    pub n: i64,
}

// SAFETY: the same members in CUDA C.
unsafe impl Argument for Line {}

/// Applies a line to a block on a stream.
pub fn apply(block: &Block, slope: f32, offset: f64, stream: Stream) -> torchrs::Result<()> {
    let n = (block.len() / 4) as i64;
    let function = LINE.on(stream.device())?;
    let shape = Shape::elements(n as u64, 128);
    let line = Line { slope, offset, n };
    // SAFETY: the kernel's parameters; n floats.
    unsafe { launch::launch(function, shape, stream, cuda_args!(block.as_ptr(), line)) }
}

/// Files of code; beside them are locks and lists of what was used.
fn cached_files() -> Vec<PathBuf> {
    let folder = std::env::var_os("TORCHRS_KERNEL_CACHE").unwrap();
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|ending| ending == "cubin")).collect()
}

simulated! {
    fn a_kernel_gets_structures_by_value() {
        for index in 0..cuda::device_count() {
            let stream = Stream::current(index)?;
            let block = upload(&[1.0, 2.0, 3.0], stream)?;
            apply(&block, 2.0, 0.5, stream)?;
            assert_eq!(download(block.as_ptr(), 3, stream)?, [2.5, 4.5, 6.5]);
        }
        assert_eq!(cached_files().len(), 1, "devices of one kind share the code");
    }

    fn a_kernel_gets_every_kind_of_number() {
        let stream = Stream::current(0)?;
        let out = Block::on(56, stream)?;
        let (function, shape) = (KINDS.on(0)?, Shape::row(1, 1));
        let at = out.as_ptr();
        // SAFETY: the kernel's parameters.
        unsafe {
            launch::launch(function, shape, stream, cuda_args!(at, true, -2i8, -3i16, -4i32, -5i64, 0.5f32, 0.25f64))
        }?;
        let mut values = [0f64; 7];
        // SAFETY: as many bytes on both sides.
        unsafe { cuda::copy::device_to_host(values.as_mut_ptr().cast(), out.as_ptr(), 56, stream) }?;
        assert_eq!(values, [1.0, -2.0, -3.0, -4.0, -5.0, 0.5, 0.25]);
    }

    fn blocks_share_dynamic_memory() {
        let stream = Stream::current(0)?;
        let values: Vec<f32> = (0..256).map(|i| i as f32).collect();
        let block = upload(&values, stream)?;
        let shape = Shape::row(2, 128).with_shared(512);
        // SAFETY: the kernel's parameter: two blocks of 128 floats.
        unsafe { launch::launch(REVERSE.on(0)?, shape, stream, cuda_args!(block.as_ptr())) }?;
        let reversed: Vec<f32> = (0..128).rev().chain((128..256).rev()).map(|i| i as f32).collect();
        assert_eq!(download(block.as_ptr(), 256, stream)?, reversed);
        // More than 48 KiB has to be asked for, which the launch does.
        let most = cuda::device::properties(0)?.shared_memory_per_block_optin;
        let shape = Shape::row(2, 128).with_shared(most.min(64 << 10));
        // SAFETY: as above.
        unsafe { launch::launch(REVERSE.on(0)?, shape, stream, cuda_args!(block.as_ptr())) }?;
        assert_eq!(download(block.as_ptr(), 256, stream)?, values);
    }

    fn what_cannot_be_started_is_an_error_with_the_kernels_name() {
        let (stream, function) = (Stream::current(0)?, LINE.on(0)?);
        let start = |shape, stream| {
            let line = Line { slope: 1.0, offset: 0.0, n: 0 };
            // SAFETY: no element is touched.
            unsafe { launch::launch(function, shape, stream, cuda_args!(0usize, line)) }
        };
        start(Shape::elements(0, 128), stream)?;
        let error = start(Shape::row(1, 5000), stream).unwrap_err();
        assert!(matches!(error, Error::Argument { .. }), "{error}");
        assert!(error.to_string().starts_with("launch of line: argument `shape`: the block"), "{error}");
        assert!(start(Shape::row(1, 32).with_shared(1 << 30), stream).is_err());
        if cuda::device_count() > 1 {
            assert!(start(Shape::row(1, 32), Stream::current(1)?).is_err());
        }
        let error = Function::find(&PROGRAM, "nothing", 0).unwrap_err().to_string();
        assert!(error.contains("looking for the kernel `nothing` of arithmetic.cu: cuModuleGetFunction"), "{error}");
        assert!(LINE.on(99).is_err());
        start(Shape::row(1, 32), stream)?;
        stream.synchronize()?;
    }

    fn figures_of_a_kernel() {
        let function = LINE.on(0)?;
        assert!(function.threads_per_block() >= 128 && function.name() == "line");
        assert!(function.blocks_per_multiprocessor(128, 0)? >= 1);
        println!("{function:?}");
        let all = Shape::grid_stride(1 << 40, 128, 0)?;
        assert!(all.grid[0] >= cuda::device::properties(0)?.multiprocessors);
        assert_eq!(Shape::grid_stride(1000, 128, 0)?.grid[0], 8);
    }

    fn a_program_that_does_not_compile_shows_the_log() {
        static WRONG: Program = Program::new("wrong", PRELUDE, "\nint x = nothing;\n");
        let error = WRONG.load(0).unwrap_err().to_string();
        println!("{error}");
        assert!(error.contains("wrong.cu does not compile (") && error.contains("nothing"), "{error}");
    }

    fn code_is_kept_on_disk_and_compiled_once_for_all_threads() {
        let threads: Vec<_> = (0..4).map(|_| thread::spawn(|| PROGRAM.load(0))).collect();
        for thread in threads {
            thread.join().unwrap()?;
        }
        let files = cached_files();
        assert_eq!(files.len(), 1);
        // Another program of the same text under another name, and then a damaged file.
        static MADE: Program = Program::generated("made", PRELUDE, || "extern \"C\" __global__ void f() {}".into());
        MADE.load(0)?;
        assert_eq!(cached_files().len(), 2);
    }

    fn a_damaged_file_is_compiled_again() {
        static TEXT: &str = "extern \"C\" __global__ void f() {}";
        static FIRST: Program = Program::new("again", "", TEXT);
        let capability = cuda::device::properties(0)?.capability;
        let code = FIRST.compile(capability)?;
        let file = cached_files().pop().unwrap();
        let whole = fs::read(&file).unwrap();
        fs::write(&file, &whole[..whole.len() / 2]).unwrap();
        FIRST.load(0)?; // has the code in memory
        let again = crate::support::command("device::kernels::the_same_program_again");
        let output = { again }.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert_eq!(cached_files(), std::slice::from_ref(&file));
        assert!(fs::read(&file).unwrap().len() >= code.len());
    }

    fn no_step_waits_for_the_device() {
        let stream = Stream::current(0)?;
        let values: Vec<f32> = vec![0.0; 10_000];
        let sum = upload(&values, stream)?;
        let step = || -> torchrs::Result<()> {
            for slope in 0..20 {
                let temporary = Block::on(40_000 + 1000 * slope, stream)?;
                apply(&temporary, 1.0, 0.0, stream)?;
                apply(&sum, 1.0, 1.0, stream)?;
            }
            Ok(())
        };
        step()?;
        let before = cuda::synchronisations();
        step()?;
        assert_eq!(cuda::synchronisations() - before, 0);
        assert_eq!(download(sum.as_ptr(), 1, stream)?, [40.0]);
        assert_eq!(cuda::synchronisations() - before, 1);
    }
}

/// A part of `a_damaged_file_is_compiled_again`, in another process.
#[test]
#[ignore = "a part of another test"]
fn the_same_program_again() {
    if !crate::support::plays("device::kernels::the_same_program_again") {
        return;
    }
    static SECOND: Program = Program::new("again", "", "extern \"C\" __global__ void f() {}");
    SECOND.load(0).unwrap();
}
