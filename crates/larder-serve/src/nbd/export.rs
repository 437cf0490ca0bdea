//! The server's description of its device for clients.
//!
//! Role: name, size, abilities and block sizes in NBD's terms, derived from a [`DeviceInfo`] once.
//!
//! It does not hold the device.

use super::limits::ServerOptions;
use crate::dispatch::Limits;
use larder_device::{
    DeviceInfo,
    nbd::proto::{STRING_BYTES_MAX, transmission_flag as flag},
};

/// Smallest preferred block size that is offered, in bytes.
const PREFERRED_BYTES_MIN: u32 = 4096;
/// Largest preferred block size that the protocol allows, in bytes.
const PREFERRED_BYTES_MAX: u32 = 32 << 20;

/// An export: the device in NBD's terms.
#[derive(Clone, Debug)]
pub struct Export {
    /// Name that clients ask for; an empty name means this export, too.
    pub name: String,
    /// Text for people.
    pub description: String,
    /// Transmission flags.
    pub flags: u16,
    /// Requests of multiples of this are efficient.
    pub block_bytes_preferred: u32,
    /// The limits of requests.
    pub limits: Limits,
}

impl Export {
    /// Returns the export `name` of a device.
    pub fn new(name: &str, info: &DeviceInfo, options: &ServerOptions) -> Export {
        let limits = Limits::new(info, options.request_bytes_max);
        let Limits { block_bytes, request_bytes_max, .. } = limits;
        let preferred = info.optimal_io_bytes.clamp(PREFERRED_BYTES_MIN, PREFERRED_BYTES_MAX);
        let preferred = preferred.checked_next_power_of_two().unwrap_or(PREFERRED_BYTES_MAX);
        // CAN_MULTI_CONN is honest: a flush of the device covers the writes of every connection.
        let mut flags = flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_FUA | flag::SEND_DF | flag::CAN_MULTI_CONN;
        if info.read_only {
            flags |= flag::READ_ONLY;
        } else {
            flags |= flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO;
        }
        Export {
            name: name.into(),
            description: options.description.chars().take(STRING_BYTES_MAX / 4).collect(),
            flags,
            block_bytes_preferred: preferred.max(block_bytes).min(request_bytes_max.max(PREFERRED_BYTES_MIN)),
            limits,
        }
    }
}
