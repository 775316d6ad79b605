//! Which tensors hold numbers that are not finite.

use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// The name of the first of these tensors that holds a number that is not finite.
///
/// ```
/// use torchrs::{Tensor, train::first_not_finite};
/// let named = [("a", Tensor::from([1f32])), ("b", Tensor::from([f32::NAN]))];
/// assert_eq!(first_not_finite(named.iter().map(|(name, t)| (*name, t))), Some("b"));
/// ```
pub fn first_not_finite<'a>(
    named: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
) -> Option<&'a str> {
    let is_finite = |t: &Tensor| {
        let holds_others = t.dtype().is_floating_point() || t.dtype().is_complex();
        !holds_others || t.detach().isfinite().all().item() != 0.0
    };
    named.into_iter().find(|(_, t)| !is_finite(t)).map(|(name, _)| name)
}

/// An error when a tensor that is to be saved is not finite: the checkpoint before is the better one.
pub(super) fn check_before_save<'a>(
    group: &str,
    named: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
) -> Result<()> {
    match first_not_finite(named) {
        None => Ok(()),
        Some(name) => Err(Error::Other(format!(
            "no checkpoint is saved: `{name}` of `{group}` is not finite; the last one stays \
             (`TrainState::allow_not_finite` saves it nevertheless)"
        ))),
    }
}
