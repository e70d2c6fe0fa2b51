//! How nodes become a cluster: what they ask each other, and what a node without a group does.
//!
//! ```text
//!  everybody listed is connected, nobody has a group ─► the first by name founds it with all
//!  somebody has a group, and this node is in it      ─► this node starts its part
//!  somebody has a group without this node            ─► this node asks to be let in
//!  else                                              ─► wait
//! ```
//!
//! A node has a group once its journal has a trace of one. A wiped node is another node under the
//! same name: it finds the group and is let in instead of its old self.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use metadata::objects::Name;
use model::id::NodeId;

/// Bytes that are no query and no answer of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a query: {0}")]
pub(crate) struct Malformed(&'static str);

/// What a node asks another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Query {
    /// How far it is; answered by a [`Standing`].
    Standing,
    /// Will it be in the group that the asker founds with these? Its names are told so that nodes
    /// with other lists refuse. Answered by an [`agreement`].
    Found { names: Vec<String>, members: Vec<NodeId> },
    /// Lets the asker into the group; only the leader can. Answered by an [`agreement`].
    Join { name: String },
}

/// What a node says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// It has a group.
    pub(crate) formed: bool,
    /// The group's members.
    pub(crate) members: Vec<NodeId>,
    /// Who leads it.
    pub(crate) leader: Option<NodeId>,
    /// Names and addresses of the other nodes, so that who knows one of them finds them all.
    pub(crate) nodes: Vec<(Name, String)>,
}

const STANDING: u8 = 1;
const FOUND: u8 = 2;
const JOIN: u8 = 3;

impl Query {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            Self::Standing => out.put_u8(STANDING),
            Self::Found { names, members } => {
                out.put_u8(FOUND);
                put_count(&mut out, names.len());
                for name in names {
                    put_text(&mut out, name);
                }
                put_nodes(&mut out, members);
            }
            Self::Join { name } => {
                out.put_u8(JOIN);
                put_text(&mut out, name);
            }
        }
        out.freeze()
    }

    /// Reads what [`Query::encode`] writes.
    ///
    /// # Errors
    /// If it is something else.
    pub(crate) fn decode(mut bytes: Bytes) -> Result<Self, Malformed> {
        let query = match bytes.try_get_u8().map_err(cut)? {
            STANDING => Self::Standing,
            FOUND => {
                let count = bytes.try_get_u32_le().map_err(cut)?;
                let names =
                    (0..count).map(|_| text(&mut bytes)).collect::<Result<_, Malformed>>()?;
                Self::Found { names, members: nodes(&mut bytes)? }
            }
            JOIN => Self::Join { name: text(&mut bytes)? },
            _ => return Err(Malformed("an unknown query")),
        };
        if bytes.has_remaining() {
            return Err(Malformed("more bytes than fields"));
        }
        Ok(query)
    }
}

impl Standing {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(self.formed.into());
        out.put_u64_le(self.leader.map_or(0, |leader| leader.0));
        put_nodes(&mut out, &self.members);
        put_count(&mut out, self.nodes.len());
        for (name, address) in &self.nodes {
            put_text(&mut out, name);
            put_text(&mut out, address);
        }
        out.freeze()
    }

    /// Reads what [`Standing::encode`] writes.
    ///
    /// # Errors
    /// If it is something else.
    pub(crate) fn decode(mut bytes: Bytes) -> Result<Self, Malformed> {
        let formed = bytes.try_get_u8().map_err(cut)? != 0;
        let leader =
            Some(NodeId(bytes.try_get_u64_le().map_err(cut)?)).filter(|leader| leader.0 != 0);
        let members = nodes(&mut bytes)?;
        let count = bytes.try_get_u32_le().map_err(cut)?;
        let mut node = || Ok((text(&mut bytes)?.into(), text(&mut bytes)?));
        let nodes = (0..count).map(|_| node()).collect::<Result<_, Malformed>>()?;
        Ok(Self { formed, members, leader, nodes })
    }
}

fn put_count(out: &mut BytesMut, count: usize) {
    out.put_u32_le(u32::try_from(count).expect("clusters are small"));
}

fn put_nodes(out: &mut BytesMut, nodes: &[NodeId]) {
    put_count(out, nodes.len());
    for node in nodes {
        out.put_u64_le(node.0);
    }
}

fn put_text(out: &mut BytesMut, text: &str) {
    put_count(out, text.len());
    out.put_slice(text.as_bytes());
}

fn cut<E>(_: E) -> Malformed {
    Malformed("it is cut off")
}

fn text(bytes: &mut Bytes) -> Result<String, Malformed> {
    let length = bytes.try_get_u32_le().map_err(cut)? as usize;
    if length > bytes.len() {
        return Err(cut(()));
    }
    String::from_utf8(bytes.split_to(length).to_vec()).map_err(|_| Malformed("no text"))
}

fn nodes(bytes: &mut Bytes) -> Result<Vec<NodeId>, Malformed> {
    let count = bytes.try_get_u32_le().map_err(cut)?;
    (0..count).map(|_| bytes.try_get_u64_le().map(NodeId).map_err(cut)).collect()
}

/// The answer that a query was carried out; anything else says why not.
const YES: &[u8] = b"yes";

/// Whether a query was carried out, as an answer.
pub(crate) fn agreement(done: Result<(), String>) -> Bytes {
    done.map_or_else(Bytes::from, |()| Bytes::from_static(YES))
}

/// Reads what [`agreement`] writes.
///
/// # Errors
/// Why the query was not carried out.
pub(crate) fn agreed(answer: &[u8]) -> Result<(), String> {
    if answer == YES { Ok(()) } else { Err(String::from_utf8_lossy(answer).into_owned()) }
}

