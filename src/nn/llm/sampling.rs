//! What is left of logits before a token is drawn: penalties of repetition (Keskar et al., "CTRL", 2019), temperature, the likeliest
//! (Fan et al., 2018), the nucleus (Holtzman et al., 2020), and a share of the largest probability (Nguyen et al., "min-p", 2024).

use crate::autograd::no_grad;
use crate::error::{Error, throw};
use crate::tensor::{Dtype, Tensor};

/// How logits are changed before a token is drawn. The filters come in the order of the fields, each with what the ones before have left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogitsOptions {
    /// Divides the logits of tokens that were there before, and multiplies those below 0; 1: none.
    pub repetition_penalty: f64,
    /// Divides the logits: below 1 likely tokens get likelier.
    pub temperature: f64,
    /// Keeps this many of the likeliest tokens, and equals of the last of them; 0: all.
    pub top_k: usize,
    /// Keeps the likeliest tokens as long as those before sum to no more than this; 1: all.
    pub top_p: f64,
    /// Keeps tokens of at least this share of the largest probability; 0: all.
    pub min_p: f64,
}

impl Default for LogitsOptions {
    /// Logits as they are.
    fn default() -> Self {
        LogitsOptions {
            repetition_penalty: 1.0,
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
        }
    }
}

impl LogitsOptions {
    /// Throws in the name of `op` for numbers that cannot be.
    #[track_caller]
    pub(crate) fn check(&self, op: &str) {
        for (name, value) in
            [("temperature", self.temperature), ("repetition_penalty", self.repetition_penalty)]
        {
            if !(value > 0.0 && value.is_finite()) {
                throw(Error::argument(op, name, format!("{value}; must be positive and finite")));
            }
        }
        for (name, value) in [("top_p", self.top_p), ("min_p", self.min_p)] {
            if !(0.0..=1.0).contains(&value) {
                throw(Error::argument(op, name, format!("{value}; must be from 0 to 1")));
            }
        }
    }
}

/// `logits`, `[rows, classes]`, with minus infinity for tokens that are not to be drawn. `previous`, `[rows, any]`, are the tokens
/// that the penalty is for.
///
/// ```
/// use torchrs::{Tensor, nn::llm::{LogitsOptions, filter_logits}};
/// let logits = Tensor::from([[1f64, 3., 2.]]);
/// let options = LogitsOptions { top_k: 2, temperature: 0.5, ..Default::default() };
/// let y = filter_logits(&logits, &options, None);
/// assert_eq!(y.i(0).to_vec::<f64>(), [f64::NEG_INFINITY, 6.0, 4.0]);
/// ```
///
/// # Panics
/// Throws [`Error::Argument`] for numbers that cannot be, and for a penalty without `previous`; [`Error::Shape`] for other
/// shapes.
#[track_caller]
pub fn filter_logits(
    logits: &Tensor,
    options: &LogitsOptions,
    previous: Option<&Tensor>,
) -> Tensor {
    const OP: &str = "filter_logits";
    options.check(OP);
    if logits.dim() != 2 || logits.size(1) == 0 {
        let message = format!("logits are {:?}; must be [rows, classes]", logits.shape());
        throw(Error::shape(OP, message));
    }
    let given = logits;
    let mut logits = given.clone();
    if options.repetition_penalty != 1.0 {
        let Some(previous) = previous else {
            let message =
                format!("{} without `previous`: the tokens it is for", options.repetition_penalty);
            throw(Error::argument(OP, "repetition_penalty", message))
        };
        logits = penalized(&logits, options.repetition_penalty, previous);
    }
    if options.temperature != 1.0 {
        logits = logits.div(options.temperature);
    }
    let classes = logits.size(1);
    if options.top_k > 0 && options.top_k < classes {
        let least =
            no_grad(|| logits.topk(options.top_k, -1, true).0.narrow(1, options.top_k - 1, 1));
        logits = without(&logits, &logits.lt(&least));
    }
    if options.top_p < 1.0 {
        let out = no_grad(|| outside_nucleus(&logits, options.top_p));
        logits = without(&logits, &out);
    }
    if options.min_p > 0.0 {
        let out = no_grad(|| {
            let shares = logits.softmax(-1);
            shares.lt(&(shares.amax(&[-1], true) * options.min_p))
        });
        logits = without(&logits, &out);
    }
    // Never the argument itself, which a change in place would reach.
    if logits.ptr_eq(given) { given.clone_contiguous() } else { logits }
}

