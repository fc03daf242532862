//! Judges histories of transactions: which isolation levels does each of them keep?
//!
//! Histories come on standard input, one operation a line (`history.rs` has the form), a blank
//! line between two of them. Each is answered by one line of JSON, in the same order:
//!
//! ```json
//! {"transactions": 3, "committed": 3, "failed": 0, "unknown": 0, "reads": 4, "appends": 2,
//!  "levels": {"serializable": {"holds": false, "anomalies": ["G2-item"], "why": ["..."]}, ...}}
//! ```
//!
//! `holds` is true, false, or null where the history says nothing about the level. What each level
//! means is in `levels.rs`. Cycles and their names are the crate adya's; what is a transaction's part in
//! a level is this program's. A history that isn't one (an element appended twice, an operation that ends
//! before it began) is answered by `{"error": "..."}`, and the exit code is then 2, else 0.

mod history;
mod levels;
mod parts;

use std::io::{self, BufRead, Write};

use serde_json::json;

fn main() -> io::Result<()> {
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let (mut lines, mut line) = (Vec::new(), String::new());
    let mut refused = false;
    loop {
        line.clear();
        let ended = input.read_line(&mut line)? == 0;
        if !line.trim().is_empty() {
            lines.push(line.trim().to_string());
        } else if !lines.is_empty() {
            let verdict = match history::parse(&std::mem::take(&mut lines)) {
                Ok(transactions) => levels::judged(&transactions),
                Err(reason) => {
                    refused = true;
                    json!({ "error": reason })
                }
            };
            writeln!(output, "{verdict}")?;
            output.flush()?;
        }
        if ended {
            break;
        }
    }
    std::process::exit(if refused { 2 } else { 0 })
}
