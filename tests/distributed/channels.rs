//! Channels: order, size, handles, disconnection, deadlines, and sharing of the ends.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use torchrs::multiprocessing::handles::{Descriptor, shared_memory};
use torchrs::multiprocessing::{Channel, Process, Receiver, Sender, channel, duplex, spawn};
use torchrs::storage::SharedMemory;
use torchrs::{Error, Result};

const LONG: Duration = Duration::from_secs(30);

#[test]
fn messages_arrive_in_order_and_whole() {
    let (sender, receiver) = channel().unwrap();
    let sizes = [0, 1, 65_535, 65_536, 65_537, 300_000, 5_000_000, 3];
    let messages: Vec<Vec<u8>> = sizes.iter().map(|&n| vec![n as u8; n]).collect();
    let expected = messages.clone();
    let sending = thread::spawn(move || {
        for message in &messages {
            sender.send(message).unwrap();
        }
    });
    for message in expected {
        assert!(receiver.recv_timeout(LONG).unwrap() == message, "of {} bytes", message.len());
    }
    sending.join().unwrap();
    assert!(matches!(receiver.recv().unwrap_err(), Error::Disconnected(_)));
}

#[test]
fn a_full_channel_makes_the_sender_wait_until_its_deadline() {
    let (sender, receiver) = channel::<u64>().unwrap();
    let mut sent = 0;
    let error = loop {
        match sender.send_timeout(&sent, Duration::from_millis(20)) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(error.to_string().contains("nobody receives"), "{error}");
    assert!(sent >= 50, "only {sent} small messages fit");
    for expected in 0..sent {
        assert_eq!(receiver.try_recv().unwrap(), Some(expected));
    }
    assert_eq!(receiver.try_recv().unwrap(), None);
    sender.send_timeout(&1, LONG).unwrap();
}

#[test]
fn receiving_ends_at_the_deadline_and_names_the_type() {
    let (_sender, receiver) = channel::<String>().unwrap();
    let error = receiver.recv_timeout(Duration::from_millis(10)).unwrap_err().to_string();
    assert!(error.contains("0.0 s") && error.contains("String"), "{error}");
}

#[test]
fn a_blocked_receiver_wakes_when_the_last_sender_goes() {
    let (sender, receiver) = channel::<u8>().unwrap();
    let second = sender.clone();
    let waiting = thread::spawn(move || receiver.recv());
    drop(sender);
    second.send(&5).unwrap();
    assert_eq!(waiting.join().unwrap().unwrap(), 5);
    drop(second);
}

/// Answers, and leaves without reading what else was sent.
fn answers_and_leaves(_: (), parent: Channel<String, u64>) -> Result<()> {
    let number = parent.recv()?;
    parent.send(&format!("got {number}"))
}

#[test]
fn an_answer_arrives_although_its_sender_left_messages_unread() {
    let (child, channel) = Process::builder().spawn_connected(answers_and_leaves, ()).unwrap();
    for number in 0..5 {
        // The last ones may find nobody.
        let _ = channel.send(&number);
    }
    child.join_timeout(LONG).unwrap();
    assert_eq!(channel.recv_timeout(LONG).unwrap(), "got 0");
    assert!(matches!(channel.recv().unwrap_err(), Error::Disconnected(_)));
    let error = channel.send(&9).unwrap_err();
    assert!(matches!(error, Error::Disconnected(_)), "{error}");
}

#[test]
fn both_sides_of_a_duplex_speak() {
    let (a, b) = duplex::<u32, String>().unwrap();
    a.send(&4).unwrap();
    assert_eq!(b.recv().unwrap(), 4);
    b.send(&"four".to_owned()).unwrap();
    assert_eq!(a.recv().unwrap(), "four");
}

#[test]
fn a_file_can_be_sent() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"hello").unwrap();
    let (sender, receiver) = channel().unwrap();
    sender.send(&Descriptor(file.into())).unwrap();
    let mut back = File::from(receiver.recv().unwrap().0);
    let mut text = String::new();
    back.seek(SeekFrom::Start(0)).unwrap();
    back.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
}

#[test]
fn more_handles_than_a_datagram_holds_arrive_in_order() {
    let (sender, receiver) = channel::<(Vec<Sender<usize>>, Vec<u8>)>().unwrap();
    let ends: Vec<_> = (0..3).map(|_| channel::<usize>().unwrap()).collect();
    let many: Vec<_> = (0..600).map(|i| ends[i % 3].0.clone()).collect();
    sender.send(&(many, vec![1; 100_000])).unwrap();
    let (back, bytes) = receiver.recv().unwrap();
    assert_eq!((back.len(), bytes.len()), (600, 100_000));
    for (i, end) in back.iter().enumerate() {
        end.send(&i).unwrap();
        assert_eq!(ends[i % 3].1.recv().unwrap(), i);
    }
}

