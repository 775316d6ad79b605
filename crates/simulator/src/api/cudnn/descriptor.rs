//! Descriptors: made, described, finished, asked, executed.

use super::attributes::{self, kind, of};
use super::convolution::{Convolution, Window};
use super::engines::{Engine, NOTES, engines};
use super::graph::{Graph, Operation};
use super::steps::{Operator, Step};
use super::tensor::{Home, Layout};
use super::{HANDLES, Outcome, Status, put, refuse, status};
use crate::api::driver::stream::enqueue;
use crate::registry::{Handle, Registry};
use crate::stream;
use crate::work::Work;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;

/// A descriptor.
#[derive(Clone, Debug, Default)]
pub struct Descriptor {
    kind: i32,
    finished: bool,
    /// By name: the type, and the values' bytes.
    attributes: HashMap<i32, (i32, Vec<u8>)>,
    /// What it has come to mean.
    meaning: Meaning,
}

/// What a finished descriptor stands for.
#[derive(Clone, Debug, Default)]
enum Meaning {
    #[default]
    Nothing,
    Window(Window),
    Tensor(Layout),
    Operator(Operator),
    Operation(Operation),
    Graph(Graph),
    Engines(Vec<(Graph, Engine)>),
    Engine(Graph, Engine),
    Plan(Graph, Engine),
    Pack(Vec<(i64, usize)>, usize),
}

static DESCRIPTORS: Registry<Mutex<Descriptor>> = Registry::new();

fn found(handle: Handle) -> Outcome<Arc<Mutex<Descriptor>>> {
    DESCRIPTORS.get(handle).or_else(|_| refuse(Status::BAD_PARAM, "no such descriptor"))
}

impl Descriptor {
    /// The values of an attribute of eight bytes each.
    fn longs(&self, name: i32) -> Vec<i64> {
        let bytes = self.attributes.get(&name).map_or(&[][..], |(_, bytes)| bytes);
        bytes
            .chunks_exact(8)
            .map(|b| i64::from_ne_bytes(b.try_into().unwrap_or_default()))
            .collect()
    }

    fn long(&self, name: i32) -> i64 {
        self.longs(name).first().copied().unwrap_or_default()
    }

    fn int(&self, name: i32) -> i32 {
        let bytes = self.attributes.get(&name).map_or(&[][..], |(_, bytes)| bytes);
        bytes.get(..4).map_or(0, |b| i32::from_ne_bytes(b.try_into().unwrap_or_default()))
    }

    /// A scale, of either type.
    fn scale(&self, name: i32) -> f64 {
        match self.attributes.get(&name) {
            Some((of::FLOAT, _)) => f32::from_bits(self.int(name) as u32).into(),
            _ => f64::from_bits(self.long(name) as u64),
        }
    }

    /// A truth value, false unless set.
    fn truth(&self, name: i32) -> bool {
        self.attributes.get(&name).is_some_and(|(_, bytes)| bytes.first() == Some(&1))
    }

    /// The meanings of the finished descriptors that an attribute names.
    fn parts(&self, name: i32) -> Outcome<Vec<Meaning>> {
        let meaning = |object: i64| {
            let part = found(object as Handle)?;
            let part = part.lock();
            if !part.finished {
                return refuse(Status::NOT_FINALIZED, format!("attribute {name} is not finished"));
            }
            Ok(part.meaning.clone())
        };
        self.longs(name).into_iter().map(meaning).collect()
    }

    /// The meaning of the one that an attribute names.
    fn part(&self, name: i32) -> Outcome<Meaning> {
        match self.parts(name)?.into_iter().next() {
            Some(part) => Ok(part),
            None => refuse(Status::BAD_PARAM, format!("attribute {name} is not set")),
        }
    }

    fn tensor(&self, name: i32) -> Outcome<Layout> {
        match self.part(name)? {
            Meaning::Tensor(layout) => Ok(layout),
            _ => refuse(Status::BAD_PARAM, format!("attribute {name} is no tensor")),
        }
    }

    fn graph(&self, name: i32) -> Outcome<Graph> {
        match self.part(name)? {
            Meaning::Graph(graph) => Ok(graph),
            _ => refuse(Status::BAD_PARAM, format!("attribute {name} is no graph")),
        }
    }

    /// An operation of the operator that an attribute names, if there is one: of these tensors, if they are set, and
    /// the last for the result.
    fn step(&self, operator: Option<i32>, tensors: &[i32], result: i32) -> Outcome<Meaning> {
        let operator = match operator.map(|name| self.part(name)).transpose()? {
            Some(Meaning::Operator(operator)) => operator,
            None => Operator::Turn,
            _ => return refuse(Status::BAD_PARAM, "an attribute is no operator"),
        };
        let set = tensors.iter().filter(|name| self.attributes.contains_key(name));
        let operands = set.map(|&name| self.tensor(name)).collect::<Outcome<Vec<_>>>()?;
        let step = Step::new(operator, operands, self.tensor(result)?)?;
        Ok(Meaning::Operation(Operation::Step(Arc::new(step))))
    }

