//! Attention of sequences of several lengths that lie one after the other, without padding
//! (`torch.nn.attention.varlen.varlen_attn`; Dao, "FlashAttention-2", 2023).
//!
//! Queries are `[total, heads, E]`: the rows of the first sequence, then those of the second one. Where each starts, and
//! where the last one ends, is in a tensor. A sequence's queries see its own keys. All sequences are computed at once, by
//! what computes attention of one; where only products of matrices are left, sequences are computed one by one.

use smallvec::{SmallVec, smallvec};

use super::cpu::{self, Sequence};
use super::flash::Call;
use super::plan::{NO_WINDOW, Plan, Rules};
use super::{cuda, gpu};
use crate::amp::cast_op;
use crate::autograd::{Grads, no_grad, record};
use crate::cpu::attention::{Attention, Band};
use crate::cuda::{Kernel, Program, cuda_args, refusal::Rule, sources::program};
use crate::error::{Error, throw, within};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::{
    gpu::Gpu,
    recompute::{keep, recalled},
};
use crate::profiler::flops;
use crate::storage::Device;
use crate::tensor::{Dtype, Shape, Tensor};

const OP: &str = "varlen_attn";
const BACKWARD: &str = "varlen_attn_backward";

pub(in crate::ops) static PROGRAM: Program = program!("lengths": "refusal.cuh", "lengths.cu");

static LENGTHS: Kernel = Kernel::new(&PROGRAM, "lengths");

/// Options of [`Tensor::varlen_attn`].
///
/// ```
/// use torchrs::ops::VarlenOptions;
/// // Each token sees itself and 128 before it.
/// let options = VarlenOptions { window_size: (128, 0), ..Default::default() };
/// assert!(!options.is_causal);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VarlenOptions {
    /// Whether a query sees no key that is nearer to the end of its sequence than itself.
    pub is_causal: bool,
    /// Factor of the scores; `None` is 1 / sqrt(E).
    pub scale: Option<f64>,
    /// Whether queries may have more heads than keys and values, of which each then serves several neighbouring ones.
    pub enable_gqa: bool,
    /// A sliding window (left, right): query i of L sees the keys from i + S - L - left to i + S - L + right of S; -1 is
    /// no limit.
    pub window_size: (i64, i64),
}

impl Default for VarlenOptions {
    fn default() -> Self {
        VarlenOptions { is_causal: false, scale: None, enable_gqa: false, window_size: NO_WINDOW }
    }
}

impl Tensor {
    /// Attention of sequences of several lengths that lie one after the other
    /// (`torch.nn.attention.varlen.varlen_attn`): queries `[total_q, H, E]`, keys `[total_k, H, E]`, values
    /// `[total_k, H, D]`; the result is `[total_q, H, D]`.
    ///
    /// `cu_seq_q` and `cu_seq_k` (i32, one number more than sequences) are where the sequences start, and where the last
    /// one ends; `max_q` and `max_k` are the longest lengths, or more. With `is_causal` the last query of a sequence sees
    /// all its keys, the one before it all but the last, as flash-attention has it. A query that sees no key gives 0.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] and [`Error::Dtype`] for tensors that do not fit, and [`Error::Argument`] for a window below
    /// -1 and for starts that do not begin at 0, that fall, that end elsewhere than the rows, or of which two are farther
    /// from each other than the longest length. On a GPU the kernel looks at the starts: wrong ones end all work on the
    /// device, as indices do that are out of range.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, ops::VarlenOptions};
    /// // Two sequences: of one token, and of two.
    /// let (q, v) = (Tensor::zeros([3, 1, 1], Dtype::F64), Tensor::from([[[5f64]], [[1.]], [[3.]]]));
    /// let starts = Tensor::from([0i32, 1, 3]);
    /// let y = q.varlen_attn(&q, &v, &starts, &starts, 2, 2, VarlenOptions::default());
    /// assert_eq!(y.to_vec::<f64>(), [5.0, 2.0, 2.0]);
    /// ```
    #[track_caller]
    #[allow(clippy::too_many_arguments, reason = "PyTorch's")]
    pub fn varlen_attn(
        &self,
        key: &Tensor,
        value: &Tensor,
        cu_seq_q: &Tensor,
        cu_seq_k: &Tensor,
        max_q: usize,
        max_k: usize,
        options: VarlenOptions,
    ) -> Tensor {
        cast_op!("varlen_attn", [q = self, k = key, v = value] => {
            q.varlen_attn(&k, &v, cu_seq_q, cu_seq_k, max_q, max_k, options)
        });
        let qkv = [self, key, value];
        let plan = plan(qkv, options);
        let lengths = Lengths::new([cu_seq_q, cu_seq_k], [max_q, max_k], &plan);
        let _line = within::line();
        let call = VarlenCall { plan, lengths };
        let Some(gpu) = gpu::of(OP, &[self, key, value, cu_seq_q, cu_seq_k]) else {
            let (y, logsum) = no_grad(|| call.forward(qkv, Place::Host));
            return call.recorded(None, qkv, y, logsum);
        };
        call.lengths.look(gpu, &call.plan);
        let operands = no_grad(|| apart(qkv, call.plan.batch[0]));
        match cuda::tiles(gpu, &call.plan, operands.each_ref(), None) {
            Some(tiles) => {
                let tiles = tiles.packed(call.lengths.clone());
                let (y, logsum) = no_grad(|| call.forward(qkv, Place::Device(gpu, &tiles)));
                call.recorded(Some(gpu), qkv, y, logsum)
            }
            None => call.by_sequences(gpu, qkv),
        }
    }
}

