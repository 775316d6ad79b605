//! A 128-bit fingerprint (FNV-1a) of what a compiled kernel depends on, the same on every machine
//! and in every version of this program.

/// A fingerprint in the making.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint(u128);

impl Fingerprint {
    /// Of nothing.
    pub(crate) const fn new() -> Self {
        Fingerprint(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    /// With a part more. Its length counts, so that ("ab", "c") differs from ("a", "bc").
    pub(crate) fn with(self, part: impl AsRef<[u8]>) -> Self {
        let part = part.as_ref();
        self.bytes(&(part.len() as u64).to_le_bytes()).bytes(part)
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        for &byte in bytes {
            self.0 = (self.0 ^ u128::from(byte)).wrapping_mul(PRIME);
        }
        self
    }

    /// As text, for a file name.
    pub(crate) fn hex(self) -> String {
        format!("{:032x}", self.0)
    }

    /// As a place in a file, no longer than any may be.
    pub(crate) fn place(self) -> i64 {
        (self.0 as u64 >> 2) as i64
    }

    /// As bytes, for a file.
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_published_function() {
        assert_eq!(Fingerprint::new().bytes(b"a").hex(), "d228cb696f1a8caf78912b704e4a8964");
    }

    #[test]
    fn the_borders_of_parts_count() {
        let of = |parts: [&str; 2]| Fingerprint::new().with(parts[0]).with(parts[1]);
        assert_ne!(of(["ab", "c"]), of(["a", "bc"]));
        assert_eq!(of(["ab", "c"]), of(["ab", "c"]));
    }
}
