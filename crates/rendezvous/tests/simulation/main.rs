//! Jobs of many hosts in one thread and in no time: launchers without processes, a network that delays, loses and
//! parts, hosts that die, freeze and come back.

mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use torchrs_rendezvous::settings::{ScaleUp, Settings};

use world::{Deed, MS, SECOND, World};

fn elastic(fewest: u32, most: u32) -> Settings {
    Settings {
        job: "j".into(),
        hosts: (fewest, most),
        max_restarts: 1000,
        last_call: SECOND,
        ..Settings::default()
    }
}

/// A world whose hosts begin within a second, the leader's first.
fn begun(hosts: usize, settings: Settings, dice: u64) -> World {
    let mut world = World::new(hosts, settings, dice);
    for host in 0..hosts {
        let when = if host == 0 { 0 } else { world.roll(1000) };
        world.deed(MS * when as u32, Deed::Begin(host));
    }
    world
}

#[test]
fn hosts_meet_run_and_end() {
    let mut world = begun(3, Settings { hosts: (3, 3), ..elastic(3, 3) }, 1);
    world.worker_time = 10 * SECOND;
    world.run_until(5 * SECOND);
    assert_eq!(world.running(), [0, 1, 2]);
    let round = &world.started[0].1;
    assert_eq!((round.world_size(), round.restarts, round.hosts[0].name.as_str()), (3, 0, "h0"));
    world.run_until(30 * SECOND);
    assert!(world.launchers.iter().all(|l| l.over == Some(0)), "all end in peace");
}

#[test]
fn a_failure_restarts_all_until_there_are_no_restarts_left() {
    let mut world = begun(2, Settings { max_restarts: 2, ..elastic(2, 2) }, 2);
    for (second, host) in [(5, 1), (15, 0), (25, 1)] {
        world.deed(SECOND * second, Deed::FailWorkers(host));
    }
    world.run_until(24 * SECOND);
    let restarts: BTreeSet<_> = world.started.iter().map(|(_, r)| r.restarts).collect();
    assert_eq!((world.running(), restarts), (vec![0, 1], BTreeSet::from([0, 1, 2])));
    world.run_until(40 * SECOND);
    assert!(world.launchers.iter().all(|l| l.over == Some(1)));
}

#[test]
fn a_killed_host_is_replaced_by_the_spare_within_seconds() {
    for dead in [1, 0] {
        let mut world = begun(4, elastic(2, 3), 3);
        world.run_until(8 * SECOND);
        let first = world.running();
        assert_eq!(first.len(), 3);
        let dead = if dead == 0 { 0 } else { first[1] };
        world.deed(10 * SECOND, Deed::Kill(dead));
        world.run_until(10 * SECOND + 3 * SECOND);
        let now = world.running();
        assert!(now.len() == 3 && !now.contains(&dead), "{dead}: {now:?}");
        // Who stays keeps its rank where that is possible: the leader first.
        let last = &world.started.last().unwrap().1;
        assert_eq!(last.restarts, 1);
    }
}

#[test]
fn a_crash_is_noticed_by_silence_and_a_short_one_by_nobody() {
    let mut world = begun(3, elastic(2, 3), 4);
    world.run_until(10 * SECOND);
    for (at, deed) in [
        (11, Deed::Freeze(1, 3 * SECOND)),
        (16, Deed::Cut(2)),
        (18, Deed::Heal(2)),
        (22, Deed::Freeze(0, 3 * SECOND)),
    ] {
        world.deed(at * SECOND, deed);
    }
    world.run_until(30 * SECOND);
    assert_eq!(world.started.iter().filter(|(_, r)| r.number == 0).count(), world.started.len());
    world.deed(31 * SECOND, Deed::Crash(1));
    world.run_until(31 * SECOND + 9 * SECOND);
    assert_eq!(world.running(), [0, 2]);
    world.deed(41 * SECOND, Deed::Crash(0));
    world.run_until(60 * SECOND);
    // One of two, and not the leader.
    assert_eq!(world.running(), Vec::<usize>::new());
}

#[test]
fn only_the_larger_part_goes_on() {
    for cut in [vec![0], vec![0, 1], vec![3, 4], vec![2]] {
        let mut world = begun(5, elastic(1, 5), 5);
        world.run_until(8 * SECOND);
        assert_eq!(world.running().len(), 5);
        cut.iter().for_each(|host| world.deed(10 * SECOND, Deed::Cut(*host)));
        world.run_until(40 * SECOND);
        let rest: Vec<usize> = (0..5).filter(|h| !cut.contains(h)).collect();
        assert_eq!(world.running(), rest, "without {cut:?}");
        cut.iter().for_each(|host| world.deed(41 * SECOND, Deed::Heal(*host)));
        world.run_until(80 * SECOND);
        assert_eq!(world.running().len(), 5, "{cut:?} came back");
    }
}