    /// Looks at what was described.
    fn finish(&mut self) -> Outcome {
        for name in attributes::required(self.kind) {
            if !self.attributes.contains_key(&name) {
                return refuse(Status::BAD_PARAM, format!("attribute {name} is not set"));
            }
        }
        self.meaning = match self.kind {
            kind::CONVOLUTION => Meaning::Window(Window::new(
                self.long(106),
                self.int(100),
                self.int(101),
                [self.longs(105), self.longs(104), self.longs(103), self.longs(102)],
            )?),
            kind::TENSOR => Meaning::Tensor(Layout::new(
                self.int(901),
                self.longs(902),
                self.longs(903),
                self.long(906),
                self.long(900),
                match (self.truth(907), self.truth(908)) {
                    (true, _) => Home::Nowhere,
                    (_, true) => Home::Call,
                    _ => Home::Memory,
                },
            )?),
            kind::FORWARD => self.convolution([702, 704, 703, 705], [700, 701])?,
            kind::DATA => self.convolution([708, 710, 709, 711], [706, 707])?,
            kind::FILTERS => self.convolution([714, 716, 715, 717], [712, 713])?,
            kind::POINTWISE => Meaning::Operator(Operator::pointwise(self.int(0), self.long(9))?),
            kind::MATMUL => Meaning::Operator(Operator::Matmul),
            kind::REDUCTION => Meaning::Operator(Operator::fold(self.int(1600))?),
            kind::OF_POINTWISE => self.step(Some(750), &[751, 752, 758], 753)?,
            kind::OF_MATMUL => self.step(Some(1523), &[1520, 1521], 1522)?,
            kind::OF_REDUCTION => self.step(Some(1612), &[1610], 1611)?,
            kind::RESHAPE => self.step(None, &[2200], 2201)?,
            kind::GRAPH => {
                let operation = |part| match part {
                    Meaning::Operation(operation) => Ok(operation),
                    _ => refuse(Status::BAD_PARAM, "a part of the graph is no operation"),
                };
                let operations = self.parts(801)?.into_iter().map(operation);
                Meaning::Graph(Graph::new(operations.collect::<Outcome<_>>()?)?)
            }
            kind::HEURISTICS => {
                let graph = self.graph(201)?;
                let engines = engines(graph.takes_cores(), self.int(200))?;
                Meaning::Engines(engines.into_iter().map(|e| (graph.clone(), e)).collect())
            }
            kind::PLAN => match self.part(401)? {
                Meaning::Engine(operation, engine) => {
                    if HANDLES.get(self.long(400) as Handle).is_err() {
                        return refuse(Status::BAD_PARAM, "the plan's handle is none");
                    }
                    engine.check()?;
                    Meaning::Plan(operation, engine)
                }
                _ => return refuse(Status::BAD_PARAM, "attribute 401 is no engine's setting"),
            },
            kind::PACK => {
                let (names, addresses) = (self.longs(1000), self.longs(1001));
                if names.len() != addresses.len() {
                    return refuse(Status::BAD_PARAM, "not as many addresses as names");
                }
                let all = names.into_iter().zip(addresses.into_iter().map(|at| at as usize));
                Meaning::Pack(all.collect(), self.long(1003) as usize)
            }
            _ => return refuse(Status::BAD_PARAM, "a descriptor that cuDNN itself describes"),
        };
        self.finished = true;
        Ok(())
    }

    fn convolution(
        &self,
        [window, x, w, y]: [i32; 4],
        [alpha, beta]: [i32; 2],
    ) -> Outcome<Meaning> {
        let Meaning::Window(window) = self.part(window)? else {
            return refuse(Status::BAD_PARAM, format!("attribute {window} is no convolution"));
        };
        let tensors = [self.tensor(x)?, self.tensor(w)?, self.tensor(y)?];
        let scales = [self.scale(alpha), self.scale(beta)];
        let convolution = Convolution::new(self.kind, window, tensors, scales)?;
        Ok(Meaning::Operation(Operation::Convolution(Arc::new(convolution))))
    }
}

/// Makes a descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendCreateDescriptor(kind: i32, place: *mut Handle) -> Status {
    if !attributes::is_known(kind) {
        return status(refuse(
            Status::NOT_SUPPORTED,
            format!("no descriptors of kind {kind} here"),
        ));
    }
    let descriptor = Descriptor { kind, ..Descriptor::default() };
    status(put(place, DESCRIPTORS.insert(Mutex::new(descriptor))))
}

/// Ends a descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendDestroyDescriptor(descriptor: Handle) -> Status {
    match DESCRIPTORS.remove(descriptor) {
        Ok(_) => Status::SUCCESS,
        Err(_) => status(refuse(Status::BAD_PARAM, "no such descriptor")),
    }
}

