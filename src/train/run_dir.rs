//! Where a run's files go, and which checkpoint it goes on from. Rank 0 looks; the others are told,
//! so that all agree even on folders that appear meanwhile.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::checkpoint::{Best, Checkpoint, CheckpointDir};
use crate::distributed::{ProcessGroup, WorkerEnv};
use crate::error::{Context, Error, Result};

/// Below the run's folder.
const CHECKPOINTS: &str = "checkpoints";
/// The job that a run belongs to: by it the same job, started again, finds its run.
const JOB: &str = "job.json";

/// Options of [`RunDir::agree`].
///
/// ```
/// use torchrs::train::RunDirOptions;
/// let options = RunDirOptions { resume: true, ..Default::default() };
/// assert_eq!((options.runs.to_str(), options.path, options.keep), (Some("runs"), None, 2));
/// ```
#[derive(Debug, Clone)]
pub struct RunDirOptions {
    /// The folder of all runs, in which a new run gets a folder `NAME-001`, `NAME-002` and so on.
    pub runs: PathBuf,
    /// The run's own folder, in place of one in `runs`.
    pub path: Option<PathBuf>,
    /// Goes on from the latest checkpoint of `path`, or else of the latest run of that name; it is an error when there
    /// is none. A job that is started again, by the launcher or by Slurm, goes on without being asked. On several hosts
    /// without a `--run-id` the job does not find its run when another host has rank 0: name `path`.
    pub resume: bool,
    /// How many of the latest checkpoints are kept.
    pub keep: usize,
    /// How many of the best are kept as well, and which are best.
    pub keep_best: Option<(usize, Best)>,
}

impl RunDirOptions {
    /// What the program's command line says by `--resume` and `--run-dir PATH`, and all other arguments: the program
    /// reads them, or refuses them.
    ///
    /// ```no_run
    /// use torchrs::train::RunDirOptions;
    /// use torchrs::Error;
    /// let (options, others) = RunDirOptions::from_args()?;
    /// if !others.is_empty() {
    ///     return Err(Error::config("arguments", format!("{others:?}; they are [--resume] [--run-dir PATH]")));
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] for `--run-dir` without a path.
    pub fn from_args() -> Result<(Self, Vec<OsString>)> {
        Self::of(std::env::args_os().skip(1))
    }

    fn of(args: impl IntoIterator<Item = OsString>) -> Result<(Self, Vec<OsString>)> {
        let (mut options, mut others) = (RunDirOptions::default(), Vec::new());
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let path = match arg.to_str() {
                Some("--resume") => {
                    options.resume = true;
                    continue;
                }
                Some("--run-dir") => args.next().unwrap_or_default(),
                Some(arg) if arg.starts_with("--run-dir=") => arg["--run-dir=".len()..].into(),
                _ => {
                    others.push(arg);
                    continue;
                }
            };
            if path.is_empty() || path.to_str().is_some_and(|path| path.starts_with("--")) {
                return Err(Error::config("--run-dir", "names no folder: --run-dir PATH"));
            }
            options.path = Some(path.into());
        }
        Ok((options, others))
    }
}

impl Default for RunDirOptions {
    fn default() -> Self {
        RunDirOptions { runs: "runs".into(), path: None, resume: false, keep: 2, keep_best: None }
    }
}

/// The folder of a run, and the checkpoint that it goes on from; the same on all ranks.
///
/// ```
/// use torchrs::checkpoint::Checkpoint;
/// use torchrs::train::{RunDir, RunDirOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let runs = folder.path().to_owned();
/// let group = torchrs::distributed::init_process_group(Default::default())?;
/// let options = RunDirOptions { runs, ..Default::default() };
/// let run = RunDir::agree("digits", &options, &group)?;
/// assert!(run.path().ends_with("digits-001") && run.resume_step().is_none());
/// run.checkpoints().save(10, &Checkpoint::new())?;
/// // Later:
/// let run = RunDir::agree("digits", &RunDirOptions { resume: true, ..options }, &group)?;
/// assert_eq!(run.resume_step(), Some(10));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct RunDir {
    path: PathBuf,
    resume_step: Option<u64>,
    checkpoints: CheckpointDir,
}

/// What rank 0 tells the others: the folder and the step, or why there are none.
type Choice = std::result::Result<(String, Option<u64>), String>;

