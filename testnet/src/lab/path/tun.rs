//! TUN devices: the kernel hands the packets that leave a namespace to this process, and takes those that arrive.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;

use crate::live::Namespace;

/// Opens the TUN device of a namespace. Reads and writes are whole IP packets, and never wait.
///
/// # Errors
/// There is no such device, or a process has it open already.
pub(super) fn open(namespace: &Namespace, device: &str) -> io::Result<OwnedFd> {
    namespace.within(|| {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
        // SAFETY: all bytes zero are a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(device.bytes().take(libc::IFNAMSIZ - 1)) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: the kernel reads and writes `request`, which outlives the call.
        match unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut request) } {
            0 => Ok(file.into()),
            _ => Err(io::Error::last_os_error()),
        }
    })?
}
