//! This host's addresses, by which others may reach it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

/// What bridges to containers and virtual machines of this host are called.
const OF_THIS_HOST: [&str; 13] = [
    "br-", "cali", "cni", "docker", "flannel", "incusbr", "lxc", "lxdbr", "podman", "veth",
    "virbr", "vmnet", "vnet",
];
/// The most addresses that a host offers.
pub(super) const MOST: usize = 16;

/// An address of an interface that is up.
struct Found {
    ip: IpAddr,
    /// Whether it leads to containers or virtual machines of this host.
    is_inner: bool,
}

fn found() -> Vec<Found> {
    let mut found = Vec::new();
    for interface in getifaddrs().into_iter().flatten() {
        let up = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
        let Some(address) = interface.address.filter(|_| interface.flags.contains(up)) else {
            continue;
        };
        let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
        let ip = v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())));
        let is_inner = OF_THIS_HOST.iter().any(|name| interface.interface_name.starts_with(name));
        found.extend(ip.map(|ip| Found { ip, is_inner }));
    }
    found
}

/// All of them, those of the loopback too.
pub(super) fn all_addresses() -> Vec<IpAddr> {
    found().into_iter().map(|found| found.ip).collect()
}

/// Those by which others may reach this host, the likeliest first: that of the default route, then IPv4 before IPv6.
/// None of the loopback, none that is link-local, and those of bridges to containers only where there is nothing else.
/// [`MOST`] of them at most.
pub(super) fn own_addresses() -> Vec<IpAddr> {
    let routed = default_route();
    let mut all = found();
    all.retain(|found| !found.ip.is_loopback() && !is_link_local(found.ip));
    if all.iter().any(|found| !found.is_inner) {
        all.retain(|found| !found.is_inner);
    }
    // Stable: the system's order among equals.
    all.sort_by_key(|found| (Some(found.ip) != routed, found.ip.is_ipv6()));
    all.into_iter().map(|found| found.ip).take(MOST).collect()
}

/// Whether a host of this name, with these addresses, is this one. Where only some are this host's, its name decides:
/// bridges and private networks have the same addresses on many hosts.
pub(super) fn is_here(name: &str, addresses: &[SocketAddr]) -> bool {
    let own = all_addresses();
    let is_own = |address: &SocketAddr| address.ip().is_loopback() || own.contains(&address.ip());
    let owned = addresses.iter().filter(|address| is_own(address)).count();
    owned > 0 && (owned == addresses.len() || is_own_name(name))
}

/// Whether a name is this host's, with or without its domain.
fn is_own_name(name: &str) -> bool {
    let own = nix::unistd::gethostname().unwrap_or_default();
    let label = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    !name.is_empty() && label(name) == label(&own.to_string_lossy())
}

/// The address from which packets leave by the default route, if there is one. Nothing is sent.
fn default_route() -> Option<IpAddr> {
    // Of a block for documentation: no host has it.
    let anywhere = SocketAddr::from(([192, 0, 2, 1], 9));
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(anywhere).ok()?;
    socket.local_addr().ok().map(|own| own.ip())
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_of_this_host_alone() {
        for ip in own_addresses() {
            assert!(!ip.is_loopback() && !is_link_local(ip), "{ip}");
            assert!(UdpSocket::bind((ip, 0)).is_ok(), "{ip} is not this host's");
        }
    }

    #[test]
    fn a_host_is_known_by_its_addresses_and_its_name() {
        let of = |name: &str, list: &[&str]| {
            let sockets: Vec<SocketAddr> = list.iter().map(|a| a.parse().unwrap()).collect();
            is_here(name, &sockets)
        };
        assert!(of("a", &["127.0.0.1:5", "127.0.1.1:5"]));
        assert!(!of("a", &["192.0.2.1:5"]) && !of("a", &[]));
        let some = ["127.0.0.1:5", "192.0.2.1:5"];
        let own = nix::unistd::gethostname().unwrap().to_string_lossy().into_owned();
        assert!(!of("a-host-of-another-name", &some) && of(&own, &some));
        assert!(of(&format!("{own}.example.com"), &some));
    }
}
