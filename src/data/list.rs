// Part of the examples in this folder, which include it: a dataset of given samples.

#[allow(unused_imports)]
use torchrs::data::{Columns, DataLoader, Dataset, Sample, SampleWriter};

struct List<S>(Vec<S>);

/// It stays in its process: without loader workers, nothing is sent.
impl<S> serde::Serialize for List<S> {
    fn serialize<T: serde::Serializer>(&self, _: T) -> Result<T::Ok, T::Error> {
        Err(serde::ser::Error::custom("a list is not sent to workers"))
    }
}

impl<'de, S> serde::Deserialize<'de> for List<S> {
    fn deserialize<T: serde::Deserializer<'de>>(_: T) -> Result<Self, T::Error> {
        Err(serde::de::Error::custom("a list is not sent to workers"))
    }
}

impl<S: Sample + Clone + Send + Sync> Dataset for List<S> {
    type Sample = S;
    fn len(&self) -> usize {
        self.0.len()
    }
    fn get(&self, index: usize) -> torchrs::Result<S> {
        Ok(self.0[index].clone())
    }
}
