//! The event channel of a node: code outside the lanes receives the events of a run, and publishes events.
//!
//! Consumers among the operations need no channel: the dispatcher releases them (`after = { event = ... }` in the
//! file). An [`EventChannel`] serves the shell, other threads of the program, and other transports. It has one thread
//! at normal priority. A slow or failing subscriber delays neither a lane nor another subscriber.
//!
//! ```text
//!   supplier's job completes ─► feed ─► channel's thread ─► queue of each subscriber ─► Subscriber::receive
//!   EventChannel::publish ─► job of a supplier with `called = true` ─► its consumers, and the feed
//! ```
//!
//! ```
//! use std::sync::Arc;
//! use hyoshi_events::{EventChannel, Subscription};
//! use hyoshi_model::{Span, read};
//! use hyoshi_runtime::Node;
//! use hyoshi_sched::{Plan, Strategies};
//!
//! let text = r#"
//!     name     = "rover"
//!     duration = "10s"
//!     [event."sensor/gps"]
//!     payload = "64B"
//!     [operation.gps]                    # releases its consumers when a program publishes
//!     called       = true
//!     min_interval = "10ms"
//!     wcet         = "0.1ms"
//!     supplies     = ["sensor/gps"]
//!     [operation.fuse]
//!     after = { event = "sensor/gps" }
//!     wcet  = "1ms"
//! "#;
//! let system = Arc::new(read(text, "rover.toml", None)?.system);
//! let plan = Arc::new(Plan::new(&system, &Strategies::built_in())?);
//! let mut node = Node::new(system, plan).prepare()?;
//! let channel = EventChannel::start(&mut node)?;
//! let gps = channel.subscribe(&["sensor/**"], Subscription::default())?;
//! let running = node.start();
//! while channel.publish("sensor/gps", b"48.1N").is_err() {} // until the run has begun
//! let event = gps.receive(Span::from_secs(5)).expect("its supplier has completed");
//! assert_eq!((&*event.name, &*event.payload), ("sensor/gps", &b"48.1N"[..]));
//! assert!(event.age() < Span::from_secs(5));
//! # drop(running);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod channel;
mod publisher;
mod queue;
mod subscriber;

pub use channel::{ChannelError, EventChannel, EventStanding, PublishError, SubscribeError};
pub use publisher::{Publisher, RegisterError, Registration};
pub use queue::{QueueCounts, Subscription};
pub use subscriber::{ReceivedEvent, Subscriber};
