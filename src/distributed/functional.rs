//! Collectives through which gradients pass (`torch.distributed.nn.functional`). Each gives a new tensor with
//! history; its derivative is another of them, so that derivatives can be differentiated again.
//!
//! What is differentiated is the sum of all ranks' losses: every rank runs backward through what it got, and a
//! tensor's gradient is what all ranks' results owe it. Backward is collective, too: ranks run it for the
//! same calls, in the same order. So all results have history as soon as any rank's tensor requires a gradient,
//! also those of the ranks whose own tensors do not. Each call first asks all ranks whether one does.
//!
//! | form | derivative, from the results' gradients |
//! | --- | --- |
//! | [`all_reduce`] | their sum or mean over all ranks, as in the call itself |
//! | [`broadcast`] | their sum over all ranks, on the root; zero on the others |
//! | [`reduce`] | the root's; with their own on the others, which keep their tensor |
//! | [`all_gather`] | the sum over all ranks of those of this rank's part |
//! | [`gather`] | the root's of this rank's part |
//! | [`scatter`] | each rank's, on the root, for its part |
//! | [`reduce_scatter`] | those of all ranks, each for its part |
//! | [`all_to_all`] | those of this rank's parts, sent back |
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
//! use torchrs::{Tensor, distributed::{ReduceOp, functional}};
//! # fn main() -> torchrs::Result<()> {
//! # two_ranks(|group| {
//! // Rank 0 has 1, rank 1 has 2; each loss is the square of their sum.
//! let x = Tensor::from([group.rank() as f32 + 1.0]).requires_grad_(true);
//! functional::all_reduce(&x, ReduceOp::Sum, &group)?.square().sum().backward();
//! // d(3^2 + 3^2)/dx
//! assert_eq!(x.grad().unwrap().item(), 12.0);
//! # Ok(())
//! # })
//! # }
//! ```

use smallvec::smallvec;

use super::origin::Origin;
use super::ranks::list_ranks;
use super::{ProcessGroup, ReduceOp};
use crate::autograd::{is_grad_enabled, no_grad, record};
use crate::error::{Error, Result, throw};
use crate::tensor::{Dtype, Tensor};

/// `tensor` combined over all ranks, on all ranks (`torch.distributed.nn.functional.all_reduce`).
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use torchrs::{Tensor, distributed::{ReduceOp, functional}};
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// let x = Tensor::from([group.rank() as f32]).requires_grad_(true);
/// let mean = functional::all_reduce(&x, ReduceOp::Avg, &group)?;
/// (&mean * 4.0).sum().backward();
/// assert_eq!((mean.item(), x.grad().unwrap().item()), (0.5, 4.0));
/// # Ok(())
/// # })
/// # }
/// ```
///
/// # Errors
/// [`Error::Argument`] for an operation other than sum and mean where a gradient is to flow;
/// [`Error::Mismatch`] where some ranks record gradients and others do not; otherwise as
/// [`ProcessGroup::all_reduce`].
#[track_caller]
pub fn all_reduce(tensor: &Tensor, op: ReduceOp, group: &ProcessGroup) -> Result<Tensor> {
    const CALL: &str = "functional::all_reduce";
    let call = Call::new(CALL, Some(op), Some(tensor), group)?;
    let total = call.run(|| {
        let total = tensor.clone_contiguous();
        group.all_reduce(&total, op).map(|()| total)
    })?;
    Ok(call.linear(Some(tensor), total, move |g, group| all_reduce(g, op, group)))
}

/// The `tensor` of rank `root` of the group, on all ranks (`torch.distributed.nn.functional.broadcast`). The
/// others' give shape and dtype.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use torchrs::{Tensor, distributed::functional};
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// let x = Tensor::from([group.rank() as f32 + 1.0]).requires_grad_(true);
/// let y = functional::broadcast(&x, 1, &group)?;
/// (&y * 3.0).sum().backward();
/// assert_eq!((y.item(), x.grad().unwrap().item()), (2.0, [0.0, 6.0][group.rank()]));
/// # Ok(())
/// # })
/// # }
/// ```
///
/// # Errors
/// As [`all_reduce`] and [`ProcessGroup::broadcast`].
#[track_caller]
pub fn broadcast(tensor: &Tensor, root: usize, group: &ProcessGroup) -> Result<Tensor> {
    const CALL: &str = "functional::broadcast";
    group.check_root(CALL, root)?;
    let call = Call::new(CALL, None, Some(tensor), group)?;
    let given = call.run(|| {
        let given = tensor.clone_contiguous();
        group.broadcast(&given, root).map(|()| given)
    })?;
    Ok(call.linear(Some(tensor), given, move |g, group| sum_at(g, root, ReduceOp::Sum, group)))
}

