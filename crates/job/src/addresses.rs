//! Addresses of hosts: in which order to try those of another one, and how a launcher writes its own for its workers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Orders another host's addresses for a process whose host has the addresses `own`: those first that most likely lead
/// there. The more leading bits an address shares with one of its own, the nearer it is, up to the whole of a usual
/// network: 24 bits, or 64 of IPv6. Among equals the order stays, so that the other host's has a say.
///
/// An address that this host has, too, comes last: a packet to it never leaves this host. Bridges of virtual machines
/// and containers have the same address on many hosts. Only the loopback is meant where both have it.
pub fn by_likelihood(addresses: &mut [SocketAddr], own: &[IpAddr]) {
    addresses.sort_by_key(|address| std::cmp::Reverse(nearness(address.ip(), own)));
}

/// Whether a packet to this address of another host stays on this one, which has the addresses `own`.
pub fn is_ambiguous(address: IpAddr, own: &[IpAddr]) -> bool {
    !address.is_loopback() && own.contains(&address)
}

fn nearness(address: IpAddr, own: &[IpAddr]) -> i32 {
    if is_ambiguous(address, own) {
        return -2;
    }
    own.iter().map(|mine| shared_bits(*mine, address)).max().unwrap_or(-1)
}

/// Scaled so that a whole network is as much in both families: -1 for addresses of different ones, or where only one is
/// of the loopback, which leads to another host never.
fn shared_bits(a: IpAddr, b: IpAddr) -> i32 {
    if a.is_loopback() != b.is_loopback() {
        return -1;
    }
    let of_network = |shared: u32, whole: u32| (shared.min(whole) * 192 / whole) as i32;
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            of_network((Ipv4Addr::to_bits(a) ^ Ipv4Addr::to_bits(b)).leading_zeros(), 24)
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            of_network((Ipv6Addr::to_bits(a) ^ Ipv6Addr::to_bits(b)).leading_zeros(), 64)
        }
        _ => -1,
    }
}

/// A list as text, which [`read`] reads: `10.0.0.1,fd77::1`.
pub fn write(addresses: impl IntoIterator<Item = IpAddr>) -> String {
    let all: Vec<String> = addresses.into_iter().map(|address| address.to_string()).collect();
    all.join(",")
}

/// A list from text that [`write()`] wrote. `None` for any other, and for none at all.
pub fn read(text: &str) -> Option<Vec<IpAddr>> {
    text.split(',').map(|address| address.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(addresses: &[&str], own: &[&str]) -> Vec<String> {
        let socket = |ip: &&str| SocketAddr::new(ip.parse().unwrap(), 1);
        let mut addresses: Vec<SocketAddr> = addresses.iter().map(socket).collect();
        let own: Vec<IpAddr> = own.iter().map(|ip| ip.parse().unwrap()).collect();
        by_likelihood(&mut addresses, &own);
        addresses.iter().map(|address| address.ip().to_string()).collect()
    }

    #[test]
    fn the_same_subnet_comes_first() {
        let own = ["10.1.0.5", "192.168.3.5", "fd77::5"];
        let others = ["127.0.0.1", "172.17.0.1", "10.9.0.6", "192.168.3.6", "fd77::6"];
        let order = ["192.168.3.6", "fd77::6", "10.9.0.6", "172.17.0.1", "127.0.0.1"];
        assert_eq!(ordered(&others, &own), order);
        assert_eq!(ordered(&["fd77::1", "10.0.0.1"], &["10.0.0.2"]), ["10.0.0.1", "fd77::1"]);
        // What has more bits in common by chance is no nearer.
        let order = ["10.0.0.1", "192.168.3.6"];
        assert_eq!(ordered(&order, &["192.168.3.7", "10.0.0.200"]), order);
    }

    #[test]
    fn an_address_that_this_host_has_too_comes_last() {
        let bridge = "192.168.122.1";
        assert_eq!(ordered(&[bridge, "172.20.0.1"], &[bridge, "10.0.0.2"]), ["172.20.0.1", bridge]);
        assert_eq!(ordered(&[bridge, "fd77::1"], &[bridge]), ["fd77::1", bridge]);
        // Several hosts of one machine.
        assert_eq!(ordered(&["10.0.0.2", "127.0.0.1"], &["127.0.0.1"]), ["127.0.0.1", "10.0.0.2"]);
    }

    #[test]
    fn a_list_survives_the_way() {
        let list: Vec<IpAddr> = vec!["10.0.0.1".parse().unwrap(), "fd77::1".parse().unwrap()];
        assert_eq!(write(list.clone()), "10.0.0.1,fd77::1");
        assert_eq!(read("10.0.0.1,fd77::1"), Some(list));
        for text in ["", "10.0.0.1,", "10.0.0.1 10.0.0.2", "h1"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
