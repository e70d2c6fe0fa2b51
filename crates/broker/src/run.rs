//! The life of the process: start, listen, wait for a reason to stop, stop.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use amqp::listener::listen;
use amqp::tls::{Tls, TlsFiles};
use model::address::Address;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cli::Sources;
use crate::config::{Config, Verify};
use crate::front::Front;
use crate::node::{Listening, Node};
use crate::operator::Operator;
use crate::start;

/// Runs a node until it is told to stop (SIGTERM, SIGINT) or its journal fails.
///
/// Exit code 0 after a stop in good order, 1 if it could not start or its disk failed.
pub fn run(config: Config, sources: Sources) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "cannot start the runtime");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(live(config, sources));
    // Reads of bodies that nobody waits for any more must not hold the process.
    runtime.shutdown_background();
    code
}

async fn live(config: Config, sources: Sources) -> ExitCode {
    let patience = config.shutdown_timeout;
    let mut started = match start::start_any(config, sources.config.clone()).await {
        Ok(started) => started,
        Err(error) => return refuse(&error.to_string()),
    };
    let mut signals = match Stop::listen() {
        Ok(signals) => signals,
        Err(error) => {
            started.stop(patience).await;
            return refuse(&format!("listening for signals: {error}"));
        }
    };
    let (stop, stopped) = watch::channel(false);
    // Operators can look at a node that is not in its cluster yet; clients come later.
    let mut listeners = match open_operators_listeners(&started.node, &stopped).await {
        Ok(listeners) => listeners,
        Err(error) => {
            started.stop(patience).await;
            return refuse(&error);
        }
    };
    let node = Arc::clone(&started.node);
    let reloads = tokio::spawn(reload_when_told(Arc::clone(&node), sources));
    let serve = async {
        let mut number = node.number.clone();
        drop(number.wait_for(Option::is_some).await);
        let opened = open_clients_listeners(&node).await?;
        tracing::info!(name = %node.config.node.name, "serving");
        Ok::<_, String>(tokio::spawn(rest(Arc::clone(&node), opened)))
    };
    let good = tokio::select! {
        biased;
        good = signals.wait(&mut started.failed) => good,
        opened = serve => match opened {
            Ok(opened) => {
                listeners.push(opened);
                signals.wait(&mut started.failed).await
            }
            Err(error) => {
                started.stop(patience).await;
                return refuse(&error);
            }
        },
    };
    drop(node);
    reloads.abort();
    tracing::info!("stopping");
    stop.send_replace(true);
    for listener in listeners {
        listener.abort();
        drop(listener.await);
    }
    if !good {
        // What is not on the disk cannot be brought there any more.
        return ExitCode::FAILURE;
    }
    started.stop(patience).await;
    ExitCode::SUCCESS
}

fn refuse(reason: &str) -> ExitCode {
    tracing::error!("cannot start: {reason}");
    ExitCode::FAILURE
}

/// The signals that end the process. They are taken up once and for all: one that comes while
/// nobody waits is found by whoever waits next.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    fn listen() -> std::io::Result<Self> {
        let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
        Ok(Self { terminate: signal(terminate)?, interrupt: signal(interrupt)? })
    }

    /// Waits for a reason to stop; `false` if the disk is it. Safe to drop and call again.
    async fn wait(&mut self, failed: &mut watch::Receiver<Option<String>>) -> bool {
        tokio::select! {
            _ = self.terminate.recv() => true,
            _ = self.interrupt.recv() => true,
            _ = failed.wait_for(Option::is_some) => false,
        }
    }
}

/// Tasks that end with what holds them.
struct Listeners(Vec<JoinHandle<()>>);

impl Drop for Listeners {
    fn drop(&mut self) {
        for listener in &self.0 {
            listener.abort();
        }
    }
}

/// Closes the listeners of clients while the node is in maintenance mode.
async fn rest(node: Arc<Node>, opened: Vec<JoinHandle<()>>) {
    let mut maintenance = node.maintenance.subscribe();
    let mut listeners = Listeners(opened);
    while maintenance.wait_for(|on| *on).await.is_ok() {
        for listener in std::mem::take(&mut listeners.0) {
            listener.abort();
            drop(listener.await);
        }
        node.listening.lock().retain(|one| !one.protocol.starts_with("amqp"));
        if maintenance.wait_for(|on| !*on).await.is_err() {
            return;
        }
        match open_clients_listeners(&node).await {
            Ok(opened) => listeners.0 = opened,
            Err(error) => tracing::error!("clients cannot come again: {error}"),
        }
    }
}

