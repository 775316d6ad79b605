//! Tests of the caching allocator over a made-up device.

use super::fake::Fake;
use super::*;
use torchrs_error::Error;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn allocator(capacity: usize) -> CachingAllocator<Fake> {
    CachingAllocator::new(Fake::new(capacity))
}

#[test]
fn sizes_and_segments_follow_the_rules() {
    let a = allocator(1 << 40);
    let mut reserved = 0;
    for (bytes, size, segment) in [
        (0, 512, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB + 1, 12 * MIB, 12 * MIB),
    ] {
        // A stream of its own, so that nothing is shared.
        let piece = a.allocate(bytes, (reserved % 251) as u8).unwrap();
        assert_eq!((piece.size, piece.segment_size), (size, segment), "{bytes}");
        reserved += segment;
        assert_eq!(a.statistics().reserved.current, reserved);
    }
}

#[test]
fn the_smallest_fitting_chunk_is_taken_and_the_rest_stays() {
    let a = allocator(1 << 30);
    let pieces: Vec<_> = [4, 2, 4, 1, 4].map(|k| a.allocate(k * KIB, 0).unwrap()).into();
    let [_first, two, _third, one, _last] = <[Piece; 5]>::try_from(pieces).unwrap();
    let (at_two, at_one) = (two.address, one.address);
    a.free(two).unwrap();
    a.free(one).unwrap();
    assert_eq!(a.allocate(1000, 0).unwrap().address, at_one);
    assert_eq!(a.allocate(1536, 0).unwrap().address, at_two);
    assert_eq!(a.allocate(512, 0).unwrap().address, at_two + 1536);
    assert_eq!(a.statistics().segments.current, 1);
}

#[test]
fn neighbours_become_one_chunk_whatever_the_order_of_frees() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let a = allocator(1 << 30);
        let mut pieces: Vec<_> = (0..3).map(|_| a.allocate(KIB, 0).ok()).collect();
        for i in order {
            a.free(pieces[i].take().unwrap()).unwrap();
        }
        let snapshot = a.snapshot();
        assert_eq!(snapshot.len(), 1);
        assert_eq!(snapshot[0].chunks.len(), 1, "{order:?}: {}", snapshot[0]);
        assert_eq!(snapshot[0].chunks[0].size, 2 * MIB);
    }
}

#[test]
fn streams_do_not_share_chunks() {
    let a = allocator(1 << 30);
    let piece = a.allocate(KIB, 0).unwrap();
    let address = piece.address;
    a.free(piece).unwrap();
    assert_ne!(a.allocate(KIB, 1).unwrap().address, address);
    assert_eq!(a.allocate(KIB, 0).unwrap().address, address);
}

#[test]
fn memory_that_another_stream_used_waits_for_it_without_the_host_waiting() {
    let a = allocator(1 << 30);
    let piece = a.allocate(KIB, 0).unwrap();
    let address = piece.address;
    a.record_stream(&piece, 1);
    a.record_stream(&piece, 0); // its own: nothing to wait for
    a.free(piece).unwrap();
    let statistics = a.statistics();
    assert_eq!((statistics.allocated.current, statistics.active.current), (0, KIB));
    assert_eq!(a.snapshot()[0].chunks[0].state, ChunkState::Waiting);
    let other = a.allocate(KIB, 0).unwrap();
    assert_ne!(other.address, address);
    a.source().finish(1);
    assert_eq!(a.allocate(KIB, 0).unwrap().address, address);
}

#[test]
fn cached_memory_is_given_back_before_a_request_fails() {
    let a = allocator(64 * MIB);
    let pieces: Vec<_> = (0..3).map(|_| a.allocate(20 * MIB, 0).unwrap()).collect();
    let waiting = a.allocate(KIB, 0).unwrap();
    a.record_stream(&waiting, 1);
    a.free(waiting).unwrap();
    for piece in pieces {
        a.free(piece).unwrap();
    }
    let piece = a.allocate(60 * MIB, 0).unwrap();
    let statistics = a.statistics();
    assert_eq!((statistics.retries, statistics.out_of_memory), (1, 0));
    assert_eq!(a.source().releases(), 4);
    a.free(piece).unwrap();
}

