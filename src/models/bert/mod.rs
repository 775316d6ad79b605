//! BERT (Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", 2018), as in
//! `transformers.models.bert`: the encoder, not as a decoder.

mod config;
mod embeddings;
mod heads;
mod layer;

pub use config::BertConfig;
pub use embeddings::BertEmbeddings;
pub use heads::{
    BertForMaskedLM, BertForSequenceClassification, BertMLMHead, BertPredictionHead, BertTransform,
};
pub use layer::{BertAttention, BertEncoder, BertLayer, BertOutput};

use super::decoder;
use super::encoder::{EncoderPooler, pooled, pooled_onnx};
use super::pretrained::{Names, Published, settings::Table};
use crate::error::{Error, Result};
use crate::models::HiddenActivation;
use crate::nn::{Forward, Module};
use crate::onnx::{Graph, Seen, Value};
use crate::tensor::Tensor;

/// The model's name in errors.
const NAME: &str = "Bert";

/// Parts of names of old versions, of files that began as TensorFlow's.
const RENAMED: &[(&str, &str)] =
    &[("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")];

/// What goes into a forward besides the tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct BertInputs<'a> {
    /// 0 (or false) at tokens that are padding, `[batch, length]`.
    pub attention_mask: Option<&'a Tensor>,
    /// The kind of each token, `[batch, length]`, such as 0 in the first sentence and 1 in the second; `None`: 0.
    pub token_type_ids: Option<&'a Tensor>,
    /// Place of each token, `[batch, length]` or `[length]`; `None`: one after the other.
    pub position_ids: Option<&'a Tensor>,
}

/// What goes into a graph of ONNX besides the tokens: as [`BertInputs`], each of i64; the mask may be bool.
#[derive(Clone, Copy, Debug, Default)]
pub struct BertOnnxInputs<'a> {
    /// 0 (or false) at tokens that are padding, `[batch, length]`.
    pub attention_mask: Option<&'a Value>,
    /// The kind of each token, `[batch, length]`; `None`: 0.
    pub token_type_ids: Option<&'a Value>,
    /// Place of each token, `[batch, length]` or `[length]`; `None`: one after the other.
    pub position_ids: Option<&'a Value>,
}

impl BertOnnxInputs<'_> {
    /// All are as the tokens are.
    fn check(&self, input_ids: &Value) -> Result<()> {
        decoder::check_onnx(NAME, input_ids)?;
        let whole = [
            ("attention_mask", self.attention_mask),
            ("token_type_ids", self.token_type_ids),
            ("position_ids", self.position_ids.filter(|places| places.dim() != 1)),
        ];
        for (name, value) in whole {
            if let Some(value) = value
                && value.shape() != input_ids.shape()
            {
                let message = format!(
                    "{name} is {:?}; must be {:?}, as the tokens",
                    value.shape(),
                    input_ids.shape()
                );
                return Err(Error::shape(NAME, message));
            }
        }
        Ok(())
    }
}

/// BERT without a head (`BertModel`).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::models::{BertConfig, BertModel};
/// use torchrs::nn::{Forward, Module};
/// let sizes = BertConfig { vocab_size: 50, hidden_size: 8, intermediate_size: 16, ..Default::default() };
/// let model = BertModel::new(BertConfig { num_hidden_layers: 2, num_attention_heads: 2, ..sizes });
/// let features = model.forward(&Tensor::from([[3i64, 14, 15]]));
/// assert_eq!(features.shape(), &[1, 3, 8]);
/// assert_eq!(model.pooled(&features).shape(), &[1, 8]);
/// ```
#[derive(Module)]
pub struct BertModel {
    /// Of the tokens.
    pub embeddings: BertEmbeddings,
    /// The layers.
    pub encoder: BertEncoder,
    /// On the first token's features; models that guess tokens have none.
    pub pooler: Option<EncoderPooler>,
    #[module(skip)]
    config: BertConfig,
}

impl BertModel {
    /// Weights start normal with deviation `initializer_range`, those of norms at 1, biases at 0.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for sizes that cannot be.
    #[track_caller]
    pub fn new(config: BertConfig) -> Self {
        Self::with_pooler(config, true)
    }

    /// [`new`](Self::new) with a pooler or without (`add_pooling_layer`).
    ///
    /// # Panics
    /// As that.
    #[track_caller]
    pub fn with_pooler(config: BertConfig, add_pooling_layer: bool) -> Self {
        config.check();
        let width = config.hidden_size;
        let pooler =
            || EncoderPooler::new(config.initializer_range, width, width, HiddenActivation::Tanh);
        BertModel {
            embeddings: BertEmbeddings::new(&config),
            encoder: BertEncoder {
                layer: (0..config.num_hidden_layers).map(|_| BertLayer::new(&config)).collect(),
            },
            pooler: add_pooling_layer.then(pooler),
            config,
        }
    }

