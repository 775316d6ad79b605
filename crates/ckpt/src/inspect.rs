//! `torchrs ckpt inspect`: what a checkpoint holds.

use std::fmt::Write;

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value, json};
use torchrs::checkpoint::{CheckpointFiles, StoredTensor};
use torchrs::{Dtype, Error, Result, Tensor, catch, no_grad};

use crate::sizes::{grouped, plain, shown, tensors as count_of};
use crate::{FAILED, failed, open, path, print};

/// Numbers of a tensor that are shown.
const FIRST: usize = 8;

/// The command line of `inspect`.
pub fn command() -> Command {
    Command::new("inspect")
        .about("List the tensors and values of a checkpoint")
        .arg(path("path", "PATH", "The checkpoint"))
        .arg(Arg::new("name").value_name("NAME").help(
            "A tensor or value to show more of, or what the names to list begin with, such as a group",
        ))
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print it as JSON"),
        )
}

/// Prints it; returns the exit code.
pub fn run(matches: &ArgMatches) -> i32 {
    let files = match open(matches, "path", FAILED) {
        Ok(files) => files,
        Err(code) => return code,
    };
    let name = matches.get_one::<String>("name").map(String::as_str);
    let text = match matches.get_flag("json") {
        true => as_json(&files, name),
        false => as_text(&files, name),
    };
    match text {
        Ok(text) => {
            print(&text);
            0
        }
        Err(error) => failed(&error, FAILED),
    }
}

/// What is asked for.
enum Asked<'a> {
    All,
    Tensor(StoredTensor<'a>),
    Value(&'a str),
    /// What begins so.
    Part(&'a str),
}

fn asked<'a>(files: &'a CheckpointFiles, name: Option<&'a str>) -> Result<Asked<'a>> {
    let Some(name) = name else { return Ok(Asked::All) };
    if let Some(tensor) = files.tensors().find(|tensor| tensor.name == name) {
        return Ok(Asked::Tensor(tensor));
    }
    if let Some(value) = files.value_names().find(|value| *value == name) {
        return Ok(Asked::Value(value));
    }
    let mut names = files.tensors().map(|tensor| tensor.name).chain(files.value_names());
    match names.any(|other| begins(other, Some(name))) {
        true => Ok(Asked::Part(name)),
        false => {
            let what = format!("has no tensor or value `{name}`, nor any whose name begins so");
            Err(Error::file(files.path(), what))
        }
    }
}

fn begins(name: &str, part: Option<&str>) -> bool {
    part.is_none_or(|part| name.starts_with(part))
}

fn as_json(files: &CheckpointFiles, name: Option<&str>) -> Result<String> {
    let asked = asked(files, name)?;
    let row = |tensor: StoredTensor<'_>| {
        json!({
            "name": tensor.name,
            "dtype": tensor.dtype.name(),
            "shape": tensor.shape,
            "pieces": tensor.pieces,
            "bytes": tensor.nbytes,
        })
    };
    let document = match asked {
        Asked::Tensor(tensor) => {
            let mut document = row(tensor);
            document["statistics"] = Statistics::of(&files.tensor(tensor.name)?)?.json();
            document
        }
        Asked::Value(name) => files.value::<Value>(name)?,
        Asked::All | Asked::Part(_) => {
            let part = if let Asked::Part(part) = asked { Some(part) } else { None };
            let tensors: Vec<StoredTensor<'_>> =
                files.tensors().filter(|tensor| begins(tensor.name, part)).collect();
            let mut values = serde_json::Map::new();
            for name in files.value_names().filter(|name| begins(name, part)) {
                values.insert(name.to_owned(), files.value(name)?);
            }
            json!({
                "path": files.path().display().to_string(),
                "format": files.format().name(),
                "world_size": files.world_size(),
                "groups": files.groups(),
                "elements": tensors.iter().map(|tensor| tensor.numel()).sum::<usize>(),
                "bytes": tensors.iter().map(|tensor| tensor.nbytes).sum::<u64>(),
                "tensors": tensors.into_iter().map(row).collect::<Vec<_>>(),
                "values": values,
            })
        }
    };
    Ok(serde_json::to_string_pretty(&document).expect("JSON values are JSON") + "\n")
}

fn as_text(files: &CheckpointFiles, name: Option<&str>) -> Result<String> {
    let part = match asked(files, name)? {
        Asked::All => None,
        Asked::Part(part) => Some(part),
        Asked::Tensor(tensor) => {
            return Ok(table(&[tensor]) + &Statistics::of(&files.tensor(tensor.name)?)?.text());
        }
        Asked::Value(name) => {
            let value = files.value::<Value>(name)?;
            return Ok(serde_json::to_string_pretty(&value).expect("JSON is JSON") + "\n");
        }
    };
    let mut text = format!("{}: {}", files.path().display(), files.format().name());
    if let Some(ranks) = files.world_size() {
        _ = write!(text, ", written by {ranks} rank{}", if ranks == 1 { "" } else { "s" });
    }
    text.push_str("\n\n");
    let tensors: Vec<StoredTensor<'_>> =
        files.tensors().filter(|tensor| begins(tensor.name, part)).collect();
    text += &table(&tensors);
    if !tensors.is_empty() {
        text.push('\n');
    }
    for group in files.groups() {
        let of_group = |tensor: &&StoredTensor<'_>| {
            tensor.name.strip_prefix(group.as_str()).is_some_and(|rest| rest.starts_with('.'))
        };
        let of_group: Vec<&StoredTensor<'_>> = tensors.iter().filter(of_group).collect();
        if !of_group.is_empty() {
            text += &totals(&plain(group), &of_group);
        }
    }
    text += &totals("all", &tensors.iter().collect::<Vec<_>>());
    let values: Vec<&str> = files.value_names().filter(|name| begins(name, part)).collect();
    if !values.is_empty() {
        text.push('\n');
    }
    for name in values {
        let value = files.value::<Value>(name)?.to_string();
        let end = value.char_indices().nth(100).map_or(value.len(), |(end, _)| end);
        let more = if end < value.len() { " ..." } else { "" };
        _ = writeln!(text, "{} = {}{more}", plain(name), &value[..end]);
    }
    Ok(text)
}

