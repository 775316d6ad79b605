//! Debug builds find data races of ops; see "Threads" at [`Tensor`].

#![cfg(debug_assertions)]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use torchrs::{Dtype, Tensor, catch, no_grad};

/// Large enough that an op on it takes longer than a thread's turn to start.
const LARGE: usize = 1 << 22;

/// Calls both again and again on two threads, until one panics or the time is over; the panic's
/// message.
fn together(first: impl Fn() + Sync, second: impl Fn() + Sync, time: Duration) -> Option<String> {
    let (start, over) = (Instant::now(), AtomicBool::new(false));
    let again = |f: &dyn Fn()| {
        let mut found = None;
        while found.is_none() && !over.load(Relaxed) && start.elapsed() < time {
            found = catch(f).err().map(|error| error.to_string());
        }
        over.store(true, Relaxed);
        found
    };
    thread::scope(|s| {
        let other = s.spawn(|| again(&second));
        let found = again(&first);
        found.or(other.join().expect("panics are caught"))
    })
}

#[test]
fn a_read_beside_an_in_place_op_is_found() {
    let x = Tensor::zeros([LARGE], Dtype::F32);
    let write = || _ = x.add_(1.0);
    let read = || _ = x.sum();
    let message = together(write, read, Duration::from_secs(60)).expect("a race");
    for part in ["data race", "`add`", "`sum`", "tests/api/races.rs:", "writes", "reads"] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn an_optimizer_step_beside_a_forward_is_found() {
    let w = Tensor::zeros([LARGE], Dtype::F32);
    let step = || no_grad(|| _ = w.copy_(&w.zeros_like()));
    let message = together(step, || _ = w.exp(), Duration::from_secs(60)).expect("a race");
    assert!(message.contains("`copy_`") && message.contains("`exp`"), "{message}");
}

#[test]
fn disjoint_views_and_common_reads_are_no_race() {
    let x = Tensor::zeros([2, LARGE / 2], Dtype::F32);
    let (upper, lower) = (x.select(0, 0), x.select(0, 1));
    let factor = Tensor::full([LARGE / 2], 0.5, Dtype::F32);
    let change = |view: &Tensor| _ = view.mul_(&factor).add_(1.0);
    assert_eq!(together(|| change(&upper), || change(&lower), Duration::from_millis(300)), None);
    // Columns lie between each other, and have no byte in common either.
    let columns = Tensor::zeros([64, 2], Dtype::F32);
    let (left, right) = (columns.select(1, 0), columns.select(1, 1));
    let fill = |view: &Tensor| _ = view.add_(1.0);
    assert_eq!(together(|| fill(&left), || fill(&right), Duration::from_millis(300)), None);
}

#[test]
fn shared_memory_is_left_alone() {
    let x = Tensor::zeros([LARGE], Dtype::F32);
    x.storage().share_memory().expect("memory");
    let race = together(|| _ = x.add_(1.0), || _ = x.add_(1.0), Duration::from_millis(300));
    assert_eq!(race, None);
}
