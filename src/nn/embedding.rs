//! Tables of vectors looked up by index (`torch/nn/modules/sparse.py`).

use super::display::python_float;
use super::{Forward, Module, Parameter, init};
use crate::autograd::no_grad;
use crate::error::{Error, Result, throw};
use crate::onnx::{Graph, Value};
use crate::ops::{BagMode, EmbeddingBagOptions};
use crate::tensor::{Dtype, Tensor};

/// A vector for each index (`torch.nn.Embedding`). The table starts as a standard normal.
///
/// ```
/// use torchrs::{Tensor, nn::{Embedding, Forward}};
/// let words = Embedding::new(100, 8);
/// assert_eq!(words.forward(&Tensor::from([[1i64, 2, 3], [4, 5, 6]])).shape(), &[2, 3, 8]);
/// ```
#[derive(Module, Clone)]
#[module(extra_repr = Self::settings)]
pub struct Embedding {
    /// `[num_embeddings, embedding_dim]`.
    pub weight: Parameter,
    padding_idx: Option<i64>,
    max_norm: Option<MaxNorm>,
    scale_grad_by_freq: bool,
}

/// The longest that rows may be.
#[derive(Clone, Copy, Debug)]
struct MaxNorm {
    length: f64,
    /// Of which norm.
    p: f64,
}

impl MaxNorm {
    /// Shortens the rows that `indices` name, in place.
    #[track_caller]
    fn shorten(self, weight: &Tensor, indices: &Tensor) {
        weight.embedding_renorm_(indices, self.length, self.p);
    }

    fn settings(of: Option<Self>) -> String {
        of.map_or(String::new(), |MaxNorm { length, p }| match p {
            2.0 => format!(", max_norm={}", python_float(length)),
            _ => format!(", max_norm={}, norm_type={}", python_float(length), python_float(p)),
        })
    }
}

/// A table of this size, standard normal.
fn table(rows: usize, width: usize) -> Parameter {
    let weight = Parameter::new(Tensor::empty([rows, width], Dtype::F32));
    init::normal_(&weight, 0.0, 1.0);
    weight
}

/// The settings that both kinds of table have. `$name` is for errors and examples, `$further` are the
/// other arguments of `forward` in these.
macro_rules! table_settings {
    ($name:ident, $further:literal) => {
        /// With an index, negative from the end, whose vector is 0 and stays so.
        ///
        /// ```
        #[doc = concat!("let words = torchrs::nn::", stringify!($name), "::new(3, 2).padding_idx(-1);")]
        /// assert_eq!(words.weight.select(0, 2).to_vec::<f32>(), [0.0, 0.0]);
        /// ```
        ///
        /// # Panics
        /// Throws [`Error::Argument`] when it is out of range.
        #[track_caller]
        #[must_use]
        pub fn padding_idx(mut self, index: i64) -> Self {
            let rows = self.weight.shape()[0] as i64;
            if !(-rows..rows).contains(&index) {
                let message = format!("{index} is not a row of a table of {rows} rows");
                throw(Error::argument(stringify!($name), "padding_idx", message));
            }
            let index = index.rem_euclid(rows);
            no_grad(|| _ = self.weight.select(0, index).fill_(0.0));
            self.padding_idx = Some(index);
            self
        }

        /// With vectors that are shortened to `max_norm`, in place, when they are looked up and are
        /// longer by the norm of order `norm_type`; PyTorch's default is 2.
        ///
        /// ```
        #[doc = concat!("use torchrs::{Tensor, nn::{Forward, ", stringify!($name), ", init}};")]
        #[doc = concat!("let words = ", stringify!($name), "::new(3, 2).max_norm(1.0, f64::INFINITY);")]
        /// init::constant_(&words.weight, 4.0);
        #[doc = concat!("words.forward(&Tensor::from([[2i64]])", $further, ");")]
        /// let largest = words.weight.amax(&[1], false).to_vec::<f32>();
        /// assert!(largest[..2] == [4.0, 4.0] && (largest[2] - 1.0).abs() < 1e-5);
        /// ```
        #[must_use]
        pub fn max_norm(mut self, max_norm: f64, norm_type: f64) -> Self {
            self.max_norm = Some(MaxNorm { length: max_norm, p: norm_type });
            self
        }

        /// With gradients of the vectors that are divided by how often they were looked up.
        ///
        /// ```
        #[doc = concat!("use torchrs::{Tensor, nn::{Forward, ", stringify!($name), "}};")]
        #[doc = concat!("let words = ", stringify!($name), "::new(3, 1).scale_grad_by_freq();")]
        #[doc = concat!("words.forward(&Tensor::from([[2i64], [2]])", $further, ").sum().backward();")]
        /// assert_eq!(words.weight.grad().unwrap().to_vec::<f32>(), [0.0, 0.0, 1.0]);
        /// ```
        #[must_use]
        pub fn scale_grad_by_freq(mut self) -> Self {
            self.scale_grad_by_freq = true;
            self
        }
    };
}

