//! The kernel is asked for CPUs that wake up soon while an engine lives, and everything goes on
//! without its consent. The requests here are as lax as they can be, so that the machine stays as
//! it is.

use std::time::Duration;

use millstream::{Engine, net};

use crate::common::{config, pool};

/// A latency that the kernel takes for no limit at all.
const LAX: Duration = Duration::from_secs(2_000);

/// Descriptors of this process that hold a request.
fn requests() -> usize {
    let links = std::fs::read_dir("/proc/self/fd").expect("a proc file system").flatten();
    let is_device = |to: std::path::PathBuf| to.ends_with("cpu_dma_latency");
    links.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(is_device)).count()
}

#[test]
fn it_is_off_unless_asked_for_and_goes_with_the_engine_in_both_placements() {
    let pool = pool();
    assert_eq!(Engine::new(config(&pool, 1)).expect("an engine").inspect().idle_latency(), None);
    assert_eq!(requests(), 0);

    let wish = config(&pool, 1).idle_latency(Some(LAX));
    let mut engine = Engine::new(wish).expect("an engine, whatever the kernel says");
    let state = engine.inspect().idle_latency().expect("what came of it");
    assert_eq!(state.asked, LAX);
    assert_eq!(requests(), usize::from(state.in_force.is_ok()));
    engine.set_idle_latency(None);
    assert_eq!((engine.inspect().idle_latency(), requests()), (None, 0));
    engine.set_idle_latency(Some(LAX));
    drop(engine);
    assert_eq!(requests(), 0);

    let made = config(&pool, 1);
    let builder = net::StackBuilder::new().idle_latency(LAX);
    let stack = builder.spawn(move || Engine::new(made)).expect("a stack");
    let state = stack.idle_latency().expect("an engine").expect("what came of it");
    assert_eq!(state.asked, LAX);
    assert_eq!(requests(), usize::from(state.in_force.is_ok()));
    stack.shutdown();
    drop(stack);
    assert_eq!(requests(), 0);
}