fn totals(of: &str, tensors: &[&StoredTensor<'_>]) -> String {
    let elements: usize = tensors.iter().map(|tensor| tensor.numel()).sum();
    let bytes: u64 = tensors.iter().map(|tensor| tensor.nbytes).sum();
    let (count, elements) = (count_of(tensors.len()), grouped(elements as u64));
    format!("{of}: {count}, {elements} parameters, {}\n", shown(bytes))
}

fn table(tensors: &[StoredTensor<'_>]) -> String {
    let head = ["tensor", "dtype", "shape", "pieces", "bytes"].map(str::to_owned);
    let row = |tensor: &StoredTensor<'_>| {
        [
            plain(tensor.name),
            tensor.dtype.name().to_owned(),
            format!("{:?}", tensor.shape),
            tensor.pieces.to_string(),
            shown(tensor.nbytes),
        ]
    };
    let rows: Vec<[String; 5]> = std::iter::once(head).chain(tensors.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    // Longer names shift their own line alone; widths have an end.
    let widths: Vec<usize> = (0..5).map(|column| width(column).unwrap_or(0).min(200)).collect();
    let mut text = String::new();
    for [name, dtype, shape, pieces, bytes] in &rows {
        let [a, b, c, d, e] = widths[..] else { unreachable!("five columns") };
        _ = writeln!(text, "{name:a$}  {dtype:b$}  {shape:c$}  {pieces:>d$}  {bytes:>e$}");
    }
    text
}

/// What a tensor's numbers are like.
struct Statistics {
    least: f64,
    most: f64,
    mean: f64,
    not_finite: usize,
    first: Vec<f64>,
}

impl Statistics {
    fn of(tensor: &Tensor) -> Result<Statistics> {
        catch(|| {
            no_grad(|| {
                let real = if tensor.dtype().is_complex() {
                    tensor.view_as_real()
                } else {
                    tensor.clone()
                };
                let flat = real.reshape([-1i64]);
                let mut found = Statistics {
                    least: f64::INFINITY,
                    most: f64::NEG_INFINITY,
                    mean: 0.0,
                    not_finite: 0,
                    first: Vec::new(),
                };
                let (block, numel) = (1 << 18, flat.numel());
                for start in (0..numel).step_by(block) {
                    let part = flat.narrow(0, start, block.min(numel - start));
                    let part = part.to_dtype(Dtype::F64).to_vec::<f64>();
                    if start == 0 {
                        found.first = part.iter().copied().take(FIRST).collect();
                    }
                    for x in part {
                        if x.is_finite() {
                            found.least = found.least.min(x);
                            found.most = found.most.max(x);
                            found.mean += x;
                        } else {
                            found.not_finite += 1;
                        }
                    }
                }
                let finite = numel - found.not_finite;
                found.mean /= finite.max(1) as f64;
                found
            })
        })
    }

    fn json(&self) -> Value {
        json!({
            "min": self.least,
            "max": self.most,
            "mean": self.mean,
            "not_finite": self.not_finite,
            "first": self.first,
        })
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if self.least <= self.most {
            _ = writeln!(
                text,
                "min {}, max {}, mean {}, not finite: {}",
                self.least, self.most, self.mean, self.not_finite
            );
        } else {
            _ = writeln!(text, "no finite numbers; not finite: {}", self.not_finite);
        }
        let first: Vec<String> = self.first.iter().map(f64::to_string).collect();
        _ = writeln!(text, "first: {}", first.join(" "));
        text
    }
}
