//! The job's ranks in MPI, and communicators of rails. Only a rail's places make its communicator.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use parking_lot::Mutex;
use torchrs_links::{Addresses, Call, Failure, Links, Listener, Options, Watch};
use torchrs_mpi::{Communicator, Mpi};

use super::heads::Heads;
use super::wait::Wait;
use super::{Engine, MpiRail};
use crate::distributed::Deadline;
use crate::error::{Error, Result};

/// MPI tells communicators that are made at one time apart by a number below this.
const TAGS: u64 = 1 << 15;

/// The processes of a job in MPI.
pub(in crate::distributed::hosts) struct MpiWorld {
    all: Communicator,
    /// By rank of the job, that in MPI.
    ranks: Vec<usize>,
}

impl MpiWorld {
    /// All ranks of the job call it.
    ///
    /// # Errors
    /// As [`Mpi::load`]; [`Error::Config`] where MPI has other processes than the job.
    pub fn join(rank: usize, world_size: usize, deadline: &Deadline) -> Result<Self> {
        let none = &mut || None;
        let world = Mpi::load(*deadline)?.world();
        let all = world.and_then(|world| world.duplicate(*deadline, none));
        let all = all.map_err(torchrs_mpi::Failure::into_error)?;
        if all.size() != world_size {
            let what = format!("is {world_size}, and MPI knows {} processes", all.size());
            return Err(Error::config("WORLD_SIZE", what));
        }
        let mut told = vec![0i64; world_size];
        told[all.rank()] = rank as i64;
        let told = all.all_gather(told, &vec![8; world_size]);
        let told = told
            .and_then(|told| told.wait(*deadline, none))
            .map_err(torchrs_mpi::Failure::into_error)?;
        let mut ranks = vec![usize::MAX; world_size];
        for (mpi, &rank) in told.iter().enumerate() {
            ranks[rank as usize] = mpi;
        }
        match ranks.iter().position(|&mpi| mpi == usize::MAX) {
            None => Ok(MpiWorld { all, ranks }),
            Some(missing) => {
                let what = format!("is {missing} for none of MPI's processes: {told:?}");
                Err(Error::config("RANK", what))
            }
        }
    }
}

/// Joins the places of a rail, the job's `ranks`, of which this process is number `place`.
#[allow(clippy::too_many_arguments)] // Those of `Links::connect`, and who they are in MPI.
pub(in crate::distributed::hosts) fn connect(
    world: &MpiWorld,
    ranks: &[usize],
    listener: &Listener,
    name: &str,
    members: &[Addresses],
    place: usize,
    deadline: &Deadline,
    watch: &Watch<'_>,
) -> Result<Box<dyn Engine>, Failure> {
    let options = Options::default();
    let mut control = Links::connect(listener, name, members, place, &options, deadline, watch)?;
    let reserved = Reserved::agreed(&mut control, name, deadline, watch)?;
    let ranks: Vec<usize> = ranks.iter().map(|&rank| world.ranks[rank]).collect();
    let call = Call { number: 0, fingerprint: &[], deadline: *deadline, watch };
    let others = (0..members.len()).filter(|&other| other != place).collect();
    let made = Wait::new(&mut control, &call)
        .until(others, |watch| world.all.group(&ranks, reserved.0, *deadline, watch));
    let group = made.inspect_err(|failure| control.give_up(&failure.to_string()))?;
    let heads = Heads::new(members.len());
    Ok(Box::new(MpiRail { control, group, heads, slots: None, broken: None }))
}

/// A number by which MPI tells one communicator that is being made from others.
struct Reserved(u16);

/// Those that this process is using.
static RESERVED: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

impl Reserved {
    fn new(number: u16) -> Option<Self> {
        let is_new = RESERVED.lock().get_or_insert_default().insert(number);
        is_new.then_some(Reserved(number))
    }

    /// One that no place of a rail is using.
    fn agreed(
        control: &mut Links,
        name: &str,
        deadline: &Deadline,
        watch: &Watch<'_>,
    ) -> Result<Self, Failure> {
        let (place, places, start) = (control.place(), control.places(), Instant::now());
        for attempt in 0u64.. {
            let mut hash = DefaultHasher::new();
            (name, attempt).hash(&mut hash);
            let own = Reserved::new((hash.finish() % TAGS) as u16);
            let mut free = vec![0; places];
            free[place] = u8::from(own.is_some());
            let call = Call { number: attempt, fingerprint: b"number", deadline: *deadline, watch };
            control.all_gather(&call, &mut free, &vec![1; places])?;
            if let Some(own) = own.filter(|_| free.iter().all(|&free| free == 1)) {
                return Ok(own);
            }
            if deadline.has_passed() {
                break;
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        Err(Failure::TimedOut { waiting: (0..places).filter(|&p| p != place).collect(), seconds })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(reserved) = RESERVED.lock().as_mut() {
            reserved.remove(&self.0);
        }
    }
}
