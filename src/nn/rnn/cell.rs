//! One step of a recurrent network.

use super::RNNNonlinearity;
use crate::error::{Error, throw};
use crate::nn::{Module, Parameter, init};
use crate::ops::rnn::{Cell, Direction, Recurrent, step};
use crate::tensor::Tensor;

/// Weights and biases of recurrent networks all start uniform within this.
pub(super) fn bound(hidden_size: usize) -> f64 {
    1.0 / (hidden_size as f64).sqrt()
}

/// Input and state as matrices: unbatched ones get a dimension. Throws for shapes that do not fit.
#[track_caller]
fn batched(
    op: &str,
    x: &Tensor,
    state: Option<&[&Tensor]>,
    (inputs, hidden, states): (usize, usize, usize),
) -> (Tensor, Vec<Tensor>, bool) {
    if !(x.dim() == 1 || x.dim() == 2) || x.size(-1) != inputs {
        let message =
            format!("the input must be [batch, {inputs}] or [{inputs}], got {:?}", x.shape());
        throw(Error::shape(op, message));
    }
    let single = x.dim() == 1;
    let x = if single { x.unsqueeze(0) } else { x.clone() };
    let state = match state {
        None => {
            let on = (x.dtype(), x.device());
            (0..states).map(|_| Tensor::zeros([x.size(0), hidden], on)).collect()
        }
        Some(state) => state
            .iter()
            .map(|h| {
                let h = if single && h.dim() == 1 { h.unsqueeze(0) } else { (*h).clone() };
                if h.shape() != [x.size(0), hidden] {
                    let message = format!(
                        "the state must be [{}, {hidden}] for an input of {:?}, got {:?}",
                        x.size(0),
                        x.shape(),
                        h.shape()
                    );
                    throw(Error::shape(op, message));
                }
                h
            })
            .collect(),
    };
    (x, state, single)
}

/// On a GPU as one op; on the CPU of several, which do not pack the weights.
#[track_caller]
fn next_state(
    cell: Cell,
    recurrent: &Recurrent<'_>,
    x: &Tensor,
    state: &[Tensor],
    (weight_ih, bias_ih): (&Tensor, Option<&Tensor>),
) -> Vec<Tensor> {
    if !x.device().is_apart() {
        return step(cell, recurrent, &x.linear(weight_ih, bias_ih), state);
    }
    let sizes = &[x.size(0)];
    let layer =
        Direction { cell, weight_ih, bias_ih, recurrent: *recurrent, sizes, backwards: false };
    layer.run(x, state).1
}

macro_rules! cells {
    ($(
        $(#[$doc:meta])*
        $name:ident { $($field:ident: $t:ty)? } $kind:expr, $states:literal,
    )*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone)]
        #[module(extra_repr = Self::settings)]
        pub struct $name {
            /// `[gates * hidden_size, input_size]`.
            pub weight_ih: Parameter,
            /// `[gates * hidden_size, hidden_size]`.
            pub weight_hh: Parameter,
            /// `[gates * hidden_size]`.
            pub bias_ih: Option<Parameter>,
            /// `[gates * hidden_size]`.
            pub bias_hh: Option<Parameter>,
            $(#[module(skip)] $field: $t,)?
        }

        impl $name {
            /// With biases; all start uniform within 1 / sqrt(hidden_size).
            ///
            /// ```
            #[doc = concat!("let cell = torchrs::nn::", stringify!($name), "::new(3, 5);")]
            /// assert_eq!((cell.weight_ih.size(1), cell.weight_hh.size(1)), (3, 5));
            /// assert_eq!(cell.weight_ih.size(0), cell.bias_hh.unwrap().size(0));
            /// ```
            #[track_caller]
            pub fn new(input_size: usize, hidden_size: usize) -> Self {
                if hidden_size == 0 {
                    throw(Error::argument(stringify!($name), "hidden_size", "0; must be positive"));
                }
                $(let $field = <$t>::default();)?
                let kind: Cell = $kind;
                let rows = kind.gates() * hidden_size;
                let fresh = |shape: &[usize]| init::uniform_parameter(shape, bound(hidden_size));
                $name {
                    weight_ih: fresh(&[rows, input_size]),
                    weight_hh: fresh(&[rows, hidden_size]),
                    bias_ih: Some(fresh(&[rows])),
                    bias_hh: Some(fresh(&[rows])),
                    $($field,)?
                }
            }

            /// Without biases.
            #[must_use]
            pub fn no_bias(mut self) -> Self {
                (self.bias_ih, self.bias_hh) = (None, None);
                self
            }

            fn settings(&self) -> String {
                let (inputs, hidden) = (self.weight_ih.size(1), self.weight_hh.size(1));
                let bias = if self.bias_ih.is_some() { "" } else { ", bias=False" };
                let text = format!("{inputs}, {hidden}{bias}");
                $(let text = match self.$field {
                    RNNNonlinearity::Tanh => text,
                    RNNNonlinearity::Relu => text + ", nonlinearity=relu",
                };)?
                text
            }

            #[track_caller]
            fn step(&self, x: &Tensor, state: Option<&[&Tensor]>) -> Vec<Tensor> {
                $(let $field = self.$field;)?
                let kind: Cell = $kind;
                let sizes = (self.weight_ih.size(1), self.weight_hh.size(1), $states);
                let (x, state, single) = batched(stringify!($name), x, state, sizes);
                let weights = Recurrent {
                    weight_hh: &self.weight_hh,
                    bias_hh: self.bias_hh.as_deref(),
                    weight_hr: None,
                };
                let next = next_state(kind, &weights, &x, &state, (&self.weight_ih, self.bias_ih.as_deref()));
                let plain = |h: Tensor| if single { h.squeeze_dim(0) } else { h };
                next.into_iter().map(plain).collect()
            }
        }
    )*};
}

