//! Whatever fails on some ranks, all ranks get one error that names exactly those; what was there stays.

use std::fs;
use std::path::Path;

use torchrs::checkpoint::distributed::{self, AsyncCheckpointer, Shard, State};
use torchrs::distributed::ProcessGroup;
use torchrs::{Device, Dtype, Tensor, multiprocessing};

use super::super::job::Job;

const WORLD: usize = 4;
const COLUMNS: usize = 1 << 16;

/// A row of each rank.
fn state(rank: usize, value: f64) -> State {
    let row = Tensor::full([1, COLUMNS], value, Dtype::F32);
    let shard = Shard::new(row, &[WORLD, COLUMNS], &[rank, 0]).unwrap();
    State::new().with_tensor("w", shard).unwrap()
}

/// Lets this process write files of at most so many bytes.
fn limit_files(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: changes what this process may do; the signal is the system's default otherwise.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
    }
}

/// The error, which is the same on all ranks.
fn common(world: &ProcessGroup, error: torchrs::Error) -> String {
    let all = world.all_gather_object(&error.to_string()).unwrap();
    assert!(all.iter().all(|other| *other == all[0]), "{all:?}");
    all[0].clone()
}

fn names(folder: &Path) -> Vec<String> {
    let names =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn phases(rank: usize, job: Job) {
    let world = job.join(rank);
    let path = job.out.join("checkpoint");
    let save = |state: &State| distributed::save(state, &path, &world);
    let intact = |value: f64| {
        world.barrier().unwrap();
        assert_eq!(names(&job.out), ["checkpoint", "file"]);
        let mine = state(rank, 9.0);
        distributed::load(&mine, &path, &world, Default::default()).unwrap();
        assert_eq!(mine.tensor("w").unwrap().tensor().sum().item(), value * COLUMNS as f64);
        world.barrier().unwrap();
    };
    if rank == 0 {
        fs::write(job.out.join("file"), "no folder").unwrap();
    }
    world.barrier().unwrap();
    save(&state(rank, 1.0)).unwrap();
    intact(1.0);

    // Ranks say different things of a tensor; one does not have its part.
    let odd = if rank == 2 { Dtype::F64 } else { Dtype::F32 };
    let different = State::new().with_tensor("w", Tensor::zeros([3], odd)).unwrap();
    let error = common(&world, save(&different).unwrap_err());
    assert!(error.contains("`w` is f32 [3] on rank 0 and f64 [3] on rank 2"), "{error}");
    let hole = if rank == 3 { State::new() } else { state(rank, 2.0) };
    let error = common(&world, save(&hole).unwrap_err());
    assert!(error.contains("`w`") && error.contains("in no piece"), "{error}");
    intact(1.0);

    // The folder cannot be made.
    let under = job.out.join("file").join("checkpoint");
    let error = common(&world, distributed::save(&state(rank, 2.0), &under, &world).unwrap_err());
    assert!(
        error.contains("rank 0 of 4 has failed") && error.contains("which is no folder"),
        "{error}"
    );
    let error = common(&world, distributed::save(&state(rank, 2.0), &job.out, &world).unwrap_err());
    assert!(error.contains("is there and no checkpoint"), "{error}");
    intact(1.0);

    // Some ranks cannot write.
    for failing in [vec![1, 3], vec![0], vec![2]] {
        limit_files(if failing.contains(&rank) { 1000 } else { u64::MAX });
        let error = common(&world, save(&state(rank, 2.0)).unwrap_err());
        limit_files(u64::MAX);
        for other in 0..WORLD {
            let is_named = error.contains(&format!("rank {other}: write"))
                || error.contains(&format!("rank {other} of 4 has failed: write"));
            assert_eq!(is_named, failing.contains(&other), "{error}");
        }
        intact(1.0);
    }

    // Rank 0 has nothing to write but the index, and cannot.
    let part = if rank == 0 {
        State::new()
    } else {
        State::new().with_tensor(&"n".repeat(900), Tensor::ones([4], Dtype::F32)).unwrap()
    };
    limit_files(if rank == 0 { 500 } else { u64::MAX });
    let error = common(&world, save(&part).unwrap_err());
    limit_files(u64::MAX);
    assert!(
        error.contains("rank 0 of 4 has failed: write") && error.contains("index.json"),
        "{error}"
    );
    intact(1.0);

    // It works when nothing is in the way.
    save(&state(rank, 3.0)).unwrap();
    intact(3.0);
}

#[test]
fn a_save_that_fails_on_some_ranks_names_them_on_all_and_leaves_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    multiprocessing::spawn(phases, Job::new(WORLD, folder.path().to_owned()), WORLD).unwrap();
}