/// A connected node, and what it said when it was asked; `None`: nothing yet.
#[derive(Debug, Clone)]
pub(crate) struct Neighbour {
    pub(crate) name: String,
    pub(crate) id: NodeId,
    pub(crate) standing: Option<Standing>,
}

/// What a node without a group does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Wait,
    /// Found the group with these, oneself among them.
    Found(Vec<NodeId>),
    /// Start one's part of a group that knows this node already.
    Start,
    /// Ask this node to be let in.
    Join(NodeId),
}

/// Decides that. `listed`: the names of all nodes that are configured, with or without this one.
pub(crate) fn next(me: NodeId, name: &str, listed: &[String], up: &[Neighbour]) -> Step {
    let standing = |neighbour: &Neighbour| neighbour.standing.clone();
    for formed in up.iter().filter_map(standing).filter(|standing| standing.formed) {
        if formed.members.contains(&me) {
            return Step::Start;
        }
    }
    let formed = up.iter().find(|one| standing(one).is_some_and(|standing| standing.formed));
    if let Some(neighbour) = formed {
        let leader = standing(neighbour).and_then(|standing| standing.leader);
        let known = leader.filter(|leader| up.iter().any(|one| one.id == *leader));
        return Step::Join(known.unwrap_or(neighbour.id));
    }
    let mut members = vec![me];
    for other in listed.iter().filter(|other| *other != name) {
        match up.iter().find(|one| one.name == *other) {
            Some(Neighbour { id, standing: Some(_), .. }) if name < other.as_str() => {
                members.push(*id);
            }
            _ => return Step::Wait,
        }
    }
    Step::Found(members)
}

/// All configured names, oneself among them, in order: what all founding nodes must agree on.
pub(crate) fn names(me: &str, listed: &[String]) -> Vec<String> {
    let mut names: Vec<String> = listed.to_vec();
    names.push(me.to_owned());
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(0xa);
    const B: NodeId = NodeId(0xb);
    const C: NodeId = NodeId(0xc);

    fn neighbour(name: &str, id: NodeId, standing: Option<Standing>) -> Neighbour {
        Neighbour { name: name.into(), id, standing }
    }

    fn empty(name: &str, id: NodeId) -> Neighbour {
        neighbour(name, id, Some(Standing::default()))
    }

    fn formed(members: &[NodeId], leader: Option<NodeId>) -> Standing {
        Standing { formed: true, members: members.to_vec(), leader, nodes: vec![] }
    }

    fn listed() -> Vec<String> {
        ["b", "a", "c"].map(str::to_owned).to_vec()
    }

    #[test]
    fn the_first_by_name_founds_once_all_are_there_and_have_nothing() {
        let listed = listed();
        assert_eq!(next(A, "a", &listed, &[]), Step::Wait);
        assert_eq!(next(A, "a", &listed, &[empty("b", B)]), Step::Wait);
        let silent = neighbour("c", C, None);
        assert_eq!(next(A, "a", &listed, &[empty("b", B), silent]), Step::Wait);
        let all = [empty("b", B), empty("c", C), empty("stranger", NodeId(9))];
        assert_eq!(next(A, "a", &listed, &all), Step::Found(vec![A, B, C]));
        assert_eq!(next(B, "b", &listed, &[empty("a", A), empty("c", C)]), Step::Wait);
        // Whether a node lists itself makes no difference.
        let others = ["b".to_owned(), "c".to_owned()];
        assert_eq!(next(A, "a", &others, &all), Step::Found(vec![A, B, C]));
        assert_eq!(names("a", &others), names("b", &listed));
    }

    #[test]
    fn a_group_that_exists_is_joined_or_started() {
        let listed = listed();
        let up = [empty("a", A), neighbour("c", C, Some(formed(&[A, C, NodeId(1)], Some(A))))];
        assert_eq!(next(B, "b", &listed, &up), Step::Join(A));
        let up = [neighbour("c", C, Some(formed(&[A, C], Some(A))))];
        assert_eq!(next(B, "b", &listed, &up), Step::Join(C), "the leader is not connected");
        let up = [empty("a", A), neighbour("c", C, Some(formed(&[A, B, C], None)))];
        assert_eq!(next(B, "b", &listed, &up), Step::Start);
        // Even the first by name joins.
        let up = [empty("b", B), neighbour("c", C, Some(formed(&[B, C], Some(C))))];
        assert_eq!(next(A, "a", &listed, &up), Step::Join(C));
    }

    #[test]
    fn agreements_come_back() {
        for done in [Ok(()), Err("this node does not lead the group".to_owned())] {
            assert_eq!(agreed(&agreement(done.clone())), done);
        }
    }

    #[test]
    fn queries_come_back() {
        for query in [
            Query::Standing,
            Query::Found { names: listed(), members: vec![A, B] },
            Query::Join { name: "a".into() },
        ] {
            let bytes = query.encode();
            for length in 0..bytes.len() {
                assert!(Query::decode(bytes.slice(..length)).is_err());
            }
            assert_eq!(Query::decode(bytes), Ok(query));
        }
        for leader in [None, Some(B)] {
            let nodes = vec![("a".into(), "host:1".to_owned()), ("b".into(), String::new())];
            let standing = Standing { formed: true, members: vec![A, B], leader, nodes };
            for length in 0..standing.encode().len() {
                assert!(Standing::decode(standing.encode().slice(..length)).is_err());
            }
            assert_eq!(Standing::decode(standing.encode()), Ok(standing));
        }
    }
}
