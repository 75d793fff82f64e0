//! Whole networks under test: in simulation, on this machine, over ssh.
