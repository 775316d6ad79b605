//! Kullback-Leibler divergences (`torch.distributions.kl`): a table of formulas by the types of two distributions.
//! Where the table has none for a type, its [`parent`](super::Distribution::parent) counts.

mod cross;
mod same;

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use super::distribution::Distribution;
use crate::error::{Error, throw};
use crate::tensor::Tensor;

type Formula = Arc<dyn Fn(&dyn Distribution, &dyn Distribution) -> Tensor + Send + Sync>;

/// The formulas by the types of both distributions.
#[derive(Default)]
struct Table(HashMap<(TypeId, TypeId), Formula>);

impl Table {
    fn add<P: Distribution, Q: Distribution>(
        &mut self,
        formula: impl Fn(&P, &Q) -> Tensor + Send + Sync + 'static,
    ) {
        let call = move |p: &dyn Distribution, q: &dyn Distribution| match (
            p.downcast_ref::<P>(),
            q.downcast_ref::<Q>(),
        ) {
            (Some(p), Some(q)) => formula(p, q),
            _ => none(p, q),
        };
        self.0.insert((TypeId::of::<P>(), TypeId::of::<Q>()), Arc::new(call));
    }
}

fn table() -> &'static RwLock<Table> {
    static TABLE: OnceLock<RwLock<Table>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = Table::default();
        same::fill_all(&mut table);
        cross::fill_all(&mut table);
        RwLock::new(table)
    })
}

/// Takes `formula` for the divergence of distributions of these two types, in place of one that there was
/// (`torch.distributions.kl.register_kl`).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::distributions::{Distribution, Laplace, StudentT, kl_divergence, register_kl};
/// register_kl(|p: &StudentT, q: &Laplace| q.log_prob(p.loc()));
/// assert!(kl_divergence(&StudentT::new(3.0, 0.0, 1.0), &Laplace::new(0.0, 1.0)).item() < 0.0);
/// ```
pub fn register_kl<P: Distribution, Q: Distribution>(
    formula: impl Fn(&P, &Q) -> Tensor + Send + Sync + 'static,
) {
    table().write().unwrap_or_else(PoisonError::into_inner).add(formula);
}

/// There is no formula for two distributions.
#[track_caller]
fn none(p: &dyn Distribution, q: &dyn Distribution) -> ! {
    let message = format!(
        "{}; there is no formula of its divergence from {} (`register_kl` adds one)",
        p.name(),
        q.name()
    );
    throw(Error::argument("kl_divergence", "p", message));
}

/// A distribution, its parent, and so on.
fn line(d: &dyn Distribution) -> impl Iterator<Item = &dyn Distribution> {
    std::iter::successors(Some(d), |d| d.parent())
}

/// The mean of log p(x) - log q(x) over samples of `p`, KL(p || q), of the batch's shape
/// (`torch.distributions.kl_divergence`).
///
/// ```
/// use torchrs::distributions::{Normal, kl_divergence};
/// let kl = kl_divergence(&Normal::new(1.0, 1.0), &Normal::new(0.0, 1.0));
/// assert_eq!(kl.item(), 0.5);
/// ```
///
/// # Panics
/// Throws when there is no formula for the two types; [`register_kl`] adds one.
#[track_caller]
pub fn kl_divergence(p: &dyn Distribution, q: &dyn Distribution) -> Tensor {
    for own in line(p) {
        for other in line(q) {
            let key = (own.as_any().type_id(), other.as_any().type_id());
            let found = {
                let table = table().read().unwrap_or_else(PoisonError::into_inner);
                table.0.get(&key).cloned()
            };
            if let Some(formula) = found {
                return formula(own, other);
            }
        }
    }
    none(p, q)
}
