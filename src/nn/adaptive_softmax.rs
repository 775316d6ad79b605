//! A softmax of many classes of which most are rare (`torch/nn/modules/adaptive.py`; Grave et al.
//! 2017): the frequent ones and the clusters of rare ones share the head; each cluster has a narrower
//! tail of its own.

use super::{Forward, Linear, Module, Sequential};
use crate::error::{Error, throw};
use crate::tensor::Tensor;

/// Options of [`AdaptiveLogSoftmaxWithLoss`], with PyTorch's defaults.
///
/// ```
/// use torchrs::nn::{AdaptiveLogSoftmaxOptions, AdaptiveLogSoftmaxWithLoss, Module};
/// let options = AdaptiveLogSoftmaxOptions { div_value: 2.0, head_bias: true };
/// let softmax = AdaptiveLogSoftmaxWithLoss::new(16, 100, &[10, 30], options);
/// assert_eq!(softmax.tail[1].parameters()[0].shape(), &[4, 16]);
/// assert!(softmax.head.bias.is_some());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptiveLogSoftmaxOptions {
    /// By how much the width falls from each cluster to the next, rarer one.
    pub div_value: f64,
    /// Whether the head has a bias.
    pub head_bias: bool,
}

impl Default for AdaptiveLogSoftmaxOptions {
    fn default() -> Self {
        AdaptiveLogSoftmaxOptions { div_value: 4.0, head_bias: false }
    }
}

/// Log-probabilities of classes that are ordered by frequency, the most frequent first
/// (`torch.nn.AdaptiveLogSoftmaxWithLoss`).
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::AdaptiveLogSoftmaxWithLoss};
/// let softmax = AdaptiveLogSoftmaxWithLoss::new(16, 100, &[10, 30], Default::default());
/// let x = Tensor::ones([3, 16], Dtype::F32);
/// let (own, loss) = softmax.forward(&x, &Tensor::from([0i64, 17, 99]));
/// assert!((own.mean().item() + loss.item()).abs() < 1e-6);
/// assert_eq!(softmax.log_prob(&x).shape(), &[3, 100]);
/// ```
#[derive(Module)]
pub struct AdaptiveLogSoftmaxWithLoss {
    /// Scores of the frequent classes, then of the clusters.
    pub head: Linear,
    /// Of each cluster two linear layers.
    pub tail: Vec<Sequential>,
    /// Where clusters start, and the number of classes.
    cutoffs: Vec<usize>,
}

