//! What goes wrong on one host is known on all, soon, and by its name.

use std::time::{Duration, Instant};

use torchrs::distributed::{
    InitOptions, ReduceOp, Store, StoreServer, WorkerEnv, init_process_group,
};
use torchrs::multiprocessing::Channel;
use torchrs::multiprocessing::report::monotonic_ns;
use torchrs::{Dtype, Error, Result, Tensor};
use torchrs_job::store::{LEADER, LINKS_ADDRESSES, LINKS_KEY, Uplink};

use super::{LONG, join_job, message, start};

fn ones(len: usize) -> Tensor {
    Tensor::ones([len], Dtype::F32)
}

/// Hosts, or the ranks of one host, call different things.
pub fn differs(who: Vec<usize>, parent: Channel<String, ()>) -> Result<()> {
    let group = join_job()?;
    group.all_reduce(&ones(300_000), ReduceOp::Sum)?;
    let ended = match who.contains(&group.rank()) {
        true => group.barrier(),
        false => group.all_reduce(&ones(300_000), ReduceOp::Sum),
    };
    let Err(error) = ended else { panic!("they differ") };
    assert!(matches!(error, Error::Mismatch(_)), "{error}");
    // The group is of no more use, and says why.
    let again = group.barrier().unwrap_err().to_string();
    assert_eq!(again, error.to_string());
    parent.send(&again)
}

#[test]
fn hosts_that_call_different_things_are_told_so() {
    for (layout, who) in [
        (&[2, 2][..], vec![2, 3]),
        (&[2, 1], vec![0, 1]),
        (&[2, 2], vec![3]),
        (&[1, 1, 1], vec![1]),
    ] {
        let (_hosts, ranks) = start(layout, 60.0, differs, &who);
        for (rank, (_, channel)) in ranks.iter().enumerate() {
            let text = channel.recv_timeout(LONG).unwrap();
            assert!(
                text.contains("barrier")
                    && text.contains("all_reduce(sum, f32, [300000])")
                    && text.contains("collective 3")
                    && text.contains("failures.rs"),
                "{layout:?}, rank {rank}: {text}"
            );
        }
    }
}

