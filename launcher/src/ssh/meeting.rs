//! Where the launchers of the hosts meet: at the first host that is there, by an address at which the others reach it.

use std::net::IpAddr;

use super::address;
use super::wire::Hello;

/// A host that is there.
pub struct Present<'a> {
    /// As the list has it, without a user.
    pub host: &'a str,
    /// Whether it is this one.
    pub is_here: bool,
    pub hello: &'a Hello,
}

/// The name or address of the first of these hosts, for the others.
///
/// The address by which ssh came there is the best guess: it worked. Of this host it is the address from which the
/// others were called. Where no remote shell says so, names decide. An address of the loopback is right only where
/// nobody has another.
pub fn address_of_first(hosts: &[Present<'_>]) -> String {
    let (first, others) = hosts.split_first().expect("a job has a host");
    let mut found: Vec<IpAddr> = Vec::new();
    if first.is_here {
        let seen = others.iter().filter(|other| !other.is_here);
        let seen = seen.filter_map(|other| Some(other.hello.connection?.0));
        found.extend(seen.filter(|address| address::is_own(*address)));
    } else {
        found.extend(first.hello.connection.map(|(_, own)| own));
    }
    found.extend(address::resolve(first.host));
    if first.is_here {
        let others = others.iter().filter(|other| !other.is_here);
        let theirs = others.flat_map(|other| address::resolve(other.host));
        found.extend(theirs.filter_map(address::on_the_way_to));
    }
    let outward = found.iter().find(|address| !address.is_loopback());
    outward.or(found.first()).map_or_else(|| first.host.to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(connection: Option<(&str, &str)>) -> Hello {
        let connection = connection.map(|(a, b)| (a.parse().unwrap(), b.parse().unwrap()));
        Hello { version: String::new(), name: String::new(), connection, port: 29400 }
    }

    /// A name, whether it is here, and what ssh says of its connection.
    type Named<'a> = (&'a str, bool, Option<(&'a str, &'a str)>);

    fn first(hosts: &[Named<'_>]) -> String {
        let hellos: Vec<Hello> =
            hosts.iter().map(|(_, _, connection)| hello(*connection)).collect();
        let present = hosts.iter().zip(&hellos);
        let present: Vec<Present<'_>> = present
            .map(|((host, is_here, _), hello)| Present { host, is_here: *is_here, hello })
            .collect();
        address_of_first(&present)
    }

    #[test]
    fn the_address_by_which_ssh_came_is_taken() {
        let ssh = Some(("10.7.0.9", "10.7.0.1"));
        assert_eq!(first(&[("no-such.invalid", false, ssh), ("b", true, None)]), "10.7.0.1");
        // An alias that only ssh knows, and no word of ssh: the others may know the name.
        assert_eq!(
            first(&[("no-such.invalid", false, None), ("b", true, None)]),
            "no-such.invalid"
        );
        assert_eq!(first(&[("192.0.2.7", false, None), ("b", true, None)]), "192.0.2.7");
    }

    #[test]
    fn of_this_host_the_address_is_taken_from_which_others_were_called() {
        // An address that is not this host's is a gateway's.
        let (through, from) = (Some(("192.0.2.99", "192.0.2.2")), Some(("127.0.0.5", "127.0.0.2")));
        assert_eq!(
            first(&[("localhost", true, None), ("x.invalid", false, through)]),
            first(&[("localhost", true, None)])
        );
        assert_eq!(
            first(&[("no-such.invalid", true, None), ("x.invalid", false, from)]),
            "127.0.0.5"
        );
    }
}
