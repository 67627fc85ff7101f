//! File tools that only the simulator runs, as engines over streams: FTP and SCPS-FP ([`ftp`]);
//! scp, sftp, rsync and telnet ([`programs`]).

#![forbid(unsafe_code)]

mod flow;
pub mod ftp;
pub mod message;
pub mod programs;
