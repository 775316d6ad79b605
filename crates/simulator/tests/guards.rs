//! Forbidden pages beside blocks of any size. Each test breaks its context, in a process of its own.

mod support;
use support::*;
use torchrs_simulated_gpu::api::driver::stream::*;

/// Runs a kernel that writes one byte at a distance from the beginning of a block of 1001 bytes, or
/// reads it; what is said.
fn at(test: &str, guard: &str, access: &str, distance: i64, faults: bool) -> Option<String> {
    if !has_compiler() {
        return None;
    }
    if !is_child() {
        let variables = [("TORCHRS_SIMULATED_GUARD", guard)];
        return Some(run_child(test, &variables));
    }
    device(0);
    let source =
        format!("extern \"C\" __global__ void k(volatile char* x, long long n) {{ {access} }}");
    let (stream, x) = (stream(), alloc(1001));
    let k = function(load(&source), c"k");
    let last = 1000i64;
    ok(launch(k, 1, 1, 0, stream, &[arg(&x), arg(&0i64)]));
    ok(launch(k, 1, 1, 0, stream, &[arg(&x), arg(&last)]));
    ok(cuStreamSynchronize(stream));
    ok(launch(k, 1, 1, 0, stream, &[arg(&x), arg(&distance)]));
    let code = cuStreamSynchronize(stream);
    assert_eq!(name(code) == "CUDA_ERROR_ILLEGAL_ADDRESS", faults);
    None
}

#[test]
fn a_read_right_after_the_end_is_found() {
    let test = "a_read_right_after_the_end_is_found";
    if let Some(said) = at(test, "1", "char c = x[n]; (void)c;", 1001, true) {
        assert!(said.contains("kernel `k`") && said.contains("illegal address"), "{said}");
        assert!(said.contains("0 bytes after the end of the allocation of 1001 bytes"), "{said}");
    }
}

#[test]
fn a_write_into_the_margin_is_found_when_the_kernel_is_done() {
    let test = "a_write_into_the_margin_is_found_when_the_kernel_is_done";
    if let Some(said) = at(test, "16", "x[n] = 1;", 1003, true) {
        assert!(said.contains("kernel `k`, or one beside it: a write to"), "{said}");
        assert!(said.contains("2 bytes after the end of the allocation of 1001 bytes"), "{said}");
    }
}

#[test]
fn a_read_right_before_the_beginning_is_found() {
    let test = "a_read_right_before_the_beginning_is_found";
    if let Some(said) = at(test, "start", "char c = x[n]; (void)c;", -1, true) {
        assert!(said.contains("1 bytes before the allocation of 1001 bytes"), "{said}");
    }
}

#[test]
fn a_read_within_the_margin_is_not_found() {
    at("a_read_within_the_margin_is_not_found", "16", "char c = x[n]; (void)c;", 1003, false);
}
