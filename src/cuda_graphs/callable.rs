//! Functions whose forward and backward are a graph each, inside an ordinary step.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::CudaGraph;
use crate::autograd::{GraphMode, enable_grad, grad, no_grad, record};
use crate::cuda::graph::CaptureOptions;
use crate::error::{Error, Result, catch, throw};
use crate::tensor::Tensor;

/// Runs before the capture, so that kernels are compiled and memory is there.
const WARM_UP: usize = 3;

/// A function whose work was recorded: forward as one graph, backward as another
/// (`torch.cuda.make_graphed_callables`).
///
/// A call is part of ordinary autograd. Between a call's forward and its backward there is no other call, as both use the
/// same memory: the backward is an error then. It cannot be differentiated twice.
#[derive(Clone)]
pub struct GraphedCallable {
    recorded: Arc<Recorded>,
}

struct Recorded {
    forward: CudaGraph,
    inputs: Vec<Tensor>,
    output: Tensor,
    parameters: Vec<Tensor>,
    backward: Option<Backward>,
    /// How often forward was replayed.
    calls: AtomicU64,
}

struct Backward {
    graph: CudaGraph,
    gradient: Tensor,
    /// Of every input and then every parameter.
    results: Vec<Option<Tensor>>,
}

impl fmt::Debug for GraphedCallable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inputs: Vec<_> = self.recorded.inputs.iter().map(Tensor::shape).collect();
        write!(f, "GraphedCallable of inputs {inputs:?}")
    }
}

/// Records `function` for inputs like `samples`, which say shapes, dtypes, and which of them need gradients.
/// `parameters` are the other tensors whose gradients are wanted, such as a module's. The function runs a few
/// times first, so that running statistics, for instance, have seen the samples.
///
/// ```
/// use torchrs::cuda_graphs::make_graphed_callable;
/// use torchrs::nn::{self, Forward, Module};
/// use torchrs::{Device, Dtype, Tensor, cuda};
/// if cuda::is_available() {
///     let gpu = Device::Cuda(0);
///     let mut layer = nn::Linear::new(4, 2);
///     layer.to_device(gpu);
///     let sample = Tensor::ones([8, 4], (Dtype::F32, gpu));
///     let fast = make_graphed_callable(|x| layer.forward(&x[0]), &layer.parameters(), &[sample])?;
///     let x = Tensor::randn([8, 4], (Dtype::F32, gpu));
///     let y = fast.call(&[x.clone()]);
///     assert!(y.equal(&layer.forward(&x)));
///     y.sum().backward();
///     assert_eq!(layer.bias.as_ref().unwrap().grad().unwrap().to_vec::<f32>(), [8.0, 8.0]);
/// }
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// As [`CudaGraph::capture`].
pub fn make_graphed_callable(
    function: impl Fn(&[Tensor]) -> Tensor,
    parameters: &[Tensor],
    samples: &[Tensor],
) -> Result<GraphedCallable> {
    let inputs: Vec<Tensor> = samples
        .iter()
        .map(|t| no_grad(|| t.detach().clone_contiguous()).requires_grad_(t.requires_grad()))
        .collect();
    let parameters: Vec<Tensor> =
        parameters.iter().filter(|p| p.requires_grad()).cloned().collect();
    let wanted: Vec<&Tensor> =
        inputs.iter().filter(|t| t.requires_grad()).chain(&parameters).collect();
    let gradients = |output: &Tensor, gradient: &Tensor| match output.requires_grad() {
        true => grad(&[output], &wanted, &[Some(gradient)], GraphMode::Free),
        false => vec![None; wanted.len()],
    };
    catch(|| {
        enable_grad(|| {
            for _ in 0..WARM_UP {
                let output = function(&inputs);
                gradients(&output, &output.ones_like());
            }
        });
    })?;
    let (forward, output) = CudaGraph::capture(|| Ok(enable_grad(|| function(&inputs))))?;
    let backward = match output.requires_grad() {
        false => None,
        true => {
            let gradient = catch(|| no_grad(|| output.detach().zeros_like()))?;
            let options = CaptureOptions { pool: Some(forward.pool()), ..Default::default() };
            let (graph, found) =
                CudaGraph::capture_with(options, || Ok(gradients(&output, &gradient)))?;
            let mut found = found.into_iter();
            let of = |t: &Tensor| if t.requires_grad() { found.next().flatten() } else { None };
            let results = inputs.iter().chain(&parameters).map(of).collect();
            Some(Backward { graph, gradient, results })
        }
    };
    let inputs = inputs.iter().map(Tensor::detach).collect();
    let output = output.detach();
    let calls = AtomicU64::new(0);
    let recorded = Recorded { forward, inputs, output, parameters, backward, calls };
    Ok(GraphedCallable { recorded: Arc::new(recorded) })
}

impl GraphedCallable {
    /// What the function gives for `inputs`.
    ///
    /// ```
    /// use torchrs::cuda_graphs::make_graphed_callable;
    /// use torchrs::{Device, Dtype, Tensor, cuda};
    /// if cuda::is_available() {
    ///     let sample = Tensor::ones([3], (Dtype::F32, Device::Cuda(0)));
    ///     let square = make_graphed_callable(|x| &x[0] * &x[0], &[], &[sample.clone()])?;
    ///     assert_eq!(square.call(&[&sample * 3.0]).to_vec::<f32>(), [9.0; 3]);
    /// }
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for inputs that are not like the samples.
    #[track_caller]
    pub fn call(&self, inputs: &[Tensor]) -> Tensor {
        let Recorded { forward, inputs: own, output, parameters, backward, calls } =
            &*self.recorded;
        let of = |t: &Tensor| (t.shape().to_vec(), t.dtype(), t.device());
        let fits = inputs.len() == own.len() && inputs.iter().zip(own).all(|(a, b)| of(a) == of(b));
        if !fits {
            let (given, samples): (Vec<_>, Vec<_>) =
                (inputs.iter().map(of).collect(), own.iter().map(of).collect());
            let what = format!("{given:?}; it was recorded for {samples:?}");
            throw(Error::argument("GraphedCallable::call", "inputs", what));
        }
        let mut number = 0;
        let y = no_grad(|| {
            own.iter().zip(inputs).for_each(|(own, given)| _ = own.copy_(given));
            forward.replay().unwrap_or_else(|error| throw(error));
            number = calls.fetch_add(1, Relaxed) + 1;
            // Of the caller's own: the next call writes to the graph's.
            output.clone_contiguous()
        });
        if backward.is_none() {
            return y;
        }
        let all: Vec<&Tensor> = inputs.iter().chain(parameters).collect();
        record("graphed_callable", &all, y, |saver| {
            // What was saved lies in the graph's memory.
            saver.runs_once();
            let recorded = self.recorded.clone();
            move |ctx| {
                let Some(backward) = &recorded.backward else { return smallvec::SmallVec::new() };
                if ctx.create_graph() {
                    throw(Error::Autograd(
                        "a graphed callable cannot be differentiated twice".into(),
                    ));
                }
                let calls = recorded.calls.load(Relaxed);
                if calls != number {
                    let others = calls - number;
                    throw(Error::Autograd(format!(
                        "a graphed callable was called {others} more time(s) before the backward of call {number}, whose \
                         numbers are gone: call backward before the next call, or make a callable for each"
                    )));
                }
                no_grad(|| {
                    backward.gradient.copy_(&ctx.grad(0));
                    backward.graph.replay().unwrap_or_else(|error| throw(error));
                    let own = |t: &Option<Tensor>| t.as_ref().map(Tensor::clone_contiguous);
                    backward.results.iter().map(own).collect()
                })
            }
        })
    }
}
