//! What routing and binding cost. Run it with `--release`.
//!
//! Binding is measured with a snapshot taken and held after every change, as the broker does it.
#![expect(clippy::print_stdout, reason = "it prints its figures")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use amq_protocol_types::{AMQPValue, FieldTable, LongString};
use metadata::boot::{self, DefaultUser};
use metadata::command::{Command, DeclareExchange, DeclareQueue};
use metadata::objects::binding::{Binding, Destination};
use metadata::routes::content::{Content, NoContent};
use metadata::routes::targets::RouteSet;
use metadata::state::State;
use metadata::store::{self, Memory, Rocks};

fn main() {
    bindings("topic", "k.%.a");
    bindings("direct", "k%");
    bindings("fanout", "%");
    lookups();
    topics();
    headers();
    one_of_many();
    declarations();
}

fn state() -> State {
    let mut state = State::new();
    let user = DefaultUser { name: "guest".into(), password_hash: String::new(), tags: vec![] };
    for command in boot::commands("/", user) {
        state.apply(command).expect("the first boot");
    }
    state
}

fn queue(state: &mut State, name: &str) {
    let declare = DeclareQueue {
        vhost: "/".into(),
        name: name.into(),
        generated: false,
        durable: true,
        auto_delete: false,
        exclusive_owner: None,
        home: model::id::NodeId(0),
        members: Vec::new(),
        away: Vec::new(),
        arguments: FieldTable::default(),
        user: "guest".into(),
    };
    state.apply(Command::DeclareQueue(declare)).expect("a new queue");
}

fn exchange(state: &mut State, name: &str, kind: &str) {
    let declare = DeclareExchange {
        vhost: "/".into(),
        name: name.into(),
        kind: kind.into(),
        durable: true,
        auto_delete: false,
        internal: false,
        arguments: FieldTable::default(),
        user: "guest".into(),
    };
    state.apply(Command::DeclareExchange(declare)).expect("a new exchange");
}

fn binding(source: &str, key: &str, queue: &str) -> Binding {
    Binding {
        vhost: "/".into(),
        source: source.into(),
        destination: Destination::Queue(queue.into()),
        routing_key: key.into(),
        arguments: FieldTable::default(),
    }
}

/// 100,000 bindings of one exchange to ten queues, made and removed.
fn bindings(kind: &str, key: &str) {
    const COUNT: usize = 100_000;
    let mut state = state();
    exchange(&mut state, "e", kind);
    for number in 0..10 {
        queue(&mut state, &format!("q{number}"));
    }
    let all: Vec<_> = (0..COUNT)
        .map(|number| {
            let key = key.replace('%', &number.to_string());
            binding("e", &key, &format!("q{}", number % 10))
        })
        .collect();
    let mut snapshot = state.clone();
    let started = Instant::now();
    for binding in &all {
        state.apply(Command::Bind(binding.clone())).expect("a binding");
        snapshot = state.clone();
    }
    let bound = started.elapsed();
    let held = snapshot.clone();
    let started = Instant::now();
    for binding in &all {
        state.apply(Command::Unbind(binding.clone())).expect("a binding");
        snapshot = state.clone();
    }
    let unbound = started.elapsed();
    assert_eq!((held.bindings("/").count(), snapshot.bindings("/").count()), (COUNT, 0));
    let resident = resident_mib();
    println!(
        "{kind}: {COUNT} bindings, a snapshot after each: made in {bound:.2?}, removed in \
         {unbound:.2?} ({resident} MiB resident with all of them held)"
    );
}

/// One queue among ten thousand, by the default exchange and by a direct one.
fn lookups() {
    let mut state = state();
    for number in 0..10_000 {
        let name = format!("queue number {number}");
        queue(&mut state, &name);
        let bind = Command::Bind(binding("amq.direct", &name, &name));
        state.apply(bind).expect("a binding");
    }
    let names: Vec<_> = (0..10_000).step_by(97).map(|n| format!("queue number {n}")).collect();
    let routes = state.routes().clone();
    let vhost = routes.vhost("/").expect("the vhost");
    let mut out = RouteSet::new();
    for exchange in ["", "amq.direct"] {
        let mut next = names.iter().cycle();
        let each = measure(|| {
            let exchange = vhost.exchange(exchange).expect("the exchange");
            let key = next.next().expect("endless");
            out.clear();
            black_box(vhost.route(exchange, key, &NoContent, &mut out));
        });
        println!("'{exchange}', 10000 queues: {each:?} per message, exchange lookup included");
    }
    let known = Arc::clone(vhost.exchange("").expect("the exchange"));
    let each = measure(|| {
        out.clear();
        black_box(vhost.route(&known, "queue number 5000", &NoContent, &mut out));
    });
    println!("the default exchange, exchange and queue hot: {each:?} per message");
}

