//! Mixtures of experts (Shazeer et al., 2017; Fedus et al., "Switch Transformers", 2022): a router chooses for each token the experts
//! that it goes to, each of which has room for a number of tokens.

use crate::autograd::no_grad;
use crate::error::{Error, throw};
use crate::tensor::Tensor;

/// Options of [`route`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterOptions {
    /// Experts for each token.
    pub k: usize,
    /// Tokens that an expert takes at most; `None`: all that come.
    pub capacity: Option<usize>,
}

impl Default for RouterOptions {
    /// Two experts for a token, as many tokens for an expert as come.
    fn default() -> Self {
        RouterOptions { k: 2, capacity: None }
    }
}

/// Options of [`mixture_of_experts`]: those of its router.
pub type MixtureOptions = RouterOptions;

/// What a router decides.
#[derive(Clone, Debug)]
pub struct Routed {
    /// Shares of the chosen experts, `[tokens, k]`; those of a token sum to 1.
    pub gates: Tensor,
    /// The experts, `[tokens, k]`, the likeliest first.
    pub experts: Tensor,
    /// The token's place at the expert, `[tokens, k]`; -1 where that has no room. All first choices come before all second ones.
    pub slots: Tensor,
    /// What is to be small for experts to have as much to do: the experts' number times the sum over them of the share of first
    /// choices times the mean probability.
    pub balance_loss: Tensor,
}

/// Experts for tokens `x`, `[tokens, width]`, by the weight `[experts, width]` of a router.
///
/// ```
/// use torchrs::{Tensor, nn::llm::{RouterOptions, route}};
/// let x = Tensor::from([[1f64, 0.], [2., 0.], [0., 1.]]);
/// let weight = Tensor::from([[1f64, 0.], [0., 1.]]);
/// let routed = route(&x, &weight, &RouterOptions { k: 1, capacity: Some(1) });
/// assert_eq!(routed.experts.flatten(0, 1).to_vec::<i64>(), [0, 0, 1]);
/// assert_eq!(routed.slots.flatten(0, 1).to_vec::<i64>(), [0, -1, 0]);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] for other shapes, [`Error::Argument`] unless `k` is from 1 to the number of experts.
#[track_caller]
pub fn route(x: &Tensor, weight: &Tensor, options: &RouterOptions) -> Routed {
    const OP: &str = "route";
    if x.dim() != 2 || weight.dim() != 2 || x.size(1) != weight.size(1) {
        let (x, weight) = (x.shape(), weight.shape());
        let message = format!(
            "x is {x:?} and weight {weight:?}; must be [tokens, width] and [experts, width]"
        );
        throw(Error::shape(OP, message));
    }
    let (tokens, experts, k) = (x.size(0), weight.size(0), options.k);
    if k == 0 || k > experts {
        throw(Error::argument(OP, "k", format!("{k}; must be from 1 to the {experts} experts")));
    }
    let probabilities = x.linear(weight, None).softmax(-1);
    // A stable order: of equal experts the first.
    let order = no_grad(|| probabilities.argsort(-1, true));
    let chosen = order.narrow(1, 0, k).contiguous();
    let picked = probabilities.gather(1, &chosen);
    let gates = &picked / picked.sum_dim(&[-1], true);
    let (slots, firsts) = no_grad(|| {
        // By choice, then by token.
        let taken = chosen.t().contiguous().flatten(0, 1).one_hot(experts);
        let places = (taken.cumsum(0) * &taken).sum_dim(&[1], false) - 1i64;
        let slots = places.view([k as i64, tokens as i64]).t().contiguous();
        let slots = match options.capacity {
            Some(capacity) => slots.masked_fill(&slots.ge(capacity as i64), -1i64),
            None => slots,
        };
        let firsts = taken.narrow(0, 0, tokens).to_dtype(x.dtype()).mean_dim(&[0], false);
        (slots, firsts)
    });
    let balance_loss = (firsts * probabilities.mean_dim(&[0], false)).sum() * experts as f64;
    Routed { gates, experts: chosen, slots, balance_loss }
}

/// The mean square of the logarithm of a router's sum of exponentials, which keeps its logits small (Zoph et al., "ST-MoE", 2022).
///
/// ```
/// use torchrs::{Tensor, nn::llm::router_z_loss};
/// let loss = router_z_loss(&Tensor::from([[0f64, 0.]]));
/// assert!((loss.item() - 2f64.ln().powi(2)).abs() < 1e-12);
/// ```
#[track_caller]
pub fn router_z_loss(logits: &Tensor) -> Tensor {
    logits.logsumexp(&[-1], false).square().mean()
}

/// A mixture of gated layers for tokens `x`, `[tokens, width]`, and the router's balance loss: the sum over a token's experts that have
/// room of its gate times `down (silu(gate x) up x)`. The router's weight is `[experts, width]`, those of the experts
/// `[experts, inner, width]`, `[experts, inner, width]` and `[experts, width, inner]`.
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::llm::{MixtureOptions, mixture_of_experts}};
/// let x = Tensor::randn([5, 4], Dtype::F32);
/// let [router, gate, up, down] =
///     [vec![3, 4], vec![3, 6, 4], vec![3, 6, 4], vec![3, 4, 6]].map(|s| Tensor::randn(s, Dtype::F32));
/// let (y, _) = mixture_of_experts(&x, &router, [&gate, &up, &down], &MixtureOptions::default());
/// assert_eq!(y.shape(), &[5, 4]);
/// ```
///
/// # Panics
/// As [`route`], and throws [`Error::Shape`] where the experts' weights do not fit.
#[track_caller]
pub fn mixture_of_experts(
    x: &Tensor,
    router: &Tensor,
    [gate, up, down]: [&Tensor; 3],
    options: &MixtureOptions,
) -> (Tensor, Tensor) {
    let routed = route(x, router, options);
    let (experts, width) = (router.size(0), x.size(1));
    let inner = if gate.dim() == 3 { gate.size(1) } else { 0 };
    if gate.shape() != [experts, inner, width]
        || up.shape() != gate.shape()
        || down.shape() != [experts, width, inner]
    {
        let message = format!(
            "gate is {:?}, up {:?}, down {:?}; for {experts} experts of width {width} must be [{experts}, inner, {width}], \
             the same, and [{experts}, {width}, inner]",
            gate.shape(),
            up.shape(),
            down.shape()
        );
        throw(Error::shape("mixture_of_experts", message));
    }
    let mut sum = x.zeros_like();
    let kept = no_grad(|| routed.slots.ge(0i64));
    for expert in 0..experts {
        let own = no_grad(|| routed.experts.eq(expert as i64).logical_and(&kept).nonzero());
        if own.size(0) == 0 {
            continue;
        }
        let tokens = own.select(1, 0).contiguous();
        let at = |t: &Tensor| t.select(0, expert as i64);
        let rows = x.index_select(0, &tokens);
        let hidden = rows.linear(&at(gate), None).swiglu(&rows.linear(&at(up), None));
        // An expert is once among a token's choices.
        let places = no_grad(|| own.select(1, 0) * options.k as i64 + own.select(1, 1));
        let shares = routed.gates.flatten(0, 1).index_select(0, &places).unsqueeze(-1);
        sum = sum.index_add(0, &tokens, &(hidden.linear(&at(down), None) * shares));
    }
    // Experts without tokens have gradients of 0, in groups of processes too.
    let idle = (gate.narrow(1, 0, 0).sum() + up.narrow(1, 0, 0).sum() + down.narrow(1, 0, 0).sum())
        .to_dtype(x.dtype());
    (sum + idle, routed.balance_loss)
}