/// Ranks that save to several places, or load from several: each gets what another has, unless it is told.
fn elsewhere(rank: usize, job: Job) {
    let world = job.join(rank);
    let at = |name: &str| job.out.join(name);
    let own = at(if rank == 2 { "b" } else { "a" });
    let error = common(&world, distributed::save(&state(rank, 1.0), &own, &world).unwrap_err());
    let of_rank_2 = format!("{} on rank 2", at("b").display());
    assert!(error.contains("argument `path`") && error.contains(&of_rank_2), "{error}");
    let mut background = AsyncCheckpointer::new(&world).unwrap();
    let error = common(&world, background.save(&state(rank, 1.0), &own).unwrap_err());
    assert!(error.contains(&of_rank_2), "{error}");
    assert!(!at("a").exists() && !at("b").exists());
    // By another name it is the same.
    let same = if rank == 1 { job.out.join("./a") } else { at("a") };
    distributed::save(&state(rank, 1.0), same, &world).unwrap();
    distributed::save(&state(rank, 2.0), at("b"), &world).unwrap();
    let whole = State::new().with_tensor("w", Tensor::zeros([WORLD, COLUMNS], Dtype::F32)).unwrap();
    let load = |path: &Path| distributed::load(&whole, path, &world, Default::default());
    let error = common(&world, load(&own).unwrap_err());
    assert!(error.contains("another checkpoint") && error.contains("rank 2, "), "{error}");
    // A copy is the same checkpoint.
    if rank == 0 {
        fs::create_dir(at("copy")).unwrap();
        for name in names(&at("a")) {
            fs::copy(at("a").join(&name), at("copy").join(&name)).unwrap();
        }
    }
    world.barrier().unwrap();
    load(&at(if rank == 2 { "copy" } else { "a" })).unwrap();
    assert_eq!(whole.tensor("w").unwrap().tensor().mean().item(), 1.0);
    world.barrier().unwrap();
}

#[test]
fn ranks_that_name_other_checkpoints_are_told() {
    let folder = tempfile::tempdir().unwrap();
    multiprocessing::spawn(elsewhere, Job::new(WORLD, folder.path().to_owned()), WORLD).unwrap();
}

fn damaged(rank: usize, job: Job) {
    let world = job.join(rank);
    let path = job.out.join("checkpoint");
    let whole =
        || State::new().with_tensor("w", Tensor::zeros([WORLD, COLUMNS], Dtype::F32)).unwrap();
    let of = |rank: usize| path.join(format!("rank-{rank:05}.safetensors"));
    distributed::save(&state(rank, 1.0), &path, &world).unwrap();
    let on_rank_0 = |change: &dyn Fn()| {
        world.barrier().unwrap();
        if rank == 0 {
            change();
        }
        world.barrier().unwrap();
    };
    let bytes = fs::read(of(2)).unwrap();
    let load = |state: &State| {
        common(&world, distributed::load(state, &path, &world, Default::default()).unwrap_err())
    };
    let mut flipped = bytes.clone();
    flipped[bytes.len() - 5] ^= 1;
    on_rank_0(&|| fs::write(of(2), &flipped).unwrap());
    // Each rank its own row: rank 2 finds it.
    let error = load(&state(rank, 0.0));
    assert!(
        error.contains("rank 2 of 4 has failed") && error.contains("`w` is damaged"),
        "{error}"
    );
    // All ranks everything: the one that reads it finds it, and none waits for it.
    let error = load(&whole());
    assert!(error.contains("`w` is damaged") && error.contains("rank-00002"), "{error}");
    on_rank_0(&|| fs::write(of(2), &bytes[..bytes.len() - 5]).unwrap());
    let error = load(&state(rank, 0.0));
    assert!(error.contains("rank 2 of 4 has failed") && error.contains("is cut off"), "{error}");
    on_rank_0(&|| fs::remove_file(of(2)).unwrap());
    let error = load(&whole());
    assert!(error.contains("rank-00002.safetensors"), "{error}");
    on_rank_0(&|| fs::write(of(2), &bytes).unwrap());
    let text = fs::read_to_string(path.join("index.json")).unwrap();
    on_rank_0(&|| fs::write(path.join("index.json"), text.replace("65536", "65537")).unwrap());
    let error = load(&whole());
    assert!(
        error.contains("index.json") && error.contains("its checksum does not match"),
        "{error}"
    );
    on_rank_0(&|| fs::write(path.join("index.json"), &text).unwrap());
    // Another shape, on one rank only.
    let odd = if rank == 1 {
        State::new().with_tensor("w", Tensor::zeros([3], Dtype::F32)).unwrap()
    } else {
        whole()
    };
    let error = load(&odd);
    assert!(
        error.contains("rank 1 of 4 has failed")
            && error.contains("`w` is [4, 65536] in it and [3]"),
        "{error}"
    );
    let without_memory = Tensor::zeros([WORLD, COLUMNS], (Dtype::F32, Device::Meta));
    let error = load(&State::new().with_tensor("w", without_memory).unwrap());
    assert!(error.contains("`w` is on the meta device") && error.contains("to_empty"), "{error}");
    let mine = whole();
    distributed::load(&mine, &path, &world, Default::default()).unwrap();
    assert_eq!(mine.tensor("w").unwrap().tensor().mean().item(), 1.0);
    world.barrier().unwrap();
}

