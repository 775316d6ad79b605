//! Recurrent layers and cells, forward and backward.

use torchrs::nn::utils::rnn::{
    PackPaddedSequenceOptions, PackedSequence, PadPackedSequenceOptions, pack_padded_sequence,
    pad_packed_sequence,
};
use torchrs::nn::{
    GRU, GRUCell, LSTM, LSTMCell, Module, RNN, RNNCell, RNNNonlinearity, RNNOptions,
};
use torchrs::{Device, Dtype, Tensor};

use super::near::{numbers, same};

const GPU: Device = Device::Cuda(0);

/// Results, and the gradients of the module's parameters and of the leaves.
fn results(module: &impl Module, leaves: &[Tensor], outputs: Vec<Tensor>) -> Vec<Tensor> {
    let weights: Vec<Tensor> =
        outputs.iter().map(|y| numbers(y.shape(), y.dtype()).to_device(y.device())).collect();
    let (roots, by): (Vec<&Tensor>, Vec<_>) =
        outputs.iter().zip(&weights).map(|(y, w)| (y, Some(w))).unzip();
    torchrs::autograd::backward(&roots, &by, torchrs::autograd::GraphMode::Free);
    let parameters = module.parameters();
    let all = parameters.iter().chain(leaves);
    let grads: Vec<Tensor> = all.map(|p| p.grad().expect("a gradient")).collect();
    outputs.iter().map(Tensor::detach).chain(grads).collect()
}

/// A module with the same parameters on each device.
fn set_up<M: Module>(mut module: M, dtype: Dtype, device: Device) -> M {
    for (k, p) in module.parameters().iter().enumerate() {
        let values = numbers(p.shape(), Dtype::F64) * (0.2 + 0.01 * k as f64);
        torchrs::autograd::no_grad(|| p.copy_(&values.to_dtype(p.dtype())));
    }
    module.to(dtype);
    module.to_device(device);
    module
}

fn leaf(shape: &[usize], dtype: Dtype, device: Device) -> Tensor {
    numbers(shape, dtype).to_device(device).requires_grad_(true)
}

const TYPES: [(Dtype, f64); 4] =
    [(Dtype::F64, 1e-11), (Dtype::F32, 3e-4), (Dtype::F16, 1e-2), (Dtype::BF16, 8e-2)];

fn layouts() -> Vec<RNNOptions> {
    let usual = RNNOptions::default();
    vec![
        usual,
        RNNOptions { num_layers: 2, bidirectional: true, ..usual },
        RNNOptions { bias: false, batch_first: true, bidirectional: true, ..usual },
    ]
}

/// Every layout and size, with and without a first state.
fn each(f: impl Fn(&str, f64, RNNOptions, [usize; 4], Dtype, bool)) {
    for (dtype, tolerance) in TYPES {
        for options in layouts() {
            for (k, sizes) in
                [[5, 3, 4, 6], [1, 2, 3, 5], [7, 1, 9, 40], [3, 9, 8, 130]].into_iter().enumerate()
            {
                // The half types and large sizes once.
                if k > 0 && dtype.size() == 2 || k > 1 && options.num_layers > 1 {
                    continue;
                }
                let what = format!(
                    "{dtype} {sizes:?} layers {} bidirectional {} state {}",
                    options.num_layers,
                    options.bidirectional,
                    k % 2
                );
                f(&what, tolerance, options, sizes, dtype, k % 2 == 1);
            }
        }
    }
}

fn input(options: RNNOptions, [time, batch, inputs, _]: [usize; 4]) -> [usize; 3] {
    if options.batch_first { [batch, time, inputs] } else { [time, batch, inputs] }
}

fn state(options: RNNOptions, [_, batch, _, hidden]: [usize; 4]) -> [usize; 3] {
    [options.num_layers * if options.bidirectional { 2 } else { 1 }, batch, hidden]
}

