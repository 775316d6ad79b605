//! From samples to batches (`torch.utils.data.default_collate`). A [`Sample`] writes its fields
//! into a row of the batch's columns, which lie in a reusable slot of memory, and builds the batch
//! from the columns afterwards without a copy.

use std::collections::BTreeMap;

use super::columns::Columns;
use super::writer::SampleWriter;
use crate::tensor::{Element, Tensor};

/// What a [`Dataset`](super::Dataset) returns and a [`DataLoader`](super::DataLoader) makes batches
/// of.
///
/// | sample | its batch of n |
/// | --- | --- |
/// | `Tensor` of shape `[..]` | `Tensor` of shape `[n, ..]` |
/// | a number or `bool` | `Tensor` of shape `[n]` |
/// | `Vec<T>` or `[T; k]` of numbers | `Tensor` of shape `[n, k]` |
/// | `String`, [`Blob`] | `Vec<String>`, `Vec<Blob>`, of any lengths |
/// | [`Ragged`](super::Ragged) | [`RaggedBatch`](super::RaggedBatch): all rows in one tensor |
/// | `Vec<Tensor>` | `Vec<Tensor>`, one for each place |
/// | `BTreeMap<String, S>` (named columns) | `BTreeMap<String, batch of S>`, with the same names in all samples |
/// | a tuple | the tuple of batches |
///
/// A struct passes both methods on to its fields, in the same order:
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::data::{Columns, Sample, SampleWriter};
///
/// struct Labelled { image: Tensor, label: i64 }
/// struct LabelledBatch { images: Tensor, labels: Tensor }
///
/// impl Sample for Labelled {
///     type Batch = LabelledBatch;
///     fn write(&self, out: &mut SampleWriter) {
///         self.image.write(out);
///         self.label.write(out);
///     }
///     fn batch(columns: &mut Columns) -> LabelledBatch {
///         LabelledBatch { images: Tensor::batch(columns), labels: i64::batch(columns) }
///     }
/// }
/// ```
pub trait Sample: Sized + 'static {
    /// What a batch of these samples is.
    type Batch: Send + 'static;

    /// Hands every field to `out`, always in the same order. It is called twice for the first
    /// sample of a batch: once to learn the fields, then to take the bytes.
    fn write(&self, out: &mut SampleWriter);

    /// Builds the batch from its columns, in the order of [`write`](Self::write).
    fn batch(columns: &mut Columns) -> Self::Batch;
}

impl Sample for Tensor {
    type Batch = Tensor;
    fn write(&self, out: &mut SampleWriter) {
        out.tensor(self);
    }
    fn batch(columns: &mut Columns) -> Tensor {
        columns.tensor()
    }
}

impl Sample for Vec<Tensor> {
    type Batch = Vec<Tensor>;
    fn write(&self, out: &mut SampleWriter) {
        out.list(self.len());
        self.iter().for_each(|tensor| out.tensor(tensor));
    }
    fn batch(columns: &mut Columns) -> Vec<Tensor> {
        (0..columns.list()).map(|_| columns.tensor()).collect()
    }
}

macro_rules! number_samples {
    ($($t:ty)*) => {$(
        impl Sample for $t {
            type Batch = Tensor;
            fn write(&self, out: &mut SampleWriter) {
                out.elements(&[], std::slice::from_ref(self));
            }
            fn batch(columns: &mut Columns) -> Tensor {
                columns.tensor()
            }
        }
    )*};
}
number_samples!(f64 f32 half::f16 half::bf16 i64 i32 i16 i8 u8 bool);

impl<T: Element> Sample for Vec<T> {
    type Batch = Tensor;
    fn write(&self, out: &mut SampleWriter) {
        out.elements(&[self.len()], self);
    }
    fn batch(columns: &mut Columns) -> Tensor {
        columns.tensor()
    }
}

impl<T: Element, const N: usize> Sample for [T; N] {
    type Batch = Tensor;
    fn write(&self, out: &mut SampleWriter) {
        out.elements(&[N], self);
    }
    fn batch(columns: &mut Columns) -> Tensor {
        columns.tensor()
    }
}

impl Sample for String {
    type Batch = Vec<String>;
    fn write(&self, out: &mut SampleWriter) {
        out.bytes(self.as_bytes());
    }
    fn batch(columns: &mut Columns) -> Vec<String> {
        let text = |bytes| String::from_utf8(bytes).expect("written from a String");
        columns.bytes().into_iter().map(text).collect()
    }
}

/// Bytes of any length as a sample (a `Vec<u8>` is a tensor, and all of a batch have one length).
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/data/list.rs"));
/// # use torchrs::Tensor;
/// use torchrs::data::Blob;
/// # fn main() -> torchrs::Result<()> {
/// let files = List(vec![Blob(vec![1, 2, 3]), Blob(vec![4])]);
/// let batch = DataLoader::builder(files).batch_size(2).build()?.iter().next().unwrap()?;
/// assert_eq!(batch, [Blob(vec![1, 2, 3]), Blob(vec![4])]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Blob(pub Vec<u8>);

impl Sample for Blob {
    type Batch = Vec<Blob>;
    fn write(&self, out: &mut SampleWriter) {
        out.bytes(&self.0);
    }
    fn batch(columns: &mut Columns) -> Vec<Blob> {
        columns.bytes().into_iter().map(Blob).collect()
    }
}

impl<S: Sample> Sample for BTreeMap<String, S> {
    type Batch = BTreeMap<String, S::Batch>;
    fn write(&self, out: &mut SampleWriter) {
        out.list(self.len());
        for (name, value) in self {
            out.name(name);
            value.write(out);
        }
    }
    fn batch(columns: &mut Columns) -> Self::Batch {
        (0..columns.list()).map(|_| (columns.name(), S::batch(columns))).collect()
    }
}

macro_rules! tuple_samples {
    ($(($($name:ident $place:tt),+))*) => {$(
        impl<$($name: Sample),+> Sample for ($($name,)+) {
            type Batch = ($($name::Batch,)+);
            fn write(&self, out: &mut SampleWriter) {
                $(self.$place.write(out);)+
            }
            fn batch(columns: &mut Columns) -> Self::Batch {
                ($($name::batch(columns),)+)
            }
        }
    )*};
}
tuple_samples! { (A 0) (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) (A 0, B 1, C 2, D 3, E 4) (A 0, B 1, C 2, D 3, E 4, F 5) }
