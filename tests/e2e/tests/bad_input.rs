//! Bad input of each kind, with its exact error.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use e2e::broker::Broker;
use e2e::client::connect::{Options, PROTOCOL_HEADER};
use e2e::client::topology::DURABLE;
use e2e::client::{BODY, Client, Failure, HEADER, METHOD, assert_connection_error};
use e2e::codec::{Writer, frame};
use e2e::content::Properties;
use e2e::node::{Setup, free_port};
use e2e::table;

/// What comes of malformed bytes: a connection error here; 4.3 closes some without a word.
fn malformed_error(broker: &Broker, failure: &Failure, codes: &[u16]) {
    if !broker.is_ours() && !matches!(failure, Failure::Channel { .. }) {
        return;
    }
    let (code, text) = connection_error(failure);
    assert!(codes.contains(&code), "{code} {text}");
}

fn connection_error(failure: &Failure) -> (u16, &str) {
    match failure {
        Failure::Connection { code, text, .. } => (*code, text),
        other => panic!("expected a connection error, got {other:?}"),
    }
}

#[test]
fn wrong_protocol_header_is_answered_with_the_right_one() {
    let broker = Broker::start();
    for header in [b"AMQP\x00\x01\x00\x00", b"AMQP\x00\x00\x08\x00", b"GET / HT", b"rubbish!"] {
        let mut client = Client::raw(broker.amqp).unwrap();
        client.write(header).unwrap();
        let answer = client.read_bytes(8).unwrap();
        // 4.3 speaks AMQP 1.0 as well, and prefers it.
        let other = !broker.is_ours() && answer.starts_with(b"AMQP");
        assert!(answer == PROTOCOL_HEADER || other, "{header:?}: {answer:?}");
        if other {
            continue;
        }
        assert_eq!(client.read_bytes(1), Err(Failure::Disconnected));
    }
}

#[test]
fn the_header_of_0_9_is_accepted() {
    let broker = Broker::start();
    let mut client = Client::raw(broker.amqp).unwrap();
    client.write(b"AMQP\x01\x01\x00\x09").unwrap();
    client.await_event(0, |event| event.id == (10, 10)).unwrap();
}

#[test]
fn oversized_frame_is_501() {
    let broker = Broker::start();
    let mut options = broker.options();
    options.frame_max = Some(8192);
    let mut client = options.connect().unwrap();
    client.open(1).unwrap();
    client.send(1, &Writer::method(60, 40).u16(0).short("").short("q").u8(0)).unwrap();
    client.write(&Writer::default().u16(60).u16(0).u64(9000).u16(0).frame(HEADER, 1)).unwrap();
    client.write(&frame(BODY, 1, &[0; 9000])).unwrap();
    let failure = client.await_failure(0);
    let (code, text) = connection_error(&failure);
    assert_eq!(code, 501);
    assert!(text.starts_with("FRAME_ERROR - "), "{text}");
}

#[test]
fn oversized_frame_before_login_closes() {
    let broker = Broker::start();
    let mut options = broker.options();
    options.properties.insert("big", "x".repeat(100_000));
    let failure = options.connect().unwrap_err();
    if let Some((code, _)) = failure.reply() {
        assert_eq!(code, 501);
    } else {
        assert_eq!(failure, Failure::Disconnected);
    }
}

#[test]
fn wrong_frame_end_is_501() {
    let broker = Broker::start();
    let mut client = broker.channel();
    let mut bytes = Writer::method(60, 10).u32(0).u16(0).u8(0).frame(METHOD, 1);
    *bytes.last_mut().unwrap() = 0xCD;
    client.write(&bytes).unwrap();
    let failure = client.await_failure(0);
    let (code, text) = connection_error(&failure);
    assert_eq!(code, 501);
    assert!(text.starts_with("FRAME_ERROR - "), "{text}");
}

#[test]
fn unknown_frame_type_is_501() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.write(&frame(7, 1, &[0; 4])).unwrap();
    let failure = client.await_failure(0);
    assert_eq!(connection_error(&failure).0, 501);
}

