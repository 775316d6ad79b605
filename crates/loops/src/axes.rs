//! Sorting of a tensor's few dimensions.

/// Sorts stably, in place. For a handful of items: insertion needs a hundredth of the code of the
/// standard library's sorts, which every use with other items compiles again, and is quicker.
pub fn sort_axes<T: Copy>(axes: &mut [T], less: impl Fn(T, T) -> bool) {
    for end in 1..axes.len() {
        let item = axes[end];
        let mut at = end;
        while at > 0 && less(item, axes[at - 1]) {
            axes[at] = axes[at - 1];
            at -= 1;
        }
        axes[at] = item;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn like_the_stable_sort(items in prop::collection::vec((0u8..4, any::<u8>()), 0..9)) {
            let (mut got, mut want) = (items.clone(), items);
            sort_axes(&mut got, |a, b| a.0 < b.0);
            want.sort_by_key(|item| item.0);
            prop_assert_eq!(got, want);
        }
    }
}