simulated! {
    fn lstm_layers() {
        each(|what, tolerance, options, sizes, dtype, with_state| {
            same(what, tolerance, |device| {
                let layer = set_up(LSTM::new(sizes[2], sizes[3], options), dtype, device);
                let mut leaves = vec![leaf(&input(options, sizes), dtype, device)];
                if with_state {
                    leaves.extend((0..2).map(|_| leaf(&state(options, sizes), dtype, device)));
                }
                let first = with_state.then(|| (&leaves[1], &leaves[2]));
                let (y, (h, c)) = layer.forward(&leaves[0], first);
                results(&layer, &leaves, vec![y, h, c])
            });
        });
    }

    fn gru_layers() {
        each(|what, tolerance, options, sizes, dtype, with_state| {
            same(what, tolerance, |device| {
                let layer = set_up(GRU::new(sizes[2], sizes[3], options), dtype, device);
                let mut leaves = vec![leaf(&input(options, sizes), dtype, device)];
                if with_state {
                    leaves.push(leaf(&state(options, sizes), dtype, device));
                }
                let (y, h) = layer.forward(&leaves[0], leaves.get(1));
                results(&layer, &leaves, vec![y, h])
            });
        });
    }

    fn plain_layers() {
        for kind in [RNNNonlinearity::Tanh, RNNNonlinearity::Relu] {
            each(|what, tolerance, options, sizes, dtype, with_state| {
                same(what, tolerance, |device| {
                    let layer = RNN::with_nonlinearity(sizes[2], sizes[3], kind, options);
                    let layer = set_up(layer, dtype, device);
                    let mut leaves = vec![leaf(&input(options, sizes), dtype, device)];
                    if with_state {
                        leaves.push(leaf(&state(options, sizes), dtype, device));
                    }
                    // Small, so that a sum of many does not grow without bound.
                    let x = &leaves[0] * 0.1;
                    let (y, h) = layer.forward(&x, leaves.get(1));
                    results(&layer, &leaves, vec![y, h])
                });
            });
        }
    }

    fn packed_sequences() {
        let options = RNNOptions { num_layers: 2, bidirectional: true, ..Default::default() };
        let unsorted = PackPaddedSequenceOptions { enforce_sorted: false, ..Default::default() };
        for lengths in [vec![4, 4, 3, 1, 1], vec![2, 5, 1]] {
            same(&format!("{lengths:?}"), 1e-11, |device| {
                let x = leaf(&[5, lengths.len(), 3], Dtype::F64, device);
                let lstm = set_up(LSTM::new(3, 6, options), Dtype::F64, device);
                let packed: PackedSequence = pack_padded_sequence(&x, &lengths, unsorted);
                let (y, (h, c)) = lstm.forward_packed(&packed, None);
                let mut all = results(&lstm, &[], vec![pad_packed_sequence(&y, PadPackedSequenceOptions { padding_value: 0.5, ..Default::default() }).0, h, c]);
                let gru = set_up(GRU::new(3, 6, options), Dtype::F64, device);
                let h = leaf(&[4, lengths.len(), 6], Dtype::F64, device);
                let packed = pack_padded_sequence(&x, &lengths, unsorted);
                let (y, last) = gru.forward_packed(&packed, Some(&h));
                all.extend(results(&gru, &[x, h], vec![pad_packed_sequence(&y, PadPackedSequenceOptions { batch_first: true, ..Default::default() }).0, last]));
                all
            });
        }
    }

    fn cells() {
        for (dtype, tolerance) in TYPES {
            same(&format!("{dtype}"), tolerance, |device| {
                let x = leaf(&[4, 3], dtype, device);
                let states = [leaf(&[4, 5], dtype, device), leaf(&[4, 5], dtype, device)];
                let leaves = [x.clone(), states[0].clone(), states[1].clone()];
                let lstm = set_up(LSTMCell::new(3, 5), dtype, device);
                let (h, c) = lstm.forward(&x, Some((&states[0], &states[1])));
                let mut all = results(&lstm, &leaves, vec![h, c]);
                let gru = set_up(GRUCell::new(3, 5), dtype, device);
                let h = gru.forward(&x, Some(&states[0]));
                all.extend(results(&gru, &leaves[..2], vec![h]));
                let plain = set_up(RNNCell::new(3, 5), dtype, device);
                let h = plain.forward(&x, None);
                all.extend(results(&plain, &leaves[..1], vec![h]));
                all.extend([lstm.forward(&x.select(0, 0), None).1.detach(), gru.forward(&x.narrow(0, 0, 0), None).detach()]);
                all
            });
        }
    }

    fn what_is_composed() {
        let options = RNNOptions { proj_size: 2, bidirectional: true, num_layers: 2, ..Default::default() };
        same("projections", 1e-11, |device| {
            let layer = set_up(LSTM::new(3, 5, options), Dtype::F64, device);
            let x = leaf(&[4, 2, 3], Dtype::F64, device);
            let (y, (h, c)) = layer.forward(&x, None);
            results(&layer, &[x], vec![y, h, c])
        });
        same("second derivatives", 1e-10, |device| {
            let layer = set_up(GRU::new(3, 4, Default::default()), Dtype::F64, device);
            let x = leaf(&[3, 2, 3], Dtype::F64, device);
            let (y, _) = layer.forward(&x, None);
            let g = torchrs::autograd::grad(&[&y.sum()], &[&x], &[None], torchrs::autograd::GraphMode::Create)[0].clone().expect("used");
            results(&layer, &[x], vec![g])
        });
    }

    fn mixed_precision() {
        let layer = set_up(LSTM::new(4, 6, RNNOptions { bidirectional: true, ..Default::default() }), Dtype::F32, GPU);
        let x = leaf(&[5, 3, 4], Dtype::F32, GPU);
        let (half, _) = torchrs::amp::autocast(GPU, Dtype::BF16, || layer.forward(&x, None));
        assert_eq!(half.dtype(), Dtype::BF16);
        half.sum().backward();
        assert!(layer.parameters().iter().chain([&x]).all(|p| p.grad().is_some_and(|g| g.dtype() == Dtype::F32)));
        let (full, _) = layer.forward(&x, None);
        assert!((half.to_dtype(Dtype::F32) - full).abs().max().item() < 0.02);
        let cell = set_up(GRUCell::new(4, 6), Dtype::F32, GPU);
        let h = torchrs::amp::autocast(GPU, Dtype::F16, || cell.forward(&x.select(0, 0), None));
        assert_eq!(h.dtype(), Dtype::F16);
    }

    fn a_captured_layer() {
        use torchrs::cuda::graph::CaptureOptions;
        use torchrs::cuda::{Graph, Stream};
        let layer = set_up(GRU::new(4, 6, RNNOptions { bidirectional: true, ..Default::default() }), Dtype::F32, GPU);
        let x = numbers(&[5, 3, 4], Dtype::F32).to_device(GPU);
        let expected = layer.forward(&x, None).0.detach().cpu();
        let stream = Stream::new(0, Default::default())?;
        Stream::current(0)?.synchronize()?;
        let (graph, y) = Graph::capture(stream, CaptureOptions::default(), || Ok(layer.forward(&x, None).0.detach()))?;
        graph.replay(stream)?;
        stream.synchronize()?;
        assert!(y.cpu().equal(&expected));
    }

    fn nothing_waits() {
        let options = RNNOptions { num_layers: 2, dropout: 0.5, ..Default::default() };
        let layer = set_up(LSTM::new(4, 6, options), Dtype::F32, GPU);
        let x = leaf(&[5, 3, 4], Dtype::F32, GPU);
        let step = || layer.forward(&x, None).0.sum().backward();
        step();
        let before = torchrs::cuda::synchronisations();
        step();
        assert_eq!(torchrs::cuda::synchronisations(), before);
    }
}
