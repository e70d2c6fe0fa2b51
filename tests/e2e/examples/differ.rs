//! Random operations on two brokers: do they give the same answers, to the letter?
//!
//! `differ URI HTTP PEER_URI PEER_HTTP [SEEDS] [FIRST]`, addresses as `127.0.0.1:5672`. Each seed
//! gets a virtual host of its own on both. A difference in text alone is printed once; any other one
//! ends its seed. What the two do differently on purpose is not generated. With `DIFFER_TRACE` set,
//! every operation is printed with the first broker's answer.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::ExitCode;

use e2e::client::basic::MANDATORY;
use e2e::client::connect::Options;
use e2e::client::topology::{AUTO_DELETE, DURABLE, EXCLUSIVE, INTERNAL, PASSIVE};
use e2e::client::{Client, Failure, Outcome};
use e2e::codec::{Table, Value};
use e2e::content::Properties;
use e2e::http::{Api, segment};
use e2e::load::Dice;
use e2e::table;
use serde_json::json;

/// One operation, made up once and done on both.
#[derive(Debug, Clone)]
enum Operation {
    Queue(&'static str, u8, Table),
    Exchange(&'static str, &'static str, u8, Table),
    Bind(&'static str, &'static str, &'static str, Table),
    Unbind(&'static str, &'static str, &'static str, Table),
    BindExchange(&'static str, &'static str, &'static str),
    UnbindExchange(&'static str, &'static str, &'static str),
    DeleteQueue(&'static str, bool, bool),
    DeleteExchange(&'static str, bool),
    Publish(&'static str, &'static str, Box<Properties>),
    Get(&'static str, bool),
    Settle(usize, u8),
    Purge(&'static str),
    Consume(&'static str, u8, Table),
    Take(&'static str, usize),
    Cancel,
    Qos(u16),
    Recover,
    Reopen,
}

fn pick<T: Clone>(dice: &mut Dice, from: &[T]) -> T {
    from[dice.below(from.len())].clone()
}

const QUEUES: [&str; 5] = ["q0", "q1", "q2", "missing", "amq.own"];
const EXCHANGES: [&str; 8] =
    ["", "x0", "x1", "x2", "amq.direct", "amq.topic", "missing", "amq.own"];
const KEYS: [&str; 9] = ["", "a", "a.b", "a.*", "#", "a.#", "q0", "q1", "q2"];

fn queue_arguments(dice: &mut Dice) -> Table {
    let mut arguments = Table::default();
    for _ in 0..[0, 0, 1, 1, 2][dice.below(5)] {
        let (name, values): (&str, Vec<Value>) = match dice.below(15) {
            0 => ("x-max-length", vec![3.into(), 0.into(), (-1).into(), "x".into(), true.into()]),
            1 => ("x-max-length-bytes", vec![50.into(), (-1).into(), Value::F64(1.5)]),
            2 => ("x-message-ttl", vec![600_000.into(), (-1).into(), "1".into(), Value::Void]),
            3 => ("x-expires", vec![600_000.into(), 0.into(), (-5).into(), "1".into()]),
            4 => (
                "x-overflow",
                vec!["drop-head".into(), "reject-publish".into(), "bad".into(), 1.into()],
            ),
            5 => ("x-dead-letter-exchange", vec!["".into(), "x0".into(), 7.into()]),
            6 => ("x-dead-letter-routing-key", vec!["q1".into(), 7.into()]),
            7 => ("x-max-priority", vec![5.into(), 0.into(), 256.into(), (-1).into(), "5".into()]),
            8 => ("x-single-active-consumer", vec![true.into(), "yes".into()]),
            9 => ("x-queue-type", vec!["classic".into(), "bogus".into(), 1.into()]),
            10 => ("x-queue-mode", vec!["lazy".into(), "default".into(), "bogus".into()]),
            11 => ("x-queue-version", vec![1.into(), 2.into(), 3.into(), "2".into()]),
            12 => ("x-message-ttl", vec![4_294_967_296_i64.into(), i64::MAX.into()]),
            13 => ("x-own", vec![1.into(), "text".into()]),
            _ => ("x-expires", vec![4_294_967_296_i64.into(), i64::MAX.into()]),
        };
        if arguments.get(name).is_none() {
            arguments.insert(name, pick(dice, &values));
        }
    }
    arguments
}

fn properties(dice: &mut Dice) -> Properties {
    let mut properties = Properties::persistent();
    match dice.below(12) {
        0 => properties.priority = Some(pick(dice, &[0, 3, 9, 255])),
        1 => {
            let texts = ["600000", "-1", "x", "", "1.5", "99999999999", " 5"];
            properties.expiration = Some(pick(dice, &texts).into());
        }
        2 => properties.user_id = Some(pick(dice, &["guest", "other"]).into()),
        3 => {
            let values: [Value; 4] = [vec!["q1"].into(), "q1".into(), vec![1].into(), Value::Void];
            let name = pick(dice, &["CC", "BCC"]);
            properties.headers = Some(table! { name => pick(dice, &values) });
        }
        4 => properties.headers = Some(table! { "a" => 1, "b" => "z" }),
        5 => properties.delivery_mode = Some(pick(dice, &[0, 1, 3])),
        6 => properties.reply_to = Some("amq.rabbitmq.reply-to".into()),
        _ => {}
    }
    properties
}

fn operation(dice: &mut Dice) -> Operation {
    let queue = pick(dice, &QUEUES);
    let exchange = pick(dice, &EXCHANGES);
    let key = pick(dice, &KEYS);
    match dice.below(40) {
        0..8 => {
            let flags = pick(
                dice,
                &[DURABLE, DURABLE, DURABLE | AUTO_DELETE, PASSIVE, EXCLUSIVE, DURABLE | EXCLUSIVE],
            );
            Operation::Queue(queue, flags, queue_arguments(dice))
        }
        8..12 => {
            let kind = pick(dice, &["direct", "fanout", "topic", "headers", "bogus", "topic"]);
            let flags = pick(
                dice,
                &[DURABLE, DURABLE, DURABLE | AUTO_DELETE, PASSIVE, 0, DURABLE | INTERNAL],
            );
            let arguments = match dice.below(5) {
                0 => table! { "alternate-exchange" => pick(dice, &["x1", "missing"]) },
                1 => table! { "alternate-exchange" => 5 },
                _ => Table::default(),
            };
            Operation::Exchange(exchange, kind, flags, arguments)
        }
        12..16 => {
            let arguments = match dice.below(6) {
                0 => table! { "x-match" => "any", "a" => 1 },
                1 => table! { "x-match" => "all", "a" => 1, "b" => "z" },
                2 => table! { "x-match" => "bogus" },
                3 => table! { "x-match" => 3 },
                _ => Table::default(),
            };
            if dice.below(3) == 0 {
                Operation::Unbind(queue, exchange, key, arguments)
            } else {
                Operation::Bind(queue, exchange, key, arguments)
            }
        }
        16 => Operation::BindExchange(pick(dice, &EXCHANGES), exchange, key),
        17 => Operation::UnbindExchange(pick(dice, &EXCHANGES), exchange, key),
        18 => Operation::DeleteQueue(queue, dice.below(2) == 0, dice.below(2) == 0),
        19 => Operation::DeleteExchange(exchange, dice.below(2) == 0),
        20..27 => Operation::Publish(exchange, key, Box::new(properties(dice))),
        27..31 => Operation::Get(queue, dice.below(3) == 0),
        31..34 => Operation::Settle(dice.below(4), pick(dice, &[0, 1, 2, 3, 4, 5])),
        34 => Operation::Purge(queue),
        35 | 36 => {
            let arguments = match dice.below(5) {
                0 => table! { "x-priority" => pick::<Value>(dice, &[5.into(), "high".into()]) },
                _ => Table::default(),
            };
            Operation::Consume(queue, pick(dice, &[0, 4, 2]), arguments)
        }
        37 if dice.below(4) > 0 => Operation::Take(queue, dice.below(100)),
        37 => Operation::Cancel,
        38 => Operation::Qos(pick(dice, &[1, 10])),
        _ => pick(dice, &[Operation::Recover, Operation::Reopen]),
    }
}

/// One broker and what this run holds there.
struct Side {
    client: Client,
    options: Options,
    held: Vec<u64>,
    consuming: bool,
}

impl Side {
    fn open(address: SocketAddr, api: &Api, vhost: &str) -> Self {
        api.delete(&format!("vhosts/{}", segment(vhost)));
        api.put(&format!("vhosts/{}", segment(vhost)), &json!({}));
        let everything = json!({ "configure": ".*", "write": ".*", "read": ".*" });
        api.put(&format!("permissions/{}/guest", segment(vhost)), &everything);
        let options = Options::new(address).vhost(vhost);
        let client = options.connect().expect("connects");
        let mut side = Self { client, options, held: Vec::new(), consuming: false };
        side.channel();
        side
    }

    fn channel(&mut self) {
        self.held.clear();
        self.consuming = false;
        self.client.open(1).expect("a channel opens");
        self.client.confirm_select(1).expect("confirms");
    }

    /// Does it, and describes the answer. Errors reopen what they closed.
    fn perform(&mut self, operation: &Operation) -> String {
        let outcome = self.attempt(operation).and_then(|answer| {
            self.client.sync(1)?;
            Ok(answer)
        });
        match outcome {
            Ok(answer) => answer,
            Err(failure) => {
                if !matches!(failure, Failure::Channel { .. }) {
                    self.client = self.options.connect().expect("connects again");
                }
                self.channel();
                format!("{failure:?}")
            }
        }
    }

    fn attempt(&mut self, operation: &Operation) -> Outcome<String> {
        let client = &mut self.client;
        Ok(match operation {
            Operation::Queue(name, flags, arguments) => {
                format!("{:?}", client.queue(1, name, *flags, arguments)?)
            }
            Operation::Exchange(name, kind, flags, arguments) => {
                format!("{:?}", client.exchange(1, name, kind, *flags, arguments)?)
            }
            Operation::Bind(queue, exchange, key, arguments) => {
                format!("{:?}", client.bind(1, queue, exchange, key, arguments)?)
            }
            Operation::Unbind(queue, exchange, key, arguments) => {
                format!("{:?}", client.unbind(1, queue, exchange, key, arguments)?)
            }
            Operation::BindExchange(to, from, key) => {
                format!("{:?}", client.bind_exchange(1, to, from, key, &table! {})?)
            }
            Operation::UnbindExchange(to, from, key) => {
                format!("{:?}", client.unbind_exchange(1, to, from, key, &table! {})?)
            }
            Operation::DeleteQueue(queue, unused, empty) => {
                format!("{:?}", client.delete_queue_if(1, queue, *unused, *empty)?)
            }
            Operation::DeleteExchange(name, unused) => {
                format!("{:?}", client.delete_exchange(1, name, *unused)?)
            }
            Operation::Publish(exchange, key, properties) => {
                client.publish_with(1, exchange, key, MANDATORY, properties, b"body")?;
                let answer = client.await_event(1, |event| matches!(event.id, (60, 80 | 120)))?;
                let returned = client.take_event(1, |event| event.id == (60, 50));
                format!("{:?} {:?}", answer.id, returned.map(|event| event.arguments))
            }
            Operation::Get(queue, no_ack) => match client.get(1, queue, *no_ack)? {
                None => "empty".into(),
                Some(mut message) => {
                    if !no_ack {
                        self.held.push(message.tag);
                    }
                    shown(&mut message.properties);
                    format!("{message:?}")
                }
            },
            Operation::Settle(index, how) => {
                let tag = if self.held.is_empty() {
                    return Ok("nothing held".into());
                } else {
                    self.held.remove(index % self.held.len())
                };
                match how {
                    0 | 1 => client.ack(1, tag, false)?,
                    2 => client.nack(1, tag, false, true)?,
                    3 => client.nack(1, tag, false, false)?,
                    4 => client.reject(1, tag, true)?,
                    _ => client.reject(1, tag, false)?,
                }
                client.sync(1)?;
                "settled".into()
            }
            Operation::Purge(queue) => format!("{:?}", client.purge(1, queue)?),
            Operation::Consume(queue, flags, arguments) => {
                let tag = if self.consuming { "other" } else { "tag" };
                let answer = client.consume_with(1, queue, tag, *flags, arguments)?;
                // Deliveries come when they come; what they hold goes back with the channel.
                client.close_channel(1)?;
                self.channel();
                answer
            }
            Operation::Take(queue, pattern) => {
                // All that is ready, delivered, and settled in one way or another.
                let ready = client.depth(1, queue)?.messages as usize;
                client.consume(1, queue, "taker")?;
                let mut messages = client.deliveries(1, ready)?;
                for (index, message) in messages.iter_mut().enumerate() {
                    match (pattern + index) % 5 {
                        0 | 1 => client.ack(1, message.tag, false)?,
                        2 => client.nack(1, message.tag, false, false)?,
                        _ => {}
                    }
                    shown(&mut message.properties);
                }
                client.close_channel(1)?;
                self.channel();
                format!("{messages:?}")
            }
            Operation::Cancel => format!("{:?}", client.cancel(1, "tag")?),
            Operation::Qos(count) => format!("{:?}", client.qos(1, *count, false)?),
            Operation::Recover => {
                self.held.clear();
                format!("{:?}", client.recover(1, true)?)
            }
            Operation::Reopen => {
                client.close_channel(1)?;
                self.channel();
                "reopened".into()
            }
        })
    }
}

/// What an error has before its text: kind and code.
fn code(answer: &str) -> Option<&str> {
    answer.split_once(", text").map(|(head, _)| head)
}

/// Headers in an order of ours, without times.
fn shown(properties: &mut Properties) {
    if let Some(headers) = &mut properties.headers {
        headers.0.sort_by(|left, right| left.0.cmp(&right.0));
        headers.0.iter_mut().for_each(|(_, value)| hide_times(value));
    }
}

fn hide_times(value: &mut Value) {
    match value {
        Value::Time(seconds) => *seconds = 0,
        Value::Array(values) => values.iter_mut().for_each(hide_times),
        Value::Table(table) => {
            table.0.sort_by(|left, right| left.0.cmp(&right.0));
            table.0.iter_mut().for_each(|(_, value)| hide_times(value));
        }
        _ => {}
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let address = |index: usize| -> SocketAddr {
        arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or_else(|| {
            eprintln!("differ ADDRESS HTTP PEER_ADDRESS PEER_HTTP [SEEDS] [FIRST]");
            std::process::exit(64)
        })
    };
    let number = |index: usize, default: u64| {
        arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (ours, api) = (address(0), Api::new(address(1)));
    let (peer, peer_api) = (address(2), Api::new(address(3)));
    let (seeds, first) = (number(4, 50), number(5, 1));
    let trace = std::env::var_os("DIFFER_TRACE").is_some();
    let mut differences = 0;
    let mut texts = BTreeSet::new();
    for seed in first..first + seeds {
        let vhost = "differ";
        let mut dice = Dice::new(seed);
        let mut sides = [Side::open(ours, &api, vhost), Side::open(peer, &peer_api, vhost)];
        for step in 0..120 {
            let operation = operation(&mut dice);
            let [left, right] = sides.each_mut().map(|side| side.perform(&operation));
            if trace {
                eprintln!("{step}: {operation:?}\n  {left}");
            }
            if left != right {
                let text_only = code(&left).is_some() && code(&left) == code(&right);
                if text_only && !texts.insert((left.clone(), right.clone())) {
                    continue;
                }
                differences += 1;
                eprintln!(
                    "seed {seed}, step {step}: {operation:?}\n  one:   {left}\n  other: {right}"
                );
                if !text_only {
                    break;
                }
            }
        }
    }
    eprintln!("{differences} differences in {seeds} seeds");
    if differences == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