/// `tensor` combined over all ranks on rank `root`; the others get their own
/// (`torch.distributed.nn.functional.reduce`).
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use torchrs::{Tensor, distributed::{ReduceOp, functional}};
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// let x = Tensor::from([group.rank() as f32 + 1.0]).requires_grad_(true);
/// let y = functional::reduce(&x, 0, ReduceOp::Sum, &group)?;
/// assert_eq!(y.item(), [3.0, 2.0][group.rank()]);
/// // The root's result counts 5; the other rank's, which is its own tensor, counts nothing.
/// (&y * [5.0, 0.0][group.rank()]).sum().backward();
/// assert_eq!(x.grad().unwrap().item(), 5.0);
/// # Ok(())
/// # })
/// # }
/// ```
///
/// # Errors
/// As [`all_reduce`] and [`ProcessGroup::reduce`].
#[track_caller]
pub fn reduce(tensor: &Tensor, root: usize, op: ReduceOp, group: &ProcessGroup) -> Result<Tensor> {
    let total = sum_at(tensor, root, op, group)?;
    Ok(match group.rank() == root {
        true => total,
        false if total.requires_grad() => total + tensor,
        false => no_grad(|| tensor.clone_contiguous()),
    })
}

/// The total on the root; zeros on the others.
#[track_caller]
fn sum_at(tensor: &Tensor, root: usize, op: ReduceOp, group: &ProcessGroup) -> Result<Tensor> {
    const CALL: &str = "functional::reduce";
    let is_root = group.check_root(CALL, root)?;
    let call = Call::new(CALL, Some(op), Some(tensor), group)?;
    let total = call.run(|| {
        let total = tensor.clone_contiguous();
        group.reduce(&total, root, op)?;
        Ok(if is_root { total } else { tensor.zeros_like() })
    })?;
    let share = if op == ReduceOp::Avg { 1.0 / group.world_size() as f64 } else { 1.0 };
    Ok(call.linear(Some(tensor), total, move |g, group| {
        let given = broadcast(g, root, group)?;
        Ok(if share == 1.0 { given } else { given * share })
    }))
}

/// The `tensor`s of all ranks, by rank (`torch.distributed.nn.functional.all_gather`).
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use torchrs::{Tensor, distributed::functional};
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// let x = Tensor::from([group.rank() as f32 + 1.0]).requires_grad_(true);
/// let all = functional::all_gather(&x, &group)?;
/// // Both losses are the product of the two.
/// (&all[0] * &all[1]).sum().backward();
/// assert_eq!(x.grad().unwrap().item(), [4.0, 2.0][group.rank()]);
/// # Ok(())
/// # })
/// # }
/// ```
///
/// # Errors
/// As [`all_reduce`] and [`ProcessGroup::all_gather`].
#[track_caller]
pub fn all_gather(tensor: &Tensor, group: &ProcessGroup) -> Result<Vec<Tensor>> {
    Ok(gathered(tensor, group)?.unbind(0))
}

/// `[world, ...]`.
#[track_caller]
fn gathered(tensor: &Tensor, group: &ProcessGroup) -> Result<Tensor> {
    const CALL: &str = "functional::all_gather";
    let call = Call::new(CALL, None, Some(tensor), group)?;
    let all = call.run(|| {
        let all = room_for_all(tensor, group);
        group.all_gather_into_tensor(&all, &tensor.detach()).map(|()| all)
    })?;
    Ok(call.linear(Some(tensor), all, |g, group| scattered(g, ReduceOp::Sum, group)))
}

/// What all ranks give in `inputs[r]`, combined, on rank `r`
/// (`torch.distributed.nn.functional.reduce_scatter`).
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use torchrs::{Tensor, distributed::{ReduceOp, functional}};
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// let x = Tensor::from([1f32, 5.]).requires_grad_(true);
/// let mine = functional::reduce_scatter(&x.chunk(2, 0), ReduceOp::Sum, &group)?;
/// assert_eq!(mine.item(), [2.0, 10.0][group.rank()]);
/// (mine * (group.rank() as f64 + 1.0)).sum().backward();
/// assert_eq!(x.grad().unwrap().to_vec::<f32>(), [1.0, 2.0]);
/// # Ok(())
/// # })
/// # }
/// ```
///
/// # Errors
/// [`Error::Argument`] unless there is one input per rank, all of one shape; otherwise as [`all_reduce`] and
/// [`ProcessGroup::reduce_scatter`].
#[track_caller]
pub fn reduce_scatter(inputs: &[Tensor], op: ReduceOp, group: &ProcessGroup) -> Result<Tensor> {
    let all = stacked("functional::reduce_scatter", inputs, group)?;
    scattered(&all, op, group)
}

