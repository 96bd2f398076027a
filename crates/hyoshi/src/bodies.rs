//! The bodies of operations: the code that a job executes.

use std::error::Error;
use std::fmt;
#[cfg(feature = "orb")]
use std::sync::Arc;

use hyoshi_events::EventChannel;
use hyoshi_model::System;
#[cfg(feature = "orb")]
use hyoshi_node::Objects;
#[cfg(feature = "orb")]
use hyoshi_orb::Interface;
use hyoshi_runtime::{Body, JobContext, Node, RegionCallback, RegionEvent, RunHandles};

/// Bodies by operation; operations without one do built-in work.
///
/// Bodies that share declared resources need the system to create the [`SharedValue`](crate::SharedValue)
/// values: [`Bodies::for_system`] receives it after the file is read.
#[derive(Default)]
pub struct Bodies {
    given: Vec<(String, Body)>,
    #[cfg(feature = "orb")]
    objects: Objects,
    channel_users: Vec<ChannelUser>,
    handle_users: Vec<HandleUser>,
    region_callbacks: Vec<(String, RegionCallback)>,
    later: Option<Later>,
}

/// Receives the event channel of a run.
pub(crate) type ChannelUser = Box<dyn FnOnce(EventChannel)>;

/// Receives the handles of a run.
pub(crate) type HandleUser = Box<dyn FnOnce(RunHandles)>;

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
        Bodies { later: Some(Box::new(make)), ..Bodies::default() }
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

    /// Adds the servant of an object of the file ([object.NAME]): requests to it are jobs.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use hyoshi::Bodies;
    /// use hyoshi::orb::Object;
    ///
    /// struct Map;
    /// impl Object for Map {} // or the trait of your interface
    ///
    /// let bodies = Bodies::new().object::<dyn Object>("map", Arc::new(Map));
    /// # drop(bodies);
    /// ```
    #[cfg(feature = "orb")]
    pub fn object<T: Interface + ?Sized>(mut self, object: &str, servant: Arc<T>) -> Self {
        self.objects.add::<T>(object, servant);
        self
    }

    /// Passes the run's event channel to `user` just before the run begins, for threads outside the lanes that receive
    /// or publish events.
    ///
    /// ```
    /// use hyoshi::{Bodies, Span, Subscription};
    ///
    /// let bodies = Bodies::new().channel(|channel| {
    ///     let alarms = channel.subscribe(&["alarm/**"], Subscription::default()).expect("the file has alarms");
    ///     std::thread::spawn(move || {
    ///         while let Some(alarm) = alarms.receive(Span::from_secs(3600)) {
    ///             println!("{} of {}, {} ns late", alarm.name, alarm.supplier, alarm.lateness());
    ///         }
    ///     });
    /// });
    /// # drop(bodies);
    /// ```
    pub fn channel(mut self, user: impl FnOnce(EventChannel) + 'static) -> Self {
        self.channel_users.push(Box::new(user));
        self
    }

    /// Passes the handles of the run to `user` just before the run begins, for threads outside the lanes: they admit
    /// operations on standby, and set conditions of contracts.
    ///
    /// ```
    /// use hyoshi::Bodies;
    ///
    /// let bodies = Bodies::new().control(|run| {
    ///     std::thread::spawn(move || {
    ///         std::thread::sleep(std::time::Duration::from_secs(5));
    ///         match run.admissions.admit("zoom") {
    ///             Ok(admitted) => println!("zoom has a period of {}", admitted.period),
    ///             Err(error) => println!("{error}; {}", error.remedy()),
    ///         }
    ///         if let Err(error) = run.contracts.set("battery", 15.0) {
    ///             println!("{error}; {}", error.remedy());
    ///         }
    ///     });
    /// });
    /// # drop(bodies);
    /// ```
    pub fn control(mut self, user: impl FnOnce(RunHandles) + 'static) -> Self {
        self.handle_users.push(Box::new(user));
        self
    }

    /// Adds the callback that regions of contracts call by this name when they begin (`do = [{ call = "land" }]`). One
    /// thread at normal priority calls all callbacks, in the order of the changes of each contract: it should return
    /// soon.
    ///
    /// ```
    /// use hyoshi::Bodies;
    ///
    /// let bodies = Bodies::new().on_region("land", |event| {
    ///     println!("{} begins in {}, after {:?}", event.region, event.contract, event.previous);
    /// });
    /// # drop(bodies);
    /// ```
    pub fn on_region(
        mut self,
        name: impl Into<String>,
        callback: impl FnMut(&RegionEvent<'_>) + Send + 'static,
    ) -> Self {
        self.region_callbacks.push((name.into(), Box::new(callback)));
        self
    }

    /// With the bodies that are created from the system.
    pub(crate) fn complete(mut self, system: &System) -> Result<Bodies, Box<dyn Error>> {
        while let Some(make) = self.later.take() {
            let more = make(system)?;
            self.given.extend(more.given);
            #[cfg(feature = "orb")]
            self.objects.extend(more.objects);
            self.channel_users.extend(more.channel_users);
            self.handle_users.extend(more.handle_users);
            self.region_callbacks.extend(more.region_callbacks);
            self.later = more.later;
        }
        #[cfg(feature = "orb")]
        for (operation, _) in &self.given {
            if let Some(object) = self.objects.serving(system, operation) {
                let text =
                    format!("operation `{operation}` has both a body and a servant (object `{object}`): remove one");
                return Err(text.into());
            }
        }
        Ok(self)
    }

    /// The users of the event channel.
    pub(crate) fn take_channel_users(&mut self) -> Vec<ChannelUser> {
        std::mem::take(&mut self.channel_users)
    }

    /// The users of the run's handles.
    pub(crate) fn take_handle_users(&mut self) -> Vec<HandleUser> {
        std::mem::take(&mut self.handle_users)
    }

    /// The servants of objects.
    #[cfg(feature = "orb")]
    pub(crate) fn take_objects(&mut self) -> Objects {
        std::mem::take(&mut self.objects)
    }

    /// Adds the bodies to a node that will run `system`.
    pub fn install(self, system: &System, node: Node) -> Result<Node, Box<dyn Error>> {
        let Bodies { given, region_callbacks, .. } = self.complete(system)?;
        let node = region_callbacks.into_iter().fold(node, |node, (name, callback)| node.on_region(name, callback));
        Ok(given.into_iter().fold(node, |node, (operation, body)| node.body(operation, body)))
    }
}

impl fmt::Debug for Bodies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.given.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Bodies").field("given", &names).field("for_system", &self.later.is_some()).finish()
    }
}
