//! Hosts that meet over real sockets, on loopback.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use torchrs_rendezvous::driver::{Command, Config, Endpoint, Event, Rendezvous};
use torchrs_rendezvous::protocol::{Round, Verdict};
use torchrs_rendezvous::settings::Settings;
use torchrs_rendezvous::token::JobToken;

const LONG: Duration = Duration::from_secs(60);

fn endpoint() -> Endpoint {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    Endpoint { host: "127.0.0.1".into(), port: free.port() }
}

fn config(endpoint: &Endpoint, hosts: (u32, u32), place: usize) -> Config {
    Config {
        settings: Settings {
            job: "j".into(),
            hosts,
            max_restarts: 3,
            last_call: Duration::from_millis(200),
            ..Settings::default()
        },
        token: JobToken::new("test", "0123456789abcdef").unwrap(),
        endpoint: endpoint.clone(),
        is_host: None,
        local_addrs: Vec::new(),
        name: format!("h{place}"),
        nproc: 2,
        node_rank: None,
        lock: None,
    }
}

/// The next event that is not for the user's eyes.
fn next(host: &Rendezvous) -> Event {
    let until = Instant::now() + LONG;
    loop {
        match host.next_within(until - Instant::now()).expect("an event in time") {
            Event::Say(_) | Event::Leads(_) | Event::Gone(_) | Event::AwaitsWelcome(_) => {}
            event => return event,
        }
    }
}

fn started(host: &Rendezvous) -> (Arc<Round>, usize) {
    match next(host) {
        Event::Start { round, group_rank, .. } => (round, group_rank),
        other => panic!("{other:?} instead of a start"),
    }
}

#[test]
fn hosts_meet_ask_the_store_and_end() {
    let endpoint = endpoint();
    let hosts: Vec<Rendezvous> =
        (0..3).map(|place| Rendezvous::start(config(&endpoint, (3, 3), place)).unwrap()).collect();
    let rounds: Vec<_> = hosts.iter().map(started).collect();
    let mut places: Vec<usize> = rounds.iter().map(|(_, place)| *place).collect();
    places.sort_unstable();
    assert_eq!((places, rounds[0].0.world_size()), (vec![0, 1, 2], 6));
    assert!(rounds.iter().all(|(round, _)| *round == rounds[0].0));
    let of = |place| &hosts[rounds.iter().position(|(_, p)| *p == place).unwrap()];
    let (leader, other) = (of(0), of(2));
    other.command(Command::Ask(7, b"what".to_vec()));
    let Event::Ask(from, 7, request) = next(leader) else { panic!("no question") };
    assert_eq!(request, b"what");
    leader.command(Command::Reply(from, 7, b"that".to_vec()));
    let Event::Answer(7, reply) = next(other) else { panic!("no answer") };
    assert_eq!(reply, b"that");
    for host in &hosts {
        host.command(Command::WorkersEnded(Verdict::Success, b"fine".to_vec()));
    }
    let Event::Ended(ending) = next(leader) else { panic!("no end") };
    assert!(
        ending.why.is_none() && ending.reports.iter().all(|r| r.as_ref().unwrap().1 == b"fine")
    );
    leader.command(Command::Finish(0, "good".into()));
    for host in &hosts {
        let Event::Over(0, text) = next(host) else { panic!("not over") };
        assert_eq!(text, "good");
    }
}

#[test]
fn a_lost_host_is_noticed_at_once_and_the_rest_goes_on() {
    for dead in 0..3 {
        let endpoint = endpoint();
        let mut hosts: Vec<Rendezvous> = (0..3)
            .map(|place| Rendezvous::start(config(&endpoint, (2, 3), place)).unwrap())
            .collect();
        let mut places: Vec<usize> = hosts.iter().map(|host| started(host).1).collect();
        let victim = places.iter().position(|place| *place == dead).unwrap();
        let at = Instant::now();
        drop(hosts.remove(victim));
        places.remove(victim);
        for host in &hosts {
            let Event::Stop { .. } = next(host) else { panic!("no stop") };
            host.command(Command::WorkersEnded(Verdict::Stopped, Vec::new()));
        }
        for host in &hosts {
            let round = loop {
                match next(host) {
                    Event::Start { round, .. } => break round,
                    Event::Restarting(_) => {}
                    other => panic!("{other:?} instead of a start"),
                }
            };
            assert_eq!((round.hosts.len(), round.restarts), (2, 1));
        }
        let limit = Duration::from_secs(if dead == 0 { 9 } else { 3 });
        assert!(at.elapsed() < limit, "host {dead}: {:?}", at.elapsed());
    }
}

