//! Starts of processes with compiled kernels on disk and without: what is compiled, by whom, and what is read. And the
//! lists of programs that are compiled ahead, which steps of the models have recorded.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use torchrs::cuda::library::{SIMULATE, SIMULATED_LIBRARY, simulated_path};
use torchrs::cuda::{Figures, Program, ahead::warm as fill, figures};
use torchrs::nn::functional as F;
use torchrs::nn::{Forward, Linear, Module};
use torchrs::optim::{AdamW, Optimizer};
use torchrs::{Device, Dtype, Tensor};

use crate::support;

const START: &str = "warm::a_start";
const AHEAD: &str = "warm::a_start_that_waits_for_what_is_compiled_ahead";
const CACHE: &str = "TORCHRS_KERNEL_CACHE";
const PACK: &str = "TORCHRS_KERNEL_PACK";
const THREADS: &str = "TORCHRS_KERNEL_THREADS";

/// The first step of a training program.
fn step() {
    let mut layer = Linear::new(8, 4);
    layer.to_device(Device::Cuda(0));
    let mut optimizer = AdamW::new(layer.parameters(), Default::default());
    let x = Tensor::ones([3, 8], (Dtype::F32, Device::Cuda(0)));
    let y = Tensor::zeros([3], (Dtype::I64, Device::Cuda(0)));
    F::cross_entropy(&layer.forward(&x).relu(), &y).backward();
    optimizer.step();
    torchrs::cuda::device::synchronize(0).unwrap();
}

#[test]
#[ignore = "a part of other tests"]
fn a_start() {
    if support::plays(START) {
        step();
        let Figures { compiled, read, loaded } = figures();
        println!("figures {compiled} {read} {loaded}");
    }
}

/// A process with a simulated GPU that plays a part; none where the simulated GPU is not built.
fn process(part: &str, cache: &Path, more: &[(&str, &str)]) -> Option<Command> {
    let Some(library) = simulated_path() else {
        println!("skipped: the simulated GPU is not built");
        return None;
    };
    let mut command = support::command(part);
    command.env(SIMULATE, "1").env(SIMULATED_LIBRARY, library).env(CACHE, cache).env_remove(PACK);
    command.env_remove(THREADS).envs(more.iter().copied()).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(command)
}

/// Runs processes at the same time; the figures of each.
fn started(commands: Vec<Command>) -> Vec<Figures> {
    let children: Vec<_> = commands.into_iter().map(|mut one| one.spawn().unwrap()).collect();
    let outputs = children.into_iter().map(|child| child.wait_with_output().unwrap());
    outputs
        .map(|output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{text}\n{complaint}");
            let line = text.lines().find_map(|line| line.split_once("figures "));
            let (_, numbers) = line.unwrap_or_else(|| panic!("{text}\n{complaint}"));
            let numbers: Vec<u64> = numbers.split(' ').map(|n| n.parse().unwrap()).collect();
            Figures { compiled: numbers[0], read: numbers[1], loaded: numbers[2] }
        })
        .collect()
}

fn cubins(folder: &Path) -> BTreeSet<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|e| e == "cubin")).collect()
}

#[test]
fn a_start_with_everything_on_disk_compiles_nothing_and_reads_each_file_once() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(first) = process(START, folder.path(), &[]) else { return };
    let cold = started(vec![first])[0];
    assert!(cold.compiled > 5 && cold.compiled == cold.loaded && cold.read == 0, "{cold:?}");
    let warm = |cache: &Path, more: &[(&str, &str)]| {
        let warm = started(vec![process(START, cache, more).unwrap()])[0];
        let Figures { compiled, read, loaded } = warm;
        assert_eq!((compiled, read, loaded), (0, cold.loaded, cold.loaded), "{warm:?}");
    };
    // Threads that compile ahead have nothing to do.
    warm(folder.path(), &[(THREADS, "2")]);
    // From a pack, which is not written, into a folder of its own.
    let before = fs::read_dir(folder.path()).unwrap().count();
    warm(other.path(), &[(PACK, folder.path().to_str().unwrap())]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), before);
    assert!(cubins(other.path()).is_empty());
}

