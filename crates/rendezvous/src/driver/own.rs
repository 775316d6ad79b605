//! This host's addresses, by which others may reach it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

/// What bridges to containers and virtual machines of this host are called.
const OF_THIS_HOST: [&str; 5] = ["docker", "br-", "virbr", "veth", "cni"];

/// All but loopback and link-local ones, the likeliest first: that of the default route, then those of interfaces that
/// are not bridges to containers, IPv4 before IPv6.
pub(super) fn own_addresses() -> Vec<IpAddr> {
    let routed = default_route();
    let mut found: Vec<(bool, bool, bool, IpAddr)> = Vec::new();
    for interface in getifaddrs().into_iter().flatten() {
        let up = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
        let Some(address) = interface.address.filter(|_| interface.flags.contains(up)) else {
            continue;
        };
        let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
        let ip = v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())));
        let Some(ip) = ip.filter(|ip| !ip.is_loopback() && !is_link_local(*ip)) else { continue };
        let inner = OF_THIS_HOST.iter().any(|name| interface.interface_name.starts_with(name));
        found.push((Some(ip) != routed, inner, ip.is_ipv6(), ip));
    }
    // Stable: the system's order among equals.
    found.sort_by_key(|(routed, inner, v6, _)| (*routed, *inner, *v6));
    found.into_iter().map(|(.., ip)| ip).collect()
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
}
