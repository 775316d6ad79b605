//! All programs of kernels that ops start, pointwise rows apart, so that they can be compiled without being used.

use crate::cuda::family::Family;
use crate::cuda::{Program, fill};

use super::*;

/// The programs, with names. What is not here is compiled for nobody's check but at its first use, and a test finds
/// files of kernels that no program has.
pub fn programs() -> Vec<(String, &'static Program)> {
    let families: [&'static Family; 21] = [
        &norm::batch_norm::cuda::EACH,
        &norm::batch_norm::cuda::FOLDS,
        &pointwise::complex::cuda::COMPLEX,
        &loss::cross_entropy::cuda::FOLDS,
        &loss::cross_entropy::cuda::NLL,
        &loss::cross_entropy::cuda::ROWS,
        &loss::ctc_loss::cuda::CTC,
        &fft::cuda::TRANSFORMS,
        &norm::layer_norm::cuda::FOLDS,
        &norm::layer_norm::cuda::ROWS,
        &linalg::cuda::factors::FACTORS,
        &linalg::cuda::jacobi::JACOBI,
        &linalg::cuda::qr::QR,
        &reduce::cuda::REDUCTIONS,
        &rnn::cuda::CELLS,
        &reduce::scan::cuda::SCANS,
        &norm::softmax::cuda::SOFTMAX,
        &reduce::sort::cuda::FIRST,
        &reduce::sort::cuda::RANK,
        &reduce::sort::cuda::SELECT,
        &reduce::sort::cuda::SORT,
    ];
    let tables = [
        attention::cuda::programs(),
        attention::flash::programs(),
        conv::cuda::programs(),
        products::matmul::cuda::programs(),
        vec![
            &indexing::embedding_bag::cuda::PROGRAM,
            &fill::PROGRAM,
            &gradients::PROGRAM,
            &image::grid_sample::cuda::PROGRAM,
            &indexing::cuda::PROGRAM,
            &limits::PROGRAM,
            &indexing::masked::cuda::PROGRAM,
            &pool::cuda::PROGRAM,
            &random::cuda::PROGRAM,
            &indexing::search::cuda::PROGRAM,
            &shape::cat::cuda::PROGRAM,
            &shape::triangular::cuda::PROGRAM,
            &windows::resample::cuda::PROGRAM,
        ],
    ];
    let tables = tables.into_iter().flatten().map(|program| (program.title(), program));
    tables.chain(families.into_iter().flat_map(Family::programs)).collect()
}