/// Prints what one thread needs for all thousand launchers, and the memory that they need.
#[test]
fn a_thousand_hosts_meet() {
    let (before, began) = (resident(), std::time::Instant::now());
    let mut world = begun(1000, elastic(1000, 1000), 6);
    world.run_until(20 * SECOND);
    assert_eq!(world.running().len(), 1000);
    let (took, memory) = (began.elapsed(), resident().saturating_sub(before) >> 20);
    let last = world.started.iter().map(|(at, _)| *at).max().unwrap() - SECOND;
    println!(
        "1,000 launchers form a round: {last:.2?} of their time (they begin within 1 s); the first 20 s of it take \
         {took:.2?} here, and {memory} MiB for all with their network"
    );
    for (kind, (messages, bytes)) in &world.traffic {
        println!("{kind}: {messages} messages, {bytes} bytes");
    }
    world.deed(25 * SECOND, Deed::FailWorkers(500));
    world.run_until(40 * SECOND);
    assert_eq!((world.running().len(), world.started.last().unwrap().1.number), (1000, 1));
}

/// Bytes of memory that this process has.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn with_lock(fewest: u32, most: u32) -> Settings {
    Settings { lock: true, ..elastic(fewest, most) }
}

/// One of two hosts, and not the leader, goes on where it has the tie.
#[test]
fn with_a_lock_the_other_of_two_hosts_goes_on_without_its_leader() {
    for deed in [Deed::Crash(0), Deed::Kill(0), Deed::Crash(1), Deed::Kill(1)] {
        let (Deed::Crash(dead) | Deed::Kill(dead)) = deed else { unreachable!() };
        for lock in [false, true] {
            let mut world = begun(2, Settings { lock, ..elastic(1, 2) }, 11);
            world.run_until(10 * SECOND);
            world.deed(10 * SECOND, deed.clone());
            world.run_until(22 * SECOND);
            let rest = if lock || dead == 1 { vec![1 - dead] } else { vec![] };
            assert_eq!(world.running(), rest, "{deed:?}, lock: {lock}");
            let waits = world.said.iter().any(|said| said.contains("with --rdzv-lock"));
            assert_eq!(waits, rest.is_empty(), "{:?}", world.said);
            // The host that was lost comes back as another. Without a lock it is not known whether its half went on.
            if !lock {
                continue;
            }
            world.deed(30 * SECOND, Deed::Begin(dead));
            world.run_until(50 * SECOND);
            assert_eq!(world.running(), [0, 1], "{deed:?}, lock: {lock}");
        }
    }
}

#[test]
fn of_two_halves_that_both_live_one_goes_on_and_the_other_comes_back() {
    for dice in 1..40 {
        let mut world = begun(4, with_lock(1, 4), dice);
        world.run_until(10 * SECOND);
        assert_eq!(world.running().len(), 4);
        // Each of two hosts cut off by itself: the other two are half of all.
        let cut = [[0, 1], [1, 2], [0, 3]][dice as usize % 3];
        cut.iter().for_each(|host| world.deed(10 * SECOND, Deed::Cut(*host)));
        world.run_until(40 * SECOND);
        assert_eq!(world.running().len(), 2, "dice {dice}");
        cut.iter().for_each(|host| world.deed(41 * SECOND, Deed::Heal(*host)));
        world.run_until(80 * SECOND);
        assert_eq!(world.running().len(), 4, "dice {dice}");
    }
    for dice in 1..40 {
        let mut world = begun(2, with_lock(1, 2), dice);
        world.run_until(10 * SECOND);
        for tie in 1..4 {
            let at = SECOND * (60 * tie - 40);
            world.deed(at, Deed::Cut(tie as usize % 2));
            world.run_until(at + 20 * SECOND);
            assert_eq!(world.running().len(), 1, "dice {dice}, tie {tie}");
            world.deed(at + 20 * SECOND, Deed::Heal(tie as usize % 2));
            world.run_until(at + 35 * SECOND);
            assert_eq!(world.running(), [0, 1], "dice {dice}, tie {tie}");
        }
        assert!(world.started.last().unwrap().1.ties >= 3, "dice {dice}");
    }
}

