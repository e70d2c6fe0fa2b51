//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Operates a Leveret node.
#[derive(Debug, Parser)]
#[command(name = "leveretctl", version, rename_all = "snake_case")]
pub struct Arguments {
    /// Where the HTTP API of the node is.
    #[arg(long, global = true, env = "LEVERET_URL", default_value = "http://127.0.0.1:15672")]
    pub url: String,
    /// Who asks.
    #[arg(long, global = true, env = "LEVERET_USER", default_value = "guest")]
    pub user: String,
    /// The password.
    #[arg(
        long,
        global = true,
        env = "LEVERET_PASSWORD",
        default_value = "guest",
        hide_env_values = true,
        hide_default_value = true
    )]
    pub password: String,
    /// The virtual host that commands are about.
    #[arg(long, short = 'p', global = true, default_value = "/")]
    pub vhost: String,
    /// How lists are printed.
    #[arg(long, global = true, value_enum, default_value = "table")]
    pub formatter: Formatter,
    /// Print no header lines.
    #[arg(long = "no-table-headers", global = true)]
    pub no_table_headers: bool,
    /// Print nothing but results, with header lines.
    #[arg(long, short = 'q', global = true)]
    pub quiet: bool,
    /// Print nothing but results, without header lines.
    #[arg(long, short = 's', global = true)]
    pub silent: bool,
    /// Seconds to wait for the node.
    #[arg(long, short = 't', global = true, default_value_t = 30)]
    pub timeout: u64,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// How lists are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Formatter {
    /// Columns with tabs between them.
    Table,
    /// An array of objects.
    Json,
    /// Comma-separated values.
    Csv,
}

