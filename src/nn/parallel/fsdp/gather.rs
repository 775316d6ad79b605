//! Wholes from the parts of all ranks: gathered when they are needed or ahead of that, and cut again over fewer ranks.

use super::group::{Member, Parts, ShardGroup, State, Whole};
use super::layout::{Chunks, Line};
use crate::cuda::Stream;
use crate::distributed::{ProcessGroup, Run, Work};
use crate::error::Result;
use crate::storage::Device;
use crate::tensor::Tensor;

/// A line's wholes on their way.
pub(super) struct Coming {
    memory: Tensor,
    /// `None` when they are there.
    pub work: Option<Work>,
    from: From,
    /// What version the shards had.
    pub shards: u32,
}

/// What comes.
#[derive(Clone, Copy)]
enum From {
    /// The wholes, each where it belongs.
    Wholes,
    /// A line of each rank.
    Lines,
    /// A line of each rank of the smaller world.
    SmallLines,
}

/// Fewer ranks, between which wholes are cut from forward to backward.
pub(super) struct SmallWorld {
    pub group: ProcessGroup,
    pub lines: Vec<Line>,
}

/// This rank's part of a line in the smaller world.
pub(super) struct Partly {
    memory: Tensor,
    pub shards: u32,
}

impl ShardGroup {
    /// Gathers from all ranks: `ahead` of use, in the background.
    pub(super) fn gather(&self, state: &mut State, ahead: bool) -> Result<Vec<Coming>> {
        self.without_modes(|| {
            let line = |parts: &Parts| self.gather_line(parts, state, ahead);
            self.lines.iter().map(line).collect()
        })
    }

    fn gather_line(&self, parts: &Parts, state: &mut State, ahead: bool) -> Result<Coming> {
        let shards = parts.shards.version();
        let origin = self.origin("the values of");
        let (device, runs) = {
            let place = parts.place.lock();
            (place.device, place.runs.clone())
        };
        let place = (parts.dtype, device);
        if device.is_meta() {
            let memory = Tensor::empty([parts.line.whole_numel], place);
            return Ok(Coming { memory, work: None, from: From::Wholes, shards });
        }
        if let Some(runs) = runs {
            let memory = Tensor::empty([parts.line.whole_numel], place);
            let own = &parts.flat;
            let gather = || self.shards.gather_in_place(&memory, own, runs, &self.readers, ahead);
            let work = origin.over(gather)?;
            return Ok(Coming { memory, work, from: From::Wholes, shards });
        }
        let mut input = parts.flat.clone();
        if device != input.device() {
            input = input.to_device(device);
            if let Device::Cuda(gpu) = device {
                state.copied = Some(Stream::current(gpu)?.record_event()?);
            }
        }
        let input = input.to_dtype(parts.dtype);
        let world = self.shards.world_size();
        if world == 1 {
            return Ok(Coming { memory: input, work: None, from: From::Wholes, shards });
        }
        let memory = Tensor::empty([world * parts.line.numel], place);
        let work = origin.over(|| all_gather(&self.shards, &memory, &input, ahead))?;
        Ok(Coming { memory, work, from: From::Lines, shards })
    }

    /// Gathers from the smaller world what was cut over it.
    pub(super) fn gather_small(&self, from: &[Partly], ahead: bool) -> Result<Vec<Coming>> {
        let Some(small) = &self.small else { return Ok(Vec::new()) };
        let line = |((parts, line), from): ((&Parts, &Line), &Partly)| {
            let numel = small.group.world_size() * line.numel;
            let memory = Tensor::empty([numel], (parts.dtype, parts.device()));
            if memory.device().is_meta() {
                let (from, shards) = (From::SmallLines, from.shards);
                return Ok(Coming { memory, work: None, from, shards });
            }
            let gather = || all_gather(&small.group, &memory, &from.memory, ahead);
            let work = self.origin("the values, from fewer ranks, of").over(gather)?;
            Ok(Coming { memory, work, from: From::SmallLines, shards: from.shards })
        };
        self.without_modes(|| self.lines.iter().zip(&small.lines).zip(from).map(line).collect())
    }

    /// Waits for the wholes, and puts the rows of all ranks behind each other.
    pub(super) fn arrange(&self, coming: Vec<Coming>) -> Result<Vec<Whole>> {
        let arrange = |(place, coming): (usize, Coming)| {
            coming.work.map_or(Ok(()), |work| work.wait())?;
            let parts = &self.lines[place];
            let small = self.small.as_ref();
            let memory = match (coming.from, small) {
                (From::Lines, _) => {
                    parts.arrange(&coming.memory, &parts.line, self.shards.world_size())
                }
                (From::SmallLines, Some(small)) => {
                    parts.arrange(&coming.memory, &small.lines[place], small.group.world_size())
                }
                _ => coming.memory,
            };
            let version = |member: &Member| member.storage().map_or(0, |s| s.version());
            let versions = parts.members.iter().map(version).collect();
            Ok(Whole { memory: memory.storage().clone(), versions, shards: coming.shards })
        };
        self.without_modes(|| coming.into_iter().enumerate().map(arrange).collect())
    }

