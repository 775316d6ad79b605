//! A group of ranks with its own order of operations, and how such groups are made.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use torchrs_error::Error;
use torchrs_job::deadline::Deadline;

use crate::abi::{Handle, UNDEFINED};
use crate::failure::{Failure, Watch, within};
use crate::mpi::Mpi;

/// A group of ranks. All its ranks start the same operations in the same order. After an error it is unusable.
#[derive(Debug)]
pub struct Communicator {
    pub(crate) shared: Arc<Shared>,
    /// The most bytes of one call of MPI.
    pub(crate) longest: usize,
}

/// What a communicator and its requests have in common. Freed with the last of them.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) mpi: &'static Mpi,
    pub(crate) handle: Handle,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    /// Whether it was made here, and so is freed here.
    is_made: bool,
    /// Why it is unusable.
    spoilt: OnceLock<String>,
    /// How many operations by messages there have been: they are told apart by their tags.
    pub(crate) exchanges: AtomicU32,
}

impl Shared {
    fn new(mpi: &'static Mpi, handle: Handle, is_made: bool) -> Result<Self, String> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: a communicator of an open MPI, and places for the answers.
        unsafe {
            mpi.check("MPI_Comm_rank", (mpi.functions.MPI_Comm_rank)(handle, &raw mut rank))?;
            mpi.check("MPI_Comm_size", (mpi.functions.MPI_Comm_size)(handle, &raw mut size))?;
            // Some versions do not pass it on to what is made of a communicator.
            let returned = mpi.handles.errors_return;
            let code = (mpi.functions.MPI_Comm_set_errhandler)(handle, returned);
            mpi.check("MPI_Comm_set_errhandler", code)?;
        }
        let wrong = |_| format!("rank {rank} of {size} makes no sense");
        Ok(Shared {
            mpi,
            handle,
            rank: usize::try_from(rank).map_err(wrong)?,
            size: usize::try_from(size).map_err(wrong)?,
            is_made,
            spoilt: OnceLock::new(),
            exchanges: AtomicU32::new(0),
        })
    }

    pub(crate) fn spoil(&self, why: &str) {
        self.mpi.fail();
        // The first reason stays.
        let _ = self.spoilt.set(why.to_owned());
    }

    /// `rank 1 of 4`.
    pub(crate) fn place(&self) -> String {
        format!("rank {} of {}", self.rank, self.size)
    }

    pub(crate) fn usable(&self) -> Result<(), Failure> {
        match self.spoilt.get() {
            Some(why) => Err(Failure::failed(format!("the communicator is unusable: {why}"))),
            None => Ok(()),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Ok(_open) = self.mpi.enter()
            && self.is_made
            && self.spoilt.get().is_none()
        {
            let mut handle = self.handle;
            // SAFETY: made here; no request of it runs, since requests hold this value; MPI is open.
            unsafe { (self.mpi.functions.MPI_Comm_free)(&raw mut handle) };
        }
    }
}

impl Communicator {
    /// One call of MPI moves at most this. Counts end at 2^31; inside, some versions multiply counts by sizes in 32
    /// bits.
    const LONGEST: usize = 1 << 30;

    fn of(shared: Shared) -> Self {
        Communicator { shared: Arc::new(shared), longest: Self::LONGEST }
    }

    pub(crate) fn predefined(mpi: &'static Mpi, handle: Handle) -> Result<Self, Failure> {
        let _open = mpi.enter().map_err(Failure::failed)?;
        Shared::new(mpi, handle, false).map(Self::of).map_err(Failure::failed)
    }

    /// Cuts operations into calls of at most `bytes`, for tests. The same on all ranks.
    #[doc(hidden)]
    pub fn set_longest(&mut self, bytes: usize) {
        self.longest = bytes.clamp(16, Self::LONGEST);
    }

    /// This process's number in the group.
    pub fn rank(&self) -> usize {
        self.shared.rank
    }

    /// How many ranks the group has.
    pub fn size(&self) -> usize {
        self.shared.size
    }

    /// The MPI that it is of.
    pub fn mpi(&self) -> &'static Mpi {
        self.shared.mpi
    }

    /// Why nothing can be done with it any more, if so.
    pub fn unusable(&self) -> Option<&str> {
        self.shared.spoilt.get().map(String::as_str)
    }

    /// The same ranks with an order of operations of their own. All ranks call it.
    ///
    /// # Errors
    /// A deadline, the watch's words, MPI's error: this communicator is then unusable.
    pub fn duplicate(
        &self,
        deadline: impl Into<Deadline>,
        watch: &mut Watch<'_>,
    ) -> Result<Communicator, Failure> {
        let make = |mpi: &Mpi, old: Handle, new: &mut Handle| {
            // SAFETY: `make` calls this with a communicator of an open MPI and a place for the new one.
            mpi.check("MPI_Comm_dup", unsafe { (mpi.functions.MPI_Comm_dup)(old, new) })
        };
        let what = format!("duplicate of {}", self.place());
        let made = self.make(&what, deadline.into(), watch, make)?;
        made.ok_or_else(|| Failure::failed("MPI_Comm_dup made no communicator"))
    }

