//! Calls of modules' forwards, for those who ask: which module of a model computes now (profiles, counts of
//! operations), and a log of all calls with what went in and came out ([`summary`](super::summary)).
//!
//! A module does not know where it stands in a model. The outermost module that computes on a thread does: it lists
//! the addresses of all modules inside once, when it begins, and those inside are found in the list.

mod shown;
mod tree;

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

pub use shown::{Probe, Shown, Shows, ViaNothing, ViaShown};
pub(super) use tree::Tree;

use super::{Module, scope};
use crate::error::within::Within;
use crate::profiler::modules::{self, Inside};
use crate::tensor::Tensor;

/// A call of a module's forward.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    /// Where the module stands in the model; the model itself is `""`.
    pub path: String,
    /// The module's type.
    pub kind: String,
    /// Its address, by which two names of one module are told.
    pub address: usize,
    /// The call around it.
    pub parent: Option<usize>,
    pub inputs: Vec<Shown>,
    pub output: Shown,
    /// Operations of this call with those inside it.
    pub flops: u64,
}

/// What is known of the model that computes on a thread.
struct Running {
    tree: Tree,
    /// The modules that compute, the outermost first: path, address, place in `calls`.
    open: Vec<(Arc<str>, usize, usize)>,
    /// Where calls are noted, and what counts their operations.
    log: Option<Log>,
}

struct Log {
    calls: Vec<Call>,
    flops: Rc<dyn Fn() -> u64>,
}

thread_local! {
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

/// A module that computes, until it is dropped.
#[doc(hidden)]
pub struct Scope<'a> {
    watched: Option<Watched>,
    _within: Within<'a>,
}

struct Watched {
    /// The outermost: with it the list goes.
    outermost: bool,
    /// Its place in the log.
    call: Option<usize>,
    _inside: Inside,
    _not_send: PhantomData<*const ()>,
}

/// Notes that `module` computes, called from the caller's line, until the guard is dropped.
#[track_caller]
#[inline]
#[doc(hidden)]
pub fn enter<M: Module>(module: &M) -> Scope<'_> {
    let watched = if modules::is_watched() { Some(begin(module)) } else { None };
    Scope { watched, _within: scope::enter(module) }
}

impl Scope<'_> {
    /// Whether somebody asks for inputs and outputs.
    #[inline]
    pub fn is_logged(&self) -> bool {
        self.watched.as_ref().is_some_and(|watched| watched.call.is_some())
    }

    /// What goes in.
    #[cold]
    pub fn inputs(&self, inputs: Vec<Shown>) {
        self.in_log(|call, _| call.inputs = inputs);
    }

    /// What comes out.
    #[cold]
    pub fn output(&self, output: Shown) {
        self.in_log(|call, flops| {
            call.output = output;
            call.flops = flops - call.flops;
        });
    }

    fn in_log(&self, change: impl FnOnce(&mut Call, u64)) {
        let Some(i) = self.watched.as_ref().and_then(|watched| watched.call) else { return };
        RUNNING.with_borrow_mut(|running| {
            if let Some(Running { log: Some(log), .. }) = running {
                let flops = (log.flops)();
                change(&mut log.calls[i], flops);
            }
        });
    }
}

#[cold]
fn begin<M: Module>(module: &M) -> Watched {
    let outermost = RUNNING.with_borrow(Option::is_none);
    if outermost {
        // Visiting is the user's code: nothing is borrowed meanwhile.
        let name = scope::path(module).unwrap_or_else(|| module.name().to_owned());
        let tree = Tree::new(module, &name);
        RUNNING.set(Some(Running { tree, open: Vec::new(), log: None }));
    }
    let address = (&raw const *module).addr();
    RUNNING.with_borrow_mut(|running| {
        let running = running.as_mut().expect("made above");
        let around = running.open.last();
        // A module whose forward calls itself is one call.
        let again = size_of::<M>() > 0
            && around.is_some_and(|(path, at, _)| {
                *at == address && running.tree.kind(path) == Some(module.name())
            });
        let path = match around {
            Some((path, ..)) if again => path.clone(),
            _ => {
                let around = around.map(|(path, ..)| path.clone());
                running.tree.find(address, module.name(), around.as_deref())
            }
        };
        let mut call = None;
        if let Some(log) = running.log.as_mut().filter(|_| !again) {
            log.calls.push(Call {
                path: running.tree.inside_root(&path).to_owned(),
                kind: module.name().to_owned(),
                address,
                parent: running.open.last().map(|(.., call)| *call),
                inputs: Vec::new(),
                output: Shown::Nothing,
                flops: (log.flops)(),
            });
            call = Some(log.calls.len() - 1);
        }
        let place = call.or(running.open.last().map(|(.., call)| *call)).unwrap_or(0);
        running.open.push((path.clone(), address, place));
        Watched { outermost, call, _inside: Inside::new(path), _not_send: PhantomData }
    })
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = RUNNING.try_with(|running| {
            let mut running = running.borrow_mut();
            if self.outermost {
                *running = None;
            } else if let Some(running) = running.as_mut() {
                running.open.pop();
            }
        });
    }
}

/// Whether calls are noted with what goes in and out: then modules compute one by one.
pub(crate) fn is_logged() -> bool {
    modules::is_watched()
        && RUNNING.with_borrow(|running| running.as_ref().is_some_and(|r| r.log.is_some()))
}

/// Notes that `module` has computed `output`, in one pass with the module before it.
#[track_caller]
pub(crate) fn passed<M: Module>(module: &M, output: &Tensor) {
    let call = enter(module);
    if call.is_logged() {
        call.inputs(vec![output.show()]);
        call.output(output.show());
    }
}

/// The calls inside `forward` of modules of `model`, in their order. Whatever runs on this thread inside counts as
/// part of the model, which is the first call.
#[track_caller]
pub(super) fn log<M: Module>(
    model: &M,
    flops: impl Fn() -> u64 + 'static,
    forward: impl FnOnce(&M),
) -> Vec<Call> {
    struct End(Option<Running>);
    impl Drop for End {
        fn drop(&mut self) {
            RUNNING.set(self.0.take());
        }
    }
    let tree = Tree::new(model, model.name());
    let log = Log { calls: Vec::new(), flops: Rc::new(flops) };
    let running = Running { tree, open: Vec::new(), log: Some(log) };
    let end = End(RUNNING.replace(Some(running)));
    let _watch = modules::Watch::new();
    forward(model);
    let calls = RUNNING.with_borrow_mut(Option::take).and_then(|running| running.log);
    drop(end);
    calls.map_or_else(Vec::new, |log| log.calls)
}