impl Embedding {
    /// A table of `num_embeddings` vectors of size `embedding_dim`.
    #[track_caller]
    pub fn new(num_embeddings: usize, embedding_dim: usize) -> Self {
        let weight = table(num_embeddings, embedding_dim);
        Embedding { weight, padding_idx: None, max_norm: None, scale_grad_by_freq: false }
    }

    /// A table with these vectors, the rows of a matrix, which are trained unless `freeze`
    /// (`Embedding.from_pretrained`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Embedding, Forward}};
    /// let words = Embedding::from_pretrained(Tensor::from([[1f32, 2.], [3., 4.]]), true);
    /// assert_eq!(words.forward(&Tensor::from([1i64])).to_vec::<f32>(), [3.0, 4.0]);
    /// assert!(!words.weight.requires_grad());
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] unless `embeddings` is a matrix.
    #[track_caller]
    pub fn from_pretrained(embeddings: Tensor, freeze: bool) -> Self {
        let weight = pretrained("Embedding", embeddings, freeze);
        Embedding { weight, padding_idx: None, max_norm: None, scale_grad_by_freq: false }
    }

    table_settings!(Embedding, "");

    fn settings(&self) -> String {
        let (rows, width) = (self.weight.shape()[0], self.weight.shape()[1]);
        let padding = self.padding_idx.map_or(String::new(), |i| format!(", padding_idx={i}"));
        let scaled = if self.scale_grad_by_freq { ", scale_grad_by_freq=True" } else { "" };
        format!("{rows}, {width}{padding}{}{scaled}", MaxNorm::settings(self.max_norm))
    }
}

#[track_caller]
fn pretrained(name: &str, embeddings: Tensor, freeze: bool) -> Parameter {
    if embeddings.dim() != 2 {
        let message = format!("embeddings {:?}; a matrix is needed", embeddings.shape());
        throw(Error::shape(name, message));
    }
    let weight = Parameter::new(embeddings);
    weight.requires_grad_(!freeze);
    weight
}

impl Forward for Embedding {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, indices: &Tensor) -> Tensor {
        if let Some(max_norm) = self.max_norm {
            max_norm.shorten(&self.weight, indices);
        }
        match self.scale_grad_by_freq {
            true => self.weight.embedding_scaled_by_freq(indices, self.padding_idx),
            false => self.weight.embedding(indices, self.padding_idx),
        }
    }

    fn onnx(&self, graph: &mut Graph, indices: &Value) -> Result<Value> {
        if self.max_norm.is_some() {
            let message = "shortens rows while it runs, which ONNX cannot";
            return Err(Error::argument("onnx Embedding", "max_norm", message));
        }
        graph.embedding(&self.weight, indices)
    }
}

/// For each bag of indices the mean, sum or maximum of their vectors (`torch.nn.EmbeddingBag`). The
/// table starts as a standard normal.
///
/// ```
/// use torchrs::{Tensor, nn::EmbeddingBag, ops::BagMode};
/// let words = EmbeddingBag::new(10, 3).mode(BagMode::Sum);
/// let bags = words.forward(&Tensor::from([1i64, 2, 4, 5]), Some(&Tensor::from([0i64, 3])), None);
/// assert_eq!(bags.shape(), &[2, 3]);
/// ```
#[derive(Module, Clone)]
#[module(extra_repr = Self::settings)]
pub struct EmbeddingBag {
    /// `[num_embeddings, embedding_dim]`.
    pub weight: Parameter,
    mode: BagMode,
    include_last_offset: bool,
    padding_idx: Option<i64>,
    max_norm: Option<MaxNorm>,
    scale_grad_by_freq: bool,
}

