//! Values of a stack machine as a tree.

use super::MAX_DEPTH;
use super::globals::Global;
use super::memory::Memory;
use super::unpickle::{Id, Machine, Node, Step};
use super::value::{PtObject, PtValue};
use crate::checkpoint::raw::reserve;

/// What may still be made.
struct Budget<'a> {
    /// Values, and bytes of texts.
    values: usize,
    memory: &'a mut Memory,
}

impl Machine<'_, '_> {
    /// The value as a tree. Values that are recalled often are many in the tree: no more than the file is
    /// long.
    pub(super) fn finish(&mut self, root: Id, length: usize) -> Step<PtValue> {
        let mut memory = std::mem::replace(&mut self.memory, Memory::new(0));
        let mut budget = Budget { values: length.saturating_mul(4), memory: &mut memory };
        self.tree(root, 0, &mut budget)
    }

    fn tree(&self, id: Id, depth: usize, budget: &mut Budget<'_>) -> Step<PtValue> {
        if depth > MAX_DEPTH {
            return Err(format!("is nested more than {MAX_DEPTH} deep"));
        }
        // A copied text counts by its length.
        let cost = match &self.nodes[id] {
            Node::Str(text) => 1 + text.len(),
            Node::Bytes(bytes) | Node::Long(bytes) => 1 + bytes.len(),
            Node::Raw(raw) => 1 + raw.bytes.len(),
            Node::Object(object) => 1 + object.class.len(),
            _ => 1,
        };
        budget.values =
            budget.values.checked_sub(cost).ok_or("unfolds to far more than the file holds")?;
        budget.memory.take(size_of::<PtValue>() + cost)?;
        Ok(match &self.nodes[id] {
            Node::None => PtValue::None,
            Node::Bool(b) => PtValue::Bool(*b),
            Node::Int(n) => PtValue::Int(*n),
            Node::Long(bytes) => PtValue::Bytes(bytes.clone()),
            Node::Float(x) => PtValue::Float(*x),
            Node::Complex(z) => PtValue::Complex(*z),
            Node::Str(text) => PtValue::Str(text.clone()),
            Node::Bytes(bytes) => PtValue::Bytes(bytes.clone()),
            Node::Tensor(t) | Node::Storage(t, _) => PtValue::Tensor(t.clone()),
            Node::Raw(raw) => PtValue::Raw(raw.clone()),
            Node::Global(Global::Dtype(dtype), _) => PtValue::Dtype(*dtype),
            Node::Tuple(items) => PtValue::Tuple(self.list(items, depth, budget)?),
            Node::List(items) => PtValue::List(self.list(items, depth, budget)?),
            Node::Dict(entries) => PtValue::Dict(self.entries(entries, depth, budget)?),
            Node::Object(object) => PtValue::Object(Box::new(PtObject {
                class: object.class.clone(),
                arguments: self.list(&object.arguments, depth, budget)?,
                state: object.state.map(|id| self.tree(id, depth + 1, budget)).transpose()?,
                items: self.list(&object.items, depth, budget)?,
                entries: self.entries(&object.entries, depth, budget)?,
            })),
            Node::Global(_, name) => named("type", name),
            Node::ArrayType(of) => named("numpy.dtype", &of.name),
            Node::EmptyArray => named("numpy.ndarray", "without contents"),
        })
    }

    fn list(&self, items: &[Id], depth: usize, budget: &mut Budget<'_>) -> Step<Vec<PtValue>> {
        let mut tree = Vec::new();
        reserve(&mut tree, items.len())?;
        for &item in items {
            tree.push(self.tree(item, depth + 1, budget)?);
        }
        Ok(tree)
    }

    fn entries(
        &self,
        entries: &[(Id, Id)],
        depth: usize,
        budget: &mut Budget<'_>,
    ) -> Step<Vec<(PtValue, PtValue)>> {
        let mut tree = Vec::new();
        reserve(&mut tree, entries.len())?;
        for &(key, value) in entries {
            let key = self.tree(key, depth + 1, budget)?;
            tree.push((key, self.tree(value, depth + 1, budget)?));
        }
        Ok(tree)
    }
}

/// An object that its class and one text say everything about.
fn named(class: &str, text: &str) -> PtValue {
    let arguments = vec![PtValue::Str(text.to_owned())];
    PtValue::Object(Box::new(PtObject { class: class.into(), arguments, ..PtObject::default() }))
}
