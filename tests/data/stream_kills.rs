//! A run over a stream that is killed at any moment and started again from its last checkpoint, with another number
//! of workers each time: in the end it has trained on each sample just once.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use torchrs::data::stream::{IterableDataset, JsonLines, StreamLoader, StreamState};

use crate::stream::numbers;

const FOLDER: &str = "TORCHRS_TEST_STREAM_FOLDER";
const ROWS: [usize; 5] = [700, 1, 300, 0, 499];

/// What the run saves: where it is, and in place of a model all samples that it was trained on.
#[derive(Serialize, Deserialize)]
struct Saved {
    state: StreamState,
    trained: Vec<i64>,
}

/// Not a test by itself: the process that the test below kills.
#[test]
#[ignore = "run by the test below as a child process"]
fn train_until_killed() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let folder = Path::new(&folder);
    let workers = std::env::var("WORKERS").unwrap().parse().unwrap();
    let rows = JsonLines::<i64>::new(numbers_there(folder)).unwrap().shuffle(50).unwrap();
    let loader = StreamLoader::builder(rows).batch_size(5).lanes(4).workers(workers);
    let loader = loader.shuffle_shards(true).seed(3).build().unwrap();
    let (saved, written) = (folder.join("saved.json"), folder.join("written.json"));
    let mut trained = Vec::new();
    if let Ok(text) = fs::read(&saved) {
        let before: Saved = serde_json::from_slice(&text).unwrap();
        loader.load_state_dict(&before.state).unwrap();
        trained = before.trained;
    }
    for (step, batch) in loader.iter().enumerate() {
        trained.extend(batch.unwrap().to_vec::<i64>());
        // Not behind every batch: what was trained since is lost with the process.
        if step % 3 == 0 {
            let now = Saved { state: loader.state_dict(), trained: trained.clone() };
            fs::write(&written, serde_json::to_vec(&now).unwrap()).unwrap();
            fs::rename(&written, &saved).unwrap();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    fs::write(folder.join("done.json"), serde_json::to_vec(&trained).unwrap()).unwrap();
}

fn numbers_there(folder: &Path) -> Vec<std::path::PathBuf> {
    (0..ROWS.len()).map(|f| folder.join(format!("{f}.jsonl"))).collect()
}

#[test]
fn a_run_that_is_killed_and_resumed_sees_each_sample_once() {
    let folder = tempfile::tempdir().unwrap();
    numbers(folder.path(), &ROWS);
    let (done, saved) = (folder.path().join("done.json"), folder.path().join("saved.json"));
    let mut kills = 0;
    for round in 0u64.. {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "stream_kills::train_until_killed", "--ignored"])
            .env(FOLDER, folder.path())
            .env("WORKERS", [2, 0, 4, 1][round as usize % 4].to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let before = fs::read(&saved).ok();
        // It gets on by a checkpoint at least, however slow the machine is.
        let ended = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            if round < 12 && fs::read(&saved).ok() != before {
                break None;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        if let Some(status) = ended {
            assert!(status.success(), "{status}");
            break;
        }
        std::thread::sleep(Duration::from_micros(3700 * round));
        child.kill().unwrap();
        kills += u32::from(child.wait().unwrap().signal() == Some(9));
    }
    let trained: Vec<i64> = serde_json::from_slice(&fs::read(done).unwrap()).unwrap();
    let samples = ROWS.iter().sum::<usize>();
    let distinct: BTreeSet<i64> = trained.iter().copied().collect();
    assert_eq!((trained.len(), distinct.len()), (samples, samples), "each sample once");
    assert_ne!(trained, (0..samples as i64).collect::<Vec<_>>());
    assert!(kills >= 5, "{kills} kills");
    println!("{kills} kills");
}
