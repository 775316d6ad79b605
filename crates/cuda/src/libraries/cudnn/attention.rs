//! Attention by cuDNN, which recognises it in a graph of operations and never holds the scores in memory.
//!
//! Forward gives the logarithm of each row's sum of exponentials too, from which backward computes the weights again.
//! Keys and values may have fewer heads than queries, each of which then serves several neighbouring ones.

use std::ptr;

use super::descriptor::{Address, DataType, Descriptor, Note};
use super::kept::{Kept, Question, Work, say};
use super::lie::Kind;
use super::operations::{
    ADD, Builder, DIVIDE, EXP, F32, IDENTITY, LOG, MAXIMUM, MULTIPLY, Outcome, Place, SUBTRACT,
    SUM, View, supported,
};
use super::plan::{NONDETERMINISTIC, Parts, Plan, Target, plans};
use super::proposal::Proposal;
use super::table::{Object, version};
use crate::memory::Block;
use crate::work::stream::Stream;
use torchrs_error::Result;

/// The first version whose attention is used: those before have known errors, or want other graphs.
const SINCE: usize = 91_002;
/// The most workspace in bytes.
const WORKSPACE: usize = 4 << 30;
/// Names of the tensors in the plan, in the order of the addresses: queries, keys, values, the output, its logarithms;
/// the output's gradient and those of queries, keys and values.
const NAMES: [i64; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];
/// The scale, 1, and what unseen scores are.
const NUMBERS: [i64; 3] = [20, 21, 22];
/// Sums along a row of backward, and the queries' gradient as f32.
const SUMS: [i64; 2] = [30, 31];

/// All that the choice of a plan depends on. Tensors have batch, heads, length and features, those side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    /// Type of all elements.
    pub kind: Kind,
    /// Whether the gradients are computed.
    pub backward: bool,
    /// Whether query i sees keys 0 to i only.
    pub causal: bool,
    /// The same sums in the same order at each call.
    pub deterministic: bool,
    /// Queries, and their gradient.
    pub q: [View; 2],
    /// Keys, and their gradient.
    pub k: [View; 2],
    /// Values, and their gradient.
    pub v: [View; 2],
    /// The output, and its gradient.
    pub y: [View; 2],
}

static PLANS: Kept<Attention> = Kept::new();

impl Question for Attention {
    fn workspace(&self) -> usize {
        WORKSPACE
    }

    fn plans(&self, target: &Target, workspace: usize, most: usize) -> Result<Vec<Plan>> {
        if version()? < SINCE {
            return Ok(Vec::new());
        }
        let allowed = |notes: &[Note]| !self.deterministic || !notes.contains(&NONDETERMINISTIC);
        plans(|handle| graph(self, handle), target, allowed, workspace, most)
    }
}

/// The parts of a problem's graph that forward and backward have in common.
struct Common {
    builder: Builder,
    of: DataType,
    q: Place,
    v: View,
    /// Keys with their last two dimensions the other way round.
    k: Place,
    scale: Place,
    /// Sizes of the scores.
    scores: [i64; 4],
    /// Sizes of a number for each query.
    rows: [i64; 4],
}

impl Common {
    fn new(problem: &Attention) -> Outcome<Common> {
        let (mut builder, of) = (Builder::default(), problem.kind.data_type());
        let q = builder.tensor(NAMES[0], of, problem.q[0])?;
        let k = builder.tensor(NAMES[1], of, problem.k[0].turned())?;
        let scale = builder.number(NUMBERS[0])?;
        let [batch, heads, queries, _] = q.sizes;
        let (scores, rows) = ([batch, heads, queries, k.sizes[3]], [batch, heads, queries, 1]);
        Ok(Common { builder, of, q, v: problem.v[0], k, scale, scores, rows })
    }

    /// The scaled products of queries and keys.
    fn scores(&mut self) -> Outcome<Place> {
        let products = self.builder.inner(self.scores)?;
        self.builder.matmul(&self.q, &self.k, &products)?;
        self.builder.then(MULTIPLY, &products, &self.scale)
    }

