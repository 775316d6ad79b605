//! Captures beside threads that do what the driver forbids beside captures.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use super::*;
use crate::kernels::module::{Function, Program};
use crate::memory::pinned::{self, PinnedBlock};
use crate::memory::{Block, copy, in_flight, ipc};
use crate::simulated_test::on_gpu;
use crate::work::event::{Event, EventOptions};
use crate::work::stream::Priority;
use crate::work::wait;

/// How many captures: what is forgotten somewhere spoils one in some thousands.
const CAPTURES: usize = 40_000;

static PROGRAM: Program =
    Program::new("beside_captures", "", "extern \"C\" __global__ void nothing() {}");

fn wait_for_events(stream: Stream) -> Result<()> {
    let event = stream.record_event()?;
    while !event.query()? {}
    stream.query()?;
    event.synchronize()?;
    stream.synchronize()
}

fn take_and_give_back_memory(stream: Stream) -> Result<()> {
    drop(Block::on(30 << 20, stream)?);
    memory::allocator(0)?.empty_cache()?;
    drop(PinnedBlock::new(1 << 20)?);
    pinned::empty_cache()
}

fn pin_memory(_: Stream) -> Result<()> {
    let mut bytes = vec![0u8; 1 << 16];
    // SAFETY: the memory outlives the registration; nothing copies from or to it.
    drop(unsafe { pinned::register(bytes.as_mut_ptr(), bytes.len()) }?);
    Ok(())
}

/// As the loader and the channels between processes do.
fn export(stream: Stream) -> Result<()> {
    let block = Block::on(64, stream)?;
    ipc::export(&block)?;
    let options = EventOptions { interprocess: true, ..Default::default() };
    let event = Event::new(0, options)?;
    event.record(stream)?;
    // The driver refuses to open what is this process's own, in a call that it may also not like.
    assert!(Event::from_ipc(0, event.ipc_handle()?).is_err());
    in_flight::release_after(&[stream], block);
    Ok(())
}

fn find_kernels(_: Stream) -> Result<()> {
    Function::find(&PROGRAM, "nothing", 0).map(drop)
}

/// It is refused where it would spoil the capture.
fn wait_for_all(_: Stream) -> Result<()> {
    match wait::synchronize(0) {
        Err(error) if !error.to_string().contains("would spoil the graph") => Err(error),
        _ => Ok(()),
    }
}

fn capture_beside_others() {
    let mut jobs: Vec<fn(Stream) -> Result<()>> =
        vec![wait_for_events, take_and_give_back_memory, pin_memory, export, wait_for_all];
    match PROGRAM.load(0) {
        Ok(()) => jobs.push(find_kernels),
        Err(error) => println!("skipped: kernels: {error}"),
    }
    let stream = Stream::outside_pool(0, Priority::Normal).unwrap();
    let block = Block::on(4, stream).unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for job in jobs {
            let over = &over;
            scope.spawn(move || {
                let stream = Stream::outside_pool(0, Priority::Normal).unwrap();
                while !over.load(SeqCst) {
                    job(stream).unwrap();
                }
            });
        }
        let mut spoiled = 0;
        for i in 0..CAPTURES {
            let mode = [CaptureMode::Global, CaptureMode::ThreadLocal][i % 2];
            let options = CaptureOptions { mode, pool: None };
            // SAFETY: a block of that length, which lives until the stream was waited for.
            let work = || unsafe { copy::fill_words(block.as_ptr().cast(), 7, 1, stream) };
            let captured = Graph::capture(stream, options, work);
            spoiled += usize::from(captured.is_err());
            if let (Err(error), 1) = (captured, spoiled) {
                println!("{error}");
            }
        }
        over.store(true, SeqCst);
        assert_eq!(spoiled, 0, "of {CAPTURES}");
    });
    stream.synchronize().unwrap();
}

#[test]
fn captures_are_not_spoiled_by_other_threads() {
    on_gpu("graph::tests::captures_are_not_spoiled_by_other_threads", capture_beside_others);
}
