//! NVRTC's options, as far as they concern a host's compiler; one that NVRTC does not have is an error.

use crate::faults;
use crate::settings::Fault;

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Flags for the host's compiler: folders, language.
    pub flags: Vec<String>,
    /// Definitions as lines of text, to stand after our headers, whose own names they must not meet.
    pub definitions: String,
    /// The architecture's number, as in `__CUDA_ARCH__`.
    pub architecture: u32,
    /// Whether the architecture is a virtual one.
    pub intermediate: bool,
    /// Whether to compile for a debugger.
    pub debug: bool,
}

impl Options {
    /// A definition, as `NAME=VALUE`; the value is 1 where there is none.
    fn define(&mut self, definition: &str) {
        let (name, value) = definition.split_once('=').unwrap_or((definition, "1"));
        self.definitions.push_str(&format!("#define {name} {value}\n"));
    }

    /// The end of a definition.
    fn undefine(&mut self, name: &str) {
        self.definitions.push_str(&format!("#undef {name}\n"));
    }
}

/// Options without effect here, by how they begin.
const WITHOUT_EFFECT: &[&str] = &[
    "--use_fast_math",
    "-use_fast_math",
    "--fmad",
    "-fmad",
    "--ftz",
    "-ftz",
    "--prec-div",
    "-prec-div",
    "--prec-sqrt",
    "-prec-sqrt",
    "--maxrregcount",
    "-maxrregcount",
    "--generate-line-info",
    "-lineinfo",
    "--extra-device-vectorization",
    "--device-as-default-execution-space",
    "-default-device",
    "--restrict",
    "-restrict",
    "--disable-warnings",
    "-w",
    "--diag-suppress",
    "-diag-suppress",
    "--diag-error",
    "-diag-error",
    "--diag-warn",
    "-diag-warn",
    "--relocatable-device-code",
    "-rdc",
    "--ptxas-options",
    "-Xptxas",
    "--resource-usage",
    "--display-error-number",
    "-err-no",
    "--no-display-error-number",
    "-no-err-no",
    "--builtin-move-forward",
    "--builtin-initializer-list",
    "--minimal",
    "-minimal",
    "--split-compile",
    "-split-compile",
    "--dopt",
    "-dopt",
];

/// Reads options; the error names the one that is not known.
pub fn read<'a>(options: impl IntoIterator<Item = &'a str>) -> Result<Options, String> {
    let mut read = Options {
        flags: Vec::new(),
        definitions: String::new(),
        architecture: 900,
        intermediate: false,
        debug: false,
    };
    let mut standard = "gnu++17".to_string();
    let mut options = options.into_iter();
    while let Some(option) = options.next() {
        let mut value = |long: &str, short: &str| -> Option<String> {
            for name in [long, short] {
                if let Some(rest) = option.strip_prefix(name) {
                    if let Some(value) = rest.strip_prefix('=') {
                        return Some(value.to_string());
                    }
                    if rest.is_empty() {
                        return options.next().map(str::to_string);
                    }
                }
            }
            None
        };
        if let Some(architecture) = value("--gpu-architecture", "-arch") {
            let digits: String = architecture.chars().filter(char::is_ascii_digit).collect();
            let number: u32 = digits
                .parse()
                .map_err(|_| format!("invalid value for --gpu-architecture: {architecture}"))?;
            if number as i32 > *crate::api::nvrtc::architectures().last().unwrap_or(&0)
                && faults::is_set(Fault::OldNvrtc)
            {
                return Err(format!("invalid value for --gpu-architecture: {architecture}"));
            }
            read.architecture = number * 10;
            read.intermediate = architecture.starts_with("compute_");
        } else if let Some(language) = value("--std", "-std") {
            // The headers need C++17.
            let language =
                if ["c++03", "c++11", "c++14"].contains(&&*language) { "c++17" } else { &language };
            standard = language.replacen("c++", "gnu++", 1);
        } else if let Some(definition) = value("--define-macro", "-D") {
            read.define(&definition);
        } else if let Some(name) = value("--undefine-macro", "-U") {
            read.undefine(&name);
        } else if let Some(folder) = value("--include-path", "-I") {
            read.flags.push(format!("-I{folder}"));
        } else if let Some(definition) = option.strip_prefix("-D") {
            read.define(definition);
        } else if let Some(name) = option.strip_prefix("-U") {
            read.undefine(name);
        } else if option.starts_with("-I") {
            read.flags.push(option.to_string());
        } else if ["--device-debug", "-G"].contains(&option) {
            read.debug = true;
        } else if ["--ptxas-options", "-Xptxas", "--diag-suppress", "-diag-suppress"]
            .contains(&option)
        {
            options.next();
        } else if !WITHOUT_EFFECT.iter().any(|known| option.split('=').next() == Some(known)) {
            return Err(format!("unrecognized option {option}"));
        }
    }
    read.flags.push(format!("-std={standard}"));
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_flags() {
        let read =
            read(["--gpu-architecture=sm_90a", "-DN=4", "-D", "M", "--std=c++20", "-fmad=false"])
                .unwrap();
        assert_eq!(read.flags, ["-std=gnu++20"]);
        assert_eq!(read.definitions, "#define N 4\n#define M 1\n");
        assert_eq!((read.architecture, read.debug), (900, false));
    }

    #[test]
    fn an_unknown_option_is_named() {
        assert_eq!(super::read(["--fast"]).unwrap_err(), "unrecognized option --fast");
    }
}
