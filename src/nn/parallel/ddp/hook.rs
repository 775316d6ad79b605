//! Communication hooks: the user's way to reduce a bucket of gradients in place of the all-reduce.

use std::sync::{Arc, Mutex as StdMutex};

use parking_lot::Mutex;

use crate::amp::Suspended;
use crate::autograd::no_grad;
use crate::cuda::{Event, Priority, Stream, StreamGuard};
use crate::distributed::{Origin, ProcessGroup, Work};
use crate::error::{Error, Result, catch};
use crate::storage::Device;
use crate::tensor::Tensor;

/// Gradients that travel together, as a [`CommHook`] gets them (`torch.distributed.GradBucket`): of parameters, or of a
/// sharded module's shards.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use torchrs::Tensor;
/// use torchrs::distributed::{DistributedDataParallel, GradBucket, ProcessGroup, comm_hooks};
/// use torchrs::nn::{self, Forward};
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// let model = DistributedDataParallel::new(nn::Linear::new(3, 2), &group)?;
/// model.register_comm_hook(|bucket: &GradBucket, group: &ProcessGroup| {
///     assert!(bucket.index() == 0 && bucket.is_last());
///     assert_eq!(bucket.gradients()[0].shape(), bucket.parameters()[0].shape());
///     comm_hooks::allreduce(bucket, group)
/// })?;
/// model.forward(&Tensor::from([[1f32, 2., 3.]])).sum().backward();
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct GradBucket {
    pub(in crate::nn::parallel) index: usize,
    pub(in crate::nn::parallel) is_last: bool,
    pub(in crate::nn::parallel) buffer: Tensor,
    /// Parameters and where their gradients begin in the buffer.
    pub(in crate::nn::parallel) members: Arc<Vec<(Tensor, usize)>>,
    /// What messages call it.
    pub(in crate::nn::parallel) origin: Origin,
}

impl GradBucket {
    /// Its number: buckets are sent in this order.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Whether it is the last one of this backward.
    pub fn is_last(&self) -> bool {
        self.is_last
    }

    /// This rank's gradients, one behind the other, with zeros between some of them: one dimension. The
    /// hook may write to it.
    pub fn buffer(&self) -> &Tensor {
        &self.buffer
    }

    /// The gradients in the buffer: views of it with the parameters' shapes.
    ///
    /// ```
    /// use torchrs::distributed::GradBucket;
    /// fn largest(bucket: &GradBucket) -> usize {
    ///     bucket.gradients().iter().map(|g| g.numel()).max().unwrap_or(0)
    /// }
    /// ```
    pub fn gradients(&self) -> Vec<Tensor> {
        let view = |(parameter, start): &(Tensor, usize)| {
            self.buffer.narrow(0, *start, parameter.numel()).reshape_to(parameter.shape())
        };
        self.members.iter().map(view).collect()
    }

    /// The parameters whose gradients these are.
    pub fn parameters(&self) -> Vec<Tensor> {
        self.members.iter().map(|(parameter, _)| parameter.clone()).collect()
    }

    /// The same bucket with another buffer, such as one of another dtype, for a hook inside this one.
    ///
    /// ```
    /// use torchrs::{Dtype, distributed::GradBucket};
    /// fn wide(bucket: &GradBucket) -> GradBucket {
    ///     bucket.with_buffer(bucket.buffer().to_dtype(Dtype::F64))
    /// }
    /// ```
    #[must_use]
    pub fn with_buffer(&self, buffer: Tensor) -> GradBucket {
        GradBucket { buffer, ..self.clone() }
    }
}

/// What makes the mean over ranks of a bucket of gradients, in place of an all-reduce
/// (`DistributedDataParallel.register_comm_hook`). [`comm_hooks`](crate::distributed::comm_hooks) has some.
///
/// It runs on the group's communication thread while backward goes on, for one bucket after another in
/// the same order on all ranks, and calls whatever collectives it needs, as plain calls that return when
/// they are done. On a GPU it runs with a stream of its own as the current one: collectives and
/// operations are only put there, and the host goes on. Functions and closures of these arguments are
/// hooks.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use torchrs::{Result, Tensor, nn::{self, Forward}};
/// use torchrs::distributed::{CommHook, DistributedDataParallel, GradBucket, ProcessGroup, ReduceOp};
/// /// The mean, with numbers clipped first.
/// struct Clipped(f64);
/// impl CommHook for Clipped {
///     fn reduce(&mut self, bucket: &GradBucket, group: &ProcessGroup) -> Result<Tensor> {
///         let clipped = bucket.buffer().clamp(-self.0, self.0);
///         group.all_reduce(&clipped, ReduceOp::Avg)?;
///         Ok(clipped)
///     }
/// }
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// let model = DistributedDataParallel::new(nn::Linear::new(1, 1), &group)?;
/// model.register_comm_hook(Clipped(2.0))?;
/// // Rank 0 has 1, rank 1 has 5.
/// let x = Tensor::from([[group.rank() as f32 * 4.0 + 1.0]]);
/// model.forward(&x).sum().backward();
/// assert_eq!(model.weight.grad().unwrap().item(), 1.5);
/// # Ok(())
/// # })
/// # }
/// ```
pub trait CommHook: Send {
    /// The mean over all ranks of what is in the bucket: a tensor of the buffer's shape, dtype and
    /// device, or the buffer itself.
    ///
    /// # Errors
    /// Whatever keeps it from that; ends the group, so that no rank waits.
    fn reduce(&mut self, bucket: &GradBucket, group: &ProcessGroup) -> Result<Tensor>;
}

