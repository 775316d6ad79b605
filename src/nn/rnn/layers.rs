//! Layers of recurrent cells over whole sequences.

use super::RNNNonlinearity;
use super::cell::bound;
use super::packed::{PackedSequence, rows};
use crate::error::{Error, Result, throw};
use crate::nn::{Module, Parameter, Training, Visitor, VisitorMut, display::python_float, init};
use crate::onnx::{Dim, DirectionWeights, Graph, Value};
use crate::ops::rnn::{Cell, Direction, Recurrent};
use crate::tensor::Tensor;

/// How layers are stacked; the same for all kinds.
///
/// ```
/// use torchrs::nn::{LSTM, RNNOptions};
/// let options = RNNOptions { num_layers: 2, bidirectional: true, ..Default::default() };
/// let lstm = LSTM::new(8, 16, options);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RNNOptions {
    /// Layers; each takes the outputs of the one before.
    pub num_layers: usize,
    /// Whether there are biases.
    pub bias: bool,
    /// Inputs and outputs are `[batch, time, features]`, not `[time, batch, features]`.
    pub batch_first: bool,
    /// Dropout on the outputs of all layers but the last, in training.
    pub dropout: f64,
    /// A second set of cells reads each sequence backwards.
    pub bidirectional: bool,
    /// Size to which h is projected; 0 for none (LSTM only; Sak et al. 2014).
    pub proj_size: usize,
}

impl Default for RNNOptions {
    fn default() -> Self {
        RNNOptions {
            num_layers: 1,
            bias: true,
            batch_first: false,
            dropout: 0.0,
            bidirectional: false,
            proj_size: 0,
        }
    }
}

/// The weights of all layers and directions, by PyTorch's names.
#[derive(Clone)]
struct Layers {
    kind: Cell,
    name: &'static str,
    hidden_size: usize,
    input_size: usize,
    options: RNNOptions,
    parameters: Vec<(String, Parameter)>,
    training: Training,
}

/// The input as steps: the elements of all sequences at one time; a batch that shrinks if packed.
struct Steps {
    data: Tensor,
    sizes: Vec<usize>,
}

