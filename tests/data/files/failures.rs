//! Saves that fail: a full disk, at every byte. What was there stays, and nothing is left beside it.

use std::fs;
use std::path::Path;

use torchrs::checkpoint::{
    Checkpoint, PtValue, TensorMap, load_file, load_npy, load_npz, load_pt, save_file, save_npy,
    save_npz, save_pt,
};
use torchrs::{Dtype, Result, Tensor};

use super::{child, names};

pub const FORMATS: [&str; 5] = ["x.pt", "x.npy", "x.npz", "x.safetensors", "folder"];

/// Saves `n` numbers, all equal to `value`.
pub fn save(path: &Path, n: usize, value: f64) -> Result<()> {
    let x = Tensor::full([n], value, Dtype::F32);
    let map = TensorMap::from([("x".to_owned(), x.clone())]);
    match path.extension().and_then(|e| e.to_str()) {
        Some("pt") => save_pt(&PtValue::from(&map), path),
        Some("npy") => save_npy(&x, path),
        Some("npz") => save_npz(&map, path),
        Some("safetensors") => save_file(&map, &Default::default(), path),
        _ => Checkpoint::new().with_tensors("model", map).save(path),
    }
}

/// The value and how many there are.
pub fn load(path: &Path) -> Result<(f32, usize)> {
    let x = match path.extension().and_then(|e| e.to_str()) {
        Some("pt") => load_pt(path)?.tensors()?["x"].clone(),
        Some("npy") => load_npy(path)?,
        Some("npz") => load_npz(path)?["x"].clone(),
        Some("safetensors") => load_file(path)?["x"].clone(),
        _ => Checkpoint::load(path)?.tensors("model")?["x"].clone(),
    };
    let values = x.to_vec::<f32>();
    assert!(values.iter().all(|v| *v == values[0]), "a mixture of two files");
    Ok((values[0], values.len()))
}

/// Not a test by itself: a limit on the size of files holds for a whole process.
#[test]
#[ignore = "run as a child process"]
fn limited_child() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    use nix::sys::signal::{SigHandler, Signal, signal};
    // SAFETY: ignoring a signal runs no code; writes then fail with an error.
    unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) }.unwrap();
    let (_, most) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for format in FORMATS {
        let path = dir.path().join(format);
        save(&path, 10, 1.0).unwrap();
        let limit = |bytes| setrlimit(Resource::RLIMIT_FSIZE, bytes, most).unwrap();
        let mut failed = 0;
        for bytes in (0u64..).step_by(13) {
            limit(bytes);
            let saved = save(&path, 100, 2.0);
            limit(most);
            assert!(names(dir.path()).iter().all(|n| !n.starts_with('.')), "{format} at {bytes}");
            match saved {
                Ok(()) => break,
                Err(e) => assert!(e.to_string().contains(format), "{format} at {bytes}: {e}"),
            }
            assert_eq!(load(&path).unwrap(), (1.0, 10), "{format} at {bytes}");
            failed += 1;
        }
        assert!(failed > 20, "{format}: {failed}");
        assert_eq!(load(&path).unwrap(), (2.0, 100), "{format}");
    }
}

#[test]
fn a_disk_that_is_full_at_any_byte_leaves_what_was_there() {
    let output = child("files::failures::limited_child").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// A file system of 128 KiB, for this thread alone.
fn small_disk(folder: &Path) -> nix::Result<()> {
    use nix::sched::{CloneFlags, unshare};
    use std::os::unix::ffi::OsStrExt;
    unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS)?;
    let path = |p: &Path| std::ffi::CString::new(p.as_os_str().as_bytes()).unwrap();
    let (root, folder) = (path(Path::new("/")), path(folder));
    let (private, null) = (libc::MS_REC | libc::MS_PRIVATE, std::ptr::null());
    // SAFETY: texts that end with zero, which the calls only read.
    nix::errno::Errno::result(unsafe {
        libc::mount(null, root.as_ptr(), null, private, null.cast())
    })?;
    let (kind, size) = (c"tmpfs".as_ptr(), c"size=128k".as_ptr());
    // SAFETY: as above.
    let mounted = unsafe { libc::mount(kind, folder.as_ptr(), kind, 0, size.cast()) };
    nix::errno::Errno::result(mounted).map(drop)
}

#[test]
fn a_full_disk_leaves_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_owned();
    // The mount ends with the thread, which is its only user.
    let thread = std::thread::spawn(move || {
        if let Err(e) = small_disk(&folder) {
            println!("skipped: a small disk cannot be mounted: {e}");
            return;
        }
        for format in FORMATS {
            let path = folder.join(format);
            save(&path, 10, 1.0).unwrap();
            let error = save(&path, 100_000, 2.0).unwrap_err().to_string();
            assert!(error.contains("No space left"), "{error}");
            assert_eq!(load(&path).unwrap(), (1.0, 10), "{format}");
            assert_eq!(names(&folder), [format]);
            match path.is_dir() {
                true => fs::remove_dir_all(&path).unwrap(),
                false => fs::remove_file(&path).unwrap(),
            }
        }
    });
    thread.join().unwrap();
}