impl<F> CommHook for F
where
    F: FnMut(&GradBucket, &ProcessGroup) -> Result<Tensor> + Send,
{
    fn reduce(&mut self, bucket: &GradBucket, group: &ProcessGroup) -> Result<Tensor> {
        self(bucket, group)
    }
}

/// A hook that its owner looks at between steps.
impl<H: CommHook> CommHook for Arc<StdMutex<H>> {
    fn reduce(&mut self, bucket: &GradBucket, group: &ProcessGroup) -> Result<Tensor> {
        let mut hook = self.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        hook.reduce(bucket, group)
    }
}

/// A registered hook and where it runs.
pub(in crate::nn::parallel) struct Registered {
    hook: Mutex<Box<dyn CommHook>>,
    /// Of each GPU with a bucket.
    streams: Vec<Stream>,
}

impl Registered {
    /// For buckets on these devices.
    pub fn new(
        hook: Box<dyn CommHook>,
        devices: impl Iterator<Item = Device>,
    ) -> Result<Registered> {
        let mut streams: Vec<Stream> = Vec::new();
        for device in devices {
            let Device::Cuda(index) = device else { continue };
            if !streams.iter().any(|stream| stream.device() == index) {
                streams.push(Stream::new(index, Priority::High)?);
            }
        }
        Ok(Registered { hook: Mutex::new(hook), streams })
    }

    /// Reduces a bucket on the communication thread.
    pub fn start(self: &Arc<Self>, group: &ProcessGroup, bucket: GradBucket) -> Result<Work> {
        let (ready, own, weak) = (self.ready(&bucket)?, self.clone(), group.downgrade());
        group.start_job("comm_hook", bucket.buffer.device().gpu(), move || {
            let group = weak.upgrade().ok_or_else(|| Error::Aborted("the group is gone".into()))?;
            own.run(&group, &bucket, ready.as_ref())
        })
    }

    /// Reduces a bucket here and now; the current stream goes on after it.
    pub fn call(&self, group: &ProcessGroup, bucket: &GradBucket) -> Result<()> {
        let ready = self.ready(bucket)?;
        let done = group.run_job("comm_hook", bucket.buffer.device().gpu(), || {
            self.run(group, bucket, ready.as_ref())
        })?;
        done.map_or(Ok(()), |done| done.hold_current_stream())
    }

    fn stream(&self, bucket: &GradBucket) -> Option<Stream> {
        let index = bucket.buffer.device().gpu()?;
        self.streams.iter().find(|stream| stream.device() == index).copied()
    }

    /// The gradients are there after this event.
    fn ready(&self, bucket: &GradBucket) -> Result<Option<Event>> {
        let Some(stream) = self.stream(bucket) else { return Ok(None) };
        Stream::current(stream.device())?.record_event().map(Some)
    }

    /// Runs the hook and puts what it gives into the bucket; on a GPU that has happened after the event.
    /// A failure ends the group, since the other ranks are on their way into the hook's collectives.
    fn run(
        &self,
        group: &ProcessGroup,
        bucket: &GradBucket,
        ready: Option<&Event>,
    ) -> Result<Option<Event>> {
        let stream = self.stream(bucket);
        let reduced = catch(|| {
            let current = match (stream, ready) {
                (Some(stream), Some(ready)) => {
                    stream.wait_event(ready)?;
                    Some(StreamGuard::new(stream)?)
                }
                _ => None,
            };
            let _f32 = Suspended::new();
            no_grad(|| {
                let reduce = || self.hook.lock().reduce(bucket, group);
                let result = bucket.origin.over(reduce)?;
                check(bucket, &result)?;
                if result.device_ptr() != bucket.buffer.device_ptr() {
                    bucket.buffer.copy_(&result);
                }
                Ok::<(), Error>(())
            })?;
            drop(current);
            stream.map(Stream::record_event).transpose()
        });
        reduced.and_then(|done| done).inspect_err(|error| group.abort(&error.to_string()))
    }
}

/// A result that is not like the buffer would be written over it in part, or in other units.
fn check(bucket: &GradBucket, result: &Tensor) -> Result<()> {
    let buffer = bucket.buffer();
    let of = |t: &Tensor| (t.dtype(), t.device(), t.shape().to_vec());
    if of(result) == of(buffer) {
        return Ok(());
    }
    let ((dtype, device, shape), (own_dtype, own_device, own_shape)) = (of(result), of(buffer));
    let what = format!(
        "returned {dtype} {shape:?} on {device} for bucket {}, which is {own_dtype} {own_shape:?} on \
         {own_device}: a communication hook gives a tensor like the bucket's buffer",
        bucket.index()
    );
    Err(Error::argument("DistributedDataParallel", "hook", what))
}
