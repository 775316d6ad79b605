//! Parameters as one vector (`torch.nn.utils.parameters_to_vector` and back).

use crate::error::{Error, throw};
use crate::{Tensor, no_grad};

/// All elements of `parameters`, one tensor after the other (`torch.nn.utils.parameters_to_vector`).
///
/// # Panics
/// Throws [`Error::Argument`] for an empty list.
#[track_caller]
pub fn parameters_to_vector(parameters: &[Tensor]) -> Tensor {
    if parameters.is_empty() {
        throw(Error::argument("parameters_to_vector", "parameters", "is empty"));
    }
    let flat: Vec<Tensor> = parameters.iter().map(|p| p.reshape([-1])).collect();
    Tensor::cat(&flat, 0)
}

/// Copies the elements of `vector` into `parameters`, in order
/// (`torch.nn.utils.vector_to_parameters`).
///
/// # Panics
/// Throws [`Error::Shape`] when the vector has another number of elements.
#[track_caller]
pub fn vector_to_parameters(vector: &Tensor, parameters: &[Tensor]) {
    let count: usize = parameters.iter().map(Tensor::numel).sum();
    if vector.shape() != [count] {
        let message = format!("the vector must be [{count}], got {:?}", vector.shape());
        throw(Error::shape("vector_to_parameters", message));
    }
    no_grad(|| {
        let mut start = 0;
        for p in parameters {
            p.copy_(&vector.narrow(0, start, p.numel()).reshape_as(p));
            start += p.numel();
        }
    });
}
