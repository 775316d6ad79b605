//! What hosts say of themselves, compared.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::finding::{Finding, Pair};
use super::machine::Gpus;
use super::network::Measured;

/// Clocks that differ by more may confuse people and build tools; a job does not mind.
const CLOCKS_DIFFER: Duration = Duration::from_secs(1);
/// A way that is so much slower than the median of all is worth a word.
const SLOW: f64 = 4.0;

/// What a host says of itself.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Facts {
    pub host: String,
    /// Of the executable.
    pub build: u64,
    pub gpus: Gpus,
    /// By which others reach it.
    pub address: Option<IpAddr>,
    /// Where it listens for the other hosts' connections.
    pub listener: Vec<u8>,
    /// The wall clock less the leader's CLOCK_MONOTONIC, in nanoseconds.
    pub clock_ns: i64,
    /// What it has put into each folder that is to be shared.
    pub contents: Vec<Option<String>>,
    pub findings: Vec<Finding>,
}

/// What a host has found out of the others.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Heard {
    /// By place: what comes from there.
    pub ways: Vec<(usize, Result<Measured, String>)>,
    pub findings: Vec<Finding>,
}

/// Hosts by what they have.
fn by<T: Ord>(all: &[Facts], of: impl Fn(&Facts) -> T) -> BTreeMap<T, Vec<&str>> {
    let mut groups: BTreeMap<T, Vec<&str>> = BTreeMap::new();
    all.iter().for_each(|facts| groups.entry(of(facts)).or_default().push(&facts.host));
    groups
}

/// What concerns all hosts.
pub fn compare(all: &[Facts]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let hosts = all.len();
    let names = by(all, |facts| facts.host.clone());
    let addresses: Vec<String> =
        all.iter().filter_map(|facts| Some(format!("{} {}", facts.host, facts.address?))).collect();
    findings.push(match names.len() == hosts {
        true => Finding::ok("hosts", format!("{hosts} have met with the same token: {}", addresses.join(", "))),
        false => Finding::warning(
            "hosts",
            format!(
                "{hosts} have met with the same token, and some have the same name ({}): reports cannot tell them apart",
                names.iter().filter(|(_, same)| same.len() > 1).map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
            ),
        ),
    });
    let builds = by(all, |facts| facts.build);
    findings.push(match builds.len() {
        1 => Finding::ok(
            "versions",
            format!("torchrs {}, the same build on all", env!("CARGO_PKG_VERSION")),
        ),
        _ => Finding::warning(
            "versions",
            format!(
                "torchrs {} on all, but of {} builds ({}): install the same file on all hosts",
                env!("CARGO_PKG_VERSION"),
                builds.len(),
                builds.values().map(|hosts| hosts.join(" ")).collect::<Vec<_>>().join(" / ")
            ),
        ),
    });
    findings.push(clocks(all));
    let gpus = by(all, |facts| (facts.gpus.describe(), facts.gpus.libraries.clone()));
    if gpus.len() > 1 {
        let groups = gpus.iter().map(|((gpus, libraries), hosts)| {
            let libraries: Vec<String> =
                libraries.iter().map(|(l, v)| format!(", {l} {v}")).collect();
            format!("{}: {gpus}{}", hosts.join(" "), libraries.concat())
        });
        findings.push(Finding::warning(
            "GPUs",
            format!(
                "hosts differ, and the slowest sets the pace:\n{}",
                groups.collect::<Vec<_>>().join("\n")
            ),
        ));
    }
    findings
}

fn clocks(all: &[Facts]) -> Finding {
    let early = all.iter().min_by_key(|facts| facts.clock_ns);
    let late = all.iter().max_by_key(|facts| facts.clock_ns);
    let (Some(early), Some(late)) = (early, late) else { return Finding::ok("clocks", "none") };
    let apart = Duration::from_nanos(late.clock_ns.abs_diff(early.clock_ns));
    match apart > CLOCKS_DIFFER {
        true => Finding::warning(
            "clocks",
            format!(
                "the clock of {} is {apart:.1?} ahead of that of {}: a job does not mind, but logs and file times are \
                 wrong; let chrony or ntpd set them",
                late.host, early.host
            ),
        ),
        false => Finding::ok("clocks", format!("at most {apart:.1?} apart")),
    }
}

