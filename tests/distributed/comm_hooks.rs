//! Communication hooks of data-parallel training, on the CPU with real processes.

#[path = "checks/comm_hooks.rs"]
mod checks;

use std::sync::atomic::{AtomicU32, Ordering};

use torchrs::distributed::{ProcessGroup, init_process_group};
use torchrs::multiprocessing::Process;
use torchrs::{Device, Result};

/// Runs `check`, which captures nothing, on `world` ranks.
fn run<F>(world: usize, check: F)
where
    F: Fn(&ProcessGroup) -> Result<()> + Copy + 'static,
{
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let job = format!("comm-hooks-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let start = |rank: usize| {
        let worker = Process::builder()
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", world.to_string())
            .env("MASTER_ADDR", &job)
            .env("MASTER_PORT", "1");
        let body = move |_: ()| {
            let group = init_process_group(Default::default())?;
            let result = check(&group);
            // Rank 0 has the store: it stays until the others are through.
            let _ = group.barrier();
            result
        };
        worker.spawn(body, ()).expect("a process starts")
    };
    let ranks: Vec<Process> = (0..world).map(start).collect();
    ranks.iter().for_each(|rank| rank.join().expect("the rank succeeds"));
}

#[test]
fn hooks_average_gradients_beside_backward() {
    run(2, |group| {
        checks::averages(group, Device::Cpu)?;
        checks::runs_beside_backward(group, Device::Cpu)
    });
    run(3, |group| checks::keeps_the_order_of_collectives(group, Device::Cpu));
}

#[test]
fn power_sgd_approximates_the_mean() {
    run(3, |group| {
        checks::approximates(group, Device::Cpu)?;
        checks::feeds_errors_back(group, Device::Cpu)
    });
}

#[test]
fn row_33_a_hook_that_gives_a_wrong_shape_or_dtype_is_named() {
    run(2, |group| checks::refuses_a_wrong_result(group, Device::Cpu, false));
    run(2, |group| checks::refuses_a_wrong_result(group, Device::Cpu, true));
}

#[test]
fn a_hook_that_fails_on_one_rank_ends_the_others_backward() {
    run(2, |group| checks::fails_on_one_rank(group, Device::Cpu));
}
