//! A value that is made at its first use, by a function that may fail and is then tried again.

use std::sync::OnceLock;

use parking_lot::Mutex;

use torchrs_error::Result;

/// `OnceLock` whose first successful maker wins; threads that come meanwhile wait for it.
pub(crate) struct TryOnce<T> {
    value: OnceLock<T>,
    making: Mutex<()>,
}

impl<T> TryOnce<T> {
    /// One without a value.
    pub(crate) const fn new() -> Self {
        TryOnce { value: OnceLock::new(), making: Mutex::new(()) }
    }

    /// The value, if it has been made.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// The value, made now if there is none yet. An error is not kept.
    #[inline]
    pub(crate) fn get_or_try(&self, make: impl FnOnce() -> Result<T>) -> Result<&T> {
        match self.value.get() {
            Some(value) => Ok(value),
            None => self.make(make),
        }
    }

    #[cold]
    fn make(&self, make: impl FnOnce() -> Result<T>) -> Result<&T> {
        let _making = self.making.lock();
        if self.value.get().is_none() {
            let value = make()?;
            let _ = self.value.set(value);
        }
        Ok(self.value.get().expect("set above, under the lock"))
    }
}

impl<T> Default for TryOnce<T> {
    fn default() -> Self {
        TryOnce::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torchrs_error::Error;

    #[test]
    fn a_failure_is_tried_again_and_a_success_stays() {
        let once = TryOnce::new();
        assert!(once.get_or_try(|| Err(Error::Other("not yet".into()))).is_err());
        assert!(once.get().is_none());
        assert_eq!(*once.get_or_try(|| Ok(3)).unwrap(), 3);
        assert_eq!(*once.get_or_try(|| Ok(4)).unwrap(), 3);
    }
}