/// Reads the configuration again with each SIGHUP, and goes on with what can change while the node
/// runs: how quorum queues are kept whole, and some of what concerns journals on two nodes.
async fn reload_when_told(node: Arc<Node>, sources: Sources) {
    let Ok(mut hangup) = signal(SignalKind::hangup()) else {
        return tracing::error!("cannot listen for SIGHUP");
    };
    while hangup.recv().await.is_some() {
        let sources = sources.clone();
        let loaded = tokio::task::spawn_blocking(move || sources.load()).await;
        let config = match loaded {
            Ok(Ok((mut config, _))) => {
                // A file that cannot be read now was read at the start.
                drop(start::joined::add(&mut config));
                config
            }
            Ok(Err(complaints)) => {
                for complaint in complaints {
                    tracing::error!(%complaint, "the configuration stays as it is");
                }
                continue;
            }
            Err(error) => {
                tracing::error!(%error, "the configuration stays as it is");
                continue;
            }
        };
        let settings = config.quorum_queues.reconciliation;
        node.reconciler.reload(settings);
        let mut known = node.config.clone();
        known.quorum_queues.reconciliation = settings;
        known.journal = known.journal.reloaded(config.journal);
        node.cluster.pairs.reload(config.journal);
        if known == config {
            tracing::info!("the configuration was read again");
        } else {
            tracing::warn!("the configuration was read again; some of it needs another start");
        }
    }
}

/// Opens the listeners of clients that are configured, or none.
async fn open_clients_listeners(node: &Arc<Node>) -> Result<Vec<JoinHandle<()>>, String> {
    let listeners = &node.config.listeners;
    let mut tasks = Vec::new();
    if let Some(address) = &listeners.amqp {
        let listener = bind(node, "listeners.amqp", "amqp", address).await?;
        tasks.push(tokio::spawn(listen(
            listener,
            None,
            Arc::new(Front::new(Arc::clone(node), false)),
        )));
    }
    if let Some(address) = &listeners.amqps {
        let tls = Tls::load(tls_files(&node.config)?).map_err(|error| format!("tls: {error}"))?;
        let listener = bind(node, "listeners.amqps", "amqp/ssl", address).await?;
        let front = Arc::new(Front::new(Arc::clone(node), true));
        tasks.push(tokio::spawn(listen(listener, Some(Arc::new(tls)), front)));
    }
    Ok(tasks)
}

/// Opens the listeners of operators that are configured, or none.
async fn open_operators_listeners(
    node: &Arc<Node>,
    stopped: &watch::Receiver<bool>,
) -> Result<Vec<JoinHandle<()>>, String> {
    let listeners = &node.config.listeners;
    let mut tasks = Vec::new();
    let operator = Arc::new(Operator::new(Arc::clone(node)));
    if let Some(address) = &listeners.http {
        let listener = bind(node, "listeners.http", "http", address).await?;
        let serve =
            management::server::serve(Arc::clone(&operator), listener, stopped_signal(stopped));
        tasks.push(tokio::spawn(async move { report("listeners.http", serve.await) }));
    }
    if let Some(address) = &listeners.metrics {
        let listener = bind(node, "listeners.metrics", "http/prometheus", address).await?;
        let serve = management::server::serve_metrics(operator, listener, stopped_signal(stopped));
        tasks.push(tokio::spawn(async move { report("listeners.metrics", serve.await) }));
    }
    Ok(tasks)
}

fn report(key: &str, result: std::io::Result<()>) {
    if let Err(error) = result {
        tracing::error!(%error, "{key} ended");
    }
}

fn stopped_signal(
    stopped: &watch::Receiver<bool>,
) -> impl Future<Output = ()> + Send + 'static + use<> {
    let mut stopped = stopped.clone();
    async move {
        drop(stopped.wait_for(|stopped| *stopped).await);
    }
}

fn tls_files(config: &Config) -> Result<TlsFiles, String> {
    let tls = &config.tls;
    let (Some(certificate), Some(key)) = (tls.certificate.clone(), tls.key.clone()) else {
        return Err("listeners.amqps needs tls.certificate and tls.key".into());
    };
    Ok(TlsFiles {
        certificate,
        key,
        client_authorities: if tls.verify == Verify::None { None } else { tls.ca.clone() },
        client_certificate_required: tls.verify == Verify::Required,
    })
}

async fn bind(
    node: &Node,
    key: &str,
    protocol: &'static str,
    address: &Address,
) -> Result<TcpListener, String> {
    let failed = |error: std::io::Error| format!("{key} {address}: {error}");
    let listener = TcpListener::bind(address.to_string()).await.map_err(failed)?;
    let address: SocketAddr = listener.local_addr().map_err(failed)?;
    node.listening.lock().push(Listening { protocol, address });
    tracing::info!(%address, "{protocol} listener");
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[tokio::test]
    async fn a_signal_that_comes_while_nobody_waits_is_found() {
        let mut signals = Stop::listen().unwrap();
        let (_sender, mut failed) = watch::channel(None);
        let mut witness = signal(SignalKind::terminate()).unwrap();
        kill_process(getpid(), Signal::TERM).unwrap();
        // It has come: an earlier waiter would have heard it, and who listens from now on does not.
        witness.recv().await;
        let mut late = signal(SignalKind::terminate()).unwrap();
        let found = tokio::time::timeout(Duration::from_secs(10), signals.wait(&mut failed)).await;
        assert_eq!(found, Ok(true));
        let heard = tokio::time::timeout(Duration::from_millis(10), late.recv()).await;
        assert!(heard.is_err(), "so the listener has to be there from the first");
    }
}
