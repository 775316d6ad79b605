//! Every item of a loop is done once, by whatever threads.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use torchrs_cpu::threads::{parallel_for, parallel_items, set_num_threads};
use torchrs_error::{Error, throw};

#[test]
fn every_item_is_done_once() {
    for n in [0, 1, 7, 100, 1001] {
        let seen: Vec<AtomicU32> = (0..n).map(|_| AtomicU32::new(0)).collect();
        parallel_for(n, 10, |range| range.for_each(|i| _ = seen[i].fetch_add(1, Relaxed)));
        assert!(seen.iter().all(|s| s.load(Relaxed) == 1), "{n} items");
    }
}

#[test]
fn every_item_of_an_uneven_loop_is_done_once() {
    for n in [0, 1, 7, 100, 1001] {
        let seen: Vec<AtomicU32> = (0..n).map(|_| AtomicU32::new(0)).collect();
        parallel_items(n, 3, |item| {
            if item < n / 4 {
                std::thread::sleep(std::time::Duration::from_micros(10));
            }
            seen[item].fetch_add(1, Relaxed);
        });
        assert!(seen.iter().all(|s| s.load(Relaxed) == 1), "{n} items");
    }
}

#[test]
fn a_nested_loop_runs_inline_and_a_panic_comes_back() {
    let count = AtomicUsize::new(0);
    parallel_for(64, 1, |range| {
        parallel_for(range.len(), 1, |inner| _ = count.fetch_add(inner.len(), Relaxed));
    });
    assert_eq!(count.load(Relaxed), 64);
    let error = torchrs_error::catch(|| {
        parallel_for(64, 1, |range| {
            if range.contains(&63) {
                throw(Error::shape("test", "from a helper"));
            }
        })
    });
    assert_eq!(error.unwrap_err().to_string(), "test: from a helper");
}

#[test]
fn loops_of_many_threads_at_once_are_all_done() {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 1..300 {
                    let sum = AtomicUsize::new(0);
                    parallel_for(round, 1, |range| {
                        range.for_each(|i| _ = sum.fetch_add(i, Relaxed));
                    });
                    assert_eq!(sum.into_inner(), round * (round - 1) / 2);
                }
            });
        }
    });
}

#[test]
fn a_loop_that_comes_when_all_sleep_is_done() {
    for pause in [0, 1, 5, 20] {
        std::thread::sleep(std::time::Duration::from_millis(pause));
        let slow = AtomicUsize::new(0);
        parallel_for(8, 1, |range| {
            std::thread::sleep(std::time::Duration::from_millis(2));
            slow.fetch_add(range.len(), Relaxed);
        });
        assert_eq!(slow.into_inner(), 8);
    }
}

#[test]
fn zero_threads_are_refused() {
    let message = torchrs_error::catch(|| set_num_threads(0)).unwrap_err().to_string();
    assert!(message.contains("set_num_threads"), "{message}");
}