/// What computes a call.
enum Place<'a> {
    Host,
    Device(Gpu, &'a Call),
}

/// What all sequences have in common: keys' heads, and how many heads of queries share one, are the batch.
#[track_caller]
fn plan([q, k, v]: [&Tensor; 3], options: VarlenOptions) -> Plan {
    let fail = |rule: &str| -> ! {
        let [q, k, v] = [q, k, v].map(|t| t.shape());
        throw(Error::shape(OP, format!("query {q:?}, key {k:?}, value {v:?} do not fit: {rule}")))
    };
    let (&[queries, heads, depth], &[keys, shared, key_depth], &[values, value_heads, width]) =
        (q.shape(), k.shape(), v.shape())
    else {
        fail("each must have 3 dimensions, [total, heads, features]")
    };
    if depth != key_depth {
        fail("queries and keys must have the same last size")
    }
    if keys != values || shared != value_heads {
        fail("keys and values must have the same rows and heads")
    }
    if heads * shared == 0
        || !heads.is_multiple_of(shared)
        || (heads != shared && !options.enable_gqa)
    {
        fail("queries must have the keys' heads, or with enable_gqa a multiple of them")
    }
    if !q.dtype().is_floating_point() || k.dtype() != q.dtype() || v.dtype() != q.dtype() {
        let [q, k, v] = [q, k, v].map(|t| t.dtype());
        let rule = "must be equal and floating-point";
        throw(Error::dtype(OP, format!("query {q}, key {k}, value {v}: {rule}")));
    }
    let VarlenOptions { is_causal, scale, window_size: window, .. } = options;
    let rules = Rules { is_causal, window, scale };
    let Band { low, high } = rules.window(OP);
    let band = Band { low, high: if is_causal { high.min(0) } else { high } };
    let attention = Attention { queries, keys, depth, width, scale: rules.scale(depth), band };
    Plan { batch: smallvec![shared, heads / shared], attention }
}

/// `[total, heads, features]` as heads of keys, heads that share one, rows and features.
fn apart<const N: usize>(tensors: [&Tensor; N], shared: usize) -> [Tensor; N] {
    tensors.map(|t| {
        let heads = t.shape()[1];
        t.transpose(0, 1).unflatten(0, &[shared as i64, (heads / shared) as i64])
    })
}

/// Back, without memory between the rows.
fn together(t: &Tensor) -> Tensor {
    t.flatten(0, 1).transpose(0, 1).contiguous()
}

/// Sequences that lie one after the other: where those of queries and of keys start, i32, and how long the longest are.
#[derive(Clone)]
pub(super) struct Lengths {
    pub(super) starts: [Tensor; 2],
    pub(super) longest: [usize; 2],
}

const STARTS: [&str; 2] = ["cu_seq_q", "cu_seq_k"];
const LONGEST: [&str; 2] = ["max_q", "max_k"];

