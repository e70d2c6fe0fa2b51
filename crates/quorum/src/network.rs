//! The way from one group to its other members, as openraft wants to see it.

use crate::bringup::Sender;
use crate::checkpoint::Image;
use crate::group::Address;
use crate::links::Links;
use crate::member::{RequestError, Transport};
use crate::rpc::{self, Request};
use crate::seat::Seat;
use crate::session::{Route, Session, Sessions, connected};
use crate::types::{
    AppendRequest, AppendResult, Snapshot, TransferRequest, Types, Vote, VoteRequest, VoteResponse,
};
use bytes::Bytes;
use futures_util::Stream;
use model::id::NodeId;
use openraft::async_runtime::Select2;
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{
    Backoff, NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption,
    RaftNetworkFactory,
};
use openraft::raft::{SnapshotResponse, TransferLeaderResponse};
use openraft::type_config::TypeConfigExt;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;

/// Makes the clients of one group.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) address: Address,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) links: Arc<Links>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) seat: Arc<Seat>,
    pub(crate) sender: Sender,
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("group", &self.address.get()).finish_non_exhaustive()
    }
}

/// The way to one member.
pub(crate) struct Client {
    route: Route,
    seat: Arc<Seat>,
    sender: Sender,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.route, f)
    }
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Client;

    async fn new_client(&mut self, target: u64, (): &()) -> Client {
        let route = Route {
            address: self.address.clone(),
            to: NodeId(target),
            transport: Arc::clone(&self.transport),
            links: Arc::clone(&self.links),
            sessions: Arc::clone(&self.sessions),
        };
        Client { route, seat: Arc::clone(&self.seat), sender: self.sender.clone() }
    }
}

impl Client {
    async fn request(
        &self,
        request: Request,
        option: &RPCOption,
    ) -> Result<Bytes, RPCError<Types>> {
        let Route { to, transport, .. } = &self.route;
        let answer = transport.request(*to, request.encode(), option.hard_ttl()).await;
        answer.map_err(|error| match error {
            RequestError::NotConnected => RPCError::Unreachable(Unreachable::new(&error)),
            RequestError::TimedOut | RequestError::Refused(_) => network(&error),
        })
    }
}

fn network(error: &(impl Error + 'static)) -> RPCError<Types> {
    RPCError::Network(NetworkError::new(error))
}

type BoxFuture<'s, T> = Pin<Box<dyn Future<Output = T> + Send + 's>>;
type BoxStream<'s, T> = Pin<Box<dyn Stream<Item = T> + Send + 's>>;
type Answers<'s> = BoxStream<'s, Result<AppendResult, RPCError<Types>>>;

impl NetStreamAppend<Types> for Client {
    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        _: RPCOption,
    ) -> BoxFuture<'s, Result<Answers<'s>, RPCError<Types>>>
    where
        S: Stream<Item = AppendRequest> + Send + Unpin + 'static,
    {
        let session: Answers<'s> = Box::pin(Session::new(self.route.clone(), input));
        Box::pin(std::future::ready(Ok(session)))
    }
}

impl NetVote<Types> for Client {
    async fn vote(
        &mut self,
        request: VoteRequest,
        option: RPCOption,
    ) -> Result<VoteResponse, RPCError<Types>> {
        let term = request.vote.leader_id.term;
        let request = Request::Vote { group: self.route.address.get(), request };
        let answer = self.request(request, &option).await;
        let response = answer
            .and_then(|answer| rpc::decode_vote_response(answer).map_err(|error| network(&error)));
        // The supervisor does not wait for what cannot come any more.
        if !response.as_ref().is_ok_and(|response| response.vote_granted) {
            self.seat.ballot.on_refused(term, self.route.to);
        }
        response
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest,
        option: RPCOption,
    ) -> Result<VoteResponse, RPCError<Types>> {
        let request = Request::PreVote { group: self.route.address.get(), request };
        let answer = self.request(request, &option).await?;
        rpc::decode_vote_response(answer).map_err(|error| network(&error))
    }
}

impl NetTransferLeader<Types> for Client {
    async fn transfer_leader(
        &mut self,
        request: TransferRequest,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        let request = Request::Transfer { group: self.route.address.get(), request };
        self.request(request, &option).await?;
        Ok(Ok(()))
    }
}

impl NetSnapshot<Types> for Client {
    type SnapshotData = Image;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let Route { to, links, .. } = &self.route;
        if links.number(*to).is_none() {
            // A dead member costs nothing. By the time it is back there may be a newer checkpoint.
            drop(snapshot);
            let connected = pin!(connected(links.watch(*to), 0));
            return Err(match Types::select2(cancel, connected).await {
                Select2::First(closed) => StreamingError::Closed(closed),
                Select2::Second(_) => StreamingError::from(network(&RequestError::NotConnected)),
            });
        }
        let _underway = self.route.sessions.sending();
        let sending = self.sender.send(*to, vote, snapshot);
        match Types::select2(cancel, sending).await {
            Select2::First(closed) => Err(StreamingError::Closed(closed)),
            Select2::Second(Ok(vote)) => Ok(SnapshotResponse::new(vote)),
            // Whatever it was, a pause before the next attempt is right.
            Select2::Second(Err(error)) => {
                tracing::warn!(route = ?self.route, %error, "a checkpoint was not sent");
                Err(StreamingError::Unreachable(Unreachable::new(&error)))
            }
        }
    }
}

impl NetBackoff<Types> for Client {
    fn backoff(&self) -> Option<Backoff> {
        None
    }
}
