//! Compiled kernels on disk: compiling takes seconds, and jobs start again and again.
//!
//! The folder is `TORCHRS_KERNEL_CACHE`, or `torchrs/kernels` in the user's cache folder. A file appears whole or not
//! at all; one that is damaged or not ours is compiled anew; a folder that cannot be written is no error. Folders of
//! `TORCHRS_KERNEL_PACK` have the same files, made elsewhere, and are only read.
//!
//! A file's name has the program's name, a fingerprint of all that the code depends on but the compiler's version, and
//! that version. The own folder is looked into for the version at hand, so that a newer compiler's better code is not
//! missed. A pack is looked into for any version that the driver runs: code does not depend on the compiler that is
//! installed where it runs.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::kernels::compile::fingerprint::Fingerprint;
use crate::kernels::compile::turns::{Turn, Turns};
use torchrs_error::{Error, Result};

/// The folder of compiled kernels; empty for none.
pub(crate) const VARIABLE: &str = "TORCHRS_KERNEL_CACHE";
/// Folders that are only read.
pub(crate) const PACK: &str = "TORCHRS_KERNEL_PACK";
/// How every file begins; changes with the format.
const MAGIC: &[u8; 8] = b"TRSKERN2";
/// Magic, key, the compiler's version, fingerprint of the code.
const HEAD: usize = 8 + 16 + 8 + 16;
const ENDING: &str = ".cubin";

/// A compiler's version, major and minor.
pub(crate) type Version = (u32, u32);

/// Which code.
#[derive(Clone, Copy)]
pub(crate) struct Name<'a> {
    /// The program's name, for people.
    pub program: &'a str,
    /// Of all that the code depends on but the compiler's version.
    pub key: Fingerprint,
}

/// Code that was found.
pub(crate) struct Found {
    pub code: Vec<u8>,
    /// Whether it was made elsewhere, so that the driver may refuse it.
    pub from_pack: bool,
}

/// Files of a folder, by their keys, the newest compiler's first.
type Listed = HashMap<String, Vec<(Version, PathBuf)>>;

/// A folder of compiled kernels, and folders that are only read.
pub(crate) struct DiskCache {
    folder: Option<PathBuf>,
    packs: Vec<PathBuf>,
    in_packs: OnceLock<Listed>,
}

impl DiskCache {
    /// The folders that the environment names.
    ///
    /// # Errors
    /// [`Error::Config`] for a pack that is no folder.
    pub(crate) fn of_environment() -> Result<DiskCache> {
        let path = |name| env::var_os(name).map(PathBuf::from);
        let absolute = |path: &PathBuf| path.is_absolute();
        let folder = match path(VARIABLE) {
            Some(folder) if folder.as_os_str().is_empty() => None,
            Some(folder) => Some(folder),
            None => path("XDG_CACHE_HOME")
                .filter(absolute)
                .or_else(|| path("HOME").filter(absolute).map(|home| home.join(".cache")))
                .map(|cache| cache.join("torchrs/kernels")),
        };
        let packs = env::var_os(PACK).unwrap_or_default();
        let named = |pack: &PathBuf| !pack.as_os_str().is_empty();
        DiskCache::of(folder, env::split_paths(&packs).filter(named).collect())
    }

    /// A folder, and folders that are only read.
    ///
    /// # Errors
    /// As [`DiskCache::of_environment`].
    pub(crate) fn of(folder: Option<PathBuf>, packs: Vec<PathBuf>) -> Result<DiskCache> {
        if let Some(pack) = packs.iter().find(|pack| listed([pack.as_path()]).is_empty()) {
            let pack = pack.display();
            let message = format!(
                "{pack} is no folder with compiled kernels; `{PACK}= {VARIABLE}={pack} torchrs doctor --warm=sm_90a` \
                 fills one for an H100"
            );
            return Err(Error::config(PACK, message));
        }
        Ok(DiskCache { packs, ..DiskCache::own(folder) })
    }

