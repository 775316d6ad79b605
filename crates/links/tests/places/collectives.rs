//! Each collective beside a model of it, which follows the documented order to the letter.

use proptest::prelude::*;
use torchrs_links::{Encryption, Links, Options, Receive, Send};

use crate::{call, group, group_at};

/// Neither commutative nor associative: another order is another result.
fn mix(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len());
    for (a, b) in into.iter_mut().zip(from) {
        *a = a.wrapping_mul(3).wrapping_add(*b);
    }
}

/// What a place has before a call.
fn given(place: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + place * 31 + i / 251) as u8).collect()
}

fn folded(buffers: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    buffers
        .into_iter()
        .reduce(|mut a, b| {
            mix(&mut a, &b);
            a
        })
        .unwrap()
}

/// Each folds what comes into its own.
fn passed_on(buffers: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    buffers
        .into_iter()
        .reduce(|a, mut b| {
            mix(&mut b, &a);
            b
        })
        .unwrap()
}

fn ends(lengths: &[usize]) -> Vec<std::ops::Range<usize>> {
    let mut end = 0;
    lengths
        .iter()
        .map(|length| {
            end += length;
            end - length..end
        })
        .collect()
}

/// Chunk c goes round from place c on.
fn ring(n: usize, len: usize, chunks: &[std::ops::Range<usize>]) -> Vec<u8> {
    let all: Vec<_> = (0..n).map(|place| given(place, len)).collect();
    let chunk = |c: usize| passed_on((0..n).map(|i| all[(c + i) % n][chunks[c].clone()].to_vec()));
    (0..chunks.len()).flat_map(chunk).collect()
}

/// Chunks of 512 KiB as long as there are n of them, and n of what is left. The next n begin at the first place again.
fn rounds(n: usize, len: usize) -> Vec<std::ops::Range<usize>> {
    const CHUNK: usize = 512 << 10;
    let whole = len / (n * CHUNK) * n;
    let start = whole * CHUNK;
    let each = (len - start).div_ceil(n).next_multiple_of(64);
    let of_rest = |i: usize| (start + i * each).min(len)..(start + (i + 1) * each).min(len);
    (0..whole).map(|i| i * CHUNK..(i + 1) * CHUNK).chain((0..n).map(of_rest)).collect()
}

fn options(direct: usize, streams: usize, encryption: Encryption) -> Options {
    let mut options = Options::default();
    (options.direct, options.streams, options.encryption) = (direct, streams, encryption);
    options
}

/// Uneven lengths, some of them zero, that all places know.
fn lengths(n: usize, len: usize) -> Vec<usize> {
    (0..n).map(|i| if i == 1 { 0 } else { len * (i + 1) / n + i % 2 }).collect()
}