fn topics() {
    let mut state = state();
    exchange(&mut state, "t", "topic");
    for number in 0..10_000 {
        let name = format!("q{number}");
        queue(&mut state, &name);
        for key in [format!("orders.{number}.created"), format!("orders.{number}.*")] {
            state.apply(Command::Bind(binding("t", &key, &name))).expect("a binding");
        }
    }
    state.apply(Command::Bind(binding("t", "orders.#", "q1"))).expect("a binding");
    let routes = state.routes().clone();
    let vhost = routes.vhost("/").expect("the vhost");
    let topic = vhost.exchange("t").expect("the exchange");
    let mut out = RouteSet::new();
    let each = measure(|| {
        out.clear();
        black_box(vhost.route(topic, "orders.7777.created", &NoContent, &mut out));
    });
    println!("topic, 20001 bindings, 3 match, 2 queues: {each:?} per message");
}

fn headers() {
    struct Parsed(FieldTable);
    impl Content for Parsed {
        fn headers(&self) -> Option<&FieldTable> {
            Some(&self.0)
        }
        fn message_id(&self) -> Option<&str> {
            None
        }
        fn correlation_id(&self) -> Option<&str> {
            None
        }
        fn timestamp(&self) -> Option<u64> {
            None
        }
        fn random(&self) -> u64 {
            0
        }
    }
    let arguments = |number: i32| {
        let mut table = FieldTable::default();
        table.insert("number".into(), AMQPValue::LongInt(number));
        table.insert("region".into(), AMQPValue::LongString(LongString::from("eu")));
        table
    };
    let mut state = state();
    for number in 0..100 {
        let name = format!("q{number}");
        queue(&mut state, &name);
        let binding = binding("amq.headers", "", &name);
        let bind = Command::Bind(Binding { arguments: arguments(number), ..binding });
        state.apply(bind).expect("a binding");
    }
    let routes = state.routes().clone();
    let vhost = routes.vhost("/").expect("the vhost");
    let exchange = vhost.exchange("amq.headers").expect("the exchange");
    let mut out = RouteSet::new();
    let content = Parsed(arguments(50));
    let each = measure(|| {
        out.clear();
        black_box(vhost.route(exchange, "", &content, &mut out));
    });
    println!("headers, 100 bindings, 1 matches: {each:?} per message, headers parsed before");
}

fn one_of_many() {
    for kind in ["x-consistent-hash", "x-modulus-hash"] {
        let mut state = state();
        exchange(&mut state, "c", kind);
        for number in 0..10 {
            let name = format!("q{number}");
            queue(&mut state, &name);
            state.apply(Command::Bind(binding("c", "1", &name))).expect("a binding");
        }
        let routes = state.routes().clone();
        let vhost = routes.vhost("/").expect("the vhost");
        let exchange = vhost.exchange("c").expect("the exchange");
        let mut out = RouteSet::new();
        let each = measure(|| {
            out.clear();
            black_box(vhost.route(exchange, "some key", &NoContent, &mut out));
        });
        println!("{kind}, 10 bindings: {each:?} per message");
    }
}

/// Ten thousand queues declared and stored, and read again.
fn declarations() {
    const COUNT: u64 = 10_000;
    let directory = std::env::temp_dir().join(format!("routes-bench-{}", std::process::id()));
    let rocks = Rocks::open(&directory).expect("a store in the temporary directory");
    let memory = Memory::new();
    let stores: [(&str, &dyn store::Kv); 2] = [("memory", &memory), ("RocksDB", &rocks)];
    for (name, kv) in stores {
        let mut state = state();
        store::save_all(kv, &state, 0).expect("a write");
        let started = Instant::now();
        for number in 1..=COUNT {
            let declare = Command::DeclareQueue(DeclareQueue {
                vhost: "/".into(),
                name: format!("queue number {number}").into(),
                generated: false,
                durable: true,
                auto_delete: false,
                exclusive_owner: None,
                home: model::id::NodeId(0),
                members: Vec::new(),
                away: Vec::new(),
                arguments: FieldTable::default(),
                user: "guest".into(),
            });
            black_box(declare.encode());
            let outcome = state.apply(declare).expect("a new queue");
            store::save(kv, &outcome, number).expect("a write");
        }
        let declared = started.elapsed();
        kv.flush().expect("a write");
        let started = Instant::now();
        let (read, _) = store::load(kv).expect("a read").expect("a state");
        assert_eq!(read.queue_count("/") as u64, COUNT);
        let loaded = started.elapsed();
        println!("{COUNT} queues in {name}: declared in {declared:.2?}, loaded in {loaded:.2?}");
    }
    drop(rocks);
    std::fs::remove_dir_all(&directory).expect("it was made above");
}

/// The time of one call, as the best of five rounds. Time on the processor where the system tells
/// it, so that other work on the machine counts less.
fn measure(mut call: impl FnMut()) -> Duration {
    const CALLS: u32 = 1_000_000;
    (0..5)
        .map(|_| {
            let (started, before) = (Instant::now(), on_processor());
            for _ in 0..CALLS {
                call();
            }
            let spent =
                on_processor().zip(before).map(|(after, before)| after.saturating_sub(before));
            spent.unwrap_or_else(|| started.elapsed()) / CALLS
        })
        .min()
        .expect("five rounds")
}

/// How long this thread has been on a processor.
fn on_processor() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// Resident memory of this process, 0 where there is no /proc.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}
