//! What was found, how bad it is, and the report of all hosts.

use std::fmt::Write;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// How bad a finding is. Also the exit code of the worst one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Ok = 0,
    /// A job runs, but not as well as it could, or something may surprise.
    Warning = 1,
    /// A job would fail.
    Error = 2,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub level: Level,
    /// What was looked at.
    pub subject: String,
    /// What is so, and what to do where it is not well.
    pub text: String,
}

impl Finding {
    pub fn new(level: Level, subject: &str, text: impl Into<String>) -> Self {
        Finding { level, subject: subject.to_owned(), text: text.into() }
    }

    pub fn ok(subject: &str, text: impl Into<String>) -> Self {
        Self::new(Level::Ok, subject, text)
    }

    pub fn warning(subject: &str, text: impl Into<String>) -> Self {
        Self::new(Level::Warning, subject, text)
    }

    pub fn error(subject: &str, text: impl Into<String>) -> Self {
        Self::new(Level::Error, subject, text)
    }
}

/// What was found on a host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OfHost {
    pub host: String,
    pub findings: Vec<Finding>,
}

/// What a pair of hosts gives each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// Places of the hosts, from 0.
    pub from: usize,
    pub to: usize,
    /// Microseconds there and back, median of several.
    pub round_trip_us: f64,
    /// Of one connection, in 10^6 bytes per second.
    pub megabytes_per_s: f64,
    /// The addresses of the connection's ends.
    pub from_address: IpAddr,
    pub to_address: IpAddr,
}

/// All that was found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The release.
    pub version: String,
    pub hosts: Vec<OfHost>,
    /// What concerns several hosts.
    pub between: Vec<Finding>,
    pub pairs: Vec<Pair>,
}

/// A table of more hosts than this would not fit on a screen.
const WIDEST: usize = 8;
/// Pairs that are shown in its place.
const SLOWEST: usize = 10;

impl Report {
    fn all(&self) -> impl Iterator<Item = &Finding> {
        self.hosts.iter().flat_map(|host| &host.findings).chain(&self.between)
    }

    /// The exit code: 0 when all is well, 1 with a warning, 2 with an error.
    pub fn exit_code(&self) -> i32 {
        self.all().map(|finding| finding.level).max().unwrap_or(Level::Ok) as i32
    }

    pub fn json(&self) -> String {
        #[derive(Serialize)]
        struct WithCode<'a> {
            #[serde(flatten)]
            report: &'a Report,
            exit_code: i32,
        }
        let all = WithCode { report: self, exit_code: self.exit_code() };
        serde_json::to_string_pretty(&all).expect("a report is plain data") + "\n"
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        for OfHost { host, findings } in &self.hosts {
            let _ = writeln!(text, "{host}");
            rows(&mut text, findings);
        }
        if !self.between.is_empty() {
            let _ = writeln!(text, "all hosts");
            rows(&mut text, &self.between);
        }
        if !self.pairs.is_empty() {
            self.table(&mut text);
        }
        let count = |level| self.all().filter(|finding| finding.level == level).count();
        let (warnings, errors) = (count(Level::Warning), count(Level::Error));
        let plural = |count| if count == 1 { "" } else { "s" };
        let _ = writeln!(
            text,
            "{errors} error{}, {warnings} warning{} on {} host{}, torchrs {}",
            plural(errors),
            plural(warnings),
            self.hosts.len(),
            plural(self.hosts.len()),
            self.version
        );
        text
    }

    fn table(&self, text: &mut String) {
        let names: Vec<&str> = self.hosts.iter().map(|host| host.host.as_str()).collect();
        let cell =
            |pair: &Pair| format!("{:.0} MB/s {:.0} us", pair.megabytes_per_s, pair.round_trip_us);
        if names.len() > WIDEST {
            let mut pairs: Vec<&Pair> = self.pairs.iter().collect();
            pairs.sort_by(|a, b| a.megabytes_per_s.total_cmp(&b.megabytes_per_s));
            let _ = writeln!(text, "slowest of {} ways (one connection; round trip)", pairs.len());
            for pair in pairs.into_iter().take(SLOWEST) {
                let [from, to] = [(pair.from, pair.from_address), (pair.to, pair.to_address)]
                    .map(|(place, address)| format!("{} ({address})", names[place]));
                let _ = writeln!(text, "  {from} to {to}: {}", cell(pair));
            }
            return;
        }
        let _ = writeln!(text, "from row to column: one connection's rate, round trip");
        let cells = self.pairs.iter().map(|pair| cell(pair).len());
        let width = cells.chain(names.iter().map(|name| name.len())).max().unwrap_or(0) + 2;
        let head: String = names.iter().map(|name| format!("{name:>width$}")).collect();
        let _ = writeln!(text, "  {:width$}{head}", "");
        for (from, name) in names.iter().enumerate() {
            let of = |to: usize| self.pairs.iter().find(|pair| (pair.from, pair.to) == (from, to));
            let row = (0..names.len()).map(|to| match of(to) {
                Some(pair) => format!("{:>width$}", cell(pair)),
                None => format!("{:>width$}", "-"),
            });
            let _ = writeln!(text, "  {name:width$}{}", row.collect::<String>());
        }
        let _ = writeln!(text, "the ways' ends");
        // The other direction takes the same.
        for pair in self.pairs.iter().filter(|pair| pair.from < pair.to) {
            let Pair { from, to, from_address, to_address, .. } = pair;
            let _ =
                writeln!(text, "  {} {from_address}, {} {to_address}", names[*from], names[*to]);
        }
    }
}