/// What to do.
#[derive(Debug, Subcommand)]
#[command(rename_all = "snake_case")]
pub enum Command {
    /// Says whether the node answers.
    Ping,
    /// Prints the version of the node.
    #[command(alias = "version")]
    ServerVersion,
    /// Prints what the node is and does.
    Status,
    /// Lists the nodes of the cluster and whether they run.
    ClusterStatus,
    /// Lists alarms that are on.
    Alarms,
    /// Fails if any alarm is on.
    CheckAlarms,
    /// Fails if an alarm of this node is on.
    CheckLocalAlarms,
    /// Fails if the node does not serve clients.
    #[command(alias = "is_running")]
    CheckRunning,
    /// Fails if a virtual host is down.
    CheckVirtualHosts,
    /// Fails if nothing listens on a port.
    CheckPortListener {
        /// The port.
        port: u16,
    },
    /// Fails if no listener speaks a protocol.
    CheckProtocolListener {
        /// Such as `amqp`.
        protocol: String,
    },
    /// Lists open listeners.
    Listeners,
    /// Lists queues of a virtual host.
    ListQueues {
        /// Such as `name messages consumers`.
        columns: Vec<String>,
    },
    /// Lists exchanges of a virtual host.
    ListExchanges {
        /// Such as `name type`.
        columns: Vec<String>,
    },
    /// Lists bindings of a virtual host.
    ListBindings {
        /// Such as `source_name destination_name routing_key`.
        columns: Vec<String>,
    },
    /// Lists client connections.
    ListConnections {
        /// Such as `user peer_host peer_port state`.
        columns: Vec<String>,
    },
    /// Lists channels.
    ListChannels {
        /// Such as `name user consumer_count messages_unacknowledged`.
        columns: Vec<String>,
    },
    /// Lists consumers of a virtual host.
    ListConsumers {
        /// Such as `queue_name consumer_tag`.
        columns: Vec<String>,
    },
    /// Lists users.
    ListUsers,
    /// Lists virtual hosts.
    ListVhosts {
        /// Such as `name description`.
        columns: Vec<String>,
    },
    /// Lists permissions in a virtual host.
    ListPermissions,
    /// Lists the permissions of a user.
    ListUserPermissions {
        /// Whose.
        username: String,
    },
    /// Lists policies of a virtual host.
    ListPolicies,
    /// Lists operator policies of a virtual host.
    ListOperatorPolicies,
    /// Lists limits of a virtual host.
    ListVhostLimits,
    /// Lists limits of users.
    ListUserLimits,
    /// Makes a user.
    AddUser {
        /// The login.
        username: String,
        /// The password.
        new_password: String,
    },
    /// Deletes a user.
    DeleteUser {
        /// The login.
        username: String,
    },
    /// Gives a user another password.
    ChangePassword {
        /// The login.
        username: String,
        /// The password.
        new_password: String,
    },
    /// Says whether a password is right.
    AuthenticateUser {
        /// The login.
        username: String,
        /// The password.
        candidate: String,
    },
    /// Replaces the tags of a user.
    SetUserTags {
        /// The login.
        username: String,
        /// Such as `administrator`; none removes them all.
        tags: Vec<String>,
    },
    /// Gives a user permissions in a virtual host.
    SetPermissions {
        /// The login.
        username: String,
        /// A regular expression.
        configure: String,
        /// A regular expression.
        write: String,
        /// A regular expression.
        read: String,
    },
    /// Takes a user's permissions in a virtual host.
    ClearPermissions {
        /// The login.
        username: String,
    },
    /// Gives a user permissions on a topic exchange.
    SetTopicPermissions {
        /// The login.
        username: String,
        /// The exchange.
        exchange: String,
        /// A regular expression.
        write: String,
        /// A regular expression.
        read: String,
    },
    /// Takes a user's permissions on topic exchanges.
    ClearTopicPermissions {
        /// The login.
        username: String,
    },
    /// Makes a virtual host, or changes what is given.
    AddVhost {
        /// Its name.
        name: String,
        /// For people.
        #[arg(long)]
        description: Option<String>,
        /// For people, with commas.
        #[arg(long)]
        tags: Option<String>,
        /// Of queues that are declared without a type.
        #[arg(long = "default-queue-type")]
        default_queue_type: Option<String>,
    },
    /// Deletes a virtual host with everything in it.
    DeleteVhost {
        /// Its name.
        name: String,
    },
    /// Limits a virtual host.
    SetVhostLimits {
        /// Such as `{"max-queues": 10}`.
        definition: String,
    },
    /// Removes the limits of a virtual host.
    ClearVhostLimits,
    /// Makes or replaces a policy.
    SetPolicy {
        /// Its name.
        name: String,
        /// A regular expression over names of queues and exchanges.
        pattern: String,
        /// Such as `{"max-length": 100}`.
        definition: String,
        /// The highest one that matches wins.
        #[arg(long, default_value_t = 0)]
        priority: i64,
        /// `all`, `queues`, `exchanges`, `classic_queues` or `quorum_queues`.
        #[arg(long = "apply-to", default_value = "all")]
        apply_to: String,
    },
    /// Deletes a policy.
    ClearPolicy {
        /// Its name.
        name: String,
    },
    /// Makes or replaces an operator policy.
    SetOperatorPolicy {
        /// Its name.
        name: String,
        /// A regular expression over names of queues.
        pattern: String,
        /// Such as `{"max-length": 100}`.
        definition: String,
        /// The highest one that matches wins.
        #[arg(long, default_value_t = 0)]
        priority: i64,
        /// `queues`, `classic_queues` or `quorum_queues`.
        #[arg(long = "apply-to", default_value = "queues")]
        apply_to: String,
    },
    /// Deletes an operator policy.
    ClearOperatorPolicy {
        /// Its name.
        name: String,
    },
    /// Deletes a queue.
    DeleteQueue {
        /// Its name.
        name: String,
        /// Only if it holds no messages.
        #[arg(long = "if-empty", short = 'e')]
        if_empty: bool,
        /// Only if it has no consumers.
        #[arg(long = "if-unused", short = 'u')]
        if_unused: bool,
    },
    /// Removes all messages that wait in a queue.
    PurgeQueue {
        /// Its name.
        name: String,
    },
    /// Prints what each member of a quorum queue says of itself.
    QuorumStatus {
        /// The queue.
        queue: String,
    },
    /// Gives the leadership of a quorum queue to a node.
    TransferLeadership {
        /// The queue.
        queue: String,
        /// The node, such as `leveret@n1`; it has to be a member.
        node: String,
    },
    /// Prints a message that waits in a quorum queue, and leaves it where it is.
    Peek {
        /// The queue.
        queue: String,
        /// Counted from 1, in the order in which messages are delivered.
        #[arg(value_parser = position)]
        position: u64,
    },
    /// Gives a quorum queue a member on a node.
    AddMember {
        /// The queue.
        queue: String,
        /// The node, such as `leveret@n1`.
        node: String,
        /// `promotable` or `voter`: in the end the member has a vote.
        #[arg(long, default_value = "promotable")]
        membership: String,
    },
    /// Takes the member on a node from a quorum queue. The node need not run.
    DeleteMember {
        /// The queue.
        queue: String,
        /// The node, such as `leveret@n1`; one that was forgotten is named by its number.
        node: String,
        /// Even if too few running members are left to go on.
        #[arg(long)]
        force: bool,
    },
    /// Gives quorum queues a member on a node.
    Grow {
        /// The node, such as `leveret@n1`.
        node: String,
        /// `all` queues that match, or those with an `even` number of members.
        #[arg(value_parser = ["all", "even"])]
        strategy: String,
        /// Which queues.
        #[command(flatten)]
        matching: Matching,
    },
    /// Gives quorum queues members until they have so many.
    GrowToCount {
        /// How many.
        count: u32,
        /// `all` queues that match, or those with an `even` number of members.
        #[arg(value_parser = ["all", "even"])]
        strategy: String,
        /// Which queues.
        #[command(flatten)]
        matching: Matching,
    },
    /// Takes the members on a node from all quorum queues. The node need not run.
    Shrink {
        /// The node, such as `leveret@n1`; one that was forgotten is named by its number.
        node: String,
        /// Print only queues that it did not work for.
        #[arg(long = "errors-only")]
        errors_only: bool,
        /// Even if too few running members are left to go on.
        #[arg(long)]
        force: bool,
    },
    /// Lets a quorum queue that has lost its majority for good go on with one member alone. Messages
    /// that only the others have are lost.
    ForceShrink {
        /// The queue.
        queue: String,
        /// The node of the member that goes on, such as `leveret@n1`.
        node: String,
        /// Says that messages may be lost.
        #[arg(long)]
        force: bool,
    },
    /// The same for all quorum queues that have a member on a node and no majority any more.
    ForceShrinkAll {
        /// The node of the members that go on, such as `leveret@n1`.
        node: String,
        /// A regular expression over names of virtual hosts.
        #[arg(long = "vhost-pattern", default_value = ".*")]
        vhost_pattern: String,
        /// A regular expression over names of queues.
        #[arg(long = "queue-pattern", default_value = ".*")]
        queue_pattern: String,
        /// Print only queues that it did not work for.
        #[arg(long = "errors-only")]
        errors_only: bool,
        /// Says that messages may be lost.
        #[arg(long)]
        force: bool,
    },
    /// Lets all members of quorum queues take a checkpoint, so that their logs can be shortened.
    ForceCheckpoint {
        /// A regular expression over names of virtual hosts.
        #[arg(long = "vhost-pattern", default_value = ".*")]
        vhost_pattern: String,
        /// A regular expression over names of queues.
        #[arg(long = "queue-pattern", default_value = ".*")]
        queue_pattern: String,
        /// Print only queues that it did not work for.
        #[arg(long = "errors-only")]
        errors_only: bool,
    },
    /// Lets a quorum queue's members drop what they keep of the log in memory and on disk beyond its
    /// messages.
    ReclaimQuorumMemory {
        /// The queue.
        queue: String,
    },
    /// Moves leaders of quorum queues until all nodes lead about as many.
    Rebalance {
        /// `all` or `quorum`; classic queues stay where they are.
        #[arg(value_parser = ["all", "classic", "quorum"])]
        kind: String,
        /// A regular expression over names of virtual hosts.
        #[arg(long = "vhost-pattern", default_value = ".*")]
        vhost_pattern: String,
        /// A regular expression over names of queues.
        #[arg(long = "queue-pattern", default_value = ".*")]
        queue_pattern: String,
    },
    /// Puts a node into maintenance mode: it closes its clients' connections and leads no queues.
    Drain {
        /// The node, such as `leveret@n1`; without it the one that is asked.
        node: Option<String>,
    },
    /// Ends the maintenance mode of a node.
    Revive {
        /// The node, such as `leveret@n1`; without it the one that is asked.
        node: Option<String>,
    },
    /// Takes a node that does not run out of the cluster, with its members of quorum queues.
    ForgetClusterNode {
        /// The node, such as `leveret@n1`.
        node: String,
        /// Even if queues are lost that are only there.
        #[arg(long)]
        force: bool,
        /// Leave its members of quorum queues, which dangle then, to reconciliation.
        #[arg(long = "keep-members")]
        keep_members: bool,
    },
    /// Tells a node that has not started yet which cluster it belongs to: it joins when it starts. Its
    /// configuration needs what all nodes have (`cluster.secret`, `cluster.name`) and a
    /// `listeners.peer` that they can reach, and nobody's list of nodes. To be run as the user that the
    /// node runs as.
    Join {
        /// The node's data directory.
        directory: PathBuf,
        /// A node of the cluster and its peer listener, `NAME@ADDRESS:PORT`, as in `cluster.peers`.
        peer: String,
    },
    /// Takes a node that does not run out of its cluster and deletes all that it has. Ask another
    /// node of the cluster (`--url`).
    Reset {
        /// The node's data directory.
        directory: PathBuf,
        /// Delete even if the cluster cannot be told, or queues are lost that are only there.
        #[arg(long)]
        force: bool,
    },
    /// Fails if members of quorum queues on the node have not got the whole log yet.
    CheckIfNewQuorumQueueReplicasHaveFinishedInitialSync,
    /// Fails if quorum queues have members whose nodes are gone for good.
    CheckForQuorumQueuesWithGhostMembers,
    /// Fails if the loss of the node would leave a quorum queue without a majority.
    CheckIfNodeIsQuorumCritical,
    /// Waits, for as long as `--timeout` says, until no quorum queue would lose its majority with the
    /// node.
    AwaitOnlineQuorumPlusOne,
    /// Fails if nobody serves some named journal; says who may, and why the others wait.
    CheckIfJournalsAreServed,
    /// The same if some journal that has a backup is not in sync on two nodes.
    CheckIfJournalsAreInSync,
    /// Fails if a quorum queue of the virtual host has no leader.
    CheckForQuorumQueuesWithoutAnElectedLeader {
        /// Only queues that this regular expression matches.
        #[arg(default_value = ".*")]
        pattern: String,
        /// Those of all virtual hosts.
        #[arg(long = "across-all-vhosts")]
        across_all_vhosts: bool,
    },
    /// Closes a client connection.
    CloseConnection {
        /// Its name, as listed.
        name: String,
        /// The client is told so.
        reason: String,
    },
    /// Closes all client connections of a virtual host.
    CloseAllConnections {
        /// The clients are told so.
        reason: String,
    },
    /// Closes all client connections of a user.
    CloseAllUserConnections {
        /// The login.
        username: String,
        /// The clients are told so.
        reason: String,
    },
    /// Writes the definitions of everything but messages to a file; `-` is standard output.
    ExportDefinitions {
        /// The file.
        file: PathBuf,
    },
    /// Reads definitions from a file.
    ImportDefinitions {
        /// The file.
        file: PathBuf,
    },
    /// Shows how the members of quorum queues are kept as many as wanted.
    #[command(subcommand)]
    Reconcile(ReconcileCommand),
    /// Shows and changes named journals, or works on a journal's directory while no node uses it.
    #[command(subcommand)]
    Journal(JournalCommand),
    /// Shows and sets how old the copies of journals are.
    #[command(subcommand)]
    Activation(ActivationCommand),
}

