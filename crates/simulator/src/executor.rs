//! The threads that perform work: two for each device, so that a kernel that does not end leaves the
//! other streams alive. Without the adversary the piece that was asked for first goes first; the
//! adversary holds pieces back for a while and picks among the others at random.

use crate::code::Code;
use crate::context::{self, MAX_DEVICES};
use crate::event::Mark;
use crate::kernel::machine::Machine;
use crate::random::Random;
use crate::settings;
use crate::stream::{self, POLL, Queues};
use crate::work::{self, Work};
use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Threads of a device.
const THREADS: usize = 2;

static WORK: [Condvar; MAX_DEVICES] = [const { Condvar::new() }; MAX_DEVICES];
/// A bit for each device whose threads run.
static STARTED: Mutex<u64> = Mutex::new(0);

/// Wakes a thread of a device, which has new work.
pub fn wake(device: usize) {
    let mut started = STARTED.lock();
    if *started >> device & 1 == 0 {
        *started |= 1 << device;
        for number in 0..THREADS {
            let name = format!("sim-gpu-{device}.{number}");
            let thread = std::thread::Builder::new().name(name).spawn(move || run(device, number));
            if let Err(error) = thread {
                eprintln!("simulated GPU {device}: no thread to execute on: {error}");
            }
        }
    }
    drop(started);
    WORK[device].notify_one();
}

/// Completes a record from outside the executors, for streams that wait for it.
pub fn complete(mark: &Mark) {
    // Under the lock, so that no executor falls asleep between its look at the record and this.
    let all = stream::queues();
    mark.complete();
    drop(all);
    wake_all();
}

/// Wakes the threads of all devices: an event was recorded for which any of them may wait.
fn wake_all() {
    let mut bits = *STARTED.lock();
    while bits != 0 {
        WORK[bits.trailing_zeros() as usize].notify_all();
        bits &= bits - 1;
    }
}

/// What a look at the queues gave.
enum Choice {
    /// This piece of this stream.
    Perform(usize, Work),
    /// Nothing is ready; look again when told, or after this time at the latest.
    Sleep(Option<Duration>),
}

/// A thread's life.
fn run(device: usize, number: usize) {
    let adversary = settings::adversary();
    let mut random =
        adversary.map(|seed| Random::new(seed, (device * THREADS + number + 1) as u64));
    let mut machine = Machine::new();
    let mut all = stream::queues();
    loop {
        match choose(&mut all, device, random.as_mut()) {
            Choice::Perform(id, work) => {
                drop(all);
                work::perform(&work, device, &mut machine);
                let recorded = matches!(work, Work::Record(_) | Work::Host { .. });
                drop(work);
                all = stream::queues();
                if let Some(queue) = all.queues.get_mut(&id) {
                    queue.running = false;
                }
                stream::finish(&mut all, id);
                match recorded {
                    true => wake_all(),
                    false => _ = WORK[device].notify_one(),
                }
            }
            Choice::Sleep(None) => WORK[device].wait(&mut all),
            Choice::Sleep(Some(time)) => _ = WORK[device].wait_for(&mut all, time),
        }
    }
}

/// Picks a piece of work that is ready, and marks its stream as running.
fn choose(all: &mut Queues, device: usize, mut random: Option<&mut Random>) -> Choice {
    skip_waits(all, device);
    let mut sleep: Option<Duration> = None;
    let mut until = |time: Duration| sleep = Some(sleep.map_or(time, |sleep| sleep.min(time)));
    let mut ready = Vec::new();
    for (id, queue) in
        all.queues.iter_mut().filter(|(_, queue)| queue.device == device && !queue.running)
    {
        match queue.pending.front() {
            None => continue,
            Some((_, Work::Wait(mark))) => {
                if mark.is_shared() {
                    until(POLL);
                }
                continue;
            }
            Some(_) => {}
        }
        if let Some(random) = random.as_deref_mut() {
            if !queue.considered {
                queue.considered = true;
                queue.held_until = hold(random).map(|time| Instant::now() + time);
            }
            if let Some(time) =
                queue.held_until.and_then(|time| time.checked_duration_since(Instant::now()))
            {
                until(time);
                continue;
            }
        }
        ready.push((queue.pending[0].0, *id));
    }
    let chosen = match random {
        Some(random) if !ready.is_empty() => Some(ready[random.below(ready.len() as u64) as usize]),
        _ => ready.into_iter().min(),
    };
    let Some((_, id)) = chosen else { return Choice::Sleep(sleep) };
    match all.queues.get_mut(&id).and_then(|queue| {
        queue.running = true;
        queue.pending.pop_front()
    }) {
        Some((_, work)) => Choice::Perform(id, work),
        None => Choice::Sleep(sleep),
    }
}

/// Takes away the waits whose events are done.
fn skip_waits(all: &mut Queues, device: usize) {
    let mut skipped = Vec::new();
    for (id, queue) in
        all.queues.iter_mut().filter(|(_, queue)| queue.device == device && !queue.running)
    {
        while let Some((_, Work::Wait(mark))) = queue.pending.front() {
            if mark.is_lost() {
                eprintln!(
                    "simulated GPU {device}: a stream waits for an event that its maker, another process, has destroyed"
                );
                context::of(device).break_with(Code::ILLEGAL_ADDRESS);
            } else if !mark.is_done() {
                break;
            }
            queue.pending.pop_front();
            skipped.push(*id);
        }
    }
    for id in skipped {
        stream::finish(all, id);
    }
}

/// How long the adversary holds a piece of work back.
fn hold(random: &mut Random) -> Option<Duration> {
    match random.below(8) {
        0 => Some(Duration::from_micros(random.below(3000))),
        1 | 2 => Some(Duration::from_micros(random.below(300))),
        _ => None,
    }
}
