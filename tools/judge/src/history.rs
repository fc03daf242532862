//! Lines become transactions: what each asked for, what it saw, how and when it ended.
//!
//! A line is an operation as in Jepsen's histories of list-append, with four things besides:
//!
//! - `["rfw", key, list]` is a read that writes of the transaction depend on, `["r", key, list]` one
//!   that nothing depends on;
//! - `["append", key, element]` changes the one row that holds the list, `["insert", key, element]` adds
//!   a row to the rows that are the list: two inserts have no row in common;
//! - a line of the type `commit` tells when the end was asked for: reads are done by then, and no write
//!   is visible yet;
//! - `level` of an `invoke`: `serializable`, `write-serializable` or `snapshot`.
//!
//! `time` is any clock that all processes share. Lines may come in any order if all have it; without it
//! their order is time's. An operation that never ends has an unknown outcome.

use std::collections::{HashMap, HashSet};

use serde_json::Value as Json;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    Serializable,
    WriteSerializable,
    Snapshot,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Committed,
    Failed,
    Unknown,
}

/// One access to a list. What a read of a transaction that didn't commit saw is not kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Access {
    Read {
        key: String,
        list: Vec<i64>,
        for_write: bool,
    },
    Append {
        key: String,
        element: i64,
        same_row: bool,
    },
}

#[derive(Clone, Debug)]
pub struct Transaction {
    /// Its place among those of the history, by when they began.
    pub number: u64,
    pub level: Option<Level>,
    pub outcome: Outcome,
    pub accesses: Vec<Access>,
    /// The tables of which it asked for more than new rows.
    pub not_blind_to: HashSet<String>,
    pub began: i64,
    /// When its end was asked for, where somebody said.
    pub commit_asked: Option<i64>,
    pub ended: i64,
}

impl Transaction {
    /// It may insert rows into the key's table, and asked for nothing else of that table.
    pub fn is_blind_to(&self, key: &str) -> bool {
        !self.not_blind_to.contains(table_of(key))
    }
}

/// Keys are `table.list`; one without a dot is a table of its own.
fn table_of(key: &str) -> &str {
    key.split_once('.').map_or(key, |(table, _)| table)
}

/// The history as if nobody had seen what was appended blindly. Who appended it did something else:
/// added to a list that nobody reads, so that what it read still counts.
pub fn without_blind_appends(transactions: &[Transaction]) -> Vec<Transaction> {
    let mut blind = HashSet::new();
    let mut left = transactions.to_vec();
    for (one, new) in transactions.iter().zip(&mut left) {
        for access in &mut new.accesses {
            if let Access::Append { key, element, .. } = access {
                if one.is_blind_to(key) {
                    blind.insert((key.clone(), *element));
                    *key = format!("{key}, blindly by T{}0", one.number);
                }
            }
        }
    }
    for access in left.iter_mut().flat_map(|one| &mut one.accesses) {
        if let Access::Read { key, list, .. } = access {
            list.retain(|element| !blind.contains(&(key.clone(), *element)));
        }
    }
    left
}

struct Line {
    kind: String,
    process: i64,
    time: i64,
    level: Option<Level>,
    value: Vec<Json>,
}

/// The transactions in the order in which they began.
pub fn parse(lines: &[String]) -> Result<Vec<Transaction>, String> {
    let mut parsed = lines
        .iter()
        .enumerate()
        .map(|(at, text)| line(at, text).map_err(|reason| format!("line {}: {reason}", at + 1)))
        .collect::<Result<Vec<_>, _>>()?;
    if parsed.iter().any(|one| one.1) {
        if !parsed.iter().all(|one| one.1) {
            return Err("some lines have a time and others have none".into());
        }
        parsed.sort_by_key(|(one, _)| one.time);
    }
    let mut open: HashMap<i64, usize> = HashMap::new();
    let mut transactions: Vec<Transaction> = Vec::new();
    let mut asked: Vec<Vec<Json>> = Vec::new();
    for (one, _) in parsed {
        let process = one.process;
        match one.kind.as_str() {
            "invoke" => {
                if open.insert(process, transactions.len()).is_some() {
                    return Err(format!(
                        "process {process} began an operation within another one"
                    ));
                }
                transactions.push(Transaction {
                    number: transactions.len() as u64,
                    level: one.level,
                    outcome: Outcome::Unknown,
                    accesses: accesses(&one.value, Outcome::Unknown)?,
                    not_blind_to: not_blind_to(&one.value),
                    began: one.time,
                    commit_asked: None,
                    ended: i64::MAX,
                });
                asked.push(one.value);
            }
            "commit" => {
                let at = *open
                    .get(&process)
                    .ok_or(format!("process {process} has nothing to commit"))?;
                transactions[at].commit_asked = Some(one.time);
            }
            kind => {
                let at = open
                    .remove(&process)
                    .ok_or(format!("process {process} ended what it hadn't begun"))?;
                if kind == "info" {
                    // Whatever this process does later, it may still commit: it never ends.
                    continue;
                }
                let outcome = if kind == "ok" {
                    Outcome::Committed
                } else {
                    Outcome::Failed
                };
                if outcome == Outcome::Committed {
                    same_accesses(&asked[at], &one.value)?;
                    transactions[at].accesses = accesses(&one.value, outcome)?;
                }
                transactions[at].outcome = outcome;
                transactions[at].ended = one.time;
            }
        }
    }
    unique(&transactions)?;
    Ok(transactions)
}