/// The activation sequence: of a running cluster or, with a data directory, offline.
#[derive(Debug, Subcommand)]
#[command(rename_all = "snake_case")]
pub enum ActivationCommand {
    /// Lists the copies of journals, with the coordinated sequence (negative: a claim) and what each
    /// copy is worth. Changes nothing.
    List {
        /// The data directory of a node, which may be running; without it the cluster is asked.
        directory: Option<PathBuf>,
        /// Only this journal.
        #[arg(long)]
        journal: Option<String>,
        /// Also say what each copy is worth against this coordinated sequence; a claim is negative.
        #[arg(long, allow_negative_numbers = true, requires = "directory")]
        coordinated: Option<i64>,
        /// The node is the founder of the journals: it may serve one that nobody has served yet.
        #[arg(long, requires = "directory")]
        founder: bool,
    },
    /// Sets a sequence: of a copy in a data directory, or in the cluster. What may lose something
    /// needs `--force` and `--confirm`.
    Set {
        /// The data directory of a node that does not run; without it the cluster is asked.
        directory: Option<PathBuf>,
        /// Which journal.
        #[arg(long)]
        journal: String,
        /// The sequence.
        #[arg(long)]
        to: u64,
        /// Only the sequence of a copy that is not in use.
        #[arg(long, conflicts_with_all = ["coordinated", "directory"])]
        local: bool,
        /// Only the coordinated sequence.
        #[arg(long, conflicts_with = "directory")]
        coordinated: bool,
        /// The node whose copy is set, or is to be gone on with; without it, the one that is asked, or
        /// whichever has a copy of that sequence.
        #[arg(long, conflicts_with = "directory")]
        node: Option<String>,
        /// What others have more may be lost.
        #[arg(long)]
        force: bool,
        /// The journal's name once more.
        #[arg(long)]
        confirm: Option<String>,
        /// Only say what would be done.
        #[arg(long = "dry_run", alias = "dry-run")]
        dry_run: bool,
    },
}

