//! Notes reach all other places in their order, and nobody waits for them.

use std::time::{Duration, Instant};

use torchrs_links::{Heard, Notes, Options};

use crate::{call, group};

/// What one place hears, by place, until it is `enough`.
fn hear(notes: &mut Notes, enough: impl Fn(&[Vec<Heard>]) -> bool) -> Vec<Vec<Heard>> {
    let mut heard = vec![Vec::new(); 17];
    let start = Instant::now();
    while !enough(&heard) {
        notes.take(|place, one| heard[place].push(one));
        assert!(start.elapsed() < Duration::from_secs(30), "{heard:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    heard
}

#[test]
fn notes_come_in_order_and_wait_for_nobody() {
    const COUNT: u64 = 5000;
    let all = group(3, &Options::default(), |links| {
        let place = links.place();
        let mut notes = Notes::new(links);
        let fingerprint = [place as u8; 7];
        if place == 0 {
            // Far more than the connections hold, while nobody has to read.
            (0..COUNT).for_each(|number| notes.post([(number, &fingerprint[..])]));
            // What is left goes as it looks, until both have said that they have all.
            return hear(&mut notes, |heard| !heard[1].is_empty() && !heard[2].is_empty());
        }
        let all = hear(&mut notes, |heard| heard[0].len() == COUNT as usize);
        notes.post([(7, &fingerprint[..])]);
        let rest = hear(&mut notes, |heard| heard[0].contains(&Heard::Left));
        assert_eq!(rest[0], [Heard::Left]);
        all
    });
    let note = |number, place: u8| Heard::Note { number, fingerprint: vec![place; 7] };
    let expected: Vec<Heard> = (0..COUNT).map(|number| note(number, 0)).collect();
    assert!(all[1..].iter().all(|heard| heard[0] == expected));
    assert_eq!([&all[0][1][0], &all[0][2][0]], [&note(7, 1), &note(7, 2)]);
}

/// A place that waits long in a barrier says so. Its word may come after the barrier, and is no note.
#[test]
fn waiting_in_a_barrier_before_is_no_note() {
    for late in 0..3 {
        let all = group(3, &Options::default(), |mut links| {
            let place = links.place();
            if place == late {
                std::thread::sleep(Duration::from_millis(300));
            }
            links.barrier(&call(0)).unwrap();
            let mut notes = Notes::new(links);
            notes.post([(5, &[place as u8; 3][..])]);
            let others = (0..3).filter(|&other| other != place);
            hear(&mut notes, |heard| others.clone().all(|other| !heard[other].is_empty()))
        });
        for (place, heard) in all.iter().enumerate() {
            for other in (0..3).filter(|&other| other != place) {
                let note = Heard::Note { number: 5, fingerprint: vec![other as u8; 3] };
                assert_eq!(heard[other].first(), Some(&note), "{place} hears {other}");
            }
        }
    }
}

/// Of many places each hears the one before it, and no other.
#[test]
fn many_places_tell_the_next_one() {
    const PLACES: usize = 17;
    let all = group(PLACES, &Options::default(), |links| {
        let place = links.place();
        let mut notes = Notes::new(links);
        notes.post([(place as u64, &[place as u8; 3][..])]);
        let heard = hear(&mut notes, |heard| heard.iter().any(|some| !some.is_empty()));
        // Nobody leaves before all have looked.
        std::thread::sleep(Duration::from_millis(50));
        let hears: Vec<bool> = (0..PLACES).map(|place| notes.hears(place)).collect();
        (place, heard, hears)
    });
    for (place, heard, hears) in all {
        let before = (place + PLACES - 1) % PLACES;
        let note = Heard::Note { number: before as u64, fingerprint: vec![before as u8; 3] };
        for other in 0..PLACES {
            assert_eq!(hears[other], other == before, "{place} hears {other}");
            assert_eq!(heard[other].first(), (other == before).then_some(&note));
        }
    }
}

#[test]
fn who_gives_up_says_why() {
    let all = group(2, &Options::default(), |mut links| {
        if links.place() == 1 {
            links.give_up("no data left");
            return Vec::new();
        }
        hear(&mut Notes::new(links), |heard| !heard[1].is_empty())
    });
    assert_eq!(all[0][1], [Heard::Gone("no data left".to_owned())]);
}
