//! From a command line to an exit code.

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::{Arguments, Command, JournalCommand};
use crate::client::{Client, segment};
use crate::exit::{Exit, Failed};
use crate::list::{self, List};
use crate::output::Rows;
use crate::{act, activation, check, journals, members, nodes, offline, reconcile, sequences};

/// One run of a command: whom it asks, where it prints.
pub(crate) struct Session<'a> {
    /// The node.
    pub(crate) client: Client,
    /// The command line.
    pub(crate) arguments: &'a Arguments,
    /// Standard output.
    pub(crate) out: &'a mut dyn Write,
}

/// Performs a command. Results go to `out`, failures to `err`.
pub fn run(arguments: &Arguments, out: &mut dyn Write, err: &mut dyn Write) -> Exit {
    let client = Client::new(
        &arguments.url,
        &arguments.user,
        &arguments.password,
        Duration::from_secs(arguments.timeout),
    );
    let mut session = Session { client, arguments, out };
    match session.perform() {
        Ok(()) => Exit::Done,
        Err(failed) => {
            // Nothing can be done if the terminal is gone.
            let _ignored = writeln!(err, "Error:\n{}", failed.reason);
            failed.exit
        }
    }
}

impl Session<'_> {
    fn perform(&mut self) -> Result<(), Failed> {
        if let Command::Journal(
            command @ (JournalCommand::Inspect { .. } | JournalCommand::Verify { .. }),
        ) = &self.arguments.command
        {
            return offline::journal(command, self.arguments.formatter, self.out);
        }
        if let Command::Activation(command) = &self.arguments.command
            && activation::perform(command, self.arguments, self.out)?
        {
            return Ok(());
        }
        if act::perform(self)?
            || check::perform(self)?
            || members::perform(self)?
            || nodes::perform(self)?
            || reconcile::perform(self)?
            || journals::perform(self)?
            || sequences::perform(self)?
        {
            return Ok(());
        }
        let vhost = segment(&self.arguments.vhost);
        let none: &[String] = &[];
        let (list, columns) = match &self.arguments.command {
            Command::ListQueues { columns } => (
                List {
                    what: "queues",
                    path: format!("queues/{vhost}"),
                    default: &["name", "messages"],
                    aliases: list::QUEUE,
                    is_of_vhost: true,
                },
                columns.as_slice(),
            ),
            Command::ListExchanges { columns } => (
                List {
                    what: "exchanges",
                    path: format!("exchanges/{vhost}"),
                    default: &["name", "type"],
                    aliases: list::OTHER,
                    is_of_vhost: true,
                },
                columns.as_slice(),
            ),
            Command::ListBindings { columns } => (
                List {
                    what: "bindings",
                    path: format!("bindings/{vhost}"),
                    default: &[
                        "source_name",
                        "source_kind",
                        "destination_name",
                        "destination_kind",
                        "routing_key",
                        "arguments",
                    ],
                    aliases: list::BINDING,
                    is_of_vhost: true,
                },
                columns.as_slice(),
            ),
            Command::ListConnections { columns } => (
                List {
                    what: "connections",
                    path: "connections".to_owned(),
                    default: &["user", "peer_host", "peer_port", "state"],
                    aliases: list::CONNECTION,
                    is_of_vhost: false,
                },
                columns.as_slice(),
            ),
            Command::ListChannels { columns } => (
                List {
                    what: "channels",
                    path: "channels".to_owned(),
                    default: &["pid", "user", "consumer_count", "messages_unacknowledged"],
                    aliases: list::CHANNEL,
                    is_of_vhost: false,
                },
                columns.as_slice(),
            ),
            Command::ListConsumers { columns } => (
                List {
                    what: "consumers",
                    path: format!("consumers/{vhost}"),
                    default: &[
                        "queue_name",
                        "channel_pid",
                        "consumer_tag",
                        "ack_required",
                        "prefetch_count",
                        "active",
                        "arguments",
                    ],
                    aliases: list::CONSUMER,
                    is_of_vhost: true,
                },
                columns.as_slice(),
            ),
            Command::ListVhosts { columns } => (
                List {
                    what: "vhosts",
                    path: "vhosts".to_owned(),
                    default: &["name"],
                    aliases: list::OTHER,
                    is_of_vhost: false,
                },
                columns.as_slice(),
            ),
            Command::ListUsers => (
                List {
                    what: "users",
                    path: "users".to_owned(),
                    default: &["user", "tags"],
                    aliases: list::USER,
                    is_of_vhost: false,
                },
                none,
            ),
            Command::ListPermissions => (
                List {
                    what: "permissions",
                    path: format!("vhosts/{vhost}/permissions"),
                    default: &["user", "configure", "write", "read"],
                    aliases: list::OTHER,
                    is_of_vhost: true,
                },
                none,
            ),
            Command::ListUserPermissions { username } => (
                List {
                    what: "permissions",
                    path: format!("users/{}/permissions", segment(username)),
                    default: &["vhost", "configure", "write", "read"],
                    aliases: list::OTHER,
                    is_of_vhost: false,
                },
                none,
            ),
            Command::ListPolicies | Command::ListOperatorPolicies => {
                let operator = matches!(self.arguments.command, Command::ListOperatorPolicies);
                let list = if operator { "operator-policies" } else { "policies" };
                (
                    List {
                        what: "policies",
                        path: format!("{list}/{vhost}"),
                        default: &[
                            "vhost",
                            "name",
                            "pattern",
                            "apply-to",
                            "definition",
                            "priority",
                        ],
                        aliases: list::OTHER,
                        is_of_vhost: true,
                    },
                    none,
                )
            }
            Command::ListVhostLimits => (
                List {
                    what: "limits",
                    path: format!("vhost-limits/{vhost}"),
                    default: &["vhost", "value"],
                    aliases: list::OTHER,
                    is_of_vhost: true,
                },
                none,
            ),
            Command::ListUserLimits => (
                List {
                    what: "limits",
                    path: "user-limits".to_owned(),
                    default: &["user", "value"],
                    aliases: list::OTHER,
                    is_of_vhost: false,
                },
                none,
            ),
            other => return Err(Failed::new(Exit::Software, format!("not performed: {other:?}"))),
        };
        let place = if list.is_of_vhost {
            format!(" for vhost {}", self.arguments.vhost)
        } else {
            String::new()
        };
        self.say(&format!("Listing {}{place} ...", list.what))?;
        let rows = list.fetch(&self.client, columns)?;
        self.print(&rows)
    }

    /// A line for people; machines do not want it.
    pub(crate) fn say(&mut self, line: &str) -> Result<(), Failed> {
        let is_quiet = self.arguments.quiet || self.arguments.silent;
        if !is_quiet && self.arguments.formatter == crate::cli::Formatter::Table {
            writeln!(self.out, "{line}")?;
        }
        Ok(())
    }

    /// Prints rows as the command line wants them.
    pub(crate) fn print(&mut self, rows: &Rows) -> Result<(), Failed> {
        let headers = !self.arguments.no_table_headers && !self.arguments.silent;
        rows.print(self.arguments.formatter, headers, self.out)?;
        Ok(())
    }

    /// Prints names and values, one pair a line, or one JSON object.
    pub(crate) fn print_pairs(&mut self, pairs: &[(&str, Value)]) -> Result<(), Failed> {
        if self.arguments.formatter == crate::cli::Formatter::Json {
            let object: serde_json::Map<String, Value> =
                pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
            writeln!(self.out, "{}", json!(object))?;
            return Ok(());
        }
        let rows = Rows {
            columns: vec!["name".to_owned(), "value".to_owned()],
            rows: pairs.iter().map(|(name, value)| vec![json!(name), value.clone()]).collect(),
        };
        rows.print(self.arguments.formatter, false, self.out)?;
        Ok(())
    }
}
