//! Modules that move to a GPU and back after others hold their parameters.

use torchrs::amp::{GradScaler, GradScalerOptions};
use torchrs::cuda_graphs::{CudaGraph, make_graphed_callable};
use torchrs::nn::{BatchNorm1d, Forward, Linear, Module, Sequential, Tanh};
use torchrs::optim::*;
use torchrs::{Device, Dtype, Tensor, catch, cuda, no_grad};

const GPU: Device = Device::Cuda(0);

fn model() -> Sequential {
    torchrs::manual_seed(3);
    Sequential::new()
        .append(Linear::new(4, 6))
        .append(BatchNorm1d::new(6))
        .append(Tanh)
        .append(Linear::new(6, 1))
}

fn step(model: &Sequential, optimizer: &mut dyn Optimizer) -> f64 {
    let x = Tensor::arange(0, 20, 1, Dtype::F32).view([5, 4]).sin();
    model.zero_grad();
    let loss = model.forward(&x.to_device(model.parameters()[0].device())).square().mean();
    loss.backward();
    optimizer.step();
    loss.item()
}

type Make = fn(Vec<Tensor>) -> Box<dyn Optimizer>;

fn optimizers() -> [Make; 4] {
    [
        |params| Box::new(Adam::new(params, Default::default())),
        |params| {
            Box::new(Adam::new(params, AdamOptions { capturable: true, ..Default::default() }))
        },
        |params| Box::new(RMSprop::new(params, Default::default())),
        |params| {
            let options = SGDOptions { lr: 0.1, momentum: 0.9, ..Default::default() };
            Box::new(SGD::new(params, options))
        },
    ]
}

simulated! {
    fn an_optimizer_made_before_its_model_moved_trains_it() {
        for make in optimizers() {
            let (mut moved, here) = (model(), model());
            let (mut first, mut second) = (make(moved.parameters()), make(here.parameters()));
            // With state from the CPU, and back again.
            for device in [GPU, Device::Cpu, Device::Cuda(1), GPU] {
                for _ in 0..2 {
                    let (got, expected) = (step(&moved, &mut *first), step(&here, &mut *second));
                    assert!((got - expected).abs() < 1e-4, "{got} {expected}");
                }
                moved.to_device(device);
                let all = moved.parameters().into_iter().chain(moved.buffers());
                assert!(all.clone().all(|t| t.device() == device));
                assert!(all.filter_map(|t| t.grad()).all(|g| g.device() == device));
            }
        }
    }

    fn a_move_gives_the_memory_of_a_gpu_back() {
        let mut layer = Linear::no_bias(512, 512);
        layer.to_device(GPU);
        let optimizer = SGD::new(layer.parameters(), SGDOptions::default());
        let full = cuda::memory::memory_allocated(0)?;
        layer.to_device(Device::Cpu);
        assert!(cuda::memory::memory_allocated(0)? + 512 * 512 * 4 <= full);
        assert_eq!(optimizer.parameters()[0].device(), Device::Cpu);
    }

    fn a_graph_of_before_a_move_has_a_right_backward_where_the_leaf_now_is() {
        let mut layer = Linear::no_bias(2, 1);
        no_grad(|| layer.weight.copy_(&Tensor::from([[3f32, -2.]])));
        let calls = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = calls.clone();
        let _hook = layer.weight.register_hook(move |_| {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            None
        });
        let y = layer.forward(&Tensor::from([[1f32, 1.]])).square().sum();
        layer.to_device(GPU);
        y.backward();
        let grad = layer.weight.grad().expect("one");
        assert_eq!((grad.device(), grad.to_vec::<f32>()), (GPU, vec![2.0, 2.0]));
        assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), 1);
        let error = catch(|| layer.weight.set_grad(Some(Tensor::ones([1, 2], Dtype::F32))));
        assert!(error.unwrap_err().to_string().contains("on cpu"));
    }

    fn a_scaler_follows() {
        let mut layer = Linear::new(2, 1);
        let mut optimizer = SGD::new(layer.parameters(), SGDOptions::default());
        let mut scaler = GradScaler::new(GradScalerOptions::default());
        layer.to_device(GPU);
        let before = layer.weight.to_vec::<f32>();
        let x = Tensor::ones([1, 2], (Dtype::F32, GPU));
        scaler.scale(&(layer.forward(&x).sum() + 1.0)).backward();
        assert!(scaler.step(&mut optimizer));
        scaler.update();
        assert_ne!(layer.weight.to_vec::<f32>(), before);
    }

    fn what_a_recorded_graph_uses_is_not_moved() {
        let mut layer = Linear::new(2, 1);
        layer.to_device(GPU);
        let x = Tensor::ones([1, 2], (Dtype::F32, GPU));
        layer.forward(&x);
        let refused = |layer: &mut Linear| {
            let error = catch(|| layer.to(Dtype::F64)).unwrap_err().to_string();
            assert!(error.contains("`weight`") && error.contains("drop the graph"), "{error}");
            let error = catch(|| layer.to_device(Device::Cpu)).unwrap_err().to_string();
            assert!(error.contains("Module::to_device") && error.contains("cuda:0"), "{error}");
            assert_eq!((layer.weight.dtype(), layer.weight.device()), (Dtype::F32, GPU));
        };
        let (graph, _) = CudaGraph::capture(|| Ok(no_grad(|| layer.forward(&x))))?;
        refused(&mut layer);
        graph.replay()?;
        // A copy of later is in no graph, and what is on the CPU neither.
        layer.deep_copy().to_device(Device::Cpu);
        Linear::new(2, 1).to_device(GPU);
        drop(graph);
        layer.to(Dtype::F64);
        layer.to(Dtype::F32);
        let inner = layer.clone();
        let callable = make_graphed_callable(
            move |inputs| inner.forward(&inputs[0]),
            &layer.parameters(),
            std::slice::from_ref(&x),
        )?;
        refused(&mut layer);
        assert_eq!(callable.call(std::slice::from_ref(&x)).device(), GPU);
        drop(callable);
        layer.to_device(Device::Cpu);
        let mut moving = Linear::new(2, 1);
        moving.to_device(GPU);
        let error = CudaGraph::capture(|| { moving.to(Dtype::F64); Ok(()) }).unwrap_err();
        assert!(error.to_string().contains("being captured"), "{error}");
    }
}
