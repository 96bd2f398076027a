//! The bodies of operations: the code that a job executes.

use std::error::Error;
use std::fmt;

use hyoshi_model::System;
use hyoshi_runtime::{Body, JobContext, Node};

/// Bodies by operation; operations without one do built-in work.
///
/// Bodies that share declared resources need the system to create the [`SharedValue`](crate::SharedValue)
/// values: [`Bodies::for_system`] receives it after the file is read.
#[derive(Default)]
pub struct Bodies {
    given: Vec<(String, Body)>,
    later: Option<Later>,
}

type Later = Box<dyn FnOnce(&System) -> Result<Bodies, Box<dyn Error>>>;

impl Bodies {
    /// Built-in work for every operation.
    pub fn new() -> Self {
        Bodies::default()
    }

    /// Bodies that are created from the system.
    ///
    /// ```
    /// use hyoshi::{Bodies, SharedValue};
    ///
    /// let bodies = Bodies::for_system(|system| {
    ///     let map = SharedValue::new(system, "map", [0u32; 16])?;
    ///     let reader = map.clone();
    ///     Ok(Bodies::new()
    ///         .body("sense", move |job| map.lock(job, |map| map[0] += 1).expect("declared"))
    ///         .body("plan", move |job| reader.lock(job, |map| drop(map[0])).expect("declared")))
    /// });
    /// # drop(bodies);
    /// ```
    pub fn for_system(make: impl FnOnce(&System) -> Result<Bodies, Box<dyn Error>> + 'static) -> Self {
        Bodies { given: Vec::new(), later: Some(Box::new(make)) }
    }

    /// Adds the body of an operation.
    pub fn body(
        mut self,
        operation: impl Into<String>,
        body: impl FnMut(&mut JobContext<'_>) + Send + 'static,
    ) -> Self {
        self.given.push((operation.into(), Box::new(body)));
        self
    }

    /// Adds them to a node that will run `system`.
    pub fn install(self, system: &System, mut node: Node) -> Result<Node, Box<dyn Error>> {
        for (operation, body) in self.given {
            node = node.body(operation, body);
        }
        match self.later {
            Some(make) => make(system)?.install(system, node),
            None => Ok(node),
        }
    }
}

impl fmt::Debug for Bodies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.given.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Bodies").field("given", &names).field("for_system", &self.later.is_some()).finish()
    }
}
