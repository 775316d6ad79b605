//! Recurrent layers over sequences of any lengths, against cells composed of simple operators in f64.

use proptest::prelude::*;
use torchrs::autograd::{GraphMode, grad};
use torchrs::nn::{
    GRU, LSTM, Module, RNN, RNNNonlinearity, RNNOptions, pack_sequence, unpack_sequence,
};
use torchrs::{Dtype, Tensor};

use super::laid::{close, random};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Tanh,
    Relu,
    Gru,
    Lstm,
}

#[derive(Clone, Debug)]
struct Case {
    kind: Kind,
    input: usize,
    hidden: usize,
    options: RNNOptions,
    lengths: Vec<usize>,
    /// All sequences as long as the first, in one tensor.
    padded: bool,
    started: bool,
    seed: u64,
}

prop_compose! {
    fn cases()(
        kind in prop_oneof![1 => Just(Kind::Tanh), 1 => Just(Kind::Relu), 1 => Just(Kind::Gru), 2 => Just(Kind::Lstm)],
        (input, hidden) in (1..=40usize, 1..=40usize),
        num_layers in 1..=2usize,
        (bias, batch_first, bidirectional, padded, started) in any::<(bool, bool, bool, bool, bool)>(),
        proj in 0..=12usize,
        lengths in proptest::collection::vec(1..=9usize, 1..=12),
        seed in any::<u64>(),
    ) -> Case {
        // The projection is smaller than what it is of.
        let proj_size = if kind == Kind::Lstm && proj < hidden && seed % 2 == 0 { proj } else { 0 };
        let options = RNNOptions { num_layers, bias, batch_first, bidirectional, proj_size, ..Default::default() };
        Case { kind, input, hidden, options, lengths, padded, started, seed }
    }
}

/// One step of a cell: h and, of an LSTM, c.
fn step(
    kind: Kind,
    x: &Tensor,
    state: &[Tensor],
    weights: &dyn Fn(&str) -> Option<Tensor>,
) -> Vec<Tensor> {
    let apply = |x: &Tensor, part: &str| {
        let product = x.matmul(&weights(&format!("weight_{part}")).expect("a weight").t());
        weights(&format!("bias_{part}")).map_or(product.clone(), |bias| product + bias)
    };
    let (of_x, of_h) = (apply(x, "ih"), apply(&state[0], "hh"));
    match kind {
        Kind::Tanh => vec![(of_x + of_h).tanh()],
        Kind::Relu => vec![(of_x + of_h).relu()],
        Kind::Gru => {
            let (x, h) = (of_x.chunk(3, -1), of_h.chunk(3, -1));
            let (r, z) = ((&x[0] + &h[0]).sigmoid(), (&x[1] + &h[1]).sigmoid());
            let n = (&x[2] + &r * &h[2]).tanh();
            vec![&n + &z * (&state[0] - &n)]
        }
        Kind::Lstm => {
            let gates = (of_x + of_h).chunk(4, -1);
            let c = gates[1].sigmoid() * &state[1] + gates[0].sigmoid() * gates[2].tanh();
            let h = gates[3].sigmoid() * c.tanh();
            let h = weights("weight_hr").map_or(h.clone(), |w| h.matmul(&w.t()));
            vec![h, c]
        }
    }
}

enum Layers {
    Rnn(RNN),
    Gru(GRU),
    Lstm(LSTM),
}

impl Layers {
    fn new(case: &Case) -> Layers {
        let &Case { input, hidden, options, .. } = case;
        match case.kind {
            Kind::Tanh => Layers::Rnn(RNN::new(input, hidden, options)),
            Kind::Relu => {
                Layers::Rnn(RNN::with_nonlinearity(input, hidden, RNNNonlinearity::Relu, options))
            }
            Kind::Gru => Layers::Gru(GRU::new(input, hidden, options)),
            Kind::Lstm => Layers::Lstm(LSTM::new(input, hidden, options)),
        }
    }

