//! What a recording holds besides names and times.

/// What is recorded besides names and times; each costs something for every op.
///
/// ```
/// use torchrs::{Dtype::F32, Tensor, profiler::{self, ProfilerOptions}};
/// let options = ProfilerOptions { record_shapes: true, with_flops: true, ..Default::default() };
/// let a = Tensor::ones([2, 3], F32);
/// let (_, profile) = profiler::profile_with(options, || a.matmul(&a.t()));
/// let event = profile.events().iter().find(|event| event.name == "matmul").unwrap();
/// assert_eq!(event.shapes, Some(vec![vec![2, 3], vec![3, 2]]));
/// assert_eq!(profile.key_averages().rows().iter().map(|row| row.flops).max(), Some(2 * 2 * 3 * 2));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProfilerOptions {
    /// Shapes of ops' inputs: of products, convolutions, norms, losses, pointwise ops and all others that `autocast`
    /// knows.
    pub record_shapes: bool,
    /// Bytes that ops take and give back, and every block of memory: see
    /// [`Profile::memory_timeline`](super::Profile::memory_timeline).
    pub profile_memory: bool,
    /// The user's line that called each op (PyTorch's is a stack).
    pub with_stack: bool,
    /// Floating-point operations, as [`FlopCounter`](super::FlopCounter) counts them.
    pub with_flops: bool,
    /// The module that computes.
    pub with_modules: bool,
    /// What GPUs are asked to do: launches, calls of NVIDIA's libraries, and the bytes of their operands; see
    /// [`Traffic`](super::Traffic). The replay of a graph is one launch without bytes: what is in it counts when it is
    /// captured. Calls of NCCL are left out; [`Event::bytes`](super::Event::bytes) has those of collectives.
    pub with_traffic: bool,
    /// Times of the GPU that is current on each thread, by two events per op on its current stream. They hold what the
    /// GPU waits for the host inside an op. Not while a graph is captured.
    pub cuda: bool,
}

impl ProfilerOptions {
    /// All that is known on the host.
    ///
    /// ```
    /// use torchrs::profiler::ProfilerOptions;
    /// assert!(ProfilerOptions::all().with_modules && !ProfilerOptions::all().cuda);
    /// ```
    pub fn all() -> Self {
        ProfilerOptions {
            record_shapes: true,
            profile_memory: true,
            with_stack: true,
            with_flops: true,
            with_modules: true,
            with_traffic: false,
            cuda: false,
        }
    }
}