impl Lengths {
    #[track_caller]
    fn new(starts: [&Tensor; 2], most: [usize; 2], plan: &Plan) -> Self {
        for (name, t) in STARTS.into_iter().zip(starts) {
            if t.dtype() != Dtype::I32 {
                let rule = "must be i32; convert with `.to_dtype(Dtype::I32)`";
                throw(Error::dtype(OP, format!("{name} is {}, {rule}", t.dtype())));
            }
            if t.dim() != 1 || t.numel() == 0 || t.numel() != starts[0].numel() {
                let [q, k] = starts.map(|t| t.shape());
                let rule = "both must have one number for each sequence and one more";
                throw(Error::shape(OP, format!("cu_seq_q is {q:?}, cu_seq_k {k:?}: {rule}")));
            }
        }
        // None is longer than all rows.
        let totals = Lengths::totals(plan);
        let longest = [0, 1].map(|side| most[side].min(totals[side]));
        Lengths { starts: starts.map(|t| no_grad(|| t.detach().contiguous())), longest }
    }

    /// Rows of queries and of keys.
    fn totals(plan: &Plan) -> [usize; 2] {
        [plan.attention.queries, plan.attention.keys]
    }

    /// Has a kernel look at the starts.
    #[track_caller]
    fn look(&self, gpu: Gpu, plan: &Plan) {
        let totals = Lengths::totals(plan);
        for side in 0..2 {
            let sequences = self.starts[side].numel() as i64 - 1;
            let (starts, total) = (self.starts[side].device_ptr(), totals[side] as i64);
            let longest = self.longest[side] as i64;
            let refusal = gpu.refusal(OP, STARTS[side], Rule::Lengths);
            let grid = gpu.for_each(sequences as usize + 1);
            // SAFETY: the kernel reads so many numbers, one more than sequences, of a dense i32 tensor on this GPU.
            unsafe {
                gpu.launch(&LENGTHS, grid, cuda_args!(starts, sequences, total, longest, refusal));
            }
        }
    }

    /// The sequences, of starts that are right.
    #[track_caller]
    fn sequences(&self, plan: &Plan) -> Vec<Sequence> {
        let totals = Lengths::totals(plan);
        let [queries, keys] = [0, 1].map(|side| {
            let starts = self.starts[side].to_vec::<i32>();
            self.check(side, &starts, totals[side]);
            starts.into_iter().map(|at| at as usize).collect::<Vec<_>>()
        });
        let pairs = queries.windows(2).zip(keys.windows(2));
        pairs
            .map(|(q, k)| {
                let (queries, keys) = (q[0]..q[1], k[0]..k[1]);
                let band = plan.attention.band.from_last(queries.len(), keys.len());
                Sequence { queries, keys, band }
            })
            .collect()
    }

    #[track_caller]
    fn check(&self, side: usize, starts: &[i32], total: usize) {
        let mut before = 0;
        for (i, &own) in starts.iter().enumerate() {
            let length = i64::from(own) - i64::from(before);
            let most = if i == 0 { 0 } else { self.longest[side] as i64 };
            let ends = i + 1 == starts.len();
            if !(0..=most).contains(&length) || (ends && own as usize != total) {
                let complaint = Rule::Lengths.complaint(f64::from(own), i as i64, total as i64);
                let longest = format!("{complaint}; {} is {}", LONGEST[side], self.longest[side]);
                throw(Error::argument(OP, STARTS[side], longest));
            }
            before = own;
        }
    }
}

/// A call with its operands' sizes.
struct VarlenCall {
    plan: Plan,
    lengths: Lengths,
}

impl VarlenCall {
    /// Operations, as if all sequences had the longest one's keys.
    fn flops(&self, by_depth: usize, by_width: usize) -> u64 {
        let a = self.plan.attention;
        let pairs = self.plan.count() * a.queries * self.lengths.longest[1];
        2 * pairs as u64 * (by_depth * a.depth + by_width * a.width) as u64
    }

    /// A sequence's rows of an operand, with the heads apart.
    fn part(&self, t: &Tensor, rows: &std::ops::Range<usize>) -> Tensor {
        let [part] = apart([&t.narrow(0, rows.start, rows.len())], self.plan.batch[0]);
        part
    }

    fn plan_of(&self, sequence: &Sequence) -> Plan {
        let (queries, keys, band) = (sequence.queries.len(), sequence.keys.len(), sequence.band);
        let attention = Attention { queries, keys, band, ..self.plan.attention };
        Plan { batch: self.plan.batch.clone(), attention }
    }

