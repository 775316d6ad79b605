//! NCCL between processes: a test starts itself once for each rank.

mod support;
use std::fmt::Debug;
use std::process::Stdio;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};
use support::*;
use torchrs_simulated_gpu::api::driver::{event::*, graph::*, stream::*};
use torchrs_simulated_gpu::api::nccl::communicators::*;
use torchrs_simulated_gpu::api::nccl::{Outcome, UniqueId, collectives::*};

const RANK: &str = "TORCHRS_SIMULATED_TEST_RANK";
const WORLD: &str = "TORCHRS_SIMULATED_TEST_WORLD";
const ID: &str = "TORCHRS_SIMULATED_TEST_ID";
/// Where the ranks of a test meet.
const FOLDER: &str = "TORCHRS_SIMULATED_TEST_FOLDER";

const F32: u32 = 7;
const SUM: u32 = 0;

/// Panics unless a call of NCCL went well.
#[track_caller]
fn fine(outcome: Outcome) {
    assert_eq!(outcome, Outcome::SUCCESS);
}

/// A rank in its process.
struct Rank {
    rank: usize,
    world: usize,
    id: UniqueId,
    stream: Handle,
}

/// Runs `body` as each rank of `world`, in a process each; what they said, by rank.
fn ranks(
    test: &str,
    world: usize,
    variables: &[(&str, &str)],
    body: fn(&Rank),
) -> Vec<(bool, String)> {
    let number = |name: &str| std::env::var(name).unwrap().parse::<usize>().unwrap();
    if is_child() {
        let text = std::env::var(ID).unwrap();
        let mut id = UniqueId([0; 128]);
        for (i, byte) in id.0.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap();
        }
        let rank = number(RANK);
        device(rank as i32);
        let mut rank = Rank { rank, world: number(WORLD), id, stream: stream() };
        if std::env::var_os("LOCAL_WORLD_SIZE").is_some() {
            rank.id = rank.id_of_first();
        }
        body(&rank);
        return vec![];
    }
    device(0);
    let mut id = UniqueId([0; 128]);
    fine(ncclGetUniqueId(&mut id));
    let text: String = id.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = tempfile::tempdir().unwrap();
    let start = |rank: usize| {
        let mut command = child(test, variables);
        command.env(FOLDER, folder.path());
        command.env(RANK, rank.to_string()).env(WORLD, world.to_string()).env(ID, &text);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..world).map(start).collect();
    let end = |child: std::process::Child| {
        let output = child.wait_with_output().unwrap();
        (output.status.success(), said(&output))
    };
    children.into_iter().map(end).collect()
}

/// The same, where all ranks must succeed.
fn all_ranks(test: &str, world: usize, variables: &[(&str, &str)], body: fn(&Rank)) {
    for (rank, (success, said)) in ranks(test, world, variables, body).into_iter().enumerate() {
        assert!(success, "rank {rank}: {said}");
    }
}