#[test]
fn method_on_a_channel_that_is_not_open_is_504() {
    let broker = Broker::start();
    let mut client = broker.connect();
    assert_connection_error(client.sync(7), 504, "CHANNEL_ERROR - expected 'channel.open'");
}

#[test]
fn second_channel_open_is_504() {
    let broker = Broker::start();
    let mut client = broker.channel();
    assert_connection_error(client.open(1), 504, "CHANNEL_ERROR - second 'channel.open' seen");
}

#[test]
fn channel_above_the_maximum_is_530() {
    let broker = Broker::start();
    let mut options = broker.options();
    options.channel_max = Some(5);
    let mut client = options.connect().unwrap();
    for channel in 1..=5 {
        client.open(channel).unwrap();
    }
    assert_connection_error(
        client.open(6),
        530,
        "NOT_ALLOWED - number of channels opened (5) has reached the negotiated channel_max (5)",
    );
}

#[test]
fn content_out_of_order_is_505() {
    let broker = Broker::start();
    let publish = Writer::method(60, 40).u16(0).short("").short("q").u8(0);
    let wrong: Vec<Vec<u8>> = vec![
        // A body without its method.
        frame(BODY, 1, b"x"),
        // A method where the header should be.
        [publish.frame(METHOD, 1), publish.frame(METHOD, 1)].concat(),
        // A header of another class.
        [publish.frame(METHOD, 1), Writer::default().u16(50).u16(0).u64(1).u16(0).frame(HEADER, 1)]
            .concat(),
    ];
    for bytes in wrong {
        let mut client = broker.channel();
        client.write(&bytes).unwrap();
        let failure = client.await_failure(0);
        let (code, text) = connection_error(&failure);
        assert_eq!(code, 505, "{text}");
        assert!(text.starts_with("UNEXPECTED_FRAME - expected "), "{text}");
    }
}

#[test]
fn body_longer_than_announced_is_refused() {
    let broker = Broker::start();
    let mut client = broker.channel();
    let publish = Writer::method(60, 40).u16(0).short("").short("q").u8(0);
    client.write(&publish.frame(METHOD, 1)).unwrap();
    client.write(&Writer::default().u16(60).u16(0).u64(3).u16(0).frame(HEADER, 1)).unwrap();
    client.write(&frame(BODY, 1, b"12345")).unwrap();
    client.write(&Writer::method(60, 10).u32(0).u16(0).u8(0).frame(METHOD, 1)).unwrap();
    let failure = client.await_failure(0);
    let (code, text) = connection_error(&failure);
    assert!([501, 505].contains(&code), "{text}");
}

#[test]
fn unknown_method_is_540() {
    let broker = Broker::start();
    for (class, method) in [(50, 99), (77, 10)] {
        let mut client = broker.channel();
        client.send(1, &Writer::method(class, method)).unwrap();
        let failure = client.await_failure(0);
        malformed_error(&broker, &failure, &[503, 540]);
    }
}

#[test]
fn bad_table_is_502() {
    let broker = Broker::start();
    let tables: [&[u8]; 4] = [
        // Unknown type of a value.
        b"\x01kZ",
        // A name that is longer than the table.
        b"\xFFk",
        // A string that is longer than the table.
        b"\x01kS\x00\x00\xFF\xFFx",
        // A value cut short.
        b"\x01kI\x00",
    ];
    for table in tables {
        let mut client = broker.channel();
        client.send(1, &Writer::method(50, 10).u16(0).short("q").u8(DURABLE).long(table)).unwrap();
        let failure = client.await_failure(0);
        malformed_error(&broker, &failure, &[501, 502]);
    }
    broker.channel().sync(1).unwrap();
}

