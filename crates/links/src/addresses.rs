//! Where a process listens, as a value that travels through a store, and in which order to try it.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};

use torchrs_error::{Error, Result};
use torchrs_job::addresses;

/// Of the bytes of [`Addresses::encode`].
const VERSION: u8 = 1;
/// The most addresses of a process.
const MOST: usize = 32;

/// The addresses of one [`Listener`](crate::Listener), and a random id that tells it from a later one at the same
/// addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    pub(crate) id: [u8; 16],
    pub(crate) list: Vec<SocketAddr>,
}

impl Addresses {
    pub(crate) fn new(list: Vec<SocketAddr>) -> Result<Self> {
        if list.is_empty() || list.len() > MOST {
            let what = format!("{} of them; a process offers 1 to {MOST}", list.len());
            return Err(Error::argument("Listener::bind", "addresses", what));
        }
        // Not a secret: it only has to differ. The hasher's keys come from the system's random numbers.
        let half = |salt: u8| {
            let time = std::time::SystemTime::now();
            RandomState::new().hash_one((salt, std::process::id(), time)).to_le_bytes()
        };
        let mut id = [0; 16];
        id[..8].copy_from_slice(&half(0));
        id[8..].copy_from_slice(&half(1));
        Ok(Addresses { id, list })
    }

    /// The socket addresses.
    pub fn list(&self) -> &[SocketAddr] {
        &self.list
    }

    /// As bytes, which [`decode`](Self::decode) reads: 18, and 7 or 19 for each address.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&self.id);
        bytes.push(self.list.len() as u8);
        for address in &self.list {
            match address.ip() {
                IpAddr::V4(ip) => {
                    bytes.push(4);
                    bytes.extend_from_slice(&ip.octets());
                }
                IpAddr::V6(ip) => {
                    bytes.push(6);
                    bytes.extend_from_slice(&ip.octets());
                }
            }
            bytes.extend_from_slice(&address.port().to_be_bytes());
        }
        bytes
    }

    /// From bytes that [`encode`](Self::encode) made.
    ///
    /// # Errors
    /// [`Error::Argument`] for any others.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let wrong = || {
            let what = format!("{} bytes that are no addresses of this release", bytes.len());
            Error::argument("Addresses::decode", "bytes", what)
        };
        let mut rest = bytes;
        let mut take = |count: usize| {
            let (part, after) = rest.split_at_checked(count)?;
            rest = after;
            Some(part)
        };
        let mut read = || -> Option<Addresses> {
            if take(1)?[0] != VERSION {
                return None;
            }
            let id = take(16)?.try_into().ok()?;
            let count = usize::from(take(1)?[0]);
            if count == 0 || count > MOST {
                return None;
            }
            let mut list = Vec::with_capacity(count);
            for _ in 0..count {
                let ip = match take(1)?[0] {
                    4 => IpAddr::from(<[u8; 4]>::try_from(take(4)?).ok()?),
                    6 => IpAddr::from(<[u8; 16]>::try_from(take(16)?).ok()?),
                    _ => return None,
                };
                let port = u16::from_be_bytes(take(2)?.try_into().ok()?);
                list.push(SocketAddr::new(ip, port));
            }
            Some(Addresses { id, list })
        };
        let addresses = read().ok_or_else(wrong)?;
        if rest.is_empty() { Ok(addresses) } else { Err(wrong()) }
    }

    /// The addresses, those first that most likely lead there from a process at `own`.
    pub(crate) fn by_likelihood(&self, own: &Addresses) -> Vec<SocketAddr> {
        let mut list = self.list.clone();
        let own: Vec<IpAddr> = own.list.iter().map(SocketAddr::ip).collect();
        addresses::by_likelihood(&mut list, &own);
        list
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(list: &[&str]) -> Addresses {
        Addresses::new(list.iter().map(|a| a.parse().unwrap()).collect()).unwrap()
    }

    #[test]
    fn they_travel_as_bytes() {
        let addresses = of(&["10.0.0.1:80", "[fd77::1]:65535"]);
        let bytes = addresses.encode();
        assert_eq!(bytes.len(), 18 + 7 + 19);
        assert_eq!(Addresses::decode(&bytes).unwrap(), addresses);
        for end in 0..bytes.len() {
            assert!(Addresses::decode(&bytes[..end]).is_err());
        }
        assert!(Addresses::decode(&[&bytes[..], &[0]].concat()).is_err());
        assert_ne!(
            of(&["10.0.0.1:80"]),
            of(&["10.0.0.1:80"]),
            "each listener has an id of its own"
        );
        assert!(Addresses::new(vec![]).is_err());
    }

    proptest! {
        #[test]
        fn other_bytes_are_refused_or_read_whole(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(addresses) = Addresses::decode(&bytes) {
                prop_assert_eq!(addresses.encode(), bytes);
            }
        }
    }
}
