//! Channel 0: handshake, login, alarms.

use super::malformed::bad_method;
use super::reply::Waiting;
use super::{Failure, Phase, Session, unexpected_frame, unknown_frame};
use crate::config::{CHANNEL_MAX_MIN, FRAME_MAX_MIN, Offer};
use crate::error::code;
use crate::request::{Error, Mechanism, Request};
use amq_protocol::protocol::{AMQPClass, connection};
use amq_protocol::types::{AMQPValue, FieldTable};
use wire::frame::Kind;
use wire::{method, table};

/// What the client said about itself.
#[derive(Debug, Default)]
pub(super) struct Client {
    /// `client_properties` of `start-ok`.
    pub(super) properties: FieldTable,
    /// It understands `basic.cancel` from the server.
    pub(super) takes_cancel: bool,
    /// It understands `connection.blocked`.
    pub(super) takes_blocked: bool,
    /// It wants `connection.close` when its login is refused.
    pub(super) takes_refusal: bool,
    /// The mechanism that it chose.
    pub(super) mechanism: Option<Offer>,
    /// Its login.
    pub(super) user: String,
    pub(super) vhost: String,
}

/// Alarms, as far as this connection is concerned.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    /// Why there is one.
    reason: Option<String>,
    /// This connection published since it began: nothing more is read.
    pub(super) blocks: bool,
    /// The client was told.
    told: bool,
}

impl Alarm {
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.reason.is_some()
    }
}

impl Session {
    /// The protocol header was right.
    pub(super) fn start(&mut self) {
        let mechanisms: Vec<&str> =
            self.config.mechanisms.iter().map(|offer| offer.name()).collect();
        let start = connection::Start {
            version_major: 0,
            version_minor: 9,
            server_properties: self.config.server_properties.clone(),
            mechanisms: mechanisms.join(" ").into(),
            locales: "en_US".into(),
        };
        self.send(connection::AMQPMethod::Start(start));
        self.phase = Phase::Starting;
    }

    pub(super) fn send(&mut self, method: connection::AMQPMethod) {
        self.outbox.method(0, &AMQPClass::Connection(method));
    }

    pub(super) fn on_connection_frame(
        &mut self,
        kind: Kind,
        payload: &[u8],
    ) -> Result<(), Failure> {
        match kind {
            Kind::Heartbeat => Ok(()),
            Kind::Method => {
                if matches!(self.phase, Phase::Closing) {
                    // all but the end is ignored, readable or not
                    match method::ids(payload) {
                        Some((10, 50)) => self.confirm_close_at_once(),
                        Some((10, 51)) => self.phase = Phase::Closed,
                        _ => {}
                    }
                    return Ok(());
                }
                let Some(ids) = method::ids(payload) else {
                    return Err(unknown_frame(kind, 0, payload));
                };
                let parsed =
                    method::parse(payload).map_err(|error| bad_method(0, payload, &error))?;
                let result = match parsed {
                    AMQPClass::Connection(method) => self.on_connection_method(method),
                    _ => Err(self.unexpected_method()),
                };
                result.map_err(|error| Failure { channel: 0, ids, error })
            }
            Kind::Header | Kind::Body if self.phase == Phase::Closing => Ok(()),
            Kind::Header | Kind::Body => Err(unexpected_frame(kind, 0, payload)),
        }
    }

    fn confirm_close_at_once(&mut self) {
        self.send(connection::AMQPMethod::CloseOk(connection::CloseOk {}));
        // a client that sent `close` at the same time does not answer ours
        self.phase = Phase::Closed;
    }

    fn unexpected_method(&self) -> Error {
        let state = match self.phase {
            Phase::Greeting | Phase::Starting => "starting",
            Phase::Tuning => "tuning",
            Phase::Opening => "opening",
            Phase::Running => "running",
            Phase::Closing | Phase::Lingering => "closing",
            Phase::Closed => "closed",
        };
        let text = format!("unexpected method in connection state {state}");
        Error::new(code::CHANNEL_ERROR, text)
    }

    fn on_connection_method(&mut self, method: connection::AMQPMethod) -> Result<(), Error> {
        use connection::AMQPMethod as M;
        match (method, self.phase) {
            (M::StartOk(start_ok), Phase::Starting) => self.on_start_ok(start_ok),
            (M::TuneOk(tune_ok), Phase::Tuning) => self.on_tune_ok(&tune_ok),
            (M::Open(open), Phase::Opening) => {
                let vhost = String::from(open.virtual_host);
                self.client.vhost.clone_from(&vhost);
                self.requests.push(Request::Open { vhost });
                self.waiting = Some(Waiting::Open);
                Ok(())
            }
            (M::UpdateSecret(update), Phase::Running) => {
                let secret = update.new_secret.as_bytes().to_vec();
                self.requests.push(Request::UpdateSecret { secret });
                self.waiting = Some(Waiting::UpdateSecret);
                Ok(())
            }
            (M::Close(_), _) => {
                self.on_connection_close();
                Ok(())
            }
            _ => Err(self.unexpected_method()),
        }
    }

