//! `vpmu reproduce`.

use std::io::Read as _;
use std::path::Path;

use super::internal;
use crate::cli::ReproduceArgs;
use crate::console::print;
use crate::error::{Error, Exit};
use crate::reproduce;
use crate::result::{Document, SCHEMA};

/// Largest result document that is read.
const MAX_DOCUMENT: u64 = 64 << 20;

fn document(file: &Path) -> Result<Document, Error> {
    let refuse = |why: String| {
        Error::usage(format!("cannot use {}", file.display()), why, "give the .json that nmi-latency wrote")
    };
    let mut text = String::new();
    std::fs::File::open(file)
        .and_then(|file| file.take(MAX_DOCUMENT + 1).read_to_string(&mut text))
        .map_err(|error| refuse(error.to_string()))?;
    if text.len() as u64 > MAX_DOCUMENT {
        return Err(refuse(format!("it is larger than {MAX_DOCUMENT} bytes")));
    }
    let document: Document = serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
    if document.schema == SCHEMA { Ok(document) } else { Err(refuse(format!("its schema is not {SCHEMA}"))) }
}

pub(super) fn run(args: &ReproduceArgs) -> Result<Exit, Error> {
    let documents = args.measured.iter().map(|file| document(file)).collect::<Result<Vec<_>, _>>()?;
    let found = reproduce::reproduce(args.seed, &documents)?;
    if args.json {
        let json = serde_json::to_string_pretty(&found).map_err(|error| internal("cannot show the figures", error))?;
        print(&(json + "\n"))?;
    } else {
        print(&reproduce::markdown(&found))?;
    }
    Ok(Exit::Done)
}
