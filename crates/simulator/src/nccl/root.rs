//! How ranks on several machines find each other. A unique id says where its maker listens. A thread of the maker
//! takes a card from each rank and gives all of them to each.

use super::mesh::{Refused, never, why};
use super::outcome::Outcome;
use super::seat::Stop;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use torchrs_links::{Addresses, Call, Failure, Links, Listener, Options, Receive, Send, Watch};

/// What an id of this kind begins with.
const MAGIC: [u8; 4] = *b"SIMN";
/// The most bytes of addresses, so that an id has room for them.
const MOST: usize = 128 - 4 - 32 - 1;
/// Bytes of a card.
const CARD: usize = 2 * 4 + 1 + MOST;

/// What an id says.
#[derive(Debug, Clone)]
pub struct Root {
    /// Who does not have it is not let in.
    pub key: [u8; 32],
    addresses: Addresses,
}

/// What a rank says of itself.
#[derive(Debug, Clone)]
pub struct Card {
    /// The numbers of its host, and of its device there.
    pub device: (u32, u32),
    /// Where it listens.
    pub addresses: Addresses,
}

impl Root {
    /// Makes one, and the thread that serves those who join by it.
    pub fn start() -> Result<Root, String> {
        let mut key = [0; 32];
        // SAFETY: as many bytes as are written.
        let count = unsafe { libc::getrandom(key.as_mut_ptr().cast(), key.len(), 0) };
        if count != key.len() as isize {
            return Err("no random numbers".into());
        }
        let listener = listen(key)?;
        let root = Root { key, addresses: listener.addresses().clone() };
        let own = root.clone();
        std::thread::Builder::new()
            .name("sim-nccl-root".into())
            // Who has joined hears of a failure by its connection's end.
            .spawn(move || drop(own.serve(&listener)))
            .map_err(|error| error.to_string())?;
        Ok(root)
    }

    /// As the bytes of an id.
    pub fn encode(&self) -> [u8; 128] {
        let mut id = [0; 128];
        id[..4].copy_from_slice(&MAGIC);
        id[4..36].copy_from_slice(&self.key);
        put(&mut id[36..], &self.addresses);
        id
    }

    /// From the bytes of an id; nothing for one of another kind.
    pub fn decode(id: &[u8; 128]) -> Option<Root> {
        let rest = id.strip_prefix(&MAGIC)?;
        let (key, rest) = rest.split_first_chunk()?;
        Some(Root { key: *key, addresses: get(rest)? })
    }

    /// Takes all ranks' cards, and gives all to each.
    fn serve(&self, listener: &Listener) -> Result<(), Failure> {
        let mut ranks = Vec::new();
        let mut cards = Vec::new();
        loop {
            let mut links = self.meet(listener, ranks.len(), 0, &|| None)?;
            let mut card = [0; CARD + 4];
            let receive = Receive { from: 1, bytes: &mut card };
            links.exchange(&call(&|| None), &[], &mut [receive])?;
            let (world, card) = card.split_first_chunk().expect("a card and a number");
            cards.extend_from_slice(card);
            ranks.push(links);
            if ranks.len() >= u32::from_le_bytes(*world) as usize {
                break;
            }
        }
        for links in &mut ranks {
            links.exchange(&call(&|| None), &[Send { to: 1, bytes: &cards }], &mut [])?;
        }
        // Nobody is cut off from what it still has to read.
        ranks.iter_mut().try_for_each(|links| links.barrier(&call(&|| None)))
    }

    /// Gives a rank's card; those of all ranks of `world`.
    pub fn ask(
        &self,
        listener: &Listener,
        mine: &Card,
        world: usize,
        rank: usize,
        watch: &Watch<'_>,
    ) -> Result<Vec<Card>, Refused> {
        let mut card = (world as u32).to_le_bytes().to_vec();
        card.extend(mine.encode());
        let mut all = vec![0; CARD * world];
        let mut asked = || {
            let mut links = self.meet(listener, rank, 1, watch)?;
            links.exchange(&call(watch), &[Send { to: 0, bytes: &card }], &mut [])?;
            let receive = Receive { from: 0, bytes: &mut all };
            links.exchange(&call(watch), &[], &mut [receive])?;
            links.barrier(&call(watch))
        };
        asked().map_err(|failure| match failure {
            Failure::Mismatch { length, .. } => {
                let elsewhere = length as usize / CARD;
                let message = format!("{world} ranks here, {elsewhere} ranks elsewhere");
                (Outcome::INVALID_ARGUMENT, message)
            }
            failure => match why(failure, rank, "joins") {
                Stop::Aborted => (Outcome::REMOTE_ERROR, "aborted".into()),
                Stop::Peer(why) | Stop::Mismatch(why) => {
                    let message = format!("no way to the maker of the unique id: {why}");
                    (Outcome::REMOTE_ERROR, message)
                }
            },
        })?;
        let cards: Option<Vec<Card>> = all.chunks_exact(CARD).map(Card::decode).collect();
        cards.ok_or_else(|| (Outcome::INTERNAL_ERROR, "a rank's card is no card".into()))
    }

