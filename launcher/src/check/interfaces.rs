//! Network interfaces of this host, and which of them NCCL would take for its sockets.

use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use super::finding::Finding;

const SUBJECT: &str = "NCCL's network";

/// An interface that is up, with an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub address: IpAddr,
}

/// Those that are up, in the system's order. Link-local addresses of IPv6 are left out, as NCCL does.
pub fn interfaces() -> Vec<Interface> {
    let all = getifaddrs().into_iter().flatten();
    let up = all.filter(|one| one.flags.contains(InterfaceFlags::IFF_UP));
    let with_address = up.filter_map(|one| {
        let storage = one.address?;
        let v4 = storage.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
        let v6 = || storage.as_sockaddr_in6().map(|address| address.ip());
        let v6 = || v6().filter(|ip| !ip.is_unicast_link_local()).map(IpAddr::from);
        Some(Interface { name: one.interface_name, address: v4.or_else(v6)? })
    });
    with_address.collect()
}

/// Names that `NCCL_SOCKET_IFNAME` takes: beginnings, of which `=` makes whole names and `^` the ones that it does not.
fn matches(rule: &str, name: &str) -> bool {
    let (excluding, rule) = rule.strip_prefix('^').map_or((false, rule), |rest| (true, rest));
    let (whole, rule) = rule.strip_prefix('=').map_or((false, rule), |rest| (true, rest));
    let fits = |part: &str| if whole { name == part } else { name.starts_with(part) };
    // A port may follow a name.
    let parts = rule.split(',').map(|part| part.split(':').next().unwrap_or(part));
    excluding != parts.filter(|part| !part.is_empty()).any(fits)
}

/// What NCCL would take of these: what the rule of the user says, else InfiniBand's, else any but Docker's and the
/// loopback, else Docker's, else the loopback.
pub fn nccl_choice<'a>(interfaces: &'a [Interface], rule: Option<&str>) -> Vec<&'a Interface> {
    let rules = match rule {
        Some(rule) => vec![rule],
        None => vec!["ib", "^docker,lo", "docker", "lo"],
    };
    let of = |rule: &&str| -> Vec<&Interface> {
        interfaces.iter().filter(|one| matches(rule, &one.name)).collect()
    };
    rules.iter().map(of).find(|found| !found.is_empty()).unwrap_or_default()
}

/// What there is to say of NCCL's choice. `reached`: the addresses by which other hosts reach this one.
pub fn nccl(
    interfaces: &[Interface],
    rule: Option<&str>,
    reached: &[IpAddr],
    gpus: usize,
) -> Finding {
    let rule = rule.filter(|rule| !rule.is_empty());
    let choice = nccl_choice(interfaces, rule);
    let names: Vec<String> =
        choice.iter().map(|one| format!("{} ({})", one.name, one.address)).collect();
    let by = match rule {
        Some(rule) => format!(" by NCCL_SOCKET_IFNAME={rule}"),
        None => String::new(),
    };
    // Without a GPU nobody uses NCCL here.
    let bad = if gpus > 0 { Finding::error } else { Finding::warning };
    let there: Vec<&str> = interfaces.iter().map(|one| one.name.as_str()).collect();
    let Some(first) = choice.first() else {
        return bad(
            SUBJECT,
            format!(
                "NCCL finds no interface{by}; there are {}: name one in NCCL_SOCKET_IFNAME",
                there.join(", ")
            ),
        );
    };
    let shown = format!("NCCL would take {}{by}", names.join(", "));
    let mut reached = reached.iter().filter(|address| !address.is_loopback()).peekable();
    let has_others = reached.peek().is_some();
    // NCCL uses all that it takes.
    match reached.find(|address| !choice.iter().any(|one| one.address == **address)) {
        _ if has_others && (first.address.is_loopback() || first.name.starts_with("docker")) => {
            bad(
                SUBJECT,
                format!(
                    "{shown}, which leads to no other host: name the right one in NCCL_SOCKET_IFNAME on all hosts"
                ),
            )
        }
        Some(address) => {
            let of = interfaces.iter().find(|one| one.address == *address);
            let of = of.map_or("another", |one| one.name.as_str());
            Finding::warning(
                SUBJECT,
                format!(
                    "{shown}, and the hosts reach each other by {address} ({of}): if that is not meant, set \
                     NCCL_SOCKET_IFNAME={of} on all hosts"
                ),
            )
        }
        None => Finding::ok(SUBJECT, shown),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn of(names: &[(&str, &str)]) -> Vec<Interface> {
        let one = |(name, address): &(&str, &str)| Interface {
            name: (*name).to_owned(),
            address: address.parse().unwrap(),
        };
        names.iter().map(one).collect()
    }

    #[test]
    fn nccls_rules_are_followed() {
        let all = of(&[
            ("lo", "127.0.0.1"),
            ("docker0", "172.17.0.1"),
            ("eth0", "10.0.0.1"),
            ("eth1", "10.1.0.1"),
            ("ib0", "10.2.0.1"),
        ]);
        let choice = |all: &[Interface], rule: Option<&str>| {
            let found = nccl_choice(all, rule);
            found.iter().map(|one| one.name.clone()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(choice(&all, None), "ib0");
        assert_eq!(choice(&all[..4], None), "eth0 eth1");
        assert_eq!(choice(&all[..2], None), "docker0");
        assert_eq!(choice(&all[..1], None), "lo");
        assert_eq!(choice(&all, Some("eth")), "eth0 eth1");
        assert_eq!(choice(&all, Some("=eth")), "");
        assert_eq!(choice(&all, Some("=eth1,lo")), "lo eth1");
        assert_eq!(choice(&all, Some("^eth,lo,docker")), "ib0");
        assert_eq!(choice(&all, Some("^=eth0,lo")), "docker0 eth1 ib0");
    }

    #[test]
    fn a_choice_that_leads_nowhere_is_an_error_where_there_are_gpus() {
        let two = of(&[("lo", "127.0.0.1"), ("eth0", "10.0.0.1"), ("eth1", "10.1.0.1")]);
        let reached = &["10.1.0.1".parse().unwrap()];
        assert_eq!(nccl(&two, None, reached, 8).level, Level::Ok);
        assert_eq!(nccl(&two, Some("lo"), reached, 8).level, Level::Error);
        assert_eq!(nccl(&two, Some("lo"), reached, 0).level, Level::Warning);
        assert_eq!(nccl(&two, Some("lo"), &[], 8).level, Level::Ok);
        let other = nccl(&two, Some("eth0"), reached, 8);
        assert!(
            other.level == Level::Warning && other.text.contains("NCCL_SOCKET_IFNAME=eth1"),
            "{other:?}"
        );
        let none = nccl(&two, Some("ib"), reached, 8);
        assert!(
            none.level == Level::Error && none.text.contains("there are lo, eth0, eth1"),
            "{none:?}"
        );
    }

    #[test]
    fn this_host_has_a_loopback() {
        let all = interfaces();
        assert!(all.iter().any(|one| one.name == "lo" && one.address.is_loopback()), "{all:?}");
    }
}
