//! Slurm's two ways to write long lists short: hosts, `n[001-003,010],x7`, and numbers of tasks, `2(x3),1`.
//! Nothing is allocated for more hosts than a job may have.

use crate::ranks::MAX_WORLD_SIZE;

/// The most characters of a host's name.
const LONGEST_NAME: usize = 255;

/// Numbers in brackets: `001-003`.
struct Range {
    first: u64,
    last: u64,
    /// Digits, filled up with zeros.
    width: usize,
}

enum Part {
    Text(String),
    Numbers(Vec<Range>),
}

impl Part {
    /// How many texts it stands for; at least one.
    fn count(&self) -> Option<usize> {
        match self {
            Part::Text(_) => Some(1),
            Part::Numbers(ranges) => ranges.iter().try_fold(0_usize, |count, range| {
                count.checked_add(usize::try_from(range.last - range.first).ok()?.checked_add(1)?)
            }),
        }
    }

    /// The length of the longest.
    fn length(&self) -> usize {
        match self {
            Part::Text(text) => text.len(),
            Part::Numbers(ranges) => {
                let digits = |range: &Range| range.last.to_string().len().max(range.width);
                ranges.iter().map(digits).max().unwrap_or_default()
            }
        }
    }

    fn texts(&self) -> Box<dyn Iterator<Item = String> + '_> {
        match self {
            Part::Text(text) => Box::new(std::iter::once(text.clone())),
            Part::Numbers(ranges) => Box::new(ranges.iter().flat_map(|range| {
                (range.first..=range.last).map(|number| format!("{number:00$}", range.width))
            })),
        }
    }
}

/// The hosts that a node list of Slurm names, in its order.
///
/// ```
/// use torchrs_job::cluster::expand_node_list;
/// let hosts = expand_node_list("n[008-010,20],login.lab.org")?;
/// assert_eq!(hosts, ["n008", "n009", "n010", "n20", "login.lab.org"]);
/// assert!(expand_node_list("n[1-1000000000]").is_err());
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// What is wrong with the list: brackets that do not close, ranges that run down, names of no letters, more than
/// 100,000 hosts.
pub fn expand_node_list(list: &str) -> Result<Vec<String>, String> {
    let mut items = Vec::new();
    let mut count = 0_usize;
    for item in split(list) {
        let parts = parts(item)?;
        let length = parts.iter().map(Part::length).sum::<usize>();
        if !(1..=LONGEST_NAME).contains(&length) {
            return Err(format!("a host's name has 1 to {LONGEST_NAME} characters, not {length}"));
        }
        let of_item =
            parts.iter().try_fold(1_usize, |count, part| count.checked_mul(part.count()?));
        count = of_item
            .and_then(|of_item| count.checked_add(of_item))
            .filter(|count| *count <= MAX_WORLD_SIZE)
            .ok_or_else(|| format!("it names more than {MAX_WORLD_SIZE} hosts"))?;
        items.push(parts);
    }
    let mut hosts = Vec::with_capacity(count);
    for parts in items {
        let names = parts.iter().fold(vec![String::new()], |names, part| {
            let longer =
                names.iter().flat_map(|name| part.texts().map(move |text| format!("{name}{text}")));
            longer.collect()
        });
        hosts.extend(names);
    }
    Ok(hosts)
}

