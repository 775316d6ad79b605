//! Connectionist temporal classification: the probability of a sequence of labels, summed over all
//! ways to spread it over more time steps, with blanks between labels and repetitions of them.
//!
//! With the labels `l` spread out to `[blank, l_1, blank, l_2, ..., blank]`, `alpha[t, s]` is the
//! logarithm of the probability of all ways to be at place `s` at time `t`, `beta[t, s]` that of all
//! ways on from there, both with the step at `t` itself. The loss is minus the last alphas' sum. As
//! PyTorch's, the gradient is that for log-probabilities that come from a log-softmax:
//! `d loss / d x[t, c] = e^x[t, c] - sum over places s of c of e^(alpha + beta + loss - x[t, c])`.

pub(in crate::ops) mod cuda;
mod span;

use smallvec::smallvec;

use crate::amp::cast_op;
use crate::autograd::record;
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, Order, values};
use crate::ops::{Reduction, gpu};
use crate::tensor::{Dtype, Tensor};
use span::Span;

/// Options of [`ctc_loss`]; the defaults are PyTorch's.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::{ctc_loss, CTCLossOptions};
/// let (log_probs, one) = (Tensor::from([[[0.5f64, 0.5]]]).log(), Tensor::from([1i64]));
/// let options = CTCLossOptions { zero_infinity: true, ..Default::default() };
/// let loss = ctc_loss(&log_probs, &Tensor::from([[1i64, 1]]), &one, &Tensor::from([2i64]), options);
/// assert_eq!(loss.item(), 0.0);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct CTCLossOptions {
    /// The class of "no label".
    pub blank: usize,
    /// What is returned; the mean is of losses divided by their number of labels.
    pub reduction: Reduction,
    /// Gives 0 instead of infinity where the labels do not fit into the time steps.
    pub zero_infinity: bool,
}

/// A sample: its number of time steps, and its labels with blanks around each.
struct Sample {
    steps: usize,
    places: Vec<usize>,
}

/// Loss of sequences of labels (`torch.nn.functional.ctc_loss`).
///
/// `log_probs` is `[T, N, C]` or `[T, C]`; `targets` has the classes, `[N, S]`, or all of them in one
/// dimension; lengths are `[N]` or `[]`.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::ctc_loss;
/// let (log_probs, one) = (Tensor::from([[[0.25f64, 0.75]]]).log(), Tensor::from([1i64]));
/// let loss = ctc_loss(&log_probs, &Tensor::from([[1i64]]), &one, &one, Default::default());
/// assert!((loss.item() - -0.75f64.ln()).abs() < 1e-6);
/// ```
///
/// # Panics
/// Throws when shapes, lengths or classes do not fit.
#[track_caller]
pub fn ctc_loss(
    log_probs: &Tensor,
    targets: &Tensor,
    input_lengths: &Tensor,
    target_lengths: &Tensor,
    options: CTCLossOptions,
) -> Tensor {
    cast_op!("ctc_loss", [x = log_probs] => ctc_loss(&x, targets, input_lengths, target_lengths, options));
    if !log_probs.dtype().is_floating_point() {
        crate::tensor::dtype::not_floating("ctc_loss", log_probs.dtype());
    }
    let batched = log_probs.dim() == 3;
    if !batched && log_probs.dim() != 2 {
        let shape = log_probs.shape();
        throw(Error::shape("ctc_loss", format!("{shape:?}; [T, N, C] or [T, C] is needed")));
    }
    let x = if batched { log_probs.clone() } else { log_probs.unsqueeze(1) };
    let spans = spans_of(&x, targets, input_lengths, target_lengths, options.blank);
    let losses = match gpu::of("ctc_loss", &[&x]) {
        Some(gpu) => cuda::losses(gpu, &x, targets, &spans, options.blank, options.zero_infinity),
        None => {
            let samples = samples_of(&x, targets, &spans, options.blank);
            losses(&x, samples, options.zero_infinity)
        }
    };
    match options.reduction {
        Reduction::None if batched => losses,
        Reduction::None => losses.squeeze(),
        Reduction::Sum => losses.sum(),
        Reduction::Mean => {
            let labels = target_lengths.to_device(losses.device()).reshape([-1]);
            let labels = labels.clamp_min(1i64).to_dtype(losses.dtype());
            (losses / labels).mean()
        }
    }
}

