//! How waits end, by a library that does as it is told: no MPI is needed.

use std::ffi::{CString, c_int, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use torchrs_mpi::{Element, Failure, Family, Memory, Mpi, Reduction};

const LIMIT: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(50);

/// Ways of a request to end.
const DONE: c_int = 0;
const NEVER: c_int = 1;
const ERROR: c_int = 2;

/// A copy of the fake library: each has its own state. It stays for as long as the test's process.
struct Fake {
    path: PathBuf,
    set: extern "C" fn(c_int, c_int),
    count: extern "C" fn(c_int) -> c_int,
}

impl Fake {
    fn new(name: &str) -> Fake {
        static COMPILED: OnceLock<Vec<u8>> = OnceLock::new();
        let compiled = COMPILED.get_or_init(|| {
            let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake/library.rs");
            // By process: tests may run twice at one time.
            let path = folder.join(format!("libfake_mpi_{}.so", std::process::id()));
            let flags = ["--edition=2024", "--crate-type=cdylib", "-Adead_code", "-o"];
            let compile =
                Command::new("rustc").args(flags).arg(&path).arg(source).output().unwrap();
            assert!(compile.status.success(), "{}", String::from_utf8_lossy(&compile.stderr));
            let bytes = std::fs::read(&path).unwrap();
            std::fs::remove_file(path).unwrap();
            bytes
        });
        let file = format!("libfake_mpi_{}_{name}.so", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(file);
        std::fs::write(&path, compiled).unwrap();
        let file = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the library was made above; its functions have these signatures.
        unsafe {
            let library = libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            assert!(!library.is_null());
            let set = libc::dlsym(library, c"fake_set".as_ptr());
            let count = libc::dlsym(library, c"fake_count".as_ptr());
            Fake {
                path,
                set: std::mem::transmute::<*mut c_void, extern "C" fn(c_int, c_int)>(set),
                count: std::mem::transmute::<*mut c_void, extern "C" fn(c_int) -> c_int>(count),
            }
        }
    }

    fn load(&self) -> &'static Mpi {
        Mpi::open_as(&self.path, Family::Mpich, 1).unwrap()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Memory that counts when it is given back to the system.
struct Counted(Vec<f32>, Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

// SAFETY: a vector's elements lie on the heap and do not move with it.
unsafe impl Memory for Counted {
    fn address(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
    fn size(&self) -> usize {
        4 * self.0.len()
    }
}

#[test]
fn what_ends_well_gives_its_memory_back() {
    let fake = Fake::new("well");
    let mpi = fake.load();
    assert_eq!((mpi.version(), mpi.family()), ("MPICH Version: 0.0", Family::Mpich));
    let group = mpi.world().unwrap().duplicate(LIMIT, &mut || None).unwrap();
    let dropped = Arc::new(AtomicUsize::new(0));
    let memory = Counted(vec![2.0; 8], Arc::clone(&dropped));
    let request = group.all_reduce(memory, Element::F32, Reduction::Sum).unwrap();
    let memory = request.wait(LIMIT, &mut || None).unwrap();
    assert_eq!((memory.0[0], dropped.load(Ordering::SeqCst)), (2.0, 0));
    drop(memory);
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    let freed = (fake.count)(1);
    drop(group);
    assert_eq!((fake.count)(1), freed + 1);
}

#[test]
fn after_the_deadline_memory_is_left_behind_and_the_communicator_unusable() {
    let fake = Fake::new("late");
    let group = fake.load().world().unwrap().duplicate(LIMIT, &mut || None).unwrap();
    (fake.set)(NEVER, 3);
    let dropped = Arc::new(AtomicUsize::new(0));
    let memory = Counted(vec![0.0; 8], Arc::clone(&dropped));
    let start = Instant::now();
    let request = group.all_reduce(memory, Element::F32, Reduction::Sum).unwrap();
    let failure = request.wait(SHORT, &mut || None).err().unwrap();
    assert_eq!(failure.to_string(), "timed out after 0.1 s: all_reduce of 32 bytes, rank 0 of 1");
    assert!(matches!(failure, Failure::TimedOut { .. }) && start.elapsed() >= SHORT);
    assert_eq!(dropped.load(Ordering::SeqCst), 0, "MPI may still write to it");
    let failure = group.barrier().unwrap_err().to_string();
    let right = format!("MPI: the communicator is unusable: {}", "timed out after 0.1 s");
    assert!(failure.starts_with(&right), "{failure}");
    let freed = (fake.count)(1);
    drop(group);
    assert_eq!((fake.count)(1), freed, "its operations still run");
}

#[test]
fn the_watch_ends_a_wait_in_its_own_words() {
    let fake = Fake::new("watch");
    let group = fake.load().world().unwrap();
    (fake.set)(NEVER, 3);
    let mut looks = 0;
    let failure = group.barrier().unwrap().wait(LIMIT, &mut || {
        looks += 1;
        (looks == 30).then(|| "rank 1 (pid 7) died".to_owned())
    });
    let failure = failure.unwrap_err();
    assert_eq!(failure.to_string(), "stopped in barrier, rank 0 of 1: rank 1 (pid 7) died");
    assert!(matches!(failure, Failure::Stopped { .. }));
}

#[test]
fn an_error_of_mpi_is_told_in_its_words() {
    let fake = Fake::new("error");
    let group = fake.load().world().unwrap();
    (fake.set)(ERROR, 3);
    let dropped = Arc::new(AtomicUsize::new(0));
    let request = group.broadcast(Counted(vec![0.0; 8], Arc::clone(&dropped)), 0).unwrap();
    let failure = request.wait(LIMIT, &mut || None).err().unwrap();
    assert_eq!(failure.to_string(), "MPI: broadcast: fake error 17");
    assert_eq!(dropped.load(Ordering::SeqCst), 0);
    assert!(group.unusable().is_some());
}

#[test]
fn a_request_that_nobody_waits_for_leaves_its_memory_behind() {
    let fake = Fake::new("dropped");
    let group = fake.load().world().unwrap();
    (fake.set)(NEVER, 3);
    let dropped = Arc::new(AtomicUsize::new(0));
    drop(group.broadcast(Counted(vec![0.0; 8], Arc::clone(&dropped)), 0).unwrap());
    assert_eq!(dropped.load(Ordering::SeqCst), 0);
    assert!(group.unusable().unwrap().contains("was dropped before its end"));
}

#[test]
fn too_few_bytes_are_an_error() {
    let fake = Fake::new("short");
    let group = fake.load().world().unwrap();
    (fake.set)(DONE, 3);
    let whole = group.receive(vec![0u8; 3], 0, 1).unwrap().wait(LIMIT, &mut || None);
    assert_eq!(whole.unwrap().len(), 3);
    let short = group.receive(vec![0u8; 4], 0, 1).unwrap().wait(LIMIT, &mut || None);
    assert_eq!(short.unwrap_err().to_string(), "MPI: receive: 3 bytes came where 4 should");
}

#[test]
fn a_split_that_the_others_do_not_join_ends() {
    let fake = Fake::new("split");
    let group = fake.load().world().unwrap();
    assert!(group.split(Some(1), 0, LIMIT, &mut || None).unwrap().is_some());
    (fake.set)(NEVER, 3);
    let failure = group.split(Some(1), 0, SHORT, &mut || None).unwrap_err();
    assert_eq!(failure.to_string(), "timed out after 0.1 s: split of rank 0 of 1");
    assert!(group.unusable().is_some());
    (fake.set)(DONE, 3);
}

#[test]
fn long_memory_goes_in_many_calls() {
    let fake = Fake::new("long");
    let mut group = fake.load().world().unwrap();
    group.set_longest(64);
    (fake.set)(DONE, 3);
    let request = group.all_reduce(vec![0f32; 100], Element::F32, Reduction::Sum).unwrap();
    request.wait(LIMIT, &mut || None).unwrap();
    assert_eq!((fake.count)(0), 7, "100 f32 in calls of 16");
}

#[test]
fn a_library_that_is_not_the_launchers_is_refused() {
    let fake = Fake::new("wrong");
    let error = Mpi::open_as(&fake.path, Family::OpenMpi, 4).unwrap_err().to_string();
    for part in [
        "MPI: Open MPI's launcher has started this process (SIZE=4), but the library is MPICH's (",
        "MPICH Version: 0.0",
        "`apt install openmpi-bin`",
        "TORCHRS_MPI_LIBRARY",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let error = Mpi::open_as(&fake.path, Family::Mpich, 4).unwrap_err().to_string();
    let part = "MPICH's launcher has started 4 processes (SIZE=4), but MPICH Version: 0.0 (";
    assert!(error.contains(part) && error.contains(") knows 1:"), "{error}");
}

#[test]
fn a_library_for_one_thread_is_refused() {
    let fake = Fake::new("level");
    (fake.set)(DONE, 2);
    let error = Mpi::open_as(&fake.path, Family::Mpich, 1).unwrap_err().to_string();
    assert!(error.contains("gives thread level 2; needed is 3 (MPI_THREAD_MULTIPLE)"), "{error}");
}

#[test]
fn an_mpi_that_another_part_has_initialised_is_adopted_and_not_finalised() {
    let fake = Fake::new("adopted");
    let theirs = fake.load();
    // The library is initialised now; this one finds it so.
    let adopted = fake.load();
    let group = adopted.world().unwrap();
    adopted.finalise(LIMIT, &mut || None).unwrap();
    group.barrier().unwrap().wait(LIMIT, &mut || None).unwrap();
    theirs.finalise(LIMIT, &mut || None).unwrap();
    assert_eq!(group.barrier().unwrap_err().to_string(), "MPI: is finalised");
    assert!(theirs.world().is_err());
    let error = Mpi::open_as(&fake.path, Family::Mpich, 1).unwrap_err().to_string();
    assert!(error.contains("has finalised it; it cannot begin again"), "{error}");
}

#[test]
fn mpi_is_not_finalised_while_an_operation_runs_or_after_one_has_failed() {
    let fake = Fake::new("unfinished");
    let mpi = fake.load();
    (fake.set)(NEVER, 3);
    let request = mpi.world().unwrap().barrier().unwrap();
    let error = mpi.finalise(SHORT, &mut || None).unwrap_err().to_string();
    assert_eq!(error, "MPI: MPI_Finalize: an operation still runs");
    drop(request);
    let error = mpi.finalise(SHORT, &mut || None).unwrap_err().to_string();
    assert_eq!(error, "MPI: MPI_Finalize: an operation has failed before");
}
