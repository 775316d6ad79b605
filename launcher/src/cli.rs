//! The command line: torchrun's names where it has them. Options stand before PROGRAM; all that
//! follows PROGRAM is the program's own.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, ValueHint};
use clap_complete::Shell;
use torchrs_job::variables::unknown_variables;
use torchrs_rendezvous::driver::Endpoint;

use crate::console::say;
use crate::dashboard::address::{ANY_PORT, address, joined};
use crate::documents;
use crate::hosts::{ScaleUpOption, detected, nnodes, scale_up};
use crate::nproc::Nproc;
use crate::numa::NumaBinding;
use crate::outputs::StreamMap;
use crate::ssh::options::{SSH_VARIABLE, SshOptions, in_words};

const AFTER_HELP: &str = "\
PROGRAM is looked for in this order:
  1. a path (it contains a '/')
  2. a binary or example of the cargo workspace around the current folder: it is built with
     `cargo build --release` first (unless --no-build)
  3. an executable beside torchrs-launch, or in the folder `examples` there
  4. an executable on PATH

Exit code: that of the worker that failed first (128 + N if signal N killed it), 128 + N if the
launcher was stopped by signal N, 2 for a wrong option, 127 and 126 for a PROGRAM that is not
there or not executable, 1 if the launcher itself could not go on.

Options that are not given are taken from torchrun's variables: PET_NPROC_PER_NODE, PET_NNODES and
so on; --simulate-gpus from TORCHRS_SIMULATE_GPUS and --ssh from TORCHRS_SSH.

  torchrs-launch --nproc 2 train --epochs 3
  torchrs-launch --nproc gpu --max-restarts 3 --log-dir logs ./train
  torchrs-launch --simulate-gpus 2 --nproc gpu train
  torchrs-launch --hosts node1,node2 --nproc gpu train";

