//! Where something listens, and nodes by name and address, as operators write them.

use std::fmt;
use std::net::IpAddr;

/// `ADDRESS:PORT` as written: a name, an IPv4 address or an IPv6 address in brackets.
///
/// It is resolved when it is bound or dialled.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// Host, without brackets.
    pub host: String,
    /// TCP port; 0 lets the system choose.
    pub port: u16,
}

impl Address {
    /// Reads `ADDRESS:PORT`; `None` if that is not its form.
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']')?,
            None if host.contains(':') => return None,
            None => host,
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
        if host.is_empty() || !host.bytes().all(plain) || !port.bytes().all(|b| b.is_ascii_digit())
        {
            return None;
        }
        Some(Self { host: host.to_owned(), port: port.parse().ok()? })
    }

    /// Whether it is written as an address that only this machine reaches.
    pub fn is_loopback(&self) -> bool {
        let ip: Option<IpAddr> = self.host.parse().ok();
        ip.map_or(self.host == "localhost", |ip| ip.is_loopback())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Another node, `NAME@ADDRESS:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The node's name.
    pub name: String,
    /// Its peer listener.
    pub address: Address,
}

impl Peer {
    /// Reads `NAME@ADDRESS:PORT`; `None` if that is not its form.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, address) = text.split_once('@')?;
        let address = Address::parse(address).filter(|address| address.port != 0)?;
        is_node_name(name).then(|| Self { name: name.to_owned(), address })
    }
}

/// Whether a node may be called so: letters, digits, `.`, `-`, `_`, 255 bytes at most.
pub fn is_node_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    !name.is_empty() && name.len() <= 255 && name.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_read_as_they_are_written() {
        for (text, address) in [
            ("a@10.0.0.1:25672", "10.0.0.1:25672"),
            ("b-1.c_d@[::1]:1", "[::1]:1"),
            ("c@host.example:65535", "host.example:65535"),
        ] {
            let peer = Peer::parse(text).unwrap();
            assert_eq!(format!("{}@{}", peer.name, peer.address), text);
            assert_eq!(peer.address.to_string(), address);
        }
        for text in [
            "a",
            "a@b",
            "@h:1",
            "a@:1",
            "a@::1:1",
            "a b@h:1",
            "a@h:+1",
            "a@h:0",
            "a@h:65536",
            "a@h:",
            "a@h:x",
            "a@[::1:1",
            "a/b@h:1",
            "",
            "h:1",
        ] {
            assert_eq!(Peer::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_only_here_is_known() {
        let is_only_here = |text| Address::parse(text).unwrap().is_loopback();
        for text in ["127.0.0.1:1", "127.4.0.1:1", "[::1]:1", "localhost:1"] {
            assert!(is_only_here(text), "{text}");
        }
        for text in ["10.0.0.1:1", "0.0.0.0:1", "[::]:1", "host:1"] {
            assert!(!is_only_here(text), "{text}");
        }
    }
}
