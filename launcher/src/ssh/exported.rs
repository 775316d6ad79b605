//! Which variables of this environment the launchers on other hosts get, and which more the user names.

use std::ffi::OsString;

use torchrs_rendezvous::token::TOKEN;

/// Beginnings of names that say how a job runs, wherever it runs.
const PREFIXES: [&str; 5] = ["CUDA_", "NCCL_", "OMP_", "RUST_", "TORCHRS_"];
const NAMES: [&str; 1] = ["LD_LIBRARY_PATH"];
/// Of this process or this host alone. The token goes another way.
const NEVER: [&str; 6] = [
    TOKEN,
    "TORCHRS_JOB_ID",
    "TORCHRS_PARENT_PID",
    "TORCHRS_SSH",
    "TORCHRS_STORE_FD",
    "TORCHRS_TERMINAL",
];

/// The variables of `environment` that go along, and those that `asked` names: `NAME`, `NAME=VALUE` or `PREFIX*`.
///
/// # Errors
/// Which name is not set, or cannot be one.
pub fn variables(
    asked: &[String],
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<(OsString, OsString)>, String> {
    let environment: Vec<_> = environment.collect();
    let name_of = |pair: &(OsString, OsString)| pair.0.to_str().unwrap_or("").to_owned();
    let by_default = |pair: &&(OsString, OsString)| {
        let name = name_of(pair);
        let fits = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        (fits || NAMES.contains(&name.as_str())) && !NEVER.contains(&name.as_str())
    };
    let mut all: Vec<(OsString, OsString)> =
        environment.iter().filter(by_default).cloned().collect();
    let mut set = |pair: (OsString, OsString)| {
        all.retain(|(name, _)| *name != pair.0);
        all.push(pair);
    };
    for text in asked {
        let wrong = |what: &str| format!("--export `{text}`: {what}");
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text.as_str(), None),
        };
        if name.is_empty() {
            return Err(wrong("write NAME, NAME=VALUE or PREFIX*"));
        }
        if name == TOKEN {
            return Err(wrong("the token reaches the other hosts by itself, where nobody sees it"));
        }
        match (name.strip_suffix('*'), value) {
            (Some(_), Some(_)) => return Err(wrong("a PREFIX* has no value")),
            (Some(prefix), None) => {
                let fits = |pair: &&(OsString, OsString)| {
                    let name = name_of(pair);
                    name.starts_with(prefix) && !NEVER.contains(&name.as_str())
                };
                environment.iter().filter(fits).cloned().for_each(&mut set);
            }
            (None, Some(value)) => set((name.into(), value.into())),
            (None, None) => {
                let found = environment.iter().find(|(other, _)| other.to_str() == Some(name));
                set(found.cloned().ok_or_else(|| wrong("it is not set here; write NAME=VALUE"))?);
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(asked: &[&str]) -> Result<String, String> {
        let here = [
            ("HOME", "/h"),
            ("NCCL_DEBUG", "INFO"),
            ("TORCHRS_TIMEOUT_S", "60"),
            (TOKEN, "a-secret-of-some-length"),
            ("TORCHRS_STORE_FD", "7"),
            ("DATA_A", "a"),
            ("DATA_B", "b"),
        ];
        let asked: Vec<String> = asked.iter().map(|text| (*text).to_owned()).collect();
        let all = variables(&asked, here.into_iter().map(|(n, v)| (n.into(), v.into())))?;
        let one = |(n, v): &(OsString, OsString)| format!("{}={}", n.display(), v.display());
        Ok(all.iter().map(one).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn what_says_how_a_job_runs_goes_along_and_what_is_named() {
        let own = "NCCL_DEBUG=INFO TORCHRS_TIMEOUT_S=60";
        assert_eq!(sent(&[]).unwrap(), own);
        assert_eq!(sent(&["HOME"]).unwrap(), format!("{own} HOME=/h"));
        assert_eq!(sent(&["DATA_*", "DATA_B=c=d"]).unwrap(), format!("{own} DATA_A=a DATA_B=c=d"));
        assert_eq!(sent(&["TORCHRS_*"]).unwrap(), own);
    }

    #[test]
    fn what_is_not_set_or_secret_is_refused() {
        for (asked, part) in [
            ("NOWHERE", "not set here"),
            ("=x", "write NAME"),
            ("A*=x", "has no value"),
            (TOKEN, "by itself"),
        ] {
            assert!(sent(&[asked]).unwrap_err().contains(part), "{asked}");
        }
    }
}
