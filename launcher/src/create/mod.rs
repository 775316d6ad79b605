//! `torchrs new NAME`: a project of one's own that builds and trains at once.

mod names;

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command, ValueHint};

use self::names::misfit;
use crate::console::say;
use crate::failure::{Doing, Failure};

/// Exit code when nothing was made.
const FAILED: i32 = 1;
/// Stand for what differs, in the files of a new project.
const NAME: &str = "{{name}}";
const TORCHRS: &str = "{{torchrs}}";
/// Files of every new project.
const FILES: [(&str, &str); 2] = [
    ("Cargo.toml", include_str!("../../project/Cargo.toml.txt")),
    (".gitignore", include_str!("../../project/gitignore.txt")),
];
/// `--template`: a program, by name.
const TEMPLATES: [(&str, &[(&str, &str)]); 2] = [
    (
        "digits",
        &[
            ("src/main.rs", include_str!("../../project/main.rs")),
            ("README.md", include_str!("../../project/README.md.txt")),
        ],
    ),
    (
        "cifar",
        &[
            ("src/main.rs", include_str!("../../project/cifar/main.rs")),
            ("src/model.rs", include_str!("../../project/cifar/model.rs")),
            ("README.md", include_str!("../../project/cifar/README.md.txt")),
        ],
    ),
];

const AFTER_HELP: &str = "  torchrs new digits
  cd digits
  torchrs-launch --nproc 2 digits";

/// The command line of `torchrs new`.
pub fn command() -> Command {
    Command::new("new")
        .about("Make a project that trains a small network with any number of workers")
        .after_help(AFTER_HELP)
        .arg(
            Arg::new("name")
                .value_name("PATH")
                .required(true)
                .value_hint(ValueHint::DirPath)
                .value_parser(clap::value_parser!(PathBuf))
                .help("The folder to make; its last part is the project's name"),
        )
        .arg(
            Arg::new("template")
                .long("template")
                .value_name("NAME")
                .value_parser(TEMPLATES.map(|template| template.0))
                .default_value(TEMPLATES[0].0)
                .help("The program: a small network on digits, or a residual one on CIFAR-10 with the training kit"),
        )
        .arg(
            Arg::new("torchrs")
                .long("torchrs")
                .value_name("DIR")
                .value_hint(ValueHint::DirPath)
                .value_parser(clap::value_parser!(PathBuf))
                .help("torchrs's own folder [default: where this command was built from]"),
        )
}

/// Makes the project; returns the exit code.
pub fn run(matches: &ArgMatches) -> i32 {
    let path = matches.get_one::<PathBuf>("name").expect("a required argument");
    let template = matches.get_one::<String>("template").expect("it has a default");
    let torchrs = matches.get_one::<PathBuf>("torchrs");
    match create(path, template, torchrs.map(PathBuf::as_path)) {
        Ok((name, torchrs)) => {
            println!("made {}, which uses torchrs in {}", path.display(), torchrs.display());
            println!("\n  cd {}\n  torchrs-launch --nproc 2 {name}", path.display());
            0
        }
        Err(failure) => {
            say(&format!("torchrs new: {}\n", failure.message));
            FAILED
        }
    }
}

/// The project's name, and torchrs's folder.
fn create(
    path: &Path,
    template: &str,
    torchrs: Option<&Path>,
) -> Result<(String, PathBuf), Failure> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if let Some(why) = misfit(name) {
        return Err(Failure::new(format!("PATH: `{}`: {why}", path.display())));
    }
    let torchrs = library(torchrs)?;
    let is_taken = path.is_file() || fs::read_dir(path).is_ok_and(|mut dir| dir.next().is_some());
    if is_taken {
        let text = format!("PATH: {} is there and not an empty folder", path.display());
        return Err(Failure::new(text));
    }
    for (file, text) in files(template) {
        let file = path.join(file);
        let folder = file.parent().unwrap_or(path);
        fs::create_dir_all(folder).doing(|| format!("cannot make {}", folder.display()))?;
        let quoted = toml_string(&torchrs.to_string_lossy());
        let text = text.replace(NAME, name).replace(TORCHRS, &quoted);
        fs::write(&file, text).doing(|| format!("cannot write {}", file.display()))?;
    }
    Ok((name.to_owned(), torchrs))
}

/// The files of a project of this template, which is one of [`TEMPLATES`].
fn files(template: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let own = TEMPLATES.into_iter().filter(move |(name, _)| *name == template);
    FILES.into_iter().chain(own.flat_map(|(_, files)| files).copied())
}

/// torchrs's folder: the one that is named, or the one that this command was built from.
fn library(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let folder = named.or(built_from).unwrap_or(Path::new("."));
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    let is_it = manifest.lines().any(|line| line.trim() == "name = \"torchrs\"");
    match (is_it, named) {
        (true, _) => fs::canonicalize(folder).doing(|| format!("cannot find {}", folder.display())),
        (false, Some(named)) => Err(Failure::new(format!(
            "--torchrs: {} is not torchrs's folder: its Cargo.toml names no package `torchrs`",
            named.display()
        ))),
        (false, None) => Err(Failure::new(format!(
            "torchrs's folder, {}, is there no more: name it with --torchrs DIR",
            folder.display()
        ))),
    }
}

/// A string as TOML quotes it.
fn toml_string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted += &format!("\\u{:04X}", c as u32),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Options;

    #[test]
    fn a_project_is_made_once_and_of_torchrs_alone() {
        let folder = tempfile::tempdir().unwrap();
        for (template, _) in TEMPLATES {
            let path = folder.path().join(format!("my-{template}"));
            let (name, torchrs) = create(&path, template, None).unwrap();
            assert_eq!(name, format!("my-{template}"));
            assert!(torchrs.join("launcher/Cargo.toml").is_file());
            let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap();
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{manifest}");
            assert!(path.join("src/main.rs").is_file() && path.join("README.md").is_file());
            for (file, _) in files(template) {
                assert!(!fs::read_to_string(path.join(file)).unwrap().contains("{{"), "{file}");
            }
            let again = create(&path, template, None).unwrap_err().to_string();
            assert!(again.contains("not an empty folder"), "{again}");
        }
        let (other, own) = (folder.path().join("b"), Some(folder.path()));
        let error = create(&other, "digits", own).unwrap_err().to_string();
        assert!(error.contains("--torchrs") && error.contains("no package `torchrs`"), "{error}");
        assert!(!other.exists());
    }

    #[test]
    fn help_shows_its_lines_below_each_other() {
        let help = command().render_help().to_string();
        assert!(help.contains("\n  torchrs new digits\n  cd digits\n"), "{help}");
    }

    #[test]
    fn options_that_a_project_names_are_there() {
        let launcher = Options::command();
        // Of the programs and of TensorBoard.
        let mut known = vec!["--resume".to_owned(), "--run-dir".into(), "--logdir".into()];
        known.extend(
            launcher.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?))),
        );
        for (template, _) in TEMPLATES {
            for (file, text) in files(template) {
                let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
                for option in words.filter(|word| word.starts_with("--")) {
                    assert!(
                        known.iter().any(|name| name == option),
                        "{template}: {file}: {option}"
                    );
                }
            }
        }
    }

    #[test]
    fn paths_are_quoted() {
        assert_eq!(toml_string(r#"/a "b"\c"#), r#""/a \"b\"\\c""#);
        assert_eq!(toml_string("a\nb"), "\"a\\u000Ab\"");
    }
}