fn without(logits: &Tensor, out: &Tensor) -> Tensor {
    logits.masked_fill(out, f64::NEG_INFINITY)
}

#[track_caller]
fn penalized(logits: &Tensor, penalty: f64, previous: &Tensor) -> Tensor {
    if previous.dim() != 2 || previous.size(0) != logits.size(0) {
        let message = format!(
            "previous is {:?}; must be [{}, any], a row for each of the logits'",
            previous.shape(),
            logits.size(0)
        );
        throw(Error::shape("filter_logits", message));
    }
    let previous = previous.to_dtype(Dtype::I64);
    let seen = no_grad(|| {
        let none = Tensor::zeros(logits.shape(), (Dtype::I64, logits.device()));
        none.scatter(1, &previous, &previous.ones_like()).ne(0i64)
    });
    let changed = logits.lt(0.0).where_(&(logits * penalty), &(logits / penalty));
    seen.where_(&changed, logits)
}

/// Tokens before which the likelier ones sum to more than `top_p` already.
fn outside_nucleus(logits: &Tensor, top_p: f64) -> Tensor {
    let (sorted, places) = logits.sort(-1, true);
    let sums = sorted.softmax(-1).cumsum(-1);
    let classes = sums.size(1);
    let first = sums.narrow(1, 0, 1).zeros_like();
    let before = Tensor::cat(&[first, sums.narrow(1, 0, classes - 1)], 1);
    let out = before.gt(top_p).to_dtype(Dtype::I64);
    out.zeros_like().scatter(1, &places, &out).ne(0i64)
}

/// Tokens of numbers `uniform`, `[rows]`, from 0 to 1, and the probabilities of the filtered logits: a row's token is the first whose
/// cumulative probability, by token, is above its number.
///
/// ```
/// use torchrs::{Tensor, nn::llm::{LogitsOptions, sample_by}};
/// let logits = Tensor::from([[0f64, 0.], [0., 0.]]);
/// let (tokens, _) = sample_by(&logits, &Tensor::from([0.2f64, 0.7]), &LogitsOptions::default(), None);
/// assert_eq!(tokens.to_vec::<i64>(), [0, 1]);
/// ```
///
/// # Panics
/// As [`filter_logits`]; throws [`Error::Shape`] unless there is a number for each row.
#[track_caller]
pub fn sample_by(
    logits: &Tensor,
    uniform: &Tensor,
    options: &LogitsOptions,
    previous: Option<&Tensor>,
) -> (Tensor, Tensor) {
    let filtered = filter_logits(logits, options, previous);
    if uniform.shape() != [logits.size(0)] {
        let message = format!("uniform is {:?}; must be [{}]", uniform.shape(), logits.size(0));
        throw(Error::shape("sample_by", message));
    }
    let probabilities = filtered.softmax(-1);
    let tokens = no_grad(|| {
        let passed = probabilities.cumsum(-1).le(&uniform.unsqueeze(-1)).to_dtype(Dtype::I64);
        let classes = logits.size(1) as i64;
        let ids = Tensor::arange(0i64, classes, 1i64, (Dtype::I64, logits.device()));
        // Rounded sums end below 1: the last token that may be drawn is the last.
        let last = (probabilities.gt(0.0).to_dtype(Dtype::I64) * ids).amax(&[-1], false);
        passed.sum_dim(&[-1], false).minimum(&last)
    });
    (tokens, probabilities)
}