#[test]
fn without_the_shared_folder_no_half_goes_on_until_it_is_there_again() {
    let mut world = begun(2, with_lock(1, 2), 3);
    world.deed(9 * SECOND, Deed::FolderGone(true));
    world.deed(10 * SECOND, Deed::Crash(0));
    world.run_until(30 * SECOND);
    assert_eq!(world.running(), Vec::<usize>::new());
    world.deed(31 * SECOND, Deed::FolderGone(false));
    world.run_until(50 * SECOND);
    assert_eq!(world.running(), [1]);
}

#[test]
fn at_a_checkpoint_a_host_that_waits_is_welcome_and_not_before() {
    let settings = Settings { scale_up: ScaleUp::AtCheckpoint, ..elastic(2, 3) };
    let mut world = World::new(3, settings, 5);
    world.deed(Duration::ZERO, Deed::Begin(0));
    world.deed(SECOND, Deed::Begin(1));
    world.run_until(10 * SECOND);
    assert_eq!(world.running(), [0, 1]);
    // Nobody waits.
    world.deed(11 * SECOND, Deed::Welcome);
    world.deed(12 * SECOND, Deed::Begin(2));
    world.run_until(20 * SECOND);
    assert_eq!((world.running(), world.started.len()), (vec![0, 1], 2));
    world.deed(20 * SECOND, Deed::Welcome);
    world.run_until(25 * SECOND);
    assert_eq!(world.running(), [0, 1, 2]);
    let last = &world.started.last().unwrap().1;
    assert_eq!((last.number, last.restarts), (1, 0), "it is no failure");
}

/// The other hosts do not wait until the last worker of a host has ended.
#[test]
fn a_failing_worker_stops_the_workers_of_all_hosts_at_once() {
    let mut world = begun(3, elastic(3, 3), 9);
    world.run_until(10 * SECOND);
    world.deed(10 * SECOND, Deed::FailWorker(1));
    // Its own take two seconds, those of the others two at most, beginning at the same time.
    world.run_until(12 * SECOND + 100 * MS);
    assert_eq!((world.running().len(), world.started.last().unwrap().1.restarts), (3, 1));
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut world = World::new(2, elastic(2, 2), 7);
    world.deed(Duration::ZERO, Deed::Begin(0));
    world.run_until(SECOND);
    world.settings.job = "other".into();
    world.deed(2 * SECOND, Deed::Begin(1));
    world.run_until(3 * SECOND);
    let why = world.launchers[1].failed.clone().expect("a refusal");
    assert!(
        why.contains("job `j`") && why.contains("`other`") && why.contains("--rdzv-id"),
        "{why}"
    );
    world.settings = Settings { max_restarts: 7, ..elastic(2, 2) };
    world.deed(4 * SECOND, Deed::Begin(1));
    world.run_until(5 * SECOND);
    let why = world.launchers[1].failed.clone().expect("a refusal");
    assert!(why.contains("--max-restarts 7") && why.contains("--max-restarts 1000"), "{why}");
    world.settings = elastic(1, 2);
    world.deed(6 * SECOND, Deed::Begin(1));
    world.run_until(7 * SECOND);
    let why = world.launchers[1].failed.clone().expect("a refusal");
    assert!(why.contains("--nnodes 1:2") && why.contains("--nnodes 2:"), "{why}");
    for (at, settings, part) in [
        (8, with_lock(2, 2), "h1 was started with --rdzv-lock"),
        (10, Settings { scale_up: ScaleUp::Never, ..elastic(2, 2) }, "--scale-up never"),
    ] {
        world.settings = settings;
        world.deed(at * SECOND, Deed::Begin(1));
        world.run_until((at + 1) * SECOND);
        let why = world.launchers[1].failed.clone().expect("a refusal");
        assert!(why.contains(part), "{why}");
    }
}

/// As many histories as PROPTEST_CASES says.
fn histories() -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(60),
    }
}

