//! The `vpmu` tool.
