//! Ops of groups `norm` and `attention`.

use torchrs::nn::functional as F;
use torchrs::ops::AttentionOptions;

use super::Table;

pub fn fill(t: &mut Table) {
    t.op("nn.functional.batch_norm", |c| {
        let options = F::BatchNormOptions {
            running_mean: c.maybe_tensor(1, "running_mean")?,
            running_var: c.maybe_tensor(2, "running_var")?,
            weight: c.maybe_tensor(3, "weight")?,
            bias: c.maybe_tensor(4, "bias")?,
            training: c.flag(5, "training", false)?,
            momentum: c.float(6, "momentum", 0.1)?,
            eps: c.float(7, "eps", 1e-5)?,
        };
        Ok(F::batch_norm(c.tensor(0, "input")?, options))
    });
    t.op("nn.functional.instance_norm", |c| {
        let options = F::InstanceNormOptions {
            running_mean: c.maybe_tensor(1, "running_mean")?,
            running_var: c.maybe_tensor(2, "running_var")?,
            weight: c.maybe_tensor(3, "weight")?,
            bias: c.maybe_tensor(4, "bias")?,
            use_input_stats: c.flag(5, "use_input_stats", true)?,
            momentum: c.float(6, "momentum", 0.1)?,
            eps: c.float(7, "eps", 1e-5)?,
        };
        Ok(F::instance_norm(c.tensor(0, "input")?, options))
    });
    t.op("nn.functional.layer_norm", |c| {
        let (weight, bias) = (c.maybe_tensor(2, "weight")?, c.maybe_tensor(3, "bias")?);
        let shape = c.size_list(1, "normalized_shape")?;
        Ok(c.tensor(0, "input")?.layer_norm(&shape, weight, bias, c.float(4, "eps", 1e-5)?))
    });
    t.many("native_layer_norm", |c| {
        let (weight, bias) = (c.maybe_tensor(2, "weight")?, c.maybe_tensor(3, "bias")?);
        let shape = c.size_list(1, "normalized_shape")?;
        let x = c.tensor(0, "input")?;
        let (y, mean, rstd) = x.native_layer_norm(&shape, weight, bias, c.float(4, "eps", 1e-5)?);
        Ok(vec![y, mean, rstd])
    });
    t.op("nn.functional.rms_norm", |c| {
        let (weight, eps) = (c.maybe_tensor(2, "weight")?, c.maybe_float(3, "eps")?);
        let shape = c.size_list(1, "normalized_shape")?;
        Ok(c.tensor(0, "input")?.rms_norm(&shape, weight, eps))
    });
    t.op("nn.functional.group_norm", |c| {
        let (weight, bias) = (c.maybe_tensor(2, "weight")?, c.maybe_tensor(3, "bias")?);
        let groups = c.count(1, "num_groups", 1)?;
        Ok(c.tensor(0, "input")?.group_norm(groups, weight, bias, c.float(4, "eps", 1e-5)?))
    });
    t.op("nn.functional.local_response_norm", |c| {
        let options = F::LocalResponseNormOptions {
            alpha: c.float(2, "alpha", 1e-4)?,
            beta: c.float(3, "beta", 0.75)?,
            k: c.float(4, "k", 1.0)?,
        };
        Ok(F::local_response_norm(c.tensor(0, "input")?, c.count(1, "size", 1)?, options))
    });
    t.op("nn.functional.scaled_dot_product_attention", |c| {
        let options = AttentionOptions {
            attn_mask: c.maybe_tensor(3, "attn_mask")?.cloned(),
            dropout_p: c.float(4, "dropout_p", 0.0)?,
            is_causal: c.flag(5, "is_causal", false)?,
            scale: c.maybe_float(6, "scale")?,
            enable_gqa: c.flag(7, "enable_gqa", false)?,
            ..Default::default()
        };
        let (query, key) = (c.tensor(0, "query")?, c.tensor(1, "key")?);
        Ok(F::scaled_dot_product_attention(query, key, c.tensor(2, "value")?, options))
    });
}
