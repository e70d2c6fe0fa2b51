//! The command line.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// A load generator for any AMQP 0.9.1 broker.
#[derive(Debug, Parser)]
#[command(name = "leveret-perf", version, args_conflicts_with_subcommands = true)]
pub struct CommandLine {
    /// Compares instead of a single run.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// One run.
    #[command(flatten)]
    pub options: Options,
}

/// Other things than one run.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the standard workloads against two brokers in turn and write a page about it
    Compare(Compare),
}

/// What load to make, and what to report.
#[derive(Debug, Clone, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub struct Options {
    /// The broker
    #[arg(long, default_value = "amqp://guest:guest@127.0.0.1:5672/%2f")]
    pub uri: String,
    /// Publishers, each with a connection and a thread of its own
    #[arg(long, default_value_t = 1)]
    pub publishers: u16,
    /// Consumers, each with a connection and a thread of its own
    #[arg(long, default_value_t = 1)]
    pub consumers: u16,
    /// Bytes of body; verification needs 8, latency 16
    #[arg(long, default_value_t = 16)]
    pub size: u32,
    /// Publish with delivery mode 2
    #[arg(long)]
    pub persistent: bool,
    /// Publisher confirms, with at most N unconfirmed messages per publisher
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub confirms: Option<u32>,
    /// Acknowledge every N messages at once; without it, consumers use automatic acknowledgement
    #[arg(long, value_name = "N", conflicts_with = "auto_ack",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub ack_every: Option<u32>,
    /// Automatic acknowledgement: the default without --ack-every
    #[arg(long)]
    pub auto_ack: bool,
    /// Unacknowledged messages that a consumer may hold; 0 is no limit. Default: 1000, or twice
    /// --ack-every if that is more
    #[arg(long, value_name = "N")]
    pub prefetch: Option<u16>,
    /// The queue, or with --queues the beginning of their names
    #[arg(long, value_name = "NAME", default_value = "leveret-perf")]
    pub queue: String,
    /// N queues NAME-1 to NAME-N; publishers and consumers are dealt out to them in turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub queues: Option<u16>,
    /// Arguments of the queues, such as {"x-queue-type":"quorum"}
    #[arg(long, value_name = "JSON")]
    pub queue_args: Option<String>,
    /// Declare the queues as not durable
    #[arg(long)]
    pub transient: bool,
    /// Declare each queue exclusively, on the connection of its only consumer
    #[arg(long, conflicts_with = "no_declare")]
    pub exclusive: bool,
    /// Declare the queues with auto-delete
    #[arg(long)]
    pub auto_delete: bool,
    /// Use the queues (and bindings) as they are; neither declare nor delete
    #[arg(long)]
    pub no_declare: bool,
    /// Do not delete the queues at the end
    #[arg(long)]
    pub keep: bool,
    /// Publish to this exchange instead of the default one; the queues are bound to it
    #[arg(long, value_name = "NAME", default_value = "")]
    pub exchange: String,
    /// Publish with this key instead of the queue's name
    #[arg(long, value_name = "KEY")]
    pub routing_key: Option<String>,
    /// Publish with the mandatory flag; returned messages are counted
    #[arg(long)]
    pub mandatory: bool,
    /// Messages per second of each publisher
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub rate: Option<u64>,
    /// At most N messages per write to the socket: 1 is how most client libraries publish.
    /// Default: as many as fit 64 KiB
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub batch: Option<u64>,
    /// Publish for S seconds (default 10)
    #[arg(long, value_name = "S", conflicts_with = "messages")]
    pub duration: Option<f64>,
    /// Publish N messages altogether. Without publishers: consume N messages
    #[arg(long, value_name = "N")]
    pub messages: Option<u64>,
    /// Number each message and report lost, duplicated and reordered ones; implies --drain
    #[arg(long)]
    pub verify: bool,
    /// After --duration, wait until the consumers have everything
    #[arg(long)]
    pub drain: bool,
    /// Give up when nothing moves for S seconds after everything was published; publishers that
    /// are held back wait
    #[arg(long, value_name = "S", default_value_t = 15.0)]
    pub stall: f64,
    /// Insist on latency figures (they are shown whenever the size allows)
    #[arg(long)]
    pub latency: bool,
    /// Marks the messages of this run, 0 to 4095, so that another run can verify them. Default:
    /// from the clock
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..4096))]
    pub run_id: Option<u16>,
    /// Process ids of the broker, whose CPU and memory are reported
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub broker_pid: Vec<u32>,
    /// Heartbeat interval to ask for, in seconds; default: what the broker suggests
    #[arg(long, value_name = "S")]
    pub heartbeat: Option<u16>,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
    /// No progress lines
    #[arg(long)]
    pub quiet: bool,
}