    /// The connection between the root, place 0, and a rank, place 1.
    fn meet(
        &self,
        listener: &Listener,
        rank: usize,
        place: usize,
        watch: &Watch<'_>,
    ) -> Result<Links, Failure> {
        let members = [self.addresses.clone(), listener.addresses().clone()];
        let name = format!("card of {rank}");
        Links::connect(listener, &name, &members, place, &Options::default(), &never(), watch)
    }
}

impl Card {
    fn encode(&self) -> [u8; CARD] {
        let mut bytes = [0; CARD];
        bytes[..4].copy_from_slice(&self.device.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.device.1.to_le_bytes());
        put(&mut bytes[8..], &self.addresses);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Card> {
        let word = |i: usize| Some(u32::from_le_bytes(*bytes.as_chunks().0.get(i)?));
        Some(Card { device: (word(0)?, word(1)?), addresses: get(&bytes[8..])? })
    }
}

fn put(room: &mut [u8], addresses: &Addresses) {
    let bytes = addresses.encode();
    room[0] = bytes.len() as u8;
    room[1..=bytes.len()].copy_from_slice(&bytes);
}

fn get(room: &[u8]) -> Option<Addresses> {
    let (&length, bytes) = room.split_first()?;
    Addresses::decode(bytes.get(..usize::from(length))?).ok()
}

fn call<'a>(watch: &'a Watch<'a>) -> Call<'a> {
    Call { number: 0, fingerprint: b"cards", deadline: never(), watch }
}

/// Listens at this machine's addresses.
pub fn listen(key: [u8; 32]) -> Result<Listener, String> {
    let at: Vec<SocketAddr> = addresses().into_iter().map(|ip| SocketAddr::new(ip, 0)).collect();
    Listener::bind(&at, &[], key).map_err(|error| error.to_string())
}

/// The addresses by which others may reach this machine, as many as an id has room for; that of the loopback where
/// there are no others.
fn addresses() -> Vec<IpAddr> {
    let mut all = interfaces();
    let is_far = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local() && !ip.is_unspecified(),
        // Those of one link only need to be told which.
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    all.retain(is_far);
    all.sort_by_key(IpAddr::is_ipv6);
    // A version, an id and a count, then the addresses, each with its kind and port.
    let mut room = MOST - 18;
    all.retain(|ip| {
        let length = if ip.is_ipv4() { 7 } else { 19 };
        let fits = length <= room;
        room -= if fits { length } else { 0 };
        fits
    });
    if all.is_empty() { vec![Ipv4Addr::LOCALHOST.into()] } else { all }
}

/// The addresses of all interfaces that are up.
fn interfaces() -> Vec<IpAddr> {
    let mut list = std::ptr::null_mut();
    let mut found = Vec::new();
    // SAFETY: writes the head of a list, which is freed below.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return found;
    }
    let mut next = list;
    while !next.is_null() {
        // SAFETY: an entry of the list, whose addresses are of the kind that their family says.
        unsafe {
            let entry = &*next;
            let is_up = entry.ifa_flags & libc::IFF_UP as u32 != 0;
            if is_up && !entry.ifa_addr.is_null() {
                match i32::from((*entry.ifa_addr).sa_family) {
                    libc::AF_INET => {
                        let ip = (*entry.ifa_addr.cast::<libc::sockaddr_in>()).sin_addr.s_addr;
                        found.push(IpAddr::from(Ipv4Addr::from(ip.to_ne_bytes())));
                    }
                    libc::AF_INET6 => {
                        let ip = (*entry.ifa_addr.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr;
                        found.push(IpAddr::from(Ipv6Addr::from(ip)));
                    }
                    _ => {}
                }
            }
            next = entry.ifa_next;
        }
    }
    // SAFETY: the list that the call gave, of which nothing is used any more.
    unsafe { libc::freeifaddrs(list) };
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_cards_say_all() {
        let listener = listen([7; 32]).unwrap();
        let root = Root { key: [7; 32], addresses: listener.addresses().clone() };
        let read = Root::decode(&root.encode()).unwrap();
        assert_eq!((read.key, &read.addresses), (root.key, &root.addresses));
        assert!(Root::decode(&[0; 128]).is_none());
        let card = Card { device: (70_000, 1), addresses: root.addresses };
        let read = Card::decode(&card.encode()).unwrap();
        assert_eq!((read.device, read.addresses), (card.device, card.addresses));
    }
}
