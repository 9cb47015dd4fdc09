//! The control plane: what the voters of a cluster agree on ([`Cluster`]), by the Raft protocol of the library `openraft`.
//!
//! It decides who is a voter and who leads which epoch, and nothing else: no row and no commit passes through it. It changes when a server
//! is added or lost, so its state is small, and is one file.
//!
//! Async code ends here: [`Control`] blocks its callers. It has a thread of its own, which runs what the library does. Messages to other
//! voters go through a [`Transport`], which blocks, too.
//!
//! ```text
//! Control ── openraft ── storage    the file, by firn-base's disk
//!                    └── network    messages as JSON, by the transport
//! ```
//! Invariant: the set of voters of the library follows that of the [`Cluster`], by its leader. So the first may be behind, and nothing
//! depends on it but which servers decide.

mod network;
#[expect(clippy::result_large_err, reason = "the library chooses the type")]
mod storage;

use firn_base::disk::Disk;
use firn_base::sync::{Arc, Condvar, Mutex};
use firn_base::{Error, NodeId, Result, SqlState};
use firn_replica::cluster::{Change, Cluster, Member, Outcome};
use firn_replica::voting::ControlPlane;
use network::{Answer, Ask, Network};
use openraft::error::{ClientWriteError, InitializeError, RaftError};
use openraft::{BasicNode, ChangeMembers, Config, Raft, SnapshotPolicy};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::path::Path;
use std::time::Duration;
use storage::Store;
use tokio::runtime::Runtime;
use tokio::sync::watch;

pub use network::{Line, Transport};

openraft::declare_raft_types!(
    /// What the library is asked to agree on.
    pub(crate) Types:
        D = Change,
        R = Outcome,
);

/// How long a proposal may take.
const LONGEST_PROPOSAL: Duration = Duration::from_millis(1_500);
/// How often the leader compares the library's set of voters with that of the cluster.
const COMPARE_EVERY: Duration = Duration::from_millis(100);
/// A voter that knows no leader for so many times asks the others whether it is one.
const ASK_AFTER: u32 = 20;
/// How often a leader sends heartbeats, …
const HEARTBEAT_MS: u64 = 50;
/// … and how long the others wait for one before an election.
const ELECTION_MS: std::ops::Range<u64> = 150..300;
/// How many entries of its log the library keeps at most before it replaces them by the state.
const SNAPSHOT_AFTER: u64 = 64;

/// The state of the cluster that a voter has applied last, and a condition variable for its changes.
#[derive(Default)]
pub(crate) struct Known {
    state: Mutex<Arc<Cluster>>,
    changed: Condvar,
    /// How often it has changed, for async code.
    changes: watch::Sender<u64>,
}

impl Known {
    fn get(&self) -> Arc<Cluster> {
        self.state.lock().clone()
    }

    /// Waits until it is another state.
    async fn is_other_than(&self, state: &Arc<Cluster>) {
        let mut changes = self.changes.subscribe();
        while Arc::ptr_eq(&self.get(), state) {
            changes.changed().await.expect("the sender is here");
        }
    }

    fn set(&self, state: Cluster) {
        *self.state.lock() = Arc::new(state);
        self.changed.notify_all();
        self.changes.send_modify(|changes| *changes += 1);
    }
}

