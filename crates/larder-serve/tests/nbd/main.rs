//! Tests of the NBD server and of the NBD client against it, against real clients, and against a
//! real server.

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