impl EmbeddingBag {
    /// A table of `num_embeddings` vectors of size `embedding_dim`, and the mean of bags.
    #[track_caller]
    pub fn new(num_embeddings: usize, embedding_dim: usize) -> Self {
        Self::of(table(num_embeddings, embedding_dim))
    }

    /// With these vectors, the rows of a matrix, which are trained unless `freeze`
    /// (`EmbeddingBag.from_pretrained`).
    ///
    /// # Panics
    /// Throws [`Error::Shape`] unless `embeddings` is a matrix.
    #[track_caller]
    pub fn from_pretrained(embeddings: Tensor, freeze: bool) -> Self {
        Self::of(pretrained("EmbeddingBag", embeddings, freeze))
    }

    fn of(weight: Parameter) -> Self {
        let (mode, include_last_offset) = (BagMode::Mean, false);
        EmbeddingBag {
            weight,
            mode,
            include_last_offset,
            padding_idx: None,
            max_norm: None,
            scale_grad_by_freq: false,
        }
    }

    /// What is made of a bag.
    ///
    /// ```
    /// use torchrs::{Tensor, nn::EmbeddingBag, ops::BagMode};
    /// let table = Tensor::from([[1f32, 9.], [3., 4.]]);
    /// let words = EmbeddingBag::from_pretrained(table, true).mode(BagMode::Max);
    /// assert_eq!(words.forward(&Tensor::from([[0i64, 1]]), None, None).to_vec::<f32>(), [3.0, 9.0]);
    /// ```
    #[must_use]
    pub fn mode(mut self, mode: BagMode) -> Self {
        self.mode = mode;
        self
    }

    /// The last of the offsets is the end of the last bag.
    ///
    /// ```
    /// use torchrs::{Tensor, nn::EmbeddingBag};
    /// let words = EmbeddingBag::new(10, 3).include_last_offset();
    /// let bags = words.forward(&Tensor::from([1i64, 2, 4, 5]), Some(&Tensor::from([0i64, 3, 4])), None);
    /// assert_eq!(bags.shape(), &[2, 3]);
    /// ```
    #[must_use]
    pub fn include_last_offset(mut self) -> Self {
        self.include_last_offset = true;
        self
    }

    table_settings!(EmbeddingBag, ", None, None");

    /// Bags `[bags, embedding_dim]` of `indices`: the rows of a matrix, or a list that is cut at
    /// `offsets`. `per_sample_weights`, shaped like the indices, are factors ([`BagMode::Sum`] only).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::EmbeddingBag, ops::BagMode};
    /// let table = Tensor::from([[1f32], [3.], [5.]]);
    /// let words = EmbeddingBag::from_pretrained(table, true).mode(BagMode::Sum);
    /// let (indices, offsets) = (Tensor::from([0i64, 1, 2]), Tensor::from([0i64, 2]));
    /// let factors = Tensor::from([1f32, 10., 2.]);
    /// assert_eq!(words.forward(&indices, Some(&offsets), Some(&factors)).to_vec::<f32>(), [31.0, 10.0]);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::embedding_bag`].
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward(
        &self,
        indices: &Tensor,
        offsets: Option<&Tensor>,
        per_sample_weights: Option<&Tensor>,
    ) -> Tensor {
        if let Some(max_norm) = self.max_norm {
            max_norm.shorten(&self.weight, indices);
        }
        let options = EmbeddingBagOptions {
            mode: self.mode,
            per_sample_weights: per_sample_weights.cloned(),
            include_last_offset: self.include_last_offset,
            padding_idx: self.padding_idx,
            scale_grad_by_freq: self.scale_grad_by_freq,
            ..Default::default()
        };
        self.weight.embedding_bag(indices, offsets, options)
    }

    fn settings(&self) -> String {
        let (rows, width) = (self.weight.shape()[0], self.weight.shape()[1]);
        let mode = match self.mode {
            BagMode::Sum => "sum",
            BagMode::Mean => "mean",
            BagMode::Max => "max",
        };
        let norm = MaxNorm::settings(self.max_norm);
        let padding = self.padding_idx.map_or(String::new(), |i| format!(", padding_idx={i}"));
        let scaled = if self.scale_grad_by_freq { ", scale_grad_by_freq=True" } else { "" };
        format!("{rows}, {width}{norm}{scaled}, mode='{mode}'{padding}")
    }
}
