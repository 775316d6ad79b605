//! What the tests have in common: devices, memory and kernels through the C functions, and tests that
//! start themselves anew with other variables.
#![allow(dead_code)]

use std::ffi::{CStr, CString, c_char, c_void};
use std::process::{Command, Output};
use std::ptr::{null, null_mut};
use std::sync::Once;
use torchrs_simulated_gpu::api::driver::{
    context::*, init::*, kernel::*, memcpy::*, memory::*, module::*, stream::*,
};
use torchrs_simulated_gpu::api::nvrtc::{Outcome, program::*};
pub use torchrs_simulated_gpu::{Code, Handle};

/// Set in a process that a test started.
pub const CHILD: &str = "TORCHRS_SIMULATED_TEST_CHILD";

/// Panics with the code's name unless it is success.
#[track_caller]
pub fn ok(code: Code) {
    if code != Code::SUCCESS {
        panic!("{}", name(code));
    }
}

/// A code's name.
pub fn name(code: Code) -> String {
    let mut name = null();
    cuGetErrorName(code, &mut name);
    if name.is_null() {
        return format!("code {}", code.0);
    }
    // SAFETY: the driver gives a constant C string.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// Makes a device's context current on this thread; there are four devices unless a variable says otherwise.
pub fn device(number: i32) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if std::env::var_os("TORCHRS_SIMULATE_GPUS").is_none() {
            // SAFETY: the first thing that a test does, before the driver reads its variables.
            unsafe { std::env::set_var("TORCHRS_SIMULATE_GPUS", "4") };
        }
    });
    ok(cuInit(0));
    let mut context = null_mut();
    ok(cuDevicePrimaryCtxRetain(&mut context, number));
    ok(cuCtxSetCurrent(context));
}

/// A new stream.
pub fn stream() -> Handle {
    let mut stream = null_mut();
    ok(cuStreamCreateWithPriority(&mut stream, 1, 0));
    stream
}

/// Device memory.
pub fn alloc(bytes: usize) -> u64 {
    let mut pointer = 0;
    ok(cuMemAlloc_v2(&mut pointer, bytes));
    pointer
}

/// Device memory with these values, which have been read.
pub fn upload<T: Copy>(values: &[T], stream: Handle) -> u64 {
    let pointer = alloc(size_of_val(values));
    ok(cuMemcpyHtoDAsync_v2(pointer, values.as_ptr().cast(), size_of_val(values), stream));
    ok(cuStreamSynchronize(stream));
    pointer
}

/// Values of device memory.
pub fn download<T: Copy + Default>(pointer: u64, count: usize, stream: Handle) -> Vec<T> {
    let mut values = vec![T::default(); count];
    ok(cuMemcpyDtoHAsync_v2(values.as_mut_ptr().cast(), pointer, size_of_val(&values[..]), stream));
    values
}

/// Compiles a source; the image, or the log.
pub fn compile(source: &str, options: &[&str]) -> Result<Vec<u8>, String> {
    let source = CString::new(source).unwrap();
    let options: Vec<CString> =
        options.iter().map(|option| CString::new(*option).unwrap()).collect();
    let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let mut program = null_mut();
    let made =
        nvrtcCreateProgram(&mut program, source.as_ptr(), c"test.cu".as_ptr(), 0, null(), null());
    assert_eq!(made, Outcome::SUCCESS);
    let outcome = nvrtcCompileProgram(program, options.len() as i32, options.as_ptr());
    let mut size = 0;
    assert_eq!(nvrtcGetProgramLogSize(program, &mut size), Outcome::SUCCESS);
    let mut log = vec![0u8; size];
    assert_eq!(nvrtcGetProgramLog(program, log.as_mut_ptr().cast()), Outcome::SUCCESS);
    let log = String::from_utf8_lossy(&log[..size - 1]).into_owned();
    if outcome != Outcome::SUCCESS {
        nvrtcDestroyProgram(&mut program);
        return Err(format!("{outcome:?}: {log}"));
    }
    assert_eq!(nvrtcGetCUBINSize(program, &mut size), Outcome::SUCCESS);
    let mut image = vec![0u8; size];
    assert_eq!(nvrtcGetCUBIN(program, image.as_mut_ptr().cast()), Outcome::SUCCESS);
    assert_eq!(nvrtcDestroyProgram(&mut program), Outcome::SUCCESS);
    Ok(image)
}

/// Compiles and loads a source; its module.
pub fn load(source: &str) -> Handle {
    let image =
        compile(source, &["--gpu-architecture=sm_90"]).unwrap_or_else(|log| panic!("{log}"));
    let mut module = null_mut();
    ok(cuModuleLoadData(&mut module, image.as_ptr().cast()));
    module
}

/// A module on the first device; none, which is said, where nothing can be compiled.
pub fn compiled(source: &str) -> Option<Handle> {
    has_compiler().then(|| {
        device(0);
        load(source)
    })
}

/// A kernel of a module.
pub fn function(module: Handle, name: &CStr) -> Handle {
    let mut function = null_mut();
    ok(cuModuleGetFunction(&mut function, module, name.as_ptr()));
    function
}

/// Launches a kernel with pointers to its arguments; the code of the launch.
pub fn launch(
    function: Handle,
    grid: u32,
    block: u32,
    shared: u32,
    stream: Handle,
    arguments: &[*const c_void],
) -> Code {
    let arguments = arguments.as_ptr() as *mut *mut c_void;
    cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared, stream, arguments, null_mut())
}

/// A pointer to an argument.
pub fn arg<T>(value: &T) -> *const c_void {
    std::ptr::from_ref(value).cast()
}

/// Whether kernels can be compiled here; says so where they cannot.
pub fn has_compiler() -> bool {
    let found = torchrs_simulated_gpu::has_compiler();
    if !found {
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        println!("skipped: {test}: no C++ compiler is installed");
    }
    found
}

/// Whether this is the process that a test started for itself.
pub fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// A command that runs one test of this executable in a process of its own, with these variables.
pub fn child(test: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .envs(variables.iter().copied());
    command
}

/// Runs a test in a process of its own, which must succeed.
pub fn run_child(test: &str, variables: &[(&str, &str)]) -> String {
    let output = child(test, variables).output().unwrap();
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    said
}

/// All that a process said.
pub fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