/// Says that it runs, then reduces until a peer is gone; when that was and what the error says.
pub fn reduces_for_ever(len: usize, parent: Channel<(u64, String), ()>) -> Result<()> {
    let group = join_job()?;
    let t = ones(len);
    for round in 0u64.. {
        if let Err(error) = group.all_reduce(&t, ReduceOp::Avg) {
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
fn a_killed_rank_is_known_by_all_hosts_within_a_second() {
    for (layout, victim, len) in
        [(&[2, 2][..], 3, 300_000), (&[2, 2], 2, 1000), (&[2, 3], 4, 1000), (&[1, 1], 0, 300_000)]
    {
        let (_hosts, ranks) = start(layout, 60.0, reduces_for_ever, &len);
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

/// One rank fails in its own way while the others wait.
pub fn fails(how: (String, usize), parent: Channel<String, ()>) -> Result<()> {
    let group = join_job()?;
    group.barrier()?;
    let (how, who) = how;
    if group.rank() == who {
        match how.as_str() {
            "panic" => panic!("bad sample"),
            "abort" => group.abort("no data left"),
            "leave" => {
                drop(group);
                std::thread::sleep(Duration::from_secs(3));
            }
            "sleep" => std::thread::sleep(Duration::from_secs(5)),
            other => panic!("{other}"),
        }
        return Ok(());
    }
    let start = Instant::now();
    let error = group.all_reduce(&ones(10), ReduceOp::Sum).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(4), "after {:?}", start.elapsed());
    // Also without a call.
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
            let (_hosts, ranks) = start(&[2, 2], limit, fails, &(how.to_owned(), who));
            for (other, (_, channel)) in ranks.iter().enumerate().filter(|(r, _)| *r != who) {
                let text = channel.recv_timeout(LONG).unwrap();
                println!("{how} of rank {who}: rank {other}: {text}");
                assert!(text.contains(part), "{how} of {rank}: rank {other}: {text}");
                assert!(text.contains(&rank), "{how} of {rank}: rank {other}: {text}");
            }
        }
    }
}

/// A rank that dies in no call is known without one.
fn looks(_: (), parent: Channel<String, ()>) -> Result<()> {
    let group = join_job()?;
    group.barrier()?;
    if group.rank() == 3 {
        std::process::exit(7);
    }
    let start = Instant::now();
    loop {
        if let Err(error) = group.check() {
            return parent.send(&error.to_string());
        }
        assert!(start.elapsed() < Duration::from_secs(10), "nobody said so");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_death_between_calls_is_known_on_all_hosts() {
    let (_hosts, ranks) = start(&[2, 2], 60.0, looks, &());
    let died = format!("rank 3 (pid {}) died", ranks[3].0.pid());
    for (_, channel) in &ranks[..3] {
        let text = channel.recv_timeout(LONG).unwrap();
        assert!(text.contains(&died), "{text}");
    }
}

fn joins_unless(who: Vec<usize>, _parent: Channel<(), ()>) -> Result<()> {
    let rank: usize = std::env::var("RANK").unwrap().parse().unwrap();
    if who.contains(&rank) {
        std::process::exit(0);
    }
    join_job().map(drop)
}

#[test]
fn a_host_that_does_not_come_is_named() {
    let cases = [
        (&[2, 2][..], vec![3], "host 1, whose first rank is 2"),
        (&[1, 1, 1], vec![0], "host 0, whose first rank is 0"),
        (&[1, 2, 1], vec![1, 2], "host 1, whose first rank is 1"),
        (&[1, 1, 1], vec![2], "host 2, whose first rank is 2"),
    ];
    for (layout, who, host) in cases {
        let (_hosts, ranks) = start(layout, 1.0, joins_unless, &who);
        for (rank, (process, _)) in ranks.iter().enumerate().filter(|(rank, _)| !who.contains(rank))
        {
            let text = message(process.join_timeout(LONG));
            // Its own host knows which rank it is.
            let named = text.contains(host) || text.contains(&format!("missing rank {}", who[0]));
            assert!(named, "{layout:?} without {who:?}, rank {rank}: {text}");
        }
    }
}

/// Rank 1 leaves in peace; rank 0 has a message for it, or wants one.
fn waits_for_who_has_left(sends: bool, parent: Channel<String, ()>) -> Result<()> {
    let group = join_job()?;
    group.barrier()?;
    if group.rank() == 1 {
        return Ok(());
    }
    let x = ones(10);
    let ended = if sends { group.send(&x, 1, 0) } else { group.recv(&x, 1, 0) };
    parent.send(&ended.unwrap_err().to_string())
}

#[test]
fn a_message_to_or_from_who_has_ended_is_an_error() {
    for sends in [true, false] {
        let (hosts, ranks) = start(&[1, 1], 60.0, waits_for_who_has_left, &sends);
        ranks[1].0.join_timeout(LONG).unwrap();
        hosts.rank_ended(1, 1);
        let start = Instant::now();
        let text = ranks[0].1.recv_timeout(LONG).unwrap();
        println!("sends {sends}: after {:?}: {text}", start.elapsed());
        assert!(text.contains("rank 1") && start.elapsed() < Duration::from_secs(5), "{text}");
    }
}

/// Rank 1 leaves the group and goes on with something else; rank 0 has a message for it, or wants one.
fn waits_for_who_lives_on(sends: bool, parent: Channel<String, ()>) -> Result<()> {
    let group = join_job()?;
    group.barrier()?;
    if group.rank() == 1 {
        drop(group);
        return parent.recv_timeout(LONG);
    }
    let x = ones(10);
    let ended = if sends { group.send(&x, 1, 0) } else { group.recv(&x, 1, 0) };
    parent.send(&ended.unwrap_err().to_string())
}

#[test]
fn a_message_to_or_from_who_has_left_and_lives_is_an_error() {
    for sends in [true, false] {
        let (_hosts, ranks) = start(&[1, 1], 60.0, waits_for_who_lives_on, &sends);
        let start = Instant::now();
        let text = ranks[0].1.recv_timeout(LONG).unwrap();
        println!("sends {sends}: after {:?}: {text}", start.elapsed());
        assert!(text.contains("rank 1") && text.contains("left"), "{text}");
        assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
        ranks[1].1.send(&()).unwrap();
    }
}

/// The way to a leader's host that does not answer.
struct Silence;

impl Uplink for Silence {
    fn ask(&self, _: u64, _: Vec<u8>) {}
    fn reply(&self, _: u64, _: u64, _: Vec<u8>) {}
    fn welcome(&self) {}
}

#[test]
fn who_joins_waits_for_a_silent_store_no_longer_than_its_timeout() {
    let server = StoreServer::start_among_hosts(Box::new(Silence), false).unwrap();
    server.tell(LINKS_KEY, &[9; 32]);
    server.tell(LINKS_ADDRESSES, b"127.0.0.1");
    server.tell(LEADER, b"node7");
    let set = [("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "1"), ("GROUP_RANK", "1")];
    let value = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into());
    let options = InitOptions {
        timeout: Some(Duration::from_secs(1)),
        env: Some(WorkerEnv::from_lookup(value).unwrap()),
        store: Some(Store::connect_fd(server.connect().unwrap()).unwrap()),
    };
    let start = Instant::now();
    let error = init_process_group(options).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("compare_set") && text.contains("host node7"), "{text}");
}
