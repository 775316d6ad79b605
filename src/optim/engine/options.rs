//! The options of a group, and the ranges that they are checked against.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Options of a group of parameters.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use torchrs::optim::engine::{GroupOptions, not_negative};
/// #[derive(Clone, Default, Serialize, Deserialize)]
/// struct Options {
///     lr: f64,
/// }
/// impl GroupOptions for Options {
///     fn lr(&self) -> f64 {
///         self.lr
///     }
///     fn set_lr(&mut self, lr: f64) {
///         self.lr = lr;
///     }
///     fn check(&self) -> Result<(), (&'static str, String)> {
///         not_negative("lr", self.lr)
///     }
/// }
/// assert_eq!(Options { lr: -1.0 }.check(), Err(("lr", "-1; must be at least 0".to_owned())));
/// assert_eq!(Options::default().momentum(), None);
/// ```
pub trait GroupOptions:
    Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The learning rate.
    fn lr(&self) -> f64;
    /// Sets the learning rate.
    fn set_lr(&mut self, lr: f64);
    /// The momentum, or the first beta.
    ///
    /// ```
    /// use torchrs::optim::{AdagradOptions, AdamOptions, engine::GroupOptions};
    /// assert_eq!(AdamOptions { betas: (0.8, 0.99), ..Default::default() }.momentum(), Some(0.8));
    /// assert_eq!(AdagradOptions::default().momentum(), None);
    /// ```
    fn momentum(&self) -> Option<f64> {
        None
    }
    /// Sets the momentum, or the first beta.
    fn set_momentum(&mut self, _momentum: f64) {}
    /// Name, value and rule of the first option that cannot be used.
    ///
    /// ```
    /// use torchrs::optim::{SGDOptions, engine::GroupOptions};
    /// assert!(SGDOptions::default().check().is_ok());
    /// let (option, rule) = SGDOptions { momentum: -1.0, ..Default::default() }.check().unwrap_err();
    /// assert_eq!((option, &rule[..]), ("momentum", "-1; must be at least 0"));
    /// ```
    fn check(&self) -> std::result::Result<(), (&'static str, String)>;
}

/// Value and rule of an option that must not be negative, if it is.
///
/// ```
/// use torchrs::optim::engine::not_negative;
/// assert_eq!(not_negative("lr", 0.0), Ok(()));
/// assert_eq!(not_negative("lr", -0.5), Err(("lr", "-0.5; must be at least 0".to_owned())));
/// assert!(not_negative("lr", f64::NAN).is_err());
/// ```
pub fn not_negative(
    name: &'static str,
    value: f64,
) -> std::result::Result<(), (&'static str, String)> {
    match value >= 0.0 {
        true => Ok(()),
        false => Err((name, format!("{value}; must be at least 0"))),
    }
}

/// Value and rule of an option that must be in [0, 1), if it is not.
pub fn below_one(
    name: &'static str,
    value: f64,
) -> std::result::Result<(), (&'static str, String)> {
    match (0.0..1.0).contains(&value) {
        true => Ok(()),
        false => Err((name, format!("{value}; must be at least 0 and below 1"))),
    }
}

/// The ranges that all optimizers of Adam's family share.
pub fn adam_ranges(
    lr: f64,
    betas: (f64, f64),
    eps: f64,
    weight_decay: f64,
) -> std::result::Result<(), (&'static str, String)> {
    not_negative("lr", lr)?;
    not_negative("eps", eps)?;
    below_one("betas", betas.0)?;
    below_one("betas", betas.1)?;
    not_negative("weight_decay", weight_decay)
}

/// Value and rule of an option that must be in `[low, high]`, if it is not.
pub fn within(
    name: &'static str,
    value: f64,
    low: f64,
    high: f64,
) -> std::result::Result<(), (&'static str, String)> {
    match (low..=high).contains(&value) {
        true => Ok(()),
        false => Err((name, format!("{value}; must be from {low} to {high}"))),
    }
}
