//! Delta Kernel in Rust as a client of a catalog: a command a line on standard input, an answer a
//! line, as `tests/server/KernelClient.java` has them.
//!
//! Arguments: the server's URI, a token, the catalog. Tables are of the schema `default` and have one
//! column, `id INT`. `load` keeps a snapshot, which `append`, `delete`, `add_column` and `stage` go on
//! from. `stage` appends too, and stops for good when the commit is staged and not yet asked for.

mod catalog;
mod rows;

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, BufRead, Write};

use delta_kernel::transaction::CommitResult;
use delta_kernel::SnapshotRef;

use catalog::Catalog;

pub type Answer<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Answer<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [uri, token, catalog] = arguments.as_slice() else {
        return Err("expected the server's URI, a token and the catalog's name".into());
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let _entered = runtime.enter(); // the committer asks for the runtime that it is called in
    let mut client = Client {
        catalog: Catalog::new(uri, token, catalog, runtime.handle().clone())?,
        loaded: HashMap::new(),
    };
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        say(&match client.answer(&words) {
            Ok(told) => format!("ok {told}"),
            Err(error) => format!("failed {}", with_causes(error.as_ref())),
        });
    }
    Ok(())
}

/// One answer, in one line.
fn say(text: &str) {
    let mut output = io::stdout().lock();
    let written = writeln!(output, "> {}", text.replace('\n', " ")).and_then(|()| output.flush());
    if written.is_err() {
        std::process::exit(0); // nobody listens any more
    }
}

fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(one) = cause {
        told.push_str(&format!("; {one}"));
        cause = one.source();
    }
    told
}

/// What a commit became, where its error doesn't say so.
fn version_of<S: std::fmt::Debug>(result: CommitResult<S>) -> Answer<u64> {
    match result {
        CommitResult::Committed(done) => Ok(done.commit_version()),
        CommitResult::Conflicted(lost) => {
            Err(format!("conflict at version {}", lost.conflict_version()).into())
        }
        CommitResult::Retryable(failed) => Err(failed.error.into()),
    }
}

struct Client {
    catalog: Catalog,
    loaded: HashMap<String, SnapshotRef>,
}

impl Client {
    fn answer(&mut self, words: &[&str]) -> Answer<String> {
        let [command, table, rest @ ..] = words else {
            return Err("expected a command and a table".into());
        };
        let engine = self.catalog.engine.clone();
        match *command {
            "create" => Ok(self.catalog.create(table)?.to_string()),
            "load" => {
                let snapshot = self.catalog.latest(table)?;
                let version = snapshot.version();
                self.loaded.insert(table.to_string(), snapshot);
                Ok(version.to_string())
            }
            "append" => {
                let committer = self.catalog.committer(table)?;
                let done = rows::append(&engine, self.snapshot(table)?, committer, &ids(rest)?)?;
                Ok(version_of(done)?.to_string())
            }
            "delete" => {
                let committer = self.catalog.committer(table)?;
                let done = rows::delete(&engine, self.snapshot(table)?, committer, &ids(rest)?)?;
                Ok(version_of(done)?.to_string())
            }
            "add_column" => {
                let [column] = rest else {
                    return Err("expected a column".into());
                };
                let committer = self.catalog.committer(table)?;
                let done = rows::add_column(&engine, self.snapshot(table)?, committer, column)?;
                Ok(version_of(done)?.to_string())
            }
            "stage" => {
                let committer = self.catalog.committer_that_stops(table, || say("ok staged"))?;
                let done = rows::append(&engine, self.snapshot(table)?, committer, &ids(rest)?)?;
                Ok(version_of(done)?.to_string())
            }
            "read" => {
                let mut found = rows::read(&engine, self.catalog.latest(table)?)?;
                found.sort_unstable();
                let told: Vec<String> = found.iter().map(i32::to_string).collect();
                Ok(told.join(" "))
            }
            "publish" => Ok(self.catalog.published(table)?.version().to_string()),
            "checkpoint" => {
                let published = self.catalog.published(table)?;
                published.checkpoint(engine.as_ref(), None)?;
                Ok(published.version().to_string())
            }
            other => Err(format!("no command: {other}").into()),
        }
    }

    fn snapshot(&self, table: &str) -> Answer<SnapshotRef> {
        let found = self.loaded.get(table);
        Ok(found.ok_or(format!("{table} isn't loaded"))?.clone())
    }
}

fn ids(words: &[&str]) -> Answer<Vec<i32>> {
    Ok(words.iter().map(|word| word.parse()).collect::<Result<_, _>>()?)
}
