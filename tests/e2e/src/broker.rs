//! The broker that a case talks to: a node of its own, or an external one.
//!
//! `E2E_BROKER_URI=amqp://HOST:PORT` and `E2E_BROKER_HTTP=http://HOST:PORT` point the cases at a
//! running RabbitMQ 4.3, to see whether what they demand is what it does. Each case then gets a
//! virtual host of its own. Where we differ on purpose a case asks [`Broker::is_ours`].

use std::net::{SocketAddr, ToSocketAddrs};

use serde_json::json;

use crate::client::Client;
use crate::client::connect::Options;
use crate::http::{Api, segment};
use crate::node::{Node, Setup};

/// A broker to test.
#[derive(Debug)]
pub struct Broker {
    /// Its AMQP listener.
    pub amqp: SocketAddr,
    /// Its management API, as `guest`.
    pub api: Api,
    /// The virtual host of this case.
    pub vhost: String,
    /// The node, if it is ours.
    pub node: Option<Node>,
}

impl Broker {
    /// The external broker if there is one, else a new node.
    pub fn start() -> Self {
        Self::start_with(Setup::new())
    }

    /// The external broker if there is one, else a new node with these settings.
    pub fn start_with(setup: Setup) -> Self {
        Self::external().unwrap_or_else(|| Self::with(setup))
    }

    /// A new node with settings of its own, or `None` if the tests run against an external broker.
    pub fn own(setup: Setup) -> Option<Self> {
        if external_uri().is_some() {
            eprintln!("skipped: needs a node of its own");
            return None;
        }
        Some(Self::with(setup))
    }

    fn with(setup: Setup) -> Self {
        let node = setup.start();
        Self { amqp: node.amqp, api: Api::new(node.http), vhost: "/".into(), node: Some(node) }
    }

    fn external() -> Option<Self> {
        let amqp = external_uri()?;
        let http = std::env::var("E2E_BROKER_HTTP").expect("E2E_BROKER_HTTP goes with the URI");
        let api = Api::new(address(&http));
        let name = std::thread::current().name().unwrap_or("case").replace("::", "-");
        let vhost = format!("e2e-{name}");
        api.delete(&format!("vhosts/{}", segment(&vhost)));
        let answer = api.put(&format!("vhosts/{}", segment(&vhost)), &json!({}));
        assert!(answer.status < 300, "the virtual host can be made: {}", answer.text());
        let everything = json!({ "configure": ".*", "write": ".*", "read": ".*" });
        api.put(&format!("permissions/{}/guest", segment(&vhost)), &everything);
        Some(Self { amqp, api, vhost, node: None })
    }

    /// Whether this is our node, so that what we do differently applies.
    pub fn is_ours(&self) -> bool {
        self.node.is_some()
    }

    /// Our node.
    pub fn node(&mut self) -> &mut Node {
        self.node.as_mut().expect("the case made sure that the node is ours")
    }

    /// How `guest` connects to this case's virtual host.
    pub fn options(&self) -> Options {
        Options::new(self.amqp).vhost(&self.vhost)
    }

    /// A connection.
    pub fn connect(&self) -> Client {
        self.options().connect().expect("guest may connect")
    }

    /// A connection with channel 1 open.
    pub fn channel(&self) -> Client {
        let mut client = self.connect();
        client.open(1).expect("a channel can be opened");
        client
    }

    /// The virtual host as a path segment.
    pub fn vhost_segment(&self) -> String {
        segment(&self.vhost)
    }

    /// The path of a queue in the API.
    pub fn queue_path(&self, queue: &str) -> String {
        format!("queues/{}/{}", self.vhost_segment(), segment(queue))
    }

    /// The path of an exchange in the API.
    pub fn exchange_path(&self, exchange: &str) -> String {
        format!("exchanges/{}/{}", self.vhost_segment(), segment(exchange))
    }

    /// Makes a user with these permissions on this case's virtual host.
    pub fn user(&self, name: &str, configure: &str, write: &str, read: &str) {
        let user = self.api.put(
            &format!("users/{}", segment(name)),
            &json!({ "password": "secret", "tags": "management" }),
        );
        assert!(user.status < 300, "user {name}: {}", user.text());
        self.permit(name, configure, write, read);
    }

    /// Sets a user's permissions on this case's virtual host.
    pub fn permit(&self, name: &str, configure: &str, write: &str, read: &str) {
        let path = format!("permissions/{}/{}", self.vhost_segment(), segment(name));
        let body = json!({ "configure": configure, "write": write, "read": read });
        let answer = self.api.put(&path, &body);
        assert!(answer.status < 300, "permissions of {name}: {}", answer.text());
    }

    /// Sets a policy on this case's virtual host.
    pub fn policy(&self, name: &str, pattern: &str, definition: &serde_json::Value) {
        let path = format!("policies/{}/{name}", self.vhost_segment());
        let body = json!({ "pattern": pattern, "definition": definition, "apply-to": "all" });
        let answer = self.api.put(&path, &body);
        assert!(answer.status < 300, "policy {name}: {}", answer.text());
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if self.node.is_none() && !std::thread::panicking() {
            self.api.delete(&format!("vhosts/{}", self.vhost_segment()));
        }
    }
}

fn external_uri() -> Option<SocketAddr> {
    std::env::var("E2E_BROKER_URI").ok().map(|uri| address(&uri))
}

fn address(uri: &str) -> SocketAddr {
    let host = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    let host = host.rsplit('@').next().unwrap_or_default();
    let host = host.split('/').next().unwrap_or_default();
    host.to_socket_addrs()
        .ok()
        .and_then(|mut addresses| addresses.next())
        .unwrap_or_else(|| panic!("no address in {uri:?}"))
}
