//! Which gradients travel together. Pure arithmetic over sizes; the memory is made in `reducer`.

use crate::storage::Device;
use crate::tensor::Dtype;

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
/// of at most `cap` bytes; the first is smaller, so that communication starts early, and so is the last,
/// which is full when there is no backward left to hide its communication. A parameter
/// larger than the cap has a bucket of its own. A change of dtype or device starts another
/// bucket.
pub(super) fn plan(items: &[Item], end_cap: usize, cap: usize) -> Vec<Plan> {
    let mut plans: Vec<Plan> = Vec::new();
    for (index, item) in items.iter().enumerate().rev() {
        let limit = if plans.len() <= 1 { end_cap } else { cap };
        let size = item.kind.0.size();
        let fits = |p: &Plan| p.kind == item.kind && (p.numel + item.numel) * size <= limit;
        if !plans.last().is_some_and(fits) {
            plans.push(Plan { kind: item.kind, members: Vec::new(), numel: 0 });
        }
        let bucket = plans.last_mut().expect("just pushed if there was none");
        bucket.members.push((index, bucket.numel));
        bucket.numel += item.numel.next_multiple_of(ALIGNMENT / size);
    }
    let tail = plans.last_mut().and_then(|last| last.split_off_tail(end_cap));
    plans.extend(tail);
    plans
}

impl Plan {
    /// Takes the last gradients, as many as fit into `cap` bytes, out of a bucket of more than twice that.
    fn split_off_tail(&mut self, cap: usize) -> Option<Plan> {
        let bytes_from = |start: usize| (self.numel - start) * self.kind.0.size();
        let cut = self.members.partition_point(|&(_, start)| bytes_from(start) > cap);
        if bytes_from(0) <= 2 * cap || cut == self.members.len() {
            return None;
        }
        let start = self.members[cut].1;
        let members =
            self.members.split_off(cut).into_iter().map(|(i, at)| (i, at - start)).collect();
        let tail = Plan { kind: self.kind, members, numel: self.numel - start };
        self.numel = start;
        Some(tail)
    }
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
    fn the_last_bucket_is_small_where_the_last_gradients_are() {
        // 64 numbers are the first bucket; 96 and 64 fit into the second, with 16 and 8 behind them.
        let plans = plan(&items(&[8, 16, 64, 96, 64]), 256, 1024);
        let members: Vec<_> = plans.iter().map(|p| p.members.clone()).collect();
        assert_eq!(members, [vec![(4, 0)], vec![(3, 0), (2, 96)], vec![(1, 0), (0, 16)]]);
        assert_eq!(plans.iter().map(|p| p.numel).collect::<Vec<_>>(), [64, 160, 32]);
        // The last gradient alone is larger than that, and a bucket of twice that is not cut.
        assert_eq!(plan(&items(&[96, 64, 64]), 256, 1024).len(), 2);
        assert_eq!(plan(&items(&[32, 96, 64]), 256, 1024).len(), 2);
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
