//! Whole training steps in graphs: replays equal eager steps, and what cannot be recorded is told.

use torchrs::amp::GradScaler;
use torchrs::cuda_graphs::{CudaGraph, make_graphed_callable};
use torchrs::nn::{self, Forward, Module, Sequential};
use torchrs::ops::{AttentionOptions, InterpolateMode, InterpolateOptions};
use torchrs::optim::{Adam, AdamW, AdamWOptions, Optimizer, SGD, SGDOptions, StateValue};
use torchrs::profiler::{ProfilerOptions, profile_with};
use torchrs::{Device, Dtype, Error, Generator, Result, Tensor, catch, cuda};

const GPU: Device = Device::Cuda(0);

fn model() -> Sequential {
    torchrs::manual_seed(4);
    let mut model = Sequential::new()
        .append(nn::Linear::new(6, 16))
        .append(nn::BatchNorm1d::new(16))
        .append(nn::ReLU)
        .append(nn::Dropout::new(0.3))
        .append(nn::Linear::new(16, 3));
    model.to_device(GPU);
    model
}

fn batch(step: u64) -> Tensor {
    Generator::new(step).randn([8, 6], Dtype::F32).to_device(GPU)
}

/// The losses of six steps and all parameters and buffers; all steps but two by a graph, or none.
fn trains(by_graph: bool) -> Result<(Vec<f64>, Vec<Tensor>)> {
    let model = model();
    let options = SGDOptions { lr: 0.05, momentum: 0.9, ..Default::default() };
    let mut optimizer = SGD::new(model.parameters(), options);
    let (x, target) = (batch(0), Tensor::ones([8, 3], (Dtype::F32, GPU)));
    torchrs::manual_seed(11);
    let mut step = || {
        optimizer.zero_grad();
        let loss = nn::functional::mse_loss(&model.forward(&x), &target);
        loss.backward();
        optimizer.step();
        Ok(loss.detach())
    };
    let mut losses = Vec::new();
    for i in 0..2 {
        x.copy_(&batch(i));
        losses.push(step()?.item());
    }
    let graph = if by_graph { Some(CudaGraph::capture(&mut step)?) } else { None };
    for i in 2..6 {
        x.copy_(&batch(i));
        // Not part of the graph's memory.
        let _other = Tensor::full([5000], f64::NAN, (Dtype::F32, GPU));
        let before = cuda::synchronisations();
        let loss = match &graph {
            Some((graph, loss)) => {
                graph.replay()?;
                loss.clone()
            }
            None => step()?,
        };
        assert_eq!(cuda::synchronisations(), before);
        losses.push(loss.item());
    }
    let named = model.named_parameters().into_iter().chain(model.named_buffers());
    Ok((losses, named.map(|(_, t)| t.detach().cpu()).collect()))
}

fn refused<T>(work: impl FnOnce() -> Result<T>, text: &str) {
    let error = CudaGraph::capture(work).map(drop).unwrap_err();
    assert!(matches!(error, Error::Device(_)) && error.to_string().contains(text), "{error}");
}

