//! Neural collaborative filtering (He et al. 2017): how much a user will like an item. The model and
//! its names are those of `PyTorch/Recommendation/NCF/neumf.py` in NVIDIA's DeepLearningExamples,
//! which is also MLPerf's.

use crate::error::{Error, Result, throw};
use crate::nn::{
    Embedding, Forward, Linear, Module, Training, init::normal_, init::uniform_,
    init::xavier_uniform_,
};
use crate::onnx::{Graph, Value};
use crate::tensor::Tensor;

/// Options of [`NeuMF`].
#[derive(Clone, Debug, PartialEq)]
pub struct NeuMFOptions {
    /// Width of the vectors that are multiplied.
    pub mf_dim: usize,
    /// Widths of the multi-layer part; the first, which is even, is that of a user's and an item's
    /// vector side by side.
    pub mlp_layer_sizes: Vec<usize>,
    /// Dropout behind each of its layers.
    pub dropout: f64,
}

impl Default for NeuMFOptions {
    fn default() -> Self {
        NeuMFOptions { mf_dim: 64, mlp_layer_sizes: vec![256, 256, 128, 64], dropout: 0.5 }
    }
}

/// The product of a user's and an item's vector, and a multi-layer perceptron on another pair of them,
/// joined by a linear layer (`NeuMF`).
///
/// ```
/// use torchrs::{Tensor, models::{NeuMF, NeuMFOptions}};
/// let options = NeuMFOptions { mf_dim: 4, mlp_layer_sizes: vec![8, 4], dropout: 0.0 };
/// let model = NeuMF::new(100, 50, options);
/// let (users, items) = (Tensor::from([7i64, 99, 0]), Tensor::from([49i64, 0, 3]));
/// assert_eq!(model.forward(&users, &items, true).shape(), &[3, 1]);
/// ```
#[derive(Module)]
pub struct NeuMF {
    /// `[nb_users, mf_dim]`.
    pub mf_user_embed: Embedding,
    /// `[nb_items, mf_dim]`.
    pub mf_item_embed: Embedding,
    /// `[nb_users, mlp_layer_sizes[0] / 2]`.
    pub mlp_user_embed: Embedding,
    /// `[nb_items, mlp_layer_sizes[0] / 2]`.
    pub mlp_item_embed: Embedding,
    /// From each width to the next.
    pub mlp: Vec<Linear>,
    /// To one number.
    pub r#final: Linear,
    dropout: f64,
    training: Training,
}

impl NeuMF {
    /// Embeddings start normal with deviation 0.01, the layers by Xavier's rule, the last one by
    /// LeCun's.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when `mlp_layer_sizes` is empty or starts with an odd number, or for
    /// a dropout that is not from 0 to 1.
    #[track_caller]
    pub fn new(nb_users: usize, nb_items: usize, options: NeuMFOptions) -> Self {
        let NeuMFOptions { mf_dim, mlp_layer_sizes: sizes, dropout } = options;
        let bad = |argument: &str, message: String| -> ! {
            throw(Error::argument("NeuMF", argument, message))
        };
        let (Some(&first), Some(&last)) = (sizes.first(), sizes.last()) else {
            bad("mlp_layer_sizes", "is empty".into())
        };
        if !first.is_multiple_of(2) {
            bad("mlp_layer_sizes", format!("starts with {first}; user and item share it equally"));
        }
        if !(0.0..=1.0).contains(&dropout) {
            bad("dropout", format!("{dropout}; must be from 0 to 1"));
        }
        let embedding = |rows, width| {
            let table = Embedding::new(rows, width);
            normal_(&table.weight, 0.0, 0.01);
            table
        };
        let model = NeuMF {
            mf_user_embed: embedding(nb_users, mf_dim),
            mf_item_embed: embedding(nb_items, mf_dim),
            mlp_user_embed: embedding(nb_users, first / 2),
            mlp_item_embed: embedding(nb_items, first / 2),
            mlp: sizes.windows(2).map(|pair| Linear::new(pair[0], pair[1])).collect(),
            r#final: Linear::new(last + mf_dim, 1),
            dropout,
            training: Training::default(),
        };
        model.mlp.iter().for_each(|layer| xavier_uniform_(&layer.weight, 1.0));
        let limit = (3.0 / model.r#final.in_features() as f64).sqrt();
        uniform_(&model.r#final.weight, -limit, limit);
        model
    }

    /// The score of each pair, `[batch, 1]`, from indices of users and items, each `[batch]`. It is a
    /// logit, or with `sigmoid` a probability.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for indices of other shapes.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward(&self, user: &Tensor, item: &Tensor, sigmoid: bool) -> Tensor {
        if user.dim() != 1 || user.shape() != item.shape() {
            let message = format!(
                "user is {:?} and item {:?}; both must be [batch]",
                user.shape(),
                item.shape()
            );
            throw(Error::shape("NeuMF", message));
        }
        let product = self.mf_user_embed.forward(user) * self.mf_item_embed.forward(item);
        let pair = [self.mlp_user_embed.forward(user), self.mlp_item_embed.forward(item)];
        let mut x = Tensor::cat(&pair, 1);
        for layer in &self.mlp {
            x = layer.forward(&x).relu().dropout(self.dropout, self.training.get());
        }
        let score = self.r#final.forward(&Tensor::cat(&[product, x], 1));
        if sigmoid { score.sigmoid() } else { score }
    }

    /// What `forward` computes, as part of a graph of [ONNX](crate::onnx); users and items are `[batch]`.
    ///
    /// # Errors
    /// As the nodes, for shapes that do not fit.
    ///
    /// ```
    /// use torchrs::{Dtype, models::{NeuMF, NeuMFOptions}, onnx::Graph};
    /// let sizes = NeuMFOptions { mf_dim: 4, mlp_layer_sizes: vec![8, 4], dropout: 0.0 };
    /// let (model, mut graph) = (NeuMF::new(10, 20, sizes), Graph::new());
    /// let [user, item] = ["user", "item"].map(|name| graph.input(name, Dtype::I64, ["batch".into()]));
    /// let score = model.onnx(&mut graph, &user, &item, true)?;
    /// graph.output("score", &score);
    /// assert_eq!(score.shape(), ["batch".into(), 1.into()]);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn onnx(
        &self,
        graph: &mut Graph,
        user: &Value,
        item: &Value,
        sigmoid: bool,
    ) -> Result<Value> {
        let by_user = self.mf_user_embed.onnx(graph, user)?;
        let by_item = self.mf_item_embed.onnx(graph, item)?;
        let product = graph.binary("Mul", &by_user, &by_item)?;
        let by_user = self.mlp_user_embed.onnx(graph, user)?;
        let by_item = self.mlp_item_embed.onnx(graph, item)?;
        let mut x = graph.concat(&[&by_user, &by_item], 1)?;
        for layer in &self.mlp {
            x = layer.onnx(graph, &x)?;
            x = graph.unary("Relu", &x);
        }
        let x = graph.concat(&[&product, &x], 1)?;
        let score = self.r#final.onnx(graph, &x)?;
        Ok(if sigmoid { graph.unary("Sigmoid", &score) } else { score })
    }
}
