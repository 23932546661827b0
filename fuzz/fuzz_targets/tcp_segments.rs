//! A connection, begun in any state, under any sequence of segments, calls of its application and
//! time-outs:
//! [`millstream_fuzz::conversation`].
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    millstream_fuzz::conversation::run(bytes);
});