/// From `[world, ...]`.
#[track_caller]
fn scattered(all: &Tensor, op: ReduceOp, group: &ProcessGroup) -> Result<Tensor> {
    const CALL: &str = "functional::reduce_scatter";
    let call = Call::new(CALL, Some(op), Some(all), group)?;
    let mine = call.run(|| {
        let mine = Tensor::empty(&all.shape()[1..], (all.dtype(), all.device()));
        group.reduce_scatter_tensor(&mine, &all.detach(), op).map(|()| mine)
    })?;
    let share = if op == ReduceOp::Avg { 1.0 / group.world_size() as f64 } else { 1.0 };
    Ok(call.linear(Some(all), mine, move |g, group| {
        let given = gathered(g, group)?;
        Ok(if share == 1.0 { given } else { given * share })
    }))
}

/// On rank `root`, the `tensor`s of all ranks, by rank; zeros of these shapes on the others, for them to run
/// backward through (`torch.distributed.nn.functional.gather`).
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use torchrs::{Tensor, distributed::functional};
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// let x = Tensor::from([group.rank() as f32 + 1.0]).requires_grad_(true);
/// let all = functional::gather(&x, 0, &group)?;
/// // On the root the product of both; on the other rank 0, whose gradient goes nowhere.
/// (&all[0] * &all[1]).sum().backward();
/// assert_eq!(x.grad().unwrap().item(), [2.0, 1.0][group.rank()]);
/// # Ok(())
/// # })
/// # }
/// ```
///
/// # Errors
/// As [`all_reduce`] and [`ProcessGroup::gather`].
#[track_caller]
pub fn gather(tensor: &Tensor, root: usize, group: &ProcessGroup) -> Result<Vec<Tensor>> {
    Ok(gathered_at(tensor, root, group)?.unbind(0))
}

/// `[world, ...]`; zeros but on the root.
#[track_caller]
fn gathered_at(tensor: &Tensor, root: usize, group: &ProcessGroup) -> Result<Tensor> {
    const CALL: &str = "functional::gather";
    group.check_root(CALL, root)?;
    let call = Call::new(CALL, None, Some(tensor), group)?;
    let all = call.run(|| {
        let all = group.gather(&tensor.detach(), root)?;
        Ok(match all {
            Some(parts) => Tensor::stack(&parts, 0),
            None => room_for_all(tensor, group).zeros_like(),
        })
    })?;
    Ok(call.linear(Some(tensor), all, move |g, group| {
        let is_root = group.rank() == root;
        let like = g.select(0, 0);
        scattered_from(is_root.then_some(g), &like, root, group)
    }))
}

/// Rank `root`'s `inputs[r]` on rank `r` (`torch.distributed.nn.functional.scatter`). `inputs` is `Some` on the
/// root only; `like` gives the shape, dtype and device of the result on all ranks, and no values. To differentiate
/// twice, the other ranks need a `like` that requires a gradient: it is zero, and has the history.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use torchrs::{Dtype, Tensor, distributed::functional};
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// let parts = [4f32, 9.].map(|v| Tensor::from([v]).requires_grad_(true));
/// let (is_root, like) = (group.rank() == 0, Tensor::zeros([1], Dtype::F32));
/// let mine = functional::scatter(is_root.then_some(&parts[..]), &like, 0, &group)?;
/// mine.square().sum().backward();
/// assert_eq!(mine.item(), [4.0, 9.0][group.rank()]);
/// if is_root {
///     assert_eq!(parts.map(|part| part.grad().unwrap().item()), [8.0, 18.0]);
/// }
/// # Ok(())
/// # })
/// # }
/// ```
///
/// # Errors
/// [`Error::Argument`] unless the root, and only it, gives one input per rank, each like `like`; otherwise as
/// [`all_reduce`] and [`ProcessGroup::scatter`].
#[track_caller]
pub fn scatter(
    inputs: Option<&[Tensor]>,
    like: &Tensor,
    root: usize,
    group: &ProcessGroup,
) -> Result<Tensor> {
    const CALL: &str = "functional::scatter";
    let is_root = group.check_root(CALL, root)?;
    let all = match inputs {
        Some(inputs) if is_root => Some(stacked(CALL, inputs, group)?),
        None if !is_root => None,
        _ => {
            let what = format!("has to be given on rank {root}, the root, and only there");
            return Err(Error::argument(CALL, "inputs", what));
        }
    };
    if let Some(all) = &all
        && (&all.shape()[1..], all.dtype()) != (like.shape(), like.dtype())
    {
        let what = format!(
            "are {} {:?}, but `like` is {} {:?}",
            all.dtype(),
            &all.shape()[1..],
            like.dtype(),
            like.shape()
        );
        return Err(Error::argument(CALL, "inputs", what));
    }
    scattered_from(all.as_ref(), like, root, group)
}

