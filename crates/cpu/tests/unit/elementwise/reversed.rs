//! Rows that are copied in the other order.

use torchrs_cpu::arch::vectorize::vectorize;
use torchrs_cpu::elementwise::reversed::{Reversed, Way};

fn all_lengths<T: Copy + PartialEq + std::fmt::Debug>(value: fn(usize) -> T) {
    for start in 0..20 {
        for count in (0..70).chain([300]) {
            for way in [Way::Near, Way::Far, Way::Past] {
                let source: Vec<T> = (0..400).map(value).collect();
                let mut target = [value(1000); 400];
                let (to, from) = (target[start..].as_mut_ptr(), source[start / 3..].as_ptr());
                vectorize(Reversed { to, from, count, way });
                let want = (0..400usize).map(|i| match i.checked_sub(start) {
                    Some(i) if i < count => value(start / 3 + count - 1 - i),
                    _ => value(1000),
                });
                assert!(target.iter().copied().eq(want), "{start} {count} {way:?}");
            }
        }
    }
}

#[test]
fn every_number_goes_to_its_place_and_no_other_is_written() {
    all_lengths::<u8>(|i| i as u8);
    all_lengths::<u16>(|i| i as u16);
    all_lengths::<u32>(|i| i as u32);
    all_lengths::<u64>(|i| i as u64);
    all_lengths::<[u64; 2]>(|i| [i as u64, 7]);
}
