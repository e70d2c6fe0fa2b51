//! The channels of the links between nodes. Their numbers are never given twice.

/// What the hosts of Raft groups ask each other.
pub(crate) const RAFT_REQUESTS: u8 = 1;
/// What they tell each other.
pub(crate) const RAFT_MESSAGES: u8 = 2;
/// Orders to the leader of a queue.
pub(crate) const ORDERS: u8 = 3;
/// What a queue's leader tells the nodes of publishers and consumers.
pub(crate) const NOTICES: u8 = 4;
/// Metadata commands to the leader of their group; back come the indexes that nodes have applied.
pub(crate) const METADATA: u8 = 5;
/// Who leads which queue.
pub(crate) const ANNOUNCEMENTS: u8 = 6;
/// Questions about the cluster.
pub(crate) const QUERIES: u8 = 7;
/// What operators want to know of another node, or do to it.
pub(crate) const INQUIRIES: u8 = 8;
/// Which alarms of a node are on.
pub(crate) const ALARMS: u8 = 9;
/// What the two nodes of a pair say to each other.
pub(crate) const PAIRS: u8 = 10;
/// Bodies that a member of a quorum queue asks another one for.
pub(crate) const LOANS: u8 = 11;