impl Layers {
    #[track_caller]
    fn new(
        kind: Cell,
        name: &'static str,
        input_size: usize,
        hidden_size: usize,
        options: RNNOptions,
    ) -> Self {
        let bad =
            |what: &str, message: String| -> ! { throw(Error::argument(name, what, message)) };
        let sizes = [
            ("input_size", input_size),
            ("hidden_size", hidden_size),
            ("num_layers", options.num_layers),
        ];
        if let Some((what, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            bad(what, "0; must be positive".into());
        }
        if !(0.0..=1.0).contains(&options.dropout) {
            bad("dropout", format!("{}; must be between 0 and 1", options.dropout));
        }
        if options.proj_size != 0 && (kind != Cell::Lstm || options.proj_size >= hidden_size) {
            let message = format!(
                "{}; only an LSTM projects, to less than its hidden_size {hidden_size}",
                options.proj_size
            );
            bad("proj_size", message);
        }
        let directions = if options.bidirectional { 2 } else { 1 };
        let outputs = if options.proj_size > 0 { options.proj_size } else { hidden_size };
        let rows = kind.gates() * hidden_size;
        let mut parameters = Vec::new();
        for layer in 0..options.num_layers {
            let inputs = if layer == 0 { input_size } else { outputs * directions };
            for direction in 0..directions {
                let mut add = |part: &str, shape: &[usize]| {
                    let name = name_of(part, layer, direction);
                    parameters.push((name, init::uniform_parameter(shape, bound(hidden_size))));
                };
                add("weight_ih", &[rows, inputs]);
                add("weight_hh", &[rows, outputs]);
                if options.bias {
                    add("bias_ih", &[rows]);
                    add("bias_hh", &[rows]);
                }
                if options.proj_size > 0 {
                    add("weight_hr", &[options.proj_size, hidden_size]);
                }
            }
        }
        let training = Training::default();
        Layers { kind, name, hidden_size, input_size, options, parameters, training }
    }

    /// What differs from the defaults, as PyTorch says it.
    fn settings(&self) -> String {
        let Layers { input_size, hidden_size, options: o, .. } = self;
        let usual = RNNOptions::default();
        let said = [
            (o.proj_size != usual.proj_size).then(|| format!("proj_size={}", o.proj_size)),
            (o.num_layers != usual.num_layers).then(|| format!("num_layers={}", o.num_layers)),
            (o.bias != usual.bias).then(|| "bias=False".to_owned()),
            (o.batch_first != usual.batch_first).then(|| "batch_first=True".to_owned()),
            (o.dropout != usual.dropout).then(|| format!("dropout={}", python_float(o.dropout))),
            (o.bidirectional != usual.bidirectional).then(|| "bidirectional=True".to_owned()),
        ];
        let said: String = said.into_iter().flatten().map(|s| format!(", {s}")).collect();
        format!("{input_size}, {hidden_size}{said}")
    }

    fn directions(&self) -> usize {
        if self.options.bidirectional { 2 } else { 1 }
    }

    /// Sizes of h, and for an LSTM of c.
    fn state_sizes(&self) -> Vec<usize> {
        let RNNOptions { proj_size, .. } = self.options;
        let h = if proj_size > 0 { proj_size } else { self.hidden_size };
        if self.kind == Cell::Lstm { vec![h, self.hidden_size] } else { vec![h] }
    }

    fn parameter(&self, part: &str, layer: usize, direction: usize) -> Option<&Tensor> {
        let name = name_of(part, layer, direction);
        self.parameters.iter().find(|(n, _)| *n == name).map(|(_, p)| p.tensor())
    }

    /// Padded sequences, batched or not. States are `[layers * directions, batch, size]`.
    #[track_caller]
    fn padded(&self, input: &Tensor, state: Option<Vec<&Tensor>>) -> (Tensor, Vec<Tensor>) {
        if !(input.dim() == 2 || input.dim() == 3) || input.size(-1) != self.input_size {
            let message = format!(
                "the input must be [time, batch, {0}] ([batch, time, {0}] with batch_first) or \
                 [time, {0}], got {1:?}",
                self.input_size,
                input.shape()
            );
            throw(Error::shape(self.name, message));
        }
        let single = input.dim() == 2;
        let turned = self.options.batch_first && !single;
        let x = match (single, turned) {
            (true, _) => input.unsqueeze(1),
            (_, true) => input.transpose(0, 1),
            _ => input.clone(),
        };
        let (time, batch) = (x.size(0), x.size(1));
        let state = state.map(|state| {
            let lift = |h: &Tensor| if single && h.dim() == 2 { h.unsqueeze(1) } else { h.clone() };
            state.into_iter().map(lift).collect()
        });
        let steps =
            Steps { data: x.reshape([(time * batch) as i64, -1]), sizes: vec![batch; time] };
        let (out, state) = self.run(steps, batch, state);
        let out = out.view([time as i64, batch as i64, -1]);
        let out = match (single, turned) {
            (true, _) => out.squeeze_dim(1),
            (_, true) => out.transpose(0, 1),
            _ => out,
        };
        let plain = |h: Tensor| if single { h.squeeze_dim(1) } else { h };
        (out, state.into_iter().map(plain).collect())
    }

    /// Packed sequences. States are in the order of the batch, outside and in.
    #[track_caller]
    fn packed(
        &self,
        input: &PackedSequence,
        state: Option<Vec<&Tensor>>,
    ) -> (PackedSequence, Vec<Tensor>) {
        let order = |indices: Option<Vec<i64>>, h: &Tensor| match indices {
            Some(indices) => rows(h, 1, &indices),
            None => h.clone(),
        };
        let sort = |h| order(input.sorted_indices.clone(), h);
        let state = state.map(|state| state.into_iter().map(sort).collect());
        let steps = Steps { data: input.data.clone(), sizes: input.batch_sizes.clone() };
        let batch = input.batch_sizes.first().copied().unwrap_or(0);
        let (data, state) = self.run(steps, batch, state);
        let state = state.iter().map(|h| order(input.unsorted_indices(), h)).collect();
        (PackedSequence { data, ..input.clone() }, state)
    }

    /// [`padded`](Self::padded) as nodes of ONNX; with lengths, `[batch]`, as packed sequences that are padded again.
    fn onnx(
        &self,
        graph: &mut Graph,
        input: &Value,
        lengths: Option<&Value>,
        state: Option<&[&Value]>,
    ) -> Result<(Value, Vec<Value>)> {
        let op = format!("onnx {}", self.name);
        if self.options.proj_size > 0 {
            let message = format!("{}: ONNX projects no states", self.options.proj_size);
            return Err(Error::argument(&op, "proj_size", message));
        }
        let single = input.dim() == 2 && lengths.is_none();
        if !(single || input.dim() == 3) {
            let message =
                format!("input {:?} must be [time, batch, {}]", input.shape(), self.input_size);
            return Err(Error::shape(&op, message));
        }
        let turned = self.options.batch_first && !single;
        let mut x = match (single, turned) {
            (true, _) => graph.unsqueeze(input, &[1]),
            (_, true) => graph.transpose(input, &[1, 0, 2])?,
            _ => input.clone(),
        };
        let (layers, directions) = (self.options.num_layers, self.directions());
        // Of each kind of state the part of each layer.
        let mut parts = Vec::new();
        for state in state.into_iter().flatten() {
            let state = match single && state.dim() == 2 {
                true => graph.unsqueeze(state, &[1]),
                false => (*state).clone(),
            };
            if state.shape().first() != Some(&Dim::Fixed(layers * directions)) {
                let message = format!(
                    "state {:?} must be [{}, batch, ..]",
                    state.shape(),
                    layers * directions
                );
                return Err(Error::shape(&op, message));
            }
            parts.push(graph.split(&state, layers, 0)?);
        }
        let mut last: Vec<Vec<Value>> = vec![Vec::new(); self.state_sizes().len()];
        for layer in 0..layers {
            let weights: Vec<DirectionWeights> = (0..directions)
                .map(|direction| {
                    let part = |name| self.parameter(name, layer, direction);
                    DirectionWeights {
                        weight_ih: part("weight_ih").expect("made in new"),
                        weight_hh: part("weight_hh").expect("made in new"),
                        biases: part("bias_ih").zip(part("bias_hh")).map(|(a, b)| [a, b]),
                    }
                })
                .collect();
            let first: Option<Vec<Value>> =
                state.map(|_| parts.iter().map(|part| part[layer].clone()).collect());
            let states;
            (x, states) = graph.recurrent(self.kind, &x, &weights, lengths, first.as_deref())?;
            last.iter_mut().zip(states).for_each(|(last, state)| last.push(state));
        }
        let out = match (single, turned) {
            (true, _) => graph.squeeze(&x, 1)?,
            (_, true) => graph.transpose(&x, &[1, 0, 2])?,
            _ => x,
        };
        let mut states = Vec::with_capacity(last.len());
        for last in &last {
            let state = graph.concat(&last.iter().collect::<Vec<_>>(), 0)?;
            states.push(if single { graph.squeeze(&state, 1)? } else { state });
        }
        Ok((out, states))
    }

    #[track_caller]
    fn run(
        &self,
        mut steps: Steps,
        batch: usize,
        state: Option<Vec<Tensor>>,
    ) -> (Tensor, Vec<Tensor>) {
        let (layers, directions) = (self.options.num_layers, self.directions());
        let sizes = self.state_sizes();
        let state = state.unwrap_or_else(|| {
            let zeros = |&size: &usize| {
                let on = (steps.data.dtype(), steps.data.device());
                Tensor::zeros([layers * directions, batch, size], on)
            };
            sizes.iter().map(zeros).collect()
        });
        for (h, &size) in state.iter().zip(&sizes) {
            if h.shape() != [layers * directions, batch, size] {
                let message = format!(
                    "the state must be [{}, {batch}, {size}], got {:?}",
                    layers * directions,
                    h.shape()
                );
                throw(Error::shape(self.name, message));
            }
        }
        let mut last: Vec<Vec<Tensor>> = vec![Vec::new(); sizes.len()];
        for layer in 0..layers {
            let mut outputs = Vec::new();
            for direction in 0..directions {
                let at = (layer * directions + direction) as i64;
                let first = state.iter().map(|h| h.select(0, at)).collect();
                let (out, state) = self.direction(&steps, layer, direction, first);
                outputs.push(out);
                for (last, h) in last.iter_mut().zip(state) {
                    last.push(h);
                }
            }
            let out = if directions == 1 { outputs.remove(0) } else { Tensor::cat(&outputs, -1) };
            let drops = layer + 1 < layers && self.options.dropout > 0.0;
            steps.data = match drops {
                true => out.dropout(self.options.dropout, self.training.get()),
                false => out,
            };
        }
        (steps.data, last.iter().map(|h| Tensor::stack(h, 0)).collect())
    }

    /// One direction of one layer: outputs in the order of time, and the last state of each sequence.
    #[track_caller]
    fn direction(
        &self,
        steps: &Steps,
        layer: usize,
        direction: usize,
        first: Vec<Tensor>,
    ) -> (Tensor, Vec<Tensor>) {
        let part = |name| self.parameter(name, layer, direction);
        let weights = Direction {
            cell: self.kind,
            weight_ih: part("weight_ih").expect("made in new"),
            bias_ih: part("bias_ih"),
            recurrent: Recurrent {
                weight_hh: part("weight_hh").expect("made in new"),
                bias_hh: part("bias_hh"),
                weight_hr: part("weight_hr"),
            },
            sizes: &steps.sizes,
            backwards: direction == 1,
        };
        weights.run(&steps.data, &first)
    }
}

fn name_of(part: &str, layer: usize, direction: usize) -> String {
    format!("{part}_l{layer}{}", if direction == 1 { "_reverse" } else { "" })
}

macro_rules! layers {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name(Layers);

        impl Module for $name {
            fn visit<'a>(&'a self, visitor: &mut dyn Visitor<'a>) {
                for (name, parameter) in &self.0.parameters {
                    visitor.parameter(name, parameter);
                }
                visitor.training(&self.0.training);
            }

            fn visit_mut(&mut self, visitor: &mut dyn VisitorMut) {
                for (name, parameter) in &mut self.0.parameters {
                    visitor.parameter(name, parameter);
                }
            }

            fn name(&self) -> &str {
                stringify!($name)
            }

            fn extra_repr(&self) -> String {
                self.0.settings()
            }
        }
    )*};
}