#[test]
fn wrong_credentials_are_403() {
    let broker = Broker::start();
    let text = |mechanism: &str| {
        format!(
            "ACCESS_REFUSED - Login was refused using authentication mechanism {mechanism}. For \
             details see the broker logfile."
        )
    };
    for (user, password) in [("guest", "wrong"), ("nobody", "guest"), ("guest", "")] {
        for mechanism in ["PLAIN", "AMQPLAIN"] {
            let mut options = broker.options().login(user, password);
            options.mechanism = mechanism.into();
            assert_connection_error(options.connect(), 403, &text(mechanism));
        }
    }
    // A client that does not say that it understands is cut off without a word.
    let failure = broker.options().login("guest", "wrong").incapable().connect().unwrap_err();
    assert_eq!(failure, Failure::Disconnected);
    // The right ones.
    let mut options = broker.options();
    options.mechanism = "AMQPLAIN".into();
    options.connect().unwrap();
}

#[test]
fn unknown_mechanism_is_refused() {
    let broker = Broker::start();
    let mut options = broker.options();
    options.mechanism = "CRAM-MD5".into();
    let failure = options.connect().unwrap_err();
    malformed_error(&broker, &failure, &[503]);
}

#[test]
fn malformed_sasl_responses_are_refused() {
    let broker = Broker::start();
    for response in [&b""[..], b"guest", b"\0", b"\0guest", b"\0\0\0\0", b"\xFF\xFE\0\xFF"] {
        let mut options = broker.options();
        options.response = Some(response.to_vec());
        let failure = options.connect().unwrap_err();
        assert!(
            matches!(failure, Failure::Disconnected)
                || [403, 501, 502, 503].contains(&connection_error(&failure).0),
            "{response:?}: {failure:?}"
        );
    }
}

#[test]
fn unknown_vhost_is_530() {
    let broker = Broker::start();
    assert_connection_error(
        broker.options().vhost("unheard-of").connect(),
        530,
        "NOT_ALLOWED - vhost unheard-of not found",
    );
}

#[test]
fn limits_above_the_brokers_are_530() {
    let broker = Broker::start();
    let (_, (channel_max, frame_max, _)) = Client::until_tune(&broker.options()).unwrap();
    let refused = |options: &Options, text: &str| match options.connect() {
        // 4.3 closes the socket without a word.
        Err(Failure::Disconnected) if !broker.is_ours() => {}
        outcome => assert_connection_error(outcome, 530, text),
    };
    let mut higher = broker.options();
    higher.frame_max = Some(frame_max + 1);
    refused(
        &higher,
        &format!(
            "NOT_ALLOWED - negotiated frame_max = {} is higher than the maximum allowed value \
             ({frame_max})",
            frame_max + 1
        ),
    );
    let mut unlimited = broker.options();
    unlimited.frame_max = Some(0);
    refused(
        &unlimited,
        &format!(
            "NOT_ALLOWED - negotiated frame_max = 0 is higher than the maximum allowed value \
             ({frame_max})"
        ),
    );
    let mut channels = broker.options();
    channels.channel_max = Some(channel_max + 1);
    refused(
        &channels,
        &format!(
            "NOT_ALLOWED - negotiated channel_max = {} is higher than the maximum allowed value \
             ({channel_max})",
            channel_max + 1
        ),
    );
    // The smallest frame: 4096 here, 8192 in 4.3.
    let smallest = if broker.is_ours() { 4096 } else { 8192 };
    let mut lower = broker.options();
    lower.frame_max = Some(smallest - 1);
    refused(
        &lower,
        &format!(
            "NOT_ALLOWED - negotiated frame_max = {} is lower than the minimum allowed value \
             ({smallest})",
            smallest - 1
        ),
    );
    let mut just = broker.options();
    just.frame_max = Some(smallest);
    let mut client = just.connect().unwrap();
    client.open(1).unwrap();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    let body = vec![b'x'; 50_000];
    client.put(1, "q", &body).unwrap();
    assert_eq!(client.get_soon(1, "q").body, body);
    assert!(client.largest_frame <= smallest as usize);
}