/// One voter's part of the control plane.
pub struct Control {
    node: NodeId,
    known: Arc<Known>,
    raft: Raft<Types>,
    transport: Arc<dyn Transport>,
    /// `None` once it is closed.
    runtime: Option<Runtime>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Control {
    /// Opens that of a voter, whose file is in a directory that is created if it is missing. It takes part in decisions from then on.
    ///
    /// Errors: XX001 if the file is damaged; those of the disk.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        node: NodeId,
        transport: Arc<dyn Transport>,
    ) -> Result<Control> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("firn-control")
            .enable_time()
            .build()
            .map_err(|error| Error::new(SqlState::INTERNAL_ERROR, format!("no thread: {error}")))?;
        let known = Arc::new(Known::default());
        let store = Store::open(disk, directory, known.clone())?;
        let config = Config {
            cluster_name: "firn".to_owned(),
            heartbeat_interval: HEARTBEAT_MS,
            election_timeout_min: ELECTION_MS.start,
            election_timeout_max: ELECTION_MS.end,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(SNAPSHOT_AFTER),
            max_in_snapshot_log_to_keep: SNAPSHOT_AFTER / 4,
            ..Config::default()
        };
        let config = Arc::new(config.validate().expect("the configuration is valid"));
        let network = Network { known: known.clone(), transport: transport.clone() };
        let raft = runtime.block_on(Raft::new(node.0, config, network, store.clone(), store));
        let raft = raft.map_err(|error| unusable(&error))?;
        runtime.spawn(keep_voters(raft.clone(), node.0, known.clone(), transport.clone()));
        Ok(Control { node, known, raft, transport, runtime: Some(runtime) })
    }

    /// Begins a cluster with this voter alone, which is the primary of an epoch.
    ///
    /// Error: 55000 if it is of a cluster already.
    pub fn found(&self, member: Member, epoch: u64) -> Result<()> {
        let members = BTreeMap::from([(self.node.0, BasicNode::new(member.address.clone()))]);
        match self.runtime().block_on(self.raft.initialize(members)) {
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {}
            Err(error) => return Err(unusable(&error)),
        }
        // It becomes the leader in a moment.
        let change = Change::Found { node: self.node.0, member, epoch };
        for _ in 0..20 {
            match self.propose(change.clone()) {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(_)) => {
                    let message = "the server is a voter of a cluster already";
                    return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
                }
                Err(_) => firn_base::clock::sleep(Duration::from_millis(50)),
            }
        }
        Err(no_majority())
    }

    /// Which voter it is of.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Answers a message of another voter, or of a server that becomes one. Error: 08P01 if it is none.
    pub fn answer(&self, message: &[u8]) -> Result<Vec<u8>> {
        let ask = network::decode(message)?;
        if ask.to.is_some_and(|to| to != self.node.0) {
            // At this address was another voter before.
            return Ok(network::encode(&Answer::Failed("the server is another voter".to_owned())));
        }
        let (raft, known) = (&self.raft, &self.known);
        let answer = self.runtime().block_on(async {
            let failed = |error: &dyn std::fmt::Display| Answer::Failed(error.to_string());
            if let Ask::Propose { change: Change::Add { node, member }, .. } = &ask.ask {
                // Commits would wait for one that cannot be reached.
                let (node, address, transport) = (*node, member.address.clone(), self.transport.clone());
                let asked = tokio::task::spawn_blocking(move || {
                    network::ask(&*transport, &address, Some(node), Ask::State)
                });
                match asked.await {
                    Ok(Ok(Answer::State(_))) => {}
                    Ok(Ok(_)) => return Answer::Unreachable("another server answers there".to_owned()),
                    Ok(Err(error)) => return Answer::Unreachable(error.to_string()),
                    Err(error) => return Answer::Unreachable(error.to_string()),
                }
            }
            match ask.ask {
                Ask::Vote(request) => raft.vote(request).await.map_or_else(|e| failed(&e), Answer::Vote),
                Ask::Append(request) => {
                    raft.append_entries(request).await.map_or_else(|e| failed(&e), Answer::Append)
                }
                Ask::Snapshot(request) => {
                    raft.install_snapshot(request).await.map_or_else(|e| failed(&e), Answer::Snapshot)
                }
                Ask::Propose { change, may_forward } => {
                    let proposed = propose(raft, known, &self.transport, change, may_forward).await;
                    proposed.map_or_else(|error| failed(&error), Answer::Proposed)
                }
                Ask::State => Answer::State((*known.get()).clone()),
            }
        });
        Ok(network::encode(&answer))
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is open")
    }
}

impl ControlPlane for Control {
    fn state(&self) -> Arc<Cluster> {
        self.known.get()
    }

    fn wait(&self, known: &Arc<Cluster>, longest: Duration) -> Arc<Cluster> {
        let mut state = self.known.state.lock();
        if Arc::ptr_eq(&state, known) {
            self.known.changed.wait_for(&mut state, longest);
        }
        state.clone()
    }

    fn propose(&self, change: Change) -> Result<Outcome> {
        self.runtime().block_on(propose(&self.raft, &self.known, &self.transport, change, true))
    }

    fn step_aside(&self, is_aside: bool) {
        let config = self.raft.runtime_config();
        // Without its heartbeats the others elect another leader of the library's protocol. It still votes.
        config.heartbeat(!is_aside);
        config.elect(!is_aside);
    }

    fn propose_in(&self, state: &Arc<Cluster>, change: Change) -> Result<Option<Outcome>> {
        self.runtime().block_on(async {
            tokio::select! {
                outcome = propose(&self.raft, &self.known, &self.transport, change, true) => outcome.map(Some),
                () = self.known.is_other_than(state) => Ok(None),
            }
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // What it has not written yet, it has not promised.
            let ended = async { tokio::time::timeout(LONGEST_PROPOSAL, self.raft.shutdown()).await };
            let _ = runtime.block_on(ended);
            runtime.shutdown_timeout(LONGEST_PROPOSAL);
        }
    }
}

/// Requests the state of the cluster from a voter, for a server that is no voter yet.
pub fn ask_state(transport: &dyn Transport, address: &str) -> Result<Cluster> {
    match network::ask(transport, address, None, Ask::State)? {
        Answer::State(cluster) => Ok(cluster),
        _ => Err(network::out_of_turn()),
    }
}

/// Proposes a change to the voter at an address, for a server that is no voter yet.
pub fn ask_change(transport: &dyn Transport, address: &str, change: Change) -> Result<Outcome> {
    match network::ask(transport, address, None, Ask::Propose { change, may_forward: true })? {
        Answer::Proposed(outcome) => Ok(outcome),
        Answer::Failed(_) => Err(no_majority()),
        Answer::Unreachable(error) => Err(unreachable(&error)),
        _ => Err(network::out_of_turn()),
    }
}

/// Whether a change was refused because the server that it adds cannot be reached.
pub fn is_unreachable(error: &Error) -> bool {
    error.state() == SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE
}

#[cold]
fn unreachable(cause: &str) -> Error {
    let message = "the other voters cannot reach the server at its address";
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).with_detail(cause.to_owned()).with_hint(
        "--advertise says where others reach a server, --connect-as how a voter connects to others.",
    )
}

