//! Transactions become parts that each must look like one instant.
//!
//! - whole: one part;
//! - its snapshot and its writes: all its reads, and each row that it changes, as it was before the change;
//!   its writes with the reads of the rows that they change;
//! - its writes with those reads alone;
//! - its writes with all the reads that they depend on, and no other reads.
//!
//! Serializable promises a serial order of whole transactions, Snapshot one of snapshots and writes
//! (that is Adya's PL-SI: the changed rows forbid the lost update), WriteSerializable that
//! one, and one of the writes, which may be another: neither has to explain the other's reads.
//!
//! The snapshot lies between the beginning and the request to commit; a part that only writes between
//! that request and the end; one with both anywhere between beginning and end. The snapshot comes
//! before the writes: it appends to a list of the transaction's own, which they read.

use std::collections::BTreeMap;

use adya::history::{Interner, Mop, Op, OpType, ReadValue, Scalar};
use adya::History;

use crate::history::{Access, Outcome, Transaction};

/// A transaction is named `T<10 × number>` in adya's explanations, its snapshot one more, its writes two.
const NAMES: u64 = 10;

type Orders<'a> = BTreeMap<&'a String, &'a [i64]>;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    Whole,
    SnapshotAndWrites,
    WritesOfRows,
    Writes,
}

/// The parts of each transaction that `parts` says, as a history of adya's.
pub fn history(transactions: &[Transaction], parts: impl Fn(&Transaction) -> Parts) -> History {
    let (mut made, orders) = (Made::default(), orders(transactions));
    for (number, one) in transactions.iter().enumerate() {
        made.add_parts(number as u64 * NAMES, one, parts(one), &orders);
    }
    for (number, (key, list)) in orders.into_iter().enumerate() {
        // Reads tell in which order a list was written. Where the one that tells most was left out,
        // a reader at any time says it again.
        let read = Access::Read {
            key: key.clone(),
            list: list.to_vec(),
            for_write: false,
        };
        let name = (transactions.len() + number) as u64 * NAMES;
        made.add(name, Outcome::Committed, i64::MIN, i64::MAX, &[read]);
    }
    made.finish()
}

/// The longest list that a read saw, of each key.
fn orders(transactions: &[Transaction]) -> Orders<'_> {
    let mut longest = Orders::new();
    for access in transactions.iter().flat_map(|one| &one.accesses) {
        if let Access::Read { key, list, .. } = access {
            let known = longest.entry(key).or_default();
            if list.len() > known.len() {
                *known = list;
            }
        }
    }
    longest.retain(|_, list| !list.is_empty());
    longest
}

/// What a transaction's reads and changes say about its snapshot: its own appends are taken away.
fn snapshot(one: &Transaction, orders: &Orders) -> Vec<Access> {
    let mut reads = Vec::new();
    if one.outcome != Outcome::Committed {
        return reads;
    }
    for (at, access) in one.accesses.iter().enumerate() {
        if let Access::Read {
            key,
            list,
            for_write,
        } = access
        {
            let list = without_own(list, &own(&one.accesses[..at], key));
            reads.push(Access::Read {
                key: key.clone(),
                list,
                for_write: *for_write,
            });
        }
        if let Access::Append {
            key,
            element,
            same_row: true,
        } = access
        {
            let order = orders.get(key).copied().unwrap_or_default();
            let before = order
                .iter()
                .position(|other| other == element)
                .map(|at| &order[..at]);
            if let Some(before) = before {
                let list = without_own(before, &own(&one.accesses[..at], key));
                reads.push(Access::Read {
                    key: key.clone(),
                    list,
                    for_write: true,
                });
            }
        }
    }
    reads
}

fn writes(one: &Transaction, with_reads_for_them: bool) -> Vec<Access> {
    if !one
        .accesses
        .iter()
        .any(|access| matches!(access, Access::Append { .. }))
    {
        return Vec::new();
    }
    let changed: Vec<&String> = one.accesses.iter().filter_map(changed_row).collect();
    let kept = |access: &&Access| match access {
        Access::Append { .. } => true,
        Access::Read { key, for_write, .. } => {
            changed.contains(&key) || (*for_write && with_reads_for_them)
        }
    };
    one.accesses.iter().filter(kept).cloned().collect()
}