    /// Without packs.
    fn own(folder: Option<PathBuf>) -> DiskCache {
        DiskCache { folder, packs: vec![], in_packs: OnceLock::new() }
    }

    /// The same folder without packs.
    pub(crate) fn without_packs(&self) -> DiskCache {
        DiskCache::own(self.folder.clone())
    }

    /// In a folder.
    pub(crate) fn at(folder: &Path) -> DiskCache {
        DiskCache::own(Some(folder.to_owned()))
    }

    /// Nowhere.
    #[cfg(test)]
    pub(crate) fn none() -> DiskCache {
        DiskCache::own(None)
    }

    /// The folder that is written.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    fn path(&self, name: Name<'_>, version: Version) -> Option<PathBuf> {
        let program = name.program.replace(|c: char| !c.is_ascii_alphanumeric() && c != '_', "-");
        let (key, (major, minor)) = (name.key.hex(), version);
        let file = format!("{program}-{key}-{major}.{minor}{ENDING}");
        self.folder.as_ref().map(|folder| folder.join(file))
    }

    /// The code of a name: of this compiler's version in the own folder, or of any that the driver's version of CUDA
    /// runs in a pack. Without a compiler the own folder is like a pack. None where it is not there, or where its file
    /// is damaged.
    pub(crate) fn read(
        &self,
        name: Name<'_>,
        compiler: Option<Version>,
        driver: Option<u32>,
    ) -> Option<Found> {
        if let Some(path) = compiler.and_then(|version| self.path(name, version))
            && let Some(code) = code_in(&path, name.key)
        {
            return Some(Found { code, from_pack: false });
        }
        let own = match compiler {
            None => self.folder.as_deref().map(|folder| listed([folder])).unwrap_or_default(),
            Some(_) => Listed::new(),
        };
        [&own, self.in_packs()]
            .into_iter()
            .flat_map(|all| files_of(all, name, driver))
            .find_map(|path| code_in(path, name.key))
            .map(|code| Found { code, from_pack: true })
    }

    fn in_packs(&self) -> &Listed {
        self.in_packs.get_or_init(|| listed(self.packs.iter().map(PathBuf::as_path)))
    }

    /// Whether there is a file for this name that [`read`](Self::read) would look into, damaged or not.
    pub(crate) fn has(&self, name: Name<'_>, version: Version, driver: Option<u32>) -> bool {
        self.path(name, version).is_some_and(|path| path.is_file())
            || files_of(self.in_packs(), name, driver).next().is_some()
    }

    /// The turn to compile it, among the processes that share the folder; `None` while another one has it.
    pub(crate) fn try_turn(&self, name: Name<'_>) -> Option<Turn> {
        self.folder
            .as_deref()
            .map_or(Some(Turn::alone()), |folder| Turns::of(folder).try_one(name.key))
    }

    /// As [`DiskCache::try_turn`]; waits for the other process, whose end gives the turn back, however it ends.
    pub(crate) fn turn(&self, name: Name<'_>) -> Turn {
        self.folder.as_deref().map_or(Turn::alone(), |folder| Turns::of(folder).one(name.key))
    }

    /// Keeps code, if there is a folder. Who only wants to use the code may ignore an error: it is compiled again.
    pub(crate) fn write(
        &self,
        name: Name<'_>,
        version: Version,
        code: &[u8],
        turn: &Turn,
    ) -> std::io::Result<()> {
        let Some(path) = self.path(name, version) else { return Ok(()) };
        let Some(folder) = path.parent() else { return Ok(()) };
        fs::create_dir_all(folder)?;
        // With the turn nobody else writes, and a file of a process that was killed is overwritten. The host's name is
        // for folders on a network, which may not tell hosts of each other's turns.
        let host = nix::unistd::gethostname().unwrap_or_default();
        let host = host.to_string_lossy().replace('/', "-");
        let alone = if turn.is_had() { String::new() } else { of_this_call() };
        let unfinished = folder.join(format!("{}.{host}{alone}.tmp", name.key.hex()));
        write_whole(&unfinished, &path, name.key, version, code).inspect_err(|_| {
            let _ = fs::remove_file(&unfinished);
        })
    }
}

