//! The verdict: each level, and whether the history keeps it.
//!
//! - `serializable`, `snapshot`, `write-serializable`: every transaction is held to that level;
//! - `write-serializable-beside-appends`: the writes have a serial order if what was appended
//!   blindly, and who saw it, is left out; and of no two transactions each one missed, in a read
//!   for its writes, what the other one wrote. It is what remains of write-serializable where a
//!   transaction that missed the rows of a blind append may commit after it. An append is blind
//!   where its transaction asked nothing of that table;
//! - `strict-...`: and to the order of time: what ended before another began is before it;
//! - `promised`: each transaction is held to its own level (WriteSerializable: beside appends), and
//!   all to the order of time. Null where a transaction doesn't say its level.
//!
//! Every level includes what even Snapshot promises: no aborted, intermediate, made-up or doubled
//! element is read, and a transaction reads its own writes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use adya::{check, History, Opts, Report, Valid, Workload};
use serde_json::{json, Value as Json};

use crate::history::{without_blind_appends, Access, Level, Outcome, Transaction};
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
    for (name, level, beside_appends) in [
        ("serializable", Level::Serializable, false),
        ("write-serializable", Level::WriteSerializable, false),
        (
            "write-serializable-beside-appends",
            Level::WriteSerializable,
            true,
        ),
        ("snapshot", Level::Snapshot, false),
    ] {
        for (prefix, in_time) in [("", false), ("strict-", true)] {
            let mut found = found(transactions, |_| level, in_time, beside_appends);
            if level == Level::Snapshot && !inserts(transactions) {
                // adya's own notion of it, on whole transactions: both have to agree.
                let whole = history(transactions, |_| Parts::Whole);
                found.add(&check_for(&whole, SNAPSHOT[usize::from(in_time)]));
            }
            levels.insert(format!("{prefix}{name}"), found.verdict(&floor));
        }
    }
    let promised = if transactions.iter().all(|one| one.level.is_some()) {
        let own = |one: &Transaction| one.level.unwrap_or(Level::Serializable);
        found(transactions, own, true, true).verdict(&floor)
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

/// adya's names of models, without and with the order of time.
const SERIALIZABLE: [&str; 2] = ["serializable", "strict-serializable"];
const SNAPSHOT: [&str; 2] = ["snapshot-isolation", "strong-snapshot-isolation"];
const READS_OF_COMMITTED_AND_OWN: &str = "causal-cerone";

fn inserts(transactions: &[Transaction]) -> bool {
    let mut accesses = transactions.iter().flat_map(|one| &one.accesses);
    accesses.any(|access| {
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
    let whole = history(transactions, |_| Parts::Whole);
    floor.add(&check_for(&whole, READS_OF_COMMITTED_AND_OWN));
    let mut appended = HashSet::new();
    for access in transactions.iter().flat_map(|one| &one.accesses) {
        if let Access::Append { key, element, .. } = access {
            appended.insert((key, *element));
        }
    }
    for one in transactions {
        for access in &one.accesses {
            let Access::Read { key, list, .. } = access else {
                continue;
            };
            for element in list
                .iter()
                .filter(|element| !appended.contains(&(key, **element)))
            {
                floor.anomalies.insert("made-up".into());
                let what = format!(
                    "T{}0 read {element} in {key}, which nobody appended",
                    one.number
                );
                floor.why.push(what);
            }
        }
    }
    floor
}

/// What speaks against each transaction's keeping the level that `level` says.
fn found(
    transactions: &[Transaction],
    level: impl Fn(&Transaction) -> Level,
    in_time: bool,
    beside_appends: bool,
) -> Finding {
    let model = SERIALIZABLE[usize::from(in_time)];
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
        let parts = |one: &Transaction| match level(one) {
            Level::Serializable | Level::WriteSerializable => Parts::Writes,
            Level::Snapshot => Parts::WritesOfRows,
        };
        let writes = if beside_appends {
            history(&without_blind_appends(transactions), parts)
        } else {
            history(transactions, parts)
        };
        if beside_appends {
            finding.add_skew(transactions, &level);
        }
        let report = check_for(&writes, model);
        // Writes that have nothing to do with each other have an order.
        if report.anomaly_types != ["empty-transaction-graph"] {
            finding.add(&report);
        }
    }
    finding
}

fn check_for(parts: &History, model: &str) -> Report {
    let opts = Opts {
        models: vec![model.into()],
        timeout: SEARCH_LIMIT,
        ..Opts::default()
    };
    check(parts, Workload::ListAppend, &opts)
}

/// Whether a read on which the one's writes depend missed what the other one wrote. All reads of a
/// Serializable transaction count.
fn missed(one: &Transaction, of_one: Level, other: &Transaction) -> bool {
    one.accesses.iter().any(|access| match access {
        Access::Read {
            key,
            list,
            for_write,
        } if *for_write || of_one == Level::Serializable => {
            other.accesses.iter().any(|wrote| match wrote {
                Access::Append {
                    key: changed,
                    element,
                    ..
                } => key == changed && !list.contains(element),
                Access::Read { .. } => false,
            })
        }
        _ => false,
    })
}

fn writes(one: &Transaction) -> bool {
    let mut accesses = one.accesses.iter();
    accesses.any(|access| matches!(access, Access::Append { .. }))
}

impl Finding {
    /// Two that each missed what the other one wrote: neither can be the first.
    fn add_skew(&mut self, transactions: &[Transaction], level: impl Fn(&Transaction) -> Level) {
        let held: Vec<_> = transactions
            .iter()
            .filter(|one| one.outcome == Outcome::Committed && level(one) != Level::Snapshot)
            .filter(|one| writes(one))
            .collect();
        for (at, one) in held.iter().enumerate() {
            for other in &held[at + 1..] {
                if missed(one, level(one), other) && missed(other, level(other), one) {
                    self.anomalies.insert("write-skew".into());
                    let (one, other) = (one.number, other.number);
                    self.why.push(format!(
                        "write-skew: T{one}0 and T{other}0 each missed what the other one wrote"
                    ));
                }
            }
        }
    }

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
