//! Declares counters, and reasons by which something is counted, once: the documentation comment is
//! the help that `millstream metrics` and docs/counters.md show, so it is plain text.

/// A counter, or a level that goes up and down, as it was declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Its name: the field's.
    pub name: &'static str,
    /// `count`, `bytes`, `ns` or `us`.
    pub unit: &'static str,
    /// One or two sentences.
    pub help: &'static str,
}

impl Counter {
    /// Declares one that is no field of a struct. `help` may begin with spaces.
    pub const fn new(name: &'static str, unit: &'static str, help: &'static str) -> Self {
        Self { name, unit, help: help.trim_ascii() }
    }
}

/// Declares a struct of counters: each line is a `u64` field with its help and its unit. Fields
/// that are no counters follow after `and`, with the value they begin with.
///
/// The struct has [`Default`], `COUNTERS` (each [`Counter`] in order) and `counters()` (names with
/// values). Code that shows counters walks these lists, so a new counter is one line here.
///
/// ```
/// millstream_packet::counters! {
///     /// What a door counts.
///     pub struct Door {
///         /// People who came in.
///         entered: count,
///     } and {
///         /// Its colour.
///         pub colour: &'static str = "red",
///     }
/// }
/// let door = Door { entered: 3, ..Door::default() };
/// assert_eq!(door.counters(), [("entered", 3)]);
/// assert_eq!(Door::COUNTERS[0].help, "People who came in.");
/// ```
#[macro_export]
macro_rules! counters {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[doc = $help:literal])+ $field:ident: $unit:ident,)*
        } $(and {
            $($(#[$rest_meta:meta])* $rest_vis:vis $rest:ident: $type:ty = $first:expr,)*
        })?
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[doc = $help])+ pub $field: u64,)*
            $($($(#[$rest_meta])* $rest_vis $rest: $type,)*)?
        }

        impl $name {
            /// Every counter as it was declared, in the order of [`counters`](Self::counters).
            pub const COUNTERS: [$crate::Counter; [$(stringify!($field)),*].len()] = [
                $($crate::Counter::new(stringify!($field), stringify!($unit), concat!($($help),+)),)*
            ];

            /// Returns every counter's name and value.
            pub fn counters(&self) -> [(&'static str, u64); Self::COUNTERS.len()] {
                [$((stringify!($field), self.$field),)*]
            }

            /// Adds to each counter what `now` has more of it than `before`.
            pub fn add_grown(&mut self, now: &Self, before: &Self) {
                $(self.$field += now.$field - before.$field;)*
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: 0,)* $($($rest: $first,)*)? }
            }
        }
    };
}

/// Declares an enum of reasons by which something is counted in an array of `COUNT`: each line is a
/// variant with its help and the name it is shown by, which never changes.
#[macro_export]
macro_rules! reasons {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $($(#[doc = $help:literal])+ $variant:ident = $text:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        $vis enum $name {
            $($(#[doc = $help])+ $variant,)*
        }

        impl $name {
            /// All reasons, in the order of their indices.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$variant,)*];

            /// The number of reasons.
            pub const COUNT: usize = Self::ALL.len();

            /// Returns its place in an array of `COUNT`.
            pub const fn index(self) -> usize {
                self as usize
            }

            /// Returns the short name by which it is shown: lower case, words joined by `_`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }

            /// Returns what it means, in a sentence.
            pub const fn help(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($help),+).trim_ascii(),)*
                }
            }
        }
    };
}