layers! {
    /// Simple recurrent layers, h' = tanh(W_ih x + b_ih + W_hh h + b_hh) (`torch.nn.RNN`; Elman 1990).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::RNN};
    /// let rnn = RNN::new(3, 5, Default::default());
    /// let (out, h) = rnn.forward(&Tensor::randn([7, 2, 3], Dtype::F32), None);
    /// assert_eq!((out.shape(), h.shape()), (&[7, 2, 5][..], &[1, 2, 5][..]));
    /// assert!(out.select(0, -1).equal(&h.select(0, 0)));
    /// ```
    RNN,
    /// Layers of gated recurrent units (`torch.nn.GRU`; Cho et al. 2014).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{GRU, RNNOptions}};
    /// let gru = GRU::new(3, 5, RNNOptions { bidirectional: true, ..Default::default() });
    /// let (out, h) = gru.forward(&Tensor::randn([7, 2, 3], Dtype::F32), None);
    /// assert_eq!((out.shape(), h.shape()), (&[7, 2, 10][..], &[2, 2, 5][..]));
    /// ```
    GRU,
    /// Layers of long short-term memory (`torch.nn.LSTM`; Hochreiter & Schmidhuber 1997).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{LSTM, RNNOptions}};
    /// let lstm = LSTM::new(3, 5, RNNOptions { num_layers: 2, batch_first: true, ..Default::default() });
    /// let (out, (h, c)) = lstm.forward(&Tensor::randn([2, 7, 3], Dtype::F32), None);
    /// assert_eq!((out.shape(), h.shape(), c.shape()), (&[2, 7, 5][..], &[2, 2, 5][..], &[2, 2, 5][..]));
    /// ```
    LSTM,
}