impl Rank {
    /// Waits until all ranks are at this place of the test: each leaves a file for it.
    fn meet(&self, place: &str) {
        let folder = std::path::PathBuf::from(std::env::var(FOLDER).unwrap());
        let file = |rank| folder.join(format!("{place}-{rank}"));
        std::fs::write(file(self.rank), "").unwrap();
        let start = Instant::now();
        while !(0..self.world).all(|rank| file(rank).exists()) {
            assert!(start.elapsed() < Duration::from_secs(60), "not all ranks come to {place}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// An id that the first rank makes, for whom the variables hold.
    fn id_of_first(&self) -> UniqueId {
        let folder = std::path::PathBuf::from(std::env::var(FOLDER).unwrap());
        let mut id = UniqueId([0; 128]);
        if self.rank == 0 {
            fine(ncclGetUniqueId(&mut id));
            std::fs::write(folder.join("id"), id.0).unwrap();
        }
        self.meet("id");
        id.0 = std::fs::read(folder.join("id")).unwrap().try_into().unwrap();
        id
    }

    fn join(&self) -> Handle {
        let mut communicator = null_mut();
        let (world, rank) = (self.world as i32, self.rank as i32);
        fine(ncclCommInitRank(&mut communicator, world, self.id, rank));
        communicator
    }

    fn numbers(&self, count: usize) -> Vec<f32> {
        numbers(self.rank, count)
    }

    fn all_reduce(&self, communicator: Handle, address: u64, count: usize) -> Outcome {
        let pointer = address as *mut _;
        ncclAllReduce(pointer, pointer, count, F32, SUM, communicator, self.stream)
    }

    fn expect<T: Copy + Default + PartialEq + Debug>(&self, address: u64, expected: &[T]) {
        assert!(download::<T>(address, expected.len(), self.stream) == expected);
    }

    /// Waits for the asynchronous error of a communicator.
    fn error(&self, communicator: Handle) -> (Outcome, String) {
        let start = Instant::now();
        let mut outcome = Outcome::SUCCESS;
        while outcome == Outcome::SUCCESS && start.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(2));
            fine(ncclCommGetAsyncError(communicator, &mut outcome));
        }
        let message = ncclGetLastError(communicator);
        // SAFETY: the communicator's message, of which there comes no other.
        let message = unsafe { std::ffi::CStr::from_ptr(message) };
        (outcome, message.to_string_lossy().into_owned())
    }
}

fn numbers(rank: usize, count: usize) -> Vec<f32> {
    (0..count).map(|i| ((rank * 31 + i * 7) % 64) as f32).collect()
}

fn collectives(rank: &Rank) {
    let communicator = rank.join();
    let (me, world, stream) = (rank.rank, rank.world, rank.stream);
    for count in [1, 7, 1000, 100_003] {
        let sum: Vec<f32> = {
            let all: Vec<Vec<f32>> = (0..world).map(|rank| numbers(rank, count)).collect();
            (0..count).map(|i| all.iter().map(|one| one[i]).sum()).collect()
        };
        let x = upload(&rank.numbers(count), stream);
        fine(rank.all_reduce(communicator, x, count));
        rank.expect(x, &sum);
        let x = upload(&rank.numbers(count), stream);
        let all = alloc(4 * count * world);
        fine(ncclAllGather(x as *const _, all as *mut _, count, F32, communicator, stream));
        let gathered: Vec<f32> = (0..world).flat_map(|rank| numbers(rank, count)).collect();
        rank.expect(all, &gathered);
        let root = world as i32 - 1;
        let y = alloc(4 * count);
        fine(ncclReduce(x as *const _, y as *mut _, count, F32, SUM, root, communicator, stream));
        if me == world - 1 {
            rank.expect(y, &sum);
        }
        fine(ncclBroadcast(y as *const _, x as *mut _, count, F32, root, communicator, stream));
        rank.expect(x, &sum);
        // Of parts that all ranks have alike each rank gets its own, so many times.
        let part = alloc(4 * count);
        fine(ncclReduceScatter(
            all as *const _,
            part as *mut _,
            count,
            F32,
            4,
            communicator,
            stream,
        ));
        rank.expect(part, &rank.numbers(count));
    }
    let half = upload(&[0x3c00u16; 3], stream);
    let pointer = half as *mut _;
    fine(ncclAllReduce(pointer, pointer, 3, 6, SUM, communicator, stream));
    rank.expect(half, &[[0x4000u16; 3], [0x4400; 3]][world / 4]);
    let (mut count, mut number) = (0, 0);
    fine(ncclCommCount(communicator, &mut count));
    fine(ncclCommUserRank(communicator, &mut number));
    assert_eq!((count as usize, number as usize), (world, me));
    fine(ncclCommDestroy(communicator));
    assert_eq!(ncclCommDestroy(communicator), Outcome::INVALID_ARGUMENT);
}

#[test]
fn two_ranks_reduce_and_gather() {
    all_ranks("two_ranks_reduce_and_gather", 2, &[], collectives);
}

#[test]
fn four_ranks_reduce_and_gather() {
    all_ranks("four_ranks_reduce_and_gather", 4, &[], collectives);
}

/// Of a job on several hosts.
const APART: [(&str, &str); 2] = [("WORLD_SIZE", "4"), ("LOCAL_WORLD_SIZE", "1")];

#[test]
fn ranks_on_several_hosts_reduce_and_gather() {
    all_ranks("ranks_on_several_hosts_reduce_and_gather", 4, &APART, collectives);
}

#[test]
fn collectives_hold_under_the_adversary() {
    let variables = [("TORCHRS_SIMULATED_ADVERSARY", "5")];
    all_ranks("collectives_hold_under_the_adversary", 2, &variables, collectives);
}

#[test]
fn calls_are_work_of_their_stream() {
    all_ranks("calls_are_work_of_their_stream", 2, &[], |rank| {
        let communicator = rank.join();
        let x = upload(&[1f32; 8], rank.stream);
        if rank.rank == 0 {
            // The call returns although the other rank makes its own only afterwards.
            fine(rank.all_reduce(communicator, x, 8));
            assert_eq!(name(cuStreamQuery(rank.stream)), "CUDA_ERROR_NOT_READY");
            // Another stream of the device goes on meanwhile.
            let other = stream();
            let y = upload(&[3f32; 8], other);
            assert_eq!(download::<f32>(y, 8, other), [3f32; 8]);
            rank.meet("called");
            let mut event = null_mut();
            ok(cuEventCreate(&mut event, 2));
            ok(cuEventRecord(event, rank.stream));
            ok(cuStreamWaitEvent(other, event, 0));
            assert_eq!(download::<f32>(x, 8, other), [2f32; 8]);
        } else {
            rank.meet("called");
            fine(rank.all_reduce(communicator, x, 8));
        }
        rank.expect(x, &[2f32; 8]);
    });
}

fn sends_and_receives(rank: &Rank) {
    let communicator = rank.join();
    let (me, world, stream) = (rank.rank, rank.world, rank.stream);
    let count = 50_000;
    let x = upload(&rank.numbers(count * world), stream);
    let y = alloc(4 * count * world);
    fine(ncclGroupStart());
    for peer in 0..world {
        let offset = (4 * count * peer) as u64;
        let (to, from) = ((x + offset) as *const _, (y + offset) as *mut _);
        fine(ncclSend(to, count, F32, peer as i32, communicator, stream));
        fine(ncclRecv(from, count, F32, peer as i32, communicator, stream));
    }
    fine(ncclGroupEnd());
    let expected: Vec<f32> = (0..world)
        .flat_map(|peer| numbers(peer, count * world)[count * me..count * (me + 1)].to_vec())
        .collect();
    rank.expect(y, &expected);
    assert_eq!(ncclGroupEnd(), Outcome::INVALID_USAGE);
}

#[test]
fn groups_send_and_receive_at_once() {
    all_ranks("groups_send_and_receive_at_once", 4, &[], sends_and_receives);
}

#[test]
fn groups_send_and_receive_between_hosts() {
    all_ranks("groups_send_and_receive_between_hosts", 4, &APART, sends_and_receives);
}

/// Both sides call something; each must hear an error with this text.
fn disagree(rank: &Rank, call: impl Fn(&Rank, Handle, u64), texts: &[&str]) {
    let communicator = rank.join();
    let x = upload(&[1f32; 100], rank.stream);
    call(rank, communicator, x);
    let (outcome, message) = rank.error(communicator);
    assert_eq!(outcome, Outcome::INVALID_USAGE, "{message}");
    assert!(texts.iter().all(|text| message.contains(text)), "{message}");
    // As with NCCL, only an abort frees the stream.
    assert_eq!(name(cuStreamQuery(rank.stream)), "CUDA_ERROR_NOT_READY");
    assert_eq!(rank.all_reduce(communicator, x, 1), Outcome::INVALID_USAGE);
    // The other rank is to find the same before this one goes.
    rank.meet("told");
    fine(ncclCommAbort(communicator));
    ok(cuStreamSynchronize(rank.stream));
}

fn calls_differ(rank: &Rank) {
    disagree(
        rank,
        |rank, communicator, x| {
            fine(rank.all_reduce(communicator, x, 10));
            fine(rank.all_reduce(communicator, x, 20 + rank.rank));
        },
        &[
            "collective 2: rank ",
            "rank 0 called AllReduce(20 float32, sum)",
            "rank 1 called AllReduce(21 float32, sum)",
        ],
    );
}

#[test]
fn different_calls_are_an_error_with_both_sides() {
    all_ranks("different_calls_are_an_error_with_both_sides", 2, &[], calls_differ);
}

#[test]
fn different_calls_of_two_hosts_are_an_error_with_both_sides() {
    let test = "different_calls_of_two_hosts_are_an_error_with_both_sides";
    all_ranks(test, 2, &APART, calls_differ);
}

#[test]
fn different_operations_are_an_error_with_both_sides() {
    all_ranks("different_operations_are_an_error_with_both_sides", 2, &[], |rank| {
        disagree(
            rank,
            |rank, communicator, x| match rank.rank {
                0 => fine(rank.all_reduce(communicator, x, 10)),
                _ => {
                    let pointer = x as *mut _;
                    let stream = rank.stream;
                    fine(ncclBroadcast(pointer, pointer, 10, F32, 1, communicator, stream));
                }
            },
            &["rank 1 called Broadcast(10 float32, root 1)"],
        );
    });
}

#[test]
fn transfers_that_do_not_fit_are_an_error() {
    all_ranks("transfers_that_do_not_fit_are_an_error", 2, &[], |rank| {
        let communicator = rank.join();
        let x = upload(&[1f32; 100], rank.stream);
        let pointer = x as *mut std::ffi::c_void;
        match rank.rank {
            0 => fine(ncclSend(pointer, 10, F32, 1, communicator, rank.stream)),
            _ => {
                fine(ncclRecv(pointer, 11, F32, 0, communicator, rank.stream));
                let (outcome, message) = rank.error(communicator);
                assert_eq!(outcome, Outcome::INVALID_USAGE);
                assert!(message.contains("rank 0 called Send(10 float32 to rank 1)"), "{message}");
                assert!(message.contains("Recv(11 float32 from rank 0)"), "{message}");
                fine(ncclCommAbort(communicator));
            }
        }
        ok(cuStreamSynchronize(rank.stream));
    });
}

#[test]
fn a_transfer_and_a_collective_do_not_meet() {
    all_ranks("a_transfer_and_a_collective_do_not_meet", 2, &[], |rank| {
        let communicator = rank.join();
        let x = upload(&[1f32; 100], rank.stream);
        match rank.rank {
            0 => {
                fine(rank.all_reduce(communicator, x, 10));
                let (outcome, message) = rank.error(communicator);
                assert_eq!(outcome, Outcome::REMOTE_ERROR);
                assert!(message.contains("rank 1 has aborted"), "{message}");
            }
            _ => {
                fine(ncclRecv(x as *mut _, 10, F32, 0, communicator, rank.stream));
                let (outcome, message) = rank.error(communicator);
                assert_eq!(outcome, Outcome::INVALID_USAGE);
                assert!(message.contains("rank 0 is in a collective"), "{message}");
            }
        }
        fine(ncclCommAbort(communicator));
        ok(cuStreamSynchronize(rank.stream));
    });
}

#[test]
fn a_death_is_an_error_of_the_others() {
    dies("a_death_is_an_error_of_the_others", &[], ["rank 2 (process", "has died"]);
}

#[test]
fn a_death_on_one_host_is_an_error_on_the_others() {
    dies("a_death_on_one_host_is_an_error_on_the_others", &APART, ["rank 2 is gone"; 2]);
}

/// Rank 2 dies between calls. `told` is what another is told of it, and what is on standard error.
fn dies(test: &str, variables: &[(&str, &str)], told: [&str; 2]) {
    let ends = ranks(test, 4, variables, |rank| {
        let communicator = rank.join();
        let x = upload(&[1f32; 100], rank.stream);
        fine(rank.all_reduce(communicator, x, 100));
        rank.expect(x, &[4f32; 100]);
        if rank.rank == 2 {
            std::process::exit(9);
        }
        fine(rank.all_reduce(communicator, x, 100));
        let (outcome, message) = rank.error(communicator);
        assert_eq!(outcome, Outcome::REMOTE_ERROR);
        // Whoever finds it first aborts, which is what the others may find.
        let texts = ["rank 2 (process", "rank 2 is gone", "has aborted"];
        assert!(texts.iter().any(|text| message.contains(text)), "{message}");
        fine(ncclCommAbort(communicator));
        ok(cuStreamSynchronize(rank.stream));
    });
    if !is_child() {
        let successes: Vec<bool> = ends.iter().map(|(success, _)| *success).collect();
        assert_eq!(successes, [true, true, false, true], "{ends:#?}");
        let all: String = ends.iter().map(|(_, said)| said.as_str()).collect();
        assert!(told.iter().all(|text| all.contains(text)), "{all}");
    }
}

/// The second call is struck by the fault that is set.
fn struck(rank: &Rank) {
    let communicator = rank.join();
    let x = upload(&[1f32; 4], rank.stream);
    fine(rank.all_reduce(communicator, x, 4));
    rank.expect(x, &[2f32; 4]);
    fine(rank.all_reduce(communicator, x, 4));
    if std::env::var("TORCHRS_SIMULATED_FAULT").unwrap().contains("error") {
        assert_eq!(rank.error(communicator).0, Outcome::SYSTEM_ERROR);
    }
    rank.meet("struck");
    assert_eq!(name(cuStreamQuery(rank.stream)), "CUDA_ERROR_NOT_READY");
    fine(ncclCommAbort(communicator));
    ok(cuStreamSynchronize(rank.stream));
}

#[test]
fn a_call_hangs_on_demand() {
    let variables = [("TORCHRS_SIMULATED_FAULT", "nccl-hang@2")];
    all_ranks("a_call_hangs_on_demand", 2, &variables, struck);
}

#[test]
fn a_call_fails_on_demand() {
    let variables = [("TORCHRS_SIMULATED_FAULT", "nccl-error@2")];
    all_ranks("a_call_fails_on_demand", 2, &variables, struck);
}

/// A configuration for calls that do not block.
fn without_blocking() -> Config {
    Config { size: size_of::<Config>(), magic: 0xcafe_beef, version: 21801, blocking: 0 }
}

#[track_caller]
fn until_done(communicator: Handle) {
    let mut outcome = Outcome::IN_PROGRESS;
    while outcome == Outcome::IN_PROGRESS {
        std::thread::sleep(Duration::from_millis(1));
        fine(ncclCommGetAsyncError(communicator, &mut outcome));
    }
    fine(outcome);
}

fn splits(rank: &Rank) {
    let mut config = without_blocking();
    let (mut parent, mut child) = (null_mut(), null_mut());
    let (world, me) = (rank.world as i32, rank.rank as i32);
    let begun = ncclCommInitRankConfig(&mut parent, world, rank.id, me, &mut config);
    assert_eq!(begun, Outcome::IN_PROGRESS);
    until_done(parent);
    let x = upload(&[rank.rank as f32], rank.stream);
    // Ranks 0 and 2, and ranks 3 and 1 in this order.
    let begun =
        ncclCommSplit(parent, me % 2, if me == 3 { -5 } else { me }, &mut child, null_mut());
    assert_eq!(begun, Outcome::IN_PROGRESS);
    until_done(parent);
    until_done(child);
    let mut number = -1;
    fine(ncclCommUserRank(child, &mut number));
    assert_eq!(number, [0, 1, 1, 0][rank.rank]);
    let begun = rank.all_reduce(child, x, 1);
    assert!(matches!(begun, Outcome::SUCCESS | Outcome::IN_PROGRESS));
    until_done(child);
    rank.expect(x, &[[2f32], [4.0]][rank.rank % 2]);
    let mut none = 1 as Handle;
    assert_eq!(ncclCommSplit(parent, -1, 0, &mut none, null_mut()), Outcome::IN_PROGRESS);
    until_done(parent);
    assert!(none.is_null());
    assert_eq!(ncclCommFinalize(child), Outcome::IN_PROGRESS);
    until_done(child);
    fine(ncclCommDestroy(child));
    fine(ncclCommDestroy(parent));
}

#[test]
fn four_ranks_split() {
    all_ranks("four_ranks_split", 4, &[], splits);
}

#[test]
fn ranks_on_several_hosts_split() {
    all_ranks("ranks_on_several_hosts_split", 4, &APART, splits);
}

#[test]
fn splits_hold_under_the_adversary() {
    all_ranks(
        "splits_hold_under_the_adversary",
        4,
        &[("TORCHRS_SIMULATED_ADVERSARY", "3")],
        splits,
    );
}

fn shares_a_device(rank: &Rank) {
    device(0);
    let mut communicator = null_mut();
    let joined = ncclCommInitRank(&mut communicator, 2, rank.id, rank.rank as i32);
    assert_eq!(joined, Outcome::INVALID_USAGE);
    assert!(communicator.is_null());
}

#[test]
fn ranks_that_share_a_device_are_refused() {
    all_ranks("ranks_that_share_a_device_are_refused", 2, &[], shares_a_device);
}

#[test]
fn ranks_that_share_a_device_of_one_of_several_hosts_are_refused() {
    let test = "ranks_that_share_a_device_of_one_of_several_hosts_are_refused";
    all_ranks(test, 2, &APART, shares_a_device);
}

#[test]
fn a_graph_replays_collectives() {
    all_ranks("a_graph_replays_collectives", 2, &[], |rank| {
        let communicator = rank.join();
        let x = upload(&[1f32; 4], rank.stream);
        ok(cuStreamSynchronize(rank.stream));
        ok(cuStreamBeginCapture_v2(rank.stream, 1));
        fine(rank.all_reduce(communicator, x, 4));
        let (mut graph, mut exec) = (null_mut(), null_mut());
        ok(cuStreamEndCapture(rank.stream, &mut graph));
        ok(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        for _ in 0..3 {
            ok(cuGraphLaunch(exec, rank.stream));
        }
        // Made while the graph's are still to come.
        fine(rank.all_reduce(communicator, x, 4));
        ok(cuGraphLaunch(exec, rank.stream));
        rank.expect(x, &[32f32; 4]);
    });
}

#[test]
fn bad_arguments_are_refused() {
    device(0);
    let mut communicator = null_mut();
    let mut id = UniqueId([0; 128]);
    let bad = Outcome::INVALID_ARGUMENT;
    assert_eq!(ncclCommInitRank(&mut communicator, 1, id, 0), bad);
    fine(ncclGetUniqueId(&mut id));
    assert_eq!(ncclCommInitRank(&mut communicator, 1, id, 1), bad);
    assert_eq!(ncclCommInitRank(&mut communicator, 0, id, 0), bad);
    fine(ncclCommInitRank(&mut communicator, 1, id, 0));
    let stream = stream();
    let x = upload(&[5f32; 4], stream);
    let (pointer, none) = (x as *mut std::ffi::c_void, null());
    fine(ncclAllReduce(pointer, pointer, 4, F32, SUM, communicator, stream));
    assert_eq!(download::<f32>(x, 4, stream), [5f32; 4]);
    assert_eq!(ncclAllReduce(pointer, pointer, 5, F32, SUM, communicator, stream), bad);
    assert_eq!(ncclAllReduce(none, pointer, 4, F32, SUM, communicator, stream), bad);
    assert_eq!(ncclAllReduce(pointer, pointer, 4, 77, SUM, communicator, stream), bad);
    assert_eq!(ncclAllReduce(pointer, pointer, 4, F32, 5, communicator, stream), bad);
    assert_eq!(ncclBroadcast(pointer, pointer, 4, F32, 1, communicator, stream), bad);
    assert_eq!(ncclSend(pointer, 4, F32, 1, communicator, stream), bad);
    device(1);
    let other = support::stream();
    assert_eq!(ncclAllReduce(pointer, pointer, 4, F32, SUM, communicator, other), bad);
}
