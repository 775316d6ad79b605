//! Ops of group `loss`.

use torchrs::Tensor;
use torchrs::nn::functional::{
    self as F, BCEWithLogitsOptions, CTCLossOptions, GaussianNLLOptions, KLDivOptions,
    MultiMarginOptions, PoissonNLLOptions, TripletMarginOptions,
};
use torchrs::ops::{
    Chunks, CrossEntropyOptions, LinearCrossEntropyOptions, NLLLossOptions, Reduction,
};

use super::Table;
use crate::arg::{Arg, Call, Outcome, lacks};

/// The reduction; PyTorch's older flags for it are not here.
pub fn reduction(c: &Call) -> Outcome<Reduction> {
    for old in ["size_average", "reduce"] {
        if !matches!(c.keyword(old), Arg::None) {
            return lacks(old);
        }
    }
    let names = [("mean", Reduction::Mean), ("sum", Reduction::Sum), ("none", Reduction::None)];
    c.choice(usize::MAX, "reduction", &names)
}

/// The options of the Kullback-Leibler divergence, whose reduction has a fourth name.
pub fn kl_div(c: &Call) -> Outcome<KLDivOptions> {
    let batch_mean = matches!(c.keyword("reduction"), Arg::Str(name) if name == "batchmean");
    let reduction = if batch_mean { Reduction::default() } else { reduction(c)? };
    let log_target = c.flag(usize::MAX, "log_target", false)?;
    Ok(KLDivOptions { reduction, batch_mean, log_target })
}

/// Input and target.
fn pair(c: &Call) -> Outcome<(&Tensor, &Tensor)> {
    Ok((c.tensor(0, "input")?, c.tensor(1, "target")?))
}

/// Three tensors.
fn triple<'a>(c: &'a Call, names: [&str; 3]) -> Outcome<[&'a Tensor; 3]> {
    Ok([c.tensor(0, names[0])?, c.tensor(1, names[1])?, c.tensor(2, names[2])?])
}

pub fn fill(t: &mut Table) {
    classes(t);
    sequences(t);
    elements(t);
    margins(t);
}

fn classes(t: &mut Table) {
    t.op("nn.functional.cross_entropy", |c| {
        let (x, target) = pair(c)?;
        let options = CrossEntropyOptions {
            weight: c.maybe_tensor(2, "weight")?.cloned(),
            ignore_index: c.int(usize::MAX, "ignore_index", -100)?,
            reduction: reduction(c)?,
            label_smoothing: c.float(usize::MAX, "label_smoothing", 0.0)?,
        };
        Ok(F::cross_entropy_with(x, target, options.clone()))
    });
    t.op("nn.functional.linear_cross_entropy", |c| {
        let (x, w, target) =
            (c.tensor(0, "input")?, c.tensor(1, "linear_weight")?, c.tensor(2, "target")?);
        let ignore_index = match c.given(usize::MAX, "ignore_index") {
            true => Some(c.int(usize::MAX, "ignore_index", -100)?),
            false => None,
        };
        // The same numbers come of chunks, where there may be some.
        let options = LinearCrossEntropyOptions {
            linear_bias: c.maybe_tensor(usize::MAX, "linear_bias")?.cloned(),
            weight: c.maybe_tensor(usize::MAX, "weight")?.cloned(),
            reduction: reduction(c)?,
            ignore_index,
            label_smoothing: c.float(usize::MAX, "label_smoothing", 0.0)?,
            chunks: Chunks::Rows(3),
        };
        Ok(F::linear_cross_entropy(x, w, target, options))
    });
    t.op("nn.functional.nll_loss", |c| {
        let (x, target) = pair(c)?;
        let options = NLLLossOptions {
            weight: c.maybe_tensor(2, "weight")?.cloned(),
            ignore_index: c.int(usize::MAX, "ignore_index", -100)?,
            reduction: reduction(c)?,
        };
        Ok(F::nll_loss_with(x, target, options.clone()))
    });
}

fn sequences(t: &mut Table) {
    t.op("nn.functional.ctc_loss", |c| {
        let [x, targets, inputs] = triple(c, ["log_probs", "targets", "input_lengths"])?;
        let lengths = c.tensor(3, "target_lengths")?;
        let options = CTCLossOptions {
            blank: c.count(usize::MAX, "blank", 0)?,
            reduction: reduction(c)?,
            zero_infinity: c.flag(usize::MAX, "zero_infinity", false)?,
        };
        Ok(F::ctc_loss(x, targets, inputs, lengths, options))
    });
}

