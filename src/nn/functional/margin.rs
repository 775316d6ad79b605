//! Losses of a margin between scores or distances.

use super::distance::{PairwiseDistanceOptions, pairwise_distance};
use super::loss::{reduce, weighted};
use crate::amp::cast_op;
use crate::error::{Error, throw};
use crate::ops::{Reduction, limits::assert_indices};
use crate::tensor::{Dtype, Tensor};

/// `max(0, margin - t (x1 - x2))` for targets of 1 and -1 (`torch.nn.functional.margin_ranking_loss`).
///
/// ```
/// use torchrs::{Tensor, nn::functional as F, ops::Reduction};
/// let (x1, x2, target) = (Tensor::from([3f32, 3.]), Tensor::from([1f32, 1.]), Tensor::from([1f32, -1.]));
/// let loss = F::margin_ranking_loss(&x1, &x2, &target, 0.5, Reduction::None);
/// assert_eq!(loss.to_vec::<f32>(), [0.0, 2.5]);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] when the numbers of dimensions differ.
#[track_caller]
pub fn margin_ranking_loss(
    input1: &Tensor,
    input2: &Tensor,
    target: &Tensor,
    margin: f64,
    reduction: Reduction,
) -> Tensor {
    cast_op!("margin_ranking_loss", [a = input1, b = input2, t = target] => {
        margin_ranking_loss(&a, &b, &t, margin, reduction)
    });
    same_dim("margin_ranking_loss", &[input1, input2, target]);
    reduce((-target * (input1 - input2) + margin).clamp_min(0i64), reduction)
}

/// The distance x where the target is 1, `max(0, margin - x)` where it is -1
/// (`torch.nn.functional.hinge_embedding_loss`).
///
/// ```
/// use torchrs::{Tensor, nn::functional as F, ops::Reduction};
/// let (x, target) = (Tensor::from([0.25f32, 0.25]), Tensor::from([1f32, -1.]));
/// let loss = F::hinge_embedding_loss(&x, &target, 1.0, Reduction::None);
/// assert_eq!(loss.to_vec::<f32>(), [0.25, 0.75]);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] when the shapes do not broadcast.
#[track_caller]
pub fn hinge_embedding_loss(
    input: &Tensor,
    target: &Tensor,
    margin: f64,
    reduction: Reduction,
) -> Tensor {
    cast_op!("hinge_embedding_loss", [x = input, t = target] => {
        hinge_embedding_loss(&x, &t, margin, reduction)
    });
    let beyond = (margin - input).clamp_min(0i64).masked_fill(&target.eq(1i64), 0i64);
    reduce(beyond + input.masked_fill(&target.eq(-1i64), 0i64), reduction)
}

/// `1 - cos(x1, x2)` where the target is 1, `max(0, cos(x1, x2) - margin)` where it is -1
/// (`torch.nn.functional.cosine_embedding_loss`). Inputs are `[N, D]` with targets `[N]`, or `[D]` with
/// a 0-dim target.
///
/// ```
/// use torchrs::{Tensor, nn::functional as F, ops::Reduction};
/// let (x1, x2) = (Tensor::from([[1f32, 0.], [1., 0.]]), Tensor::from([[0f32, 2.], [0., 5.]]));
/// let loss = F::cosine_embedding_loss(&x1, &x2, &Tensor::from([1f32, -1.]), 0.0, Reduction::None);
/// assert_eq!(loss.to_vec::<f32>(), [1.0, 0.0]);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] for other numbers of dimensions.
#[track_caller]
pub fn cosine_embedding_loss(
    input1: &Tensor,
    input2: &Tensor,
    target: &Tensor,
    margin: f64,
    reduction: Reduction,
) -> Tensor {
    cast_op!("cosine_embedding_loss", [a = input1, b = input2, t = target] => {
        cosine_embedding_loss(&a, &b, &t, margin, reduction)
    });
    let (a, b, t) = (input1.dim(), input2.dim(), target.dim());
    if t > 1 || a != t + 1 || b != t + 1 {
        throw(Error::shape(
            "cosine_embedding_loss",
            format!("inputs of {a} and {b} dimensions with a target of {t}; inputs need one more"),
        ));
    }
    const EPS: f64 = 1e-12;
    let dot = |a: &Tensor, b: &Tensor| (a * b).sum_dim(&[-1], false);
    let squares = (dot(input1, input1) + EPS) * (dot(input2, input2) + EPS);
    let cosine = dot(input1, input2) / squares.sqrt();
    let zero = cosine.zeros_like();
    let same = target.eq(1i64).where_(&(1.0 - &cosine), &zero);
    let other = target.eq(-1i64).where_(&(cosine - margin).clamp_min(0i64), &zero);
    reduce(same + other, reduction)
}