#[test]
fn a_silent_client_is_cut_off() {
    let Some(broker) = Broker::own(Setup::new().set("handshake_timeout", "1s")) else { return };
    let mut silent = Client::raw(broker.amqp).unwrap();
    let begin = Instant::now();
    assert_eq!(silent.read_bytes(1), Err(Failure::Disconnected));
    assert!(begin.elapsed() >= Duration::from_millis(900), "{:?}", begin.elapsed());
    // One that logs in and then says nothing more.
    let (mut idle, _) = Client::until_tune(&broker.options()).unwrap();
    assert_eq!(idle.read_bytes(1), Err(Failure::Disconnected));
    // One that is through stays.
    let mut client = broker.channel();
    let mut probe = Client::raw(broker.amqp).unwrap();
    assert_eq!(probe.read_bytes(1), Err(Failure::Disconnected));
    client.sync(1).unwrap();
}

#[test]
fn a_dead_peer_is_noticed_by_its_heartbeat() {
    let broker = Broker::start();
    let mut options = broker.options();
    options.heartbeat = 1;
    let mut client = options.connect().unwrap();
    client.patience = Duration::from_secs(20);
    // It hears from the broker, but says nothing itself.
    assert_eq!(client.await_failure(0), Failure::Disconnected);
    assert!(client.heartbeats >= 1, "{}", client.heartbeats);
}

#[test]
fn a_bad_setting_names_its_key() {
    if std::env::var_os("E2E_BROKER_URI").is_some() {
        return;
    }
    for (key, value, wanted) in [
        ("listeners.amqpp", "127.0.0.1:1", "listeners.amqp"),
        ("listeners.amqp", "nowhere", "listeners.amqp"),
        ("memory.limit", "plenty", "memory"),
    ] {
        let mut node = Setup::new().set(key, value).spawn();
        node.quiet = true;
        let status = node.await_exit();
        assert!(!status.success());
        let log = node.log();
        assert!(log.contains(key) && log.contains(wanted), "{key}={value}: {log}");
    }
}

#[test]
fn a_bad_configuration_file_is_told_whole() {
    if std::env::var_os("E2E_BROKER_URI").is_some() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("leveret.toml");
    fs::write(
        &file,
        "node.name = \"x\"\n\nlisteners.ampq = \"127.0.0.1:1\"\nheartbeat = \"fast\"\n",
    )
    .unwrap();
    let at = file.display();
    let complaints = format!(
        "leveret: {at}:3: unknown key listeners.ampq; did you mean listeners.amqp?\n\
         leveret: {at}:4: heartbeat: \"fast\" is not a time from 1s to 65535s (a plain number \
         counts seconds), or \"none\"\n"
    );
    for arguments in [&["config", "check"][..], &[]] {
        let output = std::process::Command::new(e2e::node::binary())
            .args(arguments)
            .arg("--config")
            .arg(&file)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(78), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), complaints, "{arguments:?}");
    }
}

#[test]
fn a_port_in_use_stops_the_start() {
    if std::env::var_os("E2E_BROKER_URI").is_some() {
        return;
    }
    let port = free_port();
    let holder = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    for listener in ["amqp", "http", "metrics"] {
        let key = format!("listeners.{listener}");
        let mut node = Setup::new().set(&key, format!("127.0.0.1:{port}")).spawn();
        node.quiet = true;
        let status = node.await_exit();
        assert!(!status.success());
        let log = node.log();
        assert!(log.contains(&port.to_string()), "{listener}: {log}");
        assert!(log.to_lowercase().contains("address already in use"), "{listener}: {log}");
    }
    drop(holder);
}

#[test]
fn a_data_directory_in_use_stops_the_start() {
    let Some(mut broker) = Broker::own(Setup::new()) else { return };
    let directory = broker.node().directory.clone();
    let mut second = Setup::new().directory(&directory).spawn();
    second.quiet = true;
    let status = second.await_exit();
    assert!(!status.success());
    let log = second.log();
    assert!(log.contains(&directory.display().to_string()), "{log}");
    assert!(log.contains("in use") || log.contains("lock"), "{log}");
    // The first one is not disturbed, and a start after its end works.
    broker.channel().sync(1).unwrap();
    broker.node().restart();
}

