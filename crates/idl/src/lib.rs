//! OMG IDL: reads a file's declarations, with errors at their places, and generates readable Rust.
//!
//! The subset of IDL 4.2 that CORBA and DDS share, with interfaces. Source text becomes a [`Specification`], in which
//! every name is resolved, every constant a value and every definition has its repository id; generators and dynamic
//! calls use it.
//!
//! ```
//! use hyoshi_idl::{DefinitionKind, ReadOptions, read_text};
//!
//! let text = "module Tracking { interface Tracker { oneway void hint(in string note); }; };";
//! let specification = read_text(text, "tracker.idl", &ReadOptions::default())?;
//! let tracker = specification.definitions.iter().find(|definition| definition.name == "Tracker").unwrap();
//! assert_eq!(tracker.repository_id, "IDL:Tracking/Tracker:1.0");
//! let DefinitionKind::Interface(interface) = &tracker.kind else { unreachable!() };
//! assert!(interface.operations[0].oneway);
//!
//! let errors = read_text("typedef sequence<lnog> Longs;", "longs.idl", &ReadOptions::default()).unwrap_err();
//! assert!(errors.to_string().contains("did you mean `long`?"));
//! # Ok::<(), hyoshi_idl::Diagnostics>(())
//! ```

#![forbid(unsafe_code)]

mod build;
mod read;
pub mod rust;
pub mod tree;

pub use build::{Build, Generated, build};
pub use read::{Diagnostics, IdlDiagnostic, ReadOptions, SourcePosition, SourceSpan, Sources, read, read_text, render};
pub use tree::{Definition, DefinitionId, DefinitionKind, Specification, Type};
