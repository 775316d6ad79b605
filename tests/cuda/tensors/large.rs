//! Places that take more than 31 bits. On the simulated GPU memory that nobody touches costs nothing, so that few
//! elements, far from each other, show it; on real hardware whole tensors are that large.

use torchrs::Dtype::{BF16, Bool, F16, F32, I32, I64, U8};
use torchrs::{Tensor, catch, cuda};

use super::compare::numbers;

/// More elements than an i32 counts.
const MANY: usize = (1 << 31) + 64;

/// Rows of five at the beginning, in the middle and at the end of more elements than an i32 counts.
fn far_rows(dtype: torchrs::Dtype) -> (Tensor, Tensor) {
    let all = Tensor::empty([MANY], (dtype, torchrs::Device::Cuda(0)));
    let rows = all.as_strided(&[3, 5], &[1 << 30, 3], 2);
    rows.copy_(&numbers(&[3, 5], 1, dtype).cuda(0));
    (all, rows)
}

fn same(got: &Tensor, expected: &Tensor) {
    assert_eq!(got.shape(), expected.shape());
    assert_eq!(got.to_vec::<f64>(), expected.to_vec::<f64>());
}

simulated! {
    fn beyond_two_gib_elements_far_apart() ["TORCHRS_SIMULATED_MEMORY" = "64GiB"] {
        for dtype in [U8, F16] {
            let (all, rows) = far_rows(dtype);
            let expected = numbers(&[3, 5], 1, dtype);
            // Formulas, copies, folds, and what goes along lines.
            same(&rows.contiguous(), &expected);
            same(&(&rows + &rows), &(&expected + &expected));
            same(&rows.sum_dim(&[0], false), &expected.sum_dim(&[0], false));
            same(&rows.max(), &expected.max());
            same(&rows.cumsum(0), &expected.cumsum(0));
            same(&rows.topk(2, 0, true).0, &expected.topk(2, 0, true).0);
            same(&rows.transpose(0, 1).to_dtype(I64), &expected.transpose(0, 1).to_dtype(I64));
            if dtype == F16 {
                same(&rows.sum_dim(&[1], false).softmax(0), &expected.sum_dim(&[1], false).softmax(0));
            }
            // Places that are numbers.
            let at: Vec<i64> = [0, 1, 2].into_iter().flat_map(|r| (0..5).map(move |c| (r << 30) + 3 * c + 2)).collect();
            let at = Tensor::from(at).cuda(0);
            let line = expected.reshape([15]);
            same(&all.index_select(0, &at), &line);
            same(&all.gather(0, &at), &line);
            all.narrow(0, 1u64 << 31, 64).fill_(3);
            all.scatter_(0, &at.narrow(0, 10, 5), &line.narrow(0, 0, 5).cuda(0));
            same(&rows.i(2), &expected.i(0));
            same(&all.narrow(0, MANY as i64 - 9, 9), &Tensor::full([9], 3, dtype));
        }
    }

    fn beyond_two_gib_rows_are_refused() ["TORCHRS_SIMULATED_MEMORY" = "64GiB"] {
        let x = Tensor::empty([1, MANY], (F16, torchrs::Device::Cuda(0)));
        let error = catch(|| x.softmax(1)).unwrap_err().to_string();
        assert!(error.contains("softmax") && error.contains("less than 2^31"), "{error}");
    }

    /// Every element of tensors with more than 2^31 of them: some 40 GB, and too long without a GPU.
    #[ignore = "takes 40 GB of a GPU's memory: for real hardware"]
    fn beyond_two_gib_on_hardware() {
        let gpu = torchrs::Device::Cuda(0);
        let free = cuda::device::memory_info(0)?.0;
        if free < 45 << 30 {
            println!("skipped: 45 GiB of memory are needed, {free} bytes are free");
            return Ok(());
        }
        let x = Tensor::zeros([MANY], (BF16, gpu));
        x.narrow(0, MANY as i64 - 5, 5).fill_(1.0);
        let last = |t: &Tensor| t.narrow(0, t.numel() as i64 - 6, 6).to_vec::<f64>();
        let expected = [0.0, 1.0, 1.0, 1.0, 1.0, 1.0];
        assert_eq!(last(&(&x + &x)), expected.map(|v| 2.0 * v));
        assert_eq!(last(&x.to_dtype(F32)), expected);
        assert_eq!(last(&x.gt(0.5)), expected);
        assert_eq!(last(&x.to_dtype(I32).cumsum(0).narrow(0, MANY as i64 - 6, 6)), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(x.sum().item(), 5.0);
        assert_eq!(x.to_dtype(Bool).sum().item(), 5.0);
        assert_eq!(last(&x.clone_contiguous()), expected);
        // Rows and columns of which there are that many elements.
        let rows = x.reshape([MANY as i64 / 64, 64]);
        let bias = Tensor::arange(0, 64, 1, (BF16, gpu));
        assert_eq!((&rows + &bias).i(-1).i(-1).item(), 64.0);
        assert_eq!(rows.softmax(1).i(-1).sum().item(), rows.i(-1).softmax(0).sum().item());
        assert_eq!(rows.layer_norm(&[64], None, None, 1e-5).i(-1).to_vec::<f64>(), rows.i(-1).layer_norm(&[64], None, None, 1e-5).to_vec::<f64>());
        assert_eq!(rows.sum_dim(&[1], false).i(-1).item(), 5.0);
        assert_eq!(rows.sum_dim(&[0], false).i(-1).item(), 1.0);
        assert_eq!(rows.topk(5, 1, true).0.i(-1).sum().item(), 5.0);
        let place = Tensor::from([MANY as i64 - 1, 3]).cuda(0);
        assert_eq!(x.index_select(0, &place).to_vec::<f64>(), [1.0, 0.0]);
    }
}
