//! Graphs: capture, replays, memory of their own.

use torchrs::cuda::graph::{CaptureMode, CaptureOptions};
use torchrs::cuda::{self, Block, Graph, Priority, Stream, memory};
use torchrs::{Error, catch};

use super::kernels::{LINE, apply};
use crate::support::{download, upload};

simulated! {
    fn a_graph_does_its_work_at_every_replay() {
        let stream = Stream::new(0, Priority::Normal)?;
        let x = upload(&[1.0, 2.0], stream)?;
        LINE.on(0)?;
        let (graph, ()) = Graph::capture(stream, CaptureOptions::default(), || {
            assert!(stream.is_capturing()? && Stream::current(0)? == stream);
            apply(&x, 2.0, 1.0, stream)?;
            apply(&x, 1.0, 1.0, stream)
        })?;
        assert!(!stream.is_capturing()?);
        assert_eq!(download(x.as_ptr(), 2, stream)?, [1.0, 2.0], "nothing was done yet");
        let before = cuda::synchronisations();
        graph.replay(stream)?;
        graph.replay(stream)?;
        assert_eq!(cuda::synchronisations() - before, 0);
        assert_eq!(download(x.as_ptr(), 2, stream)?, [10.0, 14.0]);
    }

    fn a_graph_has_memory_of_its_own() {
        let stream = Stream::new(0, Priority::Normal)?;
        let x = upload(&[3.0; 1000], stream)?;
        LINE.on(0)?;
        stream.synchronize()?;
        let reserved = memory::memory_reserved(0)?;
        let (graph, result) = Graph::capture(stream, CaptureOptions::default(), || {
            // Temporaries, one after another at the same address.
            let (a, first) = { let t = Block::on(4000, stream)?; (t.as_ptr(), t) };
            // SAFETY: blocks of that length.
            unsafe { cuda::copy::device_to_device(a, x.as_ptr(), 4000, stream) }?;
            apply(&first, 10.0, 0.0, stream)?;
            drop(first);
            let result = Block::on(4000, stream)?;
            assert_eq!(result.as_ptr(), a);
            apply(&result, 1.0, 4.0, stream)?;
            Ok(result)
        })?;
        assert!(memory::memory_reserved(0)? > reserved);
        graph.replay(stream)?;
        // What others allocate and empty meanwhile does not touch it.
        let others = Block::on(4000, stream)?;
        assert_ne!(others.as_ptr(), result.as_ptr());
        apply(&others, 0.0, 0.0, stream)?;
        memory::empty_cache()?;
        assert_eq!(download(result.as_ptr(), 1000, stream)?, [34.0; 1000]);
        // A second graph in the same pool uses what the first one's temporaries left.
        let options = CaptureOptions { pool: Some(graph.pool()), ..CaptureOptions::default() };
        let (second, ()) = Graph::capture(stream, options, || apply(&x, 1.0, 1.0, stream))?;
        second.replay(stream)?;
        assert_eq!(download(x.as_ptr(), 1, stream)?, [4.0]);
        assert_eq!(second.device(), 0);
        drop((graph, second, result));
        memory::empty_cache()?;
        assert_eq!(memory::memory_reserved(0)?, reserved);
    }

    fn a_graph_and_its_pool_are_of_one_device() {
        let here = Graph::capture(Stream::new(0, Priority::Normal)?, CaptureOptions::default(), || Ok(()))?.0;
        if cuda::device_count() < 2 {
            return Ok(());
        }
        let there = Stream::new(1, Priority::Normal)?;
        let _own = Graph::capture(there, CaptureOptions::default(), || Ok(()))?;
        let options = CaptureOptions { pool: Some(here.pool()), ..CaptureOptions::default() };
        assert!(Graph::capture(there, options, || Ok(())).is_err());
        let error = here.replay(there).unwrap_err().to_string();
        assert!(error.contains("the graph is of cuda:0 and the stream of cuda:1"), "{error}");
    }

    fn other_streams_can_take_part() {
        let (stream, side) = (Stream::new(0, Priority::Normal)?, Stream::new(0, Priority::Normal)?);
        let (x, y) = (upload(&[1.0], stream)?, upload(&[1.0], stream)?);
        LINE.on(0)?;
        stream.synchronize()?;
        let (graph, ()) = Graph::capture(stream, CaptureOptions::default(), || {
            side.wait_stream(stream)?;
            assert!(side.is_capturing()?);
            let temporary = Block::on(4, side)?;
            apply(&temporary, 0.0, 0.0, side)?;
            apply(&y, 1.0, 5.0, side)?;
            apply(&x, 1.0, 3.0, stream)?;
            temporary.record_stream(stream);
            stream.wait_stream(side)
        })?;
        graph.replay(stream)?;
        graph.replay(stream)?;
        assert_eq!(download(x.as_ptr(), 1, stream)?, [7.0]);
        assert_eq!(download(y.as_ptr(), 1, stream)?, [11.0]);
    }

    fn a_capture_that_fails_or_panics_leaves_the_stream_usable() {
        let stream = Stream::new(0, Priority::Normal)?;
        let x = upload(&[1.0], stream)?;
        LINE.on(0)?;
        let failed = Graph::capture(stream, CaptureOptions::default(), || {
            apply(&x, 2.0, 0.0, stream)?;
            Err::<(), _>(Error::Other("on purpose".into()))
        });
        assert_eq!(failed.unwrap_err().to_string(), "on purpose");
        assert!(catch(|| Graph::capture::<()>(stream, CaptureOptions::default(), || panic!("on purpose"))).is_err());
        assert!(!stream.is_capturing()?);
        apply(&x, 3.0, 0.0, stream)?;
        assert_eq!(download(x.as_ptr(), 1, stream)?, [3.0]);
        let nested = Graph::capture(stream, CaptureOptions { mode: CaptureMode::Relaxed, pool: None }, || {
            apply(&x, 1.0, 1.0, stream)?;
            assert!(stream.call_host(|| ()).is_err());
            let other = Stream::new(0, Priority::Normal)?;
            let error = Graph::capture(other, CaptureOptions::default(), || Ok(())).unwrap_err();
            assert!(error.to_string().contains("another capture is under way"), "{error}");
            Ok(())
        });
        nested?.0.replay(stream)?;
        assert_eq!(download(x.as_ptr(), 1, stream)?, [4.0]);
    }
}
