//! Tests of the compiler of kernels; those that need it are left out where it is not installed.

use std::thread;

use super::*;
use crate::kernels::compile::code::{code, options_for};
use crate::kernels::compile::disk_cache::DiskCache;
use crate::kernels::compile::nvrtc::Compiler;
use crate::simulated_test::on_gpu_with;

static ADD: Program = Program::new(
    "add",
    "#define INDEX (blockIdx.x * (long long)blockDim.x + threadIdx.x)",
    r#"extern "C" __global__ void add(float* x, const float* y, long long n) {
    long long i = INDEX;
    if (i < n) x[i] += y[i];
}"#,
);
static WRONG: Program =
    Program::new("wrong", "int in_the_prelude;", "\n__global__ void f() { no; }");

/// The compiler, or none where it is not installed: these tests need no GPU but a compiler.
fn installed() -> Option<&'static Compiler> {
    compiler().inspect_err(|error| println!("skipped: {error}")).ok()
}

/// Compiles without a cache on disk.
fn compile_now(program: &Program, capability: (u32, u32)) -> Result<Arc<[u8]>> {
    code(program, capability, &DiskCache::none()).map(|code| code.bytes.clone())
}

#[test]
fn options_name_the_architecture() {
    static PROGRAM: Program = Program::new("s", "", "").options(&["-G"]);
    let options = options_for(&PROGRAM, (9, 0), true);
    assert_eq!(options[0], "--gpu-architecture=sm_90a");
    assert_eq!(options.last().unwrap(), "-G");
    // Code that runs on later GPUs of the generation, too.
    assert_eq!(options_for(&PROGRAM, (10, 0), false)[0], "--gpu-architecture=sm_100");
    assert_eq!(options_for(&PROGRAM, (8, 0), true)[0], "--gpu-architecture=sm_80");
}

#[test]
fn kernels_compile_for_several_architectures_without_a_gpu() {
    if installed().is_none() {
        return;
    }
    let codes = [(8, 0), (9, 0)].map(|capability| compile_now(&ADD, capability).unwrap());
    assert!(codes.iter().all(|code| code.starts_with(b"\x7fELF")));
    assert_ne!(codes[0], codes[1]);
}

#[test]
fn a_later_gpu_of_a_known_generation_gets_the_first_ones_code() {
    if installed().is_none() {
        return;
    }
    assert!(compile_now(&ADD, (9, 7)).unwrap().starts_with(b"\x7fELF"));
}

#[test]
fn a_later_gpu_gets_intermediate_code_of_the_newest_architecture_that_is_known() {
    let Some(compiler) = installed() else { return };
    let (major, minor) = compiler.newest_architecture((7777, 7)).unwrap();
    assert!((major, minor) >= (9, 0));
    assert_eq!(compiler.newest_architecture((9, 0)), Some((9, 0)));
    let code = compile_now(&ADD, (7777, 7)).unwrap();
    let text = String::from_utf8_lossy(&code);
    assert!(text.contains(&format!(".target sm_{major}{minor}")) && text.ends_with('\0'), "{text}");
}

/// The simulated GPU is one of an architecture that the compiler does not know.
fn run_intermediate_code() {
    match compile_now(&ADD, (9, 0)) {
        Ok(code) => load("add", 0, &code).map(drop).unwrap(),
        Err(error) => println!("skipped: {error}"),
    }
    let error = compile_now(&WRONG, (9, 0)).unwrap_err().to_string();
    assert!(error.contains("compute_89"), "{error}");
}

#[test]
fn the_driver_compiles_for_a_gpu_that_is_newer_than_the_compiler() {
    let test =
        "kernels::module::tests::the_driver_compiles_for_a_gpu_that_is_newer_than_the_compiler";
    on_gpu_with(test, &[("TORCHRS_SIMULATED_FAULT", "old-nvrtc")], run_intermediate_code);
}

#[test]
fn an_error_carries_the_log_with_the_sources_lines() {
    if installed().is_none() {
        return;
    }
    let error = compile_now(&WRONG, (9, 0)).unwrap_err().to_string();
    assert!(error.contains("wrong.cu does not compile"), "{error}");
    assert!(error.contains("wrong.cu(2)") && error.contains("no"), "{error}");
}

#[test]
fn several_threads_compile_once_and_get_the_same_code() {
    if installed().is_none() {
        return;
    }
    let codes: Vec<_> = thread::scope(|scope| {
        let ask = || compile_now(&ADD, (8, 6)).unwrap();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(codes.iter().all(|code| Arc::ptr_eq(code, &codes[0])));
}

const ENDS: &str = "TORCHRS_TEST_ENDS_WHILE_IT_COMPILES";

#[test]
#[ignore = "a part of the test below"]
fn a_process_that_ends_while_it_compiles() {
    let Ok(pause) = std::env::var(ENDS) else { return };
    compiler().unwrap();
    let compiling = thread::spawn(|| {
        (10..100).for_each(|n| {
            let functions = |f| format!("extern \"C\" __global__ void f{f}(float* x) {{ for (int i = 0; i < {n}; i++) x[i] = sinf(x[i + {f}]) * expf(x[i]); }}\n");
            let source = (0..40).map(functions).collect();
            let _ = compile_now(&Program::owned("long", "", source), (9, 0));
        });
    });
    thread::sleep(std::time::Duration::from_millis(pause.parse().unwrap()));
    // Else nothing was compiled at the end.
    std::process::exit(if compiling.is_finished() { 4 } else { 3 });
}

#[test]
fn the_end_of_a_process_waits_for_what_is_being_compiled() {
    if installed().is_none() {
        return;
    }
    for pause in ["150", "400", "800"] {
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "kernels::module::tests::a_process_that_ends_while_it_compiles",
            ])
            .env(ENDS, pause)
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(3), "after {pause} ms: {status}");
    }
}
