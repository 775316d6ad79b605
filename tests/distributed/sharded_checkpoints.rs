//! Checkpoints that all ranks write and read together: from any layout to any other, in the background, and when some of
//! the ranks fail.

mod background;
mod failures;
mod kills;
mod layouts;

use std::path::Path;

use torchrs::Dtype;
use torchrs::checkpoint::Checkpoint;

/// All tensors of a checkpoint, read by one process, as bits.
fn bits(path: &Path) -> Vec<(String, Vec<usize>, Vec<u64>)> {
    let checkpoint = Checkpoint::load(path).unwrap();
    let mut all = Vec::new();
    for group in checkpoint.tensor_groups() {
        for (name, tensor) in checkpoint.tensors(group).unwrap() {
            let bits: Vec<u64> = match tensor.dtype() {
                Dtype::F32 => {
                    tensor.to_vec::<f32>().into_iter().map(|x| x.to_bits().into()).collect()
                }
                _ => tensor.to_vec::<i64>().into_iter().map(|x| x as u64).collect(),
            };
            all.push((format!("{group}.{name}"), tensor.shape().to_vec(), bits));
        }
    }
    all
}
