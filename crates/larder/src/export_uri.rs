//! The URI of an export, for clients.
//!
//! It does not listen there.

use larder_serve::nbd::ServeAddress;

/// Returns the URI of the export `name` at an address, in the form of NBD's clients.
pub fn uri(address: &ServeAddress, name: &str) -> String {
    let name = percent_encoded(name.as_bytes());
    match address {
        ServeAddress::Tcp(host_port) => format!("nbd://{host_port}/{name}"),
        ServeAddress::Unix(path) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            format!("nbd+unix:///{name}?socket={}", percent_encoded(path.as_os_str().as_encoded_bytes()))
        }
    }
}

fn percent_encoded(bytes: &[u8]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let encode = |&byte: &u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    bytes.iter().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_what_clients_take() {
        let unix = ServeAddress::Unix("/run/a b.sock".into());
        assert_eq!(uri(&unix, ""), "nbd+unix:///?socket=/run/a%20b.sock");
        assert_eq!(uri(&unix, "disk"), "nbd+unix:///disk?socket=/run/a%20b.sock");
        assert_eq!(uri(&ServeAddress::Tcp("[::1]:10809".into()), "x"), "nbd://[::1]:10809/x");
    }
}
