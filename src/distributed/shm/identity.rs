//! What a rank is built from, as it tells the others when they meet: ranks of different versions lay out what
//! they share differently, and would wait for each other until a deadline. Different programs may be
//! meant, and are a warning.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use super::backend::{CHUNK_BYTES, inline_bytes};
use super::control;
use crate::distributed::ReduceOp;
use crate::distributed::collective::Kind;
use crate::error::{Error, Result};
use crate::tensor::Dtype;

/// Blocks of an executable that are looked at, and their size.
const BLOCKS: u64 = 64;
const BLOCK: usize = 4096;

/// The version of this library and of the program that it is in.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::distributed) struct Identity {
    version: String,
    /// Of all that ranks share.
    layout: u64,
    /// Length and digest of the executable; 0 where it cannot be read.
    program: u64,
    path: String,
}

impl Identity {
    /// This process's.
    pub(in crate::distributed) fn own() -> &'static Identity {
        static OWN: OnceLock<Identity> = OnceLock::new();
        OWN.get_or_init(|| {
            let path = std::fs::read_link("/proc/self/exe").unwrap_or_default();
            Identity {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                layout: layout(),
                program: File::open("/proc/self/exe").and_then(|file| digest(&file)).unwrap_or(0),
                path: path.display().to_string(),
            }
        })
    }

    /// As it is told to the others.
    pub(in crate::distributed) fn encode(&self) -> String {
        format!("{}\n{:x}\n{:x}\n{}", self.version, self.layout, self.program, self.path)
    }

    /// What another rank has told; of one that tells nothing like it, an unknown version.
    pub(in crate::distributed) fn decode(bytes: Option<&[u8]>) -> Identity {
        let text = String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        let mut lines = text.splitn(4, '\n');
        let mut next = || lines.next().unwrap_or_default().to_owned();
        let (version, layout, program, path) = (next(), next(), next(), next());
        let number = |text: String| u64::from_str_radix(&text, 16).unwrap_or(0);
        Identity { version, layout: number(layout), program: number(program), path }
    }

    fn library(&self) -> String {
        match self.version.as_str() {
            "" => "an older version, which does not tell its number".to_owned(),
            version => format!("version {version} with layout {:016x}", self.layout),
        }
    }

    /// Compares `mine` on rank `rank` with what rank `other` told; a warning where it is another program.
    ///
    /// # Errors
    /// [`Error::Config`] where the library is another one.
    pub(in crate::distributed) fn check(
        &self,
        rank: usize,
        other: usize,
        theirs: &Identity,
    ) -> Result<Option<String>> {
        if (&self.version, self.layout) != (&theirs.version, theirs.layout) {
            let what = format!(
                "rank {rank} is built from {}, rank {other} from {}: build the program of all ranks from \
                 one version",
                self.library(),
                theirs.library()
            );
            return Err(Error::config("torchrs", what));
        }
        let differ = self.program != theirs.program && self.program != 0 && theirs.program != 0;
        Ok(differ.then(|| {
            let (mine, theirs) = (&self.path, &theirs.path);
            format!("rank {rank} runs another program than rank {other}: {mine}, not {theirs}")
        }))
    }
}

/// FNV-1a.
fn hash(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Sizes of what is shared, and the meaning of the numbers in it.
fn layout() -> u64 {
    let sizes = control::layout().into_iter().chain([inline_bytes(2), CHUNK_BYTES]);
    let kinds = Kind::ALL.iter().map(|kind| kind.name().to_owned());
    let dtypes = Dtype::ALL.iter().map(ToString::to_string);
    let ops = ReduceOp::ALL.iter().map(ToString::to_string);
    let words = sizes.map(|size| size.to_string()).chain(kinds).chain(dtypes).chain(ops);
    hash(words.flat_map(|word| word.into_bytes().into_iter().chain([0])))
}

/// Of blocks all over the file and its length: another build differs in some, and reading all would take
/// longer than everything else in a start.
fn digest(file: &File) -> std::io::Result<u64> {
    let len = file.metadata()?.len();
    let mut bytes = vec![0; BLOCK];
    let mut all = len.to_le_bytes().to_vec();
    for block in 0..BLOCKS {
        let read = file.read_at(&mut bytes, len / BLOCKS * block)?;
        all.extend_from_slice(&hash(bytes[..read].iter().copied()).to_le_bytes());
    }
    Ok(hash(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_or_layout_is_an_error_that_names_both_and_another_program_a_warning() {
        let own = Identity::own();
        assert_eq!(&Identity::decode(Some(own.encode().as_bytes())), own);
        assert!(own.program != 0 && own.layout != 0);
        assert_eq!(own.check(0, 1, own).unwrap(), None);
        let program =
            Identity { program: own.program + 1, path: "/bin/other".into(), ..own.clone() };
        let warning = own.check(0, 1, &program).unwrap().unwrap();
        assert!(warning.contains("another program") && warning.contains("/bin/other"), "{warning}");
        let version = Identity { version: "9.9.9".into(), ..own.clone() };
        let layout = Identity { layout: own.layout + 1, ..own.clone() };
        for theirs in [version, layout, Identity::decode(None)] {
            let error = own.check(0, 1, &theirs).unwrap_err().to_string();
            assert!(error.contains("rank 0 is built from version"), "{error}");
            assert!(error.contains("rank 1 from "), "{error}");
        }
    }
}
