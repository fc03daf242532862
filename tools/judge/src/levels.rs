//! The verdict: each level, and whether the history keeps it.
//!
//! - `serializable`, `snapshot`, `write-serializable`: every transaction is held to that level;
//! - `strict-...`: and to the order of time: what ended before another began is before it;
//! - `promised`: each transaction is held to its own level, and all to the order of time. Null where
//!   a transaction doesn't say its level.
//!
//! Every level includes what even Snapshot promises: no aborted, intermediate, made-up or doubled
//! element is read, and a transaction reads its own writes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use adya::{check, History, Opts, Report, Valid, Workload};
use serde_json::{json, Value as Json};

use crate::history::{Access, Level, Outcome, Transaction};
use crate::parts::{history, Parts};

const SEARCH_LIMIT: Duration = Duration::from_secs(20);
/// Of explanations of one level.
const SHOWN: usize = 3;

#[derive(Default)]
struct Finding {
    known: bool,
    anomalies: BTreeSet<String>,
    why: Vec<String>,
}

pub fn judged(transactions: &[Transaction]) -> Json {
    let floor = floor(transactions);
    let mut levels: BTreeMap<String, Json> = BTreeMap::new();
    for (name, level) in [
        ("serializable", Level::Serializable),
        ("write-serializable", Level::WriteSerializable),
        ("snapshot", Level::Snapshot),
    ] {
        for (prefix, in_time) in [("", false), ("strict-", true)] {
            let mut found = found(transactions, |_| level, in_time);
            if level == Level::Snapshot && !inserts(transactions) {
                // adya's own notion of it, on whole transactions: both have to agree.
                let model = if in_time {
                    "strong-snapshot-isolation"
                } else {
                    "snapshot-isolation"
                };
                found.add(&check_for(&history(transactions, |_| Parts::Whole), model));
            }
            levels.insert(format!("{prefix}{name}"), found.verdict(&floor));
        }
    }
    let promised = if transactions.iter().all(|one| one.level.is_some()) {
        let own = |one: &Transaction| one.level.unwrap_or(Level::Serializable);
        found(transactions, own, true).verdict(&floor)
    } else {
        Json::Null
    };
    levels.insert("promised".into(), promised);
    let ended = |outcome| {
        transactions
            .iter()
            .filter(|one| one.outcome == outcome)
            .count()
    };
    let accesses = |reading: bool| {
        let committed = transactions
            .iter()
            .filter(|one| one.outcome == Outcome::Committed);
        let all = committed.flat_map(|one| &one.accesses);
        all.filter(|access| matches!(access, Access::Read { .. }) == reading)
            .count()
    };
    json!({
        "transactions": transactions.len(),
        "committed": ended(Outcome::Committed),
        "failed": ended(Outcome::Failed),
        "unknown": ended(Outcome::Unknown),
        "reads": accesses(true),
        "appends": accesses(false),
        "levels": levels,
    })
}

fn inserts(transactions: &[Transaction]) -> bool {
    let accesses = transactions.iter().flat_map(|one| &one.accesses);
    accesses.into_iter().any(|access| {
        matches!(
            access,
            Access::Append {
                same_row: false,
                ..
            }
        )
    })
}

/// What no level allows.
fn floor(transactions: &[Transaction]) -> Finding {
    let mut floor = Finding::default();
    floor.add(&check_for(
        &history(transactions, |_| Parts::Whole),
        "causal-cerone",
    ));
    let mut appended = HashSet::new();
    for access in transactions.iter().flat_map(|one| &one.accesses) {
        if let Access::Append { key, element, .. } = access {
            appended.insert((key, *element));
        }
    }
    for (number, one) in transactions.iter().enumerate() {
        for access in &one.accesses {
            let Access::Read { key, list, .. } = access else {
                continue;
            };
            for element in list
                .iter()
                .filter(|element| !appended.contains(&(key, **element)))
            {
                floor.anomalies.insert("made-up".into());
                floor.why.push(format!(
                    "T{number}0 read {element} in {key}, which nobody appended"
                ));
            }
        }
    }
    floor
}

fn check_for(parts: &History, model: &str) -> Report {
    let opts = Opts {
        models: vec![model.into()],
        timeout: SEARCH_LIMIT,
        ..Opts::default()
    };
    check(parts, Workload::ListAppend, &opts)
}

/// What speaks against each transaction's keeping the level that `level` says.
fn found(
    transactions: &[Transaction],
    level: impl Fn(&Transaction) -> Level,
    in_time: bool,
) -> Finding {
    let model = if in_time {
        "strict-serializable"
    } else {
        "serializable"
    };
    let mut finding = Finding {
        known: true,
        ..Finding::default()
    };
    let parts = history(transactions, |one| match level(one) {
        Level::Serializable => Parts::Whole,
        Level::WriteSerializable | Level::Snapshot => Parts::SnapshotAndWrites,
    });
    finding.add(&check_for(&parts, model));
    if transactions
        .iter()
        .any(|one| level(one) == Level::WriteSerializable)
    {
        let writes = history(transactions, |one| match level(one) {
            Level::Serializable | Level::WriteSerializable => Parts::Writes,
            Level::Snapshot => Parts::WritesOfRows,
        });
        let report = check_for(&writes, model);
        // Writes that have nothing to do with each other have an order.
        if report.anomaly_types != ["empty-transaction-graph"] {
            finding.add(&report);
        }
    }
    finding
}

impl Finding {
    fn add(&mut self, report: &Report) {
        match report.valid {
            Valid::True => {}
            Valid::Unknown => self.known = false,
            Valid::False => {
                self.anomalies.extend(report.anomaly_types.iter().cloned());
                let all = report.anomalies.values().flatten();
                self.why
                    .extend(all.map(|one| format!("{}: {}", one.kind, one.explanation)));
            }
        }
    }

    fn verdict(&self, floor: &Finding) -> Json {
        let anomalies: BTreeSet<&String> = self.anomalies.union(&floor.anomalies).collect();
        let why: Vec<&String> = floor.why.iter().chain(&self.why).take(SHOWN).collect();
        let holds = if anomalies.is_empty() {
            self.known.then_some(true)
        } else {
            Some(false)
        };
        json!({ "holds": holds, "anomalies": anomalies, "why": why })
    }
}
