//! Tests of the NBD server, and of the NBD client against it.
//!
//! The server meets real clients too, and the client a real server.

#![allow(missing_docs)]

mod bytes;
mod client;
mod common;
mod hosts;
mod lifecycle;
mod options;
mod recorded;
mod requests;
mod tools;
