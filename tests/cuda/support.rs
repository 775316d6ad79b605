//! Tests that start themselves again with simulated GPUs.

use std::env;
use std::process::{Command, Stdio};
use std::sync::mpsc;

use torchrs::Result;
use torchrs::cuda::library::{SIMULATE, SIMULATED_LIBRARY, simulated_path};
use torchrs::cuda::{Block, Stream, copy};

/// The test that this process was started for.
const INSIDE: &str = "TORCHRS_TEST_INSIDE";
/// Runs the tests on real GPUs.
const REAL: &str = "TORCHRS_TEST_REAL_GPU";
/// Where compiled kernels are kept from test to test, if not where the tests of all programs keep them.
const KERNELS: &str = "TORCHRS_TEST_KERNEL_CACHE";

/// Declares tests whose bodies return `Result<()>` and run with two simulated GPUs, and with the
/// variables in brackets.
macro_rules! simulated {
    ($($(#[$about:meta])* fn $name:ident() $([$($key:literal = $value:literal),*])? $body:block)*) => {$(
        $(#[$about])*
        #[test]
        fn $name() {
            fn body() -> torchrs::Result<()> {
                $body
                Ok(())
            }
            let variables: &[(&str, &str)] = &[$($(($key, $value)),*)?];
            $crate::support::run(concat!(module_path!(), "::", stringify!($name)), variables, body);
        }
    )*};
}

/// Runs `body` in this executable started again.
pub fn run(path: &str, variables: &[(&str, &str)], body: fn() -> Result<()>) {
    let (_, test) = path.split_once("::").expect("a crate and a name");
    if env::var(INSIDE).is_ok_and(|inside| inside == test) {
        return body().unwrap_or_else(|error| panic!("{error}"));
    }
    let cache = tempfile::tempdir().unwrap();
    let mut command = command(test);
    // Tests of the cache itself have one of their own.
    let kept = match test.starts_with("device::kernels::") {
        true => cache.path().into(),
        false => env::var_os(KERNELS).unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into()),
    };
    command.env("TORCHRS_KERNEL_CACHE", kept);
    command.envs(variables.iter().copied());
    let simulated = variables.iter().find(|(name, _)| name.starts_with("TORCHRS_SIMULATED"));
    match simulated_path() {
        _ if env::var_os(REAL).is_some() => {
            if let Some((name, _)) = simulated {
                return println!("skipped: only the simulated GPU has {name}");
            }
        }
        Some(library) => {
            command.env(SIMULATE, "2").env(SIMULATED_LIBRARY, library);
        }
        None => return println!("skipped: the simulated GPU is not built"),
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{out}\n{err}");
    print!("{out}");
}

/// This executable, to run one of its tests.
pub fn command(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    let options = ["--exact", "--include-ignored", "--nocapture", "--test-threads=1"];
    command.arg(test).args(options).env(INSIDE, test);
    command
}

/// Whether this process was started to play a part of a test.
pub fn plays(part: &str) -> bool {
    env::var(INSIDE).is_ok_and(|inside| inside == part)
}

/// The last GPU: the second one of two, where there are two.
pub fn last_gpu() -> torchrs::Device {
    torchrs::Device::Cuda(torchrs::cuda::device_count().max(1) - 1)
}

/// Whether there are two GPUs; says so where a part of a test needs them and they are not there.
pub fn has_two_gpus() -> bool {
    let two = torchrs::cuda::device_count() > 1;
    if !two {
        println!("skipped: a part needs two GPUs");
    }
    two
}

/// Holds a stream back until the sender sends or is dropped.
pub fn hold(stream: Stream) -> Result<mpsc::Sender<()>> {
    let (release, held) = mpsc::channel();
    stream.call_host(move || {
        // Ends when the sender does, too.
        let _ = held.recv();
    })?;
    Ok(release)
}

/// Numbers on the device, for work on a stream.
pub fn upload(values: &[f32], stream: Stream) -> Result<Block> {
    let block = Block::on(size_of_val(values), stream)?;
    // SAFETY: as many bytes on both sides; memory that is not pinned is read before it returns.
    unsafe { copy::host_to_device(block.as_ptr(), values.as_ptr().cast(), block.len(), stream) }?;
    Ok(block)
}

/// The numbers at a device's address.
pub fn download(from: *const u8, count: usize, stream: Stream) -> Result<Vec<f32>> {
    let mut values = vec![0f32; count];
    // SAFETY: as many bytes on both sides; memory that is not pinned is there when it returns.
    unsafe { copy::device_to_host(values.as_mut_ptr().cast(), from, 4 * count, stream) }?;
    Ok(values)
}

/// How often the host has waited for a GPU: as torchrs counts, and as the simulated GPU does.
pub fn waits() -> (u64, Option<u64>) {
    (torchrs::cuda::synchronisations(), simulated("torchrs_simulated_synchronizing_calls"))
}

/// A number that the simulated GPU counts.
pub fn simulated(counter: &str) -> Option<u64> {
    let path = env::var(SIMULATED_LIBRARY).ok()?;
    let [path, counter] =
        [path.as_str(), counter].map(|name| std::ffi::CString::new(name).unwrap());
    // SAFETY: C strings; a library that is loaded already, and its function without arguments.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        assert!(!library.is_null(), "the simulated GPU is loaded");
        let count = libc::dlsym(library, counter.as_ptr());
        assert!(!count.is_null(), "the simulated GPU counts this");
        Some(std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> u64>(count)())
    }
}
