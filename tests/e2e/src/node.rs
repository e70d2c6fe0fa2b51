//! A broker process of our own: started, killed and restarted by the test that owns it.

use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::client::connect::Options;
use crate::http::Api;
use crate::wait;

/// Where the broker's binary is: `LEVERET_BIN`, else beside the test's own target directory.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("LEVERET_BIN") {
        return path.into();
    }
    let own = std::env::current_exe().expect("a process knows its executable");
    own.ancestors()
        .skip(1)
        .map(|folder| folder.join("leveret"))
        .find(|path| path.is_file())
        .expect("the broker must be built first (make build), or LEVERET_BIN must name it")
}

/// A port on loopback that nobody listens on now.
///
/// Taken at random from below the range of outgoing connections, so that no client takes it before
/// the node does, or while the node restarts. No other test takes it either: the UDP socket of the
/// same number, held until this process ends, says that it is given away.
pub fn free_port() -> u16 {
    static GIVEN: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());
    loop {
        let number = RandomState::new().build_hasher().finish() % 20_000;
        let port = 10_000 + u16::try_from(number).expect("below 20,000");
        let Ok(given) = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)) else { continue };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            GIVEN.lock().unwrap_or_else(PoisonError::into_inner).push(given);
            return port;
        }
    }
}

/// How a node is started.
#[derive(Debug)]
pub struct Setup {
    settings: Vec<(String, String)>,
    directory: Option<PathBuf>,
    environment: Vec<(String, String)>,
}

impl Setup {
    /// Three listeners on loopback, a data directory of its own, defaults for the rest.
    pub fn new() -> Self {
        Self { settings: Vec::new(), directory: None, environment: Vec::new() }
    }