/// Options of [`triplet_margin_loss`]; the defaults are PyTorch's.
///
/// ```
/// use torchrs::{Tensor, nn::functional::{TripletMarginOptions, triplet_margin_loss}};
/// let [anchor, positive, negative] = [0f64, 3., 4.].map(|x| Tensor::from([[x]]));
/// // The negative is nearer to the positive than to the anchor: 3 - 1 + 2
/// let options = TripletMarginOptions { margin: 2.0, swap: true, ..Default::default() };
/// assert!((triplet_margin_loss(&anchor, &positive, &negative, options).item() - 4.0).abs() < 1e-5);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TripletMarginOptions {
    /// By how much the negative should be farther than the positive; above 0.
    pub margin: f64,
    /// Which norm measures distances.
    pub p: f64,
    /// Added to the differences.
    pub eps: f64,
    /// Takes the negative's distance from the positive where that is smaller.
    pub swap: bool,
    /// What is returned.
    pub reduction: Reduction,
}

impl Default for TripletMarginOptions {
    fn default() -> Self {
        let reduction = Reduction::Mean;
        TripletMarginOptions { margin: 1.0, p: 2.0, eps: 1e-6, swap: false, reduction }
    }
}

/// `max(0, d(anchor, positive) - d(anchor, negative) + margin)` over the last dimension
/// (`torch.nn.functional.triplet_margin_loss`).
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// let anchor = Tensor::from([[0f64, 0.]]);
/// let (positive, negative) = (Tensor::from([[3f64, 4.]]), Tensor::from([[0f64, 5.5]]));
/// let loss = F::triplet_margin_loss(&anchor, &positive, &negative, Default::default());
/// assert!((loss.item() - 0.5).abs() < 1e-5);
/// ```
///
/// # Panics
/// Throws [`Error::Argument`] unless the margin is above 0, [`Error::Shape`] when the numbers of
/// dimensions differ.
#[track_caller]
pub fn triplet_margin_loss(
    anchor: &Tensor,
    positive: &Tensor,
    negative: &Tensor,
    options: TripletMarginOptions,
) -> Tensor {
    cast_op!("triplet_margin_loss", [a = anchor, p = positive, n = negative] => {
        triplet_margin_loss(&a, &p, &n, options)
    });
    let TripletMarginOptions { p, eps, .. } = options;
    let distance = |a: &Tensor, b: &Tensor| {
        pairwise_distance(a, b, PairwiseDistanceOptions { p, eps, keepdim: false })
    };
    triplet("triplet_margin_loss", [anchor, positive, negative], &distance, options)
}

/// [`triplet_margin_loss`] with a distance of your own
/// (`torch.nn.functional.triplet_margin_with_distance_loss`); `p` and `eps` of the options are not used.
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// let anchor = Tensor::from([[0f32, 0.]]);
/// let (positive, negative) = (Tensor::from([[3f32, 4.]]), Tensor::from([[1f32, 1.]]));
/// let l1 = |a: &Tensor, b: &Tensor| (a - b).abs().sum_dim(&[-1], false);
/// let loss = F::triplet_margin_with_distance_loss(&anchor, &positive, &negative, l1, Default::default());
/// assert_eq!(loss.item(), 6.0);
/// ```
///
/// # Panics
/// As there.
#[track_caller]
pub fn triplet_margin_with_distance_loss(
    anchor: &Tensor,
    positive: &Tensor,
    negative: &Tensor,
    distance: impl Fn(&Tensor, &Tensor) -> Tensor,
    options: TripletMarginOptions,
) -> Tensor {
    let inputs = [anchor, positive, negative];
    triplet("triplet_margin_with_distance_loss", inputs, &distance, options)
}

