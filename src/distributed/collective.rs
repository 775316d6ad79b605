//! One collective operation as a value: what it does, to which memory. The tensor-level calls make
//! these, the queue orders them, a backend runs them, and what a rank publishes for its peers to
//! compare is made from them.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Dtype;
use super::in_place::Read;
use super::origin::Origin;
use super::ranks::list_numbers;
use crate::error::{Error, Result};
use crate::storage::{SharedMemory, Storage};

/// How elements of different ranks are combined (`torch.distributed.ReduceOp`).
///
/// The result is the same on all ranks, bit for bit: elements are combined in rank order 0, 1, ...,
/// N-1. f16 and bf16 are combined in f32 and rounded once, at the end. Integers wrap around.
/// For bool, `Sum`, `Max` and `Bor` are "or", `Product`, `Min` and `Band` are "and".
///
/// Over several hosts the same holds, but for an all-reduce of more than 64 KiB (all ranks' buffers together):
/// there the ranks of each host are combined first, then the hosts, f16 and bf16 are rounded after each of these
/// steps, and `Avg` divides at the end.
///
/// Tensors on a GPU are combined by NCCL, in an order of its own and in their own dtype; its `Min` and `Max`
/// pass over NaN, and of the bitwise operations it has "and" and "or" of bool only.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use torchrs::{Tensor, distributed::ReduceOp};
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// // Rank 0 has 1, rank 1 has 4.
/// let x = Tensor::from([1.0 + 3.0 * group.rank() as f32]);
/// for (op, expected) in [(ReduceOp::Sum, 5.0), (ReduceOp::Avg, 2.5), (ReduceOp::Min, 1.0)] {
///     let all = x.clone_contiguous();
///     group.all_reduce(&all, op)?;
///     assert_eq!(all.item(), expected);
/// }
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum ReduceOp {
    /// The sum.
    Sum,
    /// The sum divided by the number of ranks. Floating point only.
    Avg,
    /// The product.
    Product,
    /// The smallest; NaN if any is NaN.
    Min,
    /// The largest; NaN if any is NaN.
    Max,
    /// Bitwise and. Integers and bool only.
    Band,
    /// Bitwise or. Integers and bool only.
    Bor,
    /// Bitwise exclusive or. Integers and bool only.
    Bxor,
}

impl ReduceOp {
    /// All operations.
    pub const ALL: [ReduceOp; 8] = {
        use ReduceOp::*;
        [Sum, Avg, Product, Min, Max, Band, Bor, Bxor]
    };

    /// Checks that the operation is defined for `dtype`.
    ///
    /// ```
    /// use torchrs::{Dtype, distributed::ReduceOp};
    /// assert!(ReduceOp::Avg.check("all_reduce", Dtype::F32).is_ok());
    /// let error = ReduceOp::Band.check("all_reduce", Dtype::F32).unwrap_err();
    /// assert_eq!(error.to_string(), "all_reduce: band takes integers and bool, got f32");
    /// ```
    ///
    /// # Errors
    /// [`Error::Dtype`]: `Avg` of integers or bool, a bitwise operation on floating point, anything
    /// but `Sum` and `Avg` on complex numbers.
    pub fn check(self, call: &str, dtype: Dtype) -> Result<()> {
        let bitwise = matches!(self, ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor);
        if dtype.is_complex() && !matches!(self, ReduceOp::Sum | ReduceOp::Avg) {
            let what = format!("{self} does not take complex tensors, got {dtype}");
            return Err(Error::dtype(call, what));
        }
        if bitwise && dtype.is_floating_point() {
            let what = format!("{self} takes integers and bool, got {dtype}");
            return Err(Error::dtype(call, what));
        }
        if self == ReduceOp::Avg && !dtype.is_differentiable() {
            let what = format!("avg takes floating-point types, got {dtype}; use sum and divide");
            return Err(Error::dtype(call, what));
        }
        Ok(())
    }

    fn from_code(code: u8) -> Option<Self> {
        ReduceOp::ALL.get(usize::from(code)).copied()
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Avg => "avg",
            ReduceOp::Product => "product",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            ReduceOp::Band => "band",
            ReduceOp::Bor => "bor",
            ReduceOp::Bxor => "bxor",
        })
    }
}