simulated! {
    fn a_profile_counts_a_replay_as_one_launch() {
        let x = Tensor::ones([8], (Dtype::F32, GPU));
        let (graph, _) = CudaGraph::capture(|| Ok((&x * 2.0).exp())).unwrap();
        let options = ProfilerOptions { with_traffic: true, ..Default::default() };
        let (done, profile) = profile_with(options, || graph.replay());
        done.unwrap();
        let calls: Vec<_> = profile.device_calls().iter().map(|(name, t)| (&**name, t.launches)).collect();
        assert_eq!(calls, [("cuGraphLaunch", 1)]);
    }

    fn replays_equal_eager_steps() {
        let (eager, replayed) = (trains(false)?, trains(true)?);
        assert_eq!(eager.0, replayed.0);
        assert!(eager.1.iter().zip(&replayed.1).all(|(a, b)| a.equal(b)));
        assert_eq!(torchrs::default_generator().get_state().offset, 6, "a mask per step");
    }

    fn replays_equal_eager_steps_under_the_adversary() ["TORCHRS_SIMULATED_ADVERSARY" = "9"] {
        let (eager, replayed) = (trains(false)?, trains(true)?);
        assert_eq!(eager.0, replayed.0);
    }

    fn what_cannot_be_recorded_is_told() {
        let x = Tensor::ones([4], (Dtype::F32, GPU)).requires_grad_(true);
        (&x * 2.0).sum().item();
        refused(|| Ok((&x * 2.0).sum().item()), "waiting for the GPU cannot be captured in a graph");
        refused(|| Ok(x.detach().to_vec::<f32>()), "waiting for the GPU cannot be captured");
        refused(|| Ok(Tensor::from([1f32]).to_device(GPU)), "a copy from the host cannot be captured");
        refused(|| cuda::device::synchronize(0), "waiting for the GPU cannot be captured");
        let generator = Generator::new(1);
        refused(|| Ok(generator.rand([2], (Dtype::F32, GPU))), "only from the default generator");
        refused(|| Ok(GradScaler::new(Default::default()).scale(&x)), "GradScaler::scale cannot");
        x.sum().backward();
        let mut scaled = SGD::new([x.clone()], Default::default());
        let mut scaler = GradScaler::new(Default::default());
        refused(|| { scaler.unscale_(&mut scaled); Ok(()) }, "GradScaler::unscale_ cannot");
        refused(|| Ok(scaler.step(&mut scaled)), "GradScaler::unscale_ cannot");
        let mut adam = Adam::new([x.clone()], Default::default());
        refused(|| { adam.step(); Ok(()) }, "Adam: it counts its steps on the host");
        let mut sgd = SGD::new([x.clone()], Default::default());
        refused(|| { sgd.step(); Ok(()) }, "SGD: its first step cannot be captured");
        sgd.step();
        let before = x.to_vec::<f32>();
        let (graph, ()) = CudaGraph::capture(|| { sgd.step(); Ok(()) })?;
        assert_eq!(x.to_vec::<f32>(), before, "nothing was done yet");
        graph.replay()?;
        assert_ne!(x.to_vec::<f32>(), before);
    }

    fn adam_counts_on_the_gpu() {
        let start = Generator::new(5).randn([40], Dtype::F64);
        for dtype in [Dtype::F64, Dtype::F32, Dtype::BF16] {
            for amsgrad in [false, true] {
                let run = |device: Device, capturable: bool, by_graph: bool| -> Result<Vec<f64>> {
                    let w = start.to_dtype(dtype).to_device(device).clone_contiguous();
                    let w = w.requires_grad_(true);
                    let options = AdamWOptions { lr: 0.05, amsgrad, capturable, ..Default::default() };
                    let mut optimizer = AdamW::new([w.clone()], options);
                    let mut step = || {
                        optimizer.zero_grad();
                        (&w * &w).sum().backward();
                        optimizer.step();
                        Ok(())
                    };
                    step()?;
                    let graph = if by_graph { Some(CudaGraph::capture(&mut step)?.0) } else { None };
                    for _ in 0..4 {
                        match &graph {
                            Some(graph) => graph.replay()?,
                            None => step()?,
                        }
                    }
                    let state = optimizer.state_dict().state;
                    assert!(matches!(&state[0]["step"], StateValue::Number(5.0)));
                    Ok(w.to_vec::<f64>())
                };
                let replayed = run(GPU, true, true)?;
                assert_eq!(replayed, run(GPU, true, false)?);
                let tolerance = if dtype == Dtype::BF16 { 0.02 } else { 1e-5 };
                for (a, b) in replayed.iter().zip(run(Device::Cpu, true, false)?) {
                    assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{dtype}: {a} {b}");
                }
            }
        }
    }

    fn graphed_callables_are_drop_ins() {
        let model = model();
        let sample = batch(0).requires_grad_(true);
        let fast = make_graphed_callable(|x| model.forward(&x[0]), &model.parameters(), &[sample])?;
        let buffers: Vec<Tensor> =
            model.named_buffers().iter().map(|(_, b)| b.clone_contiguous()).collect();
        let run = |graphed: bool| {
            model.zero_grad();
            torchrs::manual_seed(21);
            for ((_, b), start) in model.named_buffers().iter().zip(&buffers) {
                b.copy_(start);
            }
            let mut all = Vec::new();
            for i in 0..3 {
                let x = batch(i).requires_grad_(true);
                let y = if graphed { fast.call(&[&x * 1.0]) } else { model.forward(&(&x * 1.0)) };
                y.square().sum().backward();
                all.extend([y.detach(), x.grad().unwrap()]);
            }
            all.extend(model.parameters().iter().map(|p| p.grad().unwrap().clone_contiguous()));
            all.extend(model.named_buffers().iter().map(|(_, b)| b.clone_contiguous()));
            all
        };
        let (eager, graphed) = (run(false), run(true));
        assert!(eager.iter().zip(&graphed).all(|(a, b)| a.equal(b)));
        // Both calls use the same memory.
        let (first, second) = (fast.call(&[batch(0)]), fast.call(&[batch(1)]));
        let error = catch(|| first.sum().backward()).unwrap_err().to_string();
        assert!(error.contains("1 more time(s) before the backward of call"), "{error}");
        second.sum().backward();
        let error = catch(|| fast.call(&[batch(0).narrow(0, 0, 3)])).unwrap_err().to_string();
        assert!(error.contains("it was recorded for"), "{error}");
    }

    fn tables_of_ops_are_kept_by_graphs() {
        let options = InterpolateOptions::size([9, 5], InterpolateMode::Bicubic);
        let x = Tensor::randn([1, 2, 6, 7], (Dtype::F32, GPU)).requires_grad_(true);
        let step = || {
            let y = x.interpolate(options.clone());
            let dx = torchrs::autograd::grad(&[&y.square().sum()], &[&x], &[None], torchrs::autograd::GraphMode::Free);
            Ok((y.detach(), dx[0].clone().unwrap()))
        };
        step()?;
        let (graph, (y, dx)) = CudaGraph::capture(step)?;
        for seed in 0..3 {
            torchrs::no_grad(|| x.copy_(&Generator::new(seed).randn([1, 2, 6, 7], Dtype::F32)));
            // Blocks of pinned memory that a graph did not keep would be used again.
            let _others: Vec<Tensor> = (0..8).map(|i| Tensor::full([9], i as f64, Dtype::F32).to_device(GPU)).collect();
            graph.replay()?;
            let (want_y, want_dx) = step()?;
            assert!(y.equal(&want_y) && dx.equal(&want_dx), "{seed}");
        }
    }

    fn graphed_callables_drop_the_same_attention_weights_in_backward() {
        let (q, k, v) = (Generator::new(1), Generator::new(2), Generator::new(3));
        let [q, k, v] = [q, k, v].map(|g| g.randn([2, 9, 8], (Dtype::F16, GPU)));
        let q = [q];
        // A bias of the scores that is learnt: its gradient is composed.
        let bias = Generator::new(4).randn([9, 9], (Dtype::F16, GPU)).requires_grad_(true);
        let options = AttentionOptions {
            attn_mask: Some(bias.clone()),
            dropout_p: 0.5,
            ..Default::default()
        };
        let attend = |x: &[Tensor]| x[0].scaled_dot_product_attention_with(&k, &v, &options);
        let fast = make_graphed_callable(attend, std::slice::from_ref(&bias), &q)?;
        let run = |graphed: bool| -> Vec<f64> {
            torchrs::manual_seed(21);
            bias.set_grad(None);
            for _ in 0..2 {
                let y = if graphed { fast.call(&q) } else { attend(&q) };
                y.square().sum().backward();
            }
            bias.grad().unwrap().to_vec()
        };
        assert_eq!(run(true), run(false));
    }
}