/// Where the samples are, after checking it. Lengths on a GPU are waited for, as PyTorch does; its labels stay.
#[track_caller]
fn spans_of(
    x: &Tensor,
    targets: &Tensor,
    input_lengths: &Tensor,
    target_lengths: &Tensor,
    blank: usize,
) -> Vec<Span> {
    let op = "ctc_loss";
    let [steps, n, classes] = [x.shape()[0], x.shape()[1], x.shape()[2]];
    let wrong =
        |argument: &str, message: String| -> ! { throw(Error::argument(op, argument, message)) };
    if blank >= classes {
        wrong("blank", format!("{blank} of {classes} classes"));
    }
    for (name, t) in
        [("targets", targets), ("input_lengths", input_lengths), ("target_lengths", target_lengths)]
    {
        if t.dtype().is_floating_point() || t.dtype() == Dtype::Bool {
            wrong(name, format!("{}; integers are needed", t.dtype()));
        }
    }
    let lengths = |name: &str, t: &Tensor| {
        if t.numel() != n {
            wrong(name, format!("{} lengths for {n} samples", t.numel()));
        }
        t.assert_has_values("ctc_loss");
        let check = |v: i64| usize::try_from(v).unwrap_or_else(|_| wrong(name, format!("{v}")));
        t.to_vec::<i64>().into_iter().map(check).collect::<Vec<usize>>()
    };
    let inputs = lengths("input_lengths", input_lengths);
    let counts = lengths("target_lengths", target_lengths);
    let labels = targets.numel();
    let width = if targets.dim() == 2 { Some(targets.shape()[1]) } else { None };
    let mut start = 0;
    let mut spans = Vec::new();
    for i in 0..n {
        if inputs[i] > steps {
            wrong("input_lengths", format!("{} of {steps} time steps", inputs[i]));
        }
        if let Some(width) = width {
            start = i * width;
        }
        let end = start + counts[i];
        if end > labels || width.is_some_and(|width| counts[i] > width) {
            wrong("target_lengths", format!("{} labels at {start} of {labels}", counts[i]));
        }
        spans.push(Span { steps: inputs[i], labels: counts[i], first: start });
        start = end;
    }
    spans
}

/// The samples with their labels, after checking these.
#[track_caller]
fn samples_of(x: &Tensor, targets: &Tensor, spans: &[Span], blank: usize) -> Vec<Sample> {
    let (classes, labels) = (x.shape()[2], targets.to_vec::<i64>());
    let sample = |span: &Span| {
        let mut places = vec![blank];
        for &label in &labels[span.first..span.first + span.labels] {
            match usize::try_from(label) {
                Ok(label) if label < classes => places.extend([label, blank]),
                _ => throw(Error::argument(
                    "ctc_loss",
                    "targets",
                    format!("class {label} of {classes}"),
                )),
            }
        }
        Sample { steps: span.steps, places }
    };
    spans.iter().map(sample).collect()
}

/// log(e^a + e^b).
fn add(a: f64, b: f64) -> f64 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    if high == f64::NEG_INFINITY { high } else { high + (low - high).exp().ln_1p() }
}

impl Sample {
    /// Alphas, row by row; with `BACK` betas. `x` gives the log-probability of a class at a time.
    fn walk<const BACK: bool>(&self, x: impl Fn(usize, usize) -> f64) -> Vec<f64> {
        let (n, last) = (self.places.len(), self.steps.saturating_sub(1));
        // Counted from the end, betas are alphas.
        let time = |t: usize| if BACK { last - t } else { t };
        let place = |s: usize| if BACK { n - 1 - s } else { s };
        let mut out = vec![f64::NEG_INFINITY; self.steps * n];
        for t in 0..self.steps {
            for s in 0..n {
                let class = self.places[place(s)];
                let before = |back: usize| out[time(t - 1) * n + place(s - back)];
                let sum = if t == 0 {
                    if s < 2 { 0.0 } else { f64::NEG_INFINITY }
                } else {
                    let mut sum = before(0);
                    if s >= 1 {
                        sum = add(sum, before(1));
                    }
                    // A blank may be left out between different labels.
                    if s >= 2 && self.places[place(s - 2)] != class {
                        sum = add(sum, before(2));
                    }
                    sum
                };
                out[time(t) * n + place(s)] = sum + x(time(t), class);
            }
        }
        out
    }

