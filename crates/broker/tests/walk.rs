//! The walk of one message, as `ARCHITECTURE.md` documents it.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions,
    QueueDeclareOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Connection, ConnectionProperties};

/// The bold names of the walk's numbered steps.
fn documented() -> Vec<String> {
    let text = include_str!("../../../ARCHITECTURE.md");
    let (_, walk) = text.split_once("## The walk of one message").expect("it has a walk");
    let (walk, _) = walk.split_once("\n## ").expect("another section follows");
    walk.lines()
        .filter_map(|line| line.split_once(". **"))
        .filter(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()))
        .filter_map(|(_, rest)| rest.split_once("**"))
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// A node that is killed with its owner.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = (self.0.kill(), self.0.wait());
    }
}

async fn connect(port: u16) -> Connection {
    let deadline = Instant::now() + Duration::from_secs(20);
    let uri = format!("amqp://guest:guest@127.0.0.1:{port}/%2f");
    loop {
        match Connection::connect(&uri, ConnectionProperties::default()).await {
            Ok(connection) => return connection,
            Err(error) => assert!(Instant::now() < deadline, "the node does not answer: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_walk_is_as_documented() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let port = listener.local_addr().expect("it is bound").port();
    drop(listener);
    let mut child = Command::new(env!("CARGO_BIN_EXE_leveret"))
        .args(["--set", "log.level=off,walk=trace"])
        .args(["--set", "listeners.http=none", "--set", "listeners.metrics=none"])
        .args(["--set", &format!("listeners.amqp=127.0.0.1:{port}")])
        .args(["--set", &format!("data_dir={}", folder.path().join("data").display())])
        .stderr(Stdio::piped())
        .spawn()
        .expect("the node starts");
    let log = BufReader::new(child.stderr.take().expect("it is piped"));
    let reader = std::thread::spawn(move || {
        log.lines()
            .map_while(Result::ok)
            .filter_map(|line| line.split_once(" walk: ").map(|(_, step)| step.to_owned()))
            .collect::<Vec<String>>()
    });
    let mut node = Node(child);

    let connection = connect(port).await;
    let channel = connection.create_channel().await.expect("a channel");
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let nothing = FieldTable::default();
    channel.queue_declare("walk".into(), durable, nothing.clone()).await.expect("a queue");
    channel.confirm_select(ConfirmSelectOptions::default()).await.expect("confirms");
    let persistent = BasicProperties::default().with_delivery_mode(2);
    let options = BasicPublishOptions::default();
    let confirm = channel
        .basic_publish("".into(), "walk".into(), options, b"hello", persistent)
        .await
        .expect("it is sent")
        .await
        .expect("it is answered");
    assert!(confirm.is_ack());
    let mut consumer = channel
        .basic_consume("walk".into(), "".into(), BasicConsumeOptions::default(), nothing)
        .await
        .expect("a consumer");
    let delivery = consumer.next().await.expect("a delivery").expect("the connection is good");
    assert_eq!(delivery.data, b"hello");
    delivery.ack(BasicAckOptions::default()).await.expect("it is sent");
    // The answer to this comes after the ack was taken.
    channel.close(200, "done".into()).await.expect("the channel closes");
    connection.close(200, "done".into()).await.expect("the connection closes");

    let pid = node.0.id().to_string();
    Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs");
    assert!(node.0.wait().expect("it can be waited for").success(), "a stop in good order");
    let steps = reader.join().expect("the reader ends with the log");

    let documented = documented();
    eprintln!("documented: {}", documented.join(" → "));
    eprintln!("seen:       {}", steps.join(" → "));
    assert_eq!(documented.len(), 9);
    let mut rest = steps.iter();
    for name in &documented {
        assert!(rest.any(|step| step == name), "{name} does not come in its place");
    }
}