/// Which collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Barrier,
    AllReduce,
    Broadcast,
    Reduce,
    AllGather,
    ReduceScatter,
    Gather,
    Scatter,
    AllToAll,
    AllocShared,
    NewGroup,
    /// From the first of a direction's two ranks to the second.
    Send,
}

impl Kind {
    pub(crate) const ALL: [Kind; 12] = {
        use Kind::*;
        [
            Barrier,
            AllReduce,
            Broadcast,
            Reduce,
            AllGather,
            ReduceScatter,
            Gather,
            Scatter,
            AllToAll,
            AllocShared,
            NewGroup,
            Send,
        ]
    };

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Barrier => "barrier",
            Kind::AllReduce => "all_reduce",
            Kind::Broadcast => "broadcast",
            Kind::Reduce => "reduce",
            Kind::AllGather => "all_gather",
            Kind::ReduceScatter => "reduce_scatter",
            Kind::Gather => "gather",
            Kind::Scatter => "scatter",
            Kind::AllToAll => "all_to_all",
            Kind::AllocShared => "alloc_shared",
            Kind::NewGroup => "new_group",
            Kind::Send => "send/recv",
        }
    }
}

/// How eagerly a thread may wait for its peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The caller has nothing else to do: it may burn a little time to save latency.
    Foreground,
    /// Other threads of the process are at work on the same cores.
    Background,
}

/// `len` elements of `dtype` at `ptr`. Whoever makes one sees to it that the memory outlives the
/// collective that it is given to, and is not used by others meanwhile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawBuffer {
    pub ptr: *mut u8,
    pub len: usize,
    pub dtype: Dtype,
}

// SAFETY: an address with a length; the contract above makes the memory this collective's own,
// whichever thread runs it.
unsafe impl Send for RawBuffer {}

impl RawBuffer {
    pub(crate) fn nbytes(&self) -> usize {
        self.len * self.dtype.size()
    }
}

/// What keeps a collective's memory where it is. MPI may write to it even after the call that began this has failed,
/// so it is handed out with the memory.
#[derive(Debug, Clone)]
#[allow(dead_code)] // They are kept, not read.
pub(crate) enum Owner {
    /// A tensor's.
    Storage(Storage),
    /// What the members of a host map.
    Shared(Arc<SharedMemory>),
}

/// The part of a collective that all ranks have to agree on, and where each has called it.
#[derive(Debug, Clone)]
pub(crate) struct Signature {
    pub kind: Kind,
    /// Of a reduction.
    pub op: Option<ReduceOp>,
    /// Of a rooted collective: rank in the group.
    pub root: Option<usize>,
    pub dtype: Dtype,
    /// Whether the memory is a GPU's.
    pub on_gpu: bool,
    /// Of this rank's input; of its output for `Scatter` and of the tensor itself for `Broadcast`.
    pub shape: SmallVec<[usize; 6]>,
    /// Where in the program it was called; ranks may differ in that, but for its number. `None` for what a peer has published.
    pub origin: Option<Origin>,
}

impl Signature {
    /// Of a call for which only its kind and some numbers matter.
    #[track_caller]
    pub(crate) fn of_host(kind: Kind, shape: &[usize]) -> Signature {
        let (dtype, shape) = (Dtype::U8, SmallVec::from_slice(shape));
        let origin = Some(Origin::here());
        Signature { kind, op: None, root: None, dtype, on_gpu: false, shape, origin }
    }

    /// Which of several things that are alike it is for; 0 when ranks need not agree on that.
    pub(crate) fn number(&self) -> u32 {
        self.origin.as_ref().map_or(0, Origin::number)
    }

    /// The call with its place: `barrier, called at src/main.rs:41`.
    pub(crate) fn with_place(&self) -> String {
        match &self.origin {
            Some(origin) => format!("{self}, called at {origin}"),
            None => self.to_string(),
        }
    }

    /// Number of elements; of a new group's member list, its length.
    pub(crate) fn numel(&self) -> usize {
        match self.kind {
            Kind::NewGroup => self.shape.len(),
            _ => self.shape.iter().product(),
        }
    }

    /// Kind, op, dtype and place in one word, for comparing and publishing.
    pub(crate) fn code(&self) -> u32 {
        let op = self.op.map_or(0, |op| op as u32 + 1);
        u32::from(self.on_gpu) << 24 | (self.kind as u32) << 16 | op << 8 | self.dtype as u32
    }

