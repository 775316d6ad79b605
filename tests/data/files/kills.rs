//! A kill before every call by which a save changes the file system: the old contents or the new ones are
//! there, and the next save removes what is left over.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::failures::{FORMATS, load, save};
use super::{child, names};

const PATH: &str = "TORCHRS_TEST_KILLED_PATH";

/// Not a test by itself: the process that is stopped at each of its system calls.
#[test]
#[ignore = "run as a child process"]
fn traced_child() {
    let Ok(path) = std::env::var(PATH) else { return };
    let path = Path::new(&path);
    // SAFETY: questions about and signals to this thread alone.
    unsafe {
        let thread = libc::syscall(libc::SYS_gettid);
        std::fs::write(path.with_file_name("thread.tmp"), thread.to_string()).unwrap();
        if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
            std::fs::write(path.with_file_name("refused"), "").unwrap();
            return;
        }
        std::fs::rename(path.with_file_name("thread.tmp"), path.with_file_name("thread")).unwrap();
        libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGSTOP);
    }
    save(path, 100, 2.0).unwrap();
}

/// What a call is: `(kind of stop, number, arguments)`, as the system says.
#[repr(C)]
#[derive(Default)]
struct Call {
    stop: u8,
    arch: u32,
    places: [u64; 2],
    number: u64,
    arguments: [u64; 6],
}

/// Whether a call changes the file system.
fn changes(call: &Call) -> bool {
    const CHANGES: [libc::c_long; 10] = [
        libc::SYS_write,
        libc::SYS_fsync,
        libc::SYS_renameat,
        libc::SYS_renameat2,
        libc::SYS_unlinkat,
        libc::SYS_mkdirat,
        libc::SYS_fchmod,
        libc::SYS_fchown,
        libc::SYS_ftruncate,
        libc::SYS_copy_file_range,
    ];
    #[cfg(target_arch = "x86_64")]
    const OLDER: [libc::c_long; 4] =
        [libc::SYS_rename, libc::SYS_unlink, libc::SYS_mkdir, libc::SYS_rmdir];
    #[cfg(not(target_arch = "x86_64"))]
    const OLDER: [libc::c_long; 0] = [];
    let number = call.number as libc::c_long;
    let created = number == libc::SYS_openat && call.arguments[2] & libc::O_CREAT as u64 != 0;
    created || CHANGES.contains(&number) || OLDER.contains(&number)
}

enum End {
    Killed,
    /// It did not get that far.
    Saved,
    Refused,
}

/// Runs a save that is killed before its change number `at`.
fn killed_save(path: &Path, at: usize) -> End {
    let (thread, refused) = (path.with_file_name("thread"), path.with_file_name("refused"));
    let mut child = child("files::kills::traced_child")
        .env(PATH, path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !thread.exists() {
        if refused.exists() || child.try_wait().unwrap().is_some() {
            let _ = child.wait();
            return End::Refused;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "the child does not start");
        std::thread::sleep(Duration::from_millis(1));
    }
    let id = std::fs::read_to_string(&thread).unwrap().parse().unwrap();
    std::fs::remove_file(&thread).unwrap();
    let killed = stop_at(&mut child, id, at);
    let _ = child.wait();
    if killed { End::Killed } else { End::Saved }
}

fn stop_at(child: &mut Child, thread: libc::pid_t, at: usize) -> bool {
    let (mut changed, mut status) = (0, 0);
    // SAFETY: `status` lives through the call.
    let mut wait = || unsafe {
        libc::waitpid(thread, &mut status, libc::__WALL) == thread && libc::WIFSTOPPED(status)
    };
    if !wait() {
        return false;
    }
    // SAFETY: the thread is stopped and this one traces it; `call` has the length that is given.
    unsafe {
        let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACESYSGOOD;
        libc::ptrace(libc::PTRACE_SETOPTIONS, thread, 0, options);
        loop {
            libc::ptrace(libc::PTRACE_SYSCALL, thread, 0, 0);
            if !wait() {
                return false;
            }
            let mut call = Call::default();
            let length = size_of::<Call>();
            libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, thread, length, &raw mut call);
            // 1 is before a call.
            if call.stop != 1 || !changes(&call) {
                continue;
            }
            if changed == at {
                child.kill().unwrap();
                // A traced thread's end has to be waited for.
                while wait() {
                    libc::ptrace(libc::PTRACE_CONT, thread, 0, 0);
                }
                return true;
            }
            changed += 1;
        }
    }
}

#[test]
fn a_kill_before_any_change_leaves_the_old_or_the_new_file() {
    for format in FORMATS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(format);
        let mut seen = [0, 0];
        for at in 0.. {
            save(&path, 10, 1.0).unwrap();
            assert_eq!(names(dir.path()), [format], "what a kill left is gone");
            match killed_save(&path, at) {
                End::Refused => {
                    println!("skipped: this system lets no process be traced");
                    return;
                }
                End::Saved => break,
                End::Killed => {}
            }
            match load(&path).unwrap_or_else(|e| panic!("{format}, killed at change {at}: {e}")) {
                (1.0, 10) => seen[0] += 1,
                (2.0, 100) => seen[1] += 1,
                other => panic!("{format}: {other:?}"),
            }
        }
        assert_eq!(load(&path).unwrap(), (2.0, 100), "{format}");
        println!("{format}: {} kills left the old one, {} the new one", seen[0], seen[1]);
        // Created, written, brought to disk and renamed; then the folder brought to disk.
        assert!(seen[0] >= 4 && seen[1] >= 1, "{format}: {seen:?}");
    }
}
