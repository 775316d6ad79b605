//! Attention, in TFLOP/s of its two products; backward counts two and a half times as much.

use torchrs::{Dtype, Result, Tensor, no_grad};

use crate::bench::{Bench, normal, short};

/// Forward, and with backward.
pub fn rows(bench: &Bench) -> Result<()> {
    for (dtype, width, length) in
        [(Dtype::BF16, 64, 2048), (Dtype::BF16, 128, 2048), (Dtype::F32, 64, 1024)]
    {
        for causal in [true, false] {
            case(bench, dtype, width, length, causal);
        }
    }
    Ok(())
}

fn case(bench: &Bench, dtype: Dtype, width: usize, length: usize, causal: bool) {
    let kind = if causal { "causal" } else { "full" };
    let name = format!("sdpa_{}_{kind}_8x16x{length}x{width}", short(dtype));
    let shape = [bench.size(8, 1), bench.size(16, 2), bench.size(length, 32), width];
    let work = 4e-12 * (shape[0] * shape[1] * length.min(shape[2]).pow(2) * width) as f64;
    let work = if causal { work / 2.0 } else { work };
    let leaf = || normal(&shape, dtype).requires_grad_(true);
    let (q, k, v, go) = (leaf(), leaf(), leaf(), normal(&shape, dtype));
    let attend = || q.scaled_dot_product_attention(&k, &v, None, causal, None);
    no_grad(|| bench.device(&format!("{name}_fwd"), "TFLOP/s", work, || drop(attend())));
    bench.device(&format!("{name}_fwdbwd"), "TFLOP/s", work * 3.5, || {
        torchrs::autograd::backward(&[&attend()], &[Some(&go)], torchrs::autograd::GraphMode::Free);
        [&q, &k, &v].into_iter().for_each(|x: &Tensor| x.set_grad(None));
    });
}
