//! How many floating-point operations ops are (`torch.utils.flop_counter`). The formula of an op stands with
//! the op, which tells its count; here they are added up, by module and op.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::modules::{self, Watch};
use super::text::{Align, Table};

/// Counters on any thread, and a recording that wants flops.
static COUNTING: AtomicUsize = AtomicUsize::new(0);

/// Counts of ops by module. What no module computes has the name `Global`.
pub type FlopCounts = BTreeMap<String, BTreeMap<&'static str, u64>>;

/// The name of all together.
const GLOBAL: &str = "Global";

thread_local! {
    static COUNTERS: RefCell<Vec<Rc<RefCell<FlopCounts>>>> = const { RefCell::new(Vec::new()) };
}

/// Tells how many operations `op` is. Nobody counts: a load and a branch.
#[inline(always)]
pub(crate) fn flops(op: &'static str, count: impl FnOnce() -> u64) {
    if COUNTING.load(Relaxed) != 0 {
        add(op, count());
    }
}

#[cold]
fn add(op: &'static str, count: u64) {
    super::recorder::flops(count);
    COUNTERS.with_borrow(|counters| {
        if counters.is_empty() {
            return;
        }
        let module = modules::current();
        for counter in counters {
            let mut counts = counter.borrow_mut();
            let mut to = |name: &str| {
                let ops = match counts.get_mut(name) {
                    Some(ops) => ops,
                    None => counts.entry(name.to_owned()).or_default(),
                };
                *ops.entry(op).or_default() += count;
            };
            to(GLOBAL);
            let Some(module) = &module else { continue };
            // The module and all around it.
            to(module);
            for (end, _) in module.rmatch_indices('.') {
                to(&module[..end]);
            }
        }
    });
}

/// While it lives, ops tell their counts.
#[derive(Debug)]
pub(super) struct Counting(());

impl Counting {
    pub fn new() -> Self {
        COUNTING.fetch_add(1, Relaxed);
        Counting(())
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        COUNTING.fetch_sub(1, Relaxed);
    }
}

/// Counts the floating-point operations of this thread's ops while it lives
/// (`torch.utils.flop_counter.FlopCounterMode`): of products of matrices, convolutions and attention, forward
/// and backward, by PyTorch's formulas. A product of `m x k` with `k x n` is `2 m k n`; the rest is not counted.
///
/// Modules' names begin with the model's: the field path of the outermost module that computes, where an
/// optimizer or [`named_parameters`](crate::nn::Module::named_parameters) has told its parameters their names,
/// else its type. A struct of one's own is that module where its forward has
/// [`#[nn::forward]`](crate::nn::forward).
///
/// Attention that recomputes its weights in backward, as the kernels here do, counts those products: 5 in
/// backward to forward's 2, as PyTorch's flash attention.
///
/// ```
/// use torchrs::{Dtype::F32, Tensor, nn::{Forward, Linear, ReLU, Sequential}, profiler::FlopCounter};
/// let net = Sequential::new().append(Linear::new(8, 16)).append(ReLU).append(Linear::new(16, 4));
/// let counter = FlopCounter::new();
/// let loss = net.forward(&Tensor::ones([32, 8], F32)).sum();
/// assert_eq!(counter.total_flops(), 2 * 32 * (8 * 16 + 16 * 4));
/// loss.backward(); // the input needs no gradient
/// assert_eq!(counter.total_flops(), 2 * 32 * (2 * 8 * 16 + 3 * 16 * 4));
/// assert_eq!(counter.flop_counts()["Sequential.2"]["linear"], 2 * 32 * 16 * 4);
/// println!("{}", counter.table(None));
/// ```
#[derive(Debug)]
pub struct FlopCounter {
    counts: Rc<RefCell<FlopCounts>>,
    _counting: Counting,
    _watch: Watch,
    _not_send: PhantomData<*const ()>,
}

impl Default for FlopCounter {
    fn default() -> Self {
        Self::new()
    }
}

impl FlopCounter {
    /// Counts from now on.
    pub fn new() -> Self {
        let counts =
            Rc::new(RefCell::new(FlopCounts::from([(GLOBAL.to_owned(), BTreeMap::new())])));
        COUNTERS.with_borrow_mut(|counters| counters.push(counts.clone()));
        let (_counting, _watch) = (Counting::new(), Watch::new());
        FlopCounter { counts, _counting, _watch, _not_send: PhantomData }
    }

    /// Operations so far (`get_total_flops`).
    pub fn total_flops(&self) -> u64 {
        self.counts.borrow()[GLOBAL].values().sum()
    }

    /// Operations so far by module and op (`get_flop_counts`). A module's are also those of all around it.
    ///
    /// ```
    /// use torchrs::{Dtype::F32, Tensor, profiler::FlopCounter};
    /// let counter = FlopCounter::new();
    /// Tensor::ones([3, 4], F32).matmul(&Tensor::ones([4, 5], F32));
    /// assert_eq!(counter.flop_counts()["Global"]["mm"], 2 * 3 * 4 * 5);
    /// ```
    pub fn flop_counts(&self) -> FlopCounts {
        self.counts.borrow().clone()
    }

    /// The counts as a table, by module and op (`get_table`): modules down to that depth, of which the model
    /// is 0; all with `None`.
    pub fn table(&self, depth: impl Into<Option<usize>>) -> String {
        let (counts, depth) = (self.counts.borrow(), depth.into());
        let total = self.total_flops();
        let mut table = Table::new([
            ("Module", Align::Left),
            ("FLOP", Align::Right),
            ("% Total", Align::Right),
        ]);
        let share = |n: u64| format!("{:.2}%", 100.0 * n as f64 / total.max(1) as f64);
        let all = std::iter::once((GLOBAL, &counts[GLOBAL]));
        let modules = counts.iter().map(|(name, ops)| (name.as_str(), ops));
        for (name, ops) in all.chain(modules.filter(|(name, _)| *name != GLOBAL)) {
            let level = name.matches('.').count();
            if name != GLOBAL && depth.is_some_and(|depth| level > depth) {
                continue;
            }
            let indent = if name == GLOBAL { 0 } else { level + 1 };
            let sum: u64 = ops.values().sum();
            table.row([format!("{}{name}", " ".repeat(indent)), compact(sum), share(sum)]);
            for (op, &n) in ops {
                table.row([format!("{} - {op}", " ".repeat(indent)), compact(n), share(n)]);
            }
        }
        table.to_string()
    }
}

impl fmt::Display for FlopCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table(None))
    }
}

impl Drop for FlopCounter {
    fn drop(&mut self) {
        let _ = COUNTERS.try_with(|counters| {
            counters.borrow_mut().retain(|counter| !Rc::ptr_eq(counter, &self.counts));
        });
    }
}

/// A count in thousands, with the letter of which.
pub(super) fn compact(n: u64) -> String {
    let (mut value, mut letters) = (n as f64, ["", "K", "M", "G", "T", "P"].into_iter());
    let mut letter = letters.next().unwrap_or_default();
    while value >= 999.9995
        && let Some(next) = letters.next()
    {
        (value, letter) = (value / 1e3, next);
    }
    if letter.is_empty() { n.to_string() } else { format!("{value:.3}{letter}") }
}
