//! Collectives as calls of NCCL. Data that is only moved goes as bytes, so that every dtype does;
//! NCCL has no gather, scatter and all-to-all of its own: they are groups of sends and receives.

use crate::cuda::nccl::{Call, DataType, Reduction};
use crate::distributed::collective::{Collective, Kind, RawBuffer, ReduceOp, Signature};
use crate::error::{Error, Result};
use crate::tensor::Dtype;

/// The calls of `rank` of `world`; none where there is nothing to move.
///
/// # Errors
/// [`Error::Dtype`] for a reduction that NCCL does not have.
pub(super) fn of(collective: &Collective, rank: usize, world: usize) -> Result<Vec<Call>> {
    let signature = &collective.signature;
    let address = |buffer: Option<RawBuffer>| buffer.map_or(0, |buffer| buffer.ptr as usize);
    let (send, recv) = (address(collective.send), address(collective.recv));
    let root = signature.root.unwrap_or(0);
    let numel = signature.numel();
    if let Some(op) = signature.op {
        let (dtype, op, elements) = reduction(signature, op)?;
        let count = numel * elements;
        let call = match signature.kind {
            Kind::Reduce => Call::Reduce { send, recv, count, dtype, op, root },
            Kind::ReduceScatter => {
                Call::ReduceScatter { send, recv, count: count / world, dtype, op }
            }
            _ => Call::AllReduce { send, recv, count, dtype, op },
        };
        return Ok(if numel == 0 { vec![] } else { vec![call] });
    }
    let (dtype, bytes) = (DataType::U8, numel * signature.dtype.size());
    let to = |peer: usize, send: usize, count: usize| Call::Send { send, count, dtype, peer };
    let from = |peer: usize, recv: usize, count: usize| Call::Recv { recv, count, dtype, peer };
    let calls = match signature.kind {
        Kind::Broadcast if rank == root => {
            vec![Call::Broadcast { send, recv: send, count: bytes, dtype, root }]
        }
        Kind::Broadcast => vec![Call::Broadcast { send: recv, recv, count: bytes, dtype, root }],
        Kind::Send if rank == 0 => vec![to(1, send, bytes)],
        Kind::Send => vec![from(0, recv, bytes)],
        Kind::AllGather => vec![Call::AllGather { send, recv, count: bytes, dtype }],
        Kind::Gather => {
            let all = (0..world).filter(|_| rank == root);
            let parts = all.map(|peer| from(peer, recv + peer * bytes, bytes));
            std::iter::once(to(root, send, bytes)).chain(parts).collect()
        }
        Kind::Scatter => {
            let all = (0..world).filter(|_| rank == root);
            let parts = all.map(|peer| to(peer, send + peer * bytes, bytes));
            std::iter::once(from(root, recv, bytes)).chain(parts).collect()
        }
        Kind::AllToAll => {
            let part = bytes / world;
            let pair = |peer: usize| {
                [to(peer, send + peer * part, part), from(peer, recv + peer * part, part)]
            };
            (0..world).flat_map(pair).collect()
        }
        _ => vec![],
    };
    Ok(if bytes == 0 { vec![] } else { calls })
}

/// NCCL's type and operation, and how many of its elements make one of ours.
fn reduction(signature: &Signature, op: ReduceOp) -> Result<(DataType, Reduction, usize)> {
    let (call, dtype) = (signature.kind.name(), signature.dtype);
    let refuse = |what: String| {
        let advice = "move the tensor to the CPU, or compute it from other operations";
        Err(Error::dtype(call, format!("NCCL has no {what}; {advice}")))
    };
    let (kind, elements) = match dtype {
        Dtype::F64 => (DataType::F64, 1),
        Dtype::F32 => (DataType::F32, 1),
        Dtype::F16 => (DataType::F16, 1),
        Dtype::BF16 => (DataType::BF16, 1),
        Dtype::I64 => (DataType::I64, 1),
        Dtype::I32 => (DataType::I32, 1),
        Dtype::I8 => (DataType::I8, 1),
        Dtype::U8 | Dtype::Bool => (DataType::U8, 1),
        Dtype::C64 => (DataType::F32, 2),
        Dtype::C128 => (DataType::F64, 2),
        Dtype::I16 => return refuse(format!("reductions of {dtype}")),
    };
    let op = match (op, dtype) {
        // Bytes that are 0 or 1.
        (ReduceOp::Sum | ReduceOp::Max | ReduceOp::Bor, Dtype::Bool) => Reduction::Max,
        (ReduceOp::Product | ReduceOp::Min | ReduceOp::Band, Dtype::Bool) => Reduction::Min,
        (ReduceOp::Sum, _) => Reduction::Sum,
        (ReduceOp::Avg, _) => Reduction::Avg,
        (ReduceOp::Product, _) => Reduction::Product,
        (ReduceOp::Min, _) => Reduction::Min,
        (ReduceOp::Max, _) => Reduction::Max,
        (ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor, _) => {
            return refuse(format!("{op} of {dtype}"));
        }
    };
    Ok((kind, op, elements))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(kind: Kind, op: Option<ReduceOp>, dtype: Dtype, shape: &[usize]) -> Result<Vec<Call>> {
        let shape = shape.into();
        let signature =
            Signature { kind, op, root: Some(0), dtype, on_gpu: true, shape, origin: None };
        let buffer = |ptr: usize| Some(RawBuffer { ptr: ptr as *mut u8, len: 0, dtype });
        let (send, recv) = (buffer(0x1000), buffer(0x2000));
        of(&Collective { signature, send, recv, owner: None, gpu: Some(0), read: None }, 1, 2)
    }

    #[test]
    fn reductions_keep_their_type_and_moves_are_bytes() {
        let sum = calls(Kind::AllReduce, Some(ReduceOp::Sum), Dtype::C64, &[3]).unwrap();
        assert!(matches!(sum[..], [Call::AllReduce { count: 6, dtype: DataType::F32, .. }]));
        let scatter = calls(Kind::ReduceScatter, Some(ReduceOp::Max), Dtype::Bool, &[4]).unwrap();
        let expected = Call::ReduceScatter {
            send: 0x1000,
            recv: 0x2000,
            count: 2,
            dtype: DataType::U8,
            op: Reduction::Max,
        };
        assert!(format!("{scatter:?}") == format!("{:?}", [expected]));
        let moved = calls(Kind::AllToAll, None, Dtype::I16, &[4]).unwrap();
        assert!(matches!(
            moved[..],
            [.., Call::Send { send: 0x1004, count: 4, .. }, Call::Recv { recv: 0x2004, .. }]
        ));
        assert!(calls(Kind::Gather, None, Dtype::F32, &[0]).unwrap().is_empty());
    }

    #[test]
    fn what_nccl_does_not_have_is_refused() {
        let error = calls(Kind::AllReduce, Some(ReduceOp::Bxor), Dtype::I32, &[1]).unwrap_err();
        assert!(error.to_string().contains("NCCL has no bxor of i32"), "{error}");
        assert!(calls(Kind::Reduce, Some(ReduceOp::Sum), Dtype::I16, &[1]).is_err());
        assert!(calls(Kind::AllReduce, Some(ReduceOp::Band), Dtype::Bool, &[1]).is_ok());
    }
}