#[test]
fn out_of_memory_says_where_the_memory_is_and_is_survived() {
    let a = allocator(64 * MIB);
    let held = a.allocate(40 * MIB, 0).unwrap();
    let error = a.allocate(30 * MIB, 0).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    let text = error.to_string();
    for part in [
        "fake:0 has no room for 30.00 MiB",
        "Of its 64.00 MiB, 24.00 MiB are free",
        "40.00 MiB allocated to tensors",
        "0 bytes reserved but unallocated",
        "smaller batch",
    ] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    assert_eq!(a.statistics().out_of_memory, 1);
    a.free(held).unwrap();
    a.free(a.allocate(30 * MIB, 0).unwrap()).unwrap();
    assert!(a.allocate(usize::MAX, 0).is_err());
    assert!(a.allocate(usize::MAX - 4096, 0).is_err());
}

#[test]
fn a_fraction_of_the_memory_limits_what_is_reserved() {
    let a = allocator(64 * MIB);
    a.set_fraction(0.5).unwrap();
    let piece = a.allocate(30 * MIB, 0).unwrap();
    let error = a.allocate(10 * MIB, 0).unwrap_err().to_string();
    assert!(error.contains("may have 32.00 MiB"), "{error}");
    a.set_fraction(1.0).unwrap();
    a.free(a.allocate(10 * MIB, 0).unwrap()).unwrap();
    a.free(piece).unwrap();
    assert!(matches!(a.set_fraction(1.5), Err(Error::Argument { .. })));
}

#[test]
fn peaks_begin_anew() {
    let a = allocator(1 << 30);
    a.free(a.allocate(4 * MIB, 0).unwrap()).unwrap();
    assert_eq!(a.statistics().allocated.peak, 4 * MIB);
    a.reset_peak();
    let statistics = a.statistics();
    assert_eq!((statistics.allocated.peak, statistics.reserved.peak), (0, 20 * MIB));
    assert_eq!(statistics.allocated.added, 4 * MIB as u64);
}

#[test]
fn emptying_the_cache_leaves_what_is_in_use() {
    let a = allocator(1 << 30);
    let (x, y) = (a.allocate(KIB, 0).unwrap(), a.allocate(KIB, 0).unwrap());
    let large = a.allocate(30 * MIB, 0).unwrap();
    a.free(large).unwrap();
    a.free(x).unwrap();
    assert_eq!(a.empty_cache().unwrap(), 30 * MIB);
    assert_eq!(a.statistics().inactive_split, 2 * MIB - KIB);
    a.free(y).unwrap();
    assert_eq!(a.empty_cache().unwrap(), 2 * MIB);
    assert_eq!(a.source().segments(), []);
}

#[test]
fn a_capture_has_memory_of_its_own_and_touches_nothing_else() {
    let a = allocator(64 * MIB);
    // Whole free segments, and a chunk that waits for an event.
    a.free(a.allocate(20 * MIB, 0).unwrap()).unwrap();
    let waiting = a.allocate(KIB, 0).unwrap();
    a.record_stream(&waiting, 1);
    a.free(waiting).unwrap();

    let pool = a.create_pool();
    a.begin_capture(pool).unwrap();
    a.source().capture(Some(0));
    assert!(a.begin_capture(pool).is_err());
    let captured = a.allocate(20 * MIB, 0).unwrap();
    let during = a.allocate(KIB, 1).unwrap();
    a.record_stream(&during, 0);
    a.free(during).unwrap(); // the event is put off
    assert_eq!(a.empty_cache().unwrap(), 0);
    assert!(matches!(a.allocate(30 * MIB, 0), Err(Error::OutOfMemory(_))));
    assert_eq!((a.source().forbidden(), a.source().releases()), (0, 0));
    a.source().capture(None);
    a.end_capture().unwrap();

    // The graph keeps its memory though nothing is allocated in it.
    let address = captured.address;
    a.free(captured).unwrap();
    assert_ne!(a.allocate(20 * MIB, 0).unwrap().address, address);
    a.empty_cache().unwrap();
    assert!(a.source().segments().iter().any(|segment| segment.contains(&address)));
    a.release_pool(pool);
    a.empty_cache().unwrap();
    assert!(!a.source().segments().iter().any(|segment| segment.contains(&address)));
    assert!(a.retain_pool(pool).is_err());
}

