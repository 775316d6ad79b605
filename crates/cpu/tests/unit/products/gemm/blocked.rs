//! How many rows share a set of the cache.

use torchrs_cpu::products::gemm::sharing;

#[test]
fn rows_share_sets_by_the_powers_of_two_in_their_distance() {
    assert_eq!(sharing::<f32>(32, 128), 4);
    assert_eq!(sharing::<f64>(32, 128), 8);
    assert_eq!(sharing::<f32>(100, 1024), 100);
    assert_eq!(sharing::<f32>(128, 784), 2);
    assert_eq!(sharing::<f32>(7, 0), 7);
}
