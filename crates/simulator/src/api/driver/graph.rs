//! Capture of streams, and graphs.

use super::stream::enqueue;
use super::{call, call_in_context, put};
use crate::code::Code;
use crate::graph::capture::{self, Mode};
use crate::graph::exec::{GRAPHS, PROGRAMS, Program};
use crate::registry::Handle;
use crate::work::Work;
use crate::{counters, stream};
use std::ptr::null_mut;
use std::sync::Arc;

/// Begins a capture.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBeginCapture_v2(handle: Handle, mode: u32) -> Code {
    call_in_context(|_| {
        let mode = Mode::from_number(mode)?;
        // The default stream of old cannot be captured.
        if handle as usize <= 1 {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        capture::begin(&*stream::get(handle)?, mode)
    })
}

/// Ends a capture and gives its graph, or null.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamEndCapture(handle: Handle, place: *mut Handle) -> Code {
    call(|| {
        put(place, null_mut())?;
        put(place, GRAPHS.insert(capture::end(&*stream::get(handle)?)?))
    })
}

/// Whether a stream is under capture: 0 no, 1 yes, 2 yes but spoiled.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamIsCapturing(handle: Handle, status: *mut u32) -> Code {
    call(|| {
        let stream = stream::get(handle)?;
        let part = stream.capture.lock().clone();
        put(status, part.map_or(0, |part| 1 + u32::from(part.is_invalid())))
    })
}

/// Exchanges the calling thread's capture mode.
#[unsafe(no_mangle)]
pub extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut u32) -> Code {
    call(|| {
        if mode.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller gives a mode to be exchanged.
        let wanted = Mode::from_number(unsafe { mode.read() })?;
        put(mode, capture::exchange_mode(wanted) as u32)
    })
}

/// Makes a graph ready for launches.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphInstantiateWithFlags(
    place: *mut Handle,
    graph: Handle,
    _flags: u64,
) -> Code {
    call_in_context(|_| {
        capture::check_unsafe_call()?;
        let graph = GRAPHS.get(graph)?;
        put(place, PROGRAMS.insert(Arc::new(Program::new(&graph))))
    })
}

/// Launches a graph in a stream.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphLaunch(program: Handle, stream: Handle) -> Code {
    call(|| {
        let program = Arc::clone(&*PROGRAMS.get(program)?);
        counters::GRAPH_LAUNCHES.count();
        counters::KERNEL_LAUNCHES.add(program.kernels());
        enqueue(&stream::get(stream)?, Work::Graph(program))
    })
}

/// How many nodes a graph has; their handles are not given.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphGetNodes(graph: Handle, nodes: *mut Handle, count: *mut usize) -> Code {
    call(|| match nodes.is_null() {
        true => put(count, GRAPHS.get(graph)?.nodes.len()),
        false => Err(Code::NOT_SUPPORTED),
    })
}

/// Destroys a graph that can be launched; launches in flight are still done.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecDestroy(program: Handle) -> Code {
    call(|| {
        capture::check_unsafe_call()?;
        PROGRAMS.remove(program).map(|_| ())
    })
}

/// Destroys a graph.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDestroy(graph: Handle) -> Code {
    call(|| GRAPHS.remove(graph).map(|_| ()))
}