#[derive(Serialize, Deserialize)]
struct Counter {
    #[serde(with = "shared_memory")]
    memory: Arc<SharedMemory>,
}

impl Counter {
    fn new() -> Self {
        Counter { memory: SharedMemory::create("counter", 4).unwrap() }
    }

    fn value(&self) -> &AtomicU32 {
        // SAFETY: the mapping is page-aligned, 4 bytes long and lives as long as `self`; every
        // process accesses it atomically.
        unsafe { AtomicU32::from_ptr(self.memory.as_ptr().cast()) }
    }
}

fn count(_rank: usize, counter: Counter) {
    for _ in 0..1000 {
        counter.value().fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn shared_memory_is_one_memory_in_all_processes() {
    let counter = Counter::new();
    spawn(count, Counter { memory: counter.memory.clone() }, 3).unwrap();
    assert_eq!(counter.value().load(Ordering::Relaxed), 3000);
}

fn send_back_twice(_: (), parent: Channel<Counter, Counter>) -> Result<()> {
    let first = parent.recv()?;
    let second = parent.recv()?;
    if !Arc::ptr_eq(&first.memory, &second.memory) {
        return Err(Error::Other("the same memory was mapped twice".into()));
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    if maps.matches("/memfd:torchrs-counter").count() != 1 || maps.contains("/dev/shm") {
        return Err(Error::Other(format!("not one anonymous mapping:\n{maps}")));
    }
    second.value().fetch_add(5, Ordering::Relaxed);
    parent.send(&second)
}

#[test]
fn shared_memory_keeps_its_identity_on_both_sides() {
    let counter = Counter::new();
    let (child, channel) = Process::builder().spawn_connected(send_back_twice, ()).unwrap();
    channel.send(&counter).unwrap();
    channel.send(&counter).unwrap();
    let back = channel.recv_timeout(LONG);
    child.join_timeout(LONG).unwrap();
    assert!(Arc::ptr_eq(&back.unwrap().memory, &counter.memory));
    assert_eq!(counter.value().load(Ordering::Relaxed), 5);
}

/// Many messages of one sender among those of others.
fn flood(rank: usize, sender: Sender<(usize, u32, Vec<u8>)>) -> Result<()> {
    for i in 0..200 {
        sender.send(&(rank, i, vec![rank as u8; 1000 * (i as usize % 100)]))?;
    }
    Ok(())
}

fn drain(receiver: Receiver<(usize, u32, Vec<u8>)>) {
    let mut next = [0; 3];
    while let Ok((rank, i, bytes)) = receiver.recv() {
        assert_eq!(i, next[rank], "of rank {rank}");
        assert!(bytes.iter().all(|&byte| byte == rank as u8));
        next[rank] += 1;
    }
    assert_eq!(next, [200; 3]);
}

#[test]
fn senders_in_several_processes_do_not_mix_their_messages() {
    let (sender, receiver) = channel().unwrap();
    let consumer = Process::spawn(drain, receiver).unwrap();
    spawn(flood, sender, 3).unwrap();
    consumer.join_timeout(LONG).unwrap();
}

#[test]
fn what_does_not_deserialise_is_an_error_that_names_the_type() {
    let (a, b) = duplex::<u8, u8>().unwrap();
    a.send(&200).unwrap();
    let (sender, receiver) = channel::<Channel<u8, u8>>().unwrap();
    sender.send(&b).unwrap();
    drop(b);
    // Taken for something that it is not.
    let (wrap, unwrap) = channel::<Descriptor>().unwrap();
    let inner = receiver.recv().unwrap();
    use std::os::fd::AsFd;
    wrap.send(&Descriptor(inner.as_fd().try_clone_to_owned().unwrap())).unwrap();
    let Descriptor(fd) = unwrap.recv().unwrap();
    drop((fd, inner));
    let (sender, receiver) = channel::<Forged>().unwrap();
    sender.send(&Forged(vec![0xff; 3])).unwrap();
    let error = receiver.recv().unwrap_err().to_string();
    assert!(error.contains("Forged"), "{error}");
}

/// Serialises as bytes and reads as a string.
#[derive(Debug)]
struct Forged(Vec<u8>);

impl Serialize for Forged {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Forged {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Forged(String::deserialize(deserializer)?.into_bytes()))
    }
}
