// Part of the examples in this folder, which include it: a dataset of given samples.

use serde::{Deserialize, Serialize};
#[allow(unused_imports)]
use torchrs::data::{Columns, DataLoader, Dataset, Sample, SampleWriter};

#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
struct List<S>(#[serde(skip)] Vec<S>);

impl<S: Sample + Clone + Send + Sync> Dataset for List<S> {
    type Sample = S;
    fn len(&self) -> usize {
        self.0.len()
    }
    fn get(&self, index: usize) -> torchrs::Result<S> {
        Ok(self.0[index].clone())
    }
}
