//! The sizes of one attention, and what its operands must be.

use crate::cpu::attention::{Attention, Band};
use crate::error::{Error, throw};
use crate::tensor::{Dtype, Shape, Tensor, broadcast_shapes};

/// The name under which backward's operations are counted.
pub(super) const BACKWARD: &str = "scaled_dot_product_attention_backward";
/// The op's name.
pub(super) const OP: &str = "scaled_dot_product_attention";

/// Which keys a query sees by its place, and the factor of the scores.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    pub(super) is_causal: bool,
    pub(super) window: (i64, i64),
    pub(super) scale: Option<f64>,
}

/// No window: all keys on both sides.
pub(super) const NO_WINDOW: (i64, i64) = (-1, -1);

impl Rules {
    /// Of the factor for queries of `depth` numbers.
    pub(super) fn scale(self, depth: usize) -> f64 {
        self.scale.unwrap_or(1.0 / (depth as f64).sqrt())
    }

    /// The window's keys, counted from the key that is as far from the last one as the query is from the last query.
    #[track_caller]
    pub(super) fn window(self, op: &str) -> Band {
        let (left, right) = self.window;
        if left < -1 || right < -1 {
            let rule = "each must be -1 (no limit), 0 or more";
            throw(Error::argument(op, "window_size", format!("({left}, {right}); {rule}")));
        }
        let far = |n: i64| if n < 0 { Band::FAR } else { n.min(Band::FAR) };
        Band { low: -far(left), high: far(right) }
    }

    #[track_caller]
    fn band(self, queries: usize, keys: usize) -> Band {
        let window = self.window(OP);
        if self.window == NO_WINDOW {
            return if self.is_causal { Band::CAUSAL } else { Band::ALL };
        }
        if self.is_causal && queries != keys {
            throw(Error::argument(
                OP,
                "is_causal",
                format!(
                    "true beside a window_size, for {queries} queries and {keys} keys: `is_causal` counts from the first \
                     ones and a window from the last; give window_size ({}, 0) instead",
                    self.window.0
                ),
            ));
        }
        let high = if self.is_causal { window.high.min(0) } else { window.high };
        let band = Band { high, ..window }.from_last(queries, keys);
        // A limit that hides nothing is none: other kernels may take it then.
        let low = if band.low <= 1 - queries as i64 { -Band::FAR } else { band.low };
        let high = if band.high >= keys as i64 - 1 { Band::FAR } else { band.high };
        Band { low, high }
    }
}

/// What forward and backward agree on.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) batch: Shape,
    pub(super) attention: Attention,
}

impl Plan {
    /// Operations of `by_depth` products of queries, keys and features, and `by_width` with the values' features.
    pub(super) fn flops(&self, by_depth: usize, by_width: usize) -> u64 {
        let a = &self.attention;
        let pairs = self.batch.iter().product::<usize>() * a.queries * a.keys;
        2 * pairs as u64 * (by_depth * a.depth + by_width * a.width) as u64
    }

    #[track_caller]
    pub(super) fn new(
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        mask: Option<&Tensor>,
        rules: Rules,
    ) -> Self {
        let fail = |rule: &str| -> ! {
            let mask = mask.map_or(String::new(), |m| format!(", attn_mask {:?}", m.shape()));
            throw(Error::shape(
                OP,
                format!(
                    "query {:?}, key {:?}, value {:?}{mask} do not fit: {rule}",
                    q.shape(),
                    k.shape(),
                    v.shape()
                ),
            ))
        };
        if [q, k, v].iter().any(|t| t.dim() < 2) {
            fail("each must have at least 2 dimensions, [.., length, features]")
        }
        let last = |t: &Tensor| (t.shape()[t.dim() - 2], t.shape()[t.dim() - 1]);
        let ((queries, depth), (keys, key_depth), (values, width)) = (last(q), last(k), last(v));
        if depth != key_depth {
            fail("queries and keys must have the same last size")
        }
        if keys != values {
            fail("keys and values must have the same length")
        }
        let outer = |t: &Tensor| Shape::from_slice(&t.shape()[..t.dim() - 2]);
        let Some(batch) = broadcast_shapes(&outer(q), &outer(k))
            .and_then(|batch| broadcast_shapes(&batch, &outer(v)))
            .ok()
        else {
            fail("the leading dimensions must broadcast")
        };
        if let Some(mask) = mask {
            let mut full = batch.clone();
            full.extend([queries, keys]);
            if broadcast_shapes(mask.shape(), &full).map_or(true, |s| s != full) {
                fail("attn_mask must broadcast to [.., query length, key length]")
            }
            if rules.is_causal {
                throw(Error::argument(
                    OP,
                    "is_causal",
                    "true beside an attn_mask; give one of them",
                ));
            }
            if mask.dtype() != Dtype::Bool && mask.dtype() != q.dtype() {
                throw(Error::dtype(
                    OP,
                    format!(
                        "attn_mask is {}, must be bool or the query's {}",
                        mask.dtype(),
                        q.dtype()
                    ),
                ));
            }
        }
        if k.dtype() != q.dtype() || v.dtype() != q.dtype() {
            throw(Error::dtype(
                OP,
                format!(
                    "query {}, key {}, value {}: must be equal",
                    q.dtype(),
                    k.dtype(),
                    v.dtype()
                ),
            ));
        }
        let (scale, band) = (rules.scale(depth), rules.band(queries, keys));
        let attention = Attention { queries, keys, depth, width, scale, band };
        Plan { batch, attention }
    }

    /// Whether each query sees all keys, or all up to its own.
    pub(super) fn is_whole_or_causal(&self) -> bool {
        [Band::ALL, Band::CAUSAL].contains(&self.attention.band)
    }

    pub(super) fn count(&self) -> usize {
        self.batch.iter().product()
    }

    /// Whether its sizes are such as cuDNN takes of halves.
    pub(super) fn fits_cudnn(&self) -> bool {
        let a = self.attention;
        let fits = |features: usize| (1..=128).contains(&features) && features.is_multiple_of(8);
        fits(a.depth) && fits(a.width) && self.count() * a.queries * a.keys > 0
    }

    pub(super) fn with_batch(&self, last: [usize; 2]) -> Shape {
        let mut shape = self.batch.clone();
        shape.extend(last);
        shape
    }
}
