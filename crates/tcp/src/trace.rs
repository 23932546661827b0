//! Events of a connection's life for a `tracing` subscriber (feature `tracing`).
//!
//! Each event names the two ends (`local`, `remote`) and the connection's own time (`at_ns`). Level
//! DEBUG is for what happens a few times in a connection's life or in a loss, TRACE for each
//! segment that is dropped or marked lost. Nothing is traced of a segment that is in order: with
//! the feature on, such a segment costs as much as with the feature off.

/// `trace!(context, LEVEL, "what happened", field = value, …)`. Where nobody listens the values
/// are not computed.
#[cfg(feature = "tracing")]
macro_rules! trace {
    ($context:expr, $level:ident, $what:literal $(, $field:ident = $value:expr)*) => {
        ::tracing::event!(
            target: "millstream::tcp",
            ::tracing::Level::$level,
            local = %$context.tuple.local,
            remote = %$context.tuple.remote,
            at_ns = $context.now.as_nanos(),
            $($field = $value,)*
            $what
        )
    };
}

/// Nothing: its values are checked by the compiler, and never computed.
#[cfg(not(feature = "tracing"))]
macro_rules! trace {
    ($context:expr, $level:ident, $what:literal $(, $field:ident = $value:expr)*) => {
        if false {
            let _ = (&$context.tuple, $(&$value),*);
        }
    };
}

pub(crate) use trace;
