//! How each op of the cases is called. A closure asks its [`Call`] for arguments by position and
//! PyTorch's name; what it does not ask for counts as not implemented.

mod activation;
mod binary;
mod conv;
mod creation;
mod fft;
pub mod further;
mod indexing;
mod linalg;
mod llm;
pub mod loss;
mod masked;
mod matmul;
mod norm;
mod pool;
mod reduction;
mod shape;
mod special_functions;
mod tensor;
mod unary;
mod util;
pub mod vision;

use std::collections::HashMap;

use torchrs::Tensor;

use crate::arg::{Arg, Call, Outcome};

/// Op names (as in the cases; in-place forms end in `_`) and what calls them.
#[derive(Default)]
pub struct Table(HashMap<&'static str, Closure>);

type Closure = Box<dyn Fn(&Call) -> Outcome>;

impl Table {
    pub fn get(&self, op: &str) -> Option<&Closure> {
        self.0.get(op)
    }

    /// An op with any result.
    pub fn any(&mut self, op: &'static str, f: impl Fn(&Call) -> Outcome + 'static) {
        assert!(self.0.insert(op, Box::new(f)).is_none(), "{op} twice");
    }

    /// An op that gives a tensor.
    pub fn op(&mut self, op: &'static str, f: impl Fn(&Call) -> Outcome<Tensor> + 'static) {
        self.any(op, move |c| f(c).map(Arg::Tensor));
    }

    /// An op that gives several tensors.
    pub fn many(&mut self, op: &'static str, f: impl Fn(&Call) -> Outcome<Vec<Tensor>> + 'static) {
        self.any(op, move |c| Ok(Arg::List(f(c)?.into_iter().map(Arg::Tensor).collect())));
    }
}

pub fn table() -> Table {
    let mut t = Table::default();
    for fill in [
        activation::fill,
        binary::fill,
        conv::fill,
        creation::fill,
        fft::fill,
        further::fill,
        indexing::fill,
        linalg::fill,
        llm::fill,
        loss::fill,
        masked::fill,
        matmul::fill,
        norm::fill,
        pool::fill,
        reduction::fill,
        shape::fill,
        special_functions::fill,
        tensor::fill,
        unary::fill,
        util::fill,
        vision::fill,
    ] {
        fill(&mut t);
    }
    t
}
