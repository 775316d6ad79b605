//! Devices that cannot reach each other's memory.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use torchrs::cuda::ipc::{self, MemoryHandle};
use torchrs::cuda::{self, Block, Stream, copy, peer};

use crate::support::{command, download, plays, upload};

const CHILD: &str = "device::peers::a_process_without_access";
const NO_PEER: [(&str, &str); 1] = [("TORCHRS_SIMULATED_FAULT", "no-peer")];

simulated! {
    fn copies_go_through_the_host_without_peer_access() ["TORCHRS_SIMULATED_FAULT" = "no-peer"] {
        let (here, there) = (Stream::current(0)?, Stream::current(1)?);
        assert!(!peer::can_access(0, 1)? && !peer::can_access(1, 0)? && peer::can_access(1, 1)?);
        let values: Vec<f32> = (0..300_000).map(|i| i as f32).collect();
        let (source, target) = (upload(&values, here)?, Block::on(4 * values.len(), there)?);
        let back = Block::on(source.len(), here)?;
        let syncs = cuda::synchronisations();
        there.wait_stream(here)?;
        // SAFETY: blocks of the same length; each stream waits for the one before it.
        unsafe {
            copy::between_devices((target.as_ptr(), 1), (source.as_ptr(), 0), source.len(), there)?;
            here.wait_stream(there)?;
            copy::between_devices((back.as_ptr(), 0), (target.as_ptr(), 1), source.len(), here)?;
        }
        assert_eq!(cuda::synchronisations(), syncs);
        assert_eq!(download(back.as_ptr(), values.len(), here)?, values);
        assert_eq!(download(target.as_ptr(), values.len(), there)?, values);
        let error = peer::enable(1, 0).unwrap_err().to_string();
        assert!(error.contains("cuda:1 cannot use the memory of cuda:0 directly"), "{error}");
    }

    fn memory_is_opened_on_devices_with_access_only() ["TORCHRS_SIMULATED_QUIET" = "1"] {
        let block = upload(&[1.0, 2.0], Stream::current(0)?)?;
        block.stream().synchronize()?;
        let exported = ipc::export(&block)?.to_bytes();
        for (variables, expected) in [(&NO_PEER[..], "refused"), (&[], "read [1.0, 2.0]")] {
            let mut child = command(CHILD);
            child.envs(variables.iter().copied());
            let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            child.stdin.take().unwrap().write_all(&exported).unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let told: Vec<_> = lines.map(|line| line.unwrap()).collect();
            assert!(child.wait().unwrap().success(), "{told:#?}");
            assert!(told.iter().any(|line| line.ends_with(expected)), "{told:#?}");
        }
    }
}

/// The child of `memory_is_opened_on_devices_with_access_only`.
#[test]
#[ignore = "a part of another test"]
fn a_process_without_access() {
    if !plays(CHILD) {
        return;
    }
    let mut bytes = [0; MemoryHandle::SIZE];
    std::io::stdin().read_exact(&mut bytes).unwrap();
    let handle = MemoryHandle::from_bytes(&bytes);
    match ipc::open_on(&handle, 1) {
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("cuda:1 cannot use the memory of cuda:0 directly"), "{text}");
            // The device that it is on can.
            ipc::open(&handle).unwrap();
            println!("refused");
        }
        Ok(open) => {
            assert_eq!(open.device(), 1);
            let stream = Stream::current(1).unwrap();
            println!("read {:?}", download(open.as_ptr(), 2, stream).unwrap());
        }
    }
}