impl RNN {
    /// With [`RNNNonlinearity::Tanh`].
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for sizes and options that cannot be.
    #[track_caller]
    pub fn new(input_size: usize, hidden_size: usize, options: RNNOptions) -> Self {
        Self::with_nonlinearity(input_size, hidden_size, RNNNonlinearity::Tanh, options)
    }

    /// With a nonlinearity.
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Module, RNN, RNNNonlinearity, init}};
    /// let rnn = RNN::with_nonlinearity(1, 1, RNNNonlinearity::Relu, Default::default());
    /// rnn.parameters().iter().for_each(|p| init::ones_(p));
    /// // Each step adds its input and two biases.
    /// let (out, _) = rnn.forward(&Tensor::from([[1f32], [1.], [1.]]), None);
    /// assert_eq!(out.to_vec::<f32>(), [3.0, 6.0, 9.0]);
    /// ```
    ///
    /// # Panics
    /// As [`RNN::new`].
    #[track_caller]
    pub fn with_nonlinearity(
        input_size: usize,
        hidden_size: usize,
        nonlinearity: RNNNonlinearity,
        options: RNNOptions,
    ) -> Self {
        RNN(Layers::new(nonlinearity.cell(), "RNN", input_size, hidden_size, options))
    }
}

impl GRU {
    /// Weights and biases start uniform within 1 / sqrt(hidden_size).
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for sizes and options that cannot be.
    #[track_caller]
    pub fn new(input_size: usize, hidden_size: usize, options: RNNOptions) -> Self {
        GRU(Layers::new(Cell::Gru, "GRU", input_size, hidden_size, options))
    }
}

