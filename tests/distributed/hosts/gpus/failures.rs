//! What goes wrong with GPUs on one host is known on all, soon, and by its name.

use std::time::{Duration, Instant};

use torchrs::distributed::{ProcessGroup, ReduceOp};
use torchrs::multiprocessing::Channel;
use torchrs::multiprocessing::report::monotonic_ns;
use torchrs::{Device, Dtype, Error, Result, Tensor};

use super::super::{LONG, gpu, join_job, start_on_gpus};

fn ones(len: usize) -> Tensor {
    Tensor::ones([len], (Dtype::F32, gpu()))
}

/// Waits until a call is done, or has failed.
fn reduce(group: &ProcessGroup, x: &Tensor) -> Result<()> {
    group.all_reduce_async(x, ReduceOp::Avg)?.wait_timeout(LONG).map(drop)
}

/// The last host calls something else: at once, or after calls that agree.
fn differs((how, after): (String, usize), parent: Channel<String, ()>) -> Result<()> {
    let group = join_job()?;
    (0..after).try_for_each(|_| reduce(&group, &ones(10)))?;
    let start = Instant::now();
    let ended = match (how.as_str(), group.rank() >= 2) {
        (_, false) => reduce(&group, &ones(10)),
        ("shape", true) => reduce(&group, &ones(11)),
        ("call", true) => {
            let x = ones(10);
            group.broadcast_async(&x, 0)?.wait_timeout(LONG).map(drop)
        }
        ("place", true) => group.barrier(),
        (other, _) => panic!("{other}"),
    };
    let Err(error) = ended else { panic!("{how}: they differ") };
    assert!(matches!(error, Error::Mismatch(_)), "{how}: {error}");
    assert!(start.elapsed() < Duration::from_secs(2), "{how}: after {:?}", start.elapsed());
    // The group is of no more use, and says why.
    let again = group.barrier().unwrap_err().to_string();
    assert_eq!(again, error.to_string());
    parent.send(&again)
}

#[test]
fn hosts_that_call_different_things_are_told_so() {
    for (how, theirs) in [
        ("shape", "all_reduce(avg, f32, [11], cuda)"),
        ("call", "broadcast(root 0, f32, [10], cuda)"),
        ("place", "barrier"),
    ] {
        for after in [0, 3] {
            let given = (how.to_owned(), after);
            let Some((_hosts, ranks)) = start_on_gpus(&[2, 2], 60.0, differs, &given) else {
                return;
            };
            for (rank, (_, channel)) in ranks.iter().enumerate() {
                let text = channel.recv_timeout(LONG).unwrap();
                println!("{how} after {after}: rank {rank}: {text}");
                // A group's first collective is its rendezvous; the first one on GPUs needs another one.
                let number = format!("in collective {} rank 0 called", 2 + after + after.min(1));
                let ours = "all_reduce(avg, f32, [10], cuda)";
                let both = text.contains(ours) && text.contains(theirs);
                assert!(both && text.contains("rank 2 called"), "{how} after {after}: {text}");
                assert!(text.contains(&number), "{how} after {after}: {text}");
            }
        }
    }
}

/// Says that it runs, then reduces until a peer is gone; when that was and what the error says.
fn reduces_for_ever(_: (), parent: Channel<(u64, String), ()>) -> Result<()> {
    let group = join_job()?;
    let x = ones(30_000);
    for round in 0u64.. {
        if let Err(error) = reduce(&group, &x) {
            parent.send(&(monotonic_ns(), error.to_string()))?;
            return Err(error);
        }
        if round == 10 {
            parent.send(&(0, "running".into()))?;
        }
    }
    Ok(())
}

#[test]
fn a_killed_rank_is_known_by_all_hosts_within_a_second() {
    for (layout, victim) in [(&[2, 2][..], 3), (&[2, 2], 2), (&[1, 1], 0)] {
        let Some((_hosts, ranks)) = start_on_gpus(layout, 60.0, reduces_for_ever, &()) else {
            return;
        };
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
    }
}

/// One rank fails in its own way while the others' GPUs wait.
fn fails((how, who): (String, usize), parent: Channel<String, ()>) -> Result<()> {
    let group = join_job()?;
    let first = reduce(&group, &ones(10));
    if group.rank() == who {
        first?;
        match how.as_str() {
            "panic" => panic!("bad sample"),
            "abort" => group.abort("no data left"),
            "leave" => {
                drop(group);
                std::thread::sleep(Duration::from_secs(2));
            }
            "sleep" => std::thread::sleep(Duration::from_secs(5)),
            other => panic!("{other}"),
        }
        return Ok(());
    }
    let start = Instant::now();
    // The failing rank may be through with the first call before this one is.
    let error = first.and_then(|()| reduce(&group, &ones(10))).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(4), "after {:?}", start.elapsed());
    assert!(group.check().is_err());
    parent.send(&error.to_string())
}

#[test]
fn a_failure_on_one_host_is_told_on_all() {
    for who in [2, 3] {
        let rank = format!("rank {who}");
        for (how, part) in [
            ("panic", "panicked"),
            ("abort", "no data left"),
            ("leave", "has left the process group"),
            ("sleep", "timed out"),
        ] {
            let limit = if how == "sleep" { 1.5 } else { 60.0 };
            let given = (how.to_owned(), who);
            let Some((_hosts, ranks)) = start_on_gpus(&[2, 2], limit, fails, &given) else {
                return;
            };
            for (other, (process, channel)) in ranks.iter().enumerate().filter(|(r, _)| *r != who) {
                let text = channel.recv_timeout(LONG).unwrap_or_else(|error| {
                    panic!(
                        "{how} of {rank}: rank {other}: {error}: {:?}",
                        process.join_timeout(LONG)
                    )
                });
                println!("{how} of rank {who}: rank {other}: {text}");
                assert!(text.contains(part), "{how} of {rank}: rank {other}: {text}");
                assert!(text.contains(&rank), "{how} of {rank}: rank {other}: {text}");
            }
        }
    }
}

/// A whole host comes late, for which nobody on its side waits.
fn comes_late(_: (), parent: Channel<String, ()>) -> Result<()> {
    let group = join_job()?;
    (0..4).try_for_each(|_| reduce(&group, &ones(10)))?;
    if group.rank() >= 2 {
        std::thread::sleep(Duration::from_secs(4));
        return Ok(());
    }
    parent.send(&reduce(&group, &ones(10)).unwrap_err().to_string())
}

#[test]
fn a_host_that_does_not_come_by_the_deadline_is_named() {
    let Some((_hosts, ranks)) = start_on_gpus(&[2, 2], 1.5, comes_late, &()) else { return };
    for (_, channel) in &ranks[..2] {
        let text = channel.recv_timeout(LONG).unwrap();
        println!("{text}");
        for part in ["timed out", "rank 2 on host", "last collective 6, all_reduce(avg, f32, [10]"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

fn shares(_: (), parent: Channel<String, ()>) -> Result<()> {
    let group = join_job()?;
    // Both ranks of a host on its first GPU.
    let x = Tensor::ones([3], (Dtype::F32, Device::Cuda(0)));
    parent.send(&group.all_reduce(&x, ReduceOp::Sum).unwrap_err().to_string())
}

#[test]
fn one_gpu_for_two_ranks_of_a_host_is_an_error_on_all() {
    let Some((_hosts, ranks)) = start_on_gpus(&[2, 1], 60.0, shares, &()) else { return };
    for (_, channel) in &ranks {
        let text = channel.recv_timeout(LONG).unwrap();
        assert!(text.contains("ranks 0 and 1 of the group use the same GPU"), "{text}");
    }
}