impl RunDir {
    /// Rank 0's choice, on all ranks. Collective. Makes the folder, which all hosts have to see.
    ///
    /// # Errors
    /// [`Error::Config`], on all ranks, where a folder that is given holds checkpoints and the run is not to go on from
    /// them, or where it is to go on and there are none; [`Error::Os`] for a folder that cannot be made or read.
    #[track_caller]
    pub fn agree(name: &str, options: &RunDirOptions, group: &ProcessGroup) -> Result<Self> {
        let job = Job::of_environment()?;
        let (choice, own) = match group.rank() {
            0 => match choose(name, options, &job) {
                Ok(choice) => (Choice::Ok(choice), None),
                Err(error) => (Choice::Err(error.to_string()), Some(error)),
            },
            _ => (Choice::Err(String::new()), None),
        };
        let chosen: Choice = group.broadcast_object(Some(&choice), 0)?;
        if let Some(error) = own {
            return Err(error);
        }
        let (path, resume_step) = chosen.map_err(|why| Error::config("RunDir::agree", why))?;
        let path = PathBuf::from(path);
        let checkpoints = checkpoints(&path, options);
        Ok(RunDir { path, resume_step, checkpoints })
    }

    /// The run's folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The step of the checkpoint that the run goes on from.
    pub fn resume_step(&self) -> Option<u64> {
        self.resume_step
    }

    /// The run's checkpoints.
    pub fn checkpoints(&self) -> &CheckpointDir {
        &self.checkpoints
    }

    /// The checkpoint that the run goes on from. Its tensors are read when they are asked for.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn load(&self) -> Result<Option<Checkpoint>> {
        self.resume_step.map(|step| Checkpoint::open(self.checkpoints.at(step))).transpose()
    }
}

fn checkpoints(path: &Path, options: &RunDirOptions) -> CheckpointDir {
    let checkpoints = CheckpointDir::new(path.join(CHECKPOINTS), options.keep);
    match options.keep_best {
        Some((k, best)) => checkpoints.keep_best(k, best),
        None => checkpoints,
    }
}

/// The job that this process belongs to, as the run's folder remembers it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Job {
    /// The launcher's, the same for all rounds of its workers.
    launch: Option<String>,
    /// Slurm's, the same when it starts the job again.
    slurm: Option<String>,
    #[serde(skip)]
    is_later_round: bool,
    #[serde(skip)]
    is_requeued: bool,
    /// Whether other hosts' launchers know this job by another name than this host's does.
    #[serde(skip)]
    is_nameless: bool,
}

impl Job {
    fn of_environment() -> Result<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let env = WorkerEnv::from_env()?;
        // Launchers of several hosts have the run's id in common, and each a random one.
        let run = Some(env.run_id).filter(|id| id != "none");
        let is_over_hosts = env.local_world_size < env.world_size;
        Ok(Job {
            is_nameless: is_over_hosts && run.is_none(),
            launch: run.or_else(|| variable("TORCHRS_JOB_ID")),
            slurm: variable("SLURM_JOB_ID"),
            is_later_round: env.round > 0,
            is_requeued: variable("SLURM_RESTART_COUNT").is_some_and(|count| count != "0"),
        })
    }

    fn is_restarted(&self) -> bool {
        self.is_later_round || self.is_requeued
    }

    /// Of the runs of a name, from the first on, the one that this job goes on with.
    ///
    /// # Errors
    /// [`Error::Config`] where Slurm's job has made several.
    fn own<'a>(&self, runs: &'a [PathBuf]) -> Result<Option<&'a PathBuf>> {
        let made: Vec<(&PathBuf, Job)> =
            runs.iter().filter_map(|path| Some((path, Job::of_run(path)?))).collect();
        let same = |a: &Option<String>, b: &Option<String>| a.is_some() && a == b;
        if self.is_later_round
            && let Some((path, _)) = made.iter().rfind(|(_, job)| same(&job.launch, &self.launch))
        {
            return Ok(Some(*path));
        }
        if !self.is_requeued {
            return Ok(None);
        }
        let mut slurm = made.iter().filter(|(_, job)| same(&job.slurm, &self.slurm));
        match (slurm.next(), slurm.next()) {
            (Some((one, _)), Some((other, _))) => {
                let what = format!(
                    "Slurm has started this job again, which has made several runs of this name ({}, {}); name the \
                     folder of the one to go on with",
                    one.display(),
                    other.display()
                );
                Err(Error::config("path", what))
            }
            (one, _) => Ok(one.map(|(path, _)| *path)),
        }
    }

    /// The job that a run was last made by.
    fn of_run(run: &Path) -> Option<Self> {
        serde_json::from_str(&fs::read_to_string(run.join(JOB)).ok()?).ok()
    }
}