/// Two brokers, the same workloads.
#[derive(Debug, Clone, Args)]
pub struct Compare {
    /// The broker to look at
    #[arg(long)]
    pub uri: String,
    /// Its process ids
    #[arg(long, value_delimiter = ',', required = true)]
    pub pid: Vec<u32>,
    /// The broker to compare with
    #[arg(long)]
    pub peer_uri: Option<String>,
    /// Its process ids
    #[arg(long, value_delimiter = ',', requires = "peer_uri")]
    pub peer_pid: Vec<u32>,
    /// How often each workload runs on each broker; figures are medians
    #[arg(long, default_value_t = 3)]
    pub rounds: u32,
    /// Seconds of publishing per run
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// Quorum queues instead of the broker's default type: other workloads, and the process ids are those of all nodes
    #[arg(long)]
    pub quorum: bool,
    /// Only workloads whose name contains this
    #[arg(long)]
    pub only: Option<String>,
    /// Where to write the page; without it, it goes to the standard output
    #[arg(long)]
    pub out: Option<PathBuf>,
}

impl Options {
    /// The queues' names.
    pub fn queue_names(&self) -> Vec<String> {
        match self.queues {
            None => vec![self.queue.clone()],
            Some(count) => (1..=count).map(|number| format!("{}-{number}", self.queue)).collect(),
        }
    }

    /// The limit that consumers ask for; `None` with automatic acknowledgement.
    pub fn prefetch(&self) -> Option<u16> {
        let ack_every = self.ack_every?;
        let twice = u16::try_from(ack_every.saturating_mul(2)).unwrap_or(0);
        Some(self.prefetch.unwrap_or(if twice == 0 { 0 } else { twice.max(1000) }))
    }

    /// Whether the run ends only when everything has been consumed.
    pub fn drains(&self) -> bool {
        self.consumers > 0 && (self.messages.is_some() || self.verify || self.drain)
    }

    /// Checks what clap cannot.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn check(&self) -> Result<(), String> {
        if self.publishers == 0 && self.consumers == 0 {
            return Err("neither publishers nor consumers".to_owned());
        }
        if self.publishers > 4096 {
            return Err(format!("--publishers {} is more than 4096", self.publishers));
        }
        if self.verify && self.size < 8 {
            return Err(format!("--verify needs --size 8 or more, not {}", self.size));
        }
        if self.latency && self.size < 16 {
            return Err(format!("--latency needs --size 16 or more, not {}", self.size));
        }
        if let (Some(ack_every), Some(prefetch)) = (self.ack_every, self.prefetch)
            && prefetch != 0
            && u32::from(prefetch) < ack_every
        {
            return Err(format!(
                "--prefetch {prefetch} is less than --ack-every {ack_every}: nothing would move"
            ));
        }
        if self.exclusive && usize::from(self.consumers) != self.queue_names().len() {
            return Err("--exclusive needs exactly one consumer per queue".to_owned());
        }
        for (name, seconds) in [("duration", self.duration), ("stall", Some(self.stall))] {
            if seconds.is_some_and(|seconds| !(seconds > 0.0 && seconds < 1e9)) {
                return Err(format!("--{name} is not a number of seconds"));
            }
        }
        match &self.queue_args {
            Some(text) => crate::arguments::parse(text).map(drop),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Result<(), &str>) {
        let line = CommandLine::try_parse_from(line.split(' ')).unwrap();
        assert_eq!(line.options.check(), expected.map_err(str::to_owned));
    }

    #[test]
    fn options_are_checked() {
        check("leveret-perf", Ok(()));
        check(
            "leveret-perf --uri amqp://a:b@h:1/v --publishers 4 --consumers 4 --size 1024 \
             --persistent --confirms 1000 --ack-every 10 --prefetch 100 --queues 4 --verify \
             --queue-args {} --rate 5 --messages 10 --broker-pid 1,2 --json",
            Ok(()),
        );
        check("leveret-perf --publishers 0 --consumers 0", Err("neither publishers nor consumers"));
        check("leveret-perf --verify --size 7", Err("--verify needs --size 8 or more, not 7"));
        check(
            "leveret-perf --ack-every 10 --prefetch 9",
            Err("--prefetch 9 is less than --ack-every 10: nothing would move"),
        );
        check(
            "leveret-perf --exclusive --queues 2",
            Err("--exclusive needs exactly one consumer per queue"),
        );
        check("leveret-perf --stall 0", Err("--stall is not a number of seconds"));
        check("leveret-perf --duration nan", Err("--duration is not a number of seconds"));
        check("leveret-perf --queue-args 5", Err("--queue-args must be a JSON object, not 5"));
    }

    #[test]
    fn prefetch_has_a_default() {
        let prefetch =
            |line: &str| CommandLine::try_parse_from(line.split(' ')).unwrap().options.prefetch();
        assert_eq!(prefetch("p"), None);
        assert_eq!(prefetch("p --ack-every 10"), Some(1000));
        assert_eq!(prefetch("p --ack-every 600"), Some(1200));
        assert_eq!(prefetch("p --ack-every 60000"), Some(0));
        assert_eq!(prefetch("p --ack-every 10 --prefetch 20"), Some(20));
    }
}
