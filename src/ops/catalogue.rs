//! All programs of kernels that ops start, pointwise rows apart, so that they can be compiled without being used.

use crate::cuda::family::Family;
use crate::cuda::{Program, fill};

use super::*;

/// The programs, with names. What is not here is compiled for nobody's check but at its first use, and a test finds
/// files of kernels that no program has.
pub fn programs() -> Vec<(String, &'static Program)> {
    let families: [&'static Family; 21] = [
        &batch_norm::cuda::EACH,
        &batch_norm::cuda::FOLDS,
        &complex::cuda::COMPLEX,
        &cross_entropy::cuda::FOLDS,
        &cross_entropy::cuda::NLL,
        &cross_entropy::cuda::ROWS,
        &ctc_loss::cuda::CTC,
        &fft::cuda::TRANSFORMS,
        &layer_norm::cuda::FOLDS,
        &layer_norm::cuda::ROWS,
        &linalg::cuda::factors::FACTORS,
        &linalg::cuda::jacobi::JACOBI,
        &linalg::cuda::qr::QR,
        &reduce::cuda::REDUCTIONS,
        &rnn::cuda::CELLS,
        &scan::cuda::SCANS,
        &softmax::cuda::SOFTMAX,
        &sort::cuda::FIRST,
        &sort::cuda::RANK,
        &sort::cuda::SELECT,
        &sort::cuda::SORT,
    ];
    let tables = [
        attention::cuda::programs(),
        attention::flash::programs(),
        conv::cuda::programs(),
        matmul::cuda::programs(),
        vec![
            &embedding_bag::cuda::PROGRAM,
            &fill::PROGRAM,
            &gradients::PROGRAM,
            &grid_sample::cuda::PROGRAM,
            &indexing::PROGRAM,
            &masked::cuda::PROGRAM,
            &pooling::cuda::PROGRAM,
            &random::cuda::PROGRAM,
            &searching::PROGRAM,
        ],
    ];
    let tables = tables.into_iter().flatten().map(|program| (program.title(), program));
    tables.chain(families.into_iter().flat_map(Family::programs)).collect()
}
