//! Properties of plans and verdicts, compared with textbooks, a reference simulation, and each other.

mod build;
mod contracts;
mod golden;
mod hosts;
mod joins;
mod margins;
mod reference;
mod set_points;
mod soundness;
mod strategies;
mod verdicts;