fn elements(t: &mut Table) {
    t.op("nn.functional.binary_cross_entropy", |c| {
        let (x, target) = pair(c)?;
        Ok(F::binary_cross_entropy(x, target, c.maybe_tensor(2, "weight")?, reduction(c)?))
    });
    t.op("nn.functional.binary_cross_entropy_with_logits", |c| {
        let (x, target) = pair(c)?;
        let options = BCEWithLogitsOptions {
            weight: c.maybe_tensor(2, "weight")?.cloned(),
            pos_weight: c.maybe_tensor(usize::MAX, "pos_weight")?.cloned(),
            reduction: reduction(c)?,
        };
        Ok(F::binary_cross_entropy_with_logits_with(x, target, options.clone()))
    });
    t.op("nn.functional.mse_loss", |c| {
        let (x, target) = pair(c)?;
        Ok(F::mse_loss_with(x, target, reduction(c)?))
    });
    t.op("nn.functional.l1_loss", |c| {
        let (x, target) = pair(c)?;
        Ok(F::l1_loss_with(x, target, reduction(c)?))
    });
    t.op("nn.functional.smooth_l1_loss", |c| {
        let (x, target) = pair(c)?;
        Ok(F::smooth_l1_loss(x, target, c.float(usize::MAX, "beta", 1.0)?, reduction(c)?))
    });
    t.op("nn.functional.huber_loss", |c| {
        let (x, target) = pair(c)?;
        Ok(F::huber_loss(x, target, c.float(usize::MAX, "delta", 1.0)?, reduction(c)?))
    });
    t.op("nn.functional.soft_margin_loss", |c| {
        let (x, target) = pair(c)?;
        Ok(F::soft_margin_loss(x, target, reduction(c)?))
    });
    t.op("nn.functional.kl_div", |c| {
        let (x, target) = pair(c)?;
        Ok(F::kl_div(x, target, kl_div(c)?))
    });
    t.op("nn.functional.poisson_nll_loss", |c| {
        let (x, target) = pair(c)?;
        let options = PoissonNLLOptions {
            log_input: c.flag(usize::MAX, "log_input", true)?,
            full: c.flag(usize::MAX, "full", false)?,
            eps: c.float(usize::MAX, "eps", 1e-8)?,
            reduction: reduction(c)?,
        };
        Ok(F::poisson_nll_loss(x, target, options))
    });
    t.op("nn.functional.gaussian_nll_loss", |c| {
        let [x, target, var] = triple(c, ["input", "target", "var"])?;
        let options = GaussianNLLOptions {
            full: c.flag(usize::MAX, "full", false)?,
            eps: c.float(usize::MAX, "eps", 1e-6)?,
            reduction: reduction(c)?,
        };
        Ok(F::gaussian_nll_loss(x, target, var, options))
    });
}

fn margins(t: &mut Table) {
    t.op("nn.functional.margin_ranking_loss", |c| {
        let [a, b, target] = triple(c, ["input1", "input2", "target"])?;
        let margin = c.float(usize::MAX, "margin", 0.0)?;
        Ok(F::margin_ranking_loss(a, b, target, margin, reduction(c)?))
    });
    t.op("nn.functional.hinge_embedding_loss", |c| {
        let (x, target) = pair(c)?;
        let margin = c.float(usize::MAX, "margin", 1.0)?;
        Ok(F::hinge_embedding_loss(x, target, margin, reduction(c)?))
    });
    t.op("nn.functional.cosine_embedding_loss", |c| {
        let [a, b, target] = triple(c, ["input1", "input2", "target"])?;
        let margin = c.float(usize::MAX, "margin", 0.0)?;
        Ok(F::cosine_embedding_loss(a, b, target, margin, reduction(c)?))
    });
    let options = |c: &Call| -> Outcome<TripletMarginOptions> {
        Ok(TripletMarginOptions {
            margin: c.float(usize::MAX, "margin", 1.0)?,
            p: c.float(usize::MAX, "p", 2.0)?,
            eps: c.float(usize::MAX, "eps", 1e-6)?,
            swap: c.flag(usize::MAX, "swap", false)?,
            reduction: reduction(c)?,
        })
    };
    const TRIPLET: [&str; 3] = ["anchor", "positive", "negative"];
    t.op("nn.functional.triplet_margin_loss", move |c| {
        let [a, p, n] = triple(c, TRIPLET)?;
        Ok(F::triplet_margin_loss(a, p, n, options(c)?))
    });
    t.op("nn.functional.triplet_margin_with_distance_loss", move |c| {
        let [a, p, n] = triple(c, TRIPLET)?;
        let distance = |a: &Tensor, b: &Tensor| F::pairwise_distance(a, b, Default::default());
        Ok(F::triplet_margin_with_distance_loss(a, p, n, distance, options(c)?))
    });
    t.op("nn.functional.multi_margin_loss", |c| {
        let (x, target) = pair(c)?;
        let options = MultiMarginOptions {
            p: c.count(usize::MAX, "p", 1)? as u32,
            margin: c.float(usize::MAX, "margin", 1.0)?,
            weight: c.maybe_tensor(usize::MAX, "weight")?.cloned(),
            reduction: reduction(c)?,
        };
        Ok(F::multi_margin_loss(x, target, options.clone()))
    });
    t.op("nn.functional.multilabel_margin_loss", |c| {
        let (x, target) = pair(c)?;
        Ok(F::multilabel_margin_loss(x, target, reduction(c)?))
    });
    t.op("nn.functional.multilabel_soft_margin_loss", |c| {
        let (x, target) = pair(c)?;
        let weight = c.maybe_tensor(usize::MAX, "weight")?;
        Ok(F::multilabel_soft_margin_loss(x, target, weight, reduction(c)?))
    });
}