fn changed_row(access: &Access) -> Option<&String> {
    match access {
        Access::Append {
            key,
            same_row: true,
            ..
        } => Some(key),
        _ => None,
    }
}

fn own(before: &[Access], of: &String) -> Vec<i64> {
    let element = |access: &Access| match access {
        Access::Append { key, element, .. } if key == of => Some(*element),
        _ => None,
    };
    before.iter().filter_map(element).collect()
}

fn without_own(list: &[i64], own: &[i64]) -> Vec<i64> {
    // Where own appends are missing or elsewhere, adya says so of the whole transaction: "internal".
    list.strip_suffix(own).unwrap_or(list).to_vec()
}

#[derive(Default)]
struct Made {
    ops: Vec<(i64, Op)>,
    names: Interner,
    parts: i64,
}

impl Made {
    fn add_parts(&mut self, name: u64, one: &Transaction, parts: Parts, orders: &Orders) {
        let (mut reads, mut writes) = match parts {
            Parts::Whole => {
                return self.add(name, one.outcome, one.began, one.ended, &one.accesses)
            }
            Parts::SnapshotAndWrites => (snapshot(one, orders), writes(one, false)),
            Parts::WritesOfRows => (Vec::new(), writes(one, false)),
            Parts::Writes => (Vec::new(), writes(one, true)),
        };
        let writes_alone = !writes
            .iter()
            .any(|access| matches!(access, Access::Read { .. }));
        if !reads.is_empty() && !writes.is_empty() {
            let key = format!("the snapshot of T{name}");
            writes.push(Access::Read {
                key: key.clone(),
                list: vec![1],
                for_write: true,
            });
            reads.push(Access::Append {
                key,
                element: 1,
                same_row: false,
            });
        }
        if !reads.is_empty() {
            let ended = one.commit_asked.unwrap_or(one.ended);
            self.add(name + 1, Outcome::Committed, one.began, ended, &reads);
        }
        if !writes.is_empty() {
            let began = if writes_alone {
                one.commit_asked.unwrap_or(one.began)
            } else {
                one.began
            };
            self.add(name + 2, one.outcome, began, one.ended, &writes);
        }
    }

    fn add(&mut self, index: u64, outcome: Outcome, began: i64, ended: i64, accesses: &[Access]) {
        let process = Some(self.parts);
        self.parts += 1;
        let value: Vec<Mop> = accesses.iter().map(|access| self.mop(access)).collect();
        let kind = match outcome {
            Outcome::Committed => OpType::Ok,
            Outcome::Failed => OpType::Fail,
            Outcome::Unknown => OpType::Info,
        };
        let invoked = Op {
            index,
            kind: OpType::Invoke,
            process,
            value: value.clone(),
            time: Some(began),
        };
        self.ops.push((began, invoked));
        self.ops.push((
            ended,
            Op {
                index,
                kind,
                process,
                value,
                time: Some(ended),
            },
        ));
    }

    fn mop(&mut self, access: &Access) -> Mop {
        let mut name = |scalar| self.names.intern(scalar);
        match access {
            Access::Read { key, list, .. } => Mop::Read {
                key: name(Scalar::Str(key.clone())),
                value: ReadValue::List(list.iter().map(|one| name(Scalar::Int(*one))).collect()),
            },
            Access::Append { key, element, .. } => Mop::Append {
                key: name(Scalar::Str(key.clone())),
                value: name(Scalar::Int(*element)),
            },
        }
    }

    /// At one time beginnings come first: what may have been at once counts as at once.
    fn finish(mut self) -> History {
        self.ops
            .sort_by_key(|(time, op)| (*time, op.kind != OpType::Invoke));
        History::from_ops(self.ops.into_iter().map(|(_, op)| op).collect(), self.names)
    }
}