fn choose(name: &str, options: &RunDirOptions, job: &Job) -> Result<(String, Option<u64>)> {
    if name.is_empty() || name.contains(['/', '\0']) {
        let what = format!("`{name}`; must be the beginning of a folder's name");
        return Err(Error::argument("RunDir::agree", "name", what));
    }
    let prefix = format!("{name}-");
    let run = |number: u32| options.runs.join(format!("{prefix}{number:03}"));
    let numbers = numbered(&options.runs, &prefix)?;
    let runs: Vec<PathBuf> = numbers.iter().map(|&number| run(number)).collect();
    let mut is_new = false;
    let (path, resume) = match &options.path {
        Some(path) => (path.clone(), options.resume || job.is_restarted()),
        None => match (job.own(&runs)?, runs.last()) {
            (Some(own), _) => (own.clone(), true),
            (None, Some(last)) if options.resume => (last.clone(), true),
            // Rank 0 may have been on another host, which knew the run.
            (None, _) if job.is_nameless && job.is_later_round && !options.resume => {
                let what = "the workers were started again, on several hosts, and this one does not know the job's \
                            run: a new one would begin anew. Give all launchers the same --run-id, or name the folder \
                            by `path`";
                return Err(Error::config("RunDir::agree", what));
            }
            (None, None) if options.resume => {
                let what = format!(
                    "no run named {prefix}* under {} to go on with; name its folder by `path`",
                    options.runs.display()
                );
                return Err(Error::config("resume", what));
            }
            _ => {
                is_new = true;
                let next = numbers.last().map_or(1, |n| n + 1);
                (new_folder(&options.runs, next, run)?, false)
            }
        },
    };
    let latest = checkpoints(&path, options).latest()?;
    let shown = path.display();
    match &latest {
        Some((step, folder)) if !resume => {
            let what = format!(
                "{shown} holds a run with a checkpoint at step {step} ({}); resume to go on with it, or name another \
                 folder",
                folder.display()
            );
            return Err(Error::config("path", what));
        }
        None if options.resume => {
            return Err(Error::config("resume", format!("{shown} holds no checkpoint")));
        }
        _ => {}
    }
    if !is_new {
        fs::create_dir_all(&path).context(|| format!("create the run folder {shown}"))?;
    }
    let file = path.join(JOB);
    let text = serde_json::to_string(job).expect("plain words") + "\n";
    fs::write(&file, text).context(|| format!("write {}", file.display()))?;
    let text = path.to_str().ok_or_else(|| {
        Error::config(
            "path",
            format!("{} is not UTF-8, as names of folders are here", path.display()),
        )
    })?;
    Ok((text.to_owned(), latest.map(|(step, _)| step)))
}

/// Makes the folder of the first free number from `next` on. Jobs that start at the same moment get one each.
fn new_folder(runs: &Path, next: u32, run: impl Fn(u32) -> PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(runs).context(|| format!("create the folder of runs {}", runs.display()))?;
    for path in (next..).map(run) {
        match fs::create_dir(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => {
                made.context(|| format!("create the run folder {}", path.display()))?;
                return Ok(path);
            }
        }
    }
    let what = format!("no number from {next} on is free under {}", runs.display());
    Err(Error::config("RunDir::agree", what))
}

