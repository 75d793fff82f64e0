//! Waits until the devices of a laboratory carry packets.
//!
//! The kernel lets a device send only some time after the other end of it is there: until a worker of the kernel has seen the new
//! carrier, all packets are dropped without notice. A laboratory is ready when no first packet is lost in this way.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use super::build::open;
use super::layout::Layout;
use super::nat::{INSIDE, OUTSIDE};

/// Time for which the kernel may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for all devices of a layout. The path must have its devices open.
///
/// # Errors
/// A device is missing, or carries no packets within 20 s.
pub(super) fn wait(layout: &Layout) -> Result<(), String> {
    let hosts = layout.hosts.iter().map(|host| (&host.namespace, vec![OUTSIDE.to_owned()]));
    let routers = layout.routers.iter().flat_map(|router| {
        let devices = |ports: usize| {
            let ports = (0..ports).map(|port| format!("port{}", port + 2));
            [OUTSIDE, INSIDE].map(str::to_owned).into_iter().chain(ports).collect::<Vec<_>>()
        };
        let carrier = router.carrier.as_ref().map(|carrier| (carrier, devices(1)));
        std::iter::once((&router.namespace, devices(router.hosts.len()))).chain(carrier)
    });
    let end = Instant::now() + PATIENCE;
    for (name, devices) in hosts.chain(routers) {
        let wait = || {
            // The kernel takes requests about devices on a socket of any kind.
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            devices.iter().try_for_each(|device| wait_for(&socket, device, end))
        };
        let waited = open(name)?.within(wait).and_then(|waited| waited);
        waited.map_err(|error| format!("the devices of {name} carry no packets: {error}"))?;
    }
    Ok(())
}

/// Waits for a device of the socket's namespace.
fn wait_for(socket: &UdpSocket, device: &str, end: Instant) -> io::Result<()> {
    loop {
        // SAFETY: all bytes zero are a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(device.bytes().take(libc::IFNAMSIZ - 1)) {
            *to = from as libc::c_char;
        }
        ask(socket, libc::SIOCGIFFLAGS, &mut request)?;
        // SAFETY: the kernel has filled in the flags.
        let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
        if flags & libc::IFF_RUNNING != 0 {
            // The worker still holds the lock of all devices. Setting the flags as they are changes nothing, and waits for the lock.
            return ask(socket, libc::SIOCSIFFLAGS, &mut request);
        }
        if Instant::now() > end {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{device} has no carrier")));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn ask(socket: &UdpSocket, code: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: both requests read and write an ifreq, which outlives the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), code, request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
