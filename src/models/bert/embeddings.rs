//! What BERT makes of tokens, their places and their kinds.

use super::layer::norm;
use super::{BertConfig, BertInputs, BertOnnxInputs, NAME};
use crate::error::{Error, Result, throw};
use crate::models::decoder;
use crate::nn::{Dropout, Embedding, Forward, LayerNorm, Module, init::normal_};
use crate::onnx::{Graph, Value};
use crate::tensor::{Dtype, Tensor};

/// Vectors of tokens, places and kinds, added and normed (`BertEmbeddings`).
#[derive(Module)]
pub struct BertEmbeddings {
    /// Of tokens, `[vocab_size, hidden_size]`.
    pub word_embeddings: Embedding,
    /// Of places, `[max_position_embeddings, hidden_size]`.
    pub position_embeddings: Embedding,
    /// Of kinds, `[type_vocab_size, hidden_size]`.
    pub token_type_embeddings: Embedding,
    /// Of the sum.
    #[module(rename = "LayerNorm")]
    pub layer_norm: LayerNorm,
    /// Behind the norm.
    pub dropout: Dropout,
    longest: usize,
}

impl BertEmbeddings {
    #[track_caller]
    pub(super) fn new(config: &BertConfig) -> Self {
        let table = |rows| {
            let table = Embedding::new(rows, config.hidden_size);
            normal_(&table.weight, 0.0, config.initializer_range);
            table
        };
        let words = table(config.vocab_size);
        BertEmbeddings {
            word_embeddings: match config.pad_token_id {
                Some(pad) => words.padding_idx(pad),
                None => words,
            },
            position_embeddings: table(config.max_position_embeddings),
            token_type_embeddings: table(config.type_vocab_size),
            layer_norm: norm(config),
            dropout: Dropout::new(config.hidden_dropout_prob),
            longest: config.max_position_embeddings,
        }
    }

    #[track_caller]
    #[crate::nn::forward]
    pub(super) fn forward(&self, input_ids: &Tensor, inputs: &BertInputs) -> Tensor {
        let &[_, length] = input_ids.shape() else {
            let message = format!("input_ids is {:?}; must be [batch, length]", input_ids.shape());
            throw(Error::shape(NAME, message))
        };
        let places = match inputs.position_ids {
            Some(places) => {
                decoder::check_positions(NAME, places, input_ids);
                places.clone()
            }
            None if length > self.longest => {
                let message = format!(
                    "{length} tokens are more than max_position_embeddings, {}",
                    self.longest
                );
                throw(Error::argument(NAME, "input_ids", message))
            }
            None => decoder::positions(0, length, input_ids),
        };
        let types = match inputs.token_type_ids {
            Some(types) if types.shape() == input_ids.shape() => types.clone(),
            Some(types) => {
                let message = format!(
                    "token_type_ids is {:?}; must be {:?}, as the tokens",
                    types.shape(),
                    input_ids.shape()
                );
                throw(Error::shape(NAME, message))
            }
            None => Tensor::zeros([1], (Dtype::I64, input_ids.device())),
        };
        let words = self.word_embeddings.forward(input_ids);
        let x = words + self.token_type_embeddings.forward(&types);
        let x = x + self.position_embeddings.forward(&places);
        self.dropout.forward(&self.layer_norm.forward(&x))
    }

    pub(super) fn onnx(
        &self,
        graph: &mut Graph,
        input_ids: &Value,
        inputs: &BertOnnxInputs,
    ) -> Result<Value> {
        let words = self.word_embeddings.onnx(graph, input_ids)?;
        let types = match inputs.token_type_ids {
            Some(types) => types.clone(),
            None => {
                let first = Tensor::zeros([1], Dtype::I64);
                graph.constant(&first)
            }
        };
        let places = match inputs.position_ids {
            Some(places) => places.clone(),
            None => graph.positions(input_ids, 1),
        };
        let types = self.token_type_embeddings.onnx(graph, &types)?;
        let x = graph.binary("Add", &words, &types)?;
        let places = self.position_embeddings.onnx(graph, &places)?;
        let x = graph.binary("Add", &x, &places)?;
        self.layer_norm.onnx(graph, &x)
    }
}