fn check_all(links: &mut Links, len: usize, is_direct: bool) {
    let (n, own) = (links.places(), links.place());
    let mut number = len as u64 * 100;
    let mut next = || {
        number += 1;
        call(number)
    };
    let what = format!("{len} bytes, place {own} of {n}, direct {is_direct}");

    let mut data = given(own, len);
    links.all_reduce(&next(), &mut data, &mix).unwrap();
    let direct = || folded((0..n).map(|place| given(place, len)));
    let expected = if is_direct { direct() } else { ring(n, len, &rounds(n, len)) };
    assert!(data == expected, "all_reduce of {what}");

    let lengths = lengths(n, len);
    let (parts, total) = (ends(&lengths), lengths.iter().sum());
    let mut data = given(own, total);
    links.reduce_scatter(&next(), &mut data, &lengths, &mix).unwrap();
    let expected = if is_direct {
        folded((0..n).map(|place| given(place, total)))
    } else {
        ring(n, total, &parts)
    };
    // In the ring of a reduce-scatter chunk c begins right of its place and ends at it.
    let chunk =
        |c: usize| passed_on((1..=n).map(|i| given((c + i) % n, total)[parts[c].clone()].to_vec()));
    let mine = if is_direct { expected[parts[own].clone()].to_vec() } else { chunk(own) };
    assert!(data[parts[own].clone()] == mine, "reduce_scatter of {what}");

    let mut data = vec![0; total];
    data[parts[own].clone()].copy_from_slice(&given(own, lengths[own]));
    links.all_gather(&next(), &mut data, &lengths).unwrap();
    let gathered: Vec<u8> = (0..n).flat_map(|place| given(place, lengths[place])).collect();
    assert!(data == gathered, "all_gather of {what}");

    for root in 0..n {
        let mut data = given(own, len);
        links.broadcast(&next(), &mut data, root).unwrap();
        assert!(data == given(root, len), "broadcast from {root} of {what}");

        let mut data = given(own, len);
        links.reduce(&next(), &mut data, root, &mix).unwrap();
        let chain = || passed_on((1..=n).map(|i| given((root + i) % n, len)));
        if own == root {
            let expected = if is_direct { direct() } else { chain() };
            assert!(data == expected, "reduce to {root} of {what}");
        }

        let mut all = vec![0; if own == root { total } else { 0 }];
        links.gather(&next(), &given(own, lengths[own]), &mut all, &lengths, root).unwrap();
        assert!(own != root || all == gathered, "gather to {root} of {what}");

        let mut mine = vec![0; lengths[own]];
        let all = if own == root { gathered.clone() } else { vec![] };
        links.scatter(&next(), &all, &mut mine, &lengths, root).unwrap();
        assert!(mine == given(own, lengths[own]), "scatter from {root} of {what}");
    }

    // Place a gives place b so many bytes.
    let between = |a: usize, b: usize| len * (a + 2 * b) / (3 * n) + (a + b) % 2;
    let sent = |a: usize| (0..n).flat_map(move |b| given(a * n + b, between(a, b)));
    let send_lengths: Vec<_> = (0..n).map(|b| between(own, b)).collect();
    let receive_lengths: Vec<_> = (0..n).map(|a| between(a, own)).collect();
    let mut data = vec![0; receive_lengths.iter().sum()];
    let send: Vec<u8> = sent(own).collect();
    links.all_to_all(&next(), &send, &send_lengths, &mut data, &receive_lengths).unwrap();
    let expected: Vec<u8> = (0..n).flat_map(|a| given(a * n + own, between(a, own))).collect();
    assert!(data == expected, "all_to_all of {what}");

    links.barrier(&next()).unwrap();
    let (send, receive) = (next(), next());
    if own == 0 {
        links.send(&send, n - 1, &given(9, len)).unwrap();
        let mut back = vec![0; len];
        links.receive(&receive, n - 1, &mut back).unwrap();
        assert!(back == given(8, len), "send and receive of {what}");
    } else if own == n - 1 {
        let mut data = vec![0; len];
        links.receive(&send, 0, &mut data).unwrap();
        assert!(data == given(9, len), "send and receive of {what}");
        links.send(&receive, 0, &given(8, len)).unwrap();
    }
}

#[test]
fn all_collectives_of_small_and_odd_sizes() {
    for n in 2..=5 {
        for direct in [0, usize::MAX / 16] {
            group(n, &options(direct, 1, Encryption::Off), |mut links| {
                for len in [0, 1, 3, 63, 64, 65, 1000, 70_001] {
                    check_all(&mut links, len, direct != 0);
                }
            });
        }
    }
}

#[test]
fn large_ones_over_several_streams() {
    for (n, streams) in [(2, 1), (2, 3), (3, 2), (4, 5)] {
        for direct in [0, usize::MAX / 16] {
            group(n, &options(direct, streams, Encryption::Off), |mut links| {
                check_all(&mut links, 2_000_003, direct != 0);
            });
        }
    }
}