/// The files of a name that the driver's version of CUDA runs.
fn files_of<'a>(
    all: &'a Listed,
    name: Name<'_>,
    driver: Option<u32>,
) -> impl Iterator<Item = &'a PathBuf> + use<'a> {
    let runs = move |major: u32| driver.is_none_or(|runs| major <= runs);
    let files = all.get(&name.key.hex()).into_iter().flatten();
    files.filter(move |((major, _), _)| runs(*major)).map(|(_, path)| path)
}

/// A part of a name that no other process or thread of this host uses.
fn of_this_call() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!(".{}.{}", std::process::id(), NUMBER.fetch_add(1, Relaxed))
}

/// All files of folders.
fn listed<'a>(folders: impl IntoIterator<Item = &'a Path>) -> Listed {
    let mut all = Listed::new();
    for folder in folders {
        for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if let Some((key, version)) = parts(&path) {
                all.entry(key).or_default().push((version, path));
            }
        }
    }
    all.values_mut()
        .for_each(|files| files.sort_by_key(|(version, _)| std::cmp::Reverse(*version)));
    all
}

/// Key and version of a file's name.
fn parts(path: &Path) -> Option<(String, Version)> {
    let name = path.file_name()?.to_str()?.strip_suffix(ENDING)?;
    let (rest, version) = name.rsplit_once('-')?;
    let (major, minor) = version.split_once('.')?;
    let (_, key) = rest.rsplit_once('-')?;
    Some((key.to_owned(), (major.parse().ok()?, minor.parse().ok()?)))
}

fn code_in(path: &Path, key: Fingerprint) -> Option<Vec<u8>> {
    let mut file = fs::read(path).ok()?;
    super::figures::READ.fetch_add(1, Relaxed);
    let (_, version) = parts(path)?;
    let head = file.get(..HEAD)?;
    if head != head_of(key, version, &file[HEAD..]) {
        return None;
    }
    file.drain(..HEAD);
    Some(file)
}

fn head_of(key: Fingerprint, (major, minor): Version, code: &[u8]) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(MAGIC);
    head[8..24].copy_from_slice(&key.to_bytes());
    head[24..28].copy_from_slice(&major.to_le_bytes());
    head[28..32].copy_from_slice(&minor.to_le_bytes());
    head[32..].copy_from_slice(&Fingerprint::new().with(code).to_bytes());
    head
}