/// Start PROGRAM as several cooperating worker processes on this host, and supervise them.
#[derive(Debug, Parser)]
#[command(name = "torchrs-launch", version, after_help = AFTER_HELP)]
pub struct Options {
    /// Workers to start: a number, `gpu` (one per GPU), `cpu` (one per core), or `auto` (one per
    /// GPU, or per core on a machine without).
    #[arg(
        long,
        visible_alias = "nproc-per-node",
        alias = "nproc_per_node",
        value_name = "N|auto|cpu|gpu",
        default_value = "1",
        allow_hyphen_values = true
    )]
    pub nproc: Nproc,

    /// Give the workers N simulated GPUs in place of real ones: to debug a program, never to time it.
    /// `--nproc gpu` then starts N workers.
    #[arg(long, alias = "simulate_gpus", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub simulate_gpus: Option<u32>,

    /// Start all workers again up to N times after a failure.
    #[arg(long, alias = "max_restarts", value_name = "N", default_value_t = 0)]
    pub max_restarts: u32,

    /// Write each worker's stdout.log, stderr.log and error.json under
    /// DIR/RUN_ID/attempt_K/RANK/ (as well as to the terminal, unless --redirects).
    #[arg(long, alias = "log_dir", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub log_dir: Option<PathBuf>,

    /// Streams to send to the log files instead of the terminal: 0 none, 1 stdout, 2 stderr,
    /// 3 both, or per local rank, as in `0:3,1:1`.
    #[arg(short, long, value_name = "STREAMS")]
    pub redirects: Option<StreamMap>,

    /// Streams to send to the log files and to the terminal, written as for --redirects.
    #[arg(short, long, value_name = "STREAMS")]
    pub tee: Option<StreamMap>,

    /// Time that workers have to end by themselves after a signal or after a worker's failure,
    /// before they are killed.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds,
          allow_hyphen_values = true)]
    pub grace: Duration,

    /// The workers' role, given to them as ROLE_NAME.
    #[arg(long, default_value = "default")]
    pub role: String,

    /// Name of this run, given to the workers as TORCHELASTIC_RUN_ID and used in --log-dir
    /// [default: a random one].
    #[arg(
        long,
        visible_alias = "rdzv-id",
        aliases = ["rdzv_id", "run_id"],
        value_name = "ID",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub run_id: Option<String>,

    /// On one host: MASTER_ADDR for the workers [default: 127.0.0.1]. On several: the host of --node-rank 0,
    /// where all meet.
    #[arg(long, alias = "master_addr", value_name = "HOST")]
    pub master_addr: Option<String>,

    /// On one host: MASTER_PORT for the workers; it must be free (torchrs itself opens no port), and 0 picks a
    /// number. On several: the port where all meet [default: 29500]; the workers' is the next.
    #[arg(long, alias = "master_port", value_name = "PORT", default_value_t = 0)]
    pub master_port: u16,

    /// Which cores each worker may run on: all of its GPU's NUMA node, all of that node's socket, its own share of the
    /// node, or those behind one last-level cache. Worker K has GPU K; without GPUs, workers are spread over the nodes
    /// [default: the launcher's own cores].
    #[arg(long, alias = "numa_binding", value_name = "MODE")]
    pub numa_binding: Option<NumaBinding>,

    /// Accepted for torchrun's sake: a job on one host is always on its own. Under srun or mpirun it says
    /// that each of several tasks is to run a job of its own, which is refused without it.
    #[arg(long)]
    pub standalone: bool,

    /// Hosts that run the job, each with its own launcher: N, or MIN:MAX for a job that goes on with
    /// fewer and takes in more [default: what srun, mpirun or Kubernetes say, else 1].
    #[arg(long, value_name = "N|MIN:MAX", value_parser = nnodes)]
    pub nnodes: Option<(u32, u32)>,

    /// This host's place among N, from 0. Needed with --master-addr.
    #[arg(long, alias = "node_rank", value_name = "K")]
    pub node_rank: Option<u32>,

    /// How hosts meet: `static` at --master-addr, `c10d` at --rdzv-endpoint [default: what is given].
    #[arg(long, alias = "rdzv_backend", value_name = "static|c10d")]
    pub rdzv_backend: Option<String>,

    /// The host where the job begins, the same on all; the launcher there leads at first.
    #[arg(long, alias = "rdzv_endpoint", value_name = "HOST[:PORT]")]
    pub rdzv_endpoint: Option<Endpoint>,

    /// Times and choices of the meeting: is_host, join_timeout and last_call_timeout (in seconds), as in
    /// `join_timeout=600,last_call_timeout=30`.
    #[arg(long, alias = "rdzv_conf", value_name = "KEY=VALUE,...")]
    pub rdzv_conf: Option<String>,

    /// The addresses at which other hosts reach this one, and the only ones at which it listens [default: all of its
    /// networks].
    #[arg(long, alias = "local_addr", value_name = "HOST,...")]
    pub local_addr: Option<String>,

    /// When a host that comes late takes part: `now` (all workers start again), `at-checkpoint` (they do when the
    /// program says that its state is saved), or `never` (it is a spare).
    #[arg(long, alias = "scale_up", value_name = "WHEN", default_value = "now", value_parser = scale_up)]
    pub scale_up: ScaleUpOption,

    /// A folder that all hosts share, in which it is decided which half of them goes on when they cannot reach each
    /// other [default: the half with the leader].
    #[arg(long, alias = "rdzv_lock", value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub rdzv_lock: Option<PathBuf>,

    /// A file with the secret that all hosts of a job share, readable by you alone [default: what
    /// TORCHRS_JOB_TOKEN holds].
    #[arg(long, alias = "token_file", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub token_file: Option<PathBuf>,

    /// Serve a page that shows the job while it runs, with Prometheus' /metrics: at PORT of this host alone, or at
    /// HOST:PORT for others, too; port 0 is any. Its address, with a token, is printed.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true, default_missing_value = ANY_PORT,
          value_parser = address)]
    pub dashboard: Option<SocketAddr>,

    #[command(flatten)]
    pub ssh: SshOptions,

    /// Of a launcher that another one has started by ssh.
    #[arg(skip)]
    pub under_launcher: Option<Starter>,

    /// The options that were given and hold on all hosts, in words.
    #[arg(skip)]
    pub given: Vec<OsString>,

    /// Do not look for PROGRAM in a cargo workspace and build nothing.
    #[arg(long)]
    pub no_build: bool,

    /// Print a script that completes the options in SHELL, and end.
    #[arg(long, value_name = "SHELL", exclusive = true)]
    pub completions: Option<Shell>,

    /// Print the man page, and end: `torchrs-launch --man | man -l -`.
    #[arg(long, exclusive = true)]
    pub man: bool,

    /// What the workers run, with its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "PROGRAM",
        value_hint = ValueHint::CommandWithArguments
    )]
    pub command: Vec<OsString>,
}

