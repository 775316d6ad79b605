//! A board between threads, which stand for processes here.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::slot::{SLOT_WORDS, word};
use super::*;

#[test]
fn what_a_worker_notes_is_read() {
    let board = Board::new(3).unwrap();
    assert_eq!(board.read(2), None);
    let slot = board.slot(2);
    slot.attach(7);
    let empty = board.read(2).unwrap();
    let logged = empty.logged.as_ref().unwrap();
    assert_eq!((empty.attached_at, empty.doing, logged.saved), (7, None, None));
    slot.begin(Doing::AllReduce, 5_000_000);
    assert_eq!(board.read(2).unwrap().doing, Some((Doing::AllReduce, Duration::from_millis(5))));
    slot.done(TimeOf::Communication, 30);
    slot.done(TimeOf::Communication, 12);
    slot.waited_for_ranks(9);
    slot.count_step();
    slot.count_samples(0, 1.0, f64::INFINITY, f64::NAN);
    let read = board.read(2).unwrap();
    assert_eq!((read.flops_per_sample, read.peak_flops), (None, None), "no numbers to count by");
    slot.count_samples(32, 0.0, 1e9, 2e12);
    slot.set_host_memory(500);
    slot.set_host_memory(400);
    slot.log(3, &[("loss", 0.5), ("lr", 0.1)], 11);
    slot.log(
        4,
        &[("loss", f64::NAN), ("a name that is longer than there is room for, é", 1.0)],
        12,
    );
    slot.saved(4, 99, 13);
    slot.set_device(Some((1, "0000:17:00.0")), "NVIDIA H200");
    let read = board.read(2).unwrap();
    assert_eq!((read.doing, read.times, read.waited, read.steps), (None, [0, 42, 0, 0], 9, 1));
    assert_eq!(
        (read.samples, read.tokens_per_sample, read.flops_per_sample),
        (32, None, Some(1e9))
    );
    assert_eq!((read.host_memory, read.device_memory), ((400, 500), (0, 0)));
    assert!(read.scalar("loss").unwrap().value.is_nan());
    assert_eq!(read.scalar("lr").map(|lr| (lr.value, lr.step)), Some((0.1, 3)));
    let logged = read.logged.unwrap();
    let cut = &logged.scalars[2].name;
    assert!(cut.starts_with("a name that is longer than ther~") && cut.len() == NAME, "{cut}");
    assert_eq!((logged.step, logged.at), (4, 12));
    assert_eq!(logged.saved, Some(SavedReading { step: 4, at: 13, took: 99 }));
    let device = (logged.device.gpu, &*logged.device.name, &*logged.device.bus);
    assert_eq!(device, (Some(1), "NVIDIA H200", "0000:17:00.0"));
    // The others' slots are theirs.
    assert_eq!((board.read(0), board.read(1)), (None, None));
}

#[test]
fn names_that_are_cut_stay_apart() {
    let board = Board::new(1).unwrap();
    let slot = board.slot(0);
    slot.attach(1);
    let long = "validation/each/of/the/many/classes/é/";
    let names =
        [format!("{long}f1"), format!("{long}f2"), "a\nb".into(), "a\tb".into(), "a?b".into()];
    let scalars: Vec<(&str, f64)> =
        names.iter().zip(1..).map(|(name, n)| (&**name, f64::from(n))).collect();
    slot.log(1, &scalars, 1);
    slot.log(2, &scalars, 1);
    let logged = board.read(0).unwrap().logged.unwrap();
    assert_eq!(
        logged.scalars.iter().map(|s| s.value).collect::<Vec<_>>(),
        [1.0, 2.0, 3.0, 4.0, 5.0]
    );
    let mut shown: Vec<&str> = logged.scalars.iter().map(|s| &*s.name).collect();
    assert!(
        shown.iter().all(|name| name.len() <= NAME && !name.contains(char::is_control)),
        "{shown:?}"
    );
    shown.sort_unstable();
    shown.dedup();
    assert_eq!(shown.len(), names.len());
}

#[test]
fn names_beyond_the_room_are_left_out() {
    let board = Board::new(1).unwrap();
    let slot = board.slot(0);
    slot.attach(1);
    let names: Vec<String> = (0..SCALARS + 5).map(|i| format!("n{i}")).collect();
    for (i, name) in names.iter().enumerate() {
        slot.log(i as u64, &[(name, i as f64)], 1);
    }
    slot.log(99, &[("n0", -1.0)], 1);
    let logged = board.read(0).unwrap().logged.unwrap();
    assert_eq!(logged.scalars.len(), SCALARS);
    assert_eq!((logged.scalars[0].value, logged.scalars[31].value), (-1.0, 31.0));
}

/// Each write has the same number everywhere; a reader that found two would have read a torn one.
#[test]
fn no_reader_sees_half_a_write() {
    let board = Board::new(1).unwrap();
    let slot = board.slot(0);
    slot.attach(1);
    let stop = AtomicBool::new(false);
    let names: Vec<String> = (0..SCALARS).map(|i| format!("scalar {i}")).collect();
    let (writes, reads) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut step = 0;
            while !stop.load(Relaxed) {
                step += 1;
                let scalars: Vec<(&str, f64)> =
                    names.iter().map(|name| (&**name, step as f64)).collect();
                slot.log(step, &scalars, step);
                // Whoever reads gets a chance.
                std::thread::sleep(Duration::from_micros(20));
            }
            step
        });
        let until = Instant::now() + Duration::from_millis(300);
        let mut reads = 0u64;
        while Instant::now() < until {
            let Some(logged) = board.read(0).unwrap().logged else { continue };
            let step = logged.step;
            assert_eq!(logged.at, step);
            let whole = logged.scalars.iter().all(|s| s.step == step && s.value == step as f64);
            assert!(whole, "step {step}: {:?}", logged.scalars);
            reads += 1;
        }
        stop.store(true, Relaxed);
        (writer.join().unwrap(), reads)
    });
    assert!(writes > 10 && reads > 10, "{writes} writes, {reads} reads");
}

/// A worker that was killed while it wrote, and one that writes garbage.
#[test]
fn whatever_stands_there_is_read() {
    let board = Board::new(1).unwrap();
    let slot = board.slot(0);
    slot.attach(1);
    slot.words[word::SEQUENCE].store(5, Relaxed);
    assert_eq!(board.read(0).unwrap().logged, None);
    // The next one that writes goes on.
    slot.log(1, &[("loss", 1.0)], 1);
    assert_eq!(board.read(0).unwrap().logged.unwrap().step, 1);
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..200 {
        for place in 1..SLOT_WORDS {
            noise = noise.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            slot.words[place].store(noise, Relaxed);
        }
        slot.words[word::SEQUENCE].store(noise << 1, Relaxed);
        let logged = board.read(0).unwrap().logged.unwrap();
        assert!(logged.scalars.len() <= SCALARS);
        let bounded = |name: &str| name.chars().count() <= NAME && !name.contains(char::is_control);
        assert!(logged.scalars.iter().all(|scalar| bounded(&scalar.name)));
    }
}
