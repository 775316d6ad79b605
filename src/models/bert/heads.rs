//! BERT with what guesses masked tokens, and with what classifies texts.

use super::layer::norm;
use super::{BertConfig, BertInputs, BertModel, BertOnnxInputs, RENAMED};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::models::HiddenActivation;
use crate::models::decoder;
use crate::models::encoder::{classification_loss, classifier, linear};
use crate::models::pretrained::{Names, Published, settings::Table};
use crate::nn::{Dropout, Forward, LayerNorm, Linear, Module, Parameter};
use crate::onnx::{Graph, Value};
use crate::tensor::{Dtype, Tensor};

/// A linear layer, a function and a norm (`BertPredictionHeadTransform`).
#[derive(Module)]
pub struct BertTransform {
    /// The layer.
    pub dense: Linear,
    /// Behind the function.
    #[module(rename = "LayerNorm")]
    pub layer_norm: LayerNorm,
    act: HiddenActivation,
}

impl Forward for BertTransform {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, x: &Tensor) -> Tensor {
        self.layer_norm.forward(&self.act.apply(&self.dense.forward(x)))
    }

    fn onnx(&self, graph: &mut Graph, x: &Value) -> Result<Value> {
        let x = self.dense.onnx(graph, x)?;
        let x = self.act.onnx(graph, &x)?;
        self.layer_norm.onnx(graph, &x)
    }
}

/// From features to scores of tokens (`BertLMPredictionHead`).
#[derive(Module)]
pub struct BertPredictionHead {
    /// The bias of `decoder`, by its older name.
    pub bias: Parameter,
    /// Before the decoder.
    pub transform: BertTransform,
    /// To the scores; its weight is the table of tokens, if the two are tied.
    pub decoder: Linear,
}

impl Forward for BertPredictionHead {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, features: &Tensor) -> Tensor {
        self.decoder.forward(&self.transform.forward(features))
    }

    fn onnx(&self, graph: &mut Graph, features: &Value) -> Result<Value> {
        let x = self.transform.onnx(graph, features)?;
        self.decoder.onnx(graph, &x)
    }
}

/// `BertOnlyMLMHead`.
#[derive(Module)]
pub struct BertMLMHead {
    /// To the scores of tokens.
    pub predictions: BertPredictionHead,
}

/// BERT with the head that guesses masked tokens (`BertForMaskedLM`).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::models::{BertConfig, BertForMaskedLM, BertInputs};
/// use torchrs::nn::{Forward, Module};
/// let sizes = BertConfig { vocab_size: 50, hidden_size: 8, intermediate_size: 16, ..Default::default() };
/// let model = BertForMaskedLM::new(BertConfig { num_hidden_layers: 2, num_attention_heads: 2, ..sizes });
/// let tokens = Tensor::from([[3i64, 14, 15]]);
/// assert_eq!(model.forward(&tokens).shape(), &[1, 3, 50]);
/// // Only the second token was masked; it was 9.
/// let labels = Tensor::from([[-100i64, 9, -100]]);
/// model.loss(&tokens, BertInputs::default(), &labels).backward();
/// ```
#[derive(Module)]
pub struct BertForMaskedLM {
    /// All but the head.
    pub bert: BertModel,
    /// The head.
    pub cls: BertMLMHead,
}

impl BertForMaskedLM {
    /// As [`BertModel::new`]; without a pooler.
    ///
    /// # Panics
    /// As that.
    #[track_caller]
    pub fn new(config: BertConfig) -> Self {
        let bert = BertModel::with_pooler(config, false);
        let config = bert.config();
        let (range, width) = (config.initializer_range, config.hidden_size);
        let bias = Parameter::new(Tensor::zeros([config.vocab_size], Dtype::F32));
        let weight = match config.tie_word_embeddings {
            true => bert.embeddings.word_embeddings.weight.clone(),
            false => linear(range, width, config.vocab_size, false).weight,
        };
        let transform = BertTransform {
            dense: linear(range, width, width, true),
            layer_norm: norm(config),
            act: config.hidden_act,
        };
        let decoder = Linear::from_parameters(weight, Some(bias.clone()));
        BertForMaskedLM {
            bert,
            cls: BertMLMHead { predictions: BertPredictionHead { bias, transform, decoder } },
        }
    }

    /// The settings.
    pub fn config(&self) -> &BertConfig {
        self.bert.config()
    }

    /// The scores of each token, `[batch, length, vocab_size]`; as [`BertModel::forward_with`] otherwise.
    ///
    /// # Panics
    /// As that.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward_with(&self, input_ids: &Tensor, inputs: BertInputs) -> Tensor {
        self.cls.predictions.forward(&self.bert.forward_with(input_ids, inputs))
    }

    /// [`forward_with`](Self::forward_with) as part of a graph of [ONNX](crate::onnx).
    ///
    /// # Errors
    /// As [`BertModel::onnx_with`].
    pub fn onnx_with(
        &self,
        graph: &mut Graph,
        input_ids: &Value,
        inputs: BertOnnxInputs,
    ) -> Result<Value> {
        let features = self.bert.onnx_with(graph, input_ids, inputs)?;
        self.cls.predictions.onnx(graph, &features)
    }

    /// The mean cross-entropy against `labels`, `[batch, length]`, of which those of -100 do not count
    /// (`model(.., labels=labels).loss`). Not all scores are in memory at once where they are many:
    /// [`Linear::cross_entropy`].
    ///
    /// # Panics
    /// As [`BertModel::forward_with`]; throws [`Error::Shape`] for labels of another shape.
    #[track_caller]
    #[crate::nn::forward]
    pub fn loss(&self, input_ids: &Tensor, inputs: BertInputs, labels: &Tensor) -> Tensor {
        let head = &self.cls.predictions;
        let features = || head.transform.forward(&self.bert.forward_with(input_ids, inputs));
        let tokens = [input_ids, labels];
        decoder::token_loss("BertForMaskedLM::loss", &head.decoder, tokens, features)
    }
}

