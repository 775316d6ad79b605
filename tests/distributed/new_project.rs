//! The projects of `torchrs new`, outside of the repository: made by the command, compiled against this build of the
//! library, and run under the launcher. `tools/checks/check-package` has cargo build one from packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::train_program::{children, metrics, programs, steps_saved, wait_for, wait_for_end};

/// A project that `torchrs new` has made.
struct Project {
    folder: tempfile::TempDir,
}

impl Project {
    fn new(template: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut new = Command::new(programs().0.with_file_name("torchrs"));
        new.args(["new", "--template", template]).arg(folder.path().join("net"));
        let output = new.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Project { folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("net").join(name)
    }

    /// Changes a file, as its owner would.
    fn edit(&self, file: &str, changes: &[(&str, &str)]) {
        let path = self.file(file);
        let mut text = fs::read_to_string(&path).unwrap();
        for (old, new) in changes {
            assert!(text.contains(old), "{old} is not in {file}");
            text = text.replace(old, new);
        }
        fs::write(path, text).unwrap();
    }

    /// Compiles it as cargo would, but for the library, which is there.
    fn compile(&self) {
        let library = library();
        let cargo = Path::new(env!("CARGO"));
        let rustc = Some(cargo.with_file_name("rustc")).filter(|rustc| rustc.is_file());
        let mut rustc = Command::new(rustc.unwrap_or_else(|| "rustc".into()));
        rustc.args(["--edition", "2024", "-C", "opt-level=1", "-D", "warnings"]);
        rustc.arg("--extern").arg(format!("torchrs={}", library.display()));
        rustc.arg("-L").arg(format!("dependency={}", library.parent().unwrap().display()));
        rustc.arg(self.file("src/main.rs")).arg("-o").arg(self.file("program"));
        let output = rustc.output().expect("rustc starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// With two workers, in the project's folder.
    fn launch(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&programs().0);
        command.current_dir(self.file("")).args(["--nproc", "2", "./program"]).args(args);
        command
    }
}

/// The library that this test was built with.
fn library() -> PathBuf {
    programs();
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--quiet", "--profile", profile]);
    cargo.args(["--example", "train", "--message-format", "json"]);
    let output = cargo.output().expect("cargo runs");
    let text = String::from_utf8(output.stdout).unwrap();
    let made = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut libraries = made.filter(|made| made["target"]["name"] == "torchrs");
    let file = libraries.find_map(|made| {
        let files = made["filenames"].as_array()?.iter();
        files.filter_map(Value::as_str).find(|file| file.ends_with(".rlib")).map(PathBuf::from)
    });
    file.expect("the example needs the library")
}

#[track_caller]
fn said(output: &Output) -> String {
    let [text, errors] = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said));
    assert!(output.status.success(), "{text}{errors}");
    text.into_owned()
}

#[test]
fn the_program_of_a_new_project_learns_with_two_workers() {
    let project = Project::new("digits");
    project.compile();
    let text = said(&project.launch(&[]).output().unwrap());
    let last = text.lines().rfind(|line| line.contains("accuracy")).unwrap_or_default();
    let accuracy = last.rsplit(' ').next().and_then(|number| number.parse::<f64>().ok());
    assert!(accuracy.is_some_and(|accuracy| accuracy > 0.93), "{text}");
}

/// Files of CIFAR-10's form: 32 pictures in each, whose brightest corner tells one of four classes.
fn pictures(folder: &Path) {
    let mut random = 1u32;
    let mut noise = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 24) as u8 / 2
    };
    for file in ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"] {
        let mut bytes = Vec::new();
        for class in (0..32).map(|i| i % 4) {
            bytes.push(class);
            for place in 0..3 * 32 * 32 {
                let (row, column) = (place / 32 % 32, place % 32);
                let is_bright =
                    u8::from(row >= 16) == class / 2 && u8::from(column >= 16) == class % 2;
                bytes.push(noise() + if is_bright { 100 } else { 0 });
            }
        }
        fs::write(folder.join(format!("{file}.bin")), &bytes).unwrap();
        fs::write(folder.join("test_batch.bin"), &bytes).unwrap();
    }
}

