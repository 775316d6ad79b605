//! A module in evaluation for a while.

use super::walk::{Entry, walk};
use super::{Module, Training};

/// Runs `f` with `module` and all inside in evaluation, and brings each one's mode back, also when `f` panics: parts
/// that were in evaluation, as frozen ones are, stay so.
pub(crate) fn in_evaluation<M: Module + ?Sized, T>(module: &M, f: impl FnOnce() -> T) -> T {
    struct Restore<'a>(Vec<(&'a Training, bool)>);
    impl Drop for Restore<'_> {
        fn drop(&mut self) {
            self.0.iter().for_each(|(flag, training)| flag.set(*training));
        }
    }
    let mut modes = Restore(Vec::new());
    walk(module, "", &mut |_, entry| {
        if let Entry::Training(flag) = entry {
            modes.0.push((flag, flag.get()));
            flag.set(false);
        }
    });
    f()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::{Dropout, Sequential};

    #[test]
    fn each_part_has_its_mode_again() {
        let net = Sequential::new().append(Dropout::new(0.5)).append(Dropout::new(0.5));
        let modes = || {
            let mut modes = Vec::new();
            walk(&net, "", &mut |_, entry| {
                if let Entry::Training(flag) = entry {
                    modes.push(flag.get());
                }
            });
            modes
        };
        walk(&net, "", &mut |name, entry| {
            if let Entry::Training(flag) = entry {
                flag.set(!name.starts_with('1'));
            }
        });
        let before = modes();
        assert!(before.contains(&true) && before.contains(&false), "{before:?}");
        in_evaluation(&net, || assert!(modes().iter().all(|training| !training)));
        assert_eq!(modes(), before);
        assert!(crate::error::catch(|| in_evaluation(&net, || Dropout::new(-1.0))).is_err());
        assert_eq!(modes(), before);
    }
}