#[test]
fn of_processes_that_start_together_one_compiles_each_program() {
    let folder = tempfile::tempdir().unwrap();
    let one = || process(START, folder.path(), &[(THREADS, "2")]);
    let Some(commands) = (0..3).map(|_| one()).collect::<Option<Vec<_>>>() else { return };
    let all = started(commands);
    let compiled: u64 = all.iter().map(|figures| figures.compiled).sum();
    assert_eq!(compiled as usize, cubins(folder.path()).len(), "{all:?}");
    assert!(all.iter().all(|figures| figures.loaded == all[0].loaded), "{all:?}");
    let left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".tmp"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Compiles one program, and then waits for files of others.
#[test]
#[ignore = "a part of another test"]
fn a_start_that_waits_for_what_is_compiled_ahead() {
    if !support::plays(AHEAD) {
        return;
    }
    let wanted: usize = std::env::var("TORCHRS_TEST_WANTED").unwrap().parse().unwrap();
    let folder = PathBuf::from(std::env::var_os(CACHE).unwrap());
    // A program of ops, so that the lists' names are known.
    drop(Tensor::ones([2, 2], (Dtype::F32, Device::Cuda(0))).softmax(1));
    let start = Instant::now();
    while cubins(&folder).len() < wanted && start.elapsed() < Duration::from_secs(120) {
        thread::sleep(Duration::from_millis(20));
    }
    let Figures { compiled, read, loaded } = figures();
    println!("figures {compiled} {read} {loaded}");
}

#[test]
fn what_an_earlier_run_has_loaded_is_compiled_ahead() {
    let folder = tempfile::tempdir().unwrap();
    let Some(first) = process(START, folder.path(), &[]) else { return };
    started(vec![first]);
    let before = cubins(folder.path());
    before.iter().for_each(|path| fs::remove_file(path).unwrap());
    let names = |files: &BTreeSet<PathBuf>| {
        files.iter().map(|f| f.file_name().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    let wanted = (before.len() + 1).to_string();
    let more = [(THREADS, "2"), ("TORCHRS_TEST_WANTED", wanted.as_str())];
    let again = started(vec![process(AHEAD, folder.path(), &more).unwrap()])[0];
    assert!(names(&cubins(folder.path())).is_superset(&names(&before)), "{again:?}");
    assert!(again.loaded < 3 && again.compiled as usize > before.len() / 2, "{again:?}");
    // Without threads only what is used is compiled.
    cubins(folder.path()).iter().for_each(|path| fs::remove_file(path).unwrap());
    let more = [(THREADS, "0"), ("TORCHRS_TEST_WANTED", "1")];
    let alone = started(vec![process(AHEAD, folder.path(), &more).unwrap()])[0];
    assert_eq!(alone.compiled, alone.loaded, "{alone:?}");
}

const FILLS: &str = "warm::a_process_that_fills_a_folder";

/// Fills a folder with two programs for two architectures, and again; then for one that no compiler knows.
#[test]
#[ignore = "a part of another test"]
fn a_process_that_fills_a_folder() {
    if !support::plays(FILLS) {
        return;
    }
    let folder = PathBuf::from(std::env::var_os("TORCHRS_TEST_FOLDER").unwrap());
    let small = |program: &&'static Program| ["fill", "limits"].contains(&program.name());
    let programs: Vec<_> =
        torchrs::ops::catalogue::programs().into_iter().map(|(_, one)| one).filter(small).collect();
    assert_eq!(programs.len(), 2);
    let simulated = torchrs::cuda::library::is_simulated();
    let known: &[(u32, u32)] = if simulated { &[(8, 9)] } else { &[(8, 0), (9, 0)] };
    let all = 2 * known.len();
    let done = std::sync::Mutex::new(BTreeSet::new());
    let progress = |k: usize, n: usize| _ = done.lock().unwrap().insert((k, n));
    let twice = [&programs[..], &programs[..]].concat();
    let first = fill::warm(&twice, known, &folder, &progress).unwrap();
    assert_eq!((first.compiled, first.found, first.failed.len()), (all, 0, 0), "{first:?}");
    assert_eq!(first.times.len(), all);
    assert_eq!(*done.lock().unwrap(), (1..=all).map(|k| (k, all)).collect());
    assert_eq!(cubins(&folder).len(), all);
    let more = [known, &[(77, 7)]].concat();
    let second = fill::warm(&programs, &more, &folder, &progress).unwrap();
    assert_eq!((second.compiled, second.found), (0, all), "{second:?}");
    assert_eq!(second.left_out, [(77, 7)]);
    let error = fill::warm(&programs, &[(77, 7)], &folder, &progress).unwrap_err().to_string();
    assert!(error.contains("knows none of: sm_777a"), "{error}");
    let Figures { compiled, read, loaded } = figures();
    println!("figures {compiled} {read} {loaded}");
}

#[test]
fn a_folder_is_filled_once_and_what_the_compiler_does_not_know_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let into = [("TORCHRS_TEST_FOLDER", folder.path().to_str().unwrap())];
    let Some(mut command) = process(FILLS, folder.path(), &into) else { return };
    let probe = Program::owned("probe", "", String::new()).compile((8, 0));
    if probe.is_ok() && !torchrs::cuda::library::is_simulated() {
        command.env_remove(SIMULATE);
    } else {
        println!("NVRTC is not installed: the simulated GPU's compiler stands in");
    }
    let figures = started(vec![command])[0];
    assert_eq!((figures.compiled as usize, figures.read), (cubins(folder.path()).len(), 0));
}

#[test]
fn a_pack_that_is_no_folder_is_an_error_at_the_first_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut command) = process(START, folder.path(), &[(PACK, "/no/such/folder")]) else {
        return;
    };
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("/no/such/folder is no folder"), "{text}");
}

