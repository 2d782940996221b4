//! Which resolvers agents may ask: those that this pod was given, as every pod of the cluster is, and those that an administrator names.
//!
//! A cache on the node, or a resolver on a host, has no pod that a policy could select; the kubelet writes its address into every pod.
//! Caveat: an operator outside of the cluster, or in its host's network, has other resolvers: they count only if they are private.

use std::net::IpAddr;

/// Where the kubelet writes them.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The ranges of all of them, those of the command line first.
pub(super) fn ranges(named: Vec<String>) -> Vec<String> {
    let text = std::fs::read_to_string(RESOLV_CONF).unwrap_or_default();
    let mut ranges = named;
    for range in of_text(&text) {
        if !ranges.contains(&range) {
            ranges.push(range);
        }
    }
    ranges
}

/// A range as a network policy takes it: what is wrong would be refused with every job.
pub(super) fn range(text: &str) -> Result<String, String> {
    let wrong = || "write an address and its bits, as 169.254.20.10/32 or fd00::10/128".to_owned();
    let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
    let most = most_bits(address.parse().map_err(|_| wrong())?);
    if bits.parse::<u8>().is_ok_and(|bits| bits <= most) {
        Ok(text.to_owned())
    } else {
        Err(wrong())
    }
}

/// The private resolvers of a `resolv.conf`. One on the internet would be a way out.
fn of_text(text: &str) -> Vec<String> {
    let addresses = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = (words.next() == Some("nameserver")).then(|| words.next())??;
        address.parse::<IpAddr>().ok()
    });
    addresses
        .filter(|address| is_private(*address))
        .map(|address| format!("{address}/{}", most_bits(address)))
        .collect()
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [first, second, ..] = v4.octets();
            let is_shared = first == 100 && (64..128).contains(&second);
            v4.is_private() || v4.is_link_local() || is_shared
        }
        IpAddr::V6(v6) => v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

fn most_bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_of_the_cluster_count_and_those_of_the_internet_do_not() {
        let text = "# made by the kubelet\nsearch rl.svc.cluster.local svc.cluster.local\nnameserver 10.96.0.10\nnameserver 169.254.20.10\n\
                    nameserver 100.100.2.136\nnameserver 8.8.8.8\nnameserver 127.0.0.53\nnameserver fd00::a\nnameserver 2001:4860:4860::8888\n\
                    nameserver\nnameserver none\noptions ndots:5\n";
        assert_eq!(
            of_text(text),
            [
                "10.96.0.10/32",
                "169.254.20.10/32",
                "100.100.2.136/32",
                "fd00::a/128"
            ]
        );
    }

    #[test]
    fn a_range_is_an_address_with_its_bits() {
        for good in ["169.254.20.10/32", "10.0.0.0/8", "fd00::10/128"] {
            assert_eq!(range(good).as_deref(), Ok(good));
        }
        for bad in [
            "169.254.20.10",
            "10.0.0.0/33",
            "dns/32",
            "fd00::10/129",
            "/",
            "",
        ] {
            assert!(range(bad).is_err(), "{bad}");
        }
    }
}
