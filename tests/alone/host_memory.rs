//! Large blocks of host memory: what is freed serves blocks of other sizes, and a limit of the
//! process' addresses is met by an error and not by the death of the process.

use std::process::Command;

use torchrs::storage::{memory_stats, set_host_memory_limit};
use torchrs::{Dtype, Tensor, catch};

/// Set in the process whose addresses are limited.
const LIMITED: &str = "TORCHRS_TEST_LIMITED";

fn ones(mebibytes: usize) -> Tensor {
    Tensor::ones([mebibytes << 18], Dtype::F32)
}

#[test]
fn a_large_block_lies_where_smaller_ones_were() {
    let _alone = super::alone();
    let small: Vec<Tensor> = (0..8).map(|_| ones(8)).collect();
    let before = memory_stats().reserved;
    drop(small);
    let large = ones(64);
    assert_eq!(memory_stats().reserved, before);
    assert_eq!(large.sum().item(), f64::from(64 << 18));
}

/// 1.5 GB of addresses: a request that does not fit is an error, before and after which others are
/// served, from what was freed and from the system.
#[test]
fn limited_addresses() {
    if std::env::var_os(LIMITED).is_none() {
        let limit = "ulimit -v 1500000; exec \"$0\" \"$@\"";
        let itself = std::env::current_exe().unwrap();
        let output = Command::new("sh")
            .args(["-c", limit])
            .arg(itself)
            .args(["--exact", "host_memory::limited_addresses"])
            .env(LIMITED, "1")
            .output();
        let output = output.unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let kept = ones(100);
    for _ in 0..20 {
        assert_eq!(ones(200).sum().item(), f64::from(200 << 18));
    }
    let error = catch(|| ones(4096)).unwrap_err().to_string();
    assert!(
        error.contains(
            "out of memory: the host has no room for 4.00 GiB: 4294967296 bytes asked for"
        ),
        "{error}"
    );
    assert_eq!(ones(300).sum().item(), f64::from(300 << 18));
    assert_eq!(kept.sum().item(), f64::from(100 << 18));
}

#[test]
fn the_largest_living_tensors_are_named_when_memory_runs_out() {
    let _alone = super::alone();
    let weights: Vec<Tensor> = (0..3).map(|_| ones(16)).collect();
    let (line, batch) = (line!(), Tensor::zeros([40, 1 << 18], Dtype::I32));
    let gone = ones(64);
    drop(gone);
    set_host_memory_limit(Some(memory_stats().in_use + (32 << 20)));
    let fits = ones(16);
    let error = catch(|| ones(48)).unwrap_err();
    set_host_memory_limit(None);
    let text = error.to_string();
    assert!(matches!(error, torchrs::Error::OutOfMemory(_)), "{text}");
    assert!(text.starts_with("out of memory: the host has no room for 48.00 MiB: "), "{text}");
    assert!(text.contains("(set_host_memory_limit)"), "{text}");
    let of_weights = "4 x 16.00 MiB f32 [4194304], made at tests/alone/host_memory.rs:13:";
    let of_batch =
        format!("40.00 MiB i32 [40, 262144], made at tests/alone/host_memory.rs:{line}:");
    let places = [of_weights, &of_batch].map(|part| text.find(part));
    assert!(places[0].is_some() && places[0] < places[1], "{text}");
    assert!(!text.contains("64.00 MiB"), "{text}");
    drop((weights, batch, fits));
    assert_eq!(ones(48).sum().item(), f64::from(48 << 18));
}
