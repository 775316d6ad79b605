//! The host's C++ compiler: which it is, and how it is called.

use super::Header;
use super::options::Options;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

/// What C++ does not do as CUDA does: no exceptions, nothing that the loader keeps, and accesses by
/// another type are allowed, as device code does so. An access that is not aligned is caught, as the
/// hardware does.
const FLAGS: &[&str] = &[
    "-w",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-strict-aliasing",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    // What each function uses stays written down, for `shared`.
    "-ffunction-sections",
    "-Wl,--emit-relocs",
    "-fsanitize=alignment",
    "-fsanitize-undefined-trap-on-error",
];

/// A temporary folder with a program's headers, gone when this is dropped.
#[derive(Debug)]
pub struct Workshop {
    folder: TempDir,
}

/// The compiler's command, and whether it is Clang; `$CXX`, or the first that is there.
fn compiler() -> Option<&'static [String]> {
    static FOUND: OnceLock<Option<Vec<String>>> = OnceLock::new();
    FOUND
        .get_or_init(|| {
            let set = std::env::var("CXX").unwrap_or_default();
            let words: Vec<String> = set.split_whitespace().map(str::to_string).collect();
            let candidates =
                [words, vec!["c++".into()], vec!["g++".into()], vec!["clang++".into()]];
            candidates.into_iter().filter(|words| !words.is_empty()).find(|words| {
                let version = Command::new(&words[0])
                    .args(&words[1..])
                    .arg("--version")
                    .stdin(Stdio::null())
                    .output();
                version.is_ok_and(|output| output.status.success())
            })
        })
        .as_deref()
}

/// Whether kernels can be compiled here.
pub fn is_available() -> bool {
    compiler().is_some()
}

impl Workshop {
    /// A folder with these headers in it.
    pub fn open(headers: &[Header]) -> Result<Workshop, String> {
        let fail = |error: std::io::Error| format!("no temporary folder: {error}");
        let folder =
            tempfile::Builder::new().prefix("torchrs-simulated-").tempdir().map_err(fail)?;
        let workshop = Workshop { folder };
        for header in headers {
            let relative = Path::new(&header.name);
            if relative.is_absolute() || relative.components().any(|part| part.as_os_str() == "..")
            {
                return Err(format!("a header's name leads out of its folder: {}", header.name));
            }
            let path = workshop.folder.path().join("include").join(relative);
            path.parent().map_or(Ok(()), fs::create_dir_all).map_err(fail)?;
            fs::write(path, &header.text).map_err(fail)?;
        }
        Ok(workshop)
    }

    /// The text with all macros expanded.
    pub fn preprocess(&self, text: &str, options: &Options) -> Result<(String, String), String> {
        let mut flags = vec!["-E".to_string(), format!("-D__CUDA_ARCH__={}", options.architecture)];
        flags.extend(options.flags.iter().cloned());
        flags.extend(["-I".to_string(), self.folder.path().join("include").display().to_string()]);
        let output = self.call(text, &flags, &[])?;
        let text =
            String::from_utf8(output.0).map_err(|_| "the source is not UTF-8".to_string())?;
        Ok((text, output.1))
    }

    /// The shared object of a text that went through the preprocessor.
    pub fn compile(&self, text: &str, options: &Options) -> Result<(Vec<u8>, String), String> {
        let object = self.folder.path().join("kernels.so");
        let mut flags: Vec<String> = FLAGS.iter().map(ToString::to_string).collect();
        flags.extend(options.flags.iter().filter(|flag| flag.starts_with("-std=")).cloned());
        flags.extend(match options.debug {
            true => ["-O0".to_string(), "-g".to_string()],
            false => ["-O1".to_string(), "-g0".to_string()],
        });
        flags.extend(["-shared".to_string(), "-o".to_string(), object.display().to_string()]);
        // The C library is there when this is loaded; C++'s would take the linker longer than all else.
        const LIBRARIES: &[&str] = &["-nodefaultlibs", "-lm", "-lgcc"];
        let (_, log) = self.call(text, &flags, LIBRARIES)?;
        let bytes = fs::read(&object)
            .map_err(|error| format!("the compiler left no shared object: {error}"))?;
        Ok((bytes, log))
    }

    /// Calls the compiler with a text as its input; what it wrote to its output, and what it complained.
    fn call(
        &self,
        text: &str,
        flags: &[String],
        after: &[&str],
    ) -> Result<(Vec<u8>, String), String> {
        let Some(command) = compiler() else {
            return Err("no C++ compiler: the simulated GPU compiles kernels by the host's; install g++ or clang++, \
                        or set CXX"
                .to_string());
        };
        let fail = |error: std::io::Error| format!("{}: {error}", command.join(" "));
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .args(flags)
            .args(["-x", "c++", "-"])
            .args(after)
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(fail)?;
        let input = child.stdin.take();
        let output = std::thread::scope(|scope| {
            scope.spawn(move || input.map(|mut input| input.write_all(text.as_bytes())));
            child.wait_with_output()
        });
        let output = output.map_err(fail)?;
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.success() {
            true => Ok((output.stdout, log)),
            false => Err(log),
        }
    }
}
