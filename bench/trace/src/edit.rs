//! Makes traces of traces: parts, sums, anonymous copies.
