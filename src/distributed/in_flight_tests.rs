//! Debug builds notice a tensor that is used while a collective or message in the background has it.

#![cfg(debug_assertions)]

use std::sync::Barrier;

use super::tests::ranks;
use super::{ProcessGroup, ReduceOp, Work};
use crate::error::{Result, catch};
use crate::tensor::{Dtype, Tensor};

type Start = fn(&ProcessGroup, &Tensor) -> Result<Work>;

/// Rank 0 starts its call, uses the tensor, and only then does rank 1 call as well. What the use says.
fn used_in_flight(start: [Start; 2], use_it: fn(&Tensor)) -> (Option<String>, Tensor) {
    let (used, all) = (Barrier::new(2), Tensor::ones([4, 4], Dtype::F32));
    let found = ranks(2, |group| {
        let x =
            if group.rank() == 0 { all.narrow(0, 0, 2) } else { Tensor::ones([2, 4], Dtype::F32) };
        let mut message = None;
        if group.rank() == 1 {
            used.wait();
            start[1](&group, &x).unwrap().wait().unwrap();
        } else {
            let work = start[0](&group, &x).unwrap();
            message = catch(|| use_it(&x)).err().map(|error| error.to_string());
            // The rows beside it are free.
            _ = all.narrow(0, 2, 2).add_(1.0);
            used.wait();
            work.wait().unwrap();
            _ = x.add_(0.0);
        }
        (message, x)
    });
    found.into_iter().next().expect("rank 0")
}

#[test]
fn a_write_and_a_read_before_wait_are_found() {
    let reduce: Start = |group, x| group.all_reduce_async(x, ReduceOp::Sum);
    let send: Start = |group, x| group.isend(x, 1, 0);
    let receive: Start = |group, x| group.irecv(x, 0, 0);
    let write = |x: &Tensor| _ = x.add_(1.0);
    let read = |x: &Tensor| _ = x.exp();
    for (start, use_it, parts) in [
        ([reduce, reduce], write as fn(&Tensor), ["`add`", "`all_reduce`", "still writes. Call"]),
        ([reduce, reduce], read, ["`exp`", "`all_reduce`", "still writes. Call"]),
        ([send, receive], write, ["`add`", "`isend`", "still reads. Call"]),
    ] {
        let message = used_in_flight(start, use_it).0.expect("a race");
        for part in parts.into_iter().chain(["data race", file!(), "`wait()`"]) {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
    // What is sent may be read meanwhile.
    let (message, x) = used_in_flight([send, receive], read);
    assert_eq!((message, x.sum().item()), (None, 8.0));
}