#[test]
fn a_piece_knows_its_segment() {
    let a = allocator(1 << 30);
    let (x, y) = (a.allocate(KIB, 0).unwrap(), a.allocate(KIB, 0).unwrap());
    assert_eq!((x.base, x.offset()), (x.address, 0));
    assert_eq!((y.base, y.offset(), y.segment_size), (x.base, KIB, 2 * MIB));
}

#[test]
fn a_trace_is_written_read_and_replayed() {
    let a = allocator(1 << 30);
    let before = a.allocate(KIB, 0).unwrap();
    a.start_trace();
    let x = a.allocate(KIB, 3).unwrap();
    let y = a.allocate(3 * MIB, 7).unwrap();
    a.free(x).unwrap();
    a.free(before).unwrap();
    let z = a.allocate(100, 3).unwrap();
    a.free(y).unwrap();
    let trace = a.take_trace();
    a.free(z).unwrap();
    assert_eq!(trace.to_text(), "+1024\n+3145728@1\n-0\n+100\n-1\n");
    assert_eq!(Trace::from_text(&trace.to_text()).unwrap(), trace);
    let report = trace.replay(&allocator(1 << 30), |stream| stream as u8).unwrap();
    assert_eq!((report.requested, report.reserved), (3 * MIB + KIB, 22 * MIB));
    assert_eq!(report.segments, 2);
    let error = Trace::from_text("+1\n*2\n").unwrap_err().to_string();
    assert_eq!(error, "allocation trace, line 2: `*2`");
}

/// Requests of real training, and the part of the reserved memory that may stay unused.
#[test]
fn recorded_training_fragments_little() {
    for (name, text, most) in [
        ("images", include_str!("traces/images.txt"), 0.27),
        ("texts", include_str!("traces/texts.txt"), 0.08),
    ] {
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let trace = Trace::from_text(&lines.join("\n")).unwrap();
        let report = trace.replay(&allocator(1 << 40), |stream| stream as u8).unwrap();
        println!("{name}: {report:?}");
        assert!(report.fragmentation < most, "{name}: {report:?}");
    }
}

#[test]
fn without_a_cache_requests_are_the_sources_own() {
    let a = CachingAllocator::uncached(Fake::new(MIB));
    let (x, y) = (a.allocate(20, 0).unwrap(), a.allocate(0, 0).unwrap());
    assert_eq!([x.size, x.segment_size, x.offset(), y.size], [20, 20, 0, 1]);
    a.record_stream(&x, 1);
    a.free(x).unwrap();
    assert_eq!((a.source().segments().len(), a.statistics().reserved.current), (1, 1));
    a.free(y).unwrap();
    assert_eq!((a.source().releases(), a.statistics().reserved.current), (2, 0));

    // A graph's memory stays, and only requests of the same size share it.
    let pool = a.create_pool();
    a.begin_capture(pool).unwrap();
    a.source().capture(Some(0));
    let piece = a.allocate(100, 0).unwrap();
    let address = piece.address;
    a.free(piece).unwrap();
    assert_ne!(a.allocate(99, 0).unwrap().address, address);
    assert_eq!(a.allocate(100, 0).unwrap().address, address);
    a.source().capture(None);
    a.end_capture().unwrap();
    assert_eq!(a.source().forbidden(), 0);
}
