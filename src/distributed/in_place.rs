//! Collectives that read the memory of all ranks where it lies: the parts of sharded parameters, and their gradients.
//! Ranks meet once, at the beginning. Who writes to its part again waits first until all others have read it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};

use super::collective::{Collective, Kind, Owner, RawBuffer, ReduceOp, Signature};
use super::group::WeakGroup;
use super::shm::reduce;
use super::{Deadline, ProcessGroup, SharedBuffer, Work};
use crate::error::Result;
use crate::storage::Storage;
use crate::tensor::Tensor;

/// What a rank does with the buffers of all ranks, in place of a result. It is called once all are there, and reads no
/// more of each than it gives.
#[derive(Clone)]
pub(super) struct Read {
    take: Arc<Take>,
    last: Arc<AtomicU32>,
}

/// Takes what it needs from everyone's memory.
type Take = dyn Fn(&[*const u8]) + Send + Sync;

impl Read {
    /// Reads, in the collective with this number.
    pub fn run(&self, number: u32, views: &[*const u8]) {
        (self.take)(views);
        self.last.store(number, Release);
    }
}

impl fmt::Debug for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Read")
    }
}

/// Those who may still read a rank's memory after a collective of this kind.
#[derive(Debug)]
pub(crate) struct Readers {
    group: WeakGroup,
    last: Arc<AtomicU32>,
}

impl Readers {
    pub fn new(group: &ProcessGroup) -> Readers {
        Readers { group: group.downgrade(), last: Arc::default() }
    }

    /// Waits until all have read what this rank gave in the collectives that it has completed. All are there: it is a
    /// copy at most that is waited for.
    ///
    /// # Errors
    /// Those of a collective.
    pub fn wait(&self) -> Result<()> {
        let (number, group) = (self.last.load(Acquire), self.group.upgrade());
        let Some(group) = group.filter(|_| number > 0) else { return Ok(()) };
        let backend = &group.member("read")?.backend;
        backend.wait_until_read(number, &Deadline::after(group.timeout()))
    }
}

/// Memory for what a group reduces in place; what needs it takes turns.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub buffer: SharedBuffer,
    pub readers: Readers,
}

/// A run of bytes that one rank has, and where it goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub rank: usize,
    pub from: usize,
    pub to: usize,
    pub nbytes: usize,
}

impl ProcessGroup {
    /// Whether all ranks are processes of one host, so that each may read the memory of the others.
    pub(crate) fn is_on_one_host(&self) -> bool {
        self.member("host").is_ok_and(|member| member.backend.is_on_one_host())
    }

    /// The memory for gradients, of at least so many bytes. All ranks ask for the same, in the same order.
    ///
    /// # Errors
    /// Those of [`alloc_shared`](Self::alloc_shared).
    pub(crate) fn scratch(&self, nbytes: usize) -> Result<Arc<Scratch>> {
        let mut scratch = self.member("scratch")?.scratch.lock();
        if let Some(scratch) = scratch.as_ref().filter(|known| known.buffer.nbytes() >= nbytes) {
            return Ok(scratch.clone());
        }
        let buffer = self.alloc_shared(nbytes)?;
        let made = Arc::new(Scratch { buffer, readers: Readers::new(self) });
        Ok(scratch.insert(made).clone())
    }

    /// Copies runs of all ranks' shared `mine` to `whole`: here and now, or in the background.
    ///
    /// # Errors
    /// Those of a collective.
    pub(crate) fn gather_in_place(
        &self,
        whole: &Tensor,
        mine: &Tensor,
        runs: Vec<Run>,
        readers: &Readers,
        in_background: bool,
    ) -> Result<Option<Work>> {
        let (given, room) = (raw(mine).nbytes(), raw(whole).nbytes());
        let inside = |run: &Run| run.from + run.nbytes <= given && run.to + run.nbytes <= room;
        assert!(runs.iter().all(inside), "a run is not inside the memory");
        // Both are kept until then.
        let (own, kept) = (mine.clone(), whole.clone());
        let take = move |views: &[*const u8]| {
            let _own = &own;
            let taken = raw(&kept);
            for run in &runs {
                let from = views[run.rank];
                // SAFETY: each rank gives as much as this one, of which the run is a part, and the target has room
                // (checked above). Nobody writes to what is given until all have read it, and the target is private.
                unsafe {
                    taken.ptr.add(run.to).copy_from_nonoverlapping(from.add(run.from), run.nbytes);
                }
            }
        };
        let collective = self.reads(Kind::AllGather, None, mine, whole, readers, take);
        self.run_reads(collective, in_background)
    }