#[track_caller]
fn triplet(
    op: &str,
    inputs: [&Tensor; 3],
    distance: &dyn Fn(&Tensor, &Tensor) -> Tensor,
    options: TripletMarginOptions,
) -> Tensor {
    let margin = options.margin;
    if margin.is_nan() || margin <= 0.0 {
        throw(Error::argument(op, "margin", format!("{margin}; must be above 0")));
    }
    same_dim(op, &inputs);
    let [anchor, positive, negative] = inputs;
    let near = distance(anchor, positive);
    let far = distance(anchor, negative);
    let far = match options.swap {
        true => far.minimum(&distance(positive, negative)),
        false => far,
    };
    reduce((near - far + margin).clamp_min(0i64), options.reduction)
}

#[track_caller]
fn same_dim(op: &str, inputs: &[&Tensor]) {
    if inputs.iter().any(|t| t.dim() != inputs[0].dim()) {
        let shapes: Vec<&[usize]> = inputs.iter().map(|t| t.shape()).collect();
        throw(Error::shape(op, format!("shapes {shapes:?}; all need as many dimensions")));
    }
}

/// Options of [`multi_margin_loss`]; the defaults are PyTorch's.
///
/// ```
/// use torchrs::{Tensor, nn::functional::{MultiMarginOptions, multi_margin_loss}};
/// let options = MultiMarginOptions { p: 2, margin: 2.0, ..Default::default() };
/// let (scores, class) = (Tensor::from([[0f32, 0.]]), Tensor::from([0i64]));
/// assert_eq!(multi_margin_loss(&scores, &class, options).item(), 2.0);
/// ```
#[derive(Clone, Debug)]
pub struct MultiMarginOptions {
    /// The exponent: 1 or 2.
    pub p: u32,
    /// By how much the right class should be ahead.
    pub margin: f64,
    /// A weight per class.
    pub weight: Option<Tensor>,
    /// What is returned.
    pub reduction: Reduction,
}

impl Default for MultiMarginOptions {
    fn default() -> Self {
        MultiMarginOptions { p: 1, margin: 1.0, weight: None, reduction: Reduction::Mean }
    }
}

/// `w_t sum_(c != t) max(0, margin - x_t + x_c)^p / C` for scores `[N, C]` or `[C]` and classes `[N]` or
/// `[]` (`torch.nn.functional.multi_margin_loss`).
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// // (1 - 3 + 2.5) / 2
/// let (scores, class) = (Tensor::from([[3f32, 2.5]]), Tensor::from([0i64]));
/// assert_eq!(F::multi_margin_loss(&scores, &class, Default::default()).item(), 0.25);
/// ```
///
/// # Panics
/// Throws when shapes or types do not fit, and for an exponent that is not 1 or 2.
#[track_caller]
pub fn multi_margin_loss(input: &Tensor, target: &Tensor, options: MultiMarginOptions) -> Tensor {
    cast_op!("multi_margin_loss", [x = input] => multi_margin_loss(&x, target, options));
    let options = &options;
    let op = "multi_margin_loss";
    if !matches!(options.p, 1 | 2) {
        throw(Error::argument(op, "p", format!("{}; must be 1 or 2", options.p)));
    }
    let (rows, classes) = matrix(op, input);
    if target.dtype() != Dtype::I64 {
        throw(Error::dtype(op, format!("classes are i64, got {}", target.dtype())));
    }
    if target.dim() > 1 || target.numel() != rows.shape()[0] {
        let (x, t) = (input.shape(), target.shape());
        throw(Error::shape(op, format!("classes of shape {t:?} for scores {x:?}")));
    }
    assert_indices(op, "target", target, classes, false);
    let index = target.reshape([-1, 1]);
    let ahead = (&rows - rows.gather(1, &index) + options.margin).relu();
    let losses = if options.p == 2 { ahead.square() } else { ahead };
    let losses = match &options.weight {
        Some(weight) if weight.shape() != [classes] => {
            let shape = weight.shape();
            throw(Error::argument(op, "weight", format!("{shape:?} for {classes} classes")))
        }
        Some(weight) => losses * weight.index_select(0, &index.reshape([-1])).unsqueeze(1),
        None => losses,
    };
    // Without the class itself.
    let own = target.reshape([-1]).one_hot(classes).to_dtype(Dtype::Bool);
    let losses = losses.masked_fill(&own, 0i64).sum_dim(&[1], false) / classes as f64;
    reduce(losses.reshape_as(target), options.reduction)
}