    fn masked(&mut self, scores: Place, causal: bool) -> Outcome<Place> {
        if !causal {
            return Ok(scores);
        }
        let unseen = self.builder.number(NUMBERS[2])?;
        self.builder.below_diagonal(&scores, &unseen)
    }

    /// The logarithms, in memory.
    fn logarithms(&mut self) -> Outcome<Place> {
        self.builder.tensor(NAMES[4], F32, View::dense(self.rows))
    }
}

fn forward(problem: &Attention, handle: Option<Object>) -> Outcome<Vec<Descriptor>> {
    let mut c = Common::new(problem)?;
    let scores = c.scores()?;
    let scores = c.masked(scores, problem.causal)?;
    let stats = c.logarithms()?;
    let (rows, all) = (c.rows, c.scores);
    let b = &mut c.builder;
    let largest = b.inner(rows)?;
    b.fold(MAXIMUM, &scores, &largest)?;
    let below = b.then(SUBTRACT, &scores, &largest)?;
    let exponentials = b.inner(all)?;
    b.unary(EXP, &below, &exponentials)?;
    let sums = b.inner(rows)?;
    b.fold(SUM, &exponentials, &sums)?;
    let logarithms = b.inner(rows)?;
    b.unary(LOG, &sums, &logarithms)?;
    b.binary(ADD, &largest, &logarithms, &stats)?;
    let weights = b.rounded(all, c.of)?;
    b.binary(DIVIDE, &exponentials, &sums, &weights)?;
    let v = b.tensor(NAMES[2], c.of, c.v)?;
    let y = b.tensor(NAMES[3], c.of, problem.y[0])?;
    b.matmul(&weights, &v, &y)?;
    c.builder.finish(handle)
}

/// The product of something turned, as gradients of keys and values are, summed over the queries' heads that share one
/// of theirs.
fn shared(b: &mut Builder, of: DataType, left: &Place, right: &Place, to: &Place) -> Outcome<()> {
    let [batch, heads, keys, _] = left.sizes;
    if heads == to.sizes[1] {
        return b.matmul(left, right, to);
    }
    let each = b.rounded([batch, heads, keys, to.sizes[3]], of)?;
    b.matmul(left, right, &each)?;
    b.fold(SUM, &each, to)
}

fn backward(problem: &Attention, handle: Option<Object>) -> Outcome<Vec<Descriptor>> {
    let mut c = Common::new(problem)?;
    let (of, all, rows, q, k) = (c.of, c.scores, c.rows, c.q, c.k);
    let [y, dy] = [(3, 0), (5, 1)].map(|(name, which)| (NAMES[name], problem.y[which]));
    let y = c.builder.tensor(y.0, of, y.1)?;
    let dy = c.builder.tensor(dy.0, of, dy.1)?;
    let gradients = [(6, problem.q), (7, problem.k), (8, problem.v)];
    let [dq, dk, dv] = gradients.map(|(name, views)| (NAMES[name], views[1]));

    // Of each query, the sum of dY Y.
    let one = c.builder.number(NUMBERS[1])?;
    let products = c.builder.inner(y.sizes)?;
    c.builder.binary(MULTIPLY, &dy, &y, &products)?;
    let sums = c.builder.inner(rows)?;
    c.builder.fold(SUM, &products, &sums)?;
    let along = c.builder.tensor(SUMS[0], F32, View::dense(rows))?;
    c.builder.binary(MULTIPLY, &sums, &one, &along)?;

    // The weights, and with them dV.
    let scores = c.scores()?;
    let stats = c.logarithms()?;
    let scores = c.builder.then(SUBTRACT, &scores, &stats)?;
    let scores = c.masked(scores, problem.causal)?;
    let (scale, b) = (c.scale, &mut c.builder);
    let weights = b.inner(all)?;
    b.unary(EXP, &scores, &weights)?;
    let turned = b.turned(&weights, of)?;
    let dv = b.tensor(dv.0, of, dv.1)?;
    shared(b, of, &turned, &dy, &dv)?;

    // dS, and with it dK.
    let v = b.tensor(NAMES[2], of, c.v.turned())?;
    let dweights = b.inner(all)?;
    b.matmul(&dy, &v, &dweights)?;
    let less = b.then(SUBTRACT, &dweights, &along)?;
    let dscores = b.then(MULTIPLY, &less, &weights)?;
    let dscores_scaled = b.rounded(all, of)?;
    b.binary(MULTIPLY, &dscores, &scale, &dscores_scaled)?;
    let turned = b.turned(&dscores_scaled, of)?;
    let dk = b.tensor(dk.0, of, dk.1)?;
    shared(b, of, &turned, &q, &dk)?;

    // dQ, whose sums over blocks of keys come in any order unless they may not.
    let keys = b.turned(&k, of)?;
    let (name, view) = dq;
    let dq = b.tensor(name, of, view)?;
    if problem.deterministic {
        b.matmul(&dscores_scaled, &keys, &dq)?;
    } else {
        let gathered = b.tensor(SUMS[1], F32, View::dense(dq.sizes))?;
        b.matmul(&dscores_scaled, &keys, &gathered)?;
        b.unary(IDENTITY, &gathered, &dq)?;
    }
    c.builder.finish(handle)
}

