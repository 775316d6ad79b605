//! Messages of any bytes: decoding them panics never, and takes memory in proportion to what came, whatever lengths
//! they claim. Only who has the job's token can send any; a fault in a launcher must not end the others all the same.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use torchrs_rendezvous::history::History;
use torchrs_rendezvous::protocol::{Host, HostId, Round, Term, ToLeader, ToMember, Verdict, Why};
use torchrs_rendezvous::settings::Settings;

thread_local! {
    /// Bytes that this thread holds, and the most since that was last set to it.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

/// Counts what each thread holds.
struct Counting;

fn count(bytes: isize) {
    // At a thread's end it counts no more.
    let _ = HELD.try_with(|held| {
        let (now, most) = held.get();
        held.set((now + bytes, most.max(now + bytes)));
    });
}

// SAFETY: all is the system allocator's; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// What decoding may hold beside a multiple of what came: serde takes a length at its word up to 1 MiB per list, and
/// lists are nested three deep.
const SLACK: usize = 4 << 20;

/// Decodes bytes as a message; the most memory that this held.
fn decode<T: DeserializeOwned>(bytes: &[u8]) -> (bool, usize) {
    let before = HELD.get().0;
    HELD.set((before, before));
    let is_message = postcard::from_bytes::<T>(bytes).is_ok();
    (is_message, (HELD.get().1 - before) as usize)
}

fn host(number: u64) -> Host {
    Host {
        id: HostId(number << 40 | 7),
        name: format!("node{number}"),
        addresses: vec!["10.0.0.1:29400".parse().unwrap(), "[fd77::1]:29400".parse().unwrap()],
        nproc: 8,
        node_rank: Some(3),
        version: "0.1.0".into(),
        fingerprint: u64::MAX,
    }
}

fn round() -> Round {
    Round {
        term: Term(3),
        number: 300,
        begun_by: HostId(5),
        ties: 1,
        restarts: 2,
        leader: HostId(1),
        hosts: (0..3).map(host).collect(),
        spares: vec![host(9)],
    }
}

fn encoded<T: Serialize + DeserializeOwned>(messages: &[T]) -> Vec<Vec<u8>> {
    let encode = |message| postcard::to_stdvec(message).unwrap();
    let all: Vec<Vec<u8>> = messages.iter().map(encode).collect();
    assert!(all.iter().all(|bytes| decode::<T>(bytes).0));
    all
}

/// One message of each kind.
fn to_leader() -> Vec<Vec<u8>> {
    let mut accepted = History::default();
    accepted.ran(round().into());
    accepted.proposed(Round { number: 301, ..round() }.into());
    encoded(&[
        ToLeader::Join { settings: Settings::default(), host: host(1), accepted, busy: true },
        ToLeader::Accept { term: Term(1), number: 2 },
        ToLeader::Ended { number: 1, verdict: Verdict::Signal(15), report: vec![7; 300] },
        ToLeader::Alive { sent_at: Duration::from_nanos(1), clock: Duration::MAX },
        ToLeader::Claim { job: "job".into(), round: round().into() },
        ToLeader::Ask { number: 1, request: vec![1; 40] },
        ToLeader::Failing { number: 9 },
        ToLeader::Status { text: vec![b'x'; 70_000] },
    ])
}

fn to_member() -> Vec<Vec<u8>> {
    let why = Why::Failed(HostId(4));
    encoded(&[
        ToMember::Refused { why: "another job".into() },
        ToMember::NotLeader { round: Some(round().into()) },
        ToMember::Waiting { present: 1, needed: 2, round: None },
        ToMember::Propose { round: round().into() },
        ToMember::Start { number: 1 },
        ToMember::Stop { number: 1, why, at_once: true },
        ToMember::Alive { sent_at: Duration::ZERO, clock: Duration::from_secs(1) },
        ToMember::Answer { number: 7, reply: vec![2; 70] },
        ToMember::Over { exit_code: -1, text: "over".into() },
    ])
}

fn check(bytes: &[u8]) -> Result<(), TestCaseError> {
    for (_, held) in [decode::<ToLeader>(bytes), decode::<ToMember>(bytes)] {
        prop_assert!(held <= SLACK + 64 * bytes.len(), "{held} bytes for {}", bytes.len());
    }
    Ok(())
}

#[test]
fn a_list_that_claims_to_be_endless_takes_no_memory_for_it() {
    // An answer of 2^60 bytes, of which three have come.
    let mut bytes = postcard::to_stdvec(&ToMember::Answer { number: 1, reply: vec![] }).unwrap();
    bytes.pop();
    bytes.extend([0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10, 1, 2, 3]);
    let (is_message, held) = decode::<ToMember>(&bytes);
    assert!(!is_message && held <= SLACK, "{held}");
    assert!(held > 0, "it was not measured");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_are_a_message_or_none(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        check(&bytes)?;
    }

    /// Of real messages, so that every part of them is reached.
    #[test]
    fn a_message_that_was_changed_is_another_or_none(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        is_cut: bool,
        more in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let all = [to_leader(), to_member()].concat();
        let mut bytes = which.get(&all).clone();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if is_cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        bytes.extend(more);
        check(&bytes)?;
    }
}