/// Where the lists are.
fn lists() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/cuda/src/kernels/ahead/likely.txt")
}

/// Sections of `gpu_check count` that have lists; and a test writes them with `TORCHRS_TEST_WRITE_WARM=1`.
const SECTIONS: [&str; 4] = ["gpt2", "llama", "bert", "resnet50"];

/// What a section loads, from code that is there already.
fn loaded(program: &Path, simulator: &Path, section: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let tests_own = env!("CARGO_TARGET_TMPDIR");
    // First into the tests' folder, so that the second run compiles nothing.
    for (cache, pack) in [(Path::new(tests_own), None), (folder.path(), Some(tests_own))] {
        let mut command = Command::new(program);
        command.args(["count", section]).envs([
            ("TORCHRS_SIMULATE_GPUS", "1"),
            ("TORCHRS_SIMULATED_DRY", "1"),
            ("TORCHRS_SIMULATED_QUIET", "1"),
            ("TORCHRS_SIMULATED_MEMORY", "80GiB"),
        ]);
        command.env(SIMULATED_LIBRARY, simulator).env(CACHE, cache).env_remove(PACK);
        command.envs(pack.map(|pack| (PACK, pack)));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(cubins(folder.path()).is_empty(), "{section}: all is in the pack");
    let list = fs::read_to_string(folder.path().join("gpu_check.used")).unwrap();
    list.lines().map(str::to_owned).collect()
}

#[test]
fn the_lists_are_of_what_steps_of_the_models_load() {
    let built = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
    let program = built.join("examples/gpu_check");
    let Some(simulator) = simulated_path().filter(|_| program.is_file()) else {
        return println!("skipped: the simulated GPU or gpu_check is not built");
    };
    let mut text = "# Programs that training steps of models load, in order, recorded by `tests/cuda/warm.rs`.\n".to_owned();
    for section in SECTIONS {
        text += &format!("\n[{section}]\n{}\n", loaded(&program, &simulator, section).join("\n"));
    }
    if std::env::var_os("TORCHRS_TEST_WRITE_WARM").is_some() {
        return fs::write(lists(), text).unwrap();
    }
    let recorded = fs::read_to_string(lists()).unwrap();
    assert!(recorded == text, "other programs are loaded; TORCHRS_TEST_WRITE_WARM=1 records them");
}
