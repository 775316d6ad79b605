//! Lists of programs: which ones are needed together. Those that come with the library are of training steps of its models,
//! recorded by `tests/cuda/warm.rs`.

use std::collections::HashMap;
use std::sync::OnceLock;

use parking_lot::RwLock;

use crate::kernels::module::Program;
use crate::kernels::parts;
use crate::kernels::pointwise;

const BUNDLED: &str = include_str!("likely.txt");

/// The models of which there are lists.
pub fn models() -> Vec<&'static str> {
    bundled().into_iter().map(|(name, _)| name).collect()
}

/// The lists that come with the library, by their models.
pub(crate) fn bundled() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut lists: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in BUNDLED.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let header = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
        match (header, lists.last_mut()) {
            (Some(name), _) => lists.push((name, vec![])),
            (None, Some((_, list))) => list.push(line),
            (None, None) => {}
        }
    }
    lists
}

/// All programs of ops, with the lines by which lists name them. The ops, which this crate does not know, set it.
type Catalogue = fn() -> Vec<&'static Program>;
static CATALOGUE: OnceLock<Catalogue> = OnceLock::new();

/// Sets where programs are found by their lines.
pub fn set_catalogue(catalogue: Catalogue) {
    let _ = CATALOGUE.set(catalogue);
}

/// The program of a line. None for one of another version of the library, or of a user's own program.
pub(crate) fn program(line: &str) -> Option<&'static Program> {
    match parts::parsed(line) {
        Some((whole, part)) if !line.starts_with(pointwise::RECIPE) => {
            self::whole(whole)?.part(part)
        }
        _ => self::whole(line),
    }
}

fn whole(line: &str) -> Option<&'static Program> {
    static MADE: RwLock<Option<HashMap<String, &'static Program>>> = RwLock::new(None);
    if let Some(made) = MADE.read().as_ref().and_then(|made| made.get(line)) {
        return Some(made);
    }
    if !line.starts_with(pointwise::RECIPE) && CATALOGUE.get().is_none() {
        return None;
    }
    let mut made = MADE.write();
    let made = made.get_or_insert_with(HashMap::new);
    if line.starts_with(pointwise::RECIPE) {
        // Lives as long as the process, as a static would.
        let program: &'static Program = Box::leak(Box::new(pointwise::program_of(line)?));
        made.insert(line.to_owned(), program);
    } else if !made.keys().any(|line| !line.starts_with(pointwise::RECIPE)) {
        let all = CATALOGUE.get().map(|catalogue| catalogue()).unwrap_or_default();
        made.extend(all.into_iter().map(|program| (program.recipe(), program)));
    }
    made.get(line).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_has_a_list_without_a_line_twice() {
        let lists = bundled();
        assert!(lists.len() >= 4, "{:?}", models());
        for (name, list) in lists {
            let mut once = list.clone();
            once.sort_unstable();
            once.dedup();
            assert!(list.len() > 10 && once.len() == list.len(), "{name}");
            let rows = list.iter().filter(|line| line.starts_with(pointwise::RECIPE));
            rows.for_each(|line| assert!(program(line).is_some(), "{name}: {line}"));
        }
    }
}