macro_rules! forward_with_one_state {
    ($($name:ident)*) => {$(
        impl $name {
            /// Outputs of the last layer for all steps, `[time, batch, directions * hidden]`, and the
            /// last h of each layer and direction, `[layers * directions, batch, hidden]`, from
            /// sequences `[time, batch, input_size]` and the first h (zeros if `None`). Without
            /// `batch` in all of them for one sequence; see [`RNNOptions::batch_first`].
            ///
            /// ```
            #[doc = concat!("use torchrs::{Dtype, Tensor, nn::", stringify!($name), "};")]
            #[doc = concat!("let rnn = ", stringify!($name), "::new(3, 5, Default::default());")]
            /// let x = Tensor::ones([6, 2, 3], Dtype::F32);
            /// let (whole, last) = rnn.forward(&x, None);
            /// // The same in two parts.
            /// let (_, state) = rnn.forward(&x.narrow(0, 0, 4), None);
            /// assert!((rnn.forward(&x.narrow(0, 4, 2), Some(&state)).1 - last).abs().max().item() < 1e-6);
            /// ```
            ///
            /// # Panics
            /// Throws [`Error::Shape`] for shapes that do not fit.
            #[track_caller]
            #[crate::nn::forward]
            pub fn forward(&self, input: &Tensor, hx: Option<&Tensor>) -> (Tensor, Tensor) {
                let (out, mut state) = self.0.padded(input, hx.map(|h| vec![h]));
                (out, state.swap_remove(0))
            }

            /// [`forward`](Self::forward) for sequences of different lengths.
            ///
            /// ```
            /// use torchrs::{Dtype, Tensor, nn};
            #[doc = concat!("let rnn = nn::", stringify!($name), "::new(3, 5, Default::default());")]
            /// let sequences = [4, 2].map(|length| Tensor::randn([length, 3], Dtype::F32));
            /// let (out, _) = rnn.forward_packed(&nn::pack_sequence(&sequences, true), None);
            /// let second = &nn::unpack_sequence(&out)[1];
            /// assert!((second - rnn.forward(&sequences[1], None).0).abs().max().item() < 1e-6);
            /// ```
            ///
            /// # Panics
            /// Throws [`Error::Shape`] for shapes that do not fit.
            #[track_caller]
            #[crate::nn::forward]
            pub fn forward_packed(
                &self,
                input: &PackedSequence,
                hx: Option<&Tensor>,
            ) -> (PackedSequence, Tensor) {
                let (out, mut state) = self.0.packed(input, hx.map(|h| vec![h]));
                (out, state.swap_remove(0))
            }

            /// What [`forward`](Self::forward) computes in evaluation, as part of a graph of [ONNX](crate::onnx). With
            /// `lengths`, `[batch]`, that of padded sequences: outputs behind a sequence's end are 0, the last states those
            /// at its end.
            ///
            /// ```
            /// use torchrs::{Dtype, onnx::Graph};
            #[doc = concat!("let rnn = torchrs::nn::", stringify!($name), "::new(3, 5, Default::default());")]
            /// let mut graph = Graph::new();
            /// let x = graph.input("x", Dtype::F32, ["time".into(), "batch".into(), 3.into()]);
            /// let (out, _) = rnn.onnx(&mut graph, &x, None, None)?;
            /// assert_eq!(out.shape(), ["time".into(), "batch".into(), 5.into()]);
            /// # Ok::<(), torchrs::Error>(())
            /// ```
            ///
            /// # Errors
            /// As the nodes, for shapes that do not fit.
            pub fn onnx(
                &self,
                graph: &mut Graph,
                input: &Value,
                lengths: Option<&Value>,
                hx: Option<&Value>,
            ) -> Result<(Value, Value)> {
                let hx = hx.map(|h| [h]);
                let (out, mut state) = self.0.onnx(graph, input, lengths, hx.as_ref().map(|h| &h[..]))?;
                Ok((out, state.swap_remove(0)))
            }
        }
    )*};
}
forward_with_one_state! { RNN GRU }

