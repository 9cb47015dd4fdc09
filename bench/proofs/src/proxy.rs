//! A proxy between servers, or between a client and a server.

use firn_base::sync::{Arc, AtomicBool, Mutex, Ordering};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

/// Forwards connections to a server; they can be cut and stalled.
pub struct Proxy {
    /// Where it listens.
    pub address: String,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    target: Mutex<String>,
    is_stalled: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// Listens at a free port of this machine, and forwards connections to `target`.
    pub fn start(target: &str) -> std::io::Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let state = Arc::new(State { target: Mutex::new(target.to_owned()), ..State::default() });
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let target = shared.target.lock().clone();
                if let Ok(server) = TcpStream::connect(target) {
                    forward(&shared, &client, &server);
                    forward(&shared, &server, &client);
                }
            }
        });
        Ok(Proxy { address, state })
    }

    /// New connections go there.
    pub fn forward_to(&self, target: &str) {
        target.clone_into(&mut self.state.target.lock());
    }

    /// Ends all connections.
    pub fn cut(&self) {
        for connection in self.state.connections.lock().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// From now on nothing arrives, and no connection ends; or everything arrives again.
    pub fn stall(&self, stall: bool) {
        self.state.is_stalled.store(stall, Ordering::SeqCst);
    }
}

fn forward(state: &Arc<State>, from: &TcpStream, to: &TcpStream) {
    let (Ok(mut from), Ok(mut to), Ok(kept)) = (from.try_clone(), to.try_clone(), from.try_clone()) else {
        return;
    };
    state.connections.lock().push(kept);
    let state = state.clone();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            while state.is_stalled.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
            if to.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    });
}
