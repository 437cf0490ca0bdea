//! Serves memory over NBD, to measure the server by itself: `serve_ram ADDRESS SIZE_MIB`.
//!
//! It ends with its standard input.

use larder_device::ram::RamDevice;
use larder_serve::nbd::{NbdServer, ServeAddress, ServerOptions};
use std::{io::Read, process::ExitCode, sync::Arc};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let (address, mib) = match arguments.as_slice() {
        [_, address, mib] => (address.parse::<ServeAddress>(), mib.parse::<u64>()),
        _ => {
            eprintln!("usage: serve_ram unix:PATH|tcp:HOST:PORT SIZE_MIB");
            return ExitCode::from(2);
        }
    };
    let (Ok(address), Ok(mib)) = (address, mib) else {
        eprintln!("That is no address or no size.");
        return ExitCode::from(2);
    };
    let device = Arc::new(RamDevice::new("ram", mib << 20, 512));
    let server = match NbdServer::bind(address, "", device, ServerOptions::default()) {
        Ok(server) => server,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    if let Err(error) = server.start() {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    println!("{}", server.local_address());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    server.shutdown();
    ExitCode::SUCCESS
}