/// `sum_(j, i) max(0, 1 - x_(t_j) + x_i) / C` over the target classes j, a list that -1 ends, and the
/// other classes i, for scores and targets `[N, C]` or `[C]`
/// (`torch.nn.functional.multilabel_margin_loss`).
///
/// ```
/// use torchrs::{Tensor, nn::functional as F, ops::Reduction};
/// // Class 0 only: (1 - 1 + 0.5) / 2
/// let (scores, classes) = (Tensor::from([[1f32, 0.5]]), Tensor::from([[0i64, -1]]));
/// assert_eq!(F::multilabel_margin_loss(&scores, &classes, Reduction::Mean).item(), 0.25);
/// ```
///
/// # Panics
/// Throws when shapes or types do not fit.
#[track_caller]
pub fn multilabel_margin_loss(input: &Tensor, target: &Tensor, reduction: Reduction) -> Tensor {
    cast_op!("multilabel_margin_loss", [x = input] => multilabel_margin_loss(&x, target, reduction));
    let op = "multilabel_margin_loss";
    let (rows, classes) = matrix(op, input);
    if target.shape() != input.shape() {
        let (x, t) = (input.shape(), target.shape());
        throw(Error::shape(op, format!("targets of shape {t:?} for scores {x:?}")));
    }
    if target.dtype() != Dtype::I64 {
        throw(Error::dtype(op, format!("targets are i64, got {}", target.dtype())));
    }
    let (index, named) = (target.reshape_to(rows.shape()), target.reshape_to(rows.shape()));
    // Those before the first negative number.
    let named = named.lt(0i64).to_dtype(Dtype::I64).cumsum(1).eq(0i64);
    let index = named.where_(&index, 0i64);
    assert_indices(op, "target", &index, classes, false);
    let counts = index.zeros_like().scatter_add(1, &index, &named.to_dtype(Dtype::I64));
    let (named, others) = (named.unsqueeze(2), counts.eq(0i64).unsqueeze(1));
    let ahead = (1.0 - rows.gather(1, &index).unsqueeze(2) + rows.unsqueeze(1)).relu();
    let losses = ahead.masked_fill(&!(named & others), 0i64).sum_dim(&[1, 2], false);
    let losses = losses / classes as f64;
    reduce(if input.dim() < 2 { losses.squeeze() } else { losses }, reduction)
}

/// Mean over the classes of `-w (t log sigmoid(x) + (1 - t) log sigmoid(-x))`, for scores and targets
/// `[N, C]` or `[C]` (`torch.nn.functional.multilabel_soft_margin_loss`).
///
/// ```
/// use torchrs::{Tensor, nn::functional as F, ops::Reduction};
/// let (scores, target) = (Tensor::from([[0f64, 0.]]), Tensor::from([[1f64, 0.]]));
/// let loss = F::multilabel_soft_margin_loss(&scores, &target, None, Reduction::Mean);
/// assert!((loss.item() - 2f64.ln()).abs() < 1e-9);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] when the shapes do not broadcast, and for a single number.
#[track_caller]
pub fn multilabel_soft_margin_loss(
    input: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: Reduction,
) -> Tensor {
    if input.dim() == 0 {
        throw(Error::shape(
            "multilabel_soft_margin_loss",
            "takes scores [N, C] or [C], got a 0-dim tensor",
        ));
    }
    let losses = -(target * input.logsigmoid() + (1.0 - target) * (-input).logsigmoid());
    let losses = weighted(losses, weight);
    reduce(losses.mean_dim(&[-1], false), reduction)
}

/// Scores as `[N, C]`, and C.
#[track_caller]
fn matrix(op: &str, input: &Tensor) -> (Tensor, usize) {
    let classes = input.shape().last().copied().unwrap_or(1);
    if input.dim() > 2 || classes == 0 {
        let shape = input.shape();
        throw(Error::shape(op, format!("{shape:?}; scores are [N, C] or [C], with C above 0")));
    }
    (input.reshape([-1, classes as i64]), classes)
}