fn rows(text: &mut String, findings: &[Finding]) {
    let width = findings.iter().map(|finding| finding.subject.len()).max().unwrap_or(0);
    for Finding { level, subject, text: what } in findings {
        let level = match level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Error => "ERROR",
        };
        let mut lines = what.lines();
        let first = lines.next().unwrap_or("");
        let _ = writeln!(text, "  {level:<9}{subject:<width$}  {first}");
        for line in lines {
            let _ = writeln!(text, "  {:<9}{:<width$}  {line}", "", "");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_is_the_exit_code() {
        let report = |levels: &[Level]| {
            let findings = levels.iter().map(|level| Finding::new(*level, "s", "t")).collect();
            let hosts = vec![OfHost { host: "h".into(), findings }];
            Report { version: "1".into(), hosts, between: vec![], pairs: vec![] }
        };
        assert_eq!(report(&[Level::Ok]).exit_code(), 0);
        assert_eq!(report(&[Level::Warning, Level::Ok]).exit_code(), 1);
        let worst = report(&[Level::Warning, Level::Error]);
        assert_eq!(worst.exit_code(), 2);
        assert!(
            worst.text().ends_with("1 error, 1 warning on 1 host, torchrs 1\n"),
            "{}",
            worst.text()
        );
        let json: serde_json::Value = serde_json::from_str(&worst.json()).unwrap();
        assert_eq!(
            (&json["exit_code"], &json["hosts"][0]["findings"][1]["level"]),
            (&2.into(), &"error".into())
        );
    }

    #[test]
    fn few_hosts_have_a_table_and_many_their_slowest_ways() {
        let report = |count: usize| {
            let host = |k| OfHost { host: format!("h{k}"), findings: vec![] };
            let ways = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
            let pair = |(from, to)| Pair {
                from,
                to,
                round_trip_us: 10.0,
                megabytes_per_s: (100 * (from + 1) + to) as f64,
                from_address: IpAddr::from([10, 0, 0, from as u8]),
                to_address: IpAddr::from([10, 0, 0, to as u8]),
            };
            let pairs = ways.filter(|(from, to)| from != to).map(pair).collect();
            Report {
                version: "1".into(),
                hosts: (0..count).map(host).collect(),
                between: vec![],
                pairs,
            }
        };
        let text = report(2).text();
        let row = |line: &str| line.split_whitespace().eq(["h0", "-", "101", "MB/s", "10", "us"]);
        assert!(text.lines().any(row), "{text}");
        assert!(text.contains("the ways' ends\n  h0 10.0.0.0, h1 10.0.0.1\n"), "{text}");
        let text = report(9).text();
        assert!(
            text.contains("slowest of 72 ways")
                && text.contains("  h0 (10.0.0.0) to h1 (10.0.0.1): 101 MB/s 10 us\n"),
            "{text}"
        );
    }
}
