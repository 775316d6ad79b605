//! What goes wrong in a job without a launcher is known to all ranks, soon and by its name, and nothing stays behind.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use torchrs::distributed::{ReduceOp, Store, WorkerEnv};
use torchrs::multiprocessing::Channel;
use torchrs::multiprocessing::report::monotonic_ns;
use torchrs::{Error, Result};

use super::{Job, LONG, Starter, join_job, ones};

/// Says that it runs, then reduces until a peer is gone; when that was and what the error says.
fn reduces_for_ever(_: (), parent: Channel<(u64, String), ()>) -> Result<()> {
    let group = join_job()?;
    for round in 0u64.. {
        if let Err(error) = group.all_reduce(&ones(1000), ReduceOp::Avg) {
            parent.send(&(monotonic_ns(), error.to_string()))?;
            return Err(error);
        }
        if round == 20 {
            parent.send(&(0, "running".into()))?;
        }
    }
    Ok(())
}

#[test]
fn a_killed_rank_is_known_by_all_within_a_second() {
    // Rank 0 may be the one that has started the process that stands in for the launcher.
    for (starter, layout, victim) in [
        (Starter::Slurm, &[3][..], 1),
        (Starter::Slurm, &[3], 0),
        (Starter::OpenMpi, &[2, 2], 3),
        (Starter::OpenMpi, &[2, 2], 0),
        (Starter::Hand, &[1, 1], 1),
    ] {
        let job = Job::new(starter, layout);
        let ranks = job.start_all(reduces_for_ever);
        ranks.iter().for_each(|(_, channel)| drop(channel.recv_timeout(LONG).unwrap()));
        let killed = monotonic_ns();
        ranks[victim].0.kill().unwrap();
        let died = format!("rank {victim} (pid {}) died: ", ranks[victim].0.pid());
        for (rank, (process, channel)) in ranks.iter().enumerate().filter(|(r, _)| *r != victim) {
            let (seen, text) = channel.recv_timeout(LONG).unwrap();
            let after = Duration::from_nanos(seen - killed);
            println!("{layout:?}: rank {rank} knew after {after:?}: {text}");
            assert!(text.starts_with(&died), "{layout:?}: {text}");
            assert!(after < Duration::from_secs(1), "{layout:?}: rank {rank} after {after:?}");
            assert!(process.join_timeout(LONG).is_err());
        }
        assert!(job.is_gone_within(Duration::from_secs(8)), "{layout:?}");
    }
}

/// One rank is there and ends before the group is.
fn ends_early(_: (), parent: Channel<String, ()>) -> Result<()> {
    let env = WorkerEnv::from_env()?;
    if env.rank == env.world_size - 1 {
        Store::from_env(LONG)?;
        std::process::exit(0);
    }
    parent.send(&join_job().unwrap_err().to_string())
}

#[test]
fn a_rank_that_ends_before_it_joins_is_not_waited_for() {
    for (starter, layout) in
        [(Starter::Slurm, &[3][..]), (Starter::OpenMpi, &[2, 2]), (Starter::OpenMpi, &[1, 1])]
    {
        let job = Job::new(starter, layout);
        let start = Instant::now();
        let ranks = job.start_all(ends_early);
        let (last, others) = ranks.split_last().unwrap();
        for (rank, (_, channel)) in others.iter().enumerate() {
            let text = channel.recv_timeout(LONG).unwrap();
            let part = format!("rank {} has ended without joining", others.len());
            println!("{layout:?}: rank {rank}: {text}");
            assert!(text.contains(&part) && text.contains("has exited"), "{layout:?}: {text}");
        }
        last.0.join_timeout(LONG).unwrap();
        assert!(start.elapsed() < Duration::from_secs(10), "{layout:?}: {:?}", start.elapsed());
        assert!(job.is_gone_within(Duration::from_secs(5)), "{layout:?}");
    }
}

/// Goes on when told that the process that stood in for the launcher is gone.
fn survives(_: (), parent: Channel<String, ()>) -> Result<()> {
    let group = join_job()?;
    let store = Store::from_env(LONG)?;
    group.barrier()?;
    parent.send(&"ready".to_owned())?;
    parent.recv()?;
    // What waits at the store is told at once.
    let start = Instant::now();
    let error = store.get("nobody sets this", LONG).unwrap_err();
    assert!(
        matches!(error, Error::Store(_)) && start.elapsed() < Duration::from_secs(5),
        "{error}"
    );
    // Groups that are there need it no more.
    group.all_reduce(&ones(10), ReduceOp::Sum)?;
    parent.send(&error.to_string())?;
    group.barrier()
}

#[test]
fn the_death_of_what_stands_in_for_the_launcher_is_no_hang() {
    for (starter, layout) in [(Starter::Slurm, &[3][..]), (Starter::OpenMpi, &[2, 2])] {
        let job = Job::new(starter, layout);
        let ranks = job.start_all(survives);
        ranks.iter().for_each(|(_, channel)| drop(channel.recv_timeout(LONG).unwrap()));
        let found = job.stand_ins();
        assert_eq!(found.len(), layout.len());
        // Signals that reach the whole job are for its workers.
        for pid in found.iter().map(|pid| Pid::from_raw(*pid)) {
            for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1] {
                kill(pid, signal).unwrap();
            }
        }
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(job.stand_ins().len(), layout.len());
        for pid in found {
            kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        }
        ranks.iter().for_each(|(_, channel)| channel.send(&()).unwrap());
        for (process, channel) in &ranks {
            let text = channel.recv_timeout(LONG).map_err(|_| process.join_timeout(LONG));
            assert!(text.as_ref().is_ok_and(|text| text.contains("the store is gone")), "{text:?}");
        }
        ranks.iter().for_each(|(process, _)| process.join_timeout(LONG).unwrap());
    }
}

/// Exits with a code of its own.
fn fails(_: (), _: Channel<(), ()>) -> Result<()> {
    let group = join_job()?;
    group.barrier()?;
    if group.rank() == 1 {
        std::process::exit(7);
    }
    group.barrier()
}

#[test]
fn every_task_ends_with_a_code_that_its_starter_sees() {
    let job = Job::new(Starter::Slurm, &[3]);
    let ranks = job.start_all(fails);
    let codes: Vec<i32> =
        ranks.iter().map(|(process, _)| process.wait_timeout(LONG).unwrap().shell_code()).collect();
    assert_eq!(codes, [1, 7, 1]);
}
