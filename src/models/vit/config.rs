//! The settings of ViT.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

use crate::error::{Error, Result, throw};
use crate::models::HiddenActivation;
use crate::models::encoder::{ProblemType, Sizes, label2id, numbered, read_labels};
use crate::models::pretrained::settings::{self, Fault};

/// The settings of a ViT (`transformers.ViTConfig`), by Hugging Face's names.
///
/// ```
/// use torchrs::models::ViTConfig;
/// let config = ViTConfig { image_size: [32, 64], patch_size: [8, 8], ..Default::default() };
/// assert_eq!((config.num_patches(), config.num_labels()), (32, 2));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ViTConfig {
    /// Width of the layers.
    pub hidden_size: usize,
    /// Number of layers.
    pub num_hidden_layers: usize,
    /// Heads of each attention; they share the width.
    pub num_attention_heads: usize,
    /// Width within the feed-forward layers.
    pub intermediate_size: usize,
    /// The function within the feed-forward layers.
    pub hidden_act: HiddenActivation,
    /// Dropout on embeddings and on what is added to the shortcuts.
    pub hidden_dropout_prob: f64,
    /// Dropout on the shares of attention.
    pub attention_probs_dropout_prob: f64,
    /// Deviation of the initial weights.
    pub initializer_range: f64,
    /// What norms add to the variance.
    pub layer_norm_eps: f64,
    /// Height and width of images; files have one number where they are equal.
    #[serde(serialize_with = "as_size", deserialize_with = "size")]
    pub image_size: [usize; 2],
    /// Height and width of a patch.
    #[serde(serialize_with = "as_size", deserialize_with = "size")]
    pub patch_size: [usize; 2],
    /// Channels of images.
    pub num_channels: usize,
    /// Whether queries, keys and values have biases.
    pub qkv_bias: bool,
    /// Width of what the pooler gives; `None`: as `hidden_size`.
    pub pooler_output_size: Option<usize>,
    /// The pooler's function.
    pub pooler_act: HiddenActivation,
    /// The names of a classifier's classes.
    pub id2label: BTreeMap<usize, String>,
    /// What a classifier's labels are; `None`: as the labels themselves tell.
    pub problem_type: Option<ProblemType>,
}

fn size<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<[usize; 2], D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Size {
        Square(usize),
        Sides([usize; 2]),
    }
    Ok(match Size::deserialize(from)? {
        Size::Square(side) => [side, side],
        Size::Sides(sides) => sides,
    })
}

fn as_size<S: Serializer>(sides: &[usize; 2], to: S) -> std::result::Result<S::Ok, S::Error> {
    match sides {
        [height, width] if height == width => height.serialize(to),
        sides => sides.serialize(to),
    }
}

impl Default for ViTConfig {
    /// The base model on images of 224 x 224, in patches of 16 x 16.
    fn default() -> Self {
        ViTConfig {
            hidden_size: 768,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            intermediate_size: 3072,
            hidden_act: HiddenActivation::Gelu,
            hidden_dropout_prob: 0.0,
            attention_probs_dropout_prob: 0.0,
            initializer_range: 0.02,
            layer_norm_eps: 1e-12,
            image_size: [224, 224],
            patch_size: [16, 16],
            num_channels: 3,
            qkv_bias: true,
            pooler_output_size: None,
            pooler_act: HiddenActivation::Tanh,
            id2label: numbered(2),
            problem_type: None,
        }
    }
}

impl ViTConfig {
    /// Reads a `config.json`. Keys that change nothing of what is computed are ignored.
    ///
    /// # Errors
    /// [`Error::File`] that names the key or value that is not known here, such as another `model_type`; [`Error::Os`]
    /// where it cannot be read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let fixed = [
            ("model_type", vec![json!("vit")]),
            ("is_encoder_decoder", vec![json!(false)]),
            ("pruned_heads", vec![json!({})]),
        ];
        // The stride is of another head's.
        let neutral = ["encoder_stride"];
        settings::read(path.as_ref(), &fixed, &neutral, read_labels, Self::fault)
    }

    /// How many patches an image has.
    pub fn num_patches(&self) -> usize {
        let along = |i: usize| self.image_size[i] / self.patch_size[i].max(1);
        along(0) * along(1)
    }

    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            width: self.hidden_size,
            inner: self.intermediate_size,
            heads: self.num_attention_heads,
            qkv_bias: self.qkv_bias,
            activation: self.hidden_act,
            attention_dropout: self.attention_probs_dropout_prob,
            range: self.initializer_range,
        }
    }

    pub(super) fn table(&self) -> Result<settings::Table> {
        let mut table = settings::table_of(self)?;
        table.insert("model_type".into(), json!("vit"));
        table.insert("label2id".into(), label2id(&self.id2label));
        Ok(table)
    }

    #[track_caller]
    pub(super) fn check(&self) {
        if let Some((what, why)) = self.fault() {
            throw(Error::argument("ViTConfig", what, why))
        }
    }

    /// A setting that cannot be, and why.
    fn fault(&self) -> Option<Fault> {
        let sizes = [
            ("hidden_size", self.hidden_size),
            ("num_attention_heads", self.num_attention_heads),
            ("intermediate_size", self.intermediate_size),
            ("num_channels", self.num_channels),
            ("pooler_output_size", self.pooler_output_size.unwrap_or(1)),
            ("patch_size", self.patch_size[0].min(self.patch_size[1])),
        ];
        let of_patches = || {
            let why = format!("{:?}, below a patch of {:?}", self.image_size, self.patch_size);
            (self.num_patches() == 0).then_some(("image_size", why))
        };
        let chances = [
            ("hidden_dropout_prob", self.hidden_dropout_prob),
            ("attention_probs_dropout_prob", self.attention_probs_dropout_prob),
        ];
        settings::zero(&sizes)
            .or_else(of_patches)
            .or_else(|| self.sizes().fault())
            .or_else(|| settings::no_probability(&chances))
    }
}