    /// Y from one sequence's attention after the other's: where no kernel takes all.
    #[track_caller]
    fn by_sequences(&self, gpu: Gpu, [q, k, v]: [&Tensor; 3]) -> Tensor {
        let (a, heads) = (self.plan.attention, q.shape()[1]);
        let zeros = |rows: usize| Tensor::zeros([rows, heads, a.width], (q.dtype(), q.device()));
        if gpu.is_nowhere() {
            return self.nothing([q, k, v]);
        }
        let of = |s: &Sequence| {
            let (queries, keys) = (&s.queries, &s.keys);
            if keys.is_empty() {
                return zeros(queries.len());
            }
            let qkv = [self.part(q, queries), self.part(k, keys), self.part(v, keys)];
            together(&self.plan_of(s).attend(qkv.each_ref(), None))
        };
        let sequences = self.lengths.sequences(&self.plan);
        let parts: Vec<Tensor> =
            sequences.iter().filter(|s| !s.queries.is_empty()).map(of).collect();
        let parts: Vec<&Tensor> = parts.iter().collect();
        match sequences.iter().any(|s| !s.queries.is_empty() && !s.keys.is_empty()) {
            true => Tensor::cat(&parts, 0),
            false => self.nothing([q, k, v]),
        }
    }

    /// Y of zeros, whose gradients are zeros: no query sees a key, or there is no memory to look into.
    fn nothing(&self, qkv: [&Tensor; 3]) -> Tensor {
        let q = qkv[0];
        let shape = [q.shape()[0], q.shape()[1], self.plan.attention.width];
        record(OP, &qkv, Tensor::zeros(shape, (q.dtype(), q.device())), |_| {
            let inputs = qkv.map(|t| (t.layout().shape.clone(), t.dtype(), t.device()));
            move |_| {
                let zeros = |(shape, dtype, device): &(Shape, Dtype, Device)| {
                    Some(Tensor::zeros(shape, (*dtype, *device)))
                };
                inputs.iter().map(zeros).collect()
            }
        })
    }

    /// Y and the logarithms of the sums, `[.., total, 1]`.
    #[track_caller]
    fn forward(&self, qkv: [&Tensor; 3], place: Place<'_>) -> (Tensor, Tensor) {
        if let Some([y, logsum]) = recalled(OP) {
            return (y, logsum);
        }
        flops(OP, || self.flops(1, 1));
        let (plan, dtype) = (&self.plan, qkv[0].dtype());
        let (y, logsum) = match place {
            Place::Device(gpu, tiles) => {
                let rows = plan.with_batch([plan.attention.queries, 1]);
                let logsum = Tensor::uninitialised_on(&rows, dtype.compute(), gpu.device());
                (tiles.forward(gpu, plan, dtype, &logsum), logsum)
            }
            Place::Host => {
                let operands = apart(qkv, plan.batch[0]);
                let sequences = self.lengths.sequences(plan);
                let (y, logsum) = cpu::forward(plan, operands.each_ref(), None, &sequences);
                (together(&y), logsum)
            }
        };
        let [y, logsum] = keep(OP, [y, logsum]);
        (y, logsum)
    }

    /// Y with its gradients.
    fn recorded(self, gpu: Option<Gpu>, qkv: [&Tensor; 3], y: Tensor, logsum: Tensor) -> Tensor {
        record(OP, &qkv, y, |saver| {
            let inputs = qkv.map(|t| saver.save(t));
            let starts = self.lengths.starts.each_ref().map(|t| saver.save(t));
            let (y, logsum) = (saver.save_output(0), saver.save(&logsum));
            let (plan, longest) = (self.plan, self.lengths.longest);
            move |ctx| {
                let of = inputs.each_ref().map(|t| ctx.get(t));
                let starts = starts.each_ref().map(|t| ctx.get(t).detach());
                let call = VarlenCall { plan: plan.clone(), lengths: Lengths { starts, longest } };
                let (y, logsum, dy) = (ctx.get(&y), ctx.get(&logsum), ctx.grad(0));
                if ctx.create_graph() {
                    return call.composed(of.each_ref(), &logsum, &dy);
                }
                flops(BACKWARD, || call.flops(3, 2));
                no_grad(|| call.backward(gpu, of.each_ref(), (&y, &logsum), &dy))
            }
        })
    }

