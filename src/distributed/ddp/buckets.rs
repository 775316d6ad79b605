//! Which gradients travel together. Pure arithmetic over sizes; the memory is made in `reducer`.

use crate::{Device, Dtype};

/// Gradients start at cache lines, so that two of them never share one.
const ALIGNMENT: usize = 64;

/// A parameter as far as buckets care.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    pub numel: usize,
    /// Dtype and device.
    pub kind: (Dtype, Device),
}

/// One bucket: gradients of one dtype and device that are reduced by one call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    pub kind: (Dtype, Device),
    /// Parameter and its place in the bucket, in elements.
    pub members: Vec<(usize, usize)>,
    /// Elements, padding included.
    pub numel: usize,
}

/// Cuts the parameters, last one first (backward makes gradients in about that order), into buckets
/// of at most `cap` bytes; the first is smaller, so that communication starts early. A parameter
/// larger than the cap has a bucket of its own. A change of dtype or device starts another
/// bucket.
pub(super) fn plan(items: &[Item], first_cap: usize, cap: usize) -> Vec<Plan> {
    let mut plans: Vec<Plan> = Vec::new();
    for (index, item) in items.iter().enumerate().rev() {
        let limit = if plans.len() <= 1 { first_cap } else { cap };
        let size = item.kind.0.size();
        let fits = |p: &Plan| p.kind == item.kind && (p.numel + item.numel) * size <= limit;
        if !plans.last().is_some_and(fits) {
            plans.push(Plan { kind: item.kind, members: Vec::new(), numel: 0 });
        }
        let bucket = plans.last_mut().expect("just pushed if there was none");
        bucket.members.push((index, bucket.numel));
        bucket.numel += item.numel.next_multiple_of(ALIGNMENT / size);
    }
    plans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(sizes: &[usize]) -> Vec<Item> {
        sizes.iter().map(|&numel| Item { numel, kind: (Dtype::F32, Device::Cpu) }).collect()
    }

    #[test]
    fn buckets_are_filled_from_the_last_parameter_on() {
        let plans = plan(&items(&[100, 16, 32, 10]), 256, 512);
        let members: Vec<_> = plans.iter().map(|p| p.members.clone()).collect();
        // 10 (padded to 16), 32 and 16 fill the first 256 bytes; the next has 512.
        assert_eq!(members, [vec![(3, 0), (2, 16), (1, 48)], vec![(0, 0)]]);
        assert_eq!(plans[1].numel, 112);
    }

    #[test]
    fn a_large_parameter_stands_alone_and_dtypes_are_not_mixed() {
        let mut items = items(&[8, 1000, 8]);
        items[0].kind.0 = Dtype::F64;
        let plans = plan(&items, 256, 512);
        assert_eq!(plans.iter().map(|p| p.members.len()).collect::<Vec<_>>(), [1, 1, 1]);
        assert_eq!(plans[2].kind.0, Dtype::F64);
    }
}
