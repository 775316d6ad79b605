//! The rows of a summary: calls in their order, with the modules between them that did not tell of theirs, and those
//! that were not called.

use std::collections::{HashMap, HashSet};

use super::Summary;
use crate::nn::Module;
use crate::nn::calls::{Call, Shown};
use crate::nn::walk::{Entry, walk};

/// A module's call, or a module without one.
#[derive(Debug, Clone, PartialEq)]
pub struct SummaryRow {
    /// Its dotted name in the model, whose own is `""`.
    pub path: String,
    /// Its type.
    pub kind: String,
    /// How many modules stand around it.
    pub depth: usize,
    /// Which row of its depth it is, from 1.
    pub index: usize,
    /// Shapes that went in; none where they are not known.
    pub inputs: Vec<Vec<usize>>,
    /// Shapes that came out; none where they are not known, and where it was not called.
    pub outputs: Vec<Vec<usize>>,
    /// The shapes are of modules inside: its own forward does not tell.
    pub inferred: bool,
    /// Elements of its own parameters, without those of modules inside and without those of earlier rows.
    pub params: usize,
    /// Those of them that require a gradient.
    pub trainable: usize,
    /// It, or all its parameters, stood in an earlier row.
    pub recursive: bool,
    /// Floating-point operations, with those of modules inside.
    pub flops: u64,
    /// Whether modules stand inside.
    pub is_leaf: bool,
    pub(super) output_bytes: usize,
}

impl SummaryRow {
    /// The last part of its name.
    pub fn field(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }

    /// What went in, as text; `--` where that is not known.
    pub fn input(&self) -> String {
        self.shapes(&self.inputs)
    }

    /// What came out, as text; `--` where that is not known.
    pub fn output(&self) -> String {
        self.shapes(&self.outputs)
    }

    fn shapes(&self, shapes: &[Vec<usize>]) -> String {
        let list: Vec<String> = shapes.iter().map(|shape| format!("{shape:?}")).collect();
        match list.is_empty() {
            true => "--".to_owned(),
            false => format!("{}{}", if self.inferred { "~" } else { "" }, list.join(", ")),
        }
    }
}

/// A parameter of a module itself.
struct Own {
    identity: usize,
    elements: usize,
    trainable: bool,
}

pub(super) struct Rows {
    calls: Vec<Call>,
    /// All modules but the model: path and type, in their order.
    modules: Vec<(String, String)>,
    name: String,
    own: HashMap<String, Vec<Own>>,
    rows: Vec<SummaryRow>,
    /// Rows so far of each depth.
    counts: Vec<usize>,
    seen: HashSet<String>,
    counted: HashSet<usize>,
    param_bytes: usize,
}

fn shapes(shown: &[Shown]) -> Vec<Vec<usize>> {
    let tensors = shown.iter().flat_map(Shown::tensors);
    tensors.map(|(shape, _)| shape.to_vec()).collect()
}

fn bytes(shown: &[Shown]) -> usize {
    shown.iter().flat_map(Shown::tensors).map(|(_, bytes)| bytes).sum()
}

impl Rows {
    pub fn new<M: Module>(model: &M, calls: Vec<Call>) -> Self {
        let (mut modules, mut own) = (Vec::new(), HashMap::<String, Vec<Own>>::new());
        walk(model, "", &mut |path, entry| match entry {
            Entry::Module(module) => modules.push((path, module.name().to_owned())),
            Entry::Parameter(parameter) => {
                let module = path.rsplit_once('.').map_or("", |(module, _)| module);
                own.entry(module.to_owned()).or_default().push(Own {
                    identity: parameter.tensor().identity(),
                    elements: parameter.numel(),
                    trainable: parameter.requires_grad(),
                });
            }
            Entry::Buffer(_) | Entry::Training(_) => {}
        });
        let parameters = model.parameters();
        Rows {
            calls,
            modules,
            name: model.name().to_owned(),
            own,
            rows: Vec::new(),
            counts: Vec::new(),
            seen: HashSet::new(),
            counted: HashSet::new(),
            param_bytes: parameters.iter().map(|p| p.numel() * p.dtype().size()).sum(),
        }
    }

    /// All of it. What went into the model and came out of it may be known.
    pub fn summary(mut self, input: Option<Shown>, output: Shown, total_flops: u64) -> Summary {
        let tops = self.inside(None);
        let own = match tops[..] {
            [only] if self.calls[only].path.is_empty() => Some(only),
            _ => None,
        };
        let children = own.map_or(tops, |own| self.inside(Some(own)));
        let mut root = self.row("", self.name.clone(), 0);
        root.flops = total_flops;
        let told = own.map(|own| self.calls[own].inputs.clone());
        let inputs: Vec<Shown> = input.map(|input| vec![input]).or(told).unwrap_or_default();
        (root.inputs, root.outputs) = (shapes(&inputs), shapes(std::slice::from_ref(&output)));
        root.output_bytes = bytes(&[output]);
        self.rows.push(root);
        self.children("", 1, &children);
        if self.rows[0].inputs.is_empty() {
            self.infer(0);
        }
        let totals = self.own.values().flatten();
        let (mut total_params, mut trainable_params, mut once) = (0, 0, HashSet::new());
        for own in totals.filter(|own| once.insert(own.identity)) {
            total_params += own.elements;
            trainable_params += if own.trainable { own.elements } else { 0 };
        }
        let kept = |row: &&SummaryRow| {
            row.is_leaf && self.own.get(&row.path).is_some_and(|own| !own.is_empty())
        };
        let output_bytes = self.rows.iter().filter(kept).map(|row| 2 * row.output_bytes).sum();
        Summary {
            input_bytes: bytes(&inputs),
            output_bytes,
            param_bytes: self.param_bytes,
            total_params,
            trainable_params,
            total_flops,
            rows: self.rows,
        }
    }