#[test]
fn a_host_offers_all_addresses_at_which_it_listens() {
    let endpoint = endpoint();
    let ip = |last: u8| IpAddr::from([127, 0, 0, last]);
    let start = |place: usize| {
        let own = if place == 0 { vec![ip(9), ip(1)] } else { vec![ip(20), ip(21)] };
        let config = Config {
            local_addrs: own,
            is_host: Some(place == 0),
            node_rank: Some(place as u32),
            ..config(&endpoint, (2, 2), place)
        };
        Rendezvous::start(config).unwrap()
    };
    let hosts = [0, 1].map(start);
    let (round, _) = started(&hosts[0]);
    let of = |place: usize| round.hosts[place].addresses.iter();
    // The endpoint first.
    assert_eq!(of(0).map(|at| at.ip()).collect::<Vec<_>>(), [ip(1), ip(9)]);
    assert_eq!(of(0).next().unwrap().port(), endpoint.port);
    assert_eq!(of(1).map(|at| at.ip()).collect::<Vec<_>>(), [ip(20), ip(21)]);
    for address in of(0).chain(of(1)) {
        assert!(TcpStream::connect(address).is_ok(), "{address}");
    }
    let elsewhere = |address: &SocketAddr| TcpStream::connect((ip(30), address.port())).is_ok();
    assert!(!of(0).chain(of(1)).any(elsewhere));
    drop(started(&hosts[1]));
}

/// Whoever has no secret proves nothing.
#[test]
fn without_a_token_nothing_listens_beyond_the_loopback() {
    for is_host in [true, false] {
        let config = Config {
            token: JobToken::of_loopback(),
            is_host: Some(is_host),
            local_addrs: vec!["127.0.0.1".parse().unwrap(), "192.0.2.1".parse().unwrap()],
            ..config(&endpoint(), (2, 2), 0)
        };
        let host = Rendezvous::start(config).unwrap();
        let Event::Fail(why) = next(&host) else { panic!("it listens") };
        assert!(why.contains("TORCHRS_JOB_TOKEN") && why.contains("192.0.2.1"), "{why}");
    }
}

#[test]
fn who_has_another_token_is_told_so_and_harms_nobody() {
    let endpoint = endpoint();
    let first = Rendezvous::start(config(&endpoint, (2, 2), 0)).unwrap();
    let mut wrong = config(&endpoint, (2, 2), 1);
    // It must not be the first to sit there.
    wrong.is_host = Some(false);
    wrong.token = JobToken::new("test", "fedcba9876543210").unwrap();
    wrong.settings.join_timeout = Duration::from_secs(2);
    let wrong = Rendezvous::start(wrong).unwrap();
    let Event::Fail(why) = next(&wrong) else { panic!("it took part") };
    assert!(why.contains("TORCHRS_JOB_TOKEN") && why.contains(&endpoint.to_string()), "{why}");
    let second = Rendezvous::start(config(&endpoint, (2, 2), 2)).unwrap();
    assert_eq!(started(&first).0.hosts.len(), 2);
    assert_eq!(started(&second).0.hosts.len(), 2);
}

#[test]
fn garbage_and_a_thousand_connections_harm_nobody() {
    let endpoint = endpoint();
    let first = Rendezvous::start(config(&endpoint, (2, 2), 0)).unwrap();
    let place = endpoint.to_string();
    let connect = || {
        let until = Instant::now() + LONG;
        loop {
            match TcpStream::connect(&place) {
                Ok(stream) => return stream,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
        }
    };
    let mut http = connect();
    http.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    http.set_read_timeout(Some(LONG)).unwrap();
    // Closed, perhaps by a reset.
    let _ = http.read_to_end(&mut answer);
    assert!(answer.len() < 100, "{answer:?}");
    let mut garbage = connect();
    let _ = garbage.write_all(&[0x5a; 100_000]);
    let slow: Vec<TcpStream> = (0..1000).map(|_| connect()).collect();
    // Those that prove nothing hold their places for five seconds at most.
    let second = Rendezvous::start(config(&endpoint, (2, 2), 1)).unwrap();
    let at = Instant::now();
    assert_eq!(started(&first).0.hosts.len(), 2);
    assert_eq!(started(&second).0.hosts.len(), 2);
    assert!(at.elapsed() < Duration::from_secs(20), "{:?}", at.elapsed());
    drop(slow);
}

#[test]
fn an_endpoint_where_nobody_is_says_why() {
    let endpoint = endpoint();
    let mut alone = config(&endpoint, (2, 2), 0);
    alone.is_host = Some(false);
    alone.settings.join_timeout = Duration::from_secs(1);
    let alone = Rendezvous::start(alone).unwrap();
    let Event::Fail(why) = next(&alone) else { panic!("it took part") };
    assert!(why.contains(&endpoint.to_string()) && why.contains("nobody listens"), "{why}");
}
