//! Simulated worlds: each protocol over its typical links, and derived results.

mod advise;
mod bottleneck;
mod bounds;
mod bundle_years;
mod bundles;
mod carried;
mod chains;
mod coded;
mod efficiency;
mod ftp;
mod grc;
mod long_links;
mod ltp;
mod ltpt;
mod norm;
mod norm_congestion;
mod overlay;
mod pep;
mod programs;
mod receivers;
mod runs;
mod saratoga;
mod scps_fp;
mod settings;
mod worlds;