proptest! {
    #![proptest_config(histories())]

    /// Whatever is done to hosts, never do two rounds run at once, and when it is over the job goes on if more than
    /// half of its hosts never died.
    #[test]
    fn never_two_halves(
        hosts in 2usize..6,
        dice in 1u64..,
        lock: bool,
        deeds in prop::collection::vec((0u64..60_000, 0usize..6, 0u8..9, 0u64..9000), 0..12),
    ) {
        // A launcher that begins again where the job began, and is cut off, knows of no round: it must not be enough.
        // With a lock half of them are, so that no launcher begins again.
        let fewest = if lock { hosts as u32 / 2 } else { hosts as u32 / 2 + 1 };
        let mut world = begun(hosts, Settings { lock, ..elastic(fewest, hosts as u32) }, dice);
        let mut died = BTreeSet::new();
        for (when, host, what, time) in &deeds {
            let host = host % hosts;
            let when = SECOND * 4 + MS * *when as u32;
            let time = MS * *time as u32;
            match what {
                0 => { died.insert(host); world.deed(when, Deed::Kill(host)); }
                1 => { died.insert(host); world.deed(when, Deed::Crash(host)); }
                2 => world.deed(when, Deed::Freeze(host, time)),
                3 => world.deed(when, Deed::FailWorkers(host)),
                4 if !lock => {
                    world.deed(when, Deed::Kill(host));
                    world.deed(when + time, Deed::Begin(host));
                }
                5 => world.deed(when, Deed::FailWorker(host)),
                6 if lock => {
                    world.deed(when, Deed::FolderGone(true));
                    world.deed(when + time, Deed::FolderGone(false));
                }
                _ => {
                    world.deed(when, Deed::Cut(host));
                    world.deed(when + time, Deed::Heal(host));
                }
            }
        }
        world.run_until(SECOND * 200);
        if died.is_empty() && (lock || !deeds.iter().any(|(_, _, what, _)| *what == 4)) {
            prop_assert_eq!(world.running().len(), hosts, "all are there again");
        }
    }
}

/// A host that comes back where the job began does not begin it a second time.
#[test]
fn a_leader_that_comes_back_joins() {
    let mut world = begun(3, elastic(1, 3), 1);
    world.deed(SECOND * 4, Deed::Kill(0));
    world.deed(SECOND * 4 + MS, Deed::Begin(0));
    world.run_until(SECOND * 30);
    assert_eq!(world.running(), [0, 1, 2]);
    assert_eq!(world.started.iter().filter(|(_, round)| round.number == 0).count(), 3);
}

/// One host is cut off, unnoticed so far, when another leader takes over.
#[test]
fn a_new_leader_waits_for_who_may_still_run() {
    let mut world = begun(5, elastic(1, 5), 247288239311378424);
    world.deed(MS * 12_570, Deed::Cut(4));
    world.deed(MS * 16_570, Deed::Heal(4));
    world.deed(MS * 13_849, Deed::Kill(0));
    world.deed(MS * 13_849, Deed::Begin(0));
    world.run_until(SECOND * 60);
    assert_eq!(world.running(), [0, 1, 2, 3, 4]);
}

/// A cut that is as long as it takes some to notice.
#[test]
fn a_host_that_left_and_came_back_while_all_stop_takes_part() {
    let mut world = begun(4, elastic(1, 4), 836268434292268870);
    world.deed(MS * 14_292, Deed::Cut(0));
    world.deed(MS * 17_832, Deed::Heal(0));
    world.run_until(SECOND * 60);
    assert_eq!(world.running(), [0, 1, 2, 3]);
}

/// A round that some have accepted may run elsewhere, whatever its leader has proposed since.
#[test]
fn a_proposal_that_came_to_nothing_counts_all_the_same() {
    let mut world = begun(3, with_lock(1, 3), 3989277286797179670);
    world.deed(MS * 35_865, Deed::Freeze(0, MS * 6_906));
    world.deed(MS * 44_750, Deed::Cut(1));
    world.deed(MS * 48_750, Deed::Heal(1));
    world.run_until(SECOND * 90);
    assert_eq!(world.running(), [0, 1, 2]);
}

/// Two cuts with a moment between them, in which the host hears its leader and the leader learns little of the host.
#[test]
fn a_host_that_was_answered_late_is_waited_for_as_long() {
    let mut world = begun(3, with_lock(1, 3), 7791543268558092800);
    world.deed(MS * 28_093, Deed::Crash(1));
    world.deed(MS * 52_687, Deed::Cut(2));
    world.deed(MS * 54_030, Deed::Heal(2));
    world.deed(MS * 54_081, Deed::Cut(2));
    world.deed(MS * 57_979, Deed::Heal(2));
    world.run_until(SECOND * 90);
    assert_eq!(world.running(), [0, 2]);
}

/// A host that was frozen calls its leader again before the end of its old connection is there, while it is to accept a
/// round.
#[test]
fn a_host_that_calls_again_is_asked_again() {
    let mut world = begun(5, elastic(3, 5), 5661053041428687121);
    for (when, host, time) in [(6_083, 4, 4_699), (45_237, 0, 3_617)] {
        world.deed(MS * when, Deed::Cut(host));
        world.deed(MS * (when + time), Deed::Heal(host));
    }
    for (when, host, time) in [(51_159, 4, 4_065), (23_099, 0, 4_387), (44_471, 4, 3_067)] {
        world.deed(MS * when, Deed::Freeze(host, MS * time));
    }
    world.run_until(SECOND * 90);
    assert_eq!(world.running(), [0, 1, 2, 3, 4]);
}
