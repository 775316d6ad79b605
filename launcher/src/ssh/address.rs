//! Which addresses are this host's, and by which of them others reach a host.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};

/// Of what a name stands for, here and now.
pub fn resolve(host: &str) -> Vec<IpAddr> {
    let found = (host, 0).to_socket_addrs();
    found.map(|all| all.map(|address| address.ip()).collect()).unwrap_or_default()
}

/// Whether an address is one of this host's: then a socket can have it.
pub fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// This host's address on the way to another. Nothing is sent.
pub fn on_the_way_to(address: IpAddr) -> Option<IpAddr> {
    let any: SocketAddr = match address {
        IpAddr::V4(_) => ([0; 4], 0).into(),
        IpAddr::V6(_) => ([0u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect((address, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Whether a host's name means this one.
pub fn is_here(host: &str) -> bool {
    let own = nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
    let own_short = own.split('.').next().unwrap_or(&own);
    let same = |name: &str| name.eq_ignore_ascii_case(host);
    same("localhost") || same(&own) || same(own_short) || resolve(host).into_iter().any(is_own)
}

/// From `SSH_CONNECTION`: the caller's address, and the one that it called.
pub fn of_connection(text: &str) -> Option<(IpAddr, IpAddr)> {
    let mut words = text.split_whitespace();
    // A link-local address comes with its interface, which means nothing elsewhere.
    let caller = words.next()?.parse().ok()?;
    let called = words.nth(1)?.parse().ok()?;
    Some((caller, called))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_known_by_its_names_and_addresses() {
        assert!(is_here("localhost") && is_here("LOCALHOST") && is_here("127.0.0.1"));
        let own = nix::unistd::gethostname().unwrap();
        assert!(is_here(own.to_str().unwrap()));
        assert!(!is_here("192.0.2.1") && !is_here("no-such-host.invalid"));
        assert_eq!(on_the_way_to("127.0.0.1".parse().unwrap()), "127.0.0.1".parse().ok());
    }

    #[test]
    fn what_sshd_says_of_a_connection_is_read() {
        let read = |text| of_connection(text).map(|(a, b)| format!("{a} {b}"));
        assert_eq!(read("10.0.0.9 50022 10.0.0.1 22").as_deref(), Some("10.0.0.9 10.0.0.1"));
        assert_eq!(read("fd77::9 50022 fd77::1 22").as_deref(), Some("fd77::9 fd77::1"));
        for text in ["", "x 1 y 2", "10.0.0.9 50022", "fe80::1%eth0 1 fe80::2%eth0 22"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