fn write_whole(
    unfinished: &Path,
    path: &Path,
    key: Fingerprint,
    version: Version,
    code: &[u8],
) -> std::io::Result<()> {
    let mut file = fs::File::create(unfinished)?;
    file.write_all(&head_of(key, version, code))?;
    file.write_all(code)?;
    drop(file);
    fs::rename(unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &[u8] = b"\x7fELF and so on";
    const V: Version = (13, 0);

    fn name(text: &str) -> Name<'static> {
        Name { program: "add", key: Fingerprint::new().with(text) }
    }

    fn write(cache: &DiskCache, of: Name<'_>, version: Version) {
        cache.write(of, version, CODE, &cache.turn(of)).unwrap();
    }

    fn read(cache: &DiskCache, of: Name<'_>) -> Option<Vec<u8>> {
        cache.read(of, Some(V), None).map(|found| found.code)
    }

    fn cubins(folder: &Path) -> usize {
        let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        all.filter(|path| path.extension().is_some_and(|e| e == "cubin")).count()
    }

    #[test]
    fn what_is_kept_is_found_by_its_key_only() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::at(&folder.path().join("new/folder"));
        assert_eq!(read(&cache, name("a")), None);
        write(&cache, name("a"), V);
        assert!(cache.has(name("a"), V, None) && !cache.has(name("a"), (13, 1), None));
        assert_eq!(read(&cache, name("a")).as_deref(), Some(CODE));
        assert_eq!(read(&cache, name("b")), None);
        assert!(cache.read(name("a"), Some((12, 9)), None).is_none(), "of another version");
        let files: Vec<_> = fs::read_dir(folder.path().join("new/folder"))
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .filter(|file| !file.starts_with('.'))
            .collect();
        assert_eq!(files.len(), 1, "nothing unfinished is left: {files:?}");
    }

    #[test]
    fn damaged_and_foreign_files_are_not_used_and_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::at(folder.path());
        write(&cache, name("a"), V);
        let path = cache.path(name("a"), V).unwrap();
        let whole = fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        let mut other_key = whole.clone();
        other_key[10] ^= 1;
        let mut other_version = whole.clone();
        other_version[24] ^= 1;
        let wrong =
            [&whole[..whole.len() - 1], &whole[..20], b"", &flipped, &other_key, &other_version];
        for damaged in wrong {
            fs::write(&path, damaged).unwrap();
            assert_eq!(read(&cache, name("a")), None);
        }
        write(&cache, name("a"), V);
        assert_eq!(read(&cache, name("a")).as_deref(), Some(CODE));
    }

    #[test]
    fn a_pack_is_read_for_any_version_that_the_driver_runs_and_never_written() {
        let (pack, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let packed = DiskCache::at(pack.path());
        write(&packed, name("a"), (12, 8));
        write(&packed, name("a"), (13, 2));
        write(&packed, name("late"), (14, 0));
        let cache =
            DiskCache::of(Some(own.path().to_owned()), vec![pack.path().to_owned()]).unwrap();
        let found = cache.read(name("a"), Some(V), Some(13)).unwrap();
        assert!(found.from_pack && found.code == CODE);
        assert!(cache.read(name("a"), None, Some(12)).is_some(), "without a compiler");
        assert!(cache.read(name("late"), Some(V), Some(13)).is_none(), "the driver is older");
        assert!(cache.read(name("late"), Some(V), None).is_some());
        // Nobody compiles ahead what the pack has.
        assert!(cache.has(name("a"), V, Some(13)) && !cache.has(name("late"), V, Some(13)));
        write(&cache, name("b"), V);
        assert_eq!((cubins(pack.path()), cubins(own.path())), (3, 1));
        assert!(cache.read(name("b"), None, Some(13)).is_some(), "own code without a compiler");
    }

    #[test]
    fn a_pack_that_is_no_folder_is_an_error() {
        let error = DiskCache::of(None, vec!["/no/such/folder".into()]).err().unwrap().to_string();
        assert!(error.contains(PACK) && error.contains("/no/such/folder"), "{error}");
        let empty = tempfile::tempdir().unwrap();
        assert!(DiskCache::of(None, vec![empty.path().to_owned()]).is_err(), "nothing in it");
    }

    #[test]
    fn what_a_killed_process_left_unfinished_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::at(folder.path());
        let host = nix::unistd::gethostname().unwrap().to_string_lossy().into_owned();
        let left = folder.path().join(format!("{}.{host}.tmp", name("a").key.hex()));
        fs::write(&left, "half").unwrap();
        write(&cache, name("a"), V);
        assert!(!left.exists());
        assert_eq!(read(&cache, name("a")).as_deref(), Some(CODE));
    }

    #[test]
    fn a_folder_that_cannot_be_written_has_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        for (cache, is_kept) in
            [(DiskCache::at(&file.join("below a file")), false), (DiskCache::none(), true)]
        {
            let of = name("a");
            assert_eq!(cache.write(of, V, CODE, &cache.turn(of)).is_ok(), is_kept);
            assert_eq!(read(&cache, of), None);
        }
    }

    #[test]
    fn names_become_file_names() {
        let cache = DiskCache::at(Path::new("/c"));
        let path = cache.path(Name { program: "../a b/c", ..name("a") }, V).unwrap();
        assert_eq!(path.parent(), Some(Path::new("/c")));
        assert_eq!(parts(&path), Some((name("a").key.hex(), V)));
    }
}
