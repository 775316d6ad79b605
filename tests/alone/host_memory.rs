//! Large blocks of host memory: what is freed serves blocks of other sizes, and a limit of the
//! process' addresses is met by an error and not by the death of the process.

use std::process::Command;

use torchrs::storage::memory_stats;
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
    assert!(error.contains("out of host memory: 4294967296 bytes asked for"), "{error}");
    assert_eq!(ones(300).sum().item(), f64::from(300 << 18));
    assert_eq!(kept.sum().item(), f64::from(100 << 18));
}
