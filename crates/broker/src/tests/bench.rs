//! A node without listeners, and connections that are only gateways.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use amq_protocol_types::{AMQPValue, FieldTable};
use amqp::broker::Broker;
use amqp::mailbox::Mailbox;
use amqp::request::{
    Consume, Delivery, Flow, Mechanism, Outcome, Publish, QueueDeclare, Reply, Request, Unsettled,
};
use model::id::{ConsumerId, QueueId};
use model::message::Message;
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::config::{Config, MemoryLimit};
use crate::gateway::{Gateway, Peer};
use crate::node::Node;
use crate::origin::{InFlight, Origin};
use crate::outlet::Outlet;
use crate::shard::command::{Command, Consume as Subscribe, Consumed};
use crate::shard::view::QueueView;
use crate::start::{self, Started};

/// A node in the hands of a test.
pub(super) struct Bench {
    pub(super) started: Started,
    pub(super) folder: TempDir,
}

fn config(folder: &Path) -> Config {
    let mut config = Config { data_dir: folder.join("data"), ..Config::default() };
    // One shard: what a test posts is performed in its order.
    config.node.shards = 1;
    config
}

impl Bench {
    pub(super) fn start() -> Self {
        Self::start_with(|_| ())
    }

    pub(super) fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut config = config(folder.path());
        change(&mut config);
        let started = start::start(config, None).expect("the node starts");
        Self { started, folder }
    }

    /// Transient messages are spilled to disk as soon as one of them is in memory.
    pub(super) fn start_without_memory() -> Self {
        Self::start_with(|config| config.memory.limit = MemoryLimit::Bytes(0))
    }

    pub(super) async fn restart(self) -> Self {
        let Self { started, folder } = self;
        let config = started.node.config.clone();
        started.stop(Duration::from_secs(10)).await;
        let started = start::start(config, None).expect("the node starts again");
        Self { started, folder }
    }

    pub(super) async fn client(&self) -> Client {
        let node = &self.started.node;
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let peer = Peer { local: nowhere, remote: nowhere, tls: None, certificate_user: None };
        let record = node.connections.add(peer, |id| Origin {
            id,
            outlet: Outlet::new(Mailbox::new()),
            totals: Arc::clone(&node.totals),
            in_flight: InFlight::default(),
        });
        let origin = Arc::clone(&record.origin);
        let gateway = Gateway::new(Arc::clone(node), record);
        let mut client = Client { gateway, origin, node: Arc::clone(node) };
        let mechanism = Mechanism::Password {
            name: "PLAIN",
            user: "guest".into(),
            password: b"guest".to_vec(),
        };
        let client_properties = FieldTable::default();
        client.ask(Request::Authenticate { mechanism, client_properties }).await;
        client.ask(Request::Open { vhost: "/".into() }).await;
        client.ask(Request::ChannelOpen { channel: 1 }).await;
        client
    }

    pub(super) fn id_of(&self, queue: &str) -> Option<QueueId> {
        self.started.node.router.state().queue("/", queue).map(|queue| queue.id)
    }

    /// A look at a queue that there is.
    pub(super) async fn view(&self, queue: &str) -> QueueView {
        let id = self.id_of(queue).expect("the queue is known");
        let views = self.started.node.views().await;
        views.into_iter().find(|view| view.id == id).expect("its shard has it")
    }
}

/// A connection without a socket.
pub(super) struct Client {
    pub(super) gateway: Gateway,
    origin: Arc<Origin>,
    node: Arc<Node>,
}

impl Client {
    pub(super) async fn ask(&mut self, request: Request) -> Reply {
        let reply = self.gateway.call(request).await;
        self.gateway.settled().await;
        assert!(!matches!(reply, Reply::Refused(_)), "{reply:?}");
        reply
    }

    pub(super) async fn declare(&mut self, queue: QueueDeclare) {
        self.ask(Request::QueueDeclare(queue)).await;
    }

    pub(super) fn publish(&mut self, queue: &str, persistent: bool, body: &[u8]) {
        let properties = wire::properties::Properties {
            delivery_mode: persistent.then_some(2),
            ..wire::properties::Properties::default()
        };
        let message = Message::from_parts("", queue, &properties.encode(), body);
        let publish = Publish { channel: 1, confirm: None, mandatory: false, message };
        self.gateway.publish(publish).expect("it is taken");
        self.gateway.end_of_batch();
    }

    pub(super) async fn consume(&mut self, queue: &str, no_ack: bool, prefetch: u16) -> ConsumerId {
        let consume = Consume {
            channel: 1,
            queue: queue.into(),
            tag: "t".into(),
            no_ack,
            exclusive: false,
            arguments: FieldTable::default(),
            flow: Flow::Prefetch(prefetch),
        };
        match self.ask(Request::Consume(consume)).await {
            Reply::Consuming { consumer, .. } => consumer,
            other => panic!("{other:?}"),
        }
    }

    /// A subscription to be posted to the queue's shard, and where its answer arrives.
    pub(super) fn consuming(
        &self,
        queue: QueueId,
        no_ack: bool,
    ) -> (ConsumerId, Command, oneshot::Receiver<Consumed>) {
        let consumer = self.node.next_consumer();
        let (answer, answered) = oneshot::channel();
        let consume = Subscribe {
            queue,
            consumer,
            origin: Arc::clone(&self.origin),
            channel: 1,
            tag: "t".into(),
            no_ack,
            exclusive: false,
            priority: 0,
            timeout: None,
            flow: Flow::Prefetch(0),
            arguments: FieldTable::default(),
            user: "guest".into(),
            answer,
        };
        (consumer, Command::Consume(Box::new(consume)), answered)
    }

    pub(super) async fn get(&mut self, queue: &str) -> Option<Delivery> {
        let get = Request::Get { channel: 1, queue: queue.into(), no_ack: false };
        match self.ask(get).await {
            Reply::Got(got) => got.map(|(delivery, _)| delivery),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn settle(&mut self, got: &Delivery, outcome: Outcome) {
        let unsettled = vec![Unsettled { queue: got.queue, seq: got.seq, consumer: got.consumer }];
        self.gateway.cast(Request::Settle { channel: 1, unsettled, outcome });
        self.gateway.end_of_batch();
    }

    /// The task of the connection panics.
    pub(super) async fn panic(self) {
        let task = tokio::spawn(async move {
            let _held = self;
            panic!("on purpose");
        });
        assert!(task.await.expect_err("it does").is_panic());
    }
}

pub(super) fn queue(name: &str) -> QueueDeclare {
    QueueDeclare {
        channel: 1,
        queue: name.into(),
        passive: false,
        durable: true,
        exclusive: false,
        auto_delete: false,
        arguments: FieldTable::default(),
    }
}

pub(super) fn with(mut queue: QueueDeclare, argument: &str, value: i64) -> QueueDeclare {
    queue.arguments.insert(argument.into(), AMQPValue::LongLongInt(value));
    queue
}
