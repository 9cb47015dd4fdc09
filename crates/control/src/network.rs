//! Messages between voters: JSON over what the owner provides. One is asked, and answers.

use crate::{Known, Types};
use firn_base::sync::{Arc, Mutex};
use firn_base::{Error, NodeId, Result, SqlState};
use firn_replica::cluster::{Change, Cluster, Outcome};
use openraft::BasicNode;
use openraft::error::{InstallSnapshotError, NetworkError, RPCError, RaftError, Unreachable};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long one that cannot be reached is left alone.
const BACKOFF: Duration = Duration::from_millis(50);
/// How often it is looked whether an earlier question is answered.
const PAUSE: Duration = Duration::from_millis(2);
/// How long a question may take that the library does not limit.
const LONGEST_ANSWER: Duration = Duration::from_millis(1_500);

/// Connects to voters. Its calls block.
pub trait Transport: Send + Sync + 'static {
    /// Connects to a server: `HOST:PORT`.
    fn connect(&self, address: &str) -> Result<Box<dyn Line>>;
}

/// A connection to a voter.
pub trait Line: Send {
    /// Asks, and waits for the answer for so long at most. After an error the connection is not used again.
    fn ask(&mut self, message: &[u8], longest: Duration) -> Result<Vec<u8>>;
}

/// A question to a voter.
#[derive(Serialize, Deserialize)]
pub(crate) struct Question {
    /// The voter that is meant.
    pub to: Option<u64>,
    pub ask: Ask,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum Ask {
    Vote(VoteRequest<u64>),
    Append(AppendEntriesRequest<Types>),
    Snapshot(InstallSnapshotRequest<Types>),
    Propose {
        change: Change,
        /// Whether another voter may be asked in turn.
        may_forward: bool,
    },
    State,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum Answer {
    Vote(VoteResponse<u64>),
    Append(AppendEntriesResponse<u64>),
    Snapshot(InstallSnapshotResponse<u64>),
    Proposed(Outcome),
    State(Cluster),
    Failed(String),
    /// The server that is to be added does not answer.
    Unreachable(String),
}

pub(crate) fn encode(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("keys are strings or numbers")
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Question> {
    serde_json::from_slice(bytes).map_err(|_| out_of_turn())
}

/// Asks a server over a connection of its own.
pub(crate) fn ask(transport: &dyn Transport, address: &str, to: Option<u64>, ask: Ask) -> Result<Answer> {
    let question = encode(&Question { to, ask });
    let answer = transport.connect(address)?.ask(&question, LONGEST_ANSWER)?;
    serde_json::from_slice(&answer).map_err(|_| out_of_turn())
}

#[cold]
pub(crate) fn out_of_turn() -> Error {
    Error::new(SqlState::PROTOCOL_VIOLATION, "a message between voters is malformed")
}

/// Makes the connections of the library.
pub(crate) struct Network {
    pub known: Arc<Known>,
    pub transport: Arc<dyn Transport>,
}

/// A voter that the library reaches.
pub(crate) struct Peer {
    node: u64,
    /// Where it was when it became a voter.
    address: String,
    known: Arc<Known>,
    transport: Arc<dyn Transport>,
    line: Arc<Mutex<Option<Box<dyn Line>>>>,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Peer {
        let (known, transport) = (self.known.clone(), self.transport.clone());
        Peer { node: target, address: node.addr.clone(), known, transport, line: Arc::default() }
    }
}

impl Peer {
    async fn ask(&self, ask: Ask, longest: Duration) -> std::result::Result<Answer, Unreachable> {
        let question = encode(&Question { to: Some(self.node), ask });
        let present = self.known.get().member(NodeId(self.node)).map(|member| member.address.clone());
        let address = present.unwrap_or_else(|| self.address.clone());
        let (transport, line) = (self.transport.clone(), self.line.clone());
        let unreachable = |error: &dyn std::fmt::Display| {
            Unreachable::new(&std::io::Error::other(format!("voter {}: {error}", self.node)))
        };
        // An earlier question, which was given up, may still wait for its answer: then no more threads are to wait.
        let begun = tokio::time::Instant::now();
        while line.try_lock().is_none() {
            if begun.elapsed() >= longest {
                return Err(unreachable(&"it has not answered yet"));
            }
            tokio::time::sleep(PAUSE).await;
        }
        let asked = tokio::task::spawn_blocking(move || {
            let mut line = line.lock();
            let mut open = match line.take() {
                Some(open) => open,
                None => transport.connect(&address)?,
            };
            let answer = open.ask(&question, longest)?;
            *line = Some(open);
            serde_json::from_slice::<Answer>(&answer).map_err(|_| out_of_turn())
        });
        match asked.await {
            Ok(Ok(Answer::Failed(error))) => Err(unreachable(&error)),
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(unreachable(&error)),
            Err(error) => Err(unreachable(&error)),
        }
    }
}

fn no_answer() -> NetworkError {
    NetworkError::new(&std::io::Error::other("an answer to something else"))
}

impl RaftNetwork<Types> for Peer {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> std::result::Result<AppendEntriesResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        match self.ask(Ask::Append(request), option.hard_ttl()).await? {
            Answer::Append(answer) => Ok(answer),
            _ => Err(no_answer().into()),
        }
    }

    async fn install_snapshot(
        &mut self,
        request: InstallSnapshotRequest<Types>,
        option: RPCOption,
    ) -> std::result::Result<
        InstallSnapshotResponse<u64>,
        RPCError<u64, BasicNode, RaftError<u64, InstallSnapshotError>>,
    > {
        match self.ask(Ask::Snapshot(request), option.hard_ttl()).await? {
            Answer::Snapshot(answer) => Ok(answer),
            _ => Err(no_answer().into()),
        }
    }

    async fn vote(
        &mut self,
        request: VoteRequest<u64>,
        option: RPCOption,
    ) -> std::result::Result<VoteResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        match self.ask(Ask::Vote(request), option.hard_ttl()).await? {
            Answer::Vote(answer) => Ok(answer),
            _ => Err(no_answer().into()),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(BACKOFF))
    }
}
