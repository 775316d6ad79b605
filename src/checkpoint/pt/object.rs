//! Objects of classes that are not known here: kept as what the file says of them.

use super::value::PtValue;

/// An object that a file of `torch.save` holds beside tensors, of a class that is not known here (an
/// `argparse.Namespace`, a whole module): its class's name and the parts it would be built from. Nothing
/// of it was run, and it cannot be written again.
///
/// ```
/// use torchrs::checkpoint::{PtObject, PtValue};
/// let entry = |name: &str, value| (PtValue::Str(name.into()), value);
/// let namespace = PtObject {
///     class: "argparse.Namespace".into(),
///     state: Some(PtValue::Dict(vec![entry("lr", PtValue::Float(0.1))])),
///     ..Default::default()
/// };
/// assert!(matches!(namespace.get("lr"), Some(PtValue::Float(0.1))));
/// ```
#[derive(Clone, Debug, Default)]
pub struct PtObject {
    /// Module and name. A function's where the object would be what it returns; `type` for a class or
    /// function by itself, which the one argument names.
    pub class: String,
    /// What it would be called with.
    pub arguments: Vec<PtValue>,
    /// What its attributes would be set from; most often a dict of them.
    pub state: Option<PtValue>,
    /// Of a kind of list.
    pub items: Vec<PtValue>,
    /// Of a kind of dict.
    pub entries: Vec<(PtValue, PtValue)>,
}

impl PtObject {
    /// The attribute of a name, if `state` has it.
    ///
    /// ```
    /// use torchrs::checkpoint::PtObject;
    /// assert!(PtObject { class: "a.B".into(), ..Default::default() }.get("lr").is_none());
    /// ```
    pub fn get(&self, name: &str) -> Option<&PtValue> {
        match self.state.as_ref()? {
            // Of classes with slots.
            PtValue::Tuple(parts) => parts.iter().find_map(|part| part.get(name)),
            state => state.get(name),
        }
    }
}