/// The launcher that has started this one.
#[derive(Debug, Clone)]
pub struct Starter {
    /// The job's secret, from there.
    pub token: Option<String>,
}

/// Variables that stand for options that are not given, and the options' names as fields and in words.
const VARIABLES: [(&str, &str, &str); 18] = [
    ("PET_NNODES", "nnodes", "nnodes"),
    ("PET_NPROC_PER_NODE", "nproc", "nproc"),
    ("PET_MAX_RESTARTS", "max_restarts", "max-restarts"),
    ("PET_RDZV_ID", "run_id", "run-id"),
    ("PET_ROLE", "role", "role"),
    ("PET_LOG_DIR", "log_dir", "log-dir"),
    ("PET_REDIRECTS", "redirects", "redirects"),
    ("PET_TEE", "tee", "tee"),
    ("PET_MASTER_ADDR", "master_addr", "master-addr"),
    ("PET_MASTER_PORT", "master_port", "master-port"),
    ("PET_NODE_RANK", "node_rank", "node-rank"),
    ("PET_RDZV_BACKEND", "rdzv_backend", "rdzv-backend"),
    ("PET_RDZV_ENDPOINT", "rdzv_endpoint", "rdzv-endpoint"),
    ("PET_RDZV_CONF", "rdzv_conf", "rdzv-conf"),
    ("PET_LOCAL_ADDR", "local_addr", "local-addr"),
    ("PET_NUMA_BINDING", "numa_binding", "numa-binding"),
    ("TORCHRS_SIMULATE_GPUS", "simulate_gpus", "simulate-gpus"),
    (SSH_VARIABLE, "ssh", "ssh"),
];

/// Options that the launcher alone has, so that after PROGRAM they are most likely a slip.
const OWN_OPTIONS: [&str; 10] = [
    "--nproc",
    "--nproc-per-node",
    "--nproc_per_node",
    "--simulate-gpus",
    "--max-restarts",
    "--max_restarts",
    "--nnodes",
    "--hosts",
    "--hostfile",
    "--dashboard",
];

/// The options of this process: of its command line, and of its environment. Ends the process over one that
/// cannot be used, and says what is likely not meant.
pub fn options() -> Options {
    let args: Vec<OsString> = std::env::args_os().collect();
    let (args, matches) = matched(args);
    if let Some(shell) = matches.get_one::<Shell>("completions") {
        documents::print(&documents::completions(*shell, Options::command()));
    }
    if matches.get_flag("man") {
        documents::print(&documents::man(Options::command()));
    }
    finished(&args, &matches)
}

/// The options that these words are, of a program that has the launcher's among its own.
pub fn options_of(args: Vec<OsString>) -> Options {
    let (args, matches) = matched(args);
    finished(&args, &matches)
}

/// The words of a command line, with an option's value joined to it that could be taken for PROGRAM, and what they say.
fn matched(args: Vec<OsString>) -> (Vec<OsString>, ArgMatches) {
    let once = Options::command().try_get_matches_from(&args);
    let command =
        once.iter().filter_map(|matches| matches.try_get_many::<OsString>("command").ok());
    let count = command.flatten().map(|words| words.len()).next();
    let args = count.and_then(|count| joined(&args, count)).unwrap_or(args);
    let matches = Options::command().get_matches_from(&args);
    (args, matches)
}

