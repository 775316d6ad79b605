//! Memory and events that another process opens.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use torchrs::Result;
use torchrs::cuda::ipc::{self, MemoryHandle};
use torchrs::cuda::{Block, Event, EventOptions, Stream};

use super::kernels::apply;
use crate::support::{command, download, hold, plays, upload};

const CHILD: &str = "device::processes::the_other_process";

fn interprocess() -> EventOptions {
    EventOptions { interprocess: true, ..EventOptions::default() }
}

simulated! {
    fn another_process_reads_and_writes_a_block() {
        let stream = Stream::current(0)?;
        let spare = Block::on(5000, stream)?; // so that the block does not begin its segment
        let block = upload(&[1.0, 2.0, 3.0], stream)?;
        let second = upload(&[5.0], stream)?;
        let ready = Event::new(0, interprocess())?;
        ready.record(stream)?;

        let handles = [ipc::export(&block)?.to_bytes(), ipc::export(&second)?.to_bytes()];
        let event = ready.ipc_handle()?;
        let mut child = command(CHILD).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut to_child = child.stdin.take().unwrap();
        to_child.write_all(handles.as_flattened()).unwrap();
        to_child.write_all(&event).unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let told: Vec<_> = lines.map(|line| line.unwrap()).collect();
        assert!(child.wait().unwrap().success(), "{told:#?}");
        assert!(told.iter().any(|line| line.ends_with("read [1.0, 2.0, 3.0] and [5.0]")), "{told:#?}");
        assert_eq!(download(block.as_ptr(), 3, stream)?, [10.0, 20.0, 30.0]);
        assert_ne!(ipc::export(&block)?.offset, 0);
        drop(spare);
    }

    fn memory_cannot_be_opened_by_its_owner() {
        let block = upload(&[1.0], Stream::current(0)?)?;
        let error = ipc::open(&ipc::export(&block)?).unwrap_err().to_string();
        println!("{error}");
        assert!(error.contains("opening memory of another process"), "{error}");
        let mut unknown = ipc::export(&block)?;
        unknown.device.0 = [9; 16];
        let error = ipc::open(&unknown).unwrap_err().to_string();
        assert!(error.contains("does not see") && error.contains("CUDA_VISIBLE_DEVICES"), "{error}");
    }

    fn an_event_of_this_process_only_has_no_handle() {
        assert!(Event::new(0, EventOptions::default())?.ipc_handle().is_err());
        let event = Event::new(0, interprocess())?;
        let held = hold(Stream::current(0)?)?;
        event.record(Stream::current(0)?)?;
        assert!(!event.query()?);
        drop(held);
        event.synchronize()?;
    }
}

/// The child of `another_process_reads_and_writes_a_block`.
#[test]
#[ignore = "a part of another test"]
fn the_other_process() {
    if plays(CHILD) {
        play().unwrap();
    }
}

fn play() -> Result<()> {
    let mut from_parent = std::io::stdin();
    let mut handle = || {
        let mut bytes = [0; MemoryHandle::SIZE];
        from_parent.read_exact(&mut bytes).unwrap();
        MemoryHandle::from_bytes(&bytes)
    };
    let (first, second) = (handle(), handle());
    let mut event = [0; 64];
    from_parent.read_exact(&mut event).unwrap();
    let event = Event::from_ipc(0, event)?;

    let stream = Stream::current(0)?;
    stream.wait_event(&event)?;
    let (block, other) = (ipc::open(&first)?, ipc::open(&second)?);
    assert_eq!((ipc::open_segments(), block.len(), block.device()), (1, 12, 0));
    let (a, b) = (download(block.as_ptr(), 3, stream)?, download(other.as_ptr(), 1, stream)?);
    println!("read {a:?} and {b:?}");
    let ten_times = Block::on(12, stream)?;
    // SAFETY: blocks of the same length.
    unsafe {
        torchrs::cuda::copy::device_to_device(ten_times.as_ptr(), block.as_ptr(), 12, stream)
    }?;
    apply(&ten_times, 10.0, 0.0, stream)?;
    // SAFETY: as above.
    unsafe {
        torchrs::cuda::copy::device_to_device(block.as_ptr(), ten_times.as_ptr(), 12, stream)
    }?;
    let same = block.clone();
    drop((other, block));
    assert_eq!(ipc::open_segments(), 1);
    drop(same);
    assert_eq!(ipc::open_segments(), 0);
    Ok(())
}