/// The numbers of the runs of that name, ascending.
fn numbered(runs: &Path, prefix: &str) -> Result<Vec<u32>> {
    let entries = match fs::read_dir(runs) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.context(|| format!("read folder {}", runs.display()))?,
    };
    let number = |e: fs::DirEntry| e.file_name().to_str()?.strip_prefix(prefix)?.parse().ok();
    let mut numbers: Vec<u32> = entries.flatten().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_start_at_once_have_a_folder_each() {
        let folder = tempfile::tempdir().unwrap();
        let options = RunDirOptions { runs: folder.path().join("runs"), ..Default::default() };
        let (together, rounds) = (8, 20);
        let barrier = std::sync::Barrier::new(together);
        let start = || {
            let one = |_| {
                barrier.wait();
                choose("net", &options, &Job::default()).unwrap().0
            };
            (0..rounds).map(one).collect::<Vec<_>>()
        };
        let mut paths: Vec<String> = std::thread::scope(|scope| {
            let jobs: Vec<_> = (0..together).map(|_| scope.spawn(start)).collect();
            jobs.into_iter().flat_map(|job| job.join().unwrap()).collect()
        });
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), together * rounds);
    }

    #[test]
    fn a_job_that_starts_again_finds_its_run() {
        let folder = tempfile::tempdir().unwrap();
        let options = RunDirOptions { runs: folder.path().join("runs"), ..Default::default() };
        let named = |choice: (String, Option<u64>)| {
            (choice.0.rsplit_once('/').unwrap().1.to_owned(), choice.1)
        };
        let start = |job: &Job| choose("net", &options, job).map(named);
        let launched = |launch: &str, is_later_round| {
            let launch = Some(launch.to_owned());
            Job { launch, slurm: Some("77".to_owned()), is_later_round, ..Job::default() }
        };
        assert_eq!(start(&launched("a", false)).unwrap(), ("net-001".into(), None));
        assert_eq!(start(&launched("b", false)).unwrap(), ("net-002".into(), None));
        checkpoints(&options.runs.join("net-001"), &options).save(7, &Checkpoint::new()).unwrap();
        // Workers that start again: their own run, not the latest; before a first checkpoint from the beginning.
        assert_eq!(start(&launched("a", true)).unwrap(), ("net-001".into(), Some(7)));
        assert_eq!(start(&launched("b", true)).unwrap(), ("net-002".into(), None));
        // The same once more by hand, one that nobody knows, and one without a name.
        assert_eq!(start(&launched("a", false)).unwrap(), ("net-003".into(), None));
        assert_eq!(start(&launched("c", true)).unwrap(), ("net-004".into(), None));
        let nameless = Job { is_later_round: true, ..Job::default() };
        assert_eq!(start(&nameless).unwrap(), ("net-005".into(), None));
        let over_hosts = Job { is_nameless: true, ..launched("e", true) };
        let error = start(&over_hosts).unwrap_err().to_string();
        assert!(error.contains("--run-id"), "{error}");
        // A job that Slurm starts again has another launcher.
        let requeued = |slurm: &str| {
            let (launch, slurm) = (Some("d".to_owned()), Some(slurm.to_owned()));
            Job { launch, slurm, is_requeued: true, ..Job::default() }
        };
        let first = Job { is_requeued: false, ..requeued("78") };
        assert_eq!(start(&first).unwrap(), ("net-006".into(), None));
        assert_eq!(start(&requeued("78")).unwrap(), ("net-006".into(), None));
        let error = start(&requeued("77")).unwrap_err().to_string();
        assert!(error.contains("net-001") && error.contains("net-002"), "{error}");
    }

    #[test]
    fn a_command_line_says_which_run_it_is() {
        let of = |line: &str| RunDirOptions::of(line.split_whitespace().map(OsString::from));
        let said = |line: &str| {
            let (options, others) = of(line).unwrap();
            (options.resume, options.path, others.join(" ".as_ref()).into_string().unwrap())
        };
        assert_eq!(
            said("data --epochs 3 --resum"),
            (false, None, "data --epochs 3 --resum".into())
        );
        assert_eq!(said("--run-dir a/b --resume data"), (true, Some("a/b".into()), "data".into()));
        assert_eq!(said("--run-dir=c"), (false, Some("c".into()), String::new()));
        for line in ["--run-dir", "--run-dir --resume", "--run-dir="] {
            assert!(of(line).unwrap_err().to_string().contains("--run-dir"), "{line}");
        }
    }

    #[test]
    fn a_folder_with_checkpoints_is_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let options = RunDirOptions { path: Some(path.clone()), ..Default::default() };
        let resume = RunDirOptions { resume: true, ..options.clone() };
        let none = Job::default();
        let error = choose("net", &resume, &none).unwrap_err().to_string();
        assert!(error.contains("holds no checkpoint"), "{error}");
        assert_eq!(choose("net", &options, &none).unwrap().1, None);
        checkpoints(&path, &options).save(3, &Checkpoint::new()).unwrap();
        let error = choose("net", &options, &none).unwrap_err().to_string();
        assert!(error.contains("checkpoint at step 3"), "{error}");
        assert_eq!(choose("net", &resume, &none).unwrap().1, Some(3));
        let again = Job { is_requeued: true, ..Job::default() };
        assert_eq!(choose("net", &options, &again).unwrap().1, Some(3));
        let error = choose("a/b", &options, &none).unwrap_err().to_string();
        assert!(error.contains("`a/b`"), "{error}");
        let runs = folder.path().join("runs");
        let error =
            choose("net", &RunDirOptions { runs, resume: true, ..Default::default() }, &none);
        assert!(error.unwrap_err().to_string().contains("no run named net-*"));
    }
}
