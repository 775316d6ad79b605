//! What the factorisation of a batch gives, and how a loop of `cpu/linalg` is run on every matrix of one.

use crate::autograd::no_grad;
use crate::cpu::{threads::GRAIN, threads::parallel_for, threads::parts::Parts};
use crate::error::{Error, throw};
use crate::tensor::{Dtype, Tensor};

/// What is computed for one matrix: from the inputs' matrices, row-major, to the outputs'; the result
/// is the matrix's `info`.
pub type PerMatrix<'a> = &'a (dyn Fn(&[&[f64]], &mut [&mut [f64]]) -> usize + Sync);

/// Results of a batch.
pub struct Batch {
    /// One tensor per output, of the inputs' type.
    pub outputs: Vec<Tensor>,
    /// A number for each matrix, 0 where it was fine: i32, of the batch's shape.
    pub info: Tensor,
}

impl Batch {
    /// The only output.
    pub fn single(mut self) -> Tensor {
        self.outputs.remove(0)
    }

    /// Throws for the first matrix that was not fine; `message` tells what an `info` means. On a GPU this waits
    /// for the results, as PyTorch does.
    #[track_caller]
    pub fn expect(&self, op: &str, message: impl Fn(i32) -> String) {
        if self.info.device().is_meta() {
            return;
        }
        let all = self.info.to_vec::<i32>();
        if let Some(i) = all.iter().position(|&info| info != 0) {
            let which = match self.info.dim() {
                0 => "the matrix".to_owned(),
                _ => format!("matrix {i} of the batch"),
            };
            let message = format!("{which} {}", message(all[i]));
            throw(Error::argument(op, "A", message));
        }
    }
}

/// Applies `f` to each matrix of `inputs`, which have the same batches. Outputs have the batches'
/// shape followed by `shapes`.
pub(crate) fn each(inputs: &[&Tensor], shapes: &[&[usize]], f: PerMatrix) -> Batch {
    let (shape, dtype) = (inputs[0].shape(), inputs[0].dtype());
    let shape = shape[..shape.len() - 2].to_vec();
    let count: usize = shape.iter().product();
    let wide: Vec<Tensor> =
        no_grad(|| inputs.iter().map(|x| x.detach().to_dtype(Dtype::F64).contiguous()).collect());
    // SAFETY: the tensors are only read, here and by whoever else has them.
    let data: Vec<&[f64]> = wide.iter().map(|x| unsafe { x.as_slice::<f64>() }).collect();
    let sizes: Vec<usize> = wide.iter().map(|x| x.size(-1) * x.size(-2)).collect();
    let lengths: Vec<usize> = shapes.iter().map(|s| s.iter().product()).collect();
    let mut outputs: Vec<Vec<f64>> = lengths.iter().map(|n| vec![0.0; n * count]).collect();
    let mut info = vec![0i32; count];
    {
        let parts: Vec<Parts<f64>> = outputs.iter_mut().map(|x| Parts::new(x)).collect();
        let infos = Parts::new(&mut info);
        // About the number of operations.
        let (m, n) = (wide[0].size(-2), wide[0].size(-1));
        let cost = 4 * m.max(n) * n.max(1) * m.min(n).max(1) + 100;
        parallel_for(count, GRAIN / cost, |range| {
            for i in range {
                let matrices: Vec<&[f64]> =
                    data.iter().zip(&sizes).map(|(x, n)| &x[i * n..(i + 1) * n]).collect();
                // SAFETY: every matrix's results are written by the one thread that has it.
                let mut results: Vec<&mut [f64]> = parts
                    .iter()
                    .zip(&lengths)
                    .map(|(x, n)| unsafe { x.slice(i * n..(i + 1) * n) })
                    .collect();
                let value = f(&matrices, &mut results) as i32;
                // SAFETY: each matrix is one thread's, and so is what is said of it.
                unsafe { infos.put(i, value) };
            }
        });
    }
    let tensor = |(data, own): (Vec<f64>, &&[usize])| {
        let whole = Tensor::from_slice(&data, [&shape[..], own].concat());
        no_grad(|| whole.to_dtype(dtype))
    };
    let outputs = outputs.into_iter().zip(shapes).map(tensor).collect();
    Batch { outputs, info: Tensor::from_slice(&info, &shape) }
}