    fn on_start_ok(&mut self, start_ok: connection::StartOk) -> Result<(), Error> {
        let name = start_ok.mechanism.as_str();
        let offer = self.config.mechanisms.iter().find(|offer| offer.name() == name);
        let Some(&offer) = offer else {
            let text = format!("unknown authentication mechanism '{name}'");
            return Err(Error::new(code::COMMAND_INVALID, text));
        };
        let capable = |name: &str| match start_ok.client_properties.inner().get("capabilities") {
            Some(AMQPValue::FieldTable(capabilities)) => {
                matches!(capabilities.inner().get(name), Some(AMQPValue::Boolean(true)))
            }
            _ => false,
        };
        self.client.takes_cancel = capable("consumer_cancel_notify");
        self.client.takes_blocked = capable("connection.blocked");
        self.client.takes_refusal = capable("authentication_failure_close");
        self.client.mechanism = Some(offer);
        self.client.properties = start_ok.client_properties.clone();
        let response = start_ok.response.as_bytes();
        let mechanism = match offer {
            Offer::Plain => plain(response),
            Offer::Amqplain => amqplain(response),
            Offer::External => Some(Mechanism::External),
            Offer::Anonymous => Some(Mechanism::Anonymous),
        };
        let Some(mechanism) = mechanism else {
            self.refuse_login("malformed response");
            return Ok(());
        };
        self.requests.push(Request::Authenticate {
            mechanism,
            client_properties: start_ok.client_properties,
        });
        self.waiting = Some(Waiting::Authenticate);
        Ok(())
    }

    pub(super) fn on_authenticated(&mut self, user: String) {
        self.client.user = user;
        self.frame_max_in = self.config.frame_max;
        self.send(connection::AMQPMethod::Tune(connection::Tune {
            channel_max: self.config.channel_max,
            frame_max: self.config.frame_max,
            heartbeat: self.config.heartbeat,
        }));
        self.phase = Phase::Tuning;
    }

    /// Tells a capable client with 403, and lets the others guess.
    pub(super) fn refuse_login(&mut self, why: &str) {
        let mechanism = self.client.mechanism.map_or("PLAIN", Offer::name);
        if self.client.takes_refusal {
            let text = format!(
                "Login was refused using authentication mechanism {mechanism}. For details see the broker logfile."
            );
            self.end = Some(format!("login refused: {why}"));
            self.close_connection(&Error::new(code::ACCESS_REFUSED, text), (0, 0));
        } else {
            self.linger(format!("login refused: {why}"));
        }
    }

    fn on_tune_ok(&mut self, tune_ok: &connection::TuneOk) -> Result<(), Error> {
        let config = &self.config;
        check_negotiated("frame_max", tune_ok.frame_max, FRAME_MAX_MIN, config.frame_max)?;
        check_negotiated(
            "channel_max",
            tune_ok.channel_max.into(),
            CHANNEL_MAX_MIN.into(),
            config.channel_max.into(),
        )?;
        self.frame_max_in = tune_ok.frame_max;
        self.outbox.frame_max = tune_ok.frame_max;
        self.channel_max = tune_ok.channel_max;
        self.clock.set_heartbeat(tune_ok.heartbeat);
        self.phase = Phase::Opening;
        Ok(())
    }

    pub(super) fn on_opened(&mut self) {
        self.send(connection::AMQPMethod::OpenOk(connection::OpenOk {}));
        self.phase = Phase::Running;
        self.clock.end_handshake();
    }

    pub(super) fn on_alarm(&mut self, reason: String) {
        self.alarm.reason = Some(reason);
    }

    pub(super) fn on_alarm_ended(&mut self) {
        let told = self.alarm.told;
        self.alarm = Alarm::default();
        if told && self.phase == Phase::Running {
            self.send(connection::AMQPMethod::Unblocked(connection::Unblocked {}));
        }
    }

    /// The client published during an alarm: this was the last thing to be read from it for now.
    pub(super) fn block(&mut self) {
        self.alarm.blocks = true;
        if self.alarm.told || !self.client.takes_blocked {
            return;
        }
        self.alarm.told = true;
        let mut reason = self.alarm.reason.clone().unwrap_or_default();
        reason.truncate(reason.floor_char_boundary(255));
        let blocked = connection::Blocked { reason: reason.into() };
        self.send(connection::AMQPMethod::Blocked(blocked));
    }
}

/// A client may lower a limit, not raise it, and 0 (no limit) is higher than any.
fn check_negotiated(field: &str, client: u32, min: u32, server: u32) -> Result<(), Error> {
    let (relation, bound, allowed) = if client != 0 && client < min {
        ("lower", "minimum", min)
    } else if server != 0 && (client == 0 || client > server) {
        ("higher", "maximum", server)
    } else {
        return Ok(());
    };
    let detail = if field == "channel_max" && client == 0 { " (no limit)" } else { "" };
    Err(Error::not_allowed(format!(
        "negotiated {field} = {client}{detail} is {relation} than the {bound} allowed value ({allowed})"
    )))
}

/// `[authorization id] 0 login 0 password`
fn plain(response: &[u8]) -> Option<Mechanism> {
    let mut parts = response.splitn(3, |&byte| byte == 0);
    let (_, user, password) = (parts.next()?, parts.next()?, parts.next()?);
    let user = String::from_utf8(user.to_vec()).ok()?;
    Some(Mechanism::Password { name: "PLAIN", user, password: password.to_vec() })
}

/// The entries of a field table, without the length before them.
fn amqplain(response: &[u8]) -> Option<Mechanism> {
    let table = table::parse(response).ok()?;
    let text = |name: &str| match table.inner().get(name)? {
        AMQPValue::LongString(text) => Some(text.as_bytes().to_vec()),
        AMQPValue::ByteArray(bytes) => Some(bytes.as_slice().to_vec()),
        _ => None,
    };
    let user = String::from_utf8(text("LOGIN")?).ok()?;
    Some(Mechanism::Password { name: "AMQPLAIN", user, password: text("PASSWORD")? })
}