#[test]
fn an_all_reduce_of_several_rounds() {
    // Without a rest; with one that is shorter than a chunk; with one of some chunks.
    for (n, streams, len) in [(2, 1, 4 << 20), (3, 2, (3 << 20) + 5), (4, 1, 5_700_003)] {
        group(n, &options(0, streams, Encryption::Off), |mut links| {
            let mut data = given(links.place(), len);
            links.all_reduce(&call(1), &mut data, &mix).unwrap();
            assert!(data == ring(n, len, &rounds(n, len)), "{len} bytes of {n} places");
        });
    }
}

#[test]
fn encrypted_ones() {
    for (n, streams) in [(2, 1), (3, 2)] {
        group(n, &options(0, streams, Encryption::On), |mut links| {
            for len in [0, 1, 1000, 600_001] {
                check_all(&mut links, len, false);
            }
        });
    }
}

#[test]
fn over_ipv6() {
    group_at("[::1]:0", 3, &Options::default(), |mut links| check_all(&mut links, 1000, true));
}

#[test]
fn one_place_alone_has_nothing_to_wait_for() {
    group(1, &Options::default(), |mut links| {
        let mut data = given(0, 100);
        links.all_reduce(&call(1), &mut data, &mix).unwrap();
        links.reduce(&call(2), &mut data, 0, &mix).unwrap();
        links.reduce_scatter(&call(3), &mut data, &[100], &mix).unwrap();
        links.all_gather(&call(4), &mut data, &[100]).unwrap();
        links.broadcast(&call(5), &mut data, 0).unwrap();
        links.barrier(&call(6)).unwrap();
        assert_eq!(data, given(0, 100));
    });
}

/// More than sockets hold, from all to all, received in another order than sent: nobody waits for ever.
#[test]
fn no_order_of_messages_blocks() {
    const LEN: usize = 3 << 20;
    group(3, &options(0, 2, Encryption::Off), |mut links| {
        let (n, own) = (links.places(), links.place());
        let others: Vec<usize> = (0..n).filter(|&p| p != own).collect();
        let data = |from: usize, to: usize, i: usize| given(from * 100 + to * 10 + i, LEN + i);
        let out: Vec<_> = (0..3).flat_map(|i| others.iter().map(move |&to| (to, i))).collect();
        let bytes: Vec<_> = out.iter().map(|&(to, i)| data(own, to, i)).collect();
        let sends: Vec<_> =
            out.iter().zip(&bytes).map(|(&(to, _), bytes)| Send { to, bytes }).collect();
        let mut rooms: Vec<_> = (0..2)
            .flat_map(|back| (0..3).map(move |i| (back, i)))
            .map(|(back, i)| (others[1 - back], i, vec![0; LEN + i]))
            .collect();
        let mut receives: Vec<_> =
            rooms.iter_mut().map(|(from, _, bytes)| Receive { from: *from, bytes }).collect();
        links.exchange(&call(1), &sends, &mut receives).unwrap();
        for (from, i, bytes) in rooms {
            assert!(bytes == data(from, own, i), "message {i} from {from} to {own}");
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    /// Calls of any sizes, one after the other on the same links.
    #[test]
    fn any_sequence_of_sizes(
        n in 2usize..5,
        streams in 1usize..4,
        direct in prop::sample::select(vec![0usize, 5000, usize::MAX / 16]),
        sizes in prop::collection::vec(0usize..30_000, 1..5),
        is_large: bool,
    ) {
        group(n, &options(direct, streams, Encryption::Off), |mut links| {
            for &len in &sizes {
                // Where the bound is in between, which way is taken differs from call to call.
                let is_direct = direct > 5000;
                if direct == 5000 {
                    let mut data = given(links.place(), len);
                    links.all_gather(&call(1), &mut vec![0; len * n], &vec![len; n]).unwrap();
                    links.broadcast(&call(2), &mut data, 0).unwrap();
                    assert!(data == given(0, len));
                } else {
                    check_all(&mut links, if is_large { len * 30 } else { len }, is_direct);
                }
            }
        });
    }
}