    fn parameters(&self) -> Vec<(String, Tensor)> {
        match self {
            Layers::Rnn(layers) => layers.named_parameters(),
            Layers::Gru(layers) => layers.named_parameters(),
            Layers::Lstm(layers) => layers.named_parameters(),
        }
    }

    /// The sequences' outputs, and the last states.
    fn run(
        &self,
        case: &Case,
        xs: &[Tensor],
        first: Option<&[Tensor]>,
    ) -> (Vec<Tensor>, Vec<Tensor>) {
        fn listed<T>((out, h): (T, Tensor)) -> (T, Vec<Tensor>) {
            (out, vec![h])
        }
        fn both_listed<T>((out, (h, c)): (T, (Tensor, Tensor))) -> (T, Vec<Tensor>) {
            (out, vec![h, c])
        }
        let h = first.map(|state| &state[0]);
        let both = first.map(|state| (&state[0], state.last().expect("a state")));
        if case.padded {
            let along = if case.options.batch_first { 0 } else { 1 };
            let x = Tensor::stack(xs, along);
            let (out, state) = match self {
                Layers::Rnn(layers) => listed(layers.forward(&x, h)),
                Layers::Gru(layers) => listed(layers.forward(&x, h)),
                Layers::Lstm(layers) => both_listed(layers.forward(&x, both)),
            };
            return (out.unbind(along), state);
        }
        let packed = pack_sequence(xs, false);
        let (out, state) = match self {
            Layers::Rnn(layers) => listed(layers.forward_packed(&packed, h)),
            Layers::Gru(layers) => listed(layers.forward_packed(&packed, h)),
            Layers::Lstm(layers) => both_listed(layers.forward_packed(&packed, both)),
        };
        (unpack_sequence(&out), state)
    }
}

