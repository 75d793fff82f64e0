//! Treatment of packets, in stories that must not change.

mod stories;

#[test]
fn the_pipeline_does_what_they_say() {
    for (name, trace) in stories::all() {
        trace.run().unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
    }
}
