//! Memory and events between two processes: a test starts itself as the other one and talks to it
//! through its input and output.

mod support;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdout, Stdio};
use std::ptr::null_mut;
use support::*;
use torchrs_simulated_gpu::api::driver::{event::*, ipc::*, memcpy::*, memory::*, stream::*};

const HANDLES: &str = "TORCHRS_SIMULATED_TEST_HANDLES";

fn to_text(handle: &IpcHandle) -> String {
    handle.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_text(text: &str) -> IpcHandle {
    let mut bytes = [0; 64];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap();
    }
    IpcHandle(bytes)
}

fn shared_event() -> Handle {
    let mut event = null_mut();
    ok(cuEventCreate(&mut event, 6));
    event
}

fn export(pointer: u64, event: Handle) -> (IpcHandle, IpcHandle) {
    let (mut memory, mut order) = (IpcHandle([0; 64]), IpcHandle([0; 64]));
    ok(cuIpcGetMemHandle(&mut memory, pointer));
    ok(cuIpcGetEventHandle(&mut order, event));
    (memory, order)
}

fn import(handles: &str) -> (u64, Handle) {
    let (memory, order) = handles.split_once(' ').unwrap();
    let (mut pointer, mut event) = (0, null_mut());
    ok(cuIpcOpenMemHandle_v2(&mut pointer, from_text(memory), 1));
    ok(cuIpcOpenEventHandle(&mut event, from_text(order)));
    (pointer, event)
}

/// The next line that begins with a word of ours.
fn next_word(lines: &mut BufReader<ChildStdout>) -> String {
    loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the other process ended");
        // The test's name may stand before the word, without an end of line.
        if let Some((_, word)) = line.split_once("ipc:") {
            return word.trim().to_string();
        }
    }
}

unsafe extern "C" fn sleep(milliseconds: *mut std::ffi::c_void) {
    std::thread::sleep(std::time::Duration::from_millis(milliseconds as u64));
}

#[test]
fn another_process_sees_memory_in_order() {
    device(0);
    let stream = stream();
    if is_child() {
        let handles = std::env::var(HANDLES).unwrap();
        let (pointer, event) = import(&handles);
        let (again, _) = import(&handles);
        assert_eq!(pointer, again);
        // The order is the event's: nobody waits on the host.
        ok(cuStreamWaitEvent(stream, event, 0));
        assert_eq!(download::<u32>(pointer, 250, stream), [7; 250]);
        ok(cuMemsetD32Async(pointer, 8, 250, stream));
        ok(cuStreamSynchronize(stream));
        assert_eq!(name(cuMemFree_v2(pointer)), "CUDA_ERROR_INVALID_VALUE");
        ok(cuIpcCloseMemHandle(pointer));
        assert_eq!(download::<u32>(pointer, 1, stream), [8]);
        ok(cuIpcCloseMemHandle(pointer));
        assert_eq!(name(cuIpcCloseMemHandle(pointer)), "CUDA_ERROR_INVALID_VALUE");
        return;
    }
    let (block, event) = (alloc(1000), shared_event());
    ok(cuLaunchHostFunc(stream, Some(sleep), 300 as *mut _));
    ok(cuMemsetD32Async(block, 7, 250, stream));
    ok(cuEventRecord(event, stream));
    // The handle is the whole block's, wherever the pointer points in it.
    let (memory, order) = export(block + 100, event);
    let mut pointer = 0;
    assert_eq!(name(cuIpcOpenMemHandle_v2(&mut pointer, memory, 1)), "CUDA_ERROR_INVALID_CONTEXT");
    let handles = format!("{} {}", to_text(&memory), to_text(&order));
    run_child("another_process_sees_memory_in_order", &[(HANDLES, &handles)]);
    assert_eq!(download::<u32>(block, 250, stream), [8; 250]);
}

/// CUDA says that an event which its maker has destroyed may be neither opened nor used any more.
#[test]
fn an_event_that_its_maker_destroyed_is_of_no_use() {
    // Of its own: a wait that is lost breaks the device.
    device(1);
    let stream = stream();
    if is_child() {
        let events = [shared_event(), shared_event()];
        let exported = events.map(|event| {
            let mut order = IpcHandle([0; 64]);
            ok(cuEventRecord(event, stream));
            ok(cuIpcGetEventHandle(&mut order, event));
            order
        });
        println!("ipc:{} {}", to_text(&exported[0]), to_text(&exported[1]));
        std::io::stdin().lines().next().unwrap().unwrap();
        for event in events {
            ok(cuEventDestroy_v2(event));
        }
        println!("ipc:gone");
        std::io::stdin().lines().next().unwrap().unwrap();
        return;
    }
    let mut child = child("an_event_that_its_maker_destroyed_is_of_no_use", &[])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut says = BufReader::new(child.stdout.take().unwrap());
    let mut tell = child.stdin.take().unwrap();
    let handles = next_word(&mut says);
    let [opened, unopened] = [0, 1].map(|i| from_text(handles.split(' ').nth(i).unwrap()));
    let mut event = null_mut();
    ok(cuIpcOpenEventHandle(&mut event, opened));
    ok(cuStreamWaitEvent(stream, event, 0));
    writeln!(tell).unwrap();
    assert_eq!(next_word(&mut says), "gone");
    assert_eq!(name(cuStreamWaitEvent(stream, event, 0)), "CUDA_ERROR_INVALID_HANDLE");
    assert_eq!(name(cuEventQuery(event)), "CUDA_ERROR_INVALID_HANDLE");
    ok(cuEventDestroy_v2(event));
    assert_eq!(name(cuIpcOpenEventHandle(&mut event, unopened)), "CUDA_ERROR_MAP_FAILED");
    // What another process destroys concerns nobody else.
    writeln!(tell).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn memory_outlives_the_process_that_made_it_for_those_who_hold_it() {
    device(0);
    let stream = stream();
    if is_child() {
        let (block, event) = (alloc(64), shared_event());
        ok(cuMemsetD8Async(block, 5, 64, stream));
        ok(cuStreamSynchronize(stream));
        // This record is never done: the process dies before.
        ok(cuLaunchHostFunc(stream, Some(sleep), 60_000 as *mut _));
        ok(cuEventRecord(event, stream));
        let (memory, order) = export(block, event);
        println!("ipc:{} {}", to_text(&memory), to_text(&order));
        std::io::stdout().flush().unwrap();
        loop {
            std::thread::park();
        }
    }
    let mut child = child("memory_outlives_the_process_that_made_it_for_those_who_hold_it", &[])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let handles = next_word(&mut BufReader::new(child.stdout.take().unwrap()));
    let (pointer, event) = import(&handles);
    assert_eq!(name(cuEventQuery(event)), "CUDA_ERROR_NOT_READY");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(download::<u8>(pointer, 64, stream), [5; 64]);
    // Its work is over, so that nobody waits for it for ever.
    ok(cuEventSynchronize(event));
    ok(cuIpcCloseMemHandle(pointer));
    let mut pointer = 0;
    let memory = from_text(handles.split_once(' ').unwrap().0);
    assert_eq!(name(cuIpcOpenMemHandle_v2(&mut pointer, memory, 1)), "CUDA_ERROR_MAP_FAILED");
}