/// From `[world, ...]` of the root.
#[track_caller]
fn scattered_from(
    all: Option<&Tensor>,
    like: &Tensor,
    root: usize,
    group: &ProcessGroup,
) -> Result<Tensor> {
    let own = all.unwrap_or(like);
    let call = Call::new("functional::scatter", None, Some(own), group)?;
    let mine = call.run(|| {
        let mine = Tensor::empty(like.shape(), (like.dtype(), like.device()));
        let parts = all.map(|all| all.detach().unbind(0));
        group.scatter(&mine, parts.as_deref(), root).map(|()| mine)
    })?;
    Ok(call.linear(Some(own), mine, move |g, group| {
        let given = gathered_at(g, root, group)?;
        // The others' are zeros, of which one has the shape of `like`.
        Ok(if group.rank() == root { given } else { given.select(0, 0) })
    }))
}

/// Sends `inputs[r]` to rank `r`, and gives what rank `r` has sent (`torch.distributed.nn.functional.all_to_all`).
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use torchrs::{Tensor, distributed::functional};
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// let x = (Tensor::from([0f32, 1.]) + 10.0 * group.rank() as f64).requires_grad_(true);
/// let got = functional::all_to_all(&x.chunk(2, 0), &group)?;
/// assert_eq!([got[0].item(), got[1].item()], [[0.0, 10.0], [1.0, 11.0]][group.rank()]);
/// (&got[0] * 2.0 + &got[1]).sum().backward();
/// // What was sent to either rank came first there, or second.
/// assert_eq!(x.grad().unwrap().to_vec::<f32>(), [[2.0, 2.0], [1.0, 1.0]][group.rank()]);
/// # Ok(())
/// # })
/// # }
/// ```
///
/// # Errors
/// [`Error::Argument`] unless there is one input per rank, all of one shape; otherwise as
/// [`all_to_all_single`].
#[track_caller]
pub fn all_to_all(inputs: &[Tensor], group: &ProcessGroup) -> Result<Vec<Tensor>> {
    let all = stacked("functional::all_to_all", inputs, group)?;
    Ok(all_to_all_single(&all, group)?.unbind(0))
}

/// Sends part `r` of `input` to rank `r`, and gives what rank `r` has sent in part `r`
/// (`torch.distributed.nn.functional.all_to_all_single` with even splits of dimension 0).
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use torchrs::{Tensor, distributed::functional};
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// let x = Tensor::from([1f32, 2.]).requires_grad_(true);
/// let y = functional::all_to_all_single(&x, &group)?;
/// (y * Tensor::from([3f32, 5.])).sum().backward();
/// assert_eq!(x.grad().unwrap().to_vec::<f32>(), [[3.0, 3.0], [5.0, 5.0]][group.rank()]);
/// # Ok(())
/// # })
/// # }
/// ```
///
/// # Errors
/// As [`all_reduce`] and [`ProcessGroup::all_to_all_single`].
#[track_caller]
pub fn all_to_all_single(input: &Tensor, group: &ProcessGroup) -> Result<Tensor> {
    const CALL: &str = "functional::all_to_all_single";
    let call = Call::new(CALL, None, Some(input), group)?;
    let output = call.run(|| {
        let output = Tensor::empty(input.shape(), (input.dtype(), input.device()));
        group.all_to_all_single(&output, &input.detach()).map(|()| output)
    })?;
    Ok(call.linear(Some(input), output, all_to_all_single))
}