    /// The loss, from the alphas.
    fn loss(&self, alphas: &[f64]) -> f64 {
        let n = self.places.len();
        match alphas.len().checked_sub(n) {
            // Without time there is one way to have no labels.
            None => {
                if n == 1 {
                    0.0
                } else {
                    f64::INFINITY
                }
            }
            Some(at) if n == 1 => -alphas[at],
            Some(at) => -add(alphas[at + n - 1], alphas[at + n - 2]),
        }
    }
}

/// One loss per sample; `x` is `[T, N, C]`.
fn losses(x: &Tensor, samples: Vec<Sample>, zero_infinity: bool) -> Tensor {
    let [n, classes] = [x.shape()[1], x.shape()[2]];
    let at = move |i: usize| move |t: usize, c: usize| (t * n + i) * classes + c;
    let values = x.to_vec::<f64>();
    let loss = |(i, sample): (usize, &Sample)| {
        let at = at(i);
        let loss = sample.loss(&sample.walk::<false>(|t, c| values[at(t, c)]));
        if zero_infinity && loss == f64::INFINITY { 0.0 } else { loss }
    };
    let losses: Vec<f64> = samples.iter().enumerate().map(loss).collect();
    let losses = Tensor::from_slice(&losses, [n]).to_dtype(x.dtype());
    record("ctc_loss", &[x], losses, |saver| {
        let x = saver.save(x);
        move |ctx| {
            if ctx.create_graph() {
                throw(Error::Autograd("ctc_loss cannot be differentiated twice".into()));
            }
            let (x, g) = (ctx.get(&x), ctx.grad(0).to_vec::<f64>());
            let values = x.to_vec::<f64>();
            let mut out = vec![0.0; values.len()];
            for (i, sample) in samples.iter().enumerate() {
                let at = at(i);
                let alphas = sample.walk::<false>(|t, c| values[at(t, c)]);
                let betas = sample.walk::<true>(|t, c| values[at(t, c)]);
                let loss = sample.loss(&alphas);
                if zero_infinity && loss == f64::INFINITY {
                    continue;
                }
                for t in 0..sample.steps {
                    for c in 0..classes {
                        out[at(t, c)] = g[i] * values[at(t, c)].exp();
                    }
                    let row = t * sample.places.len();
                    for (s, &c) in sample.places.iter().enumerate() {
                        let way = alphas[row + s] + betas[row + s];
                        if way > f64::NEG_INFINITY {
                            out[at(t, c)] -= g[i] * (way + loss - values[at(t, c)]).exp();
                        }
                    }
                }
            }
            smallvec![Some(Tensor::from_slice(&out, x.shape()).to_dtype(x.dtype()))]
        }
    })
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let lengths = |v: [i64; 2]| Tensor::from(v);
    vec![
        OpSample::new("ctc_loss", [values([6, 2, 4], 2)], move |x| {
            let options = CTCLossOptions { reduction: Reduction::None, ..Default::default() };
            let labels = Tensor::from([[1i64, 1, 3], [2, 3, 0]]);
            ctc_loss(&x[0].log_softmax(2), &labels, &lengths([6, 5]), &lengths([3, 2]), options)
        })
        .order(Order::First),
        OpSample::new("ctc_loss, labels that do not fit", [values([2, 2, 3], 2)], move |x| {
            let options = CTCLossOptions { zero_infinity: true, ..Default::default() };
            let labels = Tensor::from([1i64, 1, 1, 2]);
            ctc_loss(&x[0].log_softmax(2), &labels, &lengths([2, 2]), &lengths([3, 1]), options)
        })
        .order(Order::First),
    ]
}