    /// The inverse of [`code`](Self::code), for words that a peer has published. `None` if they
    /// make no sense.
    pub(crate) fn from_code(code: u32, root: Option<usize>, shape: &[usize]) -> Option<Self> {
        let [dtype, op, kind, place] = code.to_le_bytes();
        let op = match op {
            0 => None,
            op => Some(ReduceOp::from_code(op - 1)?),
        };
        Some(Signature {
            kind: *Kind::ALL.get(usize::from(kind))?,
            op,
            root,
            dtype: *Dtype::ALL.get(usize::from(dtype))?,
            on_gpu: (place < 2).then_some(place == 1)?,
            shape: shape.into(),
            origin: None,
        })
    }
}

/// `all_reduce(sum, f32, [3, 4])`, `broadcast(root 2, i64, [])`, `new_group(ranks [0, 2])`.
impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        match self.kind {
            Kind::Barrier => return Ok(()),
            Kind::AllocShared => return write!(f, "({} bytes)", self.numel()),
            Kind::NewGroup => return write!(f, "(ranks [{}])", list_numbers(&self.shape)),
            _ => f.write_str("(")?,
        }
        if let Some(op) = self.op {
            write!(f, "{op}, ")?;
        }
        if let Some(root) = self.root {
            write!(f, "root {root}, ")?;
        }
        let place = if self.on_gpu { ", cuda" } else { "" };
        write!(f, "{}, {:?}{place})", self.dtype, self.shape.as_slice())
    }
}

/// A collective with this rank's memory. Lengths fit each other and the group's size: the call that
/// made it has checked them.
#[derive(Debug, Clone)]
pub(crate) struct Collective {
    pub signature: Signature,
    /// What this rank gives.
    pub send: Option<RawBuffer>,
    /// Where this rank's result goes. May be the same memory as `send`.
    pub recv: Option<RawBuffer>,
    /// Of `recv`; `None` where only the caller knows how long that lives.
    pub owner: Option<Owner>,
    /// The GPU that both are on; `None` for memory of the host.
    pub gpu: Option<usize>,
    /// What reads everyone's `send` where it is, on one host. There is no `recv` then.
    pub read: Option<Read>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_code_reads_back_as_the_same_call() {
        for kind in Kind::ALL {
            for op in [None, Some(ReduceOp::Sum), Some(ReduceOp::Bxor)] {
                for dtype in Dtype::ALL {
                    for on_gpu in [false, true] {
                        let shape = [3usize, 4][..].into();
                        let (root, origin) = (Some(1), None);
                        let signature = Signature { kind, op, root, dtype, on_gpu, shape, origin };
                        let back = Signature::from_code(signature.code(), root, &[3, 4]).unwrap();
                        assert_eq!(format!("{back:?}"), format!("{signature:?}"));
                    }
                }
            }
        }
        assert!(Signature::from_code(u32::MAX, None, &[]).is_none());
    }

    #[test]
    fn calls_are_shown_as_a_person_would_write_them() {
        let show = |kind, op, root, shape: &[usize]| {
            let (dtype, on_gpu) = (Dtype::F32, false);
            let (shape, origin) = (shape.into(), None);
            Signature { kind, op, root, dtype, on_gpu, shape, origin }.to_string()
        };
        assert_eq!(
            show(Kind::AllReduce, Some(ReduceOp::Sum), None, &[3, 4]),
            "all_reduce(sum, f32, [3, 4])"
        );
        assert_eq!(show(Kind::Broadcast, None, Some(2), &[]), "broadcast(root 2, f32, [])");
        assert_eq!(show(Kind::Barrier, None, None, &[]), "barrier");
        assert_eq!(show(Kind::NewGroup, None, None, &[0, 2]), "new_group(ranks [0, 2])");
    }

    #[test]
    fn undefined_reductions_are_refused() {
        use Dtype::*;
        assert!(ReduceOp::Avg.check("all_reduce", F16).is_ok());
        let error = ReduceOp::Avg.check("all_reduce", I32).unwrap_err();
        assert_eq!(
            error.to_string(),
            "all_reduce: avg takes floating-point types, got i32; use sum and divide"
        );
        assert!(ReduceOp::Band.check("reduce", F32).is_err());
        assert!(ReduceOp::Bxor.check("reduce", Bool).is_ok());
    }
}