    #[track_caller]
    fn backward(
        &self,
        gpu: Option<Gpu>,
        qkv: [&Tensor; 3],
        (y, logsum): (&Tensor, &Tensor),
        dy: &Tensor,
    ) -> Grads {
        let (plan, shared) = (&self.plan, self.plan.batch[0]);
        let operands = apart(qkv, shared);
        let logsum = logsum.detach().contiguous();
        if let Some(gpu) = gpu {
            let call = Call::new(gpu, plan, operands.each_ref(), None);
            let call = call.expect("forward made such a call").packed(self.lengths.clone());
            let grads = call.backward(gpu, plan, (y, &logsum), dy);
            let of_shared = |t: Tensor| match plan.batch[1] {
                1 => t,
                group => t.unflatten(1, &[shared as i64, group as i64]).sum_dim(&[2], false),
            };
            let [dq, dk, dv] = three(grads);
            return smallvec![Some(dq), Some(of_shared(dk)), Some(of_shared(dv))];
        }
        let [y, dy] = apart([y, dy], shared).map(|t| t.contiguous());
        let sequences = self.lengths.sequences(plan);
        let of_y = (&y, &logsum);
        let [dq, dk, dv] =
            three(cpu::backward(plan, operands.each_ref(), None, &sequences, of_y, &dy));
        let of_shared = |t: Tensor| together(&t.sum_dim(&[1], true));
        smallvec![Some(together(&dq)), Some(of_shared(dk)), Some(of_shared(dv))]
    }

    /// The gradients from recorded ops, a sequence after the other.
    fn composed(&self, [q, k, v]: [&Tensor; 3], logsum: &Tensor, dy: &Tensor) -> Grads {
        let mut parts: [Vec<Tensor>; 3] = [q, k, v].map(|t| vec![t.narrow(0, 0, 0)]);
        for s in self.lengths.sequences(&self.plan) {
            let (queries, keys) = (&s.queries, &s.keys);
            let own = [self.part(q, queries), self.part(k, keys), self.part(v, keys)];
            if queries.is_empty() || keys.is_empty() {
                let rows = [q, k, v].into_iter().zip([queries, keys, keys]);
                for (parts, (t, rows)) in parts.iter_mut().zip(rows) {
                    parts.push(no_grad(|| {
                        t.detach().narrow(0, rows.start, rows.len()).zeros_like()
                    }));
                }
                continue;
            }
            let logsum = logsum.narrow(-2, queries.start, queries.len());
            let dy = self.part(dy, queries);
            let grads = self.plan_of(&s).composed(own.each_ref(), None, &logsum, &dy, None);
            let [dq, dk, dv] = three(grads);
            let of_shared = |t: Tensor| together(&t.sum_dim(&[1], true));
            let own = [together(&dq), of_shared(dk), of_shared(dv)];
            parts.iter_mut().zip(own).for_each(|(parts, own)| parts.push(own));
        }
        parts
            .iter()
            .map(|parts| Some(Tensor::cat(&parts.iter().collect::<SmallVec<[&Tensor; 8]>>(), 0)))
            .collect()
    }
}

/// The gradients of queries, keys and values, all of which are there.
fn three(grads: Grads) -> [Tensor; 3] {
    let mut grads = grads.into_iter().flatten();
    std::array::from_fn(|_| grads.next().expect("three gradients"))
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    let sample = |name: &str, heads: [usize; 2], starts: [[i32; 4]; 2], options: VarlenOptions| {
        let rows = starts.map(|starts| starts[3] as usize);
        let inputs = vec![
            values([rows[0], heads[0], 3], 1),
            values([rows[1], heads[1], 3], 2),
            values([rows[1], heads[1], 2], 3),
        ];
        OpSample::new(format!("varlen_attn({name})"), inputs, move |x| {
            let [q, k] = starts.map(|starts| Tensor::from(starts).to_device(x[0].device()));
            x[0].varlen_attn(&x[1], &x[2], &q, &k, 6, 6, options)
        })
        .slack(8.0)
    };
    let none = VarlenOptions::default();
    let causal = VarlenOptions { is_causal: true, ..none };
    let window = VarlenOptions { window_size: (1, 0), enable_gqa: true, ..none };
    vec![
        sample("plain", [2, 2], [[0, 2, 2, 5], [0, 3, 5, 9]], none),
        sample("causal", [1, 1], [[0, 3, 5, 6], [0, 2, 6, 6]], causal),
        sample("window", [4, 2], [[0, 1, 4, 5], [0, 2, 5, 7]], window),
    ]
}