#[test]
fn a_read_only_data_directory_stops_the_start() {
    if std::env::var_os("E2E_BROKER_URI").is_some() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    // A file where the directory should be is refused to root as well.
    let file = scratch.path().join("file");
    File::create(&file).unwrap();
    let mut node = Setup::new().directory(&file).spawn();
    node.quiet = true;
    assert!(!node.await_exit().success());
    assert!(node.log().contains(&file.display().to_string()), "{}", node.log());
    // A directory without the right to write.
    let directory = scratch.path().join("read-only");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o555)).unwrap();
    if File::create(directory.join("probe")).is_ok() {
        eprintln!("skipped: this user may write everywhere");
        return;
    }
    let mut node = Setup::new().directory(&directory).spawn();
    node.quiet = true;
    assert!(!node.await_exit().success());
    assert!(node.log().contains(&directory.display().to_string()), "{}", node.log());
}

/// The journal's segment files, largest name last.
fn segments(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().contains("segment")
                || path.extension().is_some_and(|extension| extension == "seg")
            {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_damaged_segment_loses_its_record_only() {
    let Some(mut broker) = Broker::own(Setup::new()) else { return };
    let total = 200;
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    client.confirm_select(1).unwrap();
    let mut confirms = e2e::client::confirms::Confirms::default();
    for n in 0..total {
        let body = format!("message-{n:05}-{}", "x".repeat(1000));
        client.publish(1, "", "q", &Properties::persistent(), body).unwrap();
        if n % 10 == 9 {
            // A group commit of its own: what follows it proves that it was complete.
            client.await_confirms(1, &mut confirms, n + 1).unwrap();
        }
    }
    broker.node().kill();
    // Flip one bit in the middle of one message.
    let needle = b"message-00100-";
    let mut flipped = 0;
    for path in segments(&broker.node().directory) {
        let bytes = fs::read(&path).unwrap();
        if let Some(place) = bytes.windows(needle.len()).position(|window| window == needle) {
            let mut file = File::options().write(true).open(&path).unwrap();
            let place = place + needle.len() + 10;
            file.seek(SeekFrom::Start(place as u64)).unwrap();
            file.write_all(&[bytes[place] ^ 1]).unwrap();
            flipped += 1;
        }
    }
    assert_eq!(flipped, 1, "the message is in one segment");
    broker.node().start_again();
    let mut client = broker.channel();
    let rest = client.drain_queue(1, "q").unwrap();
    let numbers: Vec<usize> =
        rest.iter().map(|message| message.text()[8..13].parse().unwrap()).collect();
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(numbers, sorted, "in order, none doubled");
    assert!(!numbers.contains(&100), "the damaged one is not handed out");
    assert!(numbers.len() >= total - 10, "only its batch may be lost: {} left", numbers.len());
    let log = broker.node().log().to_lowercase();
    assert!(log.contains("damage") || log.contains("quarantine") || log.contains("corrupt"));
}

#[test]
fn a_stop_says_320_to_clients() {
    let Some(mut broker) = Broker::own(Setup::new()) else { return };
    let mut client = broker.channel();
    broker.node().signal_stop();
    match client.await_end() {
        Failure::Connection { code: 320, text, .. } => assert_eq!(
            text,
            "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"
        ),
        other => panic!("{other:?}"),
    }
    assert!(broker.node().await_exit().success());
}

#[test]
fn guest_is_for_loopback_only() {
    let Some(address) = local_address() else { return };
    let port = free_port();
    let Some(broker) = Broker::own(Setup::new().set("listeners.amqp", format!("0.0.0.0:{port}")))
    else {
        return;
    };
    let outside = Options::new(std::net::SocketAddr::new(address, port));
    assert_connection_error(
        outside.connect(),
        403,
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details \
         see the broker logfile.",
    );
    assert!(broker.node.as_ref().unwrap().log().contains("localhost"));
}

/// An address of this machine that is not loopback; no packet is sent to find it.
fn local_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}