    /// The settings.
    pub fn config(&self) -> &BertConfig {
        &self.config
    }

    /// The last features, `[batch, length, hidden_size]`, of tokens `[batch, length]` (`last_hidden_state`).
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for inputs of other shapes, and [`Error::Argument`] for more tokens than
    /// the model has positions.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward_with(&self, input_ids: &Tensor, inputs: BertInputs) -> Tensor {
        let mut x = self.embeddings.forward(input_ids, &inputs);
        let attention = decoder::attention_to_all(NAME, inputs.attention_mask, &x);
        for layer in &self.encoder.layer {
            x = layer.forward(&x, &attention);
        }
        x
    }

    /// What the pooler makes of features, `[batch, hidden_size]` (`pooler_output`).
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for a model without a pooler.
    #[track_caller]
    pub fn pooled(&self, features: &Tensor) -> Tensor {
        pooled("BertModel", self.pooler.as_ref(), features)
    }

    /// [`forward_with`](Self::forward_with) as part of a graph of [ONNX](crate::onnx).
    ///
    /// ```
    /// use torchrs::Dtype;
    /// use torchrs::checkpoint::onnx_graph;
    /// use torchrs::models::{BertConfig, BertModel, BertOnnxInputs};
    /// let sizes = BertConfig { vocab_size: 50, hidden_size: 8, intermediate_size: 16, ..Default::default() };
    /// let model = BertModel::new(BertConfig { num_hidden_layers: 2, num_attention_heads: 2, ..sizes });
    /// let mut graph = onnx_graph(&model)?;
    /// let mut input = |name| graph.input(name, Dtype::I64, ["batch".into(), "length".into()]);
    /// let [tokens, mask, types] = ["input_ids", "attention_mask", "token_type_ids"].map(&mut input);
    /// let inputs = BertOnnxInputs {
    ///     attention_mask: Some(&mask),
    ///     token_type_ids: Some(&types),
    ///     ..Default::default()
    /// };
    /// let features = model.onnx_with(&mut graph, &tokens, inputs)?;
    /// graph.output("last_hidden_state", &features);
    /// let pooled = model.pooled_onnx(&mut graph, &features)?;
    /// graph.output("pooler_output", &pooled);
    /// assert_eq!(pooled.shape(), ["batch".into(), 8.into()]);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for tokens that are not `[batch, length]` of i64, [`Error::Shape`] for others of another shape.
    pub fn onnx_with(
        &self,
        graph: &mut Graph,
        input_ids: &Value,
        inputs: BertOnnxInputs,
    ) -> Result<Value> {
        inputs.check(input_ids)?;
        let mut x = self.embeddings.onnx(graph, input_ids, &inputs)?;
        let added = match inputs.attention_mask {
            None => None,
            Some(mask) => {
                let mask = graph.unsqueeze(mask, &[1, 2]);
                Some(graph.added_mask(&mask, decoder::lowest(x.dtype()), true, x.dtype())?)
            }
        };
        let seen = added.as_ref().map_or(Seen::All, Seen::Masked);
        for layer in &self.encoder.layer {
            x = layer.onnx(graph, &x, seen)?;
        }
        Ok(x)
    }

    /// [`pooled`](Self::pooled) as part of a graph of ONNX.
    ///
    /// # Errors
    /// [`Error::Argument`] for a model without a pooler.
    pub fn pooled_onnx(&self, graph: &mut Graph, features: &Value) -> Result<Value> {
        pooled_onnx("BertModel", self.pooler.as_ref(), graph, features)
    }
}

impl Forward for BertModel {
    /// [`BertModel::forward_with`] without further inputs.
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input_ids: &Tensor) -> Tensor {
        self.forward_with(input_ids, BertInputs::default())
    }

    fn onnx(&self, graph: &mut Graph, input_ids: &Value) -> Result<Value> {
        self.onnx_with(graph, input_ids, BertOnnxInputs::default())
    }
}

impl Published for BertModel {
    const NAMES: Names = Names {
        base: "bert.",
        heads: &[],
        spare: &["pooler."],
        others: &["cls.", "classifier.", "qa_outputs."],
        renamed: RENAMED,
    };

    fn config_table(&self) -> Result<Table> {
        self.config.table()
    }
}