/// A call about which the ranks have agreed whether it is recorded.
struct Call<'a> {
    name: &'static str,
    group: &'a ProcessGroup,
    origin: Origin,
    /// Some rank's tensor requires a gradient.
    records: bool,
}

impl<'a> Call<'a> {
    /// Asks all ranks.
    #[track_caller]
    fn new(
        name: &'static str,
        op: Option<ReduceOp>,
        tensor: Option<&Tensor>,
        group: &'a ProcessGroup,
    ) -> Result<Call<'a>> {
        const IDLE: u8 = 0;
        const OFF: u8 = 1;
        const WANTS: u8 = 2;
        group.check_member(name)?;
        let origin = Origin::here();
        let own = match (is_grad_enabled(), tensor) {
            (false, _) => OFF,
            (true, Some(tensor)) if tensor.requires_grad() => WANTS,
            _ => IDLE,
        };
        let ask = || no_grad(|| group.all_gather(&Tensor::from_slice(&[own], [1])));
        let all = origin.over(ask)?;
        let all: Vec<u8> = all.iter().map(|state| state.item_i64() as u8).collect();
        let of = |state: u8| -> Vec<usize> {
            (0..all.len()).filter(|&r| all[r] == state).map(|r| group.ranks()[r]).collect()
        };
        let (wants, off) = (of(WANTS), of(OFF));
        if !wants.is_empty() && !off.is_empty() {
            return Err(Error::Mismatch(format!(
                "{name}: {} require a gradient here, but {} run under `no_grad`, and would not take part in \
                 backward",
                list_ranks(&wants),
                list_ranks(&off)
            )));
        }
        let records = !wants.is_empty();
        if let Some(op) = op.filter(|op| records && !matches!(op, ReduceOp::Sum | ReduceOp::Avg)) {
            let what = format!(
                "{op} has no derivative over ranks (sum and avg have); combine what \
                 `functional::all_gather` gives, or call it under `no_grad`"
            );
            return Err(Error::argument(name, "op", what));
        }
        Ok(Call { name, group, origin, records })
    }

    /// Runs a plain collective for it.
    fn run(&self, f: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
        self.origin.over(|| no_grad(f))
    }

    /// `output`, with the history that it is a linear map of this rank's input, and the others'. `transposed`
    /// makes a gradient of the input of one of the output; all ranks call it, also those without an input.
    #[track_caller]
    fn linear(
        self,
        input: Option<&Tensor>,
        output: Tensor,
        transposed: impl Fn(&Tensor, &ProcessGroup) -> Result<Tensor> + Send + Sync + 'static,
    ) -> Tensor {
        if !self.records {
            return output;
        }
        // A rank that wants no gradient itself takes part on behalf of nothing.
        let token = Tensor::zeros([0], Dtype::F32.on_host()).requires_grad_(true);
        let own = input.filter(|input| input.requires_grad());
        let (wants, group) = (own.is_some(), self.group.clone());
        let origin = Origin::named(format!("the backward of {} at {}", self.name, self.origin));
        record(self.name, &[own.unwrap_or(&token)], output, |_| {
            move |ctx| {
                let given = origin.over(|| transposed(&ctx.grad(0), &group));
                let given = given.unwrap_or_else(|error| throw(error));
                smallvec![wants.then_some(given)]
            }
        })
    }
}

fn room_for_all(tensor: &Tensor, group: &ProcessGroup) -> Tensor {
    let shape: Vec<usize> = [&[group.world_size()], tensor.shape()].concat();
    Tensor::empty(shape, (tensor.dtype(), tensor.device()))
}

/// One tensor of one per rank.
#[track_caller]
fn stacked(call: &str, inputs: &[Tensor], group: &ProcessGroup) -> Result<Tensor> {
    group.check_member(call)?;
    let world = group.world_size();
    if inputs.len() != world {
        let what = format!("{} tensors for {world} ranks", inputs.len());
        return Err(Error::argument(call, "inputs", what));
    }
    let of = |t: &Tensor| (t.dtype(), t.device(), t.shape().to_vec());
    if let Some(rank) = inputs.iter().position(|input| of(input) != of(&inputs[0])) {
        let show = |t: &Tensor| format!("{} {:?} on {}", t.dtype(), t.shape(), t.device());
        let what = format!(
            "the one for rank {rank} is {}, but that for rank 0 is {}: all have to be alike",
            show(&inputs[rank]),
            show(&inputs[0])
        );
        return Err(Error::argument(call, "inputs", what));
    }
    Ok(Tensor::stack(inputs, 0))
}