impl AdaptiveLogSoftmaxWithLoss {
    /// For vectors of size `in_features`; the clusters of rare classes start at `cutoffs`.
    ///
    /// ```
    /// use torchrs::nn::AdaptiveLogSoftmaxWithLoss;
    /// // Four frequent classes and two clusters, of 6 and of 10.
    /// let softmax = AdaptiveLogSoftmaxWithLoss::new(8, 20, &[4, 10], Default::default());
    /// assert_eq!((softmax.head.out_features(), softmax.tail.len()), (4 + 2, 2));
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] unless the cutoffs rise and are between 1 and `n_classes - 1`.
    #[track_caller]
    pub fn new(
        in_features: usize,
        n_classes: usize,
        cutoffs: &[usize],
        options: AdaptiveLogSoftmaxOptions,
    ) -> Self {
        let rising = cutoffs.is_sorted_by(|a, b| a < b);
        let (Some(&first), Some(&last)) = (cutoffs.first(), cutoffs.last()) else {
            throw(Error::argument("AdaptiveLogSoftmaxWithLoss", "cutoffs", "is empty"))
        };
        if !rising || first == 0 || last >= n_classes {
            let message =
                format!("{cutoffs:?}; must rise, from at least 1 to less than {n_classes}");
            throw(Error::argument("AdaptiveLogSoftmaxWithLoss", "cutoffs", message));
        }
        let head_size = first + cutoffs.len();
        let head = match options.head_bias {
            true => Linear::new(in_features, head_size),
            false => Linear::no_bias(in_features, head_size),
        };
        let cutoffs: Vec<usize> = cutoffs.iter().copied().chain([n_classes]).collect();
        let tail = cutoffs.windows(2).enumerate().map(|(i, cluster)| {
            let narrow = in_features as f64 / options.div_value.powi(i as i32 + 1);
            let hidden = narrow.floor() as usize;
            Sequential::new()
                .append(Linear::no_bias(in_features, hidden))
                .append(Linear::no_bias(hidden, cluster[1] - cluster[0]))
        });
        let tail = tail.collect();
        AdaptiveLogSoftmaxWithLoss { head, tail, cutoffs }
    }

    /// The log-probability of each sample's class, and minus their mean, for vectors `[N, in_features]`
    /// and classes `[N]`, or `[in_features]` and `[]`.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::AdaptiveLogSoftmaxWithLoss};
    /// let softmax = AdaptiveLogSoftmaxWithLoss::new(8, 20, &[4, 10], Default::default());
    /// let (x, classes) = (Tensor::randn([2, 8], Dtype::F32), Tensor::from([1i64, 15]));
    /// let (own, loss) = softmax.forward(&x, &classes);
    /// let all = softmax.log_prob(&x).gather(1, &classes.unsqueeze(1)).squeeze_dim(1);
    /// assert!((&own - all).abs().max().item() < 1e-5 && (own.mean() + loss).item().abs() < 1e-5);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for other shapes, and [`Error::Argument`] for a class that does not
    /// exist.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> (Tensor, Tensor) {
        const OP: &str = "AdaptiveLogSoftmaxWithLoss";
        if input.dim() != target.dim() + 1 || target.dim() > 1 || input.numel() == 0 {
            let (x, t) = (input.shape(), target.shape());
            let message = format!("input {x:?} and target {t:?} must be [N, features] and [N]");
            throw(Error::shape(OP, message));
        }
        if target.dim() == 0 {
            let (own, loss) = self.forward(&input.unsqueeze(0), &target.unsqueeze(0));
            return (own.squeeze_dim(0), loss);
        }
        target.assert_has_values(OP);
        let classes = target.to_vec::<i64>();
        let (n, most) = (self.cutoffs[self.cutoffs.len() - 1], self.cutoffs[0] as i64);
        if classes.len() != input.size(0) {
            let (x, t) = (input.shape(), target.shape());
            throw(Error::shape(OP, format!("{x:?} and {t:?} are not as many samples and classes")));
        }
        if let Some(wrong) = classes.iter().find(|c| !(0..n as i64).contains(*c)) {
            throw(Error::argument(OP, "target", format!("{wrong}; must be from 0 to {}", n - 1)));
        }
        // What the head has to say about a sample: its class, or its cluster.
        let cluster = |class: i64| self.cutoffs.iter().take_while(|&&c| class >= c as i64).count();
        let here = |list: Vec<i64>| Tensor::from(list).to_device(input.device());
        let at_head = classes.iter().map(|&class| match cluster(class) {
            0 => class,
            i => most + i as i64 - 1,
        });
        let at_head = here(at_head.collect()).unsqueeze(1);
        let head = self.head.forward(input).log_softmax(1);
        let mut own = head.gather(1, &at_head).squeeze_dim(1);
        for (i, tail) in self.tail.iter().enumerate() {
            let rows: Vec<i64> = (0..classes.len() as i64)
                .filter(|&row| cluster(classes[row as usize]) == i + 1)
                .collect();
            if rows.is_empty() {
                continue;
            }
            let start = self.cutoffs[i] as i64;
            let within = rows.iter().map(|&row| classes[row as usize] - start);
            let within = here(within.collect()).unsqueeze(1);
            let rows = here(rows);
            let scores = tail.forward(&input.index_select(0, &rows)).log_softmax(1);
            own = own.index_add(0, &rows, &scores.gather(1, &within).squeeze_dim(1));
        }
        let loss = -own.mean();
        (own, loss)
    }

    /// Log-probabilities of all classes, `[N, n_classes]`, for vectors `[N, in_features]`.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::AdaptiveLogSoftmaxWithLoss};
    /// let softmax = AdaptiveLogSoftmaxWithLoss::new(8, 20, &[4, 10], Default::default());
    /// let shares = softmax.log_prob(&Tensor::randn([2, 8], Dtype::F32)).exp();
    /// assert!((shares.sum_dim(&[1], false) - 1.0).abs().max().item() < 1e-5);
    /// ```
    #[track_caller]
    pub fn log_prob(&self, input: &Tensor) -> Tensor {
        let head = self.head.forward(input).log_softmax(1);
        let most = self.cutoffs[0];
        let rare = self
            .tail
            .iter()
            .enumerate()
            .map(|(i, tail)| tail.forward(input).log_softmax(1) + head.narrow(1, most + i, 1));
        let all: Vec<Tensor> = std::iter::once(head.narrow(1, 0, most)).chain(rare).collect();
        Tensor::cat(&all, 1)
    }

    /// The most probable class of each sample, `[N]`.
    #[track_caller]
    pub fn predict(&self, input: &Tensor) -> Tensor {
        self.log_prob(input).argmax_dim(1, false)
    }
}