    /// Starts to combine part `rank` of all ranks' shared `mine` in `output`.
    ///
    /// # Errors
    /// Those of a collective.
    pub(crate) fn reduce_in_place(
        &self,
        output: &Tensor,
        mine: &Tensor,
        op: ReduceOp,
        readers: &Readers,
    ) -> Result<Option<Work>> {
        let (rank, dtype) = (self.rank(), mine.dtype());
        assert!(mine.numel() == output.numel() * self.world_size(), "a part for each rank");
        let (own, kept) = (mine.clone(), output.clone());
        let take = move |views: &[*const u8]| {
            let _own = &own;
            let to = raw(&kept);
            let start = rank * to.nbytes();
            let sources: Vec<*const u8> =
                views.iter().map(|view| view.wrapping_add(start)).collect();
            // SAFETY: each rank gives a part for each, of which nobody writes until all have read; the output is private.
            unsafe { reduce(op, dtype, &sources, &[to.ptr], to.len) };
        };
        let collective = self.reads(Kind::ReduceScatter, Some(op), mine, output, readers, take);
        self.run_reads(collective, true)
    }

    fn reads(
        &self,
        kind: Kind,
        op: Option<ReduceOp>,
        mine: &Tensor,
        result: &Tensor,
        readers: &Readers,
        take: impl Fn(&[*const u8]) + Send + Sync + 'static,
    ) -> Collective {
        let signature = Signature::of_host(kind, mine.shape());
        let signature = Signature { op, dtype: mine.dtype(), ..signature };
        let read = Some(Read { take: Arc::new(take), last: readers.last.clone() });
        let owner = Some(Owner::Storage(Storage::clone(result.storage())));
        Collective { signature, send: Some(raw(mine)), recv: None, owner, gpu: None, read }
    }

    fn run_reads(&self, collective: Collective, in_background: bool) -> Result<Option<Work>> {
        let name = collective.signature.kind.name();
        if in_background {
            return self.start(name, collective, || ()).map(Some);
        }
        self.run(name, &collective)?;
        Ok(None)
    }
}

fn raw(tensor: &Tensor) -> RawBuffer {
    RawBuffer { ptr: tensor.device_ptr(), len: tensor.numel(), dtype: tensor.dtype() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::distributed::tests::ranks;
    use crate::tensor::Dtype;

    /// Parts of 3, 3 and 2 elements, of which rank 1 reads slowly.
    #[test]
    fn who_writes_again_waits_for_those_who_read() {
        let read = ranks(3, |group| {
            let rank = group.rank();
            let mine = group.empty_shared(&[3], Dtype::F32).unwrap();
            mine.fill_(rank as f64);
            let whole = Tensor::zeros([8], Dtype::F32);
            let readers = Readers::new(&group);
            readers.wait().unwrap();
            let run = |rank: usize| {
                let (to, nbytes) = (rank * 12, [12, 12, 8][rank]);
                Run { rank, from: 0, to, nbytes }
            };
            let seen = whole.clone();
            let slowly = move |views: &[*const u8]| {
                if rank == 1 {
                    std::thread::sleep(Duration::from_millis(60));
                }
                let all: Vec<f32> = views
                    .iter()
                    // SAFETY: each rank gives three elements, and writes again once all have read.
                    .flat_map(|view| unsafe { *view.cast::<[f32; 3]>() })
                    .collect();
                seen.copy_(&Tensor::from(all).narrow(0, 0, 8));
            };
            let collective = group.reads(Kind::AllGather, None, &mine, &whole, &readers, slowly);
            group.run_reads(collective, false).unwrap();
            readers.wait().unwrap();
            mine.fill_(9.0);
            let seen = whole.to_vec::<f32>();
            let gather = |in_background| {
                let runs = (0..3).map(run).collect();
                group.gather_in_place(&whole, &mine, runs, &readers, in_background).unwrap()
            };
            gather(true).unwrap().wait().unwrap();
            (seen, whole.to_vec::<f32>())
        });
        for (first, second) in read {
            assert_eq!(first, [0., 0., 0., 1., 1., 1., 2., 2.]);
            assert_eq!(second, [9.; 8]);
        }
    }

    #[test]
    fn each_rank_combines_its_own_part() {
        let sums = ranks(3, |group| {
            let mine = group.empty_shared(&[3, 2], Dtype::F32).unwrap();
            mine.copy_(
                &(Tensor::arange(0, 6, 1, Dtype::F32).reshape([3, 2]) + group.rank() as f64),
            );
            let (output, readers) = (Tensor::zeros([2], Dtype::F32), Readers::new(&group));
            let work = group.reduce_in_place(&output, &mine, ReduceOp::Sum, &readers).unwrap();
            work.unwrap().wait().unwrap();
            readers.wait().unwrap();
            output.to_vec::<f32>()
        });
        assert_eq!(sums, [[3., 6.], [9., 12.], [15., 18.]]);
    }
}
