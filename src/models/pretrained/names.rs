//! Which stored tensor is which of a model.

use std::collections::BTreeMap;

use super::weights::Stored;
use crate::nn::{LoadReport, Module, StateDict, unwrapped_name};

/// The names of a model's tensors, and what files may have besides.
pub(in crate::models) struct Names {
    /// What stands before the names of all but the head, with its point; files leave it out or have it.
    pub base: &'static str,
    /// How names of the head begin, which a new task has anew.
    pub heads: &'static [&'static str],
    /// How names begin that files of other heads may lack; a new task takes them where they are.
    pub spare: &'static [&'static str],
    /// How names begin, behind `base`, that belong to other heads of the family.
    pub others: &'static [&'static str],
    /// Parts of other versions' names, and what stands here instead.
    pub renamed: &'static [(&'static str, &'static str)],
}

/// Ends of the names of buffers that old versions stored; they are computed.
const BUFFERS: [&str; 5] = [
    "attn.bias",
    "attn.masked_bias",
    "rotary_emb.inv_freq",
    "embeddings.position_ids",
    "embeddings.token_type_ids",
];

/// What is to be done.
pub(super) struct Plan {
    /// Names of stored tensors and of the model's.
    pub(super) copies: Vec<(String, String)>,
    /// Stored tensors that must be equal, as the model has one for both.
    pub(super) same: Vec<Same>,
    pub(super) report: LoadReport,
}

/// A stored tensor, and the other that is the same one in the model.
pub(super) struct Same {
    pub(super) stored: String,
    pub(super) twin: String,
}

impl Names {
    /// The model's name of a stored tensor.
    fn own(&self, stored: &str, targets: &StateDict) -> Option<String> {
        let bare = unwrapped_name(stored);
        let other = match bare.strip_prefix(self.base) {
            Some(rest) => rest.to_owned(),
            None => format!("{}{bare}", self.base),
        };
        let renamed = |name: &str| {
            let replaced = |name: String, (from, to): &(&str, &str)| name.replace(from, to);
            self.renamed.iter().fold(name.to_owned(), replaced)
        };
        let tries = [bare.clone(), other.clone(), renamed(&bare), renamed(&other)];
        tries.into_iter().find(|name| targets.contains_key(name))
    }

    fn is_head(&self, own: &str) -> bool {
        self.heads.iter().any(|head| own.starts_with(head))
    }

    fn is_spare(&self, own: &str) -> bool {
        self.is_head(own) || self.spare.iter().any(|part| own.starts_with(part))
    }

    fn is_of_other_heads(&self, stored: &str) -> bool {
        let bare = unwrapped_name(stored);
        let rest = bare.strip_prefix(self.base).unwrap_or(&bare);
        self.others.iter().any(|head| rest.starts_with(head))
    }
}

/// Finds each stored tensor's place.
///
/// # Errors
/// All that does not fit, in words.
pub(super) fn plan(
    model: &dyn Module,
    names: &Names,
    tied: &[(&str, &str)],
    stored: &[Stored],
    new_head: bool,
) -> Result<Plan, String> {
    let targets = model.state_dict();
    let mut found: BTreeMap<String, &Stored> = BTreeMap::new();
    let (mut report, mut wrong) = (LoadReport::default(), Vec::new());
    let mut unexpected = Vec::new();
    for entry in stored {
        let name = &entry.name;
        match names.own(name, &targets) {
            Some(own) if new_head && names.is_head(&own) => {}
            Some(own) => match found.get(&own) {
                Some(Stored { name: first, .. }) => {
                    wrong.push(format!("`{first}` and `{name}` are both `{own}` of the model"));
                }
                None => _ = found.insert(own, entry),
            },
            None if BUFFERS.iter().any(|end| name.ends_with(end)) => {}
            None if names.is_of_other_heads(name) => report.unexpected_keys.push(name.clone()),
            None => unexpected.push(name.as_str()),
        }
    }
    for (own, Stored { name, shape, dtype }) in &found {
        let target = &targets[own.as_str()];
        // Integers without their scales are other numbers than the model's.
        if target.dtype().is_floating_point() && !dtype.is_floating_point() {
            wrong.push(format!(
                "dtype mismatch: `{name}` is {dtype} in the weights and {} in the model; quantised weights are not \
                 read, so give those they were made of",
                target.dtype()
            ));
        }
        if target.shape() != &shape[..] {
            wrong.push(format!(
                "shape mismatch: `{name}` is {shape:?} in the weights and {:?} in the model",
                target.shape()
            ));
        }
    }

    let mut same = Vec::new();
    let is_there = |name: &str| found.contains_key(name);
    // Of tensors that are one, one suffices.
    let through: Vec<&str> = tied
        .iter()
        .filter(|(one, other)| is_there(one) || is_there(other))
        .flat_map(|&(one, other)| [one, other])
        .collect();
    for (one, other) in tied {
        if let (Some(stored), Some(twin)) = (found.get(*one), found.get(*other)) {
            same.push(Same { stored: stored.name.clone(), twin: twin.name.clone() });
            found.remove(*one);
        }
    }
    let mut missing = Vec::new();
    for own in targets.keys().filter(|own| !found.contains_key(*own) && !through.contains(own)) {
        match new_head && names.is_spare(own) {
            true => report.missing_keys.push(own.to_owned()),
            false => missing.push(own),
        }
    }
    let list = |names: &[&str]| format!("`{}`", names.join("`, `"));
    if !unexpected.is_empty() {
        wrong.insert(0, format!("unexpected keys: {}", list(&unexpected)));
    }
    if !missing.is_empty() {
        wrong.insert(0, format!("missing keys: {}", list(&missing)));
        if missing.iter().all(|own| names.is_spare(own)) {
            let hint = "these are the head; with `PretrainedOptions { new_head: true }` it begins anew, to be trained";
            wrong.insert(1, hint.to_owned());
        }
    }
    if !wrong.is_empty() {
        return Err(format!("does not fit {}:\n    {}", model.name(), wrong.join("\n    ")));
    }
    let copies = found.into_iter().map(|(own, stored)| (stored.name.clone(), own)).collect();
    Ok(Plan { copies, same, report })
}