/// The ways between hosts, and what is wrong with some.
pub fn ways(all: &[Facts], heard: &[Heard]) -> (Vec<Pair>, Vec<Finding>) {
    let (mut pairs, mut findings) = (Vec::new(), Vec::new());
    for (to, heard) in heard.iter().enumerate() {
        for (from, way) in &heard.ways {
            match way {
                Ok(Measured { round_trip_us, megabytes_per_s, own, other }) => pairs.push(Pair {
                    from: *from,
                    to,
                    round_trip_us: *round_trip_us,
                    megabytes_per_s: *megabytes_per_s,
                    from_address: *other,
                    to_address: *own,
                }),
                Err(why) => findings.push(Finding::error(
                    "network",
                    format!(
                        "no connection between {} and {}: {why}\nworkers listen at ports that the system chooses \
                         (see /proc/sys/net/ipv4/ip_local_port_range): open them between the hosts",
                        all[*from].host, all[to].host
                    ),
                )),
            }
        }
    }
    pairs.sort_by_key(|pair| (pair.from, pair.to));
    let mut rates: Vec<f64> = pairs.iter().map(|pair| pair.megabytes_per_s).collect();
    rates.sort_by(f64::total_cmp);
    let median = rates.get(rates.len() / 2).copied().unwrap_or_default();
    let slow = pairs.iter().filter(|pair| pair.megabytes_per_s * SLOW < median);
    let slow: Vec<String> = slow
        .map(|pair| {
            let (from, to) = (&all[pair.from].host, &all[pair.to].host);
            format!("from {from} to {to} {:.0} MB/s", pair.megabytes_per_s)
        })
        .collect();
    if !slow.is_empty() {
        findings.push(Finding::warning(
            "network",
            format!("much slower than the median of {median:.0} MB/s: {}", slow.join(", ")),
        ));
    } else if findings.is_empty() && !pairs.is_empty() {
        let (least, most) = (rates[0], rates[rates.len() - 1]);
        findings.push(Finding::ok(
            "network",
            format!("{least:.0} to {most:.0} MB/s, each way by one connection"),
        ));
    }
    (pairs, findings)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn facts(host: &str, build: u64, clock_s: i64) -> Facts {
        Facts { host: host.into(), build, clock_ns: clock_s * 1_000_000_000, ..Facts::default() }
    }

    fn of<'a>(findings: &'a [Finding], subject: &str) -> &'a Finding {
        findings.iter().find(|finding| finding.subject == subject).unwrap()
    }

    #[test]
    fn hosts_that_differ_are_named() {
        let same = compare(&[facts("a", 1, 5), facts("b", 1, 5)]);
        assert!(same.iter().all(|finding| finding.level == Level::Ok), "{same:?}");
        let mut other = facts("b", 2, 3605);
        other.gpus.count = 8;
        let differing = compare(&[facts("a", 1, 5), other]);
        for (subject, part) in [
            ("versions", "2 builds"),
            ("clocks", "of b is 3600.0s ahead of that of a"),
            ("GPUs", "a: none"),
        ] {
            let finding = of(&differing, subject);
            assert!(finding.level == Level::Warning && finding.text.contains(part), "{finding:?}");
        }
        assert!(
            of(&compare(&[facts("a", 1, 0), facts("a", 1, 0)]), "hosts")
                .text
                .contains("same name (a)")
        );
    }

    #[test]
    fn a_way_that_is_shut_is_an_error_and_a_slow_one_a_warning() {
        let all = [facts("a", 1, 0), facts("b", 1, 0), facts("c", 1, 0)];
        let [own, other] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
        let good =
            |megabytes_per_s| Ok(Measured { round_trip_us: 9.0, megabytes_per_s, own, other });
        let heard = |ways: Vec<(usize, Result<Measured, String>)>| Heard { ways, findings: vec![] };
        let fast = [
            heard(vec![(1, good(900.0)), (2, good(900.0))]),
            heard(vec![(0, good(900.0)), (2, good(900.0))]),
            heard(vec![(0, good(100.0)), (1, Err("x: refused".into()))]),
        ];
        let (pairs, findings) = ways(&all, &fast);
        assert_eq!(pairs.len(), 5);
        let error = findings.iter().find(|finding| finding.level == Level::Error).unwrap();
        assert!(error.text.starts_with("no connection between b and c: x: refused"), "{error:?}");
        let slow = findings.iter().find(|finding| finding.level == Level::Warning).unwrap();
        assert!(slow.text.contains("from a to c 100 MB/s"), "{slow:?}");
    }
}
