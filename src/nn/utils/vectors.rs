//! Parameters as one vector (`torch.nn.utils.parameters_to_vector` and back).

use crate::autograd::no_grad;
use crate::error::{Error, throw};
use crate::tensor::Tensor;

/// All elements of `parameters`, one tensor after the other (`torch.nn.utils.parameters_to_vector`).
///
/// ```
/// use torchrs::{Tensor, nn::parameters_to_vector};
/// let parameters = [Tensor::from([[1f32, 2.], [3., 4.]]), Tensor::from([5f32])];
/// assert_eq!(parameters_to_vector(&parameters).to_vec::<f32>(), [1.0, 2.0, 3.0, 4.0, 5.0]);
/// ```
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
/// ```
/// use torchrs::{Tensor, nn::{Linear, Module, vector_to_parameters}};
/// let layer = Linear::new(2, 1);
/// vector_to_parameters(&Tensor::from([1f32, 2., 3.]), &layer.parameters());
/// assert_eq!(layer.weight.to_vec::<f32>(), [1.0, 2.0]);
/// assert_eq!(layer.bias.unwrap().item(), 3.0);
/// ```
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
