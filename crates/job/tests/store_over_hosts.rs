//! The store of a job over several hosts: the leader's server and another host's, joined in this process.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use nix::sys::socket::MsgFlags;
use torchrs_job::store::packet;
use torchrs_job::store::wire::{Assembler, Reply, Request, decode, encode, packets};
use torchrs_job::store::{StoreServer, Uplink, WELCOME};

enum Mail {
    Ask(Vec<u8>),
    Reply(u64, Vec<u8>),
    Welcome,
    End,
}

struct Line(Sender<Mail>);

impl Uplink for Line {
    fn ask(&self, _: u64, request: Vec<u8>) {
        let _ = self.0.send(Mail::Ask(request));
    }
    fn reply(&self, host: u64, number: u64, reply: Vec<u8>) {
        assert_eq!(host, 7);
        let _ = self.0.send(Mail::Reply(number, reply));
    }
    fn welcome(&self) {
        let _ = self.0.send(Mail::Welcome);
    }
}

/// A client of one request at a time, or of one that stays open.
struct Client {
    socket: OwnedFd,
    next: u64,
}

impl Client {
    fn of(server: &StoreServer) -> Self {
        Client { socket: server.connect().unwrap(), next: 1 }
    }

    fn ask(&mut self, request: &Request) -> u64 {
        let id = self.next;
        self.next += 1;
        for bytes in packets(&encode(id, request)) {
            packet::send(self.socket.as_fd(), &bytes, &[]).unwrap();
        }
        id
    }

    fn answer(&self) -> (u64, Reply) {
        let (mut assembler, mut buffer) = (Assembler::default(), packet::buffer());
        loop {
            let got = packet::receive(self.socket.as_fd(), &mut buffer, MsgFlags::empty());
            let got = got.unwrap().expect("the server is there");
            if let Some(message) = assembler.push(&buffer[..got.len]).unwrap() {
                let reply = decode::<Reply>(&message).unwrap();
                return (reply.id, reply.body);
            }
        }
    }

    fn call(&mut self, request: &Request) -> Reply {
        let id = self.ask(request);
        let (answered, reply) = self.answer();
        assert_eq!(id, answered);
        reply
    }
}

struct Hosts {
    leader: Arc<StoreServer>,
    other: Arc<StoreServer>,
    line: Sender<Mail>,
    carrier: Option<std::thread::JoinHandle<()>>,
    /// What the other host's server asked.
    asked: Arc<Mutex<usize>>,
}

fn carry(mail: Receiver<Mail>, leader: &StoreServer, other: &StoreServer, asked: &Mutex<usize>) {
    for one in mail {
        match one {
            Mail::Ask(request) => {
                *asked.lock().unwrap() += 1;
                leader.asked(7, request);
            }
            Mail::Reply(number, reply) => other.answered(number, reply),
            Mail::Welcome => leader.tell("heard", b"welcome"),
            Mail::End => return,
        }
    }
}

impl Hosts {
    fn new() -> Self {
        let (line, mail) = channel();
        let server = |holds| {
            Arc::new(StoreServer::start_among_hosts(Box::new(Line(line.clone())), holds).unwrap())
        };
        let (leader, other) = (server(true), server(false));
        let asked = Arc::default();
        let ends = (leader.clone(), other.clone(), Arc::clone(&asked));
        let work = move || carry(mail, &ends.0, &ends.1, &ends.2);
        let carrier = Some(std::thread::spawn(work));
        Hosts { leader, other, line, carrier, asked }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = self.line.send(Mail::End);
        self.carrier.take().unwrap().join().unwrap();
    }
}

#[test]
fn keys_of_the_job_are_everywhere_and_those_of_a_host_there() {
    let hosts = Hosts::new();
    let (mut here, mut there) = (Client::of(&hosts.leader), Client::of(&hosts.other));
    assert_eq!(there.call(&Request::Set { key: "k", value: b"v" }), Reply::Done);
    assert_eq!(here.call(&Request::Get { key: "k" }), Reply::Value(b"v".to_vec()));
    assert_eq!(here.call(&Request::Add { key: "n", amount: 2 }), Reply::Number(2));
    assert_eq!(there.call(&Request::Add { key: "n", amount: 3 }), Reply::Number(5));
    let asked = *hosts.asked.lock().unwrap();
    assert_eq!(there.call(&Request::Set { key: "@host/k", value: b"there" }), Reply::Done);
    assert_eq!(here.call(&Request::TryGet { key: "@host/k" }), Reply::Missing);
    assert_eq!(there.call(&Request::Get { key: "@host/k" }), Reply::Value(b"there".to_vec()));
    assert_eq!(*hosts.asked.lock().unwrap(), asked);
    let mixed = there.call(&Request::Wait { keys: vec!["k", "@host/k"] });
    assert!(matches!(&mixed, Reply::Refused(why) if why.contains("@host/")), "{mixed:?}");
}

/// The launcher that leads hears it, whichever host's program says so.
#[test]
fn a_welcome_reaches_the_leaders_launcher() {
    for of_leader in [true, false] {
        let hosts = Hosts::new();
        let mut client = Client::of(if of_leader { &hosts.leader } else { &hosts.other });
        assert_eq!(client.call(&Request::Set { key: "another", value: b"" }), Reply::Done);
        assert_eq!(client.call(&Request::TryGet { key: "heard" }), Reply::Missing);
        assert_eq!(client.call(&Request::Set { key: WELCOME, value: b"" }), Reply::Done);
        assert_eq!(client.call(&Request::Get { key: "heard" }), Reply::Value(b"welcome".to_vec()));
    }
}

#[test]
fn a_wait_on_another_host_ends_when_the_key_comes() {
    let hosts = Hosts::new();
    let (mut here, mut there) = (Client::of(&hosts.leader), Client::of(&hosts.other));
    let id = there.ask(&Request::Wait { keys: vec!["a", "b"] });
    here.call(&Request::Set { key: "a", value: b"" });
    let mut third = Client::of(&hosts.other);
    third.call(&Request::Set { key: "b", value: b"" });
    assert_eq!(there.answer(), (id, Reply::Done));
    // What this host's launcher says of its ranks is the job's.
    hosts.other.rank_ended(3, "killed by signal 9");
    let ended = here.call(&Request::Get { key: "torchrs/ended/3" });
    assert_eq!(ended, Reply::Value(b"killed by signal 9".to_vec()));
}

#[test]
fn who_is_gone_or_has_cancelled_is_not_answered() {
    let hosts = Hosts::new();
    let (mut here, mut there) = (Client::of(&hosts.leader), Client::of(&hosts.other));
    let id = there.ask(&Request::Get { key: "late" });
    there.ask(&Request::Cancel { id });
    let mut gone = Client::of(&hosts.other);
    gone.ask(&Request::Get { key: "late" });
    drop(gone);
    // After all that was asked before.
    assert_eq!(there.call(&Request::Add { key: "n", amount: 1 }), Reply::Number(1));
    here.call(&Request::Set { key: "late", value: b"v" });
    assert_eq!(there.call(&Request::Add { key: "n", amount: 1 }), Reply::Number(2));
    // A host that is gone is forgotten with all that it waited for.
    let open = there.ask(&Request::Get { key: "never" });
    assert_eq!(there.next, open + 1);
    hosts.leader.host_gone(7);
    here.call(&Request::Set { key: "never", value: b"" });
}
