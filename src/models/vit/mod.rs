//! ViT (Dosovitskiy et al., "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale", 2020), as in
//! `transformers.models.vit`. Names are those of published files, which version 5 of transformers writes, too; those of
//! its modules (`layers.0.attention.q_proj`) are understood.

mod config;
mod layers;

pub use config::ViTConfig;
pub use layers::{ViTAttention, ViTEmbeddings, ViTEncoder, ViTLayer, ViTPatchEmbeddings};

use self::layers::norm;
use super::encoder::{EncoderPooler, classification_loss, classifier, pooled, pooled_onnx};
use super::pretrained::{Names, Published, settings::Table};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::nn::{Forward, LayerNorm, Linear, Module};
use crate::onnx::{Graph, Value};
use crate::tensor::Tensor;

/// The model's name in errors.
const NAME: &str = "ViT";

/// Names of version 5 of transformers, and those of files.
const RENAMED: &[(&str, &str)] = &[
    ("layers.", "encoder.layer."),
    (".attention.q_proj.", ".attention.attention.query."),
    (".attention.k_proj.", ".attention.attention.key."),
    (".attention.v_proj.", ".attention.attention.value."),
    (".attention.o_proj.", ".attention.output.dense."),
    (".mlp.fc1.", ".intermediate.dense."),
    (".mlp.fc2.", ".output.dense."),
];

/// ViT without a head (`ViTModel`).
///
/// ```
/// use torchrs::{Dtype, Tensor};
/// use torchrs::models::{ViTConfig, ViTModel};
/// use torchrs::nn::{Forward, Module};
/// let sizes = ViTConfig { hidden_size: 8, intermediate_size: 16, num_attention_heads: 2, ..Default::default() };
/// let model = ViTModel::new(ViTConfig { num_hidden_layers: 2, image_size: [32, 32], ..sizes });
/// let features = model.forward(&Tensor::randn([1, 3, 32, 32], Dtype::F32));
/// assert_eq!(features.shape(), &[1, 5, 8]);
/// assert_eq!(model.pooled(&features).shape(), &[1, 8]);
/// ```
#[derive(Module)]
pub struct ViTModel {
    /// Of the image's patches.
    pub embeddings: ViTEmbeddings,
    /// The layers.
    pub encoder: ViTEncoder,
    /// Behind the layers.
    pub layernorm: LayerNorm,
    /// On the features of the whole image; classifiers have none.
    pub pooler: Option<EncoderPooler>,
    #[module(skip)]
    config: ViTConfig,
}

impl ViTModel {
    /// Weights start normal with deviation `initializer_range`, those of norms at 1, biases at 0.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for sizes that cannot be.
    #[track_caller]
    pub fn new(config: ViTConfig) -> Self {
        Self::with_pooler(config, true)
    }

    /// [`new`](Self::new) with a pooler or without (`add_pooling_layer`).
    ///
    /// # Panics
    /// As that.
    #[track_caller]
    pub fn with_pooler(config: ViTConfig, add_pooling_layer: bool) -> Self {
        config.check();
        let (range, width) = (config.initializer_range, config.hidden_size);
        let outputs = config.pooler_output_size.unwrap_or(width);
        let pooler = || EncoderPooler::new(range, width, outputs, config.pooler_act);
        ViTModel {
            embeddings: ViTEmbeddings::new(&config),
            encoder: ViTEncoder {
                layer: (0..config.num_hidden_layers).map(|_| ViTLayer::new(&config)).collect(),
            },
            layernorm: norm(&config),
            pooler: add_pooling_layer.then(pooler),
            config,
        }
    }

    /// The settings.
    pub fn config(&self) -> &ViTConfig {
        &self.config
    }

    /// What the pooler makes of features, `[batch, pooler_output_size]` (`pooler_output`).
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for a model without a pooler.
    #[track_caller]
    pub fn pooled(&self, features: &Tensor) -> Tensor {
        pooled("ViTModel", self.pooler.as_ref(), features)
    }

    /// [`pooled`](Self::pooled) as part of a graph of [ONNX](crate::onnx).
    ///
    /// # Errors
    /// [`Error::Argument`] for a model without a pooler.
    pub fn pooled_onnx(&self, graph: &mut Graph, features: &Value) -> Result<Value> {
        pooled_onnx("ViTModel", self.pooler.as_ref(), graph, features)
    }
}

