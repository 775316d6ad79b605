//! `torchrs ckpt convert` and `reshard`: checkpoints made of others.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command, ValueHint};
use torchrs::Dtype;
use torchrs::checkpoint::{CheckpointFormat, ConvertOptions};

use crate::sizes::{parsed, plain, shown, tensors};
use crate::{FAILED, failed, open, path, path_of, print};

/// The formats that can be written.
const FORMATS: [CheckpointFormat; 5] = [
    CheckpointFormat::Safetensors,
    CheckpointFormat::HuggingFace,
    CheckpointFormat::Dcp,
    CheckpointFormat::Sharded,
    CheckpointFormat::Pt,
];
const DTYPES: [Dtype; 4] = [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::BF16];

/// The command line of `convert`.
pub fn command() -> Command {
    Command::new("convert")
        .about("Write a checkpoint in another format")
        .after_help(
            "One tensor is in memory at a time. Nothing is overwritten, and OUT appears when it is complete.",
        )
        .arg(path("path", "PATH", "The checkpoint to read"))
        .arg(path("out", "OUT", "What to write; nothing may be there").value_hint(ValueHint::AnyPath))
        .arg(
            Arg::new("to")
                .long("to")
                .value_name("FORMAT")
                .required(true)
                .value_parser(PossibleValuesParser::new(FORMATS.map(CheckpointFormat::name)))
                .help("The format of OUT"),
        )
        .arg(
            Arg::new("max-shard-size")
                .long("max-shard-size")
                .value_name("SIZE")
                .value_parser(parsed)
                .help("Of huggingface: most bytes of tensors in one file, such as 500MB [default: 5GB]"),
        )
        .arg(
            Arg::new("only")
                .long("only")
                .value_name("PREFIX")
                .help("Only tensors whose names begin so, and without it: a group such as `model`"),
        )
        .arg(
            Arg::new("dtype")
                .long("dtype")
                .value_name("DTYPE")
                .value_parser(PossibleValuesParser::new(DTYPES.map(|dtype| dtype.name())))
                .help("Make floating-point tensors of this dtype"),
        )
}

/// The command line of `reshard`.
pub fn reshard_command() -> Command {
    Command::new("reshard")
        .about("Write a checkpoint for another number of ranks")
        .after_help(
            "Each rank's file has its rows of every tensor, as torch.chunk cuts them. Loading does not need it: any number \
             of ranks reads what any other wrote.",
        )
        .arg(path("path", "PATH", "The checkpoint to read"))
        .arg(path("out", "OUT", "The folder to make; nothing may be there"))
        .arg(
            Arg::new("ranks")
                .long("ranks")
                .value_name("N")
                .required(true)
                .value_parser(clap::value_parser!(u32).range(1..=1_000_000))
                .help("For how many ranks"),
        )
}

/// Converts; returns the exit code.
pub fn run(matches: &ArgMatches) -> i32 {
    let to = matches.get_one::<String>("to").expect("a required argument");
    let to = FORMATS.into_iter().find(|format| format.name() == to).expect("one of the names");
    let mut options = ConvertOptions::new(to);
    if let Some(size) = matches.get_one::<u64>("max-shard-size") {
        if to != CheckpointFormat::HuggingFace {
            eprintln!(
                "torchrs ckpt: --max-shard-size is of --to huggingface; {} has no shards of a size",
                to.name()
            );
            return FAILED;
        }
        options.max_shard_size = *size;
    }
    options.only = matches.get_one::<String>("only").cloned();
    options.dtype = matches
        .get_one::<String>("dtype")
        .and_then(|name| DTYPES.into_iter().find(|dtype| dtype.name() == name));
    write(matches, &options)
}

/// Reshards; returns the exit code.
pub fn reshard(matches: &ArgMatches) -> i32 {
    let mut options = ConvertOptions::new(CheckpointFormat::Sharded);
    options.ranks = *matches.get_one::<u32>("ranks").expect("a required argument") as usize;
    write(matches, &options)
}

fn write(matches: &ArgMatches, options: &ConvertOptions) -> i32 {
    let files = match open(matches, "path", FAILED) {
        Ok(files) => files,
        Err(code) => return code,
    };
    let out: &PathBuf = path_of(matches, "out");
    let made = match files.convert(out, options) {
        Ok(made) => made,
        Err(error) => return failed(&error, FAILED),
    };
    let (count, format) = (tensors(made.tensors), options.to.name());
    let mut text = format!("made {}: {count} as {format}", out.display());
    if let Ok(size) = size_of(out) {
        text += &format!(", {}", shown(size));
    }
    text.push('\n');
    if !made.values_left_out.is_empty() {
        text += &format!(
            "left out, as there are only tensors in it: {}\n",
            made.values_left_out.iter().map(|name| plain(name)).collect::<Vec<_>>().join(", ")
        );
    }
    print(&text);
    0
}

/// Bytes of a file, or of those in a folder.
fn size_of(path: &std::path::Path) -> std::io::Result<u64> {
    if path.is_file() {
        return Ok(path.metadata()?.len());
    }
    std::fs::read_dir(path)?.map(|entry| Ok(entry?.metadata()?.len())).sum()
}