impl Forward for BertForMaskedLM {
    /// [`BertForMaskedLM::forward_with`] without further inputs.
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input_ids: &Tensor) -> Tensor {
        self.forward_with(input_ids, BertInputs::default())
    }

    fn onnx(&self, graph: &mut Graph, input_ids: &Value) -> Result<Value> {
        self.onnx_with(graph, input_ids, BertOnnxInputs::default())
    }
}

impl Published for BertForMaskedLM {
    const NAMES: Names = Names {
        base: "bert.",
        heads: &["cls."],
        spare: &[],
        others: &["pooler.", "cls.seq_relationship.", "classifier.", "qa_outputs."],
        renamed: RENAMED,
    };

    fn config_table(&self) -> Result<Table> {
        self.config().table()
    }

    fn tied(&self) -> &'static [(&'static str, &'static str)] {
        const TIED: &[(&str, &str)] = &[
            ("cls.predictions.decoder.bias", "cls.predictions.bias"),
            ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
        ];
        // The biases are one in any case.
        if self.config().tie_word_embeddings { TIED } else { &TIED[..1] }
    }
}

/// BERT with a head that classifies texts (`BertForSequenceClassification`).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::models::{BertConfig, BertForSequenceClassification, BertInputs};
/// use torchrs::nn::{Forward, Module};
/// let sizes = BertConfig { vocab_size: 50, hidden_size: 8, intermediate_size: 16, ..Default::default() };
/// let config = BertConfig { num_hidden_layers: 2, num_attention_heads: 2, ..sizes }.with_num_labels(3);
/// let model = BertForSequenceClassification::new(config);
/// let tokens = Tensor::from([[3i64, 14, 15]]);
/// assert_eq!(model.forward(&tokens).shape(), &[1, 3]);
/// model.loss(&tokens, BertInputs::default(), &Tensor::from([2i64])).backward();
/// ```
#[derive(Module)]
pub struct BertForSequenceClassification {
    /// All but the head.
    pub bert: BertModel,
    /// Before the head.
    pub dropout: Dropout,
    /// The head.
    pub classifier: Linear,
}

impl BertForSequenceClassification {
    /// As [`BertModel::new`].
    ///
    /// # Panics
    /// As that; throws [`Error::Argument`] for settings without classes.
    #[track_caller]
    pub fn new(config: BertConfig) -> Self {
        let bert = BertModel::new(config);
        let config = bert.config();
        let dropout = config.classifier_dropout.unwrap_or(config.hidden_dropout_prob);
        let (range, width) = (config.initializer_range, config.hidden_size);
        let classifier = classifier("BertConfig", range, width, &config.id2label);
        BertForSequenceClassification { bert, dropout: Dropout::new(dropout), classifier }
    }

    /// The settings.
    pub fn config(&self) -> &BertConfig {
        self.bert.config()
    }

    /// The scores of the classes, `[batch, num_labels]`; as [`BertModel::forward_with`] otherwise.
    ///
    /// # Panics
    /// As that.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward_with(&self, input_ids: &Tensor, inputs: BertInputs) -> Tensor {
        let pooled = self.bert.pooled(&self.bert.forward_with(input_ids, inputs));
        self.classifier.forward(&self.dropout.forward(&pooled))
    }

    /// [`forward_with`](Self::forward_with) as part of a graph of [ONNX](crate::onnx).
    ///
    /// # Errors
    /// As [`BertModel::onnx_with`].
    pub fn onnx_with(
        &self,
        graph: &mut Graph,
        input_ids: &Value,
        inputs: BertOnnxInputs,
    ) -> Result<Value> {
        let features = self.bert.onnx_with(graph, input_ids, inputs)?;
        let pooled = self.bert.pooled_onnx(graph, &features)?;
        self.classifier.onnx(graph, &pooled)
    }

    /// The loss against `labels` (`model(.., labels=labels).loss`), by the config's `problem_type`: classes `[batch]`, or
    /// numbers `[batch, num_labels]`.
    ///
    /// # Panics
    /// As [`BertModel::forward_with`]; throws [`Error::Shape`] for labels of another shape.
    #[track_caller]
    #[crate::nn::forward]
    pub fn loss(&self, input_ids: &Tensor, inputs: BertInputs, labels: &Tensor) -> Tensor {
        let logits = self.forward_with(input_ids, inputs);
        let call = "BertForSequenceClassification::loss";
        classification_loss(call, &logits, labels, self.config().problem_type)
    }
}

impl Forward for BertForSequenceClassification {
    /// [`BertForSequenceClassification::forward_with`] without further inputs.
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input_ids: &Tensor) -> Tensor {
        self.forward_with(input_ids, BertInputs::default())
    }

    fn onnx(&self, graph: &mut Graph, input_ids: &Value) -> Result<Value> {
        self.onnx_with(graph, input_ids, BertOnnxInputs::default())
    }
}

impl Published for BertForSequenceClassification {
    const NAMES: Names = Names {
        base: "bert.",
        heads: &["classifier."],
        // A model that only guessed tokens has none.
        spare: &["bert.pooler."],
        others: &["cls.", "qa_outputs."],
        renamed: RENAMED,
    };

    fn config_table(&self) -> Result<Table> {
        self.config().table()
    }
}