#[test]
fn a_load_that_fails_on_some_ranks_is_an_error_on_all() {
    let folder = tempfile::tempdir().unwrap();
    multiprocessing::spawn(damaged, Job::new(WORLD, folder.path().to_owned()), WORLD).unwrap();
}

/// Lets this process have so many bytes of memory more than now.
fn limit_memory(more: u64) {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split_whitespace().next().unwrap().parse().unwrap();
    // SAFETY: asks the system, and changes what this process may do.
    unsafe {
        let bytes = pages * libc::sysconf(libc::_SC_PAGESIZE) as u64 + more;
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
        libc::setrlimit(libc::RLIMIT_AS, &limit);
    }
}

/// Rank 1 has no memory for what it would convert: rank 0 does not begin to read with it.
fn scarce(rank: usize, job: Job) {
    const NUMEL: usize = 1 << 24;
    // With a limit, however far, addresses are not taken in advance.
    limit_memory(8 << 30);
    let world = job.join(rank);
    let path = job.out.join("checkpoint");
    let state = State::new();
    let state = match rank {
        0 => state.with_tensor("w", Tensor::ones([NUMEL], Dtype::F32)).unwrap(),
        _ => state,
    };
    distributed::save(&state, &path, &world).unwrap();
    let wide = State::new().with_tensor("w", Tensor::zeros([NUMEL], Dtype::F64)).unwrap();
    if rank == 1 {
        limit_memory(NUMEL as u64);
    }
    let loaded = distributed::load(&wide, &path, &world, Default::default());
    let error = common(&world, loaded.unwrap_err());
    assert!(error.contains("rank 1 of 2 has failed") && error.contains("`w`"), "{error}");
    // All are where they were.
    world.barrier().unwrap();
}

#[test]
fn a_rank_without_memory_fails_the_load_before_any_reads() {
    let folder = tempfile::tempdir().unwrap();
    multiprocessing::spawn(scarce, Job::new(2, folder.path().to_owned()), 2).unwrap();
}

/// A number of rank 2's part is too large for the type that the others, too, load it in.
fn too_large(rank: usize, job: Job) {
    let world = job.join(rank);
    let path = job.out.join("checkpoint");
    distributed::save(&state(rank, [1.0, 2.0, 1e6, 3.0][rank]), &path, &world).unwrap();
    let half = |dtype| {
        let row = Tensor::zeros([1, COLUMNS], dtype);
        let shard = Shard::new(row, &[WORLD, COLUMNS], &[rank, 0]).unwrap();
        State::new().with_tensor("w", shard).unwrap()
    };
    let error = distributed::load(&half(Dtype::F16), &path, &world, Default::default());
    let error = common(&world, error.unwrap_err());
    assert!(error.contains("rank 2") && !error.contains("rank 1"), "{error}");
    assert!(["`w`", "f32", "infinite in f16"].iter().all(|part| error.contains(part)), "{error}");
    let wide = half(Dtype::BF16);
    distributed::load(&wide, &path, &world, Default::default()).unwrap();
    let largest = wide.tensor("w").unwrap().tensor().max().item();
    assert_eq!(largest, [1.0, 2.0, 999424.0, 3.0][rank]);
}

#[test]
fn numbers_that_a_dtype_has_no_place_for_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let job = Job::new(WORLD, folder.path().to_owned());
    multiprocessing::spawn(too_large, job, WORLD).unwrap();
}