impl LSTM {
    /// Weights and biases start uniform within 1 / sqrt(hidden_size).
    ///
    /// ```
    /// use torchrs::nn::{LSTM, Module, RNNOptions};
    /// // Four gates.
    /// let lstm = LSTM::new(3, 5, RNNOptions { proj_size: 2, ..Default::default() });
    /// assert_eq!(lstm.state_dict()["weight_hh_l0"].shape(), &[4 * 5, 2]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for sizes and options that cannot be.
    #[track_caller]
    pub fn new(input_size: usize, hidden_size: usize, options: RNNOptions) -> Self {
        LSTM(Layers::new(Cell::Lstm, "LSTM", input_size, hidden_size, options))
    }

    /// Outputs of the last layer for all steps, `[time, batch, directions * hidden]`, and the last
    /// (h, c) of each layer and direction, `[layers * directions, batch, hidden]`, from sequences
    /// `[time, batch, input_size]` and the first (h, c) (zeros if `None`). Without `batch` in all of
    /// them for one sequence; see [`RNNOptions::batch_first`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::LSTM};
    /// let (lstm, x) = (LSTM::new(3, 5, Default::default()), Tensor::ones([6, 2, 3], Dtype::F32));
    /// let (_, (last, _)) = lstm.forward(&x, None);
    /// // The same in two parts.
    /// let (_, (h, c)) = lstm.forward(&x.narrow(0, 0, 4), None);
    /// let (_, (again, _)) = lstm.forward(&x.narrow(0, 4, 2), Some((&h, &c)));
    /// assert!((again - last).abs().max().item() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for shapes that do not fit.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward(
        &self,
        input: &Tensor,
        hx: Option<(&Tensor, &Tensor)>,
    ) -> (Tensor, (Tensor, Tensor)) {
        let (out, mut state) = self.0.padded(input, hx.map(|(h, c)| vec![h, c]));
        let c = state.swap_remove(1);
        (out, (state.swap_remove(0), c))
    }

    /// [`forward`](Self::forward) for sequences of different lengths.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{LSTM, pack_sequence, unpack_sequence}};
    /// let lstm = LSTM::new(3, 5, Default::default());
    /// let sequences = [4, 2].map(|length| Tensor::randn([length, 3], Dtype::F32));
    /// let (out, _) = lstm.forward_packed(&pack_sequence(&sequences, true), None);
    /// let second = &unpack_sequence(&out)[1];
    /// assert!((second - lstm.forward(&sequences[1], None).0).abs().max().item() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for shapes that do not fit.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward_packed(
        &self,
        input: &PackedSequence,
        hx: Option<(&Tensor, &Tensor)>,
    ) -> (PackedSequence, (Tensor, Tensor)) {
        let (out, mut state) = self.0.packed(input, hx.map(|(h, c)| vec![h, c]));
        let c = state.swap_remove(1);
        (out, (state.swap_remove(0), c))
    }

    /// What [`forward`](Self::forward) computes in evaluation, as part of a graph of [ONNX](crate::onnx). With `lengths`,
    /// `[batch]`, that of padded sequences: outputs behind a sequence's end are 0, the last states those at its end.
    ///
    /// ```
    /// use torchrs::{Dtype, nn::LSTM, onnx::Graph};
    /// let (lstm, mut graph) = (LSTM::new(3, 5, Default::default()), Graph::new());
    /// let x = graph.input("x", Dtype::F32, ["time".into(), "batch".into(), 3.into()]);
    /// let (_, (h, c)) = lstm.onnx(&mut graph, &x, None, None)?;
    /// assert_eq!((h.shape(), c.shape()[2].clone()), (&[1.into(), "batch".into(), 5.into()][..], 5.into()));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As the nodes, for shapes that do not fit; [`Error::Argument`] for states that are projected, which ONNX has not.
    pub fn onnx(
        &self,
        graph: &mut Graph,
        input: &Value,
        lengths: Option<&Value>,
        hx: Option<(&Value, &Value)>,
    ) -> Result<(Value, (Value, Value))> {
        let hx = hx.map(|(h, c)| [h, c]);
        let (out, mut state) = self.0.onnx(graph, input, lengths, hx.as_ref().map(|hx| &hx[..]))?;
        let c = state.swap_remove(1);
        Ok((out, (state.swap_remove(0), c)))
    }
}