fn graph(problem: &Attention, handle: Option<Object>) -> Result<Parts> {
    supported(match problem.backward {
        true => backward(problem, handle),
        false => forward(problem, handle),
    })
}

/// Starts attention on a stream with the tensors' addresses: queries, keys, values, the output and its logarithms; for
/// backward then the output's gradient and those of queries, keys and values. False where cuDNN does not compute such, or
/// fails whatever it is asked, which is said once.
///
/// # Errors
/// [`Error::Device`](torchrs_error::Error::Device) where the device refuses.
///
/// # Safety
/// The addresses are of tensors that lie as the problem says, the logarithms f32 and dense, in memory of the stream's
/// device that is valid until the stream has done this work; no result overlaps anything.
pub unsafe fn attention(
    problem: &Attention,
    scale: f32,
    at: &[*mut u8],
    stream: Stream,
) -> Result<bool> {
    if problem.backward && PLANS.plan(problem, stream)?.is_none() {
        return Ok(false);
    }
    let numbers = [scale, 1.0, f32::NEG_INFINITY];
    let mut names: Vec<i64> = NAMES[..at.len()].to_vec();
    let mut at: Vec<Address> = at.iter().map(|&at| Address(at)).collect();
    let mut number = |which: usize| {
        names.push(NUMBERS[which]);
        at.push(Address(ptr::from_ref(&numbers[which]).cast_mut().cast()));
    };
    number(0);
    if problem.backward {
        number(1);
    }
    if problem.causal {
        number(2);
    }
    let [batch, heads, queries, features] = problem.q[0].sizes;
    let rows = (batch * heads * queries) as usize;
    let mut kept = Vec::new();
    if problem.backward {
        let gathered = if problem.deterministic { 0 } else { rows * features as usize };
        for (name, count) in SUMS.into_iter().zip([rows, gathered]) {
            if count > 0 {
                let block = match Block::on(count * size_of::<f32>(), stream) {
                    Ok(block) => block,
                    Err(error) => {
                        say(problem, &error);
                        return Ok(false);
                    }
                };
                names.push(name);
                at.push(Address(block.as_ptr()));
                kept.push(block);
            }
        }
    }
    // SAFETY: the caller's promise; the blocks go back to the stream's own pool.
    unsafe { PLANS.start(problem, &Work { names: &names, at: &at, stream }) }
}

/// The plan that cuDNN proposes for attention on a device of these properties, as [`propose`](super::propose) does.
///
/// # Errors
/// [`Error::Device`](torchrs_error::Error::Device) where cuDNN refuses the properties or the problem.
pub fn propose_attention(problem: &Attention, properties: &str) -> Result<Option<Proposal>> {
    Proposal::of(problem, properties)
}