/// With what the environment says.
fn finished(args: &[OsString], matches: &ArgMatches) -> Options {
    let options = from_both(args, matches, |name| std::env::var_os(name));
    let mut options = options.unwrap_or_else(|(error, variables)| {
        say(&format!("torchrs-launch: from the environment: {variables}\n"));
        error.exit()
    });
    // A worker of another launcher may do as it likes.
    let nested = std::env::var_os("TORCHRS_JOB_ID").is_some();
    if options.nnodes.is_none() && !options.standalone && !nested && !options.ssh.names_hosts() {
        detected::fill(&mut options).unwrap_or_else(|reason| refuse(reason));
    }
    for line in unknown_variables().into_iter().chain(slips(&options.command)) {
        say(&format!("torchrs-launch: {line}\n"));
    }
    let number = |name: &str| std::env::var(name).ok()?.trim().parse::<u64>().ok();
    if let Some(world) = number("WORLD_SIZE").filter(|world| *world > 1 && !nested) {
        let rank = number("RANK").map(|rank| format!("RANK={rank} ")).unwrap_or_default();
        say(&format!(
            "torchrs-launch: {rank}WORLD_SIZE={world} of the environment are not used: this is a \
             job of its own\n"
        ));
    }
    options
}

/// The options of `matches`, and of variables where they are not given. An error comes with the variables that
/// were read.
fn from_both(
    args: &[OsString],
    matches: &ArgMatches,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Options, (clap::Error, String)> {
    let given = |field: &str| matches.value_source(field) == Some(ValueSource::CommandLine);
    let mut all: Vec<OsString> = args[..args.len().min(1)].to_vec();
    let mut taken = Vec::new();
    for (name, field, option) in VARIABLES {
        // 0 simulated GPUs are none.
        let off =
            |value: &OsString| value.is_empty() || name.starts_with("TORCHRS") && value == "0";
        let Some(value) = variable(name).filter(|value| !off(value) && !given(field)) else {
            continue;
        };
        taken.push(format!("{name}={}", value.to_string_lossy()));
        let mut argument = OsString::from(format!("--{option}="));
        argument.push(value);
        all.push(argument);
    }
    all.extend(args.iter().skip(1).cloned());
    Options::command()
        .try_get_matches_from(all)
        .and_then(|matches| {
            let given = in_words(&Options::command(), &matches);
            Options::from_arg_matches(&matches).map(|options| Options { given, ..options })
        })
        .map_err(|error| (error, taken.join(" ")))
}

/// What stands among the program's arguments and reads like an option of the launcher.
fn slips(command: &[OsString]) -> Vec<String> {
    let arguments = command.iter().skip(1).take_while(|argument| *argument != "--");
    let names = arguments.filter_map(|argument| argument.to_str()?.split('=').next());
    let own = names.filter(|name| OWN_OPTIONS.contains(name));
    own.map(|name| {
        let program = command[0].to_string_lossy();
        format!("{name} stands after {program} and is passed on to it; the launcher's go before it")
    })
    .collect()
}

impl Options {
    /// The reason why an option makes no sense with so many workers.
    pub fn misfit(&self, nproc: usize) -> Option<String> {
        let maps = [("--redirects", &self.redirects), ("--tee", &self.tee)];
        maps.into_iter().find_map(|(option, map)| {
            let rank = map.as_ref()?.last_rank().filter(|rank| *rank >= nproc)?;
            let last = nproc - 1;
            Some(format!("{option} names local rank {rank}, but local ranks are 0 to {last}"))
        })
    }
}

/// A reason, with the variables that stand for options: one of them may be what nobody remembers.
pub fn with_variables(reason: String) -> String {
    let set = VARIABLES.iter().filter_map(|(name, ..)| {
        let value = std::env::var(name).ok().filter(|value| !value.is_empty())?;
        Some(format!("{name}={value}"))
    });
    let set: Vec<String> = set.collect();
    match set.is_empty() {
        true => reason,
        false => format!("{reason} (from the environment: {})", set.join(" ")),
    }
}

/// Prints why an option's value cannot be used and the usage, and exits with 2.
pub fn refuse(message: String) -> ! {
    Options::command().error(ErrorKind::ValueValidation, message).exit()
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|grace| *grace <= Duration::from_secs(86_400 * 365))
        .ok_or_else(|| "give a time between 0 seconds and a year".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, clap::Error> {
        Options::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_declaration_is_sound() {
        Options::command().debug_assert();
    }

    #[test]
    fn what_follows_the_program_is_the_programs() {
        let o = parse("x --nproc 2 train --nproc 7 --help -- --log-dir").unwrap();
        assert_eq!(o.nproc, Nproc::Count(2));
        assert_eq!(o.command, ["train", "--nproc", "7", "--help", "--", "--log-dir"]);
        assert!(o.log_dir.is_none());
    }

    #[test]
    fn options_after_the_program_are_pointed_out() {
        let said = |line: &str| slips(&parse(line).unwrap().command);
        assert_eq!(said("x --nproc 2 train --epochs 3 --log-dir l"), Vec::<String>::new());
        assert_eq!(
            said("x train --nproc=4"),
            ["--nproc stands after train and is passed on to it; the launcher's go before it"]
        );
        assert_eq!(said("x env train --max-restarts 3 --nnodes 1").len(), 2);
        assert!(said("x train -- --nproc 4").is_empty());
    }

    #[test]
    fn what_the_command_line_leaves_open_the_environment_says() {
        let both = |line: &str, set: &[(&str, &str)]| {
            let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let matches = Options::command().try_get_matches_from(&args).unwrap();
            from_both(&args, &matches, |name| {
                set.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into())
            })
        };
        let set = [("PET_NPROC_PER_NODE", "8"), ("PET_NNODES", "1"), ("PET_MAX_RESTARTS", "")];
        let o = both("x t --x", &set).unwrap();
        assert_eq!((o.nproc, o.max_restarts), (Nproc::Count(8), 0));
        assert_eq!(both("x --nproc 2 t", &set).unwrap().nproc, Nproc::Count(2));
        let (error, from) = both("x t", &[("PET_NNODES", "none")]).unwrap_err();
        assert!(error.to_string().contains("MIN:MAX"), "{error}");
        assert_eq!(from, "PET_NNODES=none");
        let gpus = |value| both("x t", &[("TORCHRS_SIMULATE_GPUS", value)]);
        assert_eq!(gpus("2").unwrap().simulate_gpus, Some(2));
        assert_eq!(gpus("0").unwrap().simulate_gpus, None);
        assert!(gpus("two").is_err());
    }

    #[test]
    fn a_rank_that_is_not_there_is_no_place_for_a_log() {
        let misfit = |line: &str| parse(line).unwrap().misfit(2);
        assert_eq!(misfit("x --redirects 3 --tee 0:3,1:1 t"), None);
        let why = misfit("x --tee 0:3,2:1 t").unwrap();
        assert_eq!(why, "--tee names local rank 2, but local ranks are 0 to 1");
    }

    #[test]
    fn an_unknown_option_is_not_taken_for_the_program() {
        assert!(parse("x --bogus train").is_err());
        assert!(parse("x --nproc 2").is_err());
    }

    #[test]
    fn torchruns_spellings_are_accepted() {
        let line = "x --standalone --nnodes 1 --nproc_per_node 3 --max_restarts 2 --rdzv_id j \
                    --master_port 29500 --log_dir l --tee 3 t";
        let o = parse(line).unwrap();
        assert_eq!((o.nproc, o.max_restarts, o.master_port), (Nproc::Count(3), 2, 29500));
        assert_eq!(o.run_id.as_deref(), Some("j"));
    }

    #[test]
    fn values_that_make_no_sense_are_refused_with_the_reason() {
        for (line, reason) in [
            ("x --nnodes 0 t", "at least 1"),
            ("x --grace -1 t", "between 0"),
            ("x --grace soon t", "not a number of seconds"),
            ("x --nproc 0 t", "at least 1"),
            ("x --nproc -1 t", "at least 1"),
            ("x --nproc abc t", "auto, cpu or gpu"),
            ("x --nproc 100001 t", "'100001'"),
            ("x --nproc 99999999999999999999 t", "at most 100000 workers"),
            ("x --simulate-gpus 0 t", "1..=64"),
            ("x --tee 4 t", "0 none, 1 stdout"),
        ] {
            let error = parse(line).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().contains(reason), "{line}: {error}");
        }
    }
}
