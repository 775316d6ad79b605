//! Streams and events: order, waits, the current one.

use std::thread;
use std::time::Duration;

use torchrs::cuda::stream::POOL_SIZE;
use torchrs::cuda::{self, Event, EventOptions, Priority, Stream, StreamGuard, device};

use crate::support::hold;

simulated! {
    fn a_pool_hands_its_streams_out_in_turn() {
        let streams: Vec<_> = (0..POOL_SIZE).map(|_| Stream::new(0, Priority::Normal).unwrap()).collect();
        for (i, stream) in streams.iter().enumerate() {
            assert!(!streams[..i].contains(stream) && !stream.as_raw().is_null());
        }
        assert_eq!(Stream::new(0, Priority::Normal)?, streams[0]);
        let high = Stream::new(0, Priority::High)?;
        assert_eq!(high.priority(), Priority::High);
        assert!(!streams.contains(&high) && !streams.contains(&Stream::default_of(0)?));
        assert!(Stream::new(99, Priority::Normal).is_err() && Stream::default_of(99).is_err());
    }

    fn the_current_stream_is_the_threads_own() {
        let last = cuda::device_count() - 1;
        let (default, other) = (Stream::default_of(last)?, Stream::new(last, Priority::Normal)?);
        assert_eq!(Stream::current(last)?, default);
        {
            let _guard = StreamGuard::new(other)?;
            assert_eq!((Stream::current(last)?, device::current()), (other, last));
            let there = thread::spawn(move || Stream::current(last)).join().unwrap()?;
            assert_eq!(there, default);
            {
                let _inner = StreamGuard::new(default)?;
                assert_eq!(Stream::current(last)?, default);
            }
            assert_eq!(Stream::current(last)?, other);
        }
        assert_eq!((Stream::current(last)?, device::current()), (default, 0));
    }

    fn work_is_late_and_can_be_asked_about_and_waited_for() {
        let stream = Stream::new(0, Priority::Normal)?;
        let held = hold(stream)?;
        let event = stream.record_event()?;
        assert!(!stream.query()? && !event.query()?);
        let before = cuda::synchronisations();
        drop(held);
        event.synchronize()?;
        assert!(event.query()?);
        stream.synchronize()?;
        assert!(stream.query()?);
        assert_eq!(cuda::synchronisations() - before, 2);
    }

    fn a_stream_waits_for_another_ones_event_and_not_for_the_rest() {
        let (first, second) = (Stream::new(0, Priority::Normal)?, Stream::new(0, Priority::Normal)?);
        let (held, also_held) = (hold(first)?, ());
        let event = Event::new(0, EventOptions::default())?;
        event.record(first)?;
        second.wait_event(&event)?;
        let rest = hold(first)?;
        thread::sleep(Duration::from_millis(20));
        assert!(!second.query()?);
        drop(held);
        second.synchronize()?;
        assert!(!first.query()?);
        drop((rest, also_held));
        first.synchronize()?;
        // Across devices, too.
        let elsewhere = Stream::default_of(cuda::device_count() - 1)?;
        let held = hold(first)?;
        elsewhere.wait_stream(first)?;
        assert!(!elsewhere.query()? || elsewhere == first);
        drop(held);
        elsewhere.synchronize()?;
    }

    fn an_event_that_was_never_recorded_holds_nobody() {
        let stream = Stream::new(0, Priority::Normal)?;
        let held = hold(stream)?;
        drop(stream.record_event()?); // is used again, though its record has not been reached
        let event = Event::new(0, EventOptions::default())?;
        assert!(event.query()?);
        event.synchronize()?;
        Stream::default_of(0)?.wait_event(&event)?;
        Stream::default_of(0)?.synchronize()?;
        drop(held);
        stream.synchronize()?;
    }

    fn events_tell_times() {
        let stream = Stream::default_of(0)?;
        let timing = EventOptions { timing: true, ..EventOptions::default() };
        let (from, to) = (Event::new(0, timing)?, Event::new(0, timing)?);
        from.record(stream)?;
        stream.call_host(|| thread::sleep(Duration::from_millis(30)))?;
        to.record(stream)?;
        let early = from.elapsed_ms(&to).unwrap_err().to_string();
        assert!(early.contains("have not been reached"), "{early}");
        to.synchronize()?;
        let ms = from.elapsed_ms(&to)?;
        assert!((25.0..3000.0).contains(&ms), "{ms}");
        assert!(from.elapsed_ms(&Event::new(0, EventOptions::default())?).is_err());
        assert!(Event::new(0, EventOptions { timing: true, interprocess: true, blocking: false }).is_err());
        assert!(Event::new(99, timing).is_err());
    }

    fn an_event_is_of_one_device() {
        if cuda::device_count() > 1 {
            let event = Event::new(0, EventOptions::default())?;
            let error = event.record(Stream::default_of(1)?).unwrap_err().to_string();
            assert!(error.contains("of cuda:0 cannot be recorded on a stream of cuda:1"), "{error}");
        }
    }

    fn a_panic_on_the_drivers_thread_stays_there() {
        let stream = Stream::default_of(0)?;
        stream.call_host(|| panic!("as expected"))?;
        stream.synchronize()?;
    }
}