impl Forward for ViTModel {
    /// The last features, `[batch, patches + 1, hidden_size]`, of images `[batch, channels, height, width]`
    /// (`last_hidden_state`); the first are those of the whole image.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for images of another size.
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, pixel_values: &Tensor) -> Tensor {
        let mut x = (self.embeddings.forward(pixel_values), None);
        for layer in &self.encoder.layer {
            x = layer.forward(x);
        }
        match x {
            (x, Some(added)) => self.layernorm.forward_add(&x, &added).1,
            (x, None) => self.layernorm.forward(&x),
        }
    }

    fn onnx(&self, graph: &mut Graph, pixel_values: &Value) -> Result<Value> {
        let x = self.embeddings.onnx(graph, pixel_values)?;
        let x = self.encoder.layer.iter().try_fold(x, |x, layer| layer.onnx(graph, &x))?;
        self.layernorm.onnx(graph, &x)
    }
}

impl Published for ViTModel {
    const NAMES: Names = Names {
        base: "vit.",
        heads: &[],
        spare: &["pooler."],
        others: &["classifier.", "decoder.", "embeddings.mask_token"],
        renamed: RENAMED,
    };

    fn config_table(&self) -> Result<Table> {
        self.config.table()
    }
}

/// ViT with a head that classifies images (`ViTForImageClassification`).
///
/// ```
/// use torchrs::{Dtype, Tensor};
/// use torchrs::models::{ViTConfig, ViTForImageClassification};
/// use torchrs::nn::{Forward, Module};
/// let sizes = ViTConfig { hidden_size: 8, intermediate_size: 16, num_attention_heads: 2, ..Default::default() };
/// let config = ViTConfig { num_hidden_layers: 2, image_size: [32, 32], ..sizes }.with_num_labels(10);
/// let model = ViTForImageClassification::new(config);
/// let images = Tensor::randn([2, 3, 32, 32], Dtype::F32);
/// assert_eq!(model.forward(&images).shape(), &[2, 10]);
/// model.loss(&images, &Tensor::from([3i64, 9])).backward();
/// ```
#[derive(Module)]
pub struct ViTForImageClassification {
    /// All but the head.
    pub vit: ViTModel,
    /// The head.
    pub classifier: Linear,
}

impl ViTForImageClassification {
    /// As [`ViTModel::new`]; without a pooler.
    ///
    /// # Panics
    /// As that; throws [`Error::Argument`] for settings without classes.
    #[track_caller]
    pub fn new(config: ViTConfig) -> Self {
        let vit = ViTModel::with_pooler(config, false);
        let config = vit.config();
        let (range, width) = (config.initializer_range, config.hidden_size);
        let classifier = classifier("ViTConfig", range, width, &config.id2label);
        ViTForImageClassification { vit, classifier }
    }

    /// The settings.
    pub fn config(&self) -> &ViTConfig {
        self.vit.config()
    }

    /// The loss against `labels` (`model(.., labels=labels).loss`), by the config's `problem_type`: classes `[batch]`, or
    /// numbers `[batch, num_labels]`.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for images of another size and labels of another shape.
    #[track_caller]
    #[crate::nn::forward]
    pub fn loss(&self, pixel_values: &Tensor, labels: &Tensor) -> Tensor {
        let logits = self.forward(pixel_values);
        let call = "ViTForImageClassification::loss";
        classification_loss(call, &logits, labels, self.config().problem_type)
    }
}

impl Forward for ViTForImageClassification {
    /// The scores of the classes, `[batch, num_labels]`, of images `[batch, channels, height, width]`.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for images of another size.
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, pixel_values: &Tensor) -> Tensor {
        self.classifier.forward(&self.vit.forward(pixel_values).select(1, 0))
    }

    fn onnx(&self, graph: &mut Graph, pixel_values: &Value) -> Result<Value> {
        let features = self.vit.onnx(graph, pixel_values)?;
        let whole = graph.select(&features, 1, 0)?;
        self.classifier.onnx(graph, &whole)
    }
}

impl Published for ViTForImageClassification {
    const NAMES: Names = Names {
        base: "vit.",
        heads: &["classifier."],
        spare: &[],
        others: &["pooler.", "decoder.", "embeddings.mask_token"],
        renamed: RENAMED,
    };

    fn config_table(&self) -> Result<Table> {
        self.config().table()
    }
}
