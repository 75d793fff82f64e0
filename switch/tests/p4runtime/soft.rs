//! The switch in software, with its sockets and its controllers, passes the stories.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use switch::device::Device;
use switch::dirty::Shape;
use switch::p4rt::client::SwitchConfig;
use switch::p4rt::device::Controlled;
use switch::p4rt::server;
use switch::pipeline::REGISTERS;
use switch::soft::Switch;
use switch::trace::replay::{On, replay};

use super::common::*;
use super::stories;

#[tokio::test]
async fn it_does_what_the_stories_say() {
    let device = Arc::new(Device::new(Shape::DEFAULT, REGISTERS));
    let soft = Switch::bind("127.0.0.1:0".parse().unwrap(), device.clone()).unwrap();
    let data = soft.socket().local_addr().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let thread = std::thread::spawn({
        let is_over = is_over.clone();
        move || soft.run(&is_over)
    });
    let target = Arc::new(Controlled::new(device.clone()));
    let server = server::spawn("127.0.0.1:0".parse().unwrap(), DEVICE, target).unwrap();
    let endpoint = format!("http://{}", server.address());

    let on = On {
        data,
        control: SwitchConfig { endpoint, device: DEVICE, device_config: Vec::new() },
        election: 1,
        here: [127, 0, 0, 1].into(),
        patience: SOON,
        quiet: Duration::from_millis(20),
    };
    for (name, trace) in stories::all() {
        replay(&trace, &on).await.unwrap_or_else(|failed| panic!("{name}: {failed}"));
    }
    let counters = device.lock().counters.clone();
    assert!(counters.reads_single > 10 && counters.completions > 10 && counters.writes > 10, "{counters:?}");
    drop(server);
    is_over.store(true, Ordering::Relaxed);
    thread.join().unwrap();
}
