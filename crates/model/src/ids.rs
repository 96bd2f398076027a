//! Indices of hosts, processors, operations, resources and chains; ids of jobs.

macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The position in the vector of [`System`](crate::System) that this index belongs to.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

index!(/** A position in [`Contents::hosts`](crate::Contents::hosts). */ HostId);
index!(/** A position in [`Contents::processors`](crate::Contents::processors). */ ProcessorId);
index!(/** A position in [`Contents::operations`](crate::Contents::operations). */ OperationId);
index!(/** A position in [`Contents::resources`](crate::Contents::resources). */ ResourceId);
index!(/** A position in [`Contents::chains`](crate::Contents::chains). */ ChainId);
index!(/** A position in [`Brokered::programs`](crate::Brokered::programs). */ ProgramId);

/// One execution of an operation: the operation, the number of its release from 0, and for load chains the leg, from 0.
///
/// A triggered operation uses the number of the job that triggered it, so `nav#812` means the same frame along a whole
/// chain. Only `any` triggers and joins of operations with different roots count independently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId {
    /// The operation that the job executes.
    pub operation: OperationId,
    /// The number of the release, from 0.
    pub number: u64,
    /// The leg of a load chain, from 0; 0 for every other operation.
    pub leg: u16,
}