cells! {
    /// h' = tanh(W_ih x + b_ih + W_hh h + b_hh) (`torch.nn.RNNCell`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::RNNCell};
    /// let (cell, x) = (RNNCell::new(3, 5), Tensor::randn([4, 2, 3], Dtype::F32));
    /// let h = x.unbind(0).iter().fold(Tensor::zeros([2, 5], Dtype::F32), |h, x| cell.forward(x, Some(&h)));
    /// assert!(h.shape() == [2, 5] && h.abs().max().item() <= 1.0);
    /// ```
    RNNCell { nonlinearity: RNNNonlinearity } nonlinearity.cell(), 1,
    /// Long short-term memory (`torch.nn.LSTMCell`; Hochreiter & Schmidhuber 1997).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::LSTMCell};
    /// let (cell, x) = (LSTMCell::new(3, 5), Tensor::randn([2, 3], Dtype::F32));
    /// let (h, c) = cell.forward(&x, None);
    /// let (h, c) = cell.forward(&x, Some((&h, &c)));
    /// assert_eq!((h.shape(), c.shape()), (&[2, 5][..], &[2, 5][..]));
    /// ```
    LSTMCell {} Cell::Lstm, 2,
    /// Gated recurrent unit (`torch.nn.GRUCell`; Cho et al. 2014).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::GRUCell};
    /// let (cell, x) = (GRUCell::new(3, 5), Tensor::randn([4, 2, 3], Dtype::F32));
    /// let h = x.unbind(0).iter().fold(Tensor::zeros([2, 5], Dtype::F32), |h, x| cell.forward(x, Some(&h)));
    /// assert!(h.shape() == [2, 5] && h.abs().max().item() <= 1.0);
    /// ```
    GRUCell {} Cell::Gru, 1,
}

impl RNNCell {
    /// With another nonlinearity.
    #[must_use]
    pub fn nonlinearity(mut self, nonlinearity: RNNNonlinearity) -> Self {
        self.nonlinearity = nonlinearity;
        self
    }

    /// The next state from `[batch, input_size]` and `[batch, hidden_size]` (zeros if `None`), or from
    /// vectors.
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Module, RNNCell, init}};
    /// let cell = RNNCell::new(1, 1).no_bias();
    /// cell.parameters().iter().for_each(|p| init::ones_(p));
    /// let h = cell.forward(&Tensor::from([[0.25f32]]), Some(&Tensor::from([[0.75f32]])));
    /// assert!((h.item() - 1f64.tanh()).abs() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for shapes that do not fit.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward(&self, input: &Tensor, hx: Option<&Tensor>) -> Tensor {
        self.step(input, hx.map(|h| [h]).as_ref().map(|h| &h[..])).swap_remove(0)
    }
}

impl GRUCell {
    /// The next state from `[batch, input_size]` and `[batch, hidden_size]` (zeros if `None`), or from
    /// vectors.
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{GRUCell, Module, init}};
    /// let cell = GRUCell::new(1, 1);
    /// cell.parameters().iter().for_each(|p| init::zeros_(p));
    /// // Half of the state stays, half becomes tanh(0).
    /// let h = cell.forward(&Tensor::from([[3f32]]), Some(&Tensor::from([[8f32]])));
    /// assert!((h.item() - 4.0).abs() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for shapes that do not fit.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward(&self, input: &Tensor, hx: Option<&Tensor>) -> Tensor {
        self.step(input, hx.map(|h| [h]).as_ref().map(|h| &h[..])).swap_remove(0)
    }
}

impl LSTMCell {
    /// The next (h, c) from `[batch, input_size]` and the last ones, each `[batch, hidden_size]` (zeros
    /// if `None`), or from vectors.
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{LSTMCell, Module, init}};
    /// let cell = LSTMCell::new(1, 1);
    /// cell.parameters().iter().for_each(|p| init::zeros_(p));
    /// // sigmoid(0) 8 + sigmoid(0) tanh(0)
    /// let [x, h, c] = [3f32, 1., 8.].map(|v| Tensor::from([v]));
    /// let (_, c) = cell.forward(&x, Some((&h, &c)));
    /// assert!((c.item() - 4.0).abs() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for shapes that do not fit.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward(&self, input: &Tensor, hx: Option<(&Tensor, &Tensor)>) -> (Tensor, Tensor) {
        let mut next = self.step(input, hx.map(|(h, c)| [h, c]).as_ref().map(|s| &s[..]));
        let c = next.swap_remove(1);
        (next.swap_remove(0), c)
    }
}
