//! Bags of rows on a GPU: `kernels/embedding_bag.cu`. Indices and offsets are checked by the kernels.

use std::ptr::null_mut;

use smallvec::smallvec;

use super::options::{BagMode, EmbeddingBagOptions};
use crate::autograd::record;
use crate::cuda::{
    Program, launch::Argument, refusal::Refusal, refusal::Rule, sources::kernels_by,
    sources::program,
};
use crate::ops::{compute_type::dense, gpu, gpu::Gpu, gpu::address, gpu::kernel_of};
use crate::tensor::{Dtype, Tensor};

pub(in crate::ops) static PROGRAM: Program =
    program!("embedding_bag": "refusal.cuh", "embedding_bag.cu");

kernels_by! {
    floats of PROGRAM:
    BAGS "bags";
    TABLE "table";
    FACTORS "factors";
}

/// `Bags` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct Bags {
    table: *mut u8,
    indices: *mut u8,
    offsets: *mut u8,
    factors: *mut u8,
    g: *mut u8,
    y: *mut u8,
    dtable: *mut u8,
    dfactors: *mut u8,
    rows: i64,
    columns: i64,
    bags: i64,
    indices_count: i64,
    width: i64,
    padding: i64,
    mode: i32,
    reserved: i32,
    indices_refusal: Refusal,
    offsets_refusal: Refusal,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Bags {}

/// Dense operands: a table, indices, offsets and factors, the last two or none of them null.
fn task(
    gpu: Gpu,
    [table, indices]: [&Tensor; 2],
    [offsets, factors]: [Option<&Tensor>; 2],
    [bags, width]: [usize; 2],
    mode: BagMode,
    padding: Option<i64>,
) -> Bags {
    Bags {
        table: table.device_ptr(),
        indices: indices.device_ptr(),
        offsets: address(offsets),
        factors: address(factors),
        g: null_mut(),
        y: null_mut(),
        dtable: null_mut(),
        dfactors: null_mut(),
        rows: table.shape()[0] as i64,
        columns: table.shape()[1] as i64,
        bags: bags as i64,
        indices_count: indices.numel() as i64,
        width: width as i64,
        padding: padding.unwrap_or(-1),
        mode: match mode {
            BagMode::Sum => 0,
            BagMode::Mean => 1,
            BagMode::Max => 2,
        },
        reserved: 0,
        indices_refusal: gpu.refusal("embedding_bag", "indices", Rule::Index),
        offsets_refusal: gpu.refusal("embedding_bag", "offsets", Rule::Offset),
    }
}

/// The bags' rows put together. Shapes are checked; `padding` is a row's number or none.
#[track_caller]
pub(super) fn embedding_bag(
    gpu: Gpu,
    x: &Tensor,
    indices: &Tensor,
    offsets: Option<&Tensor>,
    bags: usize,
    options: &EmbeddingBagOptions,
    padding: Option<i64>,
) -> Tensor {
    let (op, dtype, mode) = ("embedding_bag", x.dtype(), options.mode);
    let width = if offsets.is_some() { 0 } else { indices.size(-1) };
    let flat = dense(indices, Dtype::I64).ravel();
    let starts = offsets.map(|offsets| dense(offsets, Dtype::I64));
    let factors = options.per_sample_weights.as_ref();
    let y = Tensor::empty([bags, x.size(1)], (dtype, x.device()));
    {
        let table = dense(x, dtype);
        let factors = factors.map(|factors| dense(factors, dtype));
        let sizes = [bags, width];
        let task = Bags {
            y: y.device_ptr(),
            ..task(gpu, [&table, &flat], [starts.as_ref(), factors.as_ref()], sizes, mode, padding)
        };
        let shape = gpu.for_each(y.numel());
        // SAFETY: dense tensors of these types and sizes; the kernel checks indices and offsets.
        unsafe {
            gpu.launch(
                kernel_of("embedding_bag", &BAGS, dtype),
                shape,
                crate::cuda::cuda_args!(task),
            )
        };
    }
    let inputs: Vec<&Tensor> = [x].into_iter().chain(factors).collect();
    record(op, &inputs, y, |saver| {
        let (x, flat) = (saver.save(x), saver.save(&flat));
        let starts = starts.as_ref().map(|starts| saver.save(starts));
        let factors = factors.map(|factors| saver.save(factors));
        let y = (mode == BagMode::Max).then(|| saver.save_output(0));
        move |ctx| {
            let (x, flat) = (ctx.get(&x), ctx.get(&flat));
            if ctx.create_graph() {
                gpu::refuse("the second derivative of embedding_bag", &x);
            }
            let starts = starts.as_ref().map(|starts| ctx.get(starts));
            let given = factors.as_ref().map(|factors| ctx.get(factors));
            let y = y.as_ref().map(|y| dense(&ctx.get(y), dtype));
            let (g, table) = (dense(&ctx.grad(0), dtype), dense(&x, dtype));
            let factors = given.as_ref().map(|factors| dense(factors, dtype));
            let operands = [starts.as_ref(), factors.as_ref()];
            let task = task(gpu, [&table, &flat], operands, [bags, width], mode, padding);
            let task = Bags { g: g.device_ptr(), y: address(y.as_ref()), ..task };
            let dtable = ctx.needs(0).then(|| {
                let out = Tensor::zeros(table.shape(), (dtype.compute(), table.device()));
                let task = Bags { dtable: out.device_ptr(), ..task };
                let shape = gpu.for_each(g.numel());
                // SAFETY: as above, and a gradient for each of the bags' columns.
                unsafe {
                    gpu.launch(
                        kernel_of("embedding_bag", &TABLE, dtype),
                        shape,
                        crate::cuda::cuda_args!(task),
                    )
                };
                out.to_dtype(dtype)
            });
            let mut all = smallvec![dtable];
            if let Some(given) = &given {
                all.push(ctx.needs(1).then(|| {
                    let out = Tensor::empty(given.shape(), (dtype, table.device()));
                    let task = Bags { dfactors: out.device_ptr(), ..task };
                    let shape = gpu.for_each(32 * flat.numel());
                    // SAFETY: as above, and a number for each index.
                    unsafe {
                        gpu.launch(
                            kernel_of("embedding_bag", &FACTORS, dtype),
                            shape,
                            crate::cuda::cuda_args!(task),
                        )
                    };
                    out.to_dtype(given.dtype())
                }));
            }
            all
        }
    })
}