fn line(at: usize, text: &str) -> Result<(Line, bool), String> {
    let json: Json = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let kind = json["type"].as_str().unwrap_or_default().to_string();
    if !["invoke", "commit", "ok", "fail", "info"].contains(&kind.as_str()) {
        return Err(format!(
            "the type is {}, not invoke, commit, ok, fail or info",
            json["type"]
        ));
    }
    let level = match json
        .get("level")
        .map(|name| name.as_str().unwrap_or_default())
    {
        None => None,
        Some("serializable") => Some(Level::Serializable),
        Some("write-serializable") => Some(Level::WriteSerializable),
        Some("snapshot") => Some(Level::Snapshot),
        Some(_) => return Err(format!("there is no level {}", json["level"])),
    };
    let process = json["process"]
        .as_i64()
        .ok_or("the process is not a number")?;
    let value = json["value"].as_array().cloned().unwrap_or_default();
    let time = json["time"].as_i64();
    Ok((
        Line {
            kind,
            process,
            time: time.unwrap_or(at as i64),
            level,
            value,
        },
        time.is_some(),
    ))
}

fn accesses(value: &[Json], outcome: Outcome) -> Result<Vec<Access>, String> {
    let mut found = Vec::new();
    for one in value {
        let bad = || format!("{one} is not [r, rfw, append or insert, key, value]");
        let parts = one
            .as_array()
            .filter(|parts| parts.len() == 3)
            .ok_or_else(bad)?;
        let key = match &parts[1] {
            Json::String(name) => name.clone(),
            Json::Number(number) => number.to_string(),
            _ => return Err(bad()),
        };
        let name = parts[0].as_str().unwrap_or_default();
        match name {
            "r" | "rfw" if outcome != Outcome::Committed => {}
            "r" | "rfw" => {
                let list = parts[2].as_array().ok_or_else(bad)?;
                let list = list
                    .iter()
                    .map(Json::as_i64)
                    .collect::<Option<Vec<_>>>()
                    .ok_or_else(bad)?;
                found.push(Access::Read {
                    key,
                    list,
                    for_write: name == "rfw",
                });
            }
            "append" | "insert" => {
                let element = parts[2].as_i64().ok_or_else(bad)?;
                found.push(Access::Append {
                    key,
                    element,
                    same_row: name == "append",
                });
            }
            _ => return Err(bad()),
        }
    }
    Ok(found)
}

fn not_blind_to(asked: &[Json]) -> HashSet<String> {
    let looks = asked.iter().filter(|one| one[0] != "insert");
    looks
        .map(|one| match &one[1] {
            Json::String(name) => table_of(name).to_string(),
            other => other.to_string(),
        })
        .collect()
}

/// The end of a transaction tells of the same accesses as its beginning, reads apart from what they saw.
fn same_accesses(asked: &[Json], done: &[Json]) -> Result<(), String> {
    let reading = |one: &Json| one[0] == "r" || one[0] == "rfw";
    let same = |(one, other): (&Json, &Json)| {
        one[0] == other[0] && one[1] == other[1] && (reading(one) || one[2] == other[2])
    };
    if asked.len() == done.len() && asked.iter().zip(done).all(same) {
        return Ok(());
    }
    Err(format!(
        "began as {} and ended as {}",
        Json::from(asked),
        Json::from(done)
    ))
}

fn unique(transactions: &[Transaction]) -> Result<(), String> {
    let mut seen = HashSet::new();
    for access in transactions.iter().flat_map(|one| &one.accesses) {
        if let Access::Append { key, element, .. } = access {
            if !seen.insert((key, element)) {
                return Err(format!("{element} was appended to {key} more than once"));
            }
        }
    }
    Ok(())
}