/// At the commas outside of brackets.
fn split(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    list.split(move |c| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

fn parts(item: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut rest = item;
    while !rest.is_empty() {
        let (text, bracket) = match rest.split_once('[') {
            Some((text, bracket)) => (text, Some(bracket)),
            None => (rest, None),
        };
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if let Some(wrong) = text.chars().find(|c| !fits(*c)) {
            return Err(format!("{wrong:?} is in no host's name"));
        }
        if !text.is_empty() {
            parts.push(Part::Text(text.to_owned()));
        }
        rest = match bracket {
            Some(bracket) => {
                let (ranges, after) =
                    bracket.split_once(']').ok_or("a bracket does not close".to_owned())?;
                let ranges: Result<Vec<Range>, String> = ranges.split(',').map(range).collect();
                parts.push(Part::Numbers(ranges?));
                after
            }
            None => "",
        };
    }
    Ok(parts)
}

fn range(text: &str) -> Result<Range, String> {
    let number = |digits: &str| {
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        // No number of 18 digits is too large.
        let is_short = (1..=18).contains(&digits.len());
        let number = digits.parse::<u64>().ok().filter(|_| is_number && is_short);
        number.ok_or_else(|| format!("`{}` is no number of a host", shortened(digits)))
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = Range { first: number(first)?, last: number(last)?, width: first.len() };
    if range.last < range.first {
        return Err(format!("`{text}` runs down"));
    }
    Ok(range)
}

/// What a message shows of a text of any length.
pub(super) fn shortened(text: &str) -> String {
    const SHOWN: usize = 80;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// How many tasks each host of a step has.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TaskCounts {
    /// Tasks, and the number of hosts in a row that have so many.
    runs: Vec<(usize, usize)>,
    /// Hosts.
    pub hosts: usize,
    /// Tasks on all hosts.
    pub tasks: usize,
}

impl TaskCounts {
    /// From Slurm's `2(x3),1`: two tasks on each of three hosts, one on a fourth.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut counts = TaskCounts { runs: Vec::new(), hosts: 0, tasks: 0 };
        let most = |sum: Option<usize>| sum.filter(|sum| *sum <= MAX_WORLD_SIZE);
        for item in text.split(',') {
            let (tasks, times) = match item.split_once("(x") {
                Some((tasks, times)) => (tasks, times.strip_suffix(')')),
                None => (item, Some("1")),
            };
            let run = tasks.parse().ok().zip(times.and_then(|times| times.parse().ok()));
            let (tasks, hosts): (usize, usize) =
                run.ok_or_else(|| format!("`{}` is not written like 2 or 2(x3)", shortened(item)))?;
            let both = most(counts.hosts.checked_add(hosts)).zip(most(
                tasks.checked_mul(hosts).and_then(|tasks| counts.tasks.checked_add(tasks)),
            ));
            (counts.hosts, counts.tasks) =
                both.ok_or_else(|| format!("it has more than {MAX_WORLD_SIZE} hosts or tasks"))?;
            counts.runs.push((tasks, hosts));
        }
        Ok(counts)
    }

    /// The tasks on host `host`, from 0.
    pub(super) fn on(&self, mut host: usize) -> Option<usize> {
        for (tasks, hosts) in &self.runs {
            if host < *hosts {
                return Some(*tasks);
            }
            host -= hosts;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Neighbours of one stem and width, as runs of numbers.
    struct Group<'a> {
        stem: &'a str,
        width: usize,
        runs: Vec<(u64, u64)>,
    }

    /// The inverse of `expand_node_list`.
    fn compress(hosts: &[String]) -> String {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for host in hosts {
            let stem = host.trim_end_matches(|c: char| c.is_ascii_digit());
            let digits = &host[stem.len()..];
            let (width, number) = (digits.len(), digits.parse::<u64>().unwrap());
            match groups.last_mut() {
                Some(group) if group.stem == stem && group.width == width => {
                    match group.runs.last_mut() {
                        Some((_, last)) if *last + 1 == number => *last = number,
                        _ => group.runs.push((number, number)),
                    }
                }
                _ => groups.push(Group { stem, width, runs: vec![(number, number)] }),
            }
        }
        let item = |Group { stem, width, runs }: &Group<'_>| {
            let run = |(first, last): &(u64, u64)| match first == last {
                true => format!("{first:0width$}"),
                false => format!("{first:0width$}-{last:0width$}"),
            };
            match &runs[..] {
                [(first, last)] if first == last => format!("{stem}{first:0width$}"),
                _ => format!("{stem}[{}]", runs.iter().map(run).collect::<Vec<_>>().join(",")),
            }
        };
        groups.iter().map(item).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn lists_as_slurm_writes_them() {
        for (list, hosts) in [
            ("h[1-2]", "h1 h2"),
            ("a", "a"),
            ("a,b", "a b"),
            ("a[001-004,7],b", "a001 a002 a003 a004 a7 b"),
            ("n[001-003,010],x7", "n001 n002 n003 n010 x7"),
            ("n[9-11]", "n9 n10 n11"),
            ("n[099-101]", "n099 n100 n101"),
            ("r[1-2]c[1-2]", "r1c1 r1c2 r2c1 r2c2"),
            ("gpu-[1,3]-ib.lab.org", "gpu-1-ib.lab.org gpu-3-ib.lab.org"),
        ] {
            assert_eq!(expand_node_list(list).unwrap().join(" "), hosts, "{list}");
        }
    }

    #[test]
    fn lists_that_are_none_are_refused_with_the_reason() {
        for (list, why) in [
            ("", "1 to 255"),
            ("a,,b", "1 to 255"),
            ("n[1-2", "does not close"),
            ("n1-2]", "']' is in no host's name"),
            ("n[[1-2]]", "`[1` is no number"),
            ("n[2-1]", "runs down"),
            ("n[]", "`` is no number"),
            ("n[1-]", "`` is no number"),
            ("n[+1]", "`+1` is no number"),
            ("n[1-9999999999999999999]", "is no number"),
            ("n 1", "' ' is in no host's name"),
            ("n[1-100001]", "more than 100000 hosts"),
            ("n[1-100000],m", "more than 100000 hosts"),
            ("n[0-999999][0-999999][0-999999][0-999999]", "more than 100000 hosts"),
        ] {
            let error = expand_node_list(list).expect_err(list);
            assert!(error.contains(why), "{list}: {error}");
        }
        assert!(expand_node_list(&"a".repeat(256)).unwrap_err().contains("not 256"));
        assert_eq!(expand_node_list("n[1-100000]").unwrap().len(), 100_000);
    }

    #[test]
    fn numbers_of_tasks_as_slurm_writes_them() {
        for (text, tasks) in [
            ("2(x2)", &[2, 2][..]),
            ("1(x2)", &[1, 1]),
            ("4", &[4]),
            ("2(x3),1", &[2, 2, 2, 1]),
            ("5,4(x3)", &[5, 4, 4, 4]),
        ] {
            let counts = TaskCounts::parse(text).unwrap();
            let on: Vec<usize> = (0..counts.hosts).map(|host| counts.on(host).unwrap()).collect();
            assert_eq!((&on[..], counts.tasks), (tasks, tasks.iter().sum()), "{text}");
            assert_eq!(counts.on(counts.hosts), None, "{text}");
        }
        for text in ["", "2(x", "2(x3", "(x3)", "2(y3)", "2,,1", "-1", "1(x99999999999999999999)"] {
            assert!(TaskCounts::parse(text).unwrap_err().contains("is not written"), "{text}");
        }
        for text in ["1(x100001)", "100001", "99999999999(x99999999999)"] {
            assert!(TaskCounts::parse(text).unwrap_err().contains("more than"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_compressed_expands_to_the_same(
            hosts in prop::collection::vec(("[a-c]{1,2}(-[a-z])?", 1_usize..4, 0_u64..150), 1..60)
        ) {
            let name = |(stem, width, number): &(String, usize, u64)| format!("{stem}{number:0width$}");
            let hosts: Vec<String> = hosts.iter().map(name).collect();
            let list = compress(&hosts);
            prop_assert_eq!(expand_node_list(&list).unwrap(), hosts, "{}", list);
        }

        #[test]
        fn runs_are_compressed_to_their_ends(first in 0_u64..2_000, count in 2_u64..500, width in 1_usize..5) {
            let hosts: Vec<String> = (first..first + count).map(|n| format!("n{n:0width$}")).collect();
            let list = format!("n[{first:0width$}-{}]", first + count - 1);
            prop_assert_eq!(expand_node_list(&list).unwrap(), hosts);
        }

        #[test]
        fn garbage_neither_panics_nor_grows(text in ".{0,200}", near in "[a\\[\\],0-9(x)-]{0,60}") {
            for text in [&text, &near] {
                if let Ok(hosts) = expand_node_list(text) {
                    prop_assert!((1..=MAX_WORLD_SIZE).contains(&hosts.len()));
                    prop_assert!(hosts.iter().all(|host| (1..=LONGEST_NAME).contains(&host.len())));
                }
                if let Ok(counts) = TaskCounts::parse(text) {
                    prop_assert!(counts.hosts <= MAX_WORLD_SIZE && counts.tasks <= MAX_WORLD_SIZE);
                }
            }
        }
    }
}
