//! A node that gives prepared answers, one after the other, and writes down what it is asked.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

/// A status and a body.
pub(crate) type Answer = (u16, &'static str);

/// See the module head.
pub(crate) struct Node {
    port: u16,
    serving: JoinHandle<Vec<String>>,
}

impl Node {
    /// Listens on a free port.
    pub(crate) fn start(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("a bound listener").port();
        Self { port, serving: std::thread::spawn(move || serve(&listener, answers)) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The requests: method, path, body. Those that never came are not waited for.
    pub(crate) fn asked(self) -> Vec<String> {
        // Ends the waiting for answers that were prepared in vain.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        self.serving.join().expect("the node does not panic")
    }
}

fn serve(listener: &TcpListener, answers: Vec<Answer>) -> Vec<String> {
    let mut asked = Vec::new();
    for (status, body) in answers {
        let (mut stream, _) = listener.accept().expect("a connection");
        let Some(request) = read(&mut stream) else { return asked };
        asked.push(request);
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        )
        .expect("the client reads");
    }
    asked
}

/// One request; `None` if the connection ends before it.
fn read(stream: &mut TcpStream) -> Option<String> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|length| *length > 0)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let request = first.trim().trim_end_matches(" HTTP/1.1");
    let body = String::from_utf8(body).ok()?;
    Some(format!("{request} {body}").trim_end().to_owned())
}
