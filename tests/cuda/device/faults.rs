//! What fails on a device is reported, once and at the right place.

use torchrs::cuda::{Block, Stream, memory};

use super::kernels::apply;
use crate::support::upload;

simulated! {
    fn a_kernel_that_fails_is_reported_and_stays_so() ["TORCHRS_SIMULATED_FAULT" = "illegal-address@2"] {
        let stream = Stream::current(0)?;
        let x = upload(&[1.0], stream)?;
        apply(&x, 1.0, 0.0, stream)?;
        stream.synchronize()?;
        let _ = apply(&x, 1.0, 0.0, stream);
        let error = stream.synchronize().unwrap_err().to_string();
        println!("{error}");
        assert!(error.contains("CUDA_ERROR_ILLEGAL_ADDRESS (700)"), "{error}");
        assert!(error.contains("must be restarted"), "{error}");
        let again = stream.synchronize().unwrap_err().to_string();
        assert!(again.contains("(700)"), "{again}");
        let launch = apply(&x, 1.0, 0.0, stream).unwrap_err().to_string();
        assert!(launch.contains("line: ") && launch.contains("(700)"), "{launch}");
        drop(x);
    }

    fn a_failed_reservation_is_tried_again() ["TORCHRS_SIMULATED_FAULT" = "oom@1"] {
        drop(Block::new(1000, 0)?);
        let statistics = memory::statistics(0)?;
        assert_eq!((statistics.retries, statistics.out_of_memory), (1, 0));
    }
}