    /// Cuts the wholes over the smaller world.
    pub(super) fn cut(&self, small: &SmallWorld, wholes: &[Whole]) -> Vec<Partly> {
        let rank = small.group.rank();
        let cut = |((parts, line), whole): ((&Parts, &Line), &Whole)| {
            let memory = Tensor::empty([line.numel], (parts.dtype, parts.device()));
            let all = parts.whole_line(whole);
            for chunks in &line.chunks {
                let (numel, start) = (chunks.numel_of(rank), chunks.whole_start);
                let from = all.narrow(0, start + chunks.offset_of(rank), numel);
                memory.narrow(0, chunks.start, numel).copy_(&from);
            }
            Partly { memory, shards: whole.shards }
        };
        self.lines.iter().zip(&small.lines).zip(wholes).map(cut).collect()
    }
}

fn all_gather(
    group: &ProcessGroup,
    output: &Tensor,
    input: &Tensor,
    ahead: bool,
) -> Result<Option<Work>> {
    if ahead {
        return group.all_gather_into_tensor_async(output, input).map(Some);
    }
    group.all_gather_into_tensor(output, input)?;
    Ok(None)
}

impl Parts {
    /// The wholes one behind the other.
    fn whole_line(&self, whole: &Whole) -> Tensor {
        let layout = crate::tensor::Layout::contiguous(&[self.line.whole_numel]);
        Tensor::from_parts(whole.memory.clone(), layout, self.dtype)
    }

    /// The wholes from the lines of all ranks of a world.
    fn arrange(&self, gathered: &Tensor, line: &Line, world: usize) -> Tensor {
        let all = Tensor::empty([line.whole_numel], (self.dtype, gathered.device()));
        for chunks in &line.chunks {
            each_chunk(chunks, world, |of_whole, start, length, ranks| {
                let to = all.narrow(0, chunks.whole_start + of_whole, length * ranks.len());
                let from = gathered.reshape_to(&[world, line.numel]);
                let from = from.narrow(0, ranks.start, ranks.len()).narrow(1, start, length);
                to.reshape_to(&[ranks.len(), length]).copy_(&from);
            });
        }
        all
    }

    /// A line of gradients for each rank.
    pub(super) fn scatter(&self, grads: &[Option<Tensor>], all: &Tensor, world: usize) {
        let line = &self.line;
        for (chunks, grad) in line.chunks.iter().zip(grads) {
            each_chunk(chunks, world, |of_whole, start, length, ranks| {
                let to = all.reshape_to(&[world, line.numel]);
                let to = to.narrow(0, ranks.start, ranks.len()).narrow(1, start, length);
                match grad {
                    Some(grad) => {
                        let grad = grad.reshape_to(&[chunks.numel()]);
                        let from = grad.narrow(0, of_whole, length * ranks.len());
                        to.copy_(&from.reshape_to(&[ranks.len(), length]));
                    }
                    None => _ = to.fill_(0.0),
                }
            });
        }
    }
}

/// Where the chunks of all ranks go, for those who read them where they are.
pub(super) fn runs(line: &Line, world: usize, size: usize) -> Vec<Run> {
    let of_rank = |rank: usize| {
        line.chunks.iter().map(move |chunks| Run {
            rank,
            from: chunks.start * size,
            to: (chunks.whole_start + chunks.offset_of(rank)) * size,
            nbytes: chunks.numel_of(rank) * size,
        })
    };
    (0..world).flat_map(of_rank).filter(|run| run.nbytes > 0).collect()
}

/// Calls `f` for all chunks at once where they are of one size, else for each that has elements: where it begins in the
/// whole and in a line, its length, and the ranks.
fn each_chunk(
    chunks: &Chunks,
    world: usize,
    mut f: impl FnMut(usize, usize, usize, std::ops::Range<usize>),
) {
    if chunks.numel() == 0 {
        return;
    }
    if chunks.is_even(world) {
        return f(0, chunks.start, chunks.numel_of(0), 0..world);
    }
    for rank in 0..world {
        let numel = chunks.numel_of(rank);
        if numel > 0 {
            f(chunks.offset_of(rank), chunks.start, numel, rank..rank + 1);
        }
    }
}
