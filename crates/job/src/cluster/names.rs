//! The names of a host, and whether two names mean the same one. Asks no name server: that could take long.

use std::fs::File;
use std::io::Read;
use std::net::IpAddr;

/// The most that is read of `/etc/hosts`.
const LONGEST: u64 = 1 << 20;

/// This host's names: the kernel's, and those that stand beside it in `/etc/hosts`, as a pod's full name does.
///
/// ```
/// let names = torchrs_job::cluster::names_of_this_host();
/// assert!(names.iter().all(|name| !name.is_empty() && name != "localhost"));
/// ```
pub fn names_of_this_host() -> Vec<String> {
    let Some(own) = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()) else {
        return Vec::new();
    };
    let mut hosts = String::new();
    // Without the file, or with one that is no text, the kernel's name is all there is.
    let file = File::open("/etc/hosts");
    let read = file.and_then(|file| file.take(LONGEST).read_to_string(&mut hosts));
    names_in(if read.is_ok() { &hosts } else { "" }, own.trim())
}

/// `own`, and the names beside it in the text of a `hosts` file.
fn names_in(hosts: &str, own: &str) -> Vec<String> {
    // Every host is this one.
    let says_nothing =
        |name: &str| name.is_empty() || name.split(['.', '-']).any(|part| part == "localhost");
    if says_nothing(own) {
        return Vec::new();
    }
    let mut names = vec![own.to_owned()];
    for line in hosts.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let beside: Vec<&str> = line.split_whitespace().skip(1).collect();
        if beside.iter().any(|name| name.eq_ignore_ascii_case(own)) {
            for name in beside.into_iter().filter(|name| !says_nothing(name)) {
                if !names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                    names.push(name.to_owned());
                }
            }
        }
    }
    names
}

/// Whether both mean one host. A name without a domain means the host of that name in any domain.
pub(super) fn is_same_host(a: &str, b: &str) -> bool {
    let (a, b) = (a.trim_end_matches('.'), b.trim_end_matches('.'));
    if a.eq_ignore_ascii_case(b) {
        return true;
    }
    let is_short = |name: &str| !name.contains('.');
    let is_address = |name: &str| name.parse::<IpAddr>().is_ok();
    let label = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    (is_short(a) || is_short(b)) && !is_address(a) && !is_address(b) && label(a) == label(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_name_means_the_host_of_any_domain() {
        for (a, b) in [("h1", "H1"), ("h1", "h1.lab.org"), ("h1.lab.org.", "h1.lab.org")] {
            assert!(is_same_host(a, b) && is_same_host(b, a), "{a} {b}");
        }
        for (a, b) in [("h1", "h10"), ("h1.a", "h1.b"), ("10", "10.0.0.1"), ("", "h1")] {
            assert!(!is_same_host(a, b) && !is_same_host(b, a), "{a} {b}");
        }
    }

    #[test]
    fn a_pods_full_name_stands_in_its_hosts_file() {
        let hosts = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1 localhost ip6-localhost\n\
                     10.4.0.7\ttrain-0.pods.default.svc.cluster.local\ttrain-0 # own\n10.4.0.8 train-1\n";
        let names = names_in(hosts, "train-0");
        assert_eq!(names, ["train-0", "train-0.pods.default.svc.cluster.local"]);
        assert_eq!(names_in("127.0.0.1 localhost h1 ip6-localhost\n127.0.1.1 H1", "h1"), ["h1"]);
        assert!(names_in(hosts, "localhost").is_empty());
    }
}