/// Sets an attribute.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendSetAttribute(
    descriptor: Handle,
    name: i32,
    of: i32,
    count: i64,
    values: *const c_void,
) -> Status {
    let set = || {
        let descriptor = found(descriptor)?;
        let mut descriptor = descriptor.lock();
        if descriptor.finished {
            return refuse(Status::BAD_PARAM, "the descriptor is finished");
        }
        attributes::check(descriptor.kind, name, of, count)?;
        if values.is_null() {
            return refuse(Status::BAD_PARAM, "no values");
        }
        let bytes = count as usize * of::bytes(of);
        // SAFETY: the caller gives so many values.
        let bytes = unsafe { std::slice::from_raw_parts(values.cast::<u8>(), bytes) }.to_vec();
        descriptor.attributes.insert(name, (of, bytes));
        Ok(())
    };
    status(set())
}

/// Says that a descriptor is described.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendFinalize(descriptor: Handle) -> Status {
    status(found(descriptor).and_then(|descriptor| {
        // Its parts are looked at meanwhile, among which it cannot be itself.
        let mut copy = descriptor.lock().clone();
        copy.finish()?;
        *descriptor.lock() = copy;
        Ok(())
    }))
}

/// The values that the caller has room for, and how many there are.
fn answer<T: Copy>(all: &[T], most: i64, count: *mut i64, values: *mut c_void) -> Outcome {
    put(count, all.len() as i64)?;
    if values.is_null() {
        return Ok(());
    }
    let some = all.len().min(most.max(0) as usize);
    // SAFETY: the caller has room for `most` values.
    unsafe { std::ptr::copy_nonoverlapping(all.as_ptr(), values.cast(), some) };
    Ok(())
}

/// Makes a descriptor that the caller made for an answer mean an engine.
fn fill(place: Handle, wanted: i32, meaning: Meaning) -> Outcome {
    let descriptor = found(place)?;
    let mut descriptor = descriptor.lock();
    if descriptor.kind != wanted {
        return refuse(Status::BAD_PARAM, format!("the answer is no descriptor of kind {wanted}"));
    }
    (descriptor.meaning, descriptor.finished) = (meaning, true);
    Ok(())
}

/// The handles of descriptors that the caller made for an answer.
fn places(most: i64, values: *mut c_void) -> Vec<Handle> {
    if values.is_null() || most < 1 {
        return Vec::new();
    }
    // SAFETY: the caller gives so many descriptors.
    unsafe { std::slice::from_raw_parts(values.cast::<Handle>(), most as usize) }.to_vec()
}

/// Asks a finished descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendGetAttribute(
    descriptor: Handle,
    name: i32,
    of: i32,
    most: i64,
    count: *mut i64,
    values: *mut c_void,
) -> Status {
    let get = || {
        let asked = found(descriptor)?.lock().clone();
        if !asked.finished {
            return refuse(Status::NOT_FINALIZED, "the descriptor is not finished");
        }
        match (asked.meaning, name, of) {
            (Meaning::Engines(engines), 202, of::DESCRIPTOR) => {
                put(count, engines.len() as i64)?;
                for (place, (operation, engine)) in places(most, values).into_iter().zip(engines) {
                    fill(place, kind::ENGINE_CONFIG, Meaning::Engine(operation, engine))?;
                }
                Ok(())
            }
            (Meaning::Engine(operation, engine), 300, of::DESCRIPTOR) => {
                put(count, 1)?;
                let place = places(most, values).into_iter().next();
                place.map_or(Ok(()), |place| {
                    fill(place, kind::ENGINE, Meaning::Engine(operation, engine))
                })
            }
            (Meaning::Engine(_, engine), NOTES, of::NOTE) => {
                answer(engine.notes(), most, count, values)
            }
            (Meaning::Plan(_, engine), 402, of::INT64) => {
                answer(&[engine.workspace()], most, count, values)
            }
            _ => {
                refuse(Status::NOT_SUPPORTED, format!("attribute {name} of type {of} is not told"))
            }
        }
    };
    status(get())
}

/// Starts a plan's work with the addresses of a pack.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendExecute(handle: Handle, plan: Handle, pack: Handle) -> Status {
    let execute = || {
        let Ok(handle) = HANDLES.get(handle) else {
            return refuse(Status::NOT_INITIALIZED, "no such handle");
        };
        let (plan, pack) = (found(plan)?.lock().clone(), found(pack)?.lock().clone());
        let (Meaning::Plan(operation, engine), Meaning::Pack(addresses, workspace)) =
            (plan.meaning, pack.meaning)
        else {
            return refuse(Status::BAD_PARAM, "no finished plan, or no finished pack");
        };
        if workspace == 0 {
            return refuse(Status::BAD_PARAM, "the plan needs a workspace");
        }
        engine.start()?;
        let work = operation.work(&addresses, engine)?;
        let stream = stream::get(*handle.lock() as Handle)
            .or_else(|_| refuse(Status::BAD_PARAM, "the handle's stream is none"))?;
        enqueue(&stream, Work::Library(work))
            .or_else(|_| refuse(Status::EXECUTION_FAILED, "the stream does not take the work"))
    };
    status(execute())
}