async fn propose(
    raft: &Raft<Types>,
    known: &Known,
    transport: &Arc<dyn Transport>,
    change: Change,
    may_forward: bool,
) -> Result<Outcome> {
    let written = tokio::time::timeout(LONGEST_PROPOSAL, raft.client_write(change.clone())).await;
    let forward = match written {
        Ok(Ok(response)) => return Ok(response.data),
        Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward)))) if may_forward => forward,
        _ => return Err(no_majority()),
    };
    let Some(leader) = forward.leader_id else { return Err(no_majority()) };
    let cluster = known.get();
    let address = cluster.member(NodeId(leader)).map(|member| member.address.clone());
    let address = address.or(forward.leader_node.map(|node| node.addr)).ok_or_else(no_majority)?;
    let transport = transport.clone();
    let asked = tokio::task::spawn_blocking(move || {
        network::ask(&*transport, &address, Some(leader), Ask::Propose { change, may_forward: false })
    });
    tokio::select! {
        answer = tokio::time::timeout(LONGEST_PROPOSAL, asked) => match answer {
            Ok(Ok(Ok(Answer::Proposed(outcome)))) => Ok(outcome),
            _ => Err(no_majority()),
        },
        // A leader that is stopped does not answer.
        () = no_longer_led_by(raft, leader) => Err(no_majority()),
    }
}

/// Waits until another one leads, as far as this one knows.
async fn no_longer_led_by(raft: &Raft<Types>, leader: u64) {
    let mut metrics = raft.metrics();
    while metrics.borrow_and_update().current_leader == Some(leader) {
        if metrics.changed().await.is_err() {
            return;
        }
    }
}

/// Requests the state from the other voters. A voter that was removed while it was down receives no more entries.
fn learn_of_removal(node: u64, known: &Known, transport: &dyn Transport) {
    let own = known.get();
    if !own.voters.contains_key(&node) {
        return;
    }
    for (_, member) in own.voters.iter().filter(|(other, _)| **other != node) {
        match ask_state(transport, &member.address) {
            // Later than a state in which it is a voter.
            Ok(state) if state.version > own.version && !state.voters.contains_key(&node) => {
                return known.set(state);
            }
            _ => {}
        }
    }
}

/// Lets the library's set of voters follow that of the cluster, as long as this one leads it.
async fn keep_voters(raft: Raft<Types>, node: u64, known: Arc<Known>, transport: Arc<dyn Transport>) {
    let mut alone = 0;
    loop {
        tokio::time::sleep(COMPARE_EVERY).await;
        let metrics = raft.metrics().borrow().clone();
        alone = if metrics.current_leader.is_none() { alone + 1 } else { 0 };
        if alone == ASK_AFTER {
            alone = 0;
            let (known, transport) = (known.clone(), transport.clone());
            let _ = tokio::task::spawn_blocking(move || learn_of_removal(node, &known, &*transport)).await;
        }
        if metrics.current_leader != Some(node) {
            continue;
        }
        let cluster = known.get();
        let wanted: BTreeSet<u64> = cluster.voters.keys().copied().collect();
        let membership = metrics.membership_config.membership().clone();
        // There are two sets if a change has been interrupted.
        if wanted.is_empty() || *membership.get_joint_config() == [wanted.clone()] {
            continue;
        }
        // It is tried again if it fails.
        for (id, member) in cluster.voters.iter().filter(|(id, _)| membership.get_node(id).is_none()) {
            let added = raft.add_learner(*id, BasicNode::new(member.address.clone()), false);
            let _ = tokio::time::timeout(LONGEST_PROPOSAL, added).await;
        }
        let change = ChangeMembers::ReplaceAllVoters(wanted);
        let _ = tokio::time::timeout(LONGEST_PROPOSAL, raft.change_membership(change, false)).await;
    }
}

#[cold]
fn no_majority() -> Error {
    Error::new(SqlState::CANNOT_CONNECT_NOW, "no majority of the voters can be reached")
        .with_hint("See \"firn cluster status\" on each of them.")
}

#[cold]
fn unusable(error: &dyn std::fmt::Display) -> Error {
    Error::new(SqlState::INTERNAL_ERROR, format!("the control plane has failed: {error}"))
}