/// What the definition gives: outputs of each sequence, and the last states.
fn expected(
    case: &Case,
    xs: &[Tensor],
    first: Option<&[Tensor]>,
    weights: &[(String, Tensor)],
) -> (Vec<Tensor>, Vec<Tensor>) {
    let directions = if case.options.bidirectional { 2 } else { 1 };
    let states = if case.kind == Kind::Lstm { 2 } else { 1 };
    let sizes = match case.options.proj_size {
        0 => [case.hidden; 2],
        proj => [proj, case.hidden],
    };
    let mut outs = Vec::new();
    // By state, then layer and direction, then sequence.
    let mut lasts = vec![vec![Vec::new(); case.options.num_layers * directions]; states];
    for (b, x) in xs.iter().enumerate() {
        let mut x = x.clone();
        for layer in 0..case.options.num_layers {
            let mut sides = Vec::new();
            for side in 0..directions {
                let suffix = format!("_l{layer}{}", if side == 1 { "_reverse" } else { "" });
                let find = |name: &str| {
                    let name = format!("{name}{suffix}");
                    weights.iter().find(|(n, _)| *n == name).map(|(_, w)| w.clone())
                };
                let at = layer * directions + side;
                let mut state: Vec<Tensor> = (0..states)
                    .map(|s| match first {
                        Some(first) => first[s].select(0, at as i64).narrow(0, b as i64, 1),
                        None => Tensor::zeros([1, sizes[s]], Dtype::F64),
                    })
                    .collect();
                let steps = x.shape()[0];
                let mut out = vec![None; steps];
                for t in 0..steps {
                    let t = if side == 1 { steps - 1 - t } else { t };
                    state = step(case.kind, &x.narrow(0, t as i64, 1), &state, &find);
                    out[t] = Some(state[0].clone());
                }
                let out: Vec<Tensor> = out.into_iter().flatten().collect();
                sides.push(Tensor::cat(&out, 0));
                (0..states).for_each(|s| lasts[s][at].push(state[s].clone()));
            }
            x = Tensor::cat(&sides, 1);
        }
        outs.push(x);
    }
    let join = |all: Vec<Tensor>, dim| Tensor::cat(&all, dim);
    let lasts = lasts
        .into_iter()
        .map(|state| join(state.into_iter().map(|layer| join(layer, 0).unsqueeze(0)).collect(), 0));
    (outs, lasts.collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(15))]

    #[test]
    fn any_lengths(case in cases()) {
        let case = match case.padded {
            true => Case { lengths: vec![case.lengths[0]; case.lengths.len()], ..case },
            false => case,
        };
        let layers = Layers::new(&case);
        let batch = case.lengths.len();
        let directions = if case.options.bidirectional { 2 } else { 1 };
        let sizes = match case.options.proj_size {
            0 => [case.hidden; 2],
            proj => [proj, case.hidden],
        };
        let states = if case.kind == Kind::Lstm { 2 } else { 1 };
        let draw = |shape: &[usize], seed: u64| random(shape, Dtype::F32, case.seed ^ seed).0;
        let xs: Vec<Tensor> =
            case.lengths.iter().enumerate().map(|(b, &t)| draw(&[t, case.input], b as u64 + 10)).collect();
        let first: Option<Vec<Tensor>> = case.started.then(|| {
            let shape = |s: usize| [case.options.num_layers * directions, batch, sizes[s]];
            (0..states).map(|s| draw(&shape(s), s as u64 + 1)).collect()
        });
        let parameters = layers.parameters();
        let wide = |t: &Tensor| t.detach().to_dtype(Dtype::F64).requires_grad_(true);
        let wide_xs: Vec<Tensor> = xs.iter().map(wide).collect();
        let wide_first: Option<Vec<Tensor>> = first.as_ref().map(|state| state.iter().map(wide).collect());
        let wide_parameters: Vec<(String, Tensor)> =
            parameters.iter().map(|(name, p)| (name.clone(), wide(p))).collect();
        let (out, last) = layers.run(&case, &xs, first.as_deref());
        let (want, want_last) = expected(&case, &wide_xs, wide_first.as_deref(), &wide_parameters);
        let near = |_, v: f64| 4e-6 * (v.abs() + 1.0);
        let all: Vec<(&Tensor, &Tensor)> = out.iter().zip(&want).chain(last.iter().zip(&want_last)).collect();
        for (got, want) in &all {
            prop_assert_eq!(got.shape(), want.shape());
            close("output", got, &want.to_vec::<f64>(), near)?;
        }
        // A weighted sum of everything.
        let total = |of: &dyn Fn(&(&Tensor, &Tensor)) -> Tensor| {
            let weighted = |(i, pair): (usize, &(&Tensor, &Tensor))| {
                let t = of(pair);
                let weight = draw(t.shape(), i as u64 + 100).detach().contiguous().to_dtype(t.dtype());
                (t * weight).sum()
            };
            all.iter().enumerate().map(weighted).reduce(|a, b| a + b).expect("outputs")
        };
        let inputs: Vec<&Tensor> = xs.iter().chain(first.iter().flatten()).chain(parameters.iter().map(|(_, p)| p)).collect();
        let wide_inputs: Vec<&Tensor> =
            wide_xs.iter().chain(wide_first.iter().flatten()).chain(wide_parameters.iter().map(|(_, p)| p)).collect();
        let got = grad(&[&total(&|(got, _)| (*got).clone())], &inputs, &[None], GraphMode::Free);
        let want = grad(&[&total(&|(_, want)| (*want).clone())], &wide_inputs, &[None], GraphMode::Free);
        for (got, want) in got.iter().zip(&want) {
            let want = want.as_ref().expect("a gradient").to_vec::<f64>();
            let largest = want.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            close("gradient", got.as_ref().expect("a gradient"), &want, |_, v| 1e-5 * (v.abs() + largest + 0.1))?;
        }
    }
}