    /// The calls directly inside one.
    fn inside(&self, parent: Option<usize>) -> Vec<usize> {
        let calls = self.calls.iter().enumerate();
        calls.filter(|(_, call)| call.parent == parent).map(|(i, _)| i).collect()
    }

    /// A row without shapes and operations, not yet among the rows.
    fn row(&mut self, path: &str, kind: String, depth: usize) -> SummaryRow {
        if self.counts.len() <= depth {
            self.counts.resize(depth + 1, 0);
        }
        self.counts[depth] += 1;
        let again = !self.seen.insert(path.to_owned());
        let own = self.own.get(path).map(Vec::as_slice).unwrap_or_default();
        let (mut params, mut trainable, mut new) = (0, 0, false);
        for own in own {
            if self.counted.insert(own.identity) {
                new = true;
                params += own.elements;
                trainable += if own.trainable { own.elements } else { 0 };
            }
        }
        let prefix = format!("{path}.");
        let inside = |(other, _): &(String, String)| other.starts_with(&prefix) || path.is_empty();
        SummaryRow {
            path: path.to_owned(),
            kind,
            depth,
            index: self.counts[depth],
            inputs: Vec::new(),
            outputs: Vec::new(),
            inferred: false,
            params,
            trainable,
            recursive: again || (!own.is_empty() && !new),
            flops: 0,
            is_leaf: !self.modules.iter().any(inside),
            output_bytes: 0,
        }
    }

    /// The rows of what is called inside the module at `path`, and then of what is not.
    fn children(&mut self, path: &str, depth: usize, calls: &[usize]) {
        // The module directly inside `path` that a call is of or stands in.
        let first_part = |call: &Call| {
            let rest = match path {
                "" => Some(call.path.as_str()),
                _ => call.path.strip_prefix(path).and_then(|rest| rest.strip_prefix('.')),
            };
            let part = rest.map(|rest| rest.split('.').next().unwrap_or(rest));
            match part {
                Some(part) if path.is_empty() => part.to_owned(),
                Some(part) => format!("{path}.{part}"),
                // Of another part of the model.
                None => call.path.clone(),
            }
        };
        let first = !self.seen.contains(&format!("{path}/"));
        self.seen.insert(format!("{path}/"));
        let mut at = 0;
        while at < calls.len() {
            let call = self.calls[calls[at]].clone();
            let part = first_part(&call);
            if part == call.path {
                let mut row = self.row(&part, call.kind, depth);
                (row.inputs, row.flops) = (shapes(&call.inputs), call.flops);
                row.outputs = shapes(std::slice::from_ref(&call.output));
                row.output_bytes = bytes(&[call.output]);
                self.rows.push(row);
                let inner = self.inside(Some(calls[at]));
                self.children(&part, depth + 1, &inner);
                at += 1;
                continue;
            }
            let same =
                |&i: &usize| first_part(&self.calls[i]) == part && self.calls[i].path != part;
            let end = at + calls[at..].iter().take_while(|i| same(i)).count();
            let known = self.modules.iter().find(|(other, _)| *other == part);
            let kind = known.map_or_else(String::new, |(_, kind)| kind.clone());
            let mut row = self.row(&part, kind, depth);
            row.flops = calls[at..end].iter().map(|&i| self.calls[i].flops).sum();
            self.rows.push(row);
            let place = self.rows.len() - 1;
            self.children(&part, depth + 1, &calls[at..end]);
            self.infer(place);
            at = end;
        }
        if first {
            self.not_called(path, depth);
        }
    }

    /// Takes the shapes of a module that did not tell from those inside. A list of modules has no forward.
    fn infer(&mut self, place: usize) {
        let (before, inside) = self.rows.split_at_mut(place + 1);
        let row = &mut before[place];
        if matches!(row.kind.as_str(), "ModuleList" | "ModuleDict") {
            return;
        }
        let inside = || inside.iter().filter(|other| other.depth == row.depth + 1);
        let first = inside().find(|other| !other.inputs.is_empty());
        let last = inside().rfind(|other| !other.outputs.is_empty());
        let (inputs, outputs) =
            (first.map(|row| row.inputs.clone()), last.map(|row| row.outputs.clone()));
        if row.inputs.is_empty() {
            row.inputs = inputs.unwrap_or_default();
        }
        if row.outputs.is_empty() {
            row.outputs = outputs.unwrap_or_default();
        }
        row.inferred = true;
    }

    /// Rows for the modules inside `path` that have none.
    fn not_called(&mut self, path: &str, depth: usize) {
        let directly = |other: &str| match path {
            "" => !other.contains('.'),
            _ => other
                .strip_prefix(path)
                .and_then(|rest| rest.strip_prefix('.'))
                .is_some_and(|rest| !rest.contains('.')),
        };
        let left: Vec<(String, String)> = self
            .modules
            .iter()
            .filter(|(other, _)| directly(other) && !self.seen.contains(other))
            .cloned()
            .collect();
        for (path, kind) in left {
            let row = self.row(&path, kind, depth);
            self.rows.push(row);
            self.seen.insert(format!("{path}/"));
            self.not_called(&path, depth + 1);
        }
    }
}
