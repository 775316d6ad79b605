//! `--dashboard [ADDR]`: where the page is served.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};

/// The option without a value.
pub const ANY_PORT: &str = "127.0.0.1:0";

/// An address as it is written: `PORT` of this host's loopback, or `HOST:PORT`.
///
/// # Errors
/// What is to be written, where this is none.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong = || "give PORT for this host alone, or HOST:PORT; port 0 is any".to_owned();
    if let Ok(port) = text.trim_start_matches(':').parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    if text.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
        return Err(wrong());
    }
    let found = text.to_socket_addrs().map_err(|why| format!("{why}; {}", wrong()))?;
    // Where a name has several, the one that most programs mean.
    let mut found: Vec<SocketAddr> = found.collect();
    found.sort_by_key(|address| !address.is_ipv4());
    found.first().copied().ok_or_else(wrong)
}

/// Whether a word is meant as an address rather than as a program.
fn is_address(word: &OsString) -> bool {
    let Some(word) = word.to_str() else { return false };
    let port = word.rsplit_once(':').map_or(word, |(_, port)| port);
    !word.contains('/') && !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// `--dashboard ADDR` as one word, `--dashboard=ADDR`. A value of its own would be ambiguous, for PROGRAM may follow.
/// `words`: the whole command line; `command`: how many of the last ones were taken for PROGRAM and its arguments.
pub fn joined(words: &[OsString], command: usize) -> Option<Vec<OsString>> {
    let program = words.len().checked_sub(command)?;
    let option = program.checked_sub(1)?;
    if words[option] != "--dashboard" || !is_address(words.get(program)?) {
        return None;
    }
    let mut value = OsString::from("--dashboard=");
    value.push(&words[program]);
    let mut joined = words.to_vec();
    joined.splice(option..=program, [value]);
    Some(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (text, is) in [
            ("8080", "127.0.0.1:8080"),
            (":0", "127.0.0.1:0"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:9", "[::1]:9"),
            ("localhost:7", "127.0.0.1:7"),
        ] {
            assert_eq!(address(text).unwrap().to_string(), is);
        }
        for text in ["train", "localhost", "", "1.2.3.4", "a:b", "99999", "127.0.0.1:99999"] {
            assert!(address(text).unwrap_err().contains("HOST:PORT"), "{text}");
        }
    }

    #[test]
    fn a_value_is_told_from_the_program() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let line = words("x --dashboard 8080 --nproc 2 train");
        assert_eq!(joined(&line, 4), Some(words("x --dashboard=8080 --nproc 2 train")));
        for (line, command) in [
            ("x --dashboard train 8080", 2),
            ("x --nproc 2 --dashboard ./8080", 1),
            ("x train --dashboard 8080", 3),
        ] {
            assert_eq!(joined(&words(line), command), None, "{line}");
        }
    }
}
