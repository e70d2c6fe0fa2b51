//! The start of a node that is one of several.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use metadata::command::{Command, PutNode};
use metadata::objects::Name;
use metadata::objects::node::NodeRole;
use metadata::state::State;
use metadata::store;
use model::address::Address;
use model::id::Seq;
use peer::identity::Identity;
use peer::links::Links;
use peer::options::{Options, QUEUE_BYTES_MAX};
use peer::secret::Secret;
use quorum::recovered::Recovered;
use tokio::sync::{Notify, watch};

use crate::cluster::acquaintances::is_dialable;
use crate::cluster::admission::Facts;
use crate::cluster::member::Part;
use crate::cluster::proposer::Proposer;
use crate::cluster::steward::Steward;
use crate::cluster::transport::Road;
use crate::cluster::{Cluster, Ends, GROUP, Group};
use crate::config::Role;
use crate::replicated::version;
use crate::router::Router;
use crate::start::{Opened, Ready, StartError, alone};
use crate::topology::Topology;
use crate::vital;

/// Brings the topology to what this node knows to be committed, and begins to look for the others.
///
/// # Errors
/// The data directory is that of a node on its own, its part of the group is damaged, or the
/// address for other nodes cannot be listened on.
pub(super) async fn join(opened: &Opened) -> Result<Ready, StartError> {
    let config = &opened.config;
    let formed = opened.has_stream(GROUP.stream());
    let alone = store::applied(&*opened.kv).map_err(|error| StartError(error.to_string()))?;
    if alone.is_some() && !formed {
        return Err(StartError(format!(
            "data_dir {} is that of a node on its own; to bring what it holds into a cluster, export \
             its definitions and move its messages to a new node",
            config.data_dir.display()
        )));
    }
    let router = Arc::new(Router::new(State::new()));
    let proposer = Arc::new(Proposer::new(opened.me));
    let (place, gone) = opened.place(Some(Arc::clone(&proposer)));
    let topology = Arc::new(Topology::new(opened.parts(&router, place), State::new(), 0, 0));
    let road = Road::default();
    let changed = Arc::new(Notify::new());
    let part = Arc::new(Part {
        me: opened.me.node,
        topology: Arc::clone(&topology),
        proposer: Arc::clone(&proposer),
        road: road.clone(),
        changed: Arc::clone(&changed),
        failed: opened.failed_sender.clone(),
        held: parking_lot::Mutex::default(),
    });
    let group = Group {
        listed: config.cluster.peers.iter().map(|peer| peer.name.clone()).collect(),
        proposer: Arc::clone(&proposer),
        part,
        changed,
        started: tokio::sync::Mutex::new(false),
        formed: AtomicBool::new(formed),
    };
    let parts = opened.host_parts();
    let cluster =
        Arc::new(Cluster::together(opened.me, &config.node.name, parts, road.clone(), group));
    if formed {
        cluster.berths.recovered([(GROUP.stream(), recovered(opened)?)]);
        cluster.start_group().await.map_err(StartError)?;
    }
    let state = router.state();
    let known = state.node(opened.me.node).filter(|_| state.vhosts().next().is_some());
    let known = known.map(|node| node.number);
    let (number_sender, number) = watch::channel(known);

    let links = bind(opened).await?;
    let address = links.me().address.clone();
    road.open(Arc::clone(&links));
    let role = match config.node.role {
        Role::Full => NodeRole::Full,
        Role::Witness => NodeRole::Witness,
    };
    let zone: Option<Name> = config.node.zone.as_deref().map(Into::into);
    if formed {
        // Before anything else of this start: it ends what an earlier start has left.
        topology.order(Command::PutNode(PutNode {
            id: opened.me.node.0,
            name: config.node.name.as_str().into(),
            address: address.clone(),
            role,
            boot: opened.me.boot,
            starts: opened.starts.clone(),
            zone: zone.clone(),
        }));
    }
    let ends = Arc::new(Ends(Arc::downgrade(&cluster)));
    let pump = Arc::clone(&proposer).pump(Arc::clone(&ends));
    let mut first = alone::first(config);
    first.push(alone::cluster_id());
    let steward = Steward {
        cluster: Arc::clone(&cluster),
        topology: Arc::clone(&topology),
        router: Arc::clone(&router),
        address,
        role,
        zone,
        first,
        number: number_sender,
        directory: config.data_dir.clone(),
        marked: parking_lot::Mutex::new(None),
        told: parking_lot::Mutex::default(),
    };
    let tasks = vec![
        vital::spawn("what proposes changes", &opened.failed_sender, pump),
        vital::spawn("the node's steward", &opened.failed_sender, steward.run()),
    ];
    links.serve(ends);
    Ok(Ready { router, topology, cluster, number, gone, tasks })
}

/// What the journal has of the metadata group.
pub(super) fn recovered(opened: &Opened) -> Result<Recovered, StartError> {
    let streams = opened.recovery.streams();
    let highest = streams.iter().find(|known| known.stream == GROUP.stream());
    let mut recovered = Recovered::new(highest.map_or(Seq(0), |known| known.highest));
    opened
        .recovery
        .for_each_of(GROUP.stream(), |seq, head, bytes| recovered.note(seq, head, bytes))
        .map_err(|error| StartError(format!("journal: {error}")))?;
    Ok(recovered)
}

async fn bind(opened: &Opened) -> Result<Arc<Links>, StartError> {
    let config = &opened.config;
    let Some(listener) = &config.listeners.peer else {
        return Err(StartError("listeners.peer is needed with cluster.peers".into()));
    };
    let advertised = &config.cluster.advertised;
    let options = Options {
        me: Identity {
            name: config.node.name.as_str().into(),
            id: opened.me.node,
            boot: opened.me.boot,
            address: advertised.as_ref().map(Address::to_string).unwrap_or_default(),
            facts: Facts {
                starts: opened.starts.clone(),
                data_set: opened.data_set,
                machine: version::NEWEST,
            }
            .encode(),
        },
        cluster: config.cluster.given_name.as_str().into(),
        secret: Secret::new(config.cluster.secret.as_bytes()),
        listen: resolve(listener).await?,
        peers: config
            .cluster
            .peers
            .iter()
            .map(|peer| (peer.name.as_str().into(), peer.address.to_string()))
            .collect(),
        silence_timeout: config.cluster.silence_timeout,
        queue_bytes_max: QUEUE_BYTES_MAX,
        tls: config.cluster.tls.clone(),
    };
    let links = Links::bind(options)
        .await
        .map_err(|error| StartError(format!("listeners.peer: {error}")))?;
    tracing::info!(address = %links.local_addr(), "clustering listener");
    let told = advertised.as_ref().unwrap_or(listener);
    if told.is_loopback() && config.cluster.peers.iter().any(|peer| !peer.address.is_loopback()) {
        tracing::warn!(
            address = %told,
            "this node is only reached from its own machine, and others are elsewhere: listeners.peer, or \
             this node's entry in cluster.peers, has to be an address that they can dial"
        );
    }
    if !is_dialable(&links.me().address) {
        tracing::warn!(
            "listeners.peer is on all addresses and cluster.peers does not say which of them is this \
             node's: nodes that do not list it cannot dial it"
        );
    }
    Ok(links)
}

async fn resolve(address: &Address) -> Result<SocketAddr, StartError> {
    let failed = |why: String| StartError(format!("listeners.peer {address}: {why}"));
    let mut found = tokio::net::lookup_host(address.to_string())
        .await
        .map_err(|error| failed(error.to_string()))?;
    found.next().ok_or_else(|| failed("the name has no address".into()))
}
