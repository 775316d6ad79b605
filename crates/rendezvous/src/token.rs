//! The job's token: what proves that a launcher belongs to a job. It is never sent.

use std::fmt;
use std::path::{Path, PathBuf};

use blake2::{Blake2s256, Digest};
use torchrs_error::{Error, Result};

use crate::driver::Endpoint;

/// The environment variable that holds a token.
pub const TOKEN: &str = "TORCHRS_JOB_TOKEN";
/// The one that names a file with it, which a cluster's shared folder may hold.
const TOKEN_FILE: &str = "TORCHRS_JOB_TOKEN_FILE";
/// Shorter ones could be guessed from a recorded handshake.
const SHORTEST: usize = 16;

/// The secret of a job that begins at `endpoint`, and where it came from: `file`, which the user has named, or one of
/// the two variables. `None` where nothing leaves this host's loopback and none was given.
///
/// # Errors
/// As [`JobToken::new`] and [`JobToken::from_file`]; [`Error::Config`] where there has to be one.
pub fn given(file: Option<&Path>, endpoint: &Endpoint) -> Result<Option<(String, String)>> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let named = || set(TOKEN_FILE).map(PathBuf::from);
    let found = match (file.map(Path::to_owned), set(TOKEN)) {
        (Some(path), _) => Some(text_of(&path)?),
        (None, Some(text)) => Some((TOKEN.to_owned(), text.to_string_lossy().into_owned())),
        (None, None) => named().map(|path| text_of(&path)).transpose()?,
    };
    if let Some((source, text)) = &found {
        JobToken::new(source, text)?;
    } else if !endpoint.is_loopback() {
        let what = "is not set: a job over several hosts needs a secret that all of them have. Set it to the same text \
                    on each (`openssl rand -hex 16` makes one), or name a file that holds it, by --token-file or \
                    TORCHRS_JOB_TOKEN_FILE";
        return Err(Error::config(TOKEN, what));
    }
    Ok(found)
}

/// A file's token, with the file's name.
fn text_of(path: &Path) -> Result<(String, String)> {
    JobToken::from_file(path)?;
    let text =
        std::fs::read_to_string(path).map_err(|error| Error::file(path, error.to_string()))?;
    Ok((path.display().to_string(), text))
}

/// A secret that all launchers of a job have.
#[derive(Clone, PartialEq, Eq)]
pub struct JobToken {
    key: [u8; 32],
}

/// Shows nothing of the secret.
impl fmt::Debug for JobToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobToken(..)")
    }
}

impl JobToken {
    /// From what the user set; blanks around it do not count.
    ///
    /// # Errors
    /// [`Error::Config`] that names `source` when it has less than 16 characters.
    pub fn new(source: &str, text: &str) -> Result<Self> {
        let text = text.trim();
        let count = text.chars().count();
        if count < SHORTEST {
            let what = format!(
                "has {count} characters; a token has at least {SHORTEST}, else it could be guessed. \
                 Make one with `openssl rand -hex 16` and set it on every host"
            );
            return Err(Error::config(source, what));
        }
        Ok(JobToken { key: derived(b"torchrs job token", text.as_bytes()) })
    }

    /// From a file, whose text is the token.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be read or other users can; [`Error::Config`] as [`new`](Self::new).
    pub fn from_file(path: &Path) -> Result<Self> {
        use std::os::unix::fs::MetadataExt;
        let wrong = |what: String| Error::file(path, what);
        let text =
            std::fs::read_to_string(path).map_err(|e| wrong(format!("holds no token: {e}")))?;
        let mode = std::fs::metadata(path).map_err(|e| wrong(e.to_string()))?.mode() & 0o077;
        if mode != 0 {
            return Err(wrong(
                "holds the job's token and can be read by others: `chmod 600` it".into(),
            ));
        }
        Self::new(&path.display().to_string(), &text)
    }

    /// What launchers on one host use that reach each other over its loopback only.
    pub fn of_loopback() -> Self {
        JobToken { key: derived(b"torchrs loopback", b"") }
    }

    /// Whether everybody has it: it may guard nothing beyond the loopback.
    pub fn is_of_loopback(&self) -> bool {
        *self == Self::of_loopback()
    }

    /// The key of a use, from which no other use's key follows.
    pub fn key(&self, purpose: &str) -> [u8; 32] {
        derived(purpose.as_bytes(), &self.key)
    }
}

fn derived(purpose: &[u8], secret: &[u8]) -> [u8; 32] {
    let mut hash = Blake2s256::new();
    hash.update((purpose.len() as u64).to_le_bytes());
    hash.update(purpose);
    hash.update(secret);
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_and_hidden() {
        let error = JobToken::new(TOKEN, "  short  ").unwrap_err().to_string();
        assert!(error.contains(TOKEN) && error.contains("5 characters"), "{error}");
        let token = JobToken::new(TOKEN, "0123456789abcdef\n").unwrap();
        assert_eq!(token, JobToken::new(TOKEN, " 0123456789abcdef").unwrap());
        assert_eq!(format!("{token:?}"), "JobToken(..)");
        assert_ne!(token.key("control"), token.key("data"));
        assert_ne!(token, JobToken::new(TOKEN, "0123456789abcdeg").unwrap());
    }

    #[test]
    fn a_file_that_others_can_read_holds_no_secret() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let error = JobToken::from_file(&path).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(
            JobToken::from_file(&path).unwrap(),
            JobToken::new("", "0123456789abcdef").unwrap()
        );
    }
}