fn position(text: &str) -> Result<u64, String> {
    let position = text.parse().ok().filter(|position| *position > 0);
    position.ok_or_else(|| "position value must be a positive integer".to_owned())
}

/// Which quorum queues are meant, and which of them are printed.
#[derive(Debug, Args)]
pub struct Matching {
    /// A regular expression over names of virtual hosts.
    #[arg(long = "vhost-pattern", default_value = ".*")]
    pub vhost_pattern: String,
    /// A regular expression over names of queues.
    #[arg(long = "queue-pattern", default_value = ".*")]
    pub queue_pattern: String,
    /// `promotable` or `voter`: in the end the member has a vote.
    #[arg(long, default_value = "promotable")]
    pub membership: String,
    /// Print only queues that it did not work for.
    #[arg(long = "errors-only")]
    pub errors_only: bool,
}

/// Continuous membership reconciliation.
#[derive(Debug, Subcommand)]
pub enum ReconcileCommand {
    /// Prints how it is getting on, on each node.
    Status,
    /// Lets all nodes look at the quorum queues that they lead at once.
    Now,
    /// Prints what would be done about the members of a quorum queue, and what stands in the way.
    Plan {
        /// The queue.
        queue: String,
    },
}

/// Named journals, and offline work on a journal.
#[derive(Debug, Subcommand)]
#[command(rename_all = "snake_case")]
pub enum JournalCommand {
    /// Lists the named journals of the cluster, and how they are on the node that is asked.
    List,
    /// Makes a named journal.
    Create {
        /// Its name.
        name: String,
        /// The node that serves it first; without it, the one that is asked.
        #[arg(long, default_value = "")]
        node: String,
        /// The node that holds a copy of it; without it, none.
        #[arg(long, default_value = "")]
        backup: String,
    },
    /// Gives a journal that is on one node a backup, while it is served.
    SetBackup {
        /// Its name.
        name: String,
        /// The node that shall hold a copy.
        node: String,
    },
    /// Lets the node that does not serve a journal leave the pair.
    RemoveBackup {
        /// Its name.
        name: String,
    },
    /// Deletes a journal that has no queues.
    Delete {
        /// Its name.
        name: String,
    },
    /// Lists journals that lie on the disks of nodes and that the cluster knows nothing of.
    ListAbandoned,
    /// Goes on with the copy of a node, whatever its state file says; or brings a journal back that
    /// only a disk knows, with its queues. What may lose something needs `--force` and `--confirm`.
    Adopt {
        /// Its name.
        name: String,
        /// The node; without it the one that is asked or, of one that the cluster does not know, the
        /// one with the newest copy.
        #[arg(long, default_value = "")]
        node: String,
        /// Which one, if there are several of that name on the disks.
        #[arg(long, default_value = "")]
        uid: String,
        /// What was said to its dangers.
        #[command(flatten)]
        consent: Consent,
    },
    /// Puts a copy that was put aside in the place of what a node has, and goes on with it. Everything
    /// is lost that was confirmed since.
    #[command(alias = "restore-copy")]
    RestoreCopy {
        /// Its name.
        name: String,
        /// The sequence of the copy; of several, the one that was put aside last.
        sequence: u64,
        /// The node; without it, the one that is asked.
        #[arg(long, default_value = "")]
        node: String,
        /// What was said to its dangers.
        #[command(flatten)]
        consent: Consent,
    },
    /// Puts the copy of a node aside that nobody uses, so that it is copied afresh.
    #[command(alias = "discard-copy")]
    DiscardCopy {
        /// Its name.
        name: String,
        /// The node; without it, the one that is asked.
        #[arg(long, default_value = "")]
        node: String,
        /// What was said to its dangers.
        #[command(flatten)]
        consent: Consent,
    },
    /// Prints the segments and streams.
    Inspect {
        /// The journal's directory, or the one that it lies in: a data directory, or that of a named
        /// journal, of which the activation sequence and the saved copies are printed too.
        directory: PathBuf,
        /// Look although a node uses it: what is seen may be torn.
        #[arg(long = "even-if-in-use")]
        even_if_in_use: bool,
    },
    /// Checks every record; fails if one is damaged.
    Verify {
        /// The journal's directory, or the data directory that it lies in.
        directory: PathBuf,
        /// Look although a node uses it: what is seen may be torn.
        #[arg(long = "even-if-in-use")]
        even_if_in_use: bool,
    },
}

/// To a change that may lose something.
#[derive(Debug, Args)]
pub struct Consent {
    /// What may be lost may be lost.
    #[arg(long)]
    pub force: bool,
    /// The journal's name once more.
    #[arg(long, default_value = "")]
    pub confirm: String,
    /// Only say what would be done.
    #[arg(long = "dry_run", alias = "dry-run")]
    pub dry_run: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn options_may_stand_behind_the_command() {
        let arguments = Arguments::try_parse_from([
            "leveretctl",
            "list_queues",
            "name",
            "messages",
            "-p",
            "v",
            "--formatter",
            "json",
        ])
        .unwrap();
        assert_eq!(arguments.vhost, "v");
        assert_eq!(arguments.formatter, Formatter::Json);
        let Command::ListQueues { columns } = arguments.command else { panic!("another command") };
        assert_eq!(columns, ["name", "messages"]);
    }
}
