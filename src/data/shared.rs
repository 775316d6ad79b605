//! A value that several owners in this process share, and that is serialised as itself.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value behind an [`Arc`] that is serialised as itself: the parent keeps the dataset while every
/// worker gets a copy.
pub(super) struct Shared<D>(pub Arc<D>);

impl<D> Shared<D> {
    pub fn new(value: D) -> Self {
        Shared(Arc::new(value))
    }
}

impl<D> Clone for Shared<D> {
    fn clone(&self) -> Self {
        Shared(self.0.clone())
    }
}

impl<D> Deref for Shared<D> {
    type Target = D;
    fn deref(&self) -> &D {
        &self.0
    }
}

impl<D: fmt::Debug> fmt::Debug for Shared<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<D: Serialize> Serialize for Shared<D> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, D: DeserializeOwned> Deserialize<'de> for Shared<D> {
    fn deserialize<S: Deserializer<'de>>(deserializer: S) -> Result<Self, S::Error> {
        D::deserialize(deserializer).map(Shared::new)
    }
}
