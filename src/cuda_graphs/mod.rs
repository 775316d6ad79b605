//! Training steps recorded once and started again as a whole, at the cost of one launch (`torch.cuda.graph`,
//! `torch.cuda.make_graphed_callables`).
//!
//! Knows nothing of `nn`, `optim` and `distributed`: what takes part in a graph says so itself.
//!
//! A graph repeats what the GPU did at the same addresses. So inputs are tensors that stay: new data is copied
//! into them before a replay, and results are read from the tensors that the recorded step made. Sizes,
//! numbers of the host such as a learning rate, and which branch was taken are those of the recording.
//!
//! ```
//! use torchrs::cuda_graphs::CudaGraph;
//! use torchrs::nn::{self, Forward, Module};
//! use torchrs::optim::{Optimizer, SGD, SGDOptions};
//! use torchrs::{Device, Dtype, Tensor, cuda};
//! if cuda::is_available() {
//!     let gpu = Device::Cuda(0);
//!     let mut model = nn::Linear::new(4, 1);
//!     model.to_device(gpu);
//!     let mut optimizer = SGD::new(model.parameters(), SGDOptions { lr: 0.1, ..Default::default() });
//!     let x = Tensor::zeros([8, 4], (Dtype::F32, gpu));
//!     let mut step = || {
//!         optimizer.zero_grad();
//!         let loss = model.forward(&x).square().mean();
//!         loss.backward();
//!         optimizer.step();
//!         Ok(loss.detach())
//!     };
//!     step()?; // kernels are compiled, states made
//!     let (graph, loss) = CudaGraph::capture(step)?;
//!     for _ in 0..3 {
//!         x.copy_(&Tensor::randn([8, 4], Dtype::F32).to_device(gpu));
//!         graph.replay()?;
//!     }
//!     println!("{}", loss.item());
//! }
//! # Ok::<(), torchrs::Error>(())
//! ```
//!
//! What cannot be recorded is an error of the capture that says why, and leaves the program as it was before:
//! reading a number (`item`), copies from or to the host, the first step of an optimizer or one that counts
//! steps on the host (Adam), random numbers but of the default generator.
//!
//! A step with collectives can be recorded: all ranks record it together, and replay it equally often. Whether
//! ranks call the same is then no longer compared.

mod callable;

pub use callable::{GraphedCallable, make_graphed_callable};

use crate::cuda::allocator::PoolId;
use crate::cuda::graph::CaptureOptions;
use crate::cuda::{self, Graph, Priority, Stream};
use crate::error::{Result, catch};
use crate::ops::random::RecordedDraws;

/// Work of a GPU that was recorded and can be started again (`torch.cuda.CUDAGraph`).
///
/// Memory that the recorded work allocates is the graph's own: nothing else uses it as long as the graph
/// or one of its tensors lives. Tensors that were there before, such as parameters and inputs, have to
/// stay as long as the graph is replayed.
#[derive(Debug)]
pub struct CudaGraph {
    graph: Graph,
    draws: RecordedDraws,
}

impl CudaGraph {
    /// Records what `work` does on the current device, on a stream of its own. Nothing is computed: tensors
    /// that `work` returns have their values after the first replay.
    ///
    /// ```
    /// use torchrs::{Device, Dtype, Tensor, cuda, cuda_graphs::CudaGraph};
    /// if cuda::is_available() {
    ///     let x = Tensor::ones([2], (Dtype::F32, Device::Cuda(0)));
    ///     let (graph, y) = CudaGraph::capture(|| Ok(&x * 3.0))?;
    ///     graph.replay()?;
    ///     assert_eq!(y.to_vec::<f32>(), [3.0, 3.0]);
    ///     x.fill_(2.0);
    ///     graph.replay()?;
    ///     assert_eq!(y.to_vec::<f32>(), [6.0, 6.0]);
    ///     let error = CudaGraph::capture(|| Ok((&x * 3.0).sum().item())).unwrap_err();
    ///     assert!(error.to_string().contains("cannot be captured in a graph"));
    /// }
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// What `work` returns or throws; [`Error::Device`](crate::Error::Device) where something in it cannot be
    /// recorded.
    pub fn capture<T>(work: impl FnOnce() -> Result<T>) -> Result<(CudaGraph, T)> {
        CudaGraph::capture_with(CaptureOptions::default(), work)
    }

    /// [`capture`](Self::capture) with options, such as another graph's memory pool.
    ///
    /// ```
    /// use torchrs::cuda::{self, graph::CaptureOptions};
    /// use torchrs::{Device, Dtype, Tensor, cuda_graphs::CudaGraph};
    /// if cuda::is_available() {
    ///     let x = Tensor::ones([2], (Dtype::F32, Device::Cuda(0)));
    ///     let (first, y) = CudaGraph::capture(|| Ok(&x * 3.0))?;
    ///     let options = CaptureOptions { pool: Some(first.pool()), ..Default::default() };
    ///     let (second, z) = CudaGraph::capture_with(options, || Ok(&y + 1.0))?;
    ///     first.replay()?;
    ///     second.replay()?;
    ///     assert_eq!(z.to_vec::<f32>(), [4.0, 4.0]);
    /// }
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`capture`](Self::capture).
    pub fn capture_with<T>(
        options: CaptureOptions,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<(CudaGraph, T)> {
        let device = cuda::device::current();
        let mut draws = catch(|| RecordedDraws::new(device))?;
        let stream = Stream::new(device, Priority::Normal)?;
        stream.wait_stream(Stream::current(device)?)?;
        // What was freed for others comes back before the capture, in which the allocator may not look.
        cuda::device::synchronize(device)?;
        let (graph, result) = Graph::capture(stream, options, || {
            catch(|| draws.record(work)).and_then(|result| result)
        })?;
        Ok((CudaGraph { graph, draws }, result))
    }

    /// Starts the recorded work on the thread's current stream; the host does not wait. Its random numbers
    /// are the default generator's next ones.
    ///
    /// ```
    /// use torchrs::{Device, Dtype, Tensor, cuda, cuda_graphs::CudaGraph};
    /// if cuda::is_available() {
    ///     let x = Tensor::ones([64], (Dtype::F32, Device::Cuda(0)));
    ///     let (graph, y) = CudaGraph::capture(|| Ok(x.dropout(0.5, true)))?;
    ///     torchrs::manual_seed(3);
    ///     graph.replay()?;
    ///     torchrs::manual_seed(3);
    ///     assert!(y.equal(&x.dropout(0.5, true)));
    /// }
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the driver refuses.
    pub fn replay(&self) -> Result<()> {
        catch(|| self.draws.advance())?;
        self.graph.replay(Stream::current(self.graph.device())?)
    }

    /// The pool of its memory, for graphs that are replayed after this one, in the order of their captures.
    pub fn pool(&self) -> PoolId {
        self.graph.pool()
    }
}
