//! Options and states of optimizers, written as lists of fields.

use super::StateValue;
use super::engine::StateReader;
use crate::error::Result;
use crate::tensor::Tensor;

/// A field of a state: a tensor, a number, or a tensor that may be absent.
pub trait Entry: Sized {
    /// What is saved.
    fn save(&self) -> Option<StateValue>;
    /// The inverse of [`save`](Self::save).
    ///
    /// # Errors
    /// Those of the reader's methods.
    fn load(entries: &StateReader<'_>, name: &str) -> Result<Self>;
}

impl Entry for Tensor {
    fn save(&self) -> Option<StateValue> {
        Some(StateValue::Tensor(self.clone()))
    }
    fn load(entries: &StateReader<'_>, name: &str) -> Result<Self> {
        entries.tensor(name)
    }
}

impl Entry for Option<Tensor> {
    fn save(&self) -> Option<StateValue> {
        self.clone().map(StateValue::Tensor)
    }
    fn load(entries: &StateReader<'_>, name: &str) -> Result<Self> {
        entries.tensor_if_any(name)
    }
}

impl Entry for f64 {
    fn save(&self) -> Option<StateValue> {
        Some(StateValue::Number(*self))
    }
    fn load(entries: &StateReader<'_>, name: &str) -> Result<Self> {
        entries.number(name)
    }
}

/// A struct of options with PyTorch's defaults, and what may not be in them.
macro_rules! options {
    (
        $(#[$doc:meta])* $name:ident {
            $($(#[$field_doc:meta])* $field:ident: $t:ty = $default:expr,)+
        }
        check($o:ident) $check:block
        $(momentum($m:ident) = $momentum:expr;)?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $t,)+
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $($field: $default,)+ }
            }
        }

        impl $crate::optim::engine::GroupOptions for $name {
            fn lr(&self) -> f64 {
                self.lr
            }
            fn set_lr(&mut self, lr: f64) {
                self.lr = lr;
            }
            $(
                fn momentum(&self) -> Option<f64> {
                    let $m = self;
                    Some($momentum)
                }
                fn set_momentum(&mut self, momentum: f64) {
                    let $m = self;
                    $momentum = momentum;
                }
            )?
            fn check(&self) -> std::result::Result<(), (&'static str, String)> {
                let $o = self;
                $check
                Ok(())
            }
        }
    };
}

/// A struct of what is kept for a parameter; fields have PyTorch's names.
macro_rules! state {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $t:ty,)+ }) => {
        $(#[$doc])*
        pub struct $name {
            $($field: $t,)+
        }

        impl $crate::optim::engine::ParamState for $name {
            fn save(&self) -> std::collections::BTreeMap<String, $crate::optim::StateValue> {
                use $crate::optim::declare::Entry;
                let entries = [$((stringify!($field), self.$field.save())),+];
                entries.into_iter().filter_map(|(name, v)| Some((name.to_owned(), v?))).collect()
            }
            fn load(
                entries: &$crate::optim::engine::StateReader<'_>,
            ) -> $crate::error::Result<Self> {
                use $crate::optim::declare::Entry;
                Ok($name { $($field: Entry::load(entries, stringify!($field))?,)+ })
            }
        }
    };
}

pub(super) use {options, state};