    /// The group of all ranks that give the same `color`, numbered by `key` and then by rank; `None` for a rank
    /// without a color. All ranks call it.
    ///
    /// # Errors
    /// As [`duplicate`](Self::duplicate), and a color above `i32::MAX`.
    pub fn split(
        &self,
        color: Option<u32>,
        key: i32,
        deadline: impl Into<Deadline>,
        watch: &mut Watch<'_>,
    ) -> Result<Option<Communicator>, Failure> {
        let too_large = |_| {
            let what = format!("{color:?}; must be at most {}", i32::MAX);
            Error::argument("split", "color", what)
        };
        let color = color.map_or(Ok(UNDEFINED), c_int::try_from).map_err(too_large)?;
        let make = move |mpi: &Mpi, old: Handle, new: &mut Handle| {
            // SAFETY: as in `duplicate`.
            let code = unsafe { (mpi.functions.MPI_Comm_split)(old, color, key, new) };
            mpi.check("MPI_Comm_split", code)
        };
        let what = format!("split of {}", self.place());
        self.make(&what, deadline.into(), watch, make)
    }

    /// The group of `ranks` of this one, numbered in the list's order. Only those ranks call it, all with the same
    /// list. `tag` (below 32,768) tells apart groups that are made at one time.
    ///
    /// # Errors
    /// As [`duplicate`](Self::duplicate), and a list that names a rank twice, one that is not there, or not this one.
    pub fn group(
        &self,
        ranks: &[usize],
        tag: u16,
        deadline: impl Into<Deadline>,
        watch: &mut Watch<'_>,
    ) -> Result<Communicator, Failure> {
        let wrong = |message: String| Error::argument("group", "ranks", message);
        if let Some(rank) = ranks.iter().find(|rank| **rank >= self.size()) {
            let last = self.size() - 1;
            return Err(wrong(format!("has {rank}; ranks are 0 to {last}")).into());
        }
        let mut sorted = ranks.to_vec();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(wrong(format!("has {} twice", twice[0])).into());
        }
        if !ranks.contains(&self.rank()) {
            let own = self.rank();
            return Err(wrong(format!("{ranks:?}; must have the caller's own rank, {own}")).into());
        }
        if tag > i16::MAX as u16 {
            return Err(
                Error::argument("group", "tag", format!("{tag}; must be below 32768")).into()
            );
        }
        // They fit: below the size, which was an int.
        let ranks: Vec<c_int> = ranks.iter().map(|rank| *rank as c_int).collect();
        let make = move |mpi: &Mpi, old: Handle, new: &mut Handle| {
            let f = &mpi.functions;
            let (mut all, mut some) = (0, 0);
            // SAFETY: as in `duplicate`; the list lives through the call, and its ranks are of the group.
            unsafe {
                mpi.check("MPI_Comm_group", (f.MPI_Comm_group)(old, &raw mut all))?;
                let len = ranks.len() as c_int;
                let code = (f.MPI_Group_incl)(all, len, ranks.as_ptr(), &raw mut some);
                mpi.check("MPI_Group_incl", code)?;
                let code = (f.MPI_Comm_create_group)(old, some, c_int::from(tag), new);
                mpi.check("MPI_Comm_create_group", code)?;
                (f.MPI_Group_free)(&raw mut all);
                (f.MPI_Group_free)(&raw mut some);
            }
            Ok(())
        };
        let what = format!("a new group of {}", self.place());
        let made = self.make(&what, deadline.into(), watch, make)?;
        made.ok_or_else(|| Failure::failed("MPI_Comm_create_group made no communicator"))
    }

    fn make(
        &self,
        what: &str,
        deadline: Deadline,
        watch: &mut Watch<'_>,
        make: impl FnOnce(&Mpi, Handle, &mut Handle) -> Result<(), String> + Send + 'static,
    ) -> Result<Option<Communicator>, Failure> {
        self.shared.usable()?;
        let (mpi, old) = (self.mpi(), Arc::clone(&self.shared));
        mpi.begin();
        let result = within(what, deadline, watch, move || {
            let _open = mpi.enter()?;
            let mut new = 0;
            make(mpi, old.handle, &mut new)?;
            if new == mpi.handles.no_communicator || new == 0 {
                return Ok(None);
            }
            Shared::new(mpi, new, true).map(Some)
        });
        match result.and_then(|made| made.map_err(Failure::failed)) {
            Ok(made) => {
                mpi.end();
                Ok(made.map(|shared| Communicator { longest: self.longest, ..Self::of(shared) }))
            }
            Err(failure) => {
                self.shared.spoil(&failure.to_string());
                Err(failure)
            }
        }
    }

    pub(crate) fn place(&self) -> String {
        self.shared.place()
    }

    /// The tag of the next operation by messages: above those of [`send`](Self::send), and the same on all ranks.
    pub(crate) fn next_tag(&self) -> c_int {
        let number = self.shared.exchanges.fetch_add(1, Ordering::Relaxed);
        c_int::from(Self::TAGS) + (number % u32::from(Self::TAGS)) as c_int
    }
}