    /// Sets a configuration key, as `--set KEY=VALUE`.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Into<String>) -> Self {
        self.settings.push((key.to_owned(), value.into()));
        self
    }

    /// Uses a data directory that outlives the node.
    #[must_use]
    pub fn directory(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    /// Sets an environment variable of the process.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts the node and waits until it serves.
    pub fn start(self) -> Node {
        let mut node = self.spawn();
        node.await_ready();
        node
    }

    /// Starts the process and does not wait.
    pub fn spawn(self) -> Node {
        let mut node = self.prepare();
        node.run();
        node
    }

    /// Chooses ports and a data directory, and does not start the process.
    pub fn prepare(self) -> Node {
        let scratch = TempDir::new().expect("temporary directories can be made");
        let directory = self.directory.unwrap_or_else(|| scratch.path().join("data"));
        let listener = |key: &str| {
            let setting = self.settings.iter().find(|(name, _)| name == key);
            let port = setting
                .and_then(|(_, value)| value.rsplit(':').next()?.parse().ok())
                .unwrap_or_else(free_port);
            SocketAddr::from((Ipv4Addr::LOCALHOST, port))
        };
        let [amqp, http, metrics] =
            ["listeners.amqp", "listeners.http", "listeners.metrics"].map(listener);
        let mut arguments = vec![
            format!("data_dir={}", directory.display()),
            format!("listeners.amqp={amqp}"),
            format!("listeners.http={http}"),
            format!("listeners.metrics={metrics}"),
            // Segments are written in full when they are made; a test has no use for large ones.
            "journal.segment_size=4MiB".to_owned(),
            // A test's own idle client would hold up every stop.
            "shutdown_timeout=1s".to_owned(),
        ];
        arguments.extend(self.settings.iter().map(|(key, value)| format!("{key}={value}")));
        let log = scratch.path().join("log");
        Node {
            child: None,
            scratch,
            directory,
            log,
            arguments,
            environment: self.environment,
            amqp,
            http,
            metrics,
            quiet: false,
        }
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}

/// A broker process. Killed when dropped; its log is printed if the test fails.
#[derive(Debug)]
pub struct Node {
    child: Option<Child>,
    scratch: TempDir,
    /// Its data directory.
    pub directory: PathBuf,
    log: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// Its AMQP listener.
    pub amqp: SocketAddr,
    /// Its HTTP listener.
    pub http: SocketAddr,
    /// Its metrics listener.
    pub metrics: SocketAddr,
    /// Whether the log is kept to ourselves when the test fails.
    pub quiet: bool,
}

impl Node {
    /// What its configuration says under a key.
    ///
    /// # Panics
    /// If it says nothing.
    pub fn setting(&self, key: &str) -> &str {
        let said = |argument: &'_ String| -> Option<usize> {
            argument.strip_prefix(key)?.starts_with('=').then_some(key.len() + 1)
        };
        let found = self.arguments.iter().rev().find_map(|one| one.get(said(one)?..));
        found.expect("the key is set")
    }

    /// Starts the process on the same data directory and ports.
    pub fn run(&mut self) {
        assert!(self.child.is_none(), "the node already runs");
        let log = File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .expect("the log file can be written");
        let errors = log.try_clone().expect("a file handle can be cloned");
        let mut command = Command::new(binary());
        for argument in &self.arguments {
            command.arg("--set").arg(argument);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        self.child = Some(command.spawn().expect("the broker's binary can be started"));
    }

    /// Changes settings for the next start.
    pub fn set(&mut self, key: &str, value: &str) {
        let prefix = format!("{key}=");
        self.arguments.retain(|argument| !argument.starts_with(&prefix));
        self.arguments.push(format!("{prefix}{value}"));
    }

    /// Waits until AMQP and HTTP serve.
    ///
    /// # Panics
    /// If the process exits, or does not serve in time.
    pub fn await_ready(&mut self) {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            if self.serves() {
                return;
            }
            if let Some(status) = self.exited() {
                panic!("the broker exited with {status} instead of serving:\n{}", self.log());
            }
            assert!(Instant::now() < deadline, "the broker does not serve:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether AMQP and HTTP serve now.
    pub fn serves(&self) -> bool {
        let ready = Api::new(self.http)
            .anonymous()
            .request("GET", "/api/health/checks/ready-to-serve-clients", None)
            .is_ok_and(|answer| answer.status == 200);
        ready && Options::new(self.amqp).connect().is_ok_and(|client| client.close().is_ok())
    }

    /// Whether a handshake over AMQP succeeds now.
    pub fn serves_amqp(&self) -> bool {
        Options::new(self.amqp).connect().is_ok()
    }

    /// How the process ended, if it did.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().expect("our own child can be waited for")?;
        self.child = None;
        Some(status)
    }

    /// Waits for the process to end by itself.
    pub fn await_exit(&mut self) -> ExitStatus {
        wait::until_some("the broker exits", || self.exited())
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the node runs").id()
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("our own child can be killed");
            child.wait().expect("our own child can be waited for");
        }
    }

    /// Sends SIGTERM and does not wait.
    pub fn signal_stop(&self) {
        self.signal("TERM");
    }

    /// SIGHUP: the process reads its configuration again.
    pub fn reload(&self) {
        self.signal("HUP");
    }

    /// Writes a configuration file, which is read from the next start on.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn configure(&mut self, text: &str) {
        let path = self.log.with_extension("toml");
        fs::write(&path, text).expect("a configuration can be written");
        let name = "LEVERET_CONFIG".to_owned();
        self.environment.retain(|(known, _)| *known != name);
        self.environment.push((name, path.display().to_string()));
    }

    /// SIGSTOP: the process stands still and its sockets stay open.
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    /// SIGCONT after [`freeze`](Self::freeze).
    pub fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let status =
            Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status();
        assert!(status.is_ok_and(|status| status.success()), "SIG{name} can be sent");
    }

    /// Whether there is a process.
    pub fn runs(&self) -> bool {
        self.child.is_some()
    }

    /// Removes all data of a node that does not run.
    pub fn wipe(&self) {
        assert!(self.child.is_none(), "the node runs");
        fs::remove_dir_all(&self.directory).expect("a data directory can be removed");
    }

    /// SIGTERM, and waits for the end.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal_stop();
        self.await_exit()
    }

    /// SIGTERM, then a new process on the same data; how long the start took until it served.
    pub fn restart(&mut self) -> Duration {
        self.stop();
        self.start_again()
    }

    /// SIGKILL, then a new process on the same data; how long the start took until it served.
    pub fn crash(&mut self) -> Duration {
        self.kill();
        self.start_again()
    }

    /// A new process on the same data; how long the start took until it served AMQP.
    pub fn start_again(&mut self) -> Duration {
        let begin = Instant::now();
        self.run();
        self.await_ready();
        begin.elapsed()
    }

    /// What the node has logged.
    pub fn log(&self) -> String {
        fs::read(&self.log)
            .map(|log| String::from_utf8_lossy(&log).into_owned())
            .unwrap_or_default()
    }

    /// Resident memory in bytes.
    pub fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
        let kib: u64 =
            line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or_default();
        kib * 1024
    }

    /// Open file descriptors.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).map(Iterator::count).unwrap_or_default()
    }

    /// CPU time used so far.
    pub fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        let ticks: u64 = after_name
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|text| text.parse::<u64>().ok())
            .sum();
        Duration::from_millis(ticks * 10)
    }

    /// Bytes that the data directory occupies on disk.
    pub fn disk(&self) -> u64 {
        occupied(&self.directory)
    }
}

/// Bytes that a directory occupies on disk, with all below it.
pub fn occupied(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    entries
        .filter_map(Result::ok)
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => occupied(&entry.path()),
            Ok(metadata) => metadata.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() && !self.quiet {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines.get(lines.len().saturating_sub(60)..).unwrap_or_default();
            eprintln!("--- the broker's log, last lines ---\n{}\n---", tail.join("\n"));
        }
    }
}

impl Node {
    /// What the process is started with.
    pub fn command_line(&self) -> Vec<String> {
        let pair = |argument: &String| ["--set".to_owned(), argument.clone()];
        self.arguments.iter().flat_map(pair).collect()
    }

    /// A node with the same settings, and ports and an empty data directory of its own.
    #[must_use]
    pub fn twin(&self) -> Self {
        let mut setup = Setup::new();
        let own = ["data_dir=", "listeners."];
        for argument in &self.arguments {
            let (key, value) = argument.split_once('=').expect("settings are KEY=VALUE");
            if !own.iter().any(|own| argument.starts_with(own)) {
                setup = setup.set(key, value);
            }
        }
        if self.arguments.iter().any(|argument| argument.starts_with("listeners.peer=")) {
            setup = setup.set("listeners.peer", format!("127.0.0.1:{}", free_port()));
        }
        setup.environment.clone_from(&self.environment);
        setup.prepare()
    }

    /// A directory that lives as long as this node, beside its data.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }
}