/// The values of a scalar in TensorBoard's files, in their order: a file of the run, and one for each time it went on.
fn tensorboard(run: &Path, name: &str) -> Vec<Vec<f32>> {
    let files = fs::read_dir(run.join("tensorboard")).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| scalars(&fs::read(file).unwrap(), name)).collect()
}

fn scalars(mut bytes: &[u8], name: &str) -> Vec<f32> {
    let mut values = Vec::new();
    while !bytes.is_empty() {
        // A length and its checksum, the event, the event's checksum.
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let event = &bytes[12..12 + length];
        bytes = &bytes[16 + length..];
        let Some(at) = event.windows(name.len()).position(|part| part == name.as_bytes()) else {
            continue;
        };
        // The tag is followed by field 2, a float.
        let value = &event[at + name.len()..][..5];
        assert_eq!(value[0], 0x15, "{event:?}");
        values.push(f32::from_le_bytes(value[1..].try_into().unwrap()));
    }
    values
}

/// Killed in mid-epoch, with another one's checkpoint before it, and resumed: the same bits as an unbroken run.
#[test]
fn the_cifar_program_resumes_in_mid_epoch_to_the_same_bits() {
    let project = Project::new("cifar");
    let text = fs::read_to_string(project.file("src/main.rs")).unwrap();
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    let lines = text.lines().filter(is_code).count();
    assert!(lines <= 70, "{lines} lines");
    let changes = [("u64 = 30", "u64 = 3"), ("h_size(64)", "h_size(8)"), ("of(100)", "of(3)")];
    project.edit("src/main.rs", &changes);
    project.edit("src/model.rs", &[("WIDTH: usize = 16", "WIDTH: usize = 4")]);
    project.compile();
    let data = tempfile::tempdir().unwrap();
    pictures(data.path());
    let data = data.path().to_str().unwrap();

    // Three epochs of five steps, each of 32 pictures.
    let unbroken = said(&project.launch(&[data, "--run-dir", "unbroken"]).output().unwrap());
    assert!(unbroken.contains("epoch 3: "), "{unbroken}");
    let mut job = project.launch(&[data, "--run-dir", "killed"]).spawn().unwrap();
    wait_for(&project.file("killed"), 9);
    let workers: Vec<u32> = children(job.id()).into_iter().flat_map(children).collect();
    job.kill().unwrap();
    job.wait().unwrap();
    workers.iter().for_each(|&worker| wait_for_end(worker));
    let saved = *steps_saved(&project.file("killed")).last().unwrap();
    assert!(!saved.is_multiple_of(5) && saved < 15, "step {saved} is in mid-epoch");
    said(&project.launch(&[data, "--run-dir", "killed", "--resume"]).output().unwrap());

    let [one, other] = ["unbroken", "killed"].map(|run| project.file(run));
    let read = |run: &Path, file: &str| fs::read(run.join(file)).unwrap();
    let files = ["model.safetensors", "ema.safetensors", "optimizer.safetensors", "state.json"];
    let last = files.map(|file| format!("checkpoints/step-00000015/{file}"));
    for file in last.iter().map(String::as_str).chain(["metrics.jsonl"]) {
        assert!(read(&one, file) == read(&other, file), "{file} is another one");
    }
    let lines = metrics(&other);
    assert_eq!(lines.len(), 15 + 3);
    let losses = lines.iter().filter_map(|line| line["train/loss"].as_f64());
    let losses: Vec<f32> = losses.map(|loss| loss as f32).collect();
    assert!(losses[14] < losses[0], "{losses:?}");
    assert_eq!(tensorboard(&one, "train/loss"), [&losses[..]]);
    let parts = tensorboard(&other, "train/loss");
    assert!(losses.starts_with(&parts[0]) && parts[0].len() >= saved as usize, "{parts:?}");
    assert_eq!(parts[1..], [&losses[saved as usize..]]);
    assert_eq!(tensorboard(&one, "test/accuracy")[0].len(), 3);
}
