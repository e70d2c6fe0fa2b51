//! Opening and closing connections and channels.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::{Client, Event, Failure, METHOD, Outcome};
use crate::codec::{Reader, Table, Writer};
use crate::table;
use crate::wait::PATIENCE;

/// The protocol header of 0.9.1.
pub const PROTOCOL_HEADER: &[u8; 8] = b"AMQP\x00\x00\x09\x01";

/// How a connection is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to.
    pub address: SocketAddr,
    /// The login.
    pub user: String,
    /// Its password.
    pub password: String,
    /// The virtual host.
    pub vhost: String,
    /// `PLAIN` or `AMQPLAIN`.
    pub mechanism: String,
    /// The response as it is, instead of the one that mechanism, user and password make.
    pub response: Option<Vec<u8>>,
    /// Asked for in `tune-ok`; `None` takes the broker's.
    pub frame_max: Option<u32>,
    /// Asked for in `tune-ok`; `None` takes the broker's.
    pub channel_max: Option<u16>,
    /// Seconds, asked for in `tune-ok`; 0 by default, so that a slow test is not cut off.
    pub heartbeat: u16,
    /// Client properties; the usual capabilities by default.
    pub properties: Table,
    /// How long each answer is waited for.
    pub patience: Duration,
}

impl Options {
    /// `guest` on `/`, with the capabilities of a modern client.
    pub fn new(address: SocketAddr) -> Self {
        let capabilities = table! {
            "publisher_confirms" => true,
            "exchange_exchange_bindings" => true,
            "basic.nack" => true,
            "consumer_cancel_notify" => true,
            "connection.blocked" => true,
            "authentication_failure_close" => true,
        };
        Self {
            address,
            user: "guest".into(),
            password: "guest".into(),
            vhost: "/".into(),
            mechanism: "PLAIN".into(),
            response: None,
            frame_max: None,
            channel_max: None,
            heartbeat: 0,
            properties: table! { "product" => "e2e", "capabilities" => capabilities },
            patience: PATIENCE,
        }
    }

    /// Another login.
    #[must_use]
    pub fn login(mut self, user: &str, password: &str) -> Self {
        user.clone_into(&mut self.user);
        password.clone_into(&mut self.password);
        self
    }

    /// Another virtual host.
    #[must_use]
    pub fn vhost(mut self, vhost: &str) -> Self {
        vhost.clone_into(&mut self.vhost);
        self
    }

    /// Waits so long for each answer.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// A client that declares no capabilities.
    #[must_use]
    pub fn incapable(mut self) -> Self {
        self.properties = table! { "product" => "e2e" };
        self
    }

    /// Opens the connection.
    pub fn connect(&self) -> Outcome<Client> {
        Client::connect(self)
    }

    fn sasl_response(&self) -> Vec<u8> {
        if let Some(response) = &self.response {
            return response.clone();
        }
        if self.mechanism == "AMQPLAIN" {
            let login =
                table! { "LOGIN" => self.user.as_str(), "PASSWORD" => self.password.as_str() };
            // A bare table: no length before it.
            return Writer::default().table(&login).0.split_off(4);
        }
        format!("\0{}\0{}", self.user, self.password).into_bytes()
    }
}

impl Client {
    /// A socket and nothing else.
    pub fn raw(address: SocketAddr) -> Outcome<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))
            .map_err(|_| Failure::Disconnected)?;
        stream.set_nodelay(true).map_err(|_| Failure::Disconnected)?;
        stream
            .set_write_timeout(Some(Duration::from_mins(20)))
            .map_err(|_| Failure::Disconnected)?;
        Ok(Self::over(stream))
    }

    /// Opens a connection up to `connection.tune`, which it returns unanswered: channel maximum,
    /// frame maximum, heartbeat.
    pub fn until_tune(options: &Options) -> Outcome<(Self, (u16, u32, u16))> {
        let mut client = Self::raw(options.address)?;
        client.patience = options.patience;
        client.write(PROTOCOL_HEADER)?;
        let start = client.await_event(0, |event| event.id == (10, 10))?;
        let mut reader = Reader(&start.arguments);
        reader.u16()?;
        client.server_properties = reader.table()?;
        let start_ok = Writer::method(10, 11)
            .table(&options.properties)
            .short(&options.mechanism)
            .long(options.sasl_response())
            .short("en_US");
        let tune = client.call(0, &start_ok, (10, 30))?;
        let mut reader = Reader(&tune.arguments);
        let limits = (reader.u16()?, reader.u32()?, reader.u16()?);
        Ok((client, limits))
    }

    /// Opens a connection.
    pub fn connect(options: &Options) -> Outcome<Self> {
        let (mut client, (channel_max, frame_max, _)) = Self::until_tune(options)?;
        let frame_max = options.frame_max.unwrap_or(frame_max);
        client.frame_max = if frame_max == 0 { 131_072 } else { frame_max };
        let tune_ok = Writer::method(10, 31)
            .u16(options.channel_max.unwrap_or(channel_max))
            .u32(frame_max)
            .u16(options.heartbeat);
        client.send(0, &tune_ok)?;
        let open = Writer::method(10, 40).short(&options.vhost).short("").u8(0);
        client.call(0, &open, (10, 41))?;
        Ok(client)
    }

    /// Closes the connection properly and waits for `close-ok`.
    pub fn close(mut self) -> Outcome<()> {
        let close = Writer::method(10, 50).u16(200).short("bye").u16(0).u16(0);
        self.call(0, &close, (10, 51)).map(drop)
    }

    /// Opens a channel.
    pub fn open(&mut self, channel: u16) -> Outcome<()> {
        self.call(channel, &Writer::method(20, 10).short(""), (20, 11)).map(drop)
    }

    /// Closes a channel and waits for `close-ok`.
    pub fn close_channel(&mut self, channel: u16) -> Outcome<()> {
        let close = Writer::method(20, 40).u16(200).short("bye").u16(0).u16(0);
        self.call(channel, &close, (20, 41)).map(drop)
    }

    /// Answers a `channel.close` by hand.
    pub fn send_channel_close_ok(&mut self, channel: u16) -> Outcome<()> {
        self.write(&Writer::method(20, 41).frame(METHOD, channel))
    }

    /// Waits for `connection.blocked` and gives its reason.
    pub fn await_blocked(&mut self) -> Outcome<String> {
        let event = self.await_event(0, |event| event.id == (10, 60))?;
        Ok(Reader(&event.arguments).short()?)
    }

    /// Waits for `connection.unblocked`.
    pub fn await_unblocked(&mut self) -> Outcome<Event> {
        self.await_event(0, |event| event.id == (10, 61))
    }

    /// Changes the secret.
    pub fn update_secret(&mut self, secret: &str, reason: &str) -> Outcome<()> {
        let update = Writer::method(10, 70).long(secret).short(reason);
        self.call(0, &update, (10, 71)).map(drop)
    }

    /// When the broker has closed the socket: what it said before, if anything.
    pub fn await_end(&mut self) -> Failure {
        let deadline = Instant::now() + self.patience;
        loop {
            if let Err(failure) = self.step(deadline) {
                return match &self.failure {
                    Some(Failure::Disconnected) | None => failure,
                    Some(said) => said.clone(),
                };
            }
            if let Some(failure @ Failure::Connection { .. }) = &self.failure {
                return failure.clone();
            }
        }
    }
}
